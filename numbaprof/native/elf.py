"""A reader of 64-bit little-endian ELF files: sections, symbols, relocations.

The System V ABI (gABI, chapter 4 "Object Files") for the structures, the x86-64 psABI
(section 4.4) and "ELF for the Arm 64-bit Architecture" (section 5.7) for relocation
types. Only what MCJIT's objects and shared libraries need; a byte string that is no
such file raises :class:`UnsupportedError`, never anything else.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from numbaprof.errors import UnsupportedError
from numbaprof.native.leb128 import DAMAGE, string

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping

__all__ = [
    "Binding",
    "Elf",
    "Machine",
    "Relocation",
    "Section",
    "SectionType",
    "Symbol",
    "symbol_address",
]

_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

SHF_ALLOC = 0x2
SHF_EXECINSTR = 0x4
SHN_UNDEF = 0
SHN_LORESERVE = 0xFF00
_WRAP = (1 << 64) - 1


class Machine(enum.IntEnum):
    """``e_machine`` of what is read here."""

    X86_64 = 62
    AARCH64 = 183


class SectionType(enum.IntEnum):
    """``sh_type``, the ones asked for."""

    SYMTAB = 2
    RELA = 4
    NOBITS = 8
    DYNSYM = 11


class Binding(enum.IntEnum):
    """``st_info >> 4``."""

    LOCAL = 0
    GLOBAL = 1
    WEAK = 2


STT_OBJECT = 1
STT_FUNC = 2
STT_SECTION = 3


class Section(NamedTuple):
    """A section header with its name."""

    number: int
    """Index in the section header table."""
    name: str
    type: int
    flags: int
    address: int
    """``sh_addr``: where it is loaded, in an object of the GDB-JIT list."""
    offset: int
    size: int
    link: int
    info: int
    entry_size: int
    """Of sections that hold equal-sized entries: tables, merged constants."""

    @property
    def executable(self) -> bool:
        """Whether it holds code."""
        return bool(self.flags & SHF_EXECINSTR) and self.size > 0


class Symbol(NamedTuple):
    """An entry of the symbol table."""

    name: str
    value: int
    """Within the section in an object file, an address in a shared library."""
    size: int
    binding: int
    type: int
    section: int
    """Index of the section it is defined in; 0 for undefined."""


class Relocation(NamedTuple):
    """A place in a section that the linker fills in."""

    offset: int
    type: int
    symbol: int
    addend: int


class _Kind(NamedTuple):
    width: int
    relative: bool


_DATA_RELOCATIONS: Mapping[int, Mapping[int, _Kind]] = {
    Machine.X86_64: {
        1: _Kind(8, False),  # R_X86_64_64
        2: _Kind(4, True),  # R_X86_64_PC32
        10: _Kind(4, False),  # R_X86_64_32
        11: _Kind(4, False),  # R_X86_64_32S
        24: _Kind(8, True),  # R_X86_64_PC64
    },
    Machine.AARCH64: {
        257: _Kind(8, False),  # R_AARCH64_ABS64
        258: _Kind(4, False),  # R_AARCH64_ABS32
        260: _Kind(8, True),  # R_AARCH64_PREL64
        261: _Kind(4, True),  # R_AARCH64_PREL32
    },
}


_CODE_WIDTHS: Mapping[int, Mapping[int, int]] = {
    # R_X86_64_64, PC64, GOTOFF64, GOTPC64, GOT64, GOTPCREL64, GOTPC64, PLTOFF64,
    # TPOFF64, DTPOFF64; all others fill 4 bytes (psABI, table 4.10).
    Machine.X86_64: dict.fromkeys((1, 24, 25, 27, 28, 29, 30, 31, 17, 18), 8),
    # ABS64 and PREL64; the others fill fields within one instruction of 4 bytes.
    Machine.AARCH64: {257: 8, 260: 8},
}
_DEFAULT_WIDTH = 4


class Elf:
    """One ELF file.

    Parameters
    ----------
    data : bytes
        The whole file.

    Raises
    ------
    UnsupportedError
        It is not a 64-bit little-endian ELF file, or is cut off.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        try:
            self.machine, self.sections = _read_sections(data)
        except DAMAGE as error:
            raise UnsupportedError(f"a damaged ELF file: {error}") from error
        self._symbols: tuple[Symbol, ...] | None = None
        self._by_name = {section.name: section for section in self.sections}
        self._relocations: dict[int, list[Section]] = {}
        for section in self.sections:
            if section.type == SectionType.RELA:
                self._relocations.setdefault(section.info, []).append(section)

    def section(self, name: str) -> Section | None:
        """Return the section called ``name``, the last of several."""
        return self._by_name.get(name)

    def content(self, section: Section) -> bytes:
        """Return the bytes of a section as the file has them."""
        if section.type == SectionType.NOBITS:
            return bytes(section.size)
        data = self.data[section.offset : section.offset + section.size]
        if len(data) != section.size:
            raise UnsupportedError(f"section {section.name} is cut off")
        return data

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbol table in its own order, which relocations count in."""
        if self._symbols is None:
            self._symbols = self._read_symbols()
        return self._symbols

    def _read_symbols(self) -> tuple[Symbol, ...]:
        for table in self.sections:
            if table.type == SectionType.SYMTAB:
                break
        else:
            return ()
        names = self.content(self.sections[table.link])
        content = self.content(table)
        try:
            return tuple(
                Symbol(string(names, name)[0], value, size, info >> 4, info & 15, index)
                for name, info, _, index, value, size in _SYMBOL.iter_unpack(content)
            )
        except DAMAGE as error:
            raise UnsupportedError(f"a damaged symbol table: {error}") from error

    def relocations(self, section: Section) -> tuple[Relocation, ...]:
        """Return what is to be filled in within ``section``."""
        found: list[Relocation] = []
        for table in self._relocations.get(section.number, ()):
            found.extend(
                Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
                for offset, info, addend in _RELOCATION.iter_unpack(self.content(table))
            )
        return tuple(found)

    def relocation_mask(self, section: Section) -> bytes:
        """Return one byte for each of ``section``'s: 1 where a relocation writes."""
        widths = _CODE_WIDTHS.get(self.machine, {})
        mask = bytearray(section.size)
        for place, type_, _, _ in self.relocations(section):
            width = widths.get(type_, _DEFAULT_WIDTH)
            mask[place : place + width] = b"\1" * width
        return bytes(mask)

    def relocated(self, section: Section, addresses: Mapping[int, int]) -> bytes:
        """Return the bytes of a data section as they are once it is loaded.

        Parameters
        ----------
        section : Section
            One without code: debug information or call frame information.
        addresses : mapping of int to int
            Load address by section index; what is missing counts as loaded at 0.

        Raises
        ------
        UnsupportedError
            There is a relocation of an unknown type: better none than wrong bytes.
        """
        kinds = _DATA_RELOCATIONS.get(self.machine, {})
        content = bytearray(self.content(section))
        symbols = self.symbols
        base = addresses.get(section.number, 0)
        for place, type_, number, addend in self.relocations(section):
            kind = kinds.get(type_)
            if kind is None:
                raise UnsupportedError(
                    f"section {section.name} has a relocation of type {type_}, "
                    f"which is not known for machine {self.machine}"
                )
            symbol = symbols[number]
            value = addresses.get(symbol.section, 0) + symbol.value + addend
            if kind.relative:
                value -= base + place
            width = kind.width
            content[place : place + width] = (value & _WRAP).to_bytes(8, "little")[
                :width
            ]
        return bytes(content)


def _read_sections(data: bytes | mmap.mmap) -> tuple[int, tuple[Section, ...]]:
    if data[: len(_MAGIC_64_LITTLE)] != _MAGIC_64_LITTLE:
        raise UnsupportedError(
            f"not a 64-bit little-endian ELF file: it begins with {data[:6]!r}"
        )
    header = _FILE_HEADER.unpack_from(data)
    machine, at = header[2], header[6]
    step, count, names_index = header[11:14]
    headers = [_SECTION.unpack_from(data, at + i * step) for i in range(count)]
    names = headers[names_index][4] if headers else 0
    sections = tuple(
        Section._make(
            (number, string(data, names + header[0])[0], *header[1:8], header[9])
        )
        for number, header in enumerate(headers)
    )
    return machine, sections


SYMBOL_ARRAY = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)


def symbol_address(data: bytes | mmap.mmap, name: str) -> int | None:
    """Return the address of a symbol in a shared library, relative to its start.

    Parameters
    ----------
    data : bytes or mmap
        The whole file.
    name : str
        As in the symbol table, local symbols included.

    Notes
    -----
    For large libraries: libllvmlite has 178 MB and 300,000 symbols, which takes 50 ms.

    Raises
    ------
    UnsupportedError
        It is not a 64-bit little-endian ELF file, or is cut off.
    """
    try:
        _, sections = _read_sections(data)
        for table in sections:
            if table.type in (SectionType.SYMTAB, SectionType.DYNSYM):
                names = sections[table.link]
                found = _find_symbol(data, table, names, name.encode())
                if found is not None:
                    return found
    except DAMAGE as error:
        raise UnsupportedError(f"a damaged ELF file: {error}") from error
    return None


def _find_symbol(
    data: bytes | mmap.mmap, table: Section, names: Section, name: bytes
) -> int | None:
    end = names.offset + names.size
    at = data.find(b"\0" + name + b"\0", names.offset, end)
    if at < 0:
        return None
    count = table.size // _SYMBOL.size
    entries = np.frombuffer(data, SYMBOL_ARRAY, count, table.offset)
    same = np.flatnonzero(entries["name"] == at + 1 - names.offset)
    defined = [int(i) for i in same if entries["section"][i] != SHN_UNDEF]
    # A view of the file would keep it from being unmapped.
    return int(entries["value"][defined[0]]) if defined else None
