"""Call frame information of the libraries in the process, read from memory.

Every shared library has ``.eh_frame`` mapped, and ``.eh_frame_hdr``, a sorted table
over it (Linux Standard Base Core 5.0, section 10.6.2); the program header
PT_GNU_EH_FRAME says where. No file is opened, and no address is read that the kernel
would not give.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from numbaprof.errors import UnsupportedError
from numbaprof.native import memory
from numbaprof.native.cfi import parse_common, parse_frame, read_pointer
from numbaprof.native.cfi_rules import CfiRule, CommonEntry, FrameEntry, rule_of
from numbaprof.native.leb128 import DAMAGE

__all__ = ["FrameHeader", "Library", "LibraryFrames"]

_ELF_HEADER_BYTES = 64
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_PT_LOAD = 1
_PT_GNU_EH_FRAME = 0x6474E550
_U32 = struct.Struct("<I")
_HEADER_BYTES = 32
"""Enough for the fixed part of ``.eh_frame_hdr`` in every encoding."""
_TABLE_ENCODING = 0x3B
"""DW_EH_PE_datarel | DW_EH_PE_sdata4: what every linker writes."""
_MAX_ENTRY_BYTES = 1 << 20
_MAX_FUNCTIONS = 1 << 24


class FrameHeader:
    """The search table of one library.

    Parameters
    ----------
    address : int
        Of ``.eh_frame_hdr`` in memory.

    Raises
    ------
    UnsupportedError
        Memory cannot be read there, or what is there is no such table.
    """

    def __init__(self, address: int) -> None:
        raw = memory.read(address, _HEADER_BYTES)
        version, frame_encoding, count_encoding, table_encoding = raw[:4]
        if version != 1 or table_encoding != _TABLE_ENCODING:
            raise UnsupportedError(
                f".eh_frame_hdr at {address:#x} has version {version} and table "
                f"encoding {table_encoding:#x}"
            )
        _, at = read_pointer(raw, 4, frame_encoding, address + 4)
        count, at = read_pointer(raw, at, count_encoding, address + at)
        if count > _MAX_FUNCTIONS:
            raise UnsupportedError(f".eh_frame_hdr at {address:#x} lists {count}")
        table = memory.read(address + at, 8 * count)
        pairs = np.frombuffer(table, "<i4").astype(np.int64).reshape(count, 2) + address
        self._starts = pairs[:, 0]
        self._entries = pairs[:, 1]
        self._common: dict[int, CommonEntry] = {}

    def entry(self, pc: int) -> FrameEntry | None:
        """Return the entry that covers ``pc``."""
        index = int(np.searchsorted(self._starts, pc, "right")) - 1
        if index < 0:
            return None
        entry = self._parse(int(self._entries[index]))
        return entry if entry.low <= pc < entry.high else None

    def _parse(self, address: int) -> FrameEntry:
        data = _read_entry(address)
        (back,) = _U32.unpack_from(data, 4)
        owner = address + 4 - back
        if owner not in self._common:
            raw = _read_entry(owner)
            self._common[owner] = parse_common(raw, 8, len(raw))
        return parse_frame(data, 8, len(data), self._common[owner], address)


def _read_entry(address: int) -> bytes:
    (length,) = _U32.unpack(memory.read(address, 4))
    if not 4 < length <= _MAX_ENTRY_BYTES:
        raise UnsupportedError(f"a frame entry of {length} bytes at {address:#x}")
    return memory.read(address, 4 + length)


class Library(NamedTuple):
    """A file that is mapped with its program headers."""

    low: int
    high: int
    path: str
    header: int
    """Address of ``.eh_frame_hdr``; 0 if it has none."""


class LibraryFrames:
    """Unwind rules for all libraries mapped at one moment.

    Notes
    -----
    Making one reads the memory map and 100 program headers, about 5 ms. Tables are read
    when a library is first asked for; rules are kept by address.
    """

    def __init__(self, mappings: memory.Mappings | None = None) -> None:
        self.mappings = memory.Mappings.now() if mappings is None else mappings
        self._libraries = sorted(_libraries(self.mappings))
        self._starts = [library.low for library in self._libraries]
        self._headers: dict[int, FrameHeader | None] = {}
        self._rules: dict[int, CfiRule | None] = {}

    def find(self, pc: int) -> Library | None:
        """Return the library that ``pc`` lies in."""
        index = bisect_right(self._starts, pc) - 1
        if index < 0 or pc >= self._libraries[index].high:
            return None
        return self._libraries[index]

    def path(self, pc: int) -> str:
        """Return the file of the library that ``pc`` lies in; "" for none."""
        library = self.find(pc)
        return "" if library is None else library.path

    def function_start(self, pc: int) -> int | None:
        """Return where the function that ``pc`` lies in begins, if that is known."""
        entry = self._entry(pc)
        return None if entry is None else entry.low

    def rule(self, pc: int) -> CfiRule | None:
        """Return how to unwind from ``pc``; None if that is not known."""
        if pc not in self._rules:
            self._rules[pc] = self._find_rule(pc)
        return self._rules[pc]

    def _find_rule(self, pc: int) -> CfiRule | None:
        entry = self._entry(pc)
        try:
            return None if entry is None else rule_of(entry, pc)
        except UnsupportedError:
            # An instruction that is not known.
            return None

    def _entry(self, pc: int) -> FrameEntry | None:
        library = self.find(pc)
        if library is None or not library.header:
            return None
        try:
            if library.header not in self._headers:
                self._headers[library.header] = None
                self._headers[library.header] = FrameHeader(library.header)
            header = self._headers[library.header]
            return None if header is None else header.entry(pc)
        except (UnsupportedError, *DAMAGE):
            # One library's table is damaged or unmapped by now: nothing is known.
            return None


def _libraries(mappings: memory.Mappings) -> list[Library]:
    found = []
    for mapping in mappings.entries:
        # The first page of a file, where its ELF header is; [vdso] is like a file.
        if mapping.offset or not mapping.path or "r" not in mapping.permissions:
            continue
        if mapping.path.startswith("[") and mapping.path != "[vdso]":
            continue
        try:
            library = _read_library(mapping)
        except (UnsupportedError, *DAMAGE):
            continue
        if library is not None:
            found.append(library)
    return found


def _read_library(mapping: memory.Mapping) -> Library | None:
    """Read the program headers; System V ABI, "Program Header"."""
    if mapping.end - mapping.start < _ELF_HEADER_BYTES:
        return None
    raw = memory.read(mapping.start, _ELF_HEADER_BYTES)
    if raw[:5] != b"\x7fELF\x02":
        return None
    (at,) = struct.unpack_from("<Q", raw, 0x20)
    size, count = struct.unpack_from("<HH", raw, 0x36)
    if size != _PROGRAM_HEADER.size:
        return None
    headers = memory.read(mapping.start + at, size * count)
    loads, frames = [], 0
    for type_, _, _, address, _, _, bytes_, _ in _PROGRAM_HEADER.iter_unpack(headers):
        if type_ == _PT_LOAD:
            loads.append((address, address + bytes_))
        elif type_ == _PT_GNU_EH_FRAME:
            frames = address
    if not loads:
        return None
    # Addresses in a file count from its first segment (executables may have one).
    bias = mapping.start - min(low for low, _ in loads)
    high = bias + max(high for _, high in loads)
    return Library(mapping.start, high, mapping.path, frames and bias + frames)
