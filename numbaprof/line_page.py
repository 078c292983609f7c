"""The source lines of a profile as a section of its HTML page.

Plain elements, no script: each function is a ``details`` element, the dearest one open.
All text is escaped; the heat of a line is one of few classes, as the page's policy
forbids styles on elements.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from numbaprof.analysis import display_names
from numbaprof.layout import to_text
from numbaprof.line_report import (
    HOT,
    WARM,
    describe_table,
    notes_on,
    number_line,
    render_line_account,
)
from numbaprof.line_table import (
    FunctionLines,
    LineRow,
    account_samples,
    build_line_tables,
)
from numbaprof.wording import format_count, format_duration, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numbaprof.line_table import SampleAccount
    from numbaprof.model import FunctionId, ProfileResult

__all__ = ["render_line_section"]

FUNCTIONS_SHOWN = 100
"""A page of more would not be read; the others are counted."""

TITLES = ("line", "hits", "time", "±", "per hit", "% time", "")


def render_line_section(result: ProfileResult) -> str:
    """Render the section; "" for a profile without samples and hits."""
    if not (result.sampling or result.line_facts):
        return ""
    names = display_names(result)
    account = account_samples(result)
    tables = build_line_tables(result)
    lines = render_line_account(result, 1_000_000)
    how = "".join(f"<p>{_text(to_text([line]).strip())}</p>" for line in lines)
    body = "".join(
        _render_table(table, account, names, is_open=not at)
        for at, table in enumerate(tables[:FUNCTIONS_SHOWN])
    )
    more = len(tables) - FUNCTIONS_SHOWN
    tail = f"<p>… and {format_count(more)} more functions</p>" if more > 0 else ""
    return (
        '<section class="lines" aria-labelledby="h-lines"><div class="head">'
        f'<h2 id="h-lines">Lines</h2></div><div class="facts">{how}</div>'
        f"{body}{tail}</section>"
    )


def _text(text: str) -> str:
    """Escape text; half characters become ``?``."""
    return escape(text.encode("utf-8", "replace").decode())


def _render_table(
    table: FunctionLines,
    account: SampleAccount,
    names: Mapping[FunctionId, str],
    *,
    is_open: bool,
) -> str:
    name = names.get(table.function, table.function.qualname)
    label = name + (table.signature or " (any of its signatures)")
    about = "".join(f"<p>{_text(line)}</p>" for line in describe_table(table, account))
    head = "".join(f"<th>{title}</th>" for title in TITLES)
    rows = "".join(_render_row(row) for row in table.rows)
    share = format_share(table.time_ns, account.sampled_ns)
    return (
        f"<details{' open' if is_open else ''}><summary><code>{_text(label)}</code> "
        f"<b>{format_duration(table.time_ns)}</b> <span>{share}</span></summary>"
        f'<div class="fine">{about}</div><div class="scroll"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _render_row(row: LineRow) -> str:
    heat = "hot" if row.share >= HOT else "warm" if row.share >= WARM else ""
    sampled = bool(row.samples)
    per_hit = format_duration(row.time_ns / row.hits) if sampled and row.hits else ""
    cells = (
        number_line(row),
        "" if row.hits is None else format_count(row.hits),
        format_duration(row.time_ns) if sampled else "",
        format_duration((row.high_ns - row.low_ns) / 2) if sampled else "",
        per_hit,
        format_share(row.share, 1.0) if sampled else "",
    )
    source = row.source if row.line else "(somewhere in the function)"
    notes = "".join(f"<small>{_text(note)}</small>" for note in notes_on(row))
    figures = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
    shown = f'<td class="name"><code>{_text(source)}</code>{notes}</td>'
    return f'<tr class="{heat}">{figures}{shown}</tr>'
