"""Source lines of compiled code as text, laid out as line_profiler's users know it.

Times are sampled and say how far they may be off; hits are exact. The two never make
one figure without a word: ``Per Hit`` is headed as sampled, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.analysis import display_names
from numbaprof.intervals import samples_for
from numbaprof.layout import GAP, Line, paragraph
from numbaprof.line_table import (
    OWN_CODE,
    FunctionLines,
    LineRow,
    account_samples,
    build_line_tables,
)
from numbaprof.overload_table import locate, matches
from numbaprof.wording import format_count, format_duration, format_share, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numbaprof.line_table import SampleAccount
    from numbaprof.model import FunctionId, ProfileResult, SamplingInfo

__all__ = [
    "LineFigures",
    "describe_table",
    "figures_of",
    "heat_of",
    "notes_on",
    "render_line_account",
    "render_lines",
    "source_of",
    "title_of",
]

HOT, WARM = 0.25, 0.05
"""Shares of a function's time from which a line is coloured as hot or as warm."""

CERTAIN_HALF_WIDTH = 0.05
"""A table whose shares are less certain than this says how long to run."""

CONTEXT = 2
"""Lines without figures that are shown around one with some."""

CALLEES_SHOWN = 3
"""Of what a line was doing; the rest is in ``p.lines``."""

CALLEE_SHARE = 0.02
"""Of the line's samples; what took less is not named."""

BIN_NAMES = {
    "line": "on lines of compiled code",
    "function": "in compiled code whose line is not known",
    "python": "in Python",
    "compile": "in the compiler",
    "native": "in other native code",
    "unresolved": "unresolved",
}
"""Where a sample ended, in words; as in ``docs/columns.md``."""


class LineFigures(NamedTuple):
    """The figures of one line as text, in the order of the columns."""

    number: str
    hits: str
    time: str
    margin: str
    """Half the width of the 95 % interval."""
    per_hit: str
    share: str


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))


def render_lines(
    result: ProfileResult, *, top: int, only: Sequence[str] = (), width: int
) -> list[Line]:
    """Render the dearest functions line by line.

    Parameters
    ----------
    top : int
        Functions shown; the others are counted.
    only : sequence of str, optional
        Patterns as in :class:`numbaprof.report.ReportOptions`.
    width : int
        Characters. Source text is cut there.
    """
    names = display_names(result)
    tables = [t for t in build_line_tables(result) if matches(t.function, only)]
    account = account_samples(result)
    lines: list[Line] = []
    for table in tables[:top]:
        if lines:
            lines.append(())
        lines += _render_table(table, account, names, width)
    left = tables[top:]
    if left:
        share = format_share(sum(t.time_ns for t in left), account.sampled_ns)
        text = f"… and {plural(len(left), 'more function')} with {share} of the time"
        lines += [(), ((f"{text}, see p.lines", "dim"),)]
    return lines


def render_line_account(result: ProfileResult, width: int) -> list[Line]:
    """Say how samples were taken and where every one of them went."""
    lines: list[Line] = []
    counted = any(fact.hits is not None for fact in result.line_facts)
    for text in _describe_sources(result.sampling):
        lines += paragraph(text, width)
    if counted:
        lines += paragraph("Hits are exact, from a build that counts.", width)
    problems = (problem for info in result.sampling for problem in info.problems)
    for problem in dict.fromkeys(problems):
        lines += paragraph(problem, width, style="dim", indent=2)
    account = account_samples(result)
    if account.taken:
        parts = [
            f"{format_share(n, account.taken)} {BIN_NAMES[name]}"
            for name, n in account.bins
        ]
        text = f"{plural(account.taken, 'sample')}: {', '.join(parts)}."
        lines += paragraph(text, width)
    for name, n in account.losses:
        lines += paragraph(f"{plural(n, 'sample')} lost: {name}", width, style="bad")
    return lines


def _describe_sources(infos: Sequence[SamplingInfo]) -> Iterator[str]:
    """Say for each way of sampling how fine it was, and in how many processes."""
    groups: dict[tuple[str, int, str], list[SamplingInfo]] = {}
    for info in infos:
        key = (info.source, info.requested_ns, info.reason)
        groups.setdefault(key, []).append(info)
    for (source, requested_ns, reason), members in groups.items():
        where = f" in {len(members)} processes" if len(members) > 1 else ""
        if source == "none":
            yield f"Lines were not sampled{where}: {reason}."
            continue
        taken = [info.achieved_ns for info in members if info.achieved_ns]
        finest = format_duration(min(taken, default=0))
        coarsest = format_duration(max(taken, default=0))
        achieved = finest if finest == coarsest else f"{finest} to {coarsest}"
        why = f"; {reason}" if reason else ""
        yield (
            f"Times are sampled{where}, one sample per {achieved} of CPU time "
            f"({source}, {format_duration(requested_ns)} asked{why}); ± is a 95 % "
            "interval."
        )


def _render_table(
    table: FunctionLines,
    account: SampleAccount,
    names: Mapping[FunctionId, str],
    width: int,
) -> Iterator[Line]:
    yield from paragraph(title_of(table, names), width, style="name")
    for text in describe_table(table, account):
        yield from paragraph(text, width, indent=2)
    yield from _render_rows(table.rows, width)


def title_of(table: FunctionLines, names: Mapping[FunctionId, str]) -> str:
    """Name the overload that a table is of."""
    name = names.get(table.function, table.function.qualname)
    return name + (table.signature or " (any of its signatures)")


def describe_table(table: FunctionLines, account: SampleAccount) -> Iterator[str]:
    """Say in sentences where a function is, what it took, and how sure that is."""
    time = f"{format_duration(table.time_ns)} ± {_half(table)} of CPU time"
    share = format_share(table.time_ns, account.sampled_ns)
    samples = plural(table.samples, "sample")
    yield f"{locate(table.function)} · {time}, {samples}, {share} of all"
    if len(table.threads) > 1:
        shares = ", ".join(format_share(n, table.samples) for _, n in table.threads)
        yield f"over {len(table.threads)} threads: {shares}"
    if 0 < table.samples < samples_for(CERTAIN_HALF_WIDTH):
        factor = -(-samples_for(CERTAIN_HALF_WIDTH) // table.samples)
        yield (
            f"few samples: shares may be off by more than ± 5 %; run about {factor} "
            "times as long"
        )
    reasons = (row.hits_reason for row in table.rows if row.hits_reason)
    for reason in dict.fromkeys(reasons):
        yield f"no hits: {reason}"


def _half(row: FunctionLines | LineRow) -> str:
    """Write half the width of an interval."""
    return format_duration((row.high_ns - row.low_ns) / 2)


def _render_rows(rows: Sequence[LineRow], width: int) -> Iterator[Line]:
    columns = _columns(rows)
    margin = min(
        (
            len(row.source) - len(row.source.lstrip())
            for row in rows
            if row.source.strip()
        ),
        default=0,
    )
    left = sum(column.width + len(GAP) for column in columns)
    room = max(20, width - left)
    head = "".join(format(c.title, f">{c.width}") + GAP for c in columns)
    yield ((head + "Line Contents", "dim"),)
    folded = False
    for at, row in enumerate(rows):
        if not _is_shown(rows, at):
            if not folded:
                yield ((" " * left + "⋮", "dim"),)
            folded = True
            continue
        folded = False
        style = heat_of(row)
        figures = "".join(format(c.cells[at], f">{c.width}") + GAP for c in columns)
        yield ((figures, style), (_cut(source_of(row)[margin:], room), style))
        for note in notes_on(row):
            indent = " " * (left + len(row.source) - len(row.source.lstrip()) - margin)
            yield ((_cut(f"{indent}└ {note}", width), "dim"),)


def _is_shown(rows: Sequence[LineRow], at: int) -> bool:
    """Tell whether a line is shown: it has figures, or is near one that has.

    Of a docstring and of what was not run a mark is left.
    """
    near = rows[max(0, at - CONTEXT) : at + CONTEXT + 1]
    first = next((n for n, row in enumerate(rows) if row.source.strip()), 0)
    return at <= first + 1 or any(row.samples or row.hits is not None for row in near)


def _columns(rows: Sequence[LineRow]) -> list[_Column]:
    """Build the columns that say anything; hits are counted on request only."""
    figures = [figures_of(row) for row in rows]
    numbers, hits, times, margins, per_hits, shares = zip(*figures, strict=True)
    found = [_Column("Line #", numbers)]
    if any(hits):
        found.append(_Column("Hits", hits))
    found += [_Column("Time", times), _Column("±", margins)]
    if any(per_hits):
        found.append(_Column("Per Hit", per_hits))
    found.append(_Column("% Time", shares))
    return found


def figures_of(row: LineRow) -> LineFigures:
    """Write the figures of a line; what was not sampled or counted is empty."""
    sampled = row.samples > 0
    return LineFigures(
        number=_number(row),
        hits="" if row.hits is None else format_count(row.hits),
        time=format_duration(row.time_ns) if sampled else "",
        margin=_half(row) if sampled else "",
        per_hit=format_duration(row.time_ns / row.hits) if sampled and row.hits else "",
        share=format_share(row.share, 1.0) if sampled else "",
    )


def heat_of(row: LineRow) -> str:
    """Tell whether a line is ``hot``, ``warm``, or neither ("")."""
    return "hot" if row.share >= HOT else "warm" if row.share >= WARM else ""


def _number(row: LineRow) -> str:
    """Write where a line is: its number, with the file if it is another one."""
    if not row.line:
        return "?"
    other = row.file != row.function.file
    return f"{row.file.rpartition('/')[2]}:{row.line}" if other else str(row.line)


def source_of(row: LineRow) -> str:
    """Return the text of a line, or what stands for it."""
    return row.source if row.line else "(somewhere in the function)"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def notes_on(row: LineRow) -> Iterator[str]:
    """Say what the line was doing, and what the compiler says of it."""
    doing = [
        (name, n)
        for name, n in row.callees
        if n >= CALLEE_SHARE * row.samples and name != OWN_CODE
    ]
    if doing:
        yield ", ".join(
            f"{format_share(n, row.samples)} {name}"
            for name, n in doing[:CALLEES_SHOWN]
        )
    if row.vector_width and row.vector_width > 1:
        yield f"vectorised, {row.vector_width} numbers at once"
    yield from row.remarks
