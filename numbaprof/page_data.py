"""What the HTML page draws, as plain lists: the data block of ``app.js``.

Everything is a column (a list per figure), times are whole nanoseconds and texts are
indices into one list, because a large profile repeats few names many times.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from numbaprof.analysis import (
    display_names,
    explain_overloads,
    is_internal,
    percentile,
)
from numbaprof.compile_tree import CONTEXT_KINDS
from numbaprof.errors import OptionError
from numbaprof.icicle import KINDS, Box, build, name_event, place_of, shorten
from numbaprof.overload_table import (
    SORT_KEYS,
    Totals,
    label_overload,
    order_overloads,
    sum_overloads,
)
from numbaprof.pruning import prune
from numbaprof.summary import charge_helpers, uncharged_helpers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numbaprof.model import CompileEvent, OverloadStats, ProfileResult

__all__ = ["PageOptions", "collect", "to_json"]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How much a page shows, and in which order."""

    sort: str = "cost"
    """Order of the overloads at first, a key of ``overload_table.SORT_KEYS``."""
    max_contexts: int = 10_000
    """Contexts that are drawn; the others are summed. About 60 bytes each."""
    max_overloads: int = 2_000
    max_events: int = 4_000

    def __post_init__(self) -> None:
        """Refuse values that cannot be.

        Raises
        ------
        OptionError
            For an unknown order or a limit below 1.
        """
        if self.sort not in SORT_KEYS:
            raise OptionError(
                f"page: cannot sort by {self.sort!r}, only by {', '.join(SORT_KEYS)}"
            )
        for name in ("max_contexts", "max_overloads", "max_events"):
            if getattr(self, name) < 1:
                raise OptionError(
                    f"page: {name} is {getattr(self, name)}, it must be at least 1"
                )


@dataclass(slots=True)
class _Texts:
    """Texts by number, each kept once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def collect(result: ProfileResult, options: PageOptions) -> dict[str, Any]:
    """Collect what the page draws.

    Returns
    -------
    dict
        Ready for :func:`to_json`; the names are those that ``app.js`` reads.

    Notes
    -----
    Linear in the number of contexts, overloads and events but for sorting each.
    """
    texts = _Texts()
    boxes, pruned = prune(build(result), options.max_contexts)
    data = {
        "sort": options.sort,
        "wall": result.wall_ns,
        "kinds": {slug: [kind.title, kind.hint] for slug, kind in KINDS.items()},
        "boxes": _list_boxes(boxes, texts),
        "pruned": None if pruned is None else asdict(pruned),
        "overloads": _list_overloads(result, options, texts),
        "events": _list_events(result, options.max_events, texts),
    }
    return data | {"texts": list(texts.numbers)}


def to_json(data: object) -> str:
    """Write JSON that can stand in an HTML document.

    Only ASCII, and without ``<``, ``>`` and ``&``: no text in it can end the element it
    is in or begin another one.
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _list_boxes(boxes: Sequence[Box], texts: _Texts) -> dict[str, Any]:
    kinds = list(KINDS)
    number = {kind: index for index, kind in enumerate(kinds)}
    return {
        "kinds": kinds,
        "kind": [number[box.kind] for box in boxes],
        "parent": [box.parent for box in boxes],
        "name": [texts.add(box.name) for box in boxes],
        "place": [texts.add(box.place) for box in boxes],
        "overload": [box.overload for box in boxes],
        "calls": [box.calls for box in boxes],
        "errors": [box.errors for box in boxes],
        "inclusive": [box.inclusive_ns for box in boxes],
        "self": [box.self_ns for box in boxes],
        "dispatch": [box.dispatch_ns for box in boxes],
    }


# -- overloads -------------------------------------------------------------------------


def _list_overloads(
    result: ProfileResult, options: PageOptions, texts: _Texts
) -> dict[str, Any]:
    names = display_names(result)
    reasons = explain_overloads(result)
    # As in the report: what Numba compiled for an overload is in its figure.
    n_left, left_ns = uncharged_helpers(result)
    result = charge_helpers(result)
    rows: dict[str, list[Any]] = {name: [] for name in _OVERLOAD_COLUMNS}
    families = order_overloads(result, options.sort)
    ordered = [index for members in families for index in members]
    key = SORT_KEYS[options.sort]
    # Not by family: the table says by which figure it is sorted.
    ordered.sort(key=lambda index: -key(result.overloads[index]))
    for index in ordered[: options.max_overloads]:
        overload = result.overloads[index]
        label = label_overload(overload, names[overload.function])
        described: dict[str, Any] = {
            "index": index,
            "label": texts.add(label),
            "full": texts.add(names[overload.function] + overload.signature),
            "place": texts.add(place_of(overload.function)),
            "why": texts.add(reasons[index]),
            "note": texts.add(overload.not_countable_reason),
        }
        for name, value in (described | _measure(overload)).items():
            rows[name].append(value)
    listed = [result.overloads[index] for index in ordered]
    more = sum_overloads(listed[options.max_overloads :])
    helpers = sum_overloads(o for o in result.overloads if is_internal(o))
    helpers = replace(
        helpers, overloads=max(helpers.overloads, n_left), compile_ns=left_ns
    )
    groups = [("more overloads", more), ("of Numba’s own helpers", helpers)]
    sums = [
        [f"{total.overloads:,} {title}", _sum_cells(total)]
        for title, total in groups
        if total != Totals(overloads=total.overloads)
    ]
    everything = sum_overloads(listed) + helpers
    return {
        "rows": rows,
        "sums": [*sums, ["all overloads", _sum_cells(everything)]],
    }


_OVERLOAD_COLUMNS = (
    *("index", "label", "full", "place", "why", "note", "calls", "errors"),
    "cost",
    *("total", "self", "mean", "min", "p50", "p99", "max"),
    *("dispatch", "compile", "cache_load"),
)


def _measure(overload: OverloadStats) -> dict[str, Any]:
    mean = None
    if overload.calls and overload.inclusive_ns is not None:
        mean = round(overload.inclusive_ns / overload.calls, 1)
    return {
        "calls": overload.calls,
        "errors": overload.errors,
        "cost": SORT_KEYS["cost"](overload),
        "total": overload.inclusive_ns,
        "self": overload.exclusive_ns,
        "mean": mean,
        "min": overload.min_ns,
        "p50": _percentile(overload, 0.5),
        "p99": _percentile(overload, 0.99),
        "max": overload.max_ns,
        "dispatch": overload.dispatch_ns,
        "compile": overload.compile_self_ns,
        "cache_load": overload.cache_load_ns or None,
    }


def _percentile(overload: OverloadStats, q: float) -> int | None:
    if overload.min_ns is None or overload.max_ns is None:
        return None
    return percentile(
        overload.histogram, q, min_ns=overload.min_ns, max_ns=overload.max_ns
    )


def _sum_cells(total: Totals) -> dict[str, int]:
    """Only figures that can be added; inclusive ones contain each other."""
    return {
        "calls": total.calls,
        "errors": total.errors,
        "self": total.self_ns,
        "dispatch": total.dispatch_ns,
        "compile": total.compile_ns,
        "cache_load": total.cache_load_ns,
    }


# -- compile events --------------------------------------------------------------------


def _list_events(result: ProfileResult, limit: int, texts: _Texts) -> dict[str, Any]:
    names = display_names(result)
    events = result.compile_events
    kept = _largest(events, limit)
    position = {old: new for new, old in enumerate(kept)} | {-1: -1}
    lanes: dict[str, int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in _EVENT_COLUMNS}
    for index in kept:
        event = events[index]
        row: dict[str, Any] = {
            "parent": position.get(event.parent, -1),
            "lane": lanes.setdefault(_name_lane(result, event), len(lanes)),
            "kind": CONTEXT_KINDS[event.event],
            "outcome": event.event,
            "name": texts.add(name_event(event, names)),
            "trigger": texts.add(_describe_trigger(event)),
            "error": texts.add(event.error),
            "internal": int(event.internal),
            "start": event.start_ns,
            "inclusive": event.inclusive_ns,
            "self": event.exclusive_ns,
        }
        for name, value in row.items():
            columns[name].append(value)
    left_out = set(range(len(events))) - set(kept)
    return {
        "columns": columns,
        "lanes": list(lanes),
        "span": max((run.wall_ns for run in result.processes), default=0),
        "left_out": len(left_out),
        "left_out_ns": sum(events[index].exclusive_ns for index in left_out),
    }


_EVENT_COLUMNS = (
    *("parent", "lane", "kind", "outcome", "name", "trigger", "error", "internal"),
    *("start", "inclusive", "self"),
)


def _largest(events: Sequence[CompileEvent], limit: int) -> list[int]:
    """Pick the longest events, in their order."""
    ranked: Iterable[int] = range(len(events))
    if len(events) > limit:
        # An event is not longer than the one it is in, so parents are kept.
        longest = sorted(ranked, key=lambda i: (-events[i].inclusive_ns, i))
        ranked = sorted(longest[:limit])
    return list(ranked)


def _name_lane(result: ProfileResult, event: CompileEvent) -> str:
    if len(result.processes) < 2:
        return event.thread
    run = result.processes[event.process]
    return f"{run.label} {run.pid}: {event.thread}"


def _describe_trigger(event: CompileEvent) -> str:
    if event.trigger is None:
        return ""
    function = event.trigger.function
    where = "" if function == "<module>" else f" in {function}"
    importing = f", while importing {event.import_module}" if event.at_import else ""
    return f"{shorten(event.trigger)}{where}{importing}"
