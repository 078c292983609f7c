"""The report's table of Python and builtin functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numbaprof.layout import Column, Line, Row, tabulate
from numbaprof.wording import format_count, format_duration, plural

if TYPE_CHECKING:
    from numbaprof.model import ProfileResult, PythonRow

__all__ = ["render_python"]


def render_python(result: ProfileResult, *, top: int, width: int) -> list[Line]:
    """Render the Python rows with the most own time; the others are summed.

    Parameters
    ----------
    top : int
        Rows listed.
    width : int
        Characters.
    """
    rows = result.python_rows
    ranked = sorted(rows, key=lambda row: -row.exclusive_ns)
    table = [_row(row) for row in ranked[:top]]
    left = ranked[top:]
    if left:
        own_ns = sum(row.exclusive_ns for row in left)
        calls = format_count(sum(row.calls for row in left))
        text = f"… and {plural(len(left), 'more row')}, see p.functions"
        figures = (calls, format_duration(own_ns), "")
        table.append(Row((*((figure, "dim") for figure in figures), (text, "dim"))))
    columns = [
        Column("calls"),
        Column("self"),
        Column("total"),
        Column("function", "<"),
    ]
    return tabulate(columns, table, width)


def _row(row: PythonRow) -> Row:
    calls = format_count(row.calls)
    if row.primitive_calls != row.calls:
        calls += f"/{format_count(row.primitive_calls)}"
    place = "" if row.kind == "builtin" else f"{_short(row.file)}:{row.line}"
    return Row(
        (
            (calls, ""),
            (format_duration(row.exclusive_ns), ""),
            (format_duration(row.inclusive_ns), ""),
            (f"{row.qualname}{row.signature}", "name"),
        ),
        tail=place,
    )


def _short(file: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(file.replace("\\", "/").split("/")[-2:])
