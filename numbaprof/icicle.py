"""The picture's tree: a profile's contexts as boxes.

Two things are done to the contexts, each linear in their number:

* calls are put under the Python function that made them. Its own time is not measured,
  so such a box is as wide as what was measured inside it and has no time of its own;
* the contexts of compiling, which know no function, are opened into one box per
  compiled signature where the compile events prove which ones they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from numbaprof.compile_tree import CONTEXT_KINDS, match_events, nest_events
from numbaprof.summary import MAIN_THREAD, display_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numbaprof.model import (
        CallSite,
        CompileEvent,
        ContextNode,
        FunctionId,
        OverloadStats,
        ProfileResult,
    )

__all__ = ["KINDS", "Box", "Kind", "build", "name_event", "place_of", "shorten"]


@dataclass(frozen=True, slots=True)
class Kind:
    """How boxes of one kind look, and what they are called."""

    title: str
    light: str
    """Colour on a light page."""
    dark: str
    """Colour on a dark page."""
    hint: str = ""
    """What the name does not say."""


KINDS: dict[str, Kind] = {
    "overload": Kind("compiled code", "#8fbaf0", "#2c5f9e"),
    "objmode": Kind(
        "objmode block", "#8fd3b0", "#22694a", "Python inside of compiled code"
    ),
    "compile": Kind("compiling", "#f6bd6b", "#8d5a10"),
    "cache_load": Kind("cache load", "#d9d36a", "#646014"),
    "cache_miss": Kind(
        "cache miss", "#ebe6a8", "#4a4724", "a look into the cache that found nothing"
    ),
    "dispatch": Kind("dispatch", "#c9b3f5", "#5a449c", "finding the overload to call"),
    "failed_dispatch": Kind("failed dispatch", "#f5a09a", "#973c37"),
    "dispatching": Kind(
        "dispatch under way", "#c9b3f5", "#5a449c", "when the profile ended"
    ),
    "python": Kind("Python", "#bfe0a4", "#42602c"),
    "builtin": Kind("builtin", "#dbe5d2", "#3a4534", "a function written in C"),
    "caller": Kind(
        "Python caller",
        "#dfe4ea",
        "#38424d",
        "as wide as what was measured inside; its own time is not",
    ),
    "thread": Kind("thread", "#c3ccd6", "#46525f"),
    "unattached": Kind(
        "not attached", "#cfdff2", "#33475f", "compiled code that could not be told"
    ),
    "truncated": Kind(
        "context not kept", "#cfdff2", "#33475f", "calls whose context did not fit"
    ),
    "small": Kind("small contexts", "#eaedf0", "#2a3138", "too small to be drawn"),
    "rest": Kind("Python and the rest", "#f3f5f7", "#20262c", "not measured"),
    "other": Kind("other", "#dcdcdc", "#454545"),
}
"""Every kind of box; a kind of context that is not in here is drawn as ``other``."""


_PYTHON_KINDS = ("python", "builtin")
"""Kinds of contexts that are Python themselves and need no caller drawn."""


@dataclass(slots=True)
class Box:
    """One rectangle of the picture."""

    kind: str
    """A key of :data:`KINDS`."""
    parent: int
    """Index of the box it is in, smaller than its own; -1 for the first."""
    name: str = ""
    place: str = ""
    """Where it is in the source: ``module.py:12``."""
    overload: int = -1
    calls: int | None = None
    """None where calls are not counted."""
    errors: int = 0
    inclusive_ns: int = 0
    self_ns: int | None = 0
    """None for callers, whose own time is not measured."""
    dispatch_ns: int = 0
    """Before ``inclusive_ns``; drawn as a box of its own."""

    @property
    def width_ns(self) -> int:
        """What the box takes of its parent."""
        return self.inclusive_ns + self.dispatch_ns


def build(result: ProfileResult) -> list[Box]:
    """Turn the calling contexts of a profile into boxes.

    Returns
    -------
    list of Box
        Parents before children. The first is the only thread, or all threads together;
        a main thread is as wide as the wall time of its process.
    """
    return _Builder(result).build()


def name_event(event: CompileEvent, names: Mapping[FunctionId, str]) -> str:
    """Name a compile event for a picture."""
    verb = {"compile": "compile", "failed": "failed", "cache_load": "load"}
    return f"{verb[event.event]} {names[event.function]}{event.signature}"


def shorten(site: CallSite | None) -> str:
    """Write a place for people: ``module.py:12``."""
    return "" if site is None else shorten_place(site.file, site.line)


def shorten_place(file: str, line: int) -> str:
    """Write a file without its folders, and the line if it is known."""
    name = PurePath(file.replace("\\", "/")).name or file
    return f"{name}:{line}" if line else name


def place_of(function: FunctionId) -> str:
    """Write where a function is: ``module.py:12``."""
    return shorten_place(function.file, function.line)


def _look(
    overload: OverloadStats, names: Mapping[FunctionId, str]
) -> tuple[str, str, str]:
    """Return kind, name and place of an overload's boxes."""
    place = place_of(overload.function)
    if overload.kind == "objmode body":
        return "objmode", f"objmode block, line {overload.function.line}", place
    return "overload", names[overload.function] + overload.signature, place


class _Builder:
    """Builds the boxes of one profile."""

    def __init__(self, result: ProfileResult) -> None:
        self._result = result
        self._names = display_names(result)
        self._looks = [_look(overload, self._names) for overload in result.overloads]
        self._nested = nest_events(result.compile_events)
        self._boxes = [Box("thread", -1, "all threads", self_ns=0)]
        self._callers: dict[tuple[int, str, str, int], int] = {}
        self._defs: dict[tuple[str, str], list[int]] = defaultdict(list)

    def build(self) -> list[Box]:
        """Draw calls, then compilations, then what was not measured."""
        self._find_definitions()
        matched = match_events(self._result)
        where: dict[int, int] = {}
        for index, node in enumerate(self._result.contexts):
            if index not in matched.contexts:
                where[index] = self._draw_node(node, where)
        for home, events in matched.outermost.items():
            self._draw_events(events, where[home])
        self._sum_callers()
        self._draw_rest(where)
        threads = [box for box in self._boxes if box.parent == 0]
        if len(threads) == 1:
            for box in self._boxes:
                box.parent -= 1
            return self._boxes[1:]
        self._boxes[0].inclusive_ns = sum(box.inclusive_ns for box in threads)
        return self._boxes

    def _find_definitions(self) -> None:
        """Note where the Python functions that made calls begin."""
        places = {
            (node.via.file, node.via.function, node.via.line)
            for node in self._result.contexts
            if node.via is not None
        }
        for file, function, line in sorted(places):
            self._defs[file, function].append(line)

    def _add(self, box: Box) -> int:
        self._boxes.append(box)
        return len(self._boxes) - 1

    def _draw_node(self, node: ContextNode, where: Mapping[int, int]) -> int:
        parent = where[node.parent] if node.parent >= 0 else 0
        is_python = node.kind in _PYTHON_KINDS
        if (
            node.via is not None
            and not is_python
            and self._boxes[parent].kind != "python"
        ):
            parent = self._caller(parent, node.via, node.via.line)
        if node.overload >= 0:
            kind, name, place = self._looks[node.overload]
        else:
            kind = node.kind.replace(" ", "_")
            kind = kind if kind in KINDS else "other"
            name, place = node.label or KINDS[kind].title, ""
        if node.kind == "thread":
            name = self._name_thread(node)
        elif node.python_row >= 0:
            row = self._result.python_rows[node.python_row]
            name = (row.qualname or row.name) + row.signature
            place = shorten_place(row.file, row.line) if kind == "python" else ""
        return self._add(
            Box(
                kind,
                parent,
                name,
                place,
                node.overload,
                None if node.kind == "thread" else node.calls,
                node.errors,
                node.inclusive_ns,
                node.exclusive_ns,
                node.dispatch_ns,
            )
        )

    def _name_thread(self, node: ContextNode) -> str:
        runs = self._result.processes
        if len(runs) < 2:
            return node.label
        run = runs[node.process]
        return f"{run.label} {run.pid}: {node.label}"

    def _caller(self, parent: int, site: CallSite, line: int) -> int:
        """Find or make the box of the Python function that called."""
        key = (parent, site.file, site.function, line)
        if key not in self._callers:
            file = shorten(site).rpartition(":")[0] or shorten(site)
            module_level = site.function == "<module>"
            self._callers[key] = self._add(
                Box(
                    "caller",
                    parent,
                    f"{file} (module level)" if module_level else site.function,
                    f"{file}:{line}" if line and not module_level else file,
                    self_ns=None,
                )
            )
        return self._callers[key]

    def _draw_events(self, outermost: Sequence[int], home: int) -> None:
        """Draw events and what is nested in them, equal ones in one box."""
        merged: dict[tuple[int, FunctionId, str, str], int] = {}
        waiting = [(index, home) for index in reversed(outermost)]
        while waiting:
            index, parent = waiting.pop()
            event = self._result.compile_events[index]
            in_thread = parent == home and self._boxes[home].kind == "thread"
            if in_thread and event.trigger is not None:
                line = self._find_definition(event.trigger)
                parent = self._caller(parent, event.trigger, line)
            key = (parent, event.function, event.signature, event.event)
            if key not in merged:
                merged[key] = self._add(
                    Box(
                        CONTEXT_KINDS[event.event],
                        parent,
                        name_event(event, self._names),
                        place_of(event.function),
                        calls=0,
                    )
                )
            box = self._boxes[merged[key]]
            box.calls = (box.calls or 0) + 1
            box.errors += event.event == "failed"
            box.inclusive_ns += event.inclusive_ns
            box.self_ns = (box.self_ns or 0) + event.exclusive_ns
            nested = self._nested.get(index, [])
            waiting += [(child, merged[key]) for child in reversed(nested)]

    def _find_definition(self, trigger: CallSite) -> int:
        """Guess the line of the ``def`` from a line within, by the calls it made."""
        lines = self._defs.get((trigger.file, trigger.function), [])
        position = bisect_right(lines, trigger.line)
        return lines[position - 1] if position else 0

    def _sum_callers(self) -> None:
        for box in reversed(self._boxes):
            above = self._boxes[box.parent]
            if box.parent >= 0 and above.kind == "caller":
                above.inclusive_ns += box.width_ns

    def _draw_rest(self, where: Mapping[int, int]) -> None:
        """Widen main threads to the wall time: what is left is Python and the rest."""
        for index, node in enumerate(self._result.contexts):
            if node.kind != "thread" or node.label != MAIN_THREAD:
                continue
            rest = self._result.processes[node.process].wall_ns - node.inclusive_ns
            if rest > 0:
                self._boxes[where[index]].inclusive_ns += rest
                self._add(
                    Box(
                        "rest",
                        where[index],
                        KINDS["rest"].title,
                        inclusive_ns=rest,
                        self_ns=rest,
                    )
                )
