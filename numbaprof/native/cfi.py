"""Call frame information: where a function's caller and its registers are to be found.

DWARF Debugging Information Format version 5, section 6.4, for ``.debug_frame``; Linux
Standard Base Core 5.0, section 10.6 ("Exception Frames") for ``.eh_frame`` and its
pointer encodings. Those of system libraries: :mod:`numbaprof.native.cfi_libraries`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING

from numbaprof.errors import UnsupportedError
from numbaprof.native.cfi_rules import CfiRule, CommonEntry, FrameEntry, rule_of
from numbaprof.native.leb128 import DAMAGE, sleb128, string, uleb128

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CfiRule", "CfiTable", "CommonEntry", "FrameEntry", "read_pointer"]

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_WRAP = (1 << 64) - 1
_DWARF64 = 0xFFFFFFF0
_DEBUG_FRAME_CIE = 0xFFFFFFFF
_EH_FRAME_CIE = 0

ABSOLUTE = 0x00
"""DW_EH_PE_absptr, the encoding where none is given."""
_OMITTED = 0xFF
_PC_RELATIVE = 0x10
_DATA_RELATIVE = 0x30
_POINTERS = {
    0x00: struct.Struct("<Q"),  # absptr
    0x02: struct.Struct("<H"),  # udata2
    0x03: _U32,  # udata4
    0x04: _U64,  # udata8
    0x0A: struct.Struct("<h"),  # sdata2
    0x0B: struct.Struct("<i"),  # sdata4
    0x0C: struct.Struct("<q"),  # sdata8
}


def read_pointer(data: bytes, at: int, encoding: int, place: int) -> tuple[int, int]:
    """Return (pointer, position after it) in one of the DW_EH_PE encodings.

    Parameters
    ----------
    data, at : bytes, int
        Where it is written.
    encoding : int
        Without ``DW_EH_PE_indirect`` (0x80), which no function address has.
    place : int
        Address of the pointer itself, or of the data a data-relative one counts from.

    Raises
    ------
    UnsupportedError
        Another encoding.
    """
    form = _POINTERS.get(encoding & 0x0F)
    if form is None or encoding & 0xF0 not in (0, _PC_RELATIVE, _DATA_RELATIVE):
        raise UnsupportedError(f"a pointer with encoding {encoding:#x}")
    (value,) = form.unpack_from(data, at)
    base = place if encoding & 0xF0 else 0
    return (int(value) + base) & _WRAP, at + form.size


def parse_common(data: bytes, at: int, end: int) -> CommonEntry:
    """Parse a CIE after its identifier, up to ``end``.

    Raises
    ------
    UnsupportedError
        An augmentation that is not known.
    """
    version = data[at]
    augmentation, at = string(data, at + 1)
    if augmentation.strip("zRPLSBG") or version not in (1, 3, 4):
        raise UnsupportedError(
            f"call frame information of version {version} with {augmentation!r}"
        )
    if version == 4:
        at += 2  # address_size, segment_selector_size
    code_alignment, at = uleb128(data, at)
    data_alignment, at = sleb128(data, at)
    if version == 1:
        return_register, at = data[at], at + 1
    else:
        return_register, at = uleb128(data, at)
    encoding = ABSOLUTE
    augmented = augmentation.startswith("z")
    if augmented:
        length, at = uleb128(data, at)
        encoding = _encoding(data, at, augmentation)
        at += length
    return CommonEntry(
        code_alignment,
        data_alignment,
        return_register,
        encoding,
        augmented,
        "S" in augmentation,
        data[at:end],
    )


def _encoding(data: bytes, at: int, augmentation: str) -> int:
    """Return the encoding given for letter R; LSB 10.6.1.1.1."""
    for letter in augmentation[1:]:
        if letter == "R":
            return data[at]
        if letter == "P":
            personality = data[at]
            at += 1
            if personality != _OMITTED:
                at += _POINTERS[personality & 0x0F].size
        elif letter == "L":
            at += 1
    return ABSOLUTE


def parse_frame(
    data: bytes, at: int, end: int, common: CommonEntry, address: int
) -> FrameEntry:
    """Parse an FDE after its pointer to the CIE, up to ``end``.

    Parameters
    ----------
    address : int
        Where ``data`` is in memory, to which addresses in it are relative.
    """
    low, at = read_pointer(data, at, common.encoding, address + at)
    # A length, so nothing is added to it.
    length, at = read_pointer(data, at, common.encoding & 0x0F, 0)
    if common.augmented:
        skip, at = uleb128(data, at)
        at += skip
    return FrameEntry(low, low + length, common, data[at:end])


class CfiTable:
    """The call frame information of one section.

    Parameters
    ----------
    data : bytes
        The section, relocated to where it and the code are loaded.
    address : int
        Load address of the section.
    eh : bool
        Whether it is ``.eh_frame`` and not ``.debug_frame``.

    Raises
    ------
    UnsupportedError
        It is damaged, or of a form not known here.

    Notes
    -----
    Making one parses all entries, about 0.05 ms per object; rules are worked out on
    demand and kept.
    """

    def __init__(self, data: bytes, address: int, *, eh: bool = True) -> None:
        try:
            entries = list(_entries(data, address, eh))
        except DAMAGE as error:
            raise UnsupportedError(
                f"damaged call frame information: {error!r}"
            ) from error
        self.entries = tuple(sorted(entries, key=lambda entry: entry.low))
        self._starts = [entry.low for entry in self.entries]
        self._rules: dict[int, CfiRule | None] = {}

    def rule(self, pc: int) -> CfiRule | None:
        """Return how to unwind from ``pc``; None if no entry covers it."""
        if pc not in self._rules:
            entry = self.entry(pc)
            self._rules[pc] = None if entry is None else rule_of(entry, pc)
        return self._rules[pc]

    def entry(self, pc: int) -> FrameEntry | None:
        """Return the entry that covers ``pc``."""
        index = bisect_right(self._starts, pc) - 1
        if index < 0 or pc >= self.entries[index].high:
            return None
        return self.entries[index]


def _entries(data: bytes, address: int, eh: bool) -> Iterator[FrameEntry]:
    common: dict[int, CommonEntry] = {}
    at = 0
    while at + 4 <= len(data):
        start = at
        (length,) = _U32.unpack_from(data, at)
        if length == 0 and eh:  # the terminator
            return
        if length >= _DWARF64:
            raise UnsupportedError("call frame information in the 64-bit format")
        at += 4
        end = at + length
        (identifier,) = _U32.unpack_from(data, at)
        if identifier == (_EH_FRAME_CIE if eh else _DEBUG_FRAME_CIE):
            common[start] = parse_common(data, at + 4, end)
        else:
            # In .eh_frame it counts backwards from itself.
            owner = common[at - identifier if eh else identifier]
            yield parse_frame(data, at + 4, end, owner, address)
        at = end
