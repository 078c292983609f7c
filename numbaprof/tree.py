"""From the engine's nodes, in ticks, to the model's contexts, in nanoseconds.

Rounding must not make the books disagree, so only times that belong to one node alone
(exclusive, dispatch) are converted; every inclusive time is then their sum, bottom up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING

from numbaprof.model import CallSite, ContextKind, ContextNode
from numbaprof.native.layout import LOST_NODE, NO_NODE, PseudoSlot
from numbaprof.native.numba_api import definition_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numbaprof.model import RowKind
    from numbaprof.native.engine import NodeRecord

__all__ = ["Folded", "OverloadTotals", "UfuncEdge", "fold"]

_PSEUDO_KINDS: dict[int, ContextKind] = {
    PseudoSlot.THREAD: "thread",
    PseudoSlot.COMPILE: "compile",
    PseudoSlot.CACHE_LOAD: "cache_load",
    PseudoSlot.CACHE_MISS: "cache_miss",
    PseudoSlot.FAILED_DISPATCH: "failed dispatch",
    PseudoSlot.UNATTACHED: "unattached",
    PseudoSlot.DISPATCHING: "dispatching",
}
UNSEEN_THREADS = "(threads without Python calls)"
TRUNCATED = "(contexts not kept)"


@dataclass(frozen=True, slots=True)
class UfuncEdge:
    """Calls of one ufunc loop or C callback from one context."""

    overload: int
    parent: int
    """Node number, or NO_NODE where the thread was not known."""
    calls: int
    ticks: int
    child_ticks: int
    in_flight: int


@dataclass(slots=True)
class OverloadTotals:
    """Sums over all contexts of one overload, or of one row of the Python level."""

    calls: int = 0
    errors: int = 0
    in_flight: int = 0
    inclusive_ns: int = 0
    exclusive_ns: int = 0
    dispatch_ns: int = 0
    primitive_calls: int = 0
    """Calls that were not made inside another call of the same function."""


@dataclass(slots=True)
class Folded:
    """The tree, its sums, and what was odd about it."""

    contexts: tuple[ContextNode, ...] = ()
    totals: dict[int, OverloadTotals] = field(
        default_factory=lambda: defaultdict(OverloadTotals)
    )
    rows: dict[int, OverloadTotals] = field(
        default_factory=lambda: defaultdict(OverloadTotals)
    )
    in_flight: int = 0
    truncated: int = 0
    """Calls whose context did not fit."""
    tracing_ns: int = 0
    """Spent in our own callbacks for Python calls; in no context."""
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Draft:
    """A node while the tree is put together."""

    kind: ContextKind
    parent: int
    overload: int = -1
    row: int = -1
    via: CallSite | None = None
    label: str = ""
    calls: int = 0
    errors: int = 0
    in_flight: int = 0
    exclusive_ns: int = 0
    dispatch_ns: int = 0
    inclusive_ns: int = 0


def fold(
    records: list[NodeRecord],
    edges: list[UfuncEdge],
    overloads: Mapping[int, int],
    threads: Mapping[int, str],
    ns_per_tick: float,
    *,
    rows: Mapping[int, tuple[int, RowKind]] | None = None,
) -> Folded:
    """Turn the engine's tree into the model's.

    Parameters
    ----------
    records : list of NodeRecord
        As read from the engine; a parent comes before its children.
    edges : list of UfuncEdge
        What ran without the GIL and so is not among the nodes.
    overloads : mapping of int to int
        Slot address to index of the overload.
    threads : mapping of int to str
        Thread ident to name.
    ns_per_tick : float
        Rate of the clock.
    rows : mapping of int to (int, str), optional
        Address of a row of the Python level to its index and kind.

    Returns
    -------
    Folded
        Contexts in an order where parents come first, and sums per overload in which
        every moment is counted once under recursion.
    """
    folded = Folded()
    drafts = _draft_nodes(records, overloads, threads, ns_per_tick, folded)
    _place_rows(drafts, records, rows or {})
    _report_strangers(drafts, folded)
    overhead = sum(record.overhead_ticks for record in records)
    folded.tracing_ns = round(overhead * ns_per_tick)
    unplaced = _draft_edges(drafts, edges, ns_per_tick)
    _balance(drafts, records, (edges, unplaced), ns_per_tick, folded)
    _sum_inclusive(drafts)
    _sum_functions(drafts, folded)
    folded.contexts = _freeze(drafts)
    return folded


def _draft_nodes(
    records: list[NodeRecord],
    overloads: Mapping[int, int],
    threads: Mapping[int, str],
    ns_per_tick: float,
    folded: Folded,
) -> list[_Draft]:
    drafts = []
    for number, record in enumerate(records):
        own = record.inclusive_ticks - record.child_ticks
        draft = _Draft(
            kind=_PSEUDO_KINDS.get(record.slot, "overload"),
            parent=record.parent,
            overload=overloads.get(record.slot, -1),
            via=call_site(record.code),
            calls=record.calls,
            errors=record.errors,
            in_flight=record.in_flight,
            exclusive_ns=round(own * ns_per_tick),
            dispatch_ns=round(record.dispatch_ticks * ns_per_tick),
        )
        if draft.kind == "thread":
            draft.exclusive_ns = 0
            draft.label = threads.get(
                record.thread_ident, f"thread {record.thread_ident}"
            )
        elif number == LOST_NODE:
            draft.kind, draft.label = "truncated", TRUNCATED
        drafts.append(draft)
    return drafts


def _place_rows(
    drafts: list[_Draft],
    records: list[NodeRecord],
    rows: Mapping[int, tuple[int, RowKind]],
) -> None:
    """Say which drafts are Python functions and builtins.

    Their calls that were under way at the end count as calls, as they do in cProfile.
    """
    for draft, record in zip(drafts, records, strict=True):
        found = rows.get(record.slot)
        if found is not None:
            draft.row, draft.kind = found
            draft.calls += draft.in_flight
            draft.in_flight = 0


def _report_strangers(drafts: list[_Draft], folded: Folded) -> None:
    for number, draft in enumerate(drafts):
        if draft.kind == "overload" and draft.overload < 0:
            folded.problems.append(f"context {number} names an unknown slot")


def call_site(code: object) -> CallSite | None:
    """Return the place of a code object, None for anything else."""
    if not isinstance(code, CodeType):
        return None
    name = getattr(code, "co_qualname", code.co_name)
    return CallSite(code.co_filename, definition_line(code), name)


def _draft_edges(
    drafts: list[_Draft], edges: list[UfuncEdge], ns_per_tick: float
) -> list[list[int]]:
    """Draft the edges; return [draft, ticks] of those whose caller is not known."""
    unseen = None
    unplaced = []
    for edge in edges:
        parent = edge.parent
        if parent == NO_NODE:
            if unseen is None:
                unseen = len(drafts)
                drafts.append(_Draft("thread", NO_NODE, label=UNSEEN_THREADS))
            parent = unseen
            unplaced.append([len(drafts), edge.ticks - edge.child_ticks])
        drafts.append(
            _Draft(
                "overload",
                parent,
                overload=edge.overload,
                calls=edge.calls,
                in_flight=edge.in_flight,
                # What was called inside hangs beside it, under the same parent.
                exclusive_ns=round((edge.ticks - edge.child_ticks) * ns_per_tick),
            )
        )
    return unplaced


def _balance(
    drafts: list[_Draft],
    records: list[NodeRecord],
    loops: tuple[list[UfuncEdge], list[list[int]]],
    ns_per_tick: float,
    folded: Folded,
) -> None:
    """Account for children's time that is in no child of the tree.

    That is the time of calls whose context did not fit, and of loops called from more
    contexts than a slot has rows for. Anything else would be a fault of the engine, and
    is reported.
    """
    truncated = any(record.parent == LOST_NODE for record in records)
    below: dict[int, int] = defaultdict(int)
    for record in records:
        if record.parent != NO_NODE:
            below[record.parent] += record.inclusive_ticks + record.dispatch_ticks
    edges, unplaced = loops
    for edge in edges:
        below[edge.parent] += edge.ticks - edge.child_ticks
    for number, record in enumerate(records):
        if LOST_NODE in (number, record.parent) or drafts[number].kind == "thread":
            continue
        missing = record.child_ticks - record.overhead_ticks - below[number]
        if missing > 0:
            missing -= _place_loops(drafts, unplaced, number, missing, ns_per_tick)
        if missing > 0 and truncated:
            drafts.append(
                _Draft(
                    "truncated",
                    number,
                    label=TRUNCATED,
                    exclusive_ns=round(missing * ns_per_tick),
                )
            )
        elif missing:
            drafts[number].exclusive_ns += round(missing * ns_per_tick)
            folded.problems.append(
                f"the children of context {number} are {missing} ticks short"
            )


def _place_loops(
    drafts: list[_Draft],
    unplaced: list[list[int]],
    parent: int,
    missing: int,
    ns_per_tick: float,
) -> int:
    """Move time of loops whose caller is not known to where it is missing.

    Returns
    -------
    int
        Ticks that were placed.

    Notes
    -----
    Their calls stay where they are. Where several loops ran out of rows, time may be
    placed under one that was another's.
    """
    placed = 0
    for entry in unplaced:
        source, left = entry
        ticks = min(left, missing - placed)
        if ticks > 0:
            entry[1] -= ticks
            placed += ticks
            moved = min(round(ticks * ns_per_tick), drafts[source].exclusive_ns)
            drafts[source].exclusive_ns -= moved
            overload = drafts[source].overload
            drafts.append(
                _Draft("overload", parent, overload=overload, exclusive_ns=moved)
            )
    return placed


def _sum_inclusive(drafts: list[_Draft]) -> None:
    for draft in drafts:
        draft.inclusive_ns = draft.exclusive_ns
    for draft in _children_first(drafts):
        if draft.parent != NO_NODE:
            drafts[draft.parent].inclusive_ns += draft.inclusive_ns + draft.dispatch_ns


def _children_first(drafts: list[_Draft]) -> list[_Draft]:
    """Return the drafts with every child before its parent.

    Only drafts added for ufunc edges break the rule that a parent has the smaller
    number, and only as leaves or as the one root of unseen threads.
    """
    depths = [0] * len(drafts)
    for number, draft in enumerate(drafts):
        if draft.parent != NO_NODE:
            depths[number] = depths[draft.parent] + 1
    order = sorted(range(len(drafts)), key=lambda number: -depths[number])
    return [drafts[number] for number in order]


def _sum_functions(drafts: list[_Draft], folded: Folded) -> None:
    """Sum per overload and per row; inclusive time only of outermost calls.

    A walk through the tree with a counter per function: sets of ancestors would take
    the square of the depth.
    """
    below: dict[int, list[int]] = defaultdict(list)
    for number, draft in enumerate(drafts):
        below[draft.parent].append(number)
    # Entered twice: as it is found, and inverted once all below it is done.
    waiting = below[NO_NODE]
    open_calls: dict[int, int] = defaultdict(int)
    while waiting:
        number = waiting.pop()
        if number < 0:
            open_calls[_function_of(drafts[~number])] -= 1
            continue
        draft = drafts[number]
        if draft.overload >= 0 or draft.row >= 0:
            function = _function_of(draft)
            _add_node(folded, draft, outermost=not open_calls[function])
            open_calls[function] += 1
            waiting.append(~number)
        waiting += below[number]


def _function_of(draft: _Draft) -> int:
    """Return one number for overloads and rows together."""
    return draft.overload if draft.overload >= 0 else ~draft.row


def _add_node(folded: Folded, draft: _Draft, *, outermost: bool) -> None:
    if draft.overload >= 0:
        totals = folded.totals[draft.overload]
        folded.in_flight += draft.in_flight
    else:
        totals = folded.rows[draft.row]
    folded.truncated += draft.calls if draft.parent == LOST_NODE else 0
    totals.calls += draft.calls
    totals.errors += draft.errors
    totals.in_flight += draft.in_flight
    totals.exclusive_ns += draft.exclusive_ns
    totals.dispatch_ns += draft.dispatch_ns
    if outermost:
        totals.primitive_calls += draft.calls
        totals.inclusive_ns += draft.inclusive_ns


def _freeze(drafts: list[_Draft]) -> tuple[ContextNode, ...]:
    """Return the tree without nodes that hold nothing, renumbered.

    The calls below LOST_NODE are in the sums of their overloads; their time is in the
    tree as "truncated" children of where it was spent.
    """
    kept: dict[int, int] = {}
    nodes: list[ContextNode] = []
    needed = _needed(drafts)
    for number, draft in enumerate(drafts):
        if number not in needed:
            continue
        kept[number] = len(nodes)
        nodes.append(
            ContextNode(
                kind=draft.kind,
                parent=kept[draft.parent] if draft.parent != NO_NODE else -1,
                overload=draft.overload,
                python_row=draft.row,
                via=draft.via,
                label=draft.label,
                calls=draft.calls,
                errors=draft.errors,
                inclusive_ns=draft.inclusive_ns,
                exclusive_ns=draft.exclusive_ns,
                dispatch_ns=draft.dispatch_ns,
            )
        )
    return tuple(nodes)


def _needed(drafts: list[_Draft]) -> set[int]:
    needed: set[int] = set()
    for number in range(len(drafts) - 1, -1, -1):
        draft = drafts[number]
        lost = number == LOST_NODE or draft.parent == LOST_NODE
        holds = draft.calls or draft.in_flight or draft.exclusive_ns
        if not lost and (holds or number in needed):
            needed.add(number)
            if draft.parent != NO_NODE:
                needed.add(draft.parent)
    return needed
