"""Styled lines of text that fit a width: folding, tables, plain characters.

A line is a tuple of spans, a span is text with the name of a style. The report builds
lines; whoever prints them decides whether styles become colours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "STYLES",
    "Column",
    "Line",
    "Row",
    "Span",
    "fold",
    "heading",
    "paragraph",
    "tabulate",
    "to_ascii",
    "to_text",
]

Span = tuple[str, str]
Line = tuple[Span, ...]

STYLES = {
    "": "",
    "verdict": "bold",
    "heading": "bold cyan",
    "dim": "dim",
    "name": "bold",
    "total": "bold",
    "slug": "bold yellow",
    "try": "green",
    "bad": "bold red",
    "good": "green",
    "compile": "red",
    "cache": "yellow",
    "dispatch": "magenta",
    "kernel": "green",
    "failed": "red",
    "rest": "blue",
    "hot": "bold red",
    "warm": "yellow",
}
"""Style names and what they are in a terminal (rich's words)."""

GAP = "  "
"""Between columns."""

MIN_FLEXIBLE_WIDTH = 12
"""Characters left to the last column however little room there is: a short type."""

# Bars, bullets and units for streams that cannot encode them.
_ASCII = {
    "█": "#",
    "▏": "|",
    "─": "-",
    "·": "|",
    "…": "...",
    "⋮": ":",
    "µ": "u",
    "±": "+-",
    "└": "`-",
    "→": "->",
    "●": "*",
    "×": "x",
    "²": "2",
    **{digit: f"[{number}]" for number, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; the last one of a table is flexible and left-aligned."""

    title: str
    align: str = ">"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: tuple[Span, ...]
    tail: str = ""
    """Dim text after the last cell, on a line of its own if it does not fit."""
    indent: int = 0
    """Of the last cell."""
    ruled: bool = False
    """Draw a line above it."""


def fold(text: str, width: int, *, indent: int = 2) -> list[str]:
    """Break text into lines of at most ``width`` characters.

    Breaks come at spaces, but not inside ``[...]``, so that ``float64[:, ::1]`` stays
    whole where it can; a word that is too long breaks after ``(``, ``.``, ``/`` or
    ``_``, or anywhere in the worst case. Lines after the first are indented.
    """
    whole = re.sub(
        r"\[[^\[\]]*\]", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text
    )
    lines = [""]
    for word in whole.split(" "):
        for piece in _break_word(word, max(1, width - indent)):
            glue = " " if lines[-1].strip() and not piece.startswith("\0") else ""
            piece = piece.lstrip("\0")
            if len(lines[-1] + glue + piece) <= width:
                lines[-1] += glue + piece
            elif lines[-1].strip():
                lines.append(" " * indent + piece)
            else:
                lines[-1] += piece
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _break_word(word: str, width: int) -> list[str]:
    """Split a word into pieces that fit; all but the first are marked with NUL."""
    if len(word) <= width:
        return [word]
    pieces = []
    for part in re.findall(r"[^(./_]*[(./_]+|[^(./_]+", word):
        chunks = [part[start : start + width] for start in range(0, len(part), width)]
        pieces += chunks
    return [pieces[0], *("\0" + piece for piece in pieces[1:])]


def heading(title: str, width: int) -> Line:
    """Build a ruled heading over the whole width."""
    rule = "─" * max(2, width - len(title) - 4)
    return (("── ", "dim"), (title, "heading"), (" ", ""), (rule, "dim"))


def paragraph(
    text: str, width: int, *, style: str = "", indent: int = 0
) -> Iterable[Line]:
    """Fold prose into lines with one style, all of them indented alike."""
    for line in fold(text, width - indent, indent=0):
        yield ((" " * indent + line, style),)


def tabulate(
    columns: Sequence[Column], rows: Sequence[Row], width: int, *, header: bool = True
) -> list[Line]:
    """Lay out a table whose last column takes the room that is left.

    Cells before the last are never folded; the last one is, and every line of it stays
    in its column.
    """
    fixed = columns[:-1]
    widths = [
        max([len(column.title) * header, *(len(row.cells[at][0]) for row in rows)])
        for at, column in enumerate(fixed)
    ]
    left = sum(widths) + len(GAP) * len(fixed)
    room = max(MIN_FLEXIBLE_WIDTH, width - left)
    lines: list[Line] = []
    if header:
        titles = [
            (format(column.title, f"{column.align}{size}") + GAP, "dim")
            for column, size in zip(fixed, widths, strict=True)
        ]
        lines.append((*titles, (columns[-1].title, "dim")))
    for row in rows:
        if row.ruled:
            lines.append((("─" * min(width, left + len(row.cells[-1][0])), "dim"),))
        numbers = tuple(
            (format(text, f"{column.align}{size}") + GAP, style)
            for (text, style), column, size in zip(
                row.cells[:-1], fixed, widths, strict=True
            )
        )
        lines += _lay_out_row(row, numbers, left, room)
    return lines


def _lay_out_row(row: Row, numbers: Line, left: int, room: int) -> list[Line]:
    text, style = row.cells[-1]
    pad = " " * row.indent
    folded = fold(text, room - row.indent)
    lines: list[Line] = [(*numbers, (pad + folded[0], style))]
    lines += [((" " * left + pad + line, style),) for line in folded[1:]]
    if not row.tail:
        return lines
    if row.indent + len(folded[-1]) + len(GAP) + len(row.tail) <= room:
        lines[-1] = (*lines[-1], (GAP + row.tail, "dim"))
        return lines
    for line in fold(row.tail, room - row.indent - 2, indent=0):
        lines.append(((" " * left + pad + "  " + line, "dim"),))
    return lines


def to_text(lines: Iterable[Line]) -> str:
    """Join lines without styles; no line ends in spaces."""
    return "\n".join("".join(show(text) for text, _ in line).rstrip() for line in lines)


_UNSEEN = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)]
_UNSEEN += range(0x2066, 0x206A)
_SHOWN = dict.fromkeys(_UNSEEN, "?")
"""Control characters, and those that change the direction of writing."""


def show(text: str) -> str:
    """Replace what a terminal would obey rather than show; names may hold anything."""
    return text.translate(_SHOWN)


def to_ascii(lines: Iterable[Line]) -> list[Line]:
    """Replace what is not ASCII, by something that reads alike where there is one."""
    table = str.maketrans(_ASCII)
    return [
        tuple(
            (text.translate(table).encode("ascii", "replace").decode(), style)
            for text, style in line
        )
        for line in lines
    ]
