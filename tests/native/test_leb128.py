"""Variable-length numbers, against the examples of the DWARF standard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.native.leb128 import sleb128, string, uleb128


@pytest.mark.parametrize(
    ("value", "data"),
    [(2, "02"), (127, "7f"), (128, "8001"), (129, "8101"), (12857, "b964")],
)
def test_unsigned_numbers_of_the_standard(value, data):
    """DWARF 5, table C.1."""
    assert uleb128(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (2, "02"),
        (-2, "7e"),
        (127, "ff00"),
        (-127, "817f"),
        (128, "8001"),
        (-128, "807f"),
    ],
)
def test_signed_numbers_of_the_standard(value, data):
    """DWARF 5, table C.2."""
    assert sleb128(bytes.fromhex(data), 0) == (value, len(data) // 2)


def encode(value: int, signed: bool) -> bytes:
    """Write a number as DWARF 5, appendix C, does."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        done = (
            value in (0, -1) and (value < 0) == bool(byte & 0x40)
            if signed
            else not value
        )
        out.append(byte if done else byte | 0x80)
        if done:
            return bytes(out)


@given(st.integers(0, 1 << 70), st.binary(max_size=3))
def test_unsigned_numbers_come_back(value, tail):
    """Reading undoes writing and stops where the number ends."""
    data = encode(value, signed=False)
    assert uleb128(data + tail, 0) == (value, len(data))


@given(st.integers(-(1 << 70), 1 << 70), st.binary(max_size=3))
def test_signed_numbers_come_back(value, tail):
    """Reading undoes writing and stops where the number ends."""
    data = encode(value, signed=True)
    assert sleb128(data + tail, 0) == (value, len(data))


def test_string_ends_at_its_zero():
    """The position after a string is that after its zero."""
    assert string(b"ab\0cd\0", 3) == ("cd", 6)


def test_string_without_an_end_is_an_error():
    """A text that is cut off is not taken for a shorter one."""
    with pytest.raises(ValueError, match="no end"):
        string(b"ab", 0)
