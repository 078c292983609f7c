"""The table of overloads in a report: short, and with a last line that adds up.

Rows that do not fit are summed, never dropped: every figure of the last line is the sum
of the figures above it. Only exclusive figures are added (self, dispatch, compile);
inclusive ones contain each other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING

from numbaprof.analysis import (
    display_names,
    is_internal,
    payback_calls,
    percentile,
)
from numbaprof.layout import Column, Line, Row, Span, paragraph, tabulate
from numbaprof.summary import charge_helpers, uncharged_helpers
from numbaprof.wording import format_count, format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numbaprof.model import FunctionId, OverloadStats, ProfileResult

__all__ = [
    "SORT_KEYS",
    "Totals",
    "label_overload",
    "locate",
    "matches",
    "order_overloads",
    "render_overloads",
    "shorten_place",
    "shorten_signature",
    "sum_overloads",
]

SORT_KEYS: dict[str, Callable[[OverloadStats], float]] = {
    "cost": lambda overload: (
        (overload.exclusive_ns or 0)
        + (overload.dispatch_ns or 0)
        + (overload.compile_self_ns or 0)
        + overload.cache_load_ns
    ),
    "total": lambda overload: overload.inclusive_ns or 0,
    "self": lambda overload: overload.exclusive_ns or 0,
    "calls": lambda overload: overload.calls or 0,
    "errors": lambda overload: overload.errors,
    "compile": lambda overload: overload.compile_self_ns or 0,
    "cache_load": lambda overload: overload.cache_load_ns,
    "dispatch": lambda overload: overload.dispatch_ns or 0,
    "mean": lambda overload: (
        (overload.inclusive_ns or 0) / overload.calls if overload.calls else 0
    ),
    "max": lambda overload: overload.max_ns or 0,
    "name": lambda overload: 0,
}
"""Orders of the table: largest first, except that names go from A to Z. Cost is what
the overload adds to the wall time: running, being found, being compiled or loaded."""

MIN_NAME_WIDTH = 26
NAME_SHARE = 0.36
"""Room the last column should have before columns of lesser interest are shown:
characters, and part of the width."""

NUMBER_WIDTH = 9
"""Room a column of numbers usually takes, gap included: ``1,234 ms``."""

LONG_SIGNATURE = 60
"""Characters of a signature from which on equal neighbours are counted; shorter ones
are shown as they are compiled."""

SHORTENED_RUN = 3
"""Equal neighbours that are counted; two are as short in full."""

NOT_AVAILABLE = "-"


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of some overloads that can be added without counting twice."""

    overloads: int = 0
    calls: int = 0
    errors: int = 0
    self_ns: int = 0
    dispatch_ns: int = 0
    compile_ns: int = 0
    """Exclusive of nested compilations."""
    cache_load_ns: int = 0

    def __add__(self, other: Totals) -> Totals:
        """Add figure by figure."""
        return Totals(
            self.overloads + other.overloads,
            self.calls + other.calls,
            self.errors + other.errors,
            self.self_ns + other.self_ns,
            self.dispatch_ns + other.dispatch_ns,
            self.compile_ns + other.compile_ns,
            self.cache_load_ns + other.cache_load_ns,
        )


def sum_overloads(overloads: Iterable[OverloadStats]) -> Totals:
    """Add up the additive figures of overloads; what cannot be had adds nothing."""
    total = Totals()
    for overload in overloads:
        total += Totals(
            overloads=1,
            calls=overload.calls or 0,
            errors=overload.errors,
            self_ns=overload.exclusive_ns or 0,
            dispatch_ns=overload.dispatch_ns or 0,
            compile_ns=overload.compile_self_ns or 0,
            cache_load_ns=overload.cache_load_ns,
        )
    return total


def matches(function: FunctionId, patterns: Sequence[str]) -> bool:
    """Tell whether a pattern fits the qualname, module or file; none fits all.

    A pattern with ``*``, ``?`` or ``[`` must fit as a whole, any other is looked for
    anywhere in the text.
    """
    texts = (function.qualname, function.module, function.file)
    return not patterns or any(
        fnmatchcase(text, pattern)
        if any(letter in pattern for letter in "*?[")
        else pattern in text
        for pattern in patterns
        for text in texts
    )


def locate(function: FunctionId) -> str:
    """Write where a function is: ``package/module.py:12``."""
    return shorten_place(function.file, function.line)


def shorten_place(file: str, line: int) -> str:
    """Write a place in a source file with the last two parts of its path."""
    if not file:
        return ""
    parts = PurePath(file.replace("\\", "/")).parts[-2:]
    place = "/".join(part.strip("/") for part in parts if part.strip("/"))
    return f"{place}:{line}" if line else place


def label_overload(
    overload: OverloadStats, name: str, *, is_child: bool = False
) -> str:
    """Write an overload as a call: ``scale(float64[:, ::1], int64)``."""
    if is_child and overload.kind == "objmode body":
        return f"└ objmode block, line {overload.function.line} (Python)"
    signature = shorten_signature(overload)
    if is_child:
        return f"└ {overload.kind}, line {overload.function.line} {signature}"
    kind = "" if overload.kind in ("function", "method") else f" [{overload.kind}]"
    return name + signature + kind


def shorten_signature(overload: OverloadStats) -> str:
    """Write a long signature with equal neighbours counted: ``(6×float64[::1])``.

    A short one is returned as it is, and so is one that is not the list of the argument
    types alone: it has a number to be told from another.
    """
    texts = [arg.text for arg in overload.args]
    signature = overload.signature
    if len(signature) <= LONG_SIGNATURE or signature != f"({', '.join(texts)})":
        return signature
    parts: list[str] = []
    for text, run in groupby(texts):
        count = len(list(run))
        parts += [f"{count}×{text}"] if count >= SHORTENED_RUN else [text] * count
    return f"({', '.join(parts)})"


def order_overloads(
    result: ProfileResult, sort: str, *, only: Sequence[str] = ()
) -> list[list[int]]:
    """Sort the user's overloads into families: one, followed by its own blocks.

    Objmode blocks and lifted loops follow the overload that they belong to.

    Returns
    -------
    list of list of int
        Indices into ``result.overloads``; a family's first member is its head.
    """
    names = display_names(result)
    parents = _find_parents(result)
    families: dict[int, list[int]] = defaultdict(list)
    for index, overload in enumerate(result.overloads):
        head = parents.get(index, index)
        if not is_internal(overload) and matches(result.overloads[head].function, only):
            families[head].append(index)
    ordered = [
        sorted(members, key=lambda index: (index in parents, index))
        for members in families.values()
    ]
    key = SORT_KEYS[sort]
    charged = charge_helpers(result).overloads

    def rank(members: list[int]) -> tuple[float, str, int, int]:
        head = charged[members[0]]
        name = names[head.function] if sort == "name" else ""
        # What only compiled code calls has no time to go by: the dearest to make first.
        return (-key(head), name, -(head.compile_self_ns or 0), members[0])

    return sorted(ordered, key=rank)


def _find_parents(result: ProfileResult) -> dict[int, int]:
    """Map objmode blocks and lifted loops to the overload they are a part of."""
    parts = {
        index
        for index, overload in enumerate(result.overloads)
        if overload.kind in ("objmode body", "lifted loop")
    }
    if not parts:
        return {}
    by_key = {(o.function, o.signature): i for i, o in enumerate(result.overloads)}
    pairs = []
    events = result.compile_events
    for event in events:
        if event.parent >= 0:
            outer = events[event.parent]
            pairs.append(
                (
                    by_key.get((event.function, event.signature), -1),
                    by_key.get((outer.function, outer.signature), -1),
                )
            )
    for node in result.contexts:
        if node.kind == "overload":
            pairs.append((node.overload, result.contexts[node.parent].overload))
    return {
        part: owner
        for part, owner in pairs
        if part in parts and owner >= 0 and owner not in parts
    }


# -- rendering -------------------------------------------------------------------------


@dataclass(slots=True)
class _Footnotes:
    """Reasons, numbered as they are met."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, text: str, reason: str) -> str:
        if not reason:
            return text
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return text + _superscript(number)


def _superscript(number: int) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number))


@dataclass(frozen=True, slots=True)
class _NumberColumn:
    """How a column shows one overload and the sum of many."""

    cell: Callable[[OverloadStats, _Footnotes], str]
    add: Callable[[Totals], str]
    legend: str = ""
    """Line under the table that says what the column is; "" for the obvious ones."""


def _blank(total: Totals) -> str:
    return ""


def _duration(duration_ns: float | None) -> str:
    return NOT_AVAILABLE if duration_ns is None else format_duration(duration_ns)


def _show_calls(overload: OverloadStats, notes: _Footnotes) -> str:
    calls = overload.calls
    text = NOT_AVAILABLE if calls is None else format_count(calls)
    return notes.mark(text, overload.not_countable_reason)


def _show_dispatch(overload: OverloadStats, notes: _Footnotes) -> str:
    reason = overload.dispatch_reason if overload.dispatch_ns is None else ""
    return notes.mark(_duration(overload.dispatch_ns), reason)


def _show_compile(overload: OverloadStats, notes: _Footnotes) -> str:
    reason = overload.compile_reason if overload.compile_self_ns is None else ""
    return notes.mark(_duration(overload.compile_self_ns), reason)


def _show_mean(overload: OverloadStats, notes: _Footnotes) -> str:
    if not overload.calls or overload.inclusive_ns is None:
        return NOT_AVAILABLE
    return format_duration(overload.inclusive_ns / overload.calls)


def _show_percentile(q: float) -> Callable[[OverloadStats, _Footnotes], str]:
    def show(overload: OverloadStats, notes: _Footnotes) -> str:
        if overload.min_ns is None or overload.max_ns is None:
            return NOT_AVAILABLE
        return _duration(
            percentile(
                overload.histogram, q, min_ns=overload.min_ns, max_ns=overload.max_ns
            )
        )

    return show


def _show_payback(overload: OverloadStats, notes: _Footnotes) -> str:
    calls = payback_calls(overload)
    return NOT_AVAILABLE if calls is None else format_count(calls)


# In the order in which they stand.
_COLUMNS: dict[str, _NumberColumn] = {
    "calls": _NumberColumn(_show_calls, lambda total: format_count(total.calls)),
    "errors": _NumberColumn(
        lambda overload, notes: format_count(overload.errors),
        lambda total: format_count(total.errors),
    ),
    "total": _NumberColumn(
        lambda overload, notes: _duration(overload.inclusive_ns), _blank
    ),
    "self": _NumberColumn(
        lambda overload, notes: _duration(overload.exclusive_ns),
        lambda total: format_duration(total.self_ns),
        "self: total without the overloads and compilations inside it",
    ),
    "mean": _NumberColumn(_show_mean, _blank),
    "min": _NumberColumn(lambda overload, notes: _duration(overload.min_ns), _blank),
    "p50": _NumberColumn(_show_percentile(0.5), _blank),
    "p99": _NumberColumn(
        _show_percentile(0.99), _blank, "p50, p99: accurate to a factor of 2"
    ),
    "max": _NumberColumn(lambda overload, notes: _duration(overload.max_ns), _blank),
    "dispatch": _NumberColumn(
        _show_dispatch,
        lambda total: format_duration(total.dispatch_ns),
    ),
    "compile": _NumberColumn(
        _show_compile,
        lambda total: format_duration(total.compile_ns),
        "compile: its own and that of Numba's helpers, without the functions compiled "
        "for it",
    ),
    "load": _NumberColumn(
        lambda overload, notes: _duration(overload.cache_load_ns or None),
        lambda total: format_duration(total.cache_load_ns),
        "load: from the cache, instead of compiling",
    ),
    "payback": _NumberColumn(
        _show_payback,
        _blank,
        "payback: calls after which running has taken as long as compiling",
    ),
}

# The most wanted first; what has no room in the width is left out.
_INTEREST = (
    "calls",
    "total",
    "compile",
    "self",
    "dispatch",
    "load",
    "errors",
    "mean",
    "max",
    "payback",
    "p99",
    "min",
    "p50",
)


def render_overloads(
    result: ProfileResult, *, sort: str, top: int, only: Sequence[str], width: int
) -> list[Line]:
    """Render the table: the first ``top`` overloads, sums of the others, and notes."""
    families = order_overloads(result, sort, only=only)
    shown, more = _take(families, top)
    result = charge_helpers(result)
    columns = _choose_columns(result.overloads, width)
    notes = _Footnotes()
    rows = _rows(result, shown, columns, notes)
    rows += _sum_rows(result, more, columns, only)
    titles = [Column(title) for title in columns]
    lines = tabulate([*titles, Column("overload", "<")], rows, width)
    legends = [column.legend for column in columns.values() if column.legend]
    if sort == "cost":
        legends.append("cost: own run time, dispatch, compile and load together")
    if legends:
        lines += paragraph("; ".join(legends), width, style="dim")
    for reason, number in notes.numbers.items():
        lines += paragraph(f"{_superscript(number)} {reason}", width, style="dim")
    return lines


def _take(families: list[list[int]], top: int) -> tuple[list[list[int]], list[int]]:
    """Split families into those shown, about ``top`` rows, and the other indices."""
    shown: list[list[int]] = []
    n_rows = 0
    for position, members in enumerate(families):
        if shown and n_rows + len(members) > top:
            return shown, [index for rest in families[position:] for index in rest]
        shown.append(members)
        n_rows += len(members)
    return shown, []


def _choose_columns(
    overloads: Sequence[OverloadStats], width: int
) -> dict[str, _NumberColumn]:
    """Pick the columns that have something to say and leave room for the name."""
    columns = dict(_COLUMNS)
    if all(overload.inclusive_ns == overload.exclusive_ns for overload in overloads):
        # Nothing contains anything: totals can be added, and self would repeat them.
        columns["total"] = replace(columns["total"], add=columns.pop("self").add)
    if not any(overload.errors for overload in overloads):
        del columns["errors"]
    if not any(overload.cache_load_ns for overload in overloads):
        del columns["load"]
    name_width = max(MIN_NAME_WIDTH, int(NAME_SHARE * width))
    room = max(4, (width - name_width) // NUMBER_WIDTH)
    chosen = [title for title in _INTEREST if title in columns][:room]
    return {title: column for title, column in columns.items() if title in chosen}


def _rows(
    result: ProfileResult,
    shown: list[list[int]],
    columns: dict[str, _NumberColumn],
    notes: _Footnotes,
) -> list[Row]:
    names = display_names(result)
    rows: list[Row] = []
    located: set[str] = set()
    for members in shown:
        for index in members:
            overload = result.overloads[index]
            is_child = index != members[0]
            label = label_overload(
                overload, names[overload.function], is_child=is_child
            )
            place = locate(overload.function)
            tail = "" if is_child or place in located else place
            located.add(place)
            cells = [(col.cell(overload, notes), "") for col in columns.values()]
            cells.append((label, "dim" if is_child else "name"))
            rows.append(Row(tuple(cells), tail, indent=2 * is_child))
    return rows


def _sum_rows(
    result: ProfileResult,
    more: list[int],
    columns: dict[str, _NumberColumn],
    only: Sequence[str],
) -> list[Row]:
    """Build the lines that stand for many overloads, and the last one for all."""
    overloads = result.overloads
    internal = [overload for overload in overloads if is_internal(overload)]
    others = [
        index
        for members in order_overloads(result, "name")
        for index in members
        if only and not matches(overloads[members[0]].function, only)
    ]
    groups = []
    if more:
        label = f"… and {format_count(len(more))} more"
        groups.append((label, sum_overloads(overloads[index] for index in more)))
    if others:
        label = f"{plural(len(others), 'overload')} not matching {', '.join(only)}"
        groups.append((label, sum_overloads(overloads[index] for index in others)))
    # Helpers that were compiled for an overload are in its figure.
    n_left, left_ns = uncharged_helpers(result)
    helpers = replace(sum_overloads(internal), compile_ns=left_ns)
    if helpers != Totals(overloads=helpers.overloads):
        n_helpers = max(len(internal), n_left)
        label = f"Numba's own helpers ({format_count(n_helpers)})"
        groups.append((label, helpers))
    shown = [
        overload
        for index, overload in enumerate(overloads)
        if not is_internal(overload) and index not in {*more, *others}
    ]
    everything = sum((total for _, total in groups), sum_overloads(shown))
    rows = [_sum_row(label, total, columns, "dim") for label, total in groups]
    last = _sum_row("all overloads", everything, columns, "total")
    rows.append(replace(last, ruled=True))
    return rows


def _sum_row(
    label: str, total: Totals, columns: dict[str, _NumberColumn], style: str
) -> Row:
    cells: list[Span] = [(column.add(total), style) for column in columns.values()]
    return Row((*cells, (label, style)))
