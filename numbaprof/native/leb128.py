"""Variable-length numbers and strings, as DWARF and its relatives write them.

DWARF Debugging Information Format version 5, section 7.6 and appendix C.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

__all__ = ["DAMAGE", "sleb128", "string", "uleb128"]

DAMAGE = (struct.error, ValueError, IndexError, KeyError, OverflowError)
"""What reading with offsets out of a damaged file raises."""


def uleb128(data: bytes, at: int) -> tuple[int, int]:
    """Return (unsigned value, position after it)."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def sleb128(data: bytes, at: int) -> tuple[int, int]:
    """Return (signed value, position after it)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value - (1 << shift) if byte & 0x40 else value), at


def string(data: bytes | mmap.mmap, at: int) -> tuple[str, int]:
    """Return (text up to the next zero byte, position after that)."""
    end = data.find(b"\0", at)
    if end < 0:
        raise ValueError(f"a string at {at} has no end")
    return data[at:end].decode("utf-8", "replace"), end + 1
