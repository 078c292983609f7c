"""Comparisons for people: the terminal, and Markdown for a pull request.

The first line is the verdict. Then the rows that fail, with the evidence; then what is
suspect; the rest in short. Markdown stays below the size at which GitHub cuts a
comment: failing rows come first and the rest is left out as far as it must be, with a
count.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

from numbaprof.wording import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numbaprof.comparison import Comparison, Row

__all__ = ["MARKDOWN_LIMIT", "render", "to_markdown"]

MARKDOWN_LIMIT = 60_000
"""GitHub refuses comments above 65,536 characters."""
CELL_LIMIT = 300
TERMINAL_WIDTH = 120
QUIET_ROWS = 40
"""Rows without a finding that the terminal shows."""
HEADERS = (
    "",
    "test",
    "overload",
    "base",
    "head",
    "change",
    "code",
    "compile",
    "SIMD",
    "why",
)
RIGHT = {"base", "head", "change", "compile"}
MARKS = {"regression": "🔴", "suspect": "🟠", "advisory": "🟡", "faster": "🟢"}
WORDS = {"regression": "slower", "suspect": "suspect", "advisory": "advisory",
         "faster": "faster"}  # fmt: skip


# -- cells -----------------------------------------------------------------------------


def headline(comparison: Comparison) -> str:
    """Return the verdict in one line."""
    total = plural(len(comparison.entries), "row")
    failing = len(comparison.failing)
    if comparison.problems:
        return f"could not compare everything: {comparison.problems[0]}"
    if failing:
        return f"{plural(failing, 'regression')} in {total}"
    suspects = len(comparison.suspects)
    if suspects:
        return f"no regression in {total}, {suspects} suspect"
    return f"no regression in {total}"


def _mark(row: Row) -> str:
    if row.failed:
        return "🔴"
    if row.status == "new":
        return "🆕"
    return MARKS.get(row.time, "⚪") if row.function else "⚪"


def _word(row: Row) -> str:
    if row.failed:
        return "FAIL"
    return WORDS.get(row.time, "") if row.function else ""


def _time(value: float | None) -> str:
    return "-" if value is None else format_duration(value)


def _change(row: Row) -> str:
    return "-" if row.change is None else f"{row.change:+.1%}"


def _code(row: Row) -> str:
    if row.status != "common":
        return row.status
    return row.code or "-"


def _compile(row: Row) -> str:
    if row.base_compile_ns is None and row.head_compile_ns is None:
        return "-"
    return f"{_time(row.base_compile_ns)} → {_time(row.head_compile_ns)}"


def _simd(row: Row) -> str:
    base, head = row.base_width_bits, row.head_width_bits
    if base is None and head is None:
        return "-"
    if base == head or base is None or head is None:
        return str(base if head is None else head)
    return f"{base}→{head}"


def _why(row: Row) -> str:
    parts = [row.why, *row.notes]
    if row.function and not row.failed and row.time in ("suspect", "advisory"):
        parts.insert(0, f"{row.time}: {row.time_reason}")
    return "; ".join(filter(None, parts))


def _cells(row: Row) -> list[str]:
    return [
        row.test,
        row.name,
        _time(row.base_ns),
        _time(row.head_ns),
        _change(row),
        _code(row),
        _compile(row),
        _simd(row),
        _why(row),
    ]


def footer(comparison: Comparison) -> Iterator[str]:
    """Yield the sentences below the table."""
    noise = comparison.noise
    if noise is not None:
        yield (
            f"Noise of this run: {plural(noise.overloads, 'row')} with the same "
            f"machine code on both sides measured {noise.low:+.1%} to "
            f"{noise.high:+.1%}. The same code is never reported as slower."
        )
    if comparison.advisory:
        yield f"Run times are advisory: {comparison.advisory}."
    yield from (f"{note[:1].upper()}{note[1:]}." for note in comparison.notes)
    gates = ", ".join(comparison.gates) or "none"
    smallest = f"{100 * comparison.min_effect:.3g} %"
    yield f"Gates: {gates}; smallest change of run time that counts: {smallest}."


# -- the terminal ----------------------------------------------------------------------


def render(comparison: Comparison, *, width: int = 0, color: bool = False) -> str:
    """Return the comparison as text for a terminal.

    Parameters
    ----------
    comparison : Comparison
        What to show.
    width : int, optional
        Columns of the terminal.
    color : bool, optional
        Use colours.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, width=width or TERMINAL_WIDTH, force_terminal=color,
                      no_color=not color, highlight=False, emoji=False)  # fmt: skip
    style = {"ok": "green", "suspect": "yellow"}.get(comparison.verdict, "bold red")
    console.print(Text(f"numbaprof: {headline(comparison)}", style=style))
    console.print(Text(f"base {comparison.base}, head {comparison.head}"))
    for problem in comparison.problems:
        console.print(Text(f"! {problem}", style="red"))
    loud, quiet = _split(comparison.entries)
    hidden = max(0, len(quiet) - QUIET_ROWS)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for header in HEADERS:
        justify: Literal["left", "right"] = "right" if header in RIGHT else "left"
        fold = header in ("test", "overload", "why")
        table.add_column(Text(header), justify=justify, no_wrap=not fold,
                         overflow="fold")  # fmt: skip
    short = _short_tests(comparison.entries)
    for row in (*loud, *quiet[:QUIET_ROWS]):
        cells = [_word(row), *_cells(row)]
        cells[1] = short.get(row.test, row.test)
        row_style = "red" if row.failed else ""
        table.add_row(*(Text(cell, style=row_style) for cell in cells))
    if comparison.entries:
        console.print()
        console.print(table)
    if hidden:
        console.print(Text(f"... and {plural(hidden, 'more row')} without a finding"))
    console.print()
    for sentence in footer(comparison):
        console.print(Text(sentence))
    return out.getvalue()


def _short_tests(rows: Iterable[Row]) -> dict[str, str]:
    """Return the names of tests without their files, where that is enough."""
    shortened: dict[str, set[str]] = {}
    for row in rows:
        shortened.setdefault(row.test.partition("::")[2], set()).add(row.test)
    return {
        next(iter(tests)): name
        for name, tests in shortened.items()
        if name and len(tests) == 1
    }


def _split(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Split rows into those with something to say and the rest."""
    loud: list[Row] = []
    quiet: list[Row] = []
    for row in rows:
        slower = bool(row.function) and row.time in MARKS
        said = row.failed or slower or row.status != "common"
        (loud if said else quiet).append(row)
    return loud, quiet


# -- Markdown --------------------------------------------------------------------------


def to_markdown(comparison: Comparison, *, limit: int = MARKDOWN_LIMIT) -> str:
    """Return the comparison as GitHub Markdown of at most ``limit`` characters."""
    mark = {"ok": "✅", "suspect": "🟠"}.get(comparison.verdict, "🔴")
    head = [
        f"## {mark} numbaprof: {_escaped(headline(comparison))}",
        "",
        f"base {_quoted(comparison.base)}, head {_quoted(comparison.head)}",
        "",
    ]
    head += [f"> {_escaped(problem)}" for problem in comparison.problems]
    foot = ["", *(_escaped(sentence) for sentence in footer(comparison)), ""]
    loud, quiet = _split(comparison.entries)
    room = limit - len("\n".join([*head, *foot])) - 400  # for the frames below
    shown, left = _table(loud, room)
    lines = [*head, *shown]
    if left:
        lines += ["", f"... and {plural(left, 'more row')} like these"]
    room -= sum(len(line) + 1 for line in shown)
    rest, hidden = _table(quiet, room)
    if rest:
        title = f"{plural(len(quiet), 'row')} without a finding"
        lines += ["", f"<details><summary>{title}</summary>", "", *rest, ""]
        if hidden:
            lines += [f"... and {plural(hidden, 'more row')}", ""]
        lines.append("</details>")
    elif hidden:
        lines += ["", f"{plural(hidden, 'row')} without a finding"]
    return "\n".join([*lines, *foot])


def _table(rows: Sequence[Row], room: int) -> tuple[list[str], int]:
    """Return as many lines of a table as there is room for, and how many are not."""
    if not rows:
        return [], 0
    rule = ["--:" if header in RIGHT else "---" for header in HEADERS]
    lines = [_line(HEADERS), _line(rule)]
    used = sum(len(line) + 1 for line in lines)
    for position, row in enumerate(rows):
        cells = _cells(row)
        cells[0] = _quoted(cells[0]) if cells[0] else ""
        cells[1] = _quoted(cells[1])
        cells[8] = _escaped(cells[8])
        line = _line([_mark(row), *cells])
        if used + len(line) + 1 > room:
            return (lines if position else []), len(rows) - position
        lines.append(line)
        used += len(line) + 1
    return lines, 0


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= CELL_LIMIT else f"{flat[: CELL_LIMIT - 1]}…"


def _quoted(text: str) -> str:
    """Return text as code; in a table even code needs ``|`` escaped (GFM, 4.10)."""
    return f"`{_cut(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _escaped(text: str) -> str:
    for letter in "\\`*_|<>[]":
        text = text.replace(letter, f"\\{letter}")
    return text
