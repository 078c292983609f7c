"""Which compile events a profile's contexts of compiling stand for.

The calling-context tree knows how long compiling took and where, but not of what; the
compile events know of what and when, but not from which context. Where both can only
mean the same, the events can stand in for the contexts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numbaprof.model import CompileEvent, ContextKind, ProfileResult

__all__ = ["CONTEXT_KINDS", "MatchedEvents", "match_events", "nest_events"]

CONTEXT_KINDS: dict[str, ContextKind] = {
    "compile": "compile",
    "failed": "compile",
    "cache_load": "cache_load",
}
"""Kind of the context that a compile event was timed in, by its outcome."""

_TOLERANCE_NS, _TOLERANCE_SHARE = 10_000_000, 0.1
"""How far events and contexts may be apart on the same compilations. An event begins a
little earlier and ends later; on a machine with more to do than cores, a time slice."""

_Path = tuple[str, ...]
"""Kinds of contexts from a home down: ("compile", "cache_load")."""
_Totals = dict[_Path, tuple[int, int]]
"""Calls and nanoseconds by path."""
_Place = tuple[str, str]
"""File and qualified name of a Python function."""

_NO_HOME = -1


@dataclass(frozen=True, slots=True)
class MatchedEvents:
    """Contexts that are told apart by compile events."""

    contexts: frozenset[int]
    """Indices of contexts that the events replace."""
    outermost: dict[int, list[int]]
    """Index of the context around them to the indices of events that are in no other:
    a thread, or a Python function or builtin that was traced."""


def nest_events(events: Sequence[CompileEvent]) -> dict[int, list[int]]:
    """Map each event, and -1 for none, to the events directly in it."""
    nested: dict[int, list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        nested[event.parent].append(index)
    return nested


def match_events(result: ProfileResult) -> MatchedEvents:
    """Find the contexts of compiling that compile events can replace.

    Returns
    -------
    MatchedEvents
        Empty where nothing could be proved.

    Notes
    -----
    All contexts of compiling in one home (a thread, or a traced Python function) are
    matched or none is. They are where as many events as calls were found on every
    level, and their times agree within 10 % or 10 ms; and in a Python function only
    where it has one context with compilations, as events know no more than its name. A
    look into the cache in vain that happened inside a compilation becomes part of it.
    """
    homes = _Homes(result)
    nested = nest_events(result.compile_events)
    matched: set[int] = set()
    outermost: dict[int, list[int]] = {}
    for home, events in homes.share_out(nested[-1]).items():
        found = _sum_by_path(result.compile_events, events, nested)
        if home not in homes.closed and _agree(homes.totals[home], found):
            matched |= homes.members[home]
            outermost[home] = events
    return MatchedEvents(frozenset(matched), outermost)


class _Homes:
    """Contexts that have contexts of compiling below them, and what those counted."""

    def __init__(self, result: ProfileResult) -> None:
        self._result = result
        self.totals: dict[int, _Totals] = defaultdict(dict)
        self.members: dict[int, set[int]] = defaultdict(set)
        self.closed: set[int] = set()
        """Homes where something else is inside of a compilation."""
        self._places: dict[int, tuple[int, _Place | None]] = {}
        self._find()

    def _find(self) -> None:
        contexts, rows = self._result.contexts, self._result.python_rows
        home = [_NO_HOME] * len(contexts)
        root = list(home)
        paths: list[_Path] = [()] * len(contexts)
        places: list[_Place | None] = [None] * len(contexts)
        for index, node in enumerate(contexts):
            above = node.parent
            if above < 0:
                home[index] = root[index] = index
                continue
            root[index], places[index] = root[above], places[above]
            inside = paths[above] != ()
            if node.kind in ("compile", "cache_load"):
                home[index], paths[index] = home[above], (*paths[above], node.kind)
                self._add(index, home[above], paths[index])
                self._places[home[above]] = root[above], places[above]
            elif inside:
                home[index], paths[index] = home[above], paths[above]
                self.members[home[above]].add(index)
                if node.kind != "cache_miss":
                    self.closed.add(home[above])
            elif node.kind in ("python", "builtin"):
                home[index] = index
                if node.kind == "python" and node.python_row >= 0:
                    row = rows[node.python_row]
                    places[index] = row.file, row.qualname

    def _add(self, index: int, home: int, path: _Path) -> None:
        node = self._result.contexts[index]
        self.members[home].add(index)
        calls, time_ns = self.totals[home].get(path, (0, 0))
        self.totals[home][path] = calls + node.calls, time_ns + node.inclusive_ns

    def share_out(self, outermost: Iterable[int]) -> dict[int, list[int]]:
        """Give every home the events that can only be its own."""
        by_place: dict[tuple[int, str, _Place | None], list[int]] = defaultdict(list)
        for home, (root, place) in self._places.items():
            if home != _NO_HOME:
                thread = self._result.contexts[root]
                by_place[thread.process, thread.label, place].append(home)
        shares: dict[int, list[int]] = defaultdict(list)
        for index in outermost:
            event = self._result.compile_events[index]
            site = event.trigger
            place = (site.file, site.function) if site is not None else None
            homes = by_place.get(
                (event.process, event.thread, place),
                by_place.get((event.process, event.thread, None), []),
            )
            if len(homes) == 1:
                shares[homes[0]].append(index)
        return shares


def _sum_by_path(
    events: Sequence[CompileEvent],
    outermost: list[int],
    nested: dict[int, list[int]],
) -> _Totals:
    """Count events and add their times by the path their contexts would have."""
    found: _Totals = {}
    waiting: list[tuple[int, _Path]] = [(index, ()) for index in outermost]
    while waiting:
        index, above = waiting.pop()
        event = events[index]
        path = (*above, CONTEXT_KINDS[event.event])
        calls, time_ns = found.get(path, (0, 0))
        found[path] = calls + 1, time_ns + event.inclusive_ns
        waiting += [(child, path) for child in nested.get(index, [])]
    return found


def _agree(expected: _Totals, found: _Totals) -> bool:
    if expected.keys() != found.keys():
        return False
    for path, (calls, time_ns) in expected.items():
        n_events, events_ns = found[path]
        allowed = max(_TOLERANCE_NS, _TOLERANCE_SHARE * time_ns)
        if n_events != calls or abs(events_ns - time_ns) > allowed:
            return False
    return True
