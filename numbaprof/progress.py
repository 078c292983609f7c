"""A sign of life for work that may take long, on terminals only."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["show_progress"]

Item = TypeVar("Item")

ERASE_LINE = "\r\x1b[K"
"""ECMA-48: carriage return, erase to the end of the line."""


def show_progress(
    items: Sequence[Item], label: str, stream: TextIO | None
) -> Iterator[Item]:
    """Yield every item and say on a terminal how far it has come.

    Parameters
    ----------
    items : sequence
        What is worked on, one by one.
    label : str
        What is done to them: "reading".
    stream : text stream or None
        Usually stderr. Nothing is written unless it is a terminal. The line is gone
        afterwards.
    """
    if stream is None or not stream.isatty():
        yield from items
        return
    try:
        for number, item in enumerate(items, start=1):
            stream.write(f"{ERASE_LINE}numbaprof: {label} {number} of {len(items)}")
            stream.flush()
            yield item
    finally:
        stream.write(ERASE_LINE)
        stream.flush()
