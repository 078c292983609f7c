"""The source lines of a profile as a section of its HTML page.

Plain elements, no script: each function is a ``details`` element, the dearest one open.
All text is escaped; the heat of a line is one of few classes, as the page's policy
forbids styles on elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numbaprof.analysis import display_names
from numbaprof.layout import to_text
from numbaprof.line_report import (
    describe_table,
    figures_of,
    heat_of,
    notes_on,
    render_line_account,
    source_of,
    title_of,
)
from numbaprof.line_table import (
    FunctionLines,
    LineRow,
    account_samples,
    build_line_tables,
)
from numbaprof.markup import escape_text
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
    how = "".join(f"<p>{escape_text(to_text([line]).strip())}</p>" for line in lines)
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


def _render_table(
    table: FunctionLines,
    account: SampleAccount,
    names: Mapping[FunctionId, str],
    *,
    is_open: bool,
) -> str:
    lines = describe_table(table, account)
    about = "".join(f"<p>{escape_text(line)}</p>" for line in lines)
    title = escape_text(title_of(table, names))
    head = "".join(f"<th>{text}</th>" for text in TITLES)
    rows = "".join(_render_row(row) for row in table.rows)
    share = format_share(table.time_ns, account.sampled_ns)
    return (
        f"<details{' open' if is_open else ''}><summary><code>{title}</code> "
        f"<b>{format_duration(table.time_ns)}</b> <span>{share}</span></summary>"
        f'<div class="fine">{about}</div><div class="scroll"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _render_row(row: LineRow) -> str:
    notes = "".join(f"<small>{escape_text(note)}</small>" for note in notes_on(row))
    figures = "".join(f"<td>{escape_text(cell)}</td>" for cell in figures_of(row))
    source = escape_text(source_of(row))
    shown = f'<td class="name"><code>{source}</code>{notes}</td>'
    return f'<tr class="{heat_of(row)}">{figures}{shown}</tr>'
