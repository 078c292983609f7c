"""Compilation units: the entries of ``.debug_info`` that say what was inlined where.

DWARF Debugging Information Format version 5, section 7.5 (units, abbreviations, forms),
3.3.8 (inlined subroutines) and 2.17 (ranges); version 4 is what LLVM writes for Numba.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.native.dwarf_lines import LineProgram, read_line_program
from numbaprof.native.leb128 import DAMAGE, sleb128, string, uleb128

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Scope", "Unit", "read_units"]

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_PAIR = struct.Struct("<QQ")
_UNIT_4 = struct.Struct("<IHIB")
_UNIT_5 = struct.Struct("<IHBBI")
_ALL_ONES = (1 << 64) - 1

TAG_COMPILE_UNIT = 0x11
TAG_INLINED_SUBROUTINE = 0x1D
TAG_SUBPROGRAM = 0x2E
AT_NAME = 0x03
AT_STMT_LIST = 0x10
AT_LOW_PC = 0x11
AT_HIGH_PC = 0x12
AT_COMP_DIR = 0x1B
AT_ABSTRACT_ORIGIN = 0x31
AT_RANGES = 0x55
AT_CALL_FILE = 0x58
AT_CALL_LINE = 0x59
AT_STR_OFFSETS_BASE = 0x72
AT_ADDR_BASE = 0x73
AT_RNGLISTS_BASE = 0x74


class Scope(NamedTuple):
    """A function, or one place where a function was inlined."""

    ranges: tuple[tuple[int, int], ...]
    """Half-open, in addresses."""
    depth: int
    """0 for a function, more for what is inlined into it."""
    name: str
    inlined: bool
    call_file: str
    """Where it was called from; "" unless inlined."""
    call_line: int


class Unit(NamedTuple):
    """What one compilation unit says about addresses."""

    program: LineProgram | None
    scopes: tuple[Scope, ...]


class _Abbreviation(NamedTuple):
    tag: int
    children: bool
    attributes: tuple[tuple[int, int, int], ...]
    """(attribute, form, value of DW_FORM_implicit_const)."""


def read_units(sections: Mapping[str, bytes]) -> list[Unit]:
    """Read every unit of ``.debug_info``.

    Parameters
    ----------
    sections : mapping of str to bytes
        Relocated debug sections by name.

    Raises
    ------
    UnsupportedError
        A version, form or list that is not known, or data that is cut off.
    """
    try:
        return _Reader(sections).read()
    except DAMAGE as error:
        raise UnsupportedError(f"damaged debug information: {error!r}") from error


class _Reader:
    """State shared by the units of one object: sections, abbreviations, names."""

    def __init__(self, sections: Mapping[str, bytes]) -> None:
        self.sections = sections
        self.info = sections[".debug_info"]
        self._abbreviations: dict[int, dict[int, _Abbreviation]] = {}
        self.names: dict[int, str] = {}
        self.programs: dict[int, LineProgram] = {}

    def read(self) -> list[Unit]:
        pending = []
        at = 0
        while at < len(self.info):
            unit = _UnitReader(self, at)
            at = unit.end
            if unit.is_code:
                unit.read()
                pending.append(unit)
        # An origin may lie in a unit that comes later.
        return [unit.result() for unit in pending]

    def abbreviations(self, at: int) -> dict[int, _Abbreviation]:
        """Return the table at ``at`` of ``.debug_abbrev``; section 7.5.3."""
        known = self._abbreviations.get(at)
        if known is None:
            known = self._abbreviations[at] = dict(
                _read_abbreviations(self.sections[".debug_abbrev"], at)
            )
        return known


def _read_abbreviations(data: bytes, at: int) -> Iterator[tuple[int, _Abbreviation]]:
    while True:
        code, at = uleb128(data, at)
        if not code:
            return
        tag, at = uleb128(data, at)
        children = bool(data[at])
        at += 1
        attributes = []
        while True:
            attribute, at = uleb128(data, at)
            form, at = uleb128(data, at)
            constant = 0
            if form == 0x21:  # DW_FORM_implicit_const
                constant, at = sleb128(data, at)
            if not attribute and not form:
                break
            attributes.append((attribute, form, constant))
        yield code, _Abbreviation(tag, children, tuple(attributes))


class _Found(NamedTuple):
    """A scope whose name may still be unknown."""

    origin: int
    scope: Scope


_FIXED = {
    0x01: 8,  # addr
    0x05: 2,  # data2
    0x06: 4,  # data4
    0x07: 8,  # data8
    0x0B: 1,  # data1
    0x0C: 1,  # flag
    0x0E: 4,  # strp
    0x10: 4,  # ref_addr
    0x11: 1,  # ref1
    0x12: 2,  # ref2
    0x13: 4,  # ref4
    0x14: 8,  # ref8
    0x17: 4,  # sec_offset
    0x1D: 4,  # strp_sup
    0x1E: 16,  # data16
    0x1F: 4,  # line_strp
    0x20: 8,  # ref_sig8
    0x25: 1,  # strx1
    0x26: 2,  # strx2
    0x27: 3,  # strx3
    0x28: 4,  # strx4
    0x29: 1,  # addrx1
    0x2A: 2,  # addrx2
    0x2B: 3,  # addrx3
    0x2C: 4,  # addrx4
}
"""Width by DW_FORM in 32-bit DWARF with 8-byte addresses; section 7.5.6."""
_UNSIGNED = {0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23}
"""udata, ref_udata, strx, addrx, loclistx, rnglistx: ULEB128."""
_BLOCKS = {0x03: 2, 0x04: 4, 0x0A: 1}
"""block2, block4, block1: width of the length."""
_UNIT_REFERENCES = {0x11, 0x12, 0x13, 0x14, 0x15}
"""Counted from the begin of the unit."""
_STRING_INDEXES = {0x1A, 0x25, 0x26, 0x27, 0x28}
_ADDRESS_INDEXES = {0x1B, 0x29, 0x2A, 0x2B, 0x2C}


class _UnitReader:
    """One unit: walks its entries and collects scopes."""

    def __init__(self, reader: _Reader, at: int) -> None:
        self._reader = reader
        self._start = at
        info = reader.info
        length, version, offset, size = _UNIT_4.unpack_from(info, at)
        self._at = at + _UNIT_4.size
        self.is_code = True
        if version == 5:
            length, version, kind, size, offset = _UNIT_5.unpack_from(info, at)
            self._at = at + _UNIT_5.size
            self.is_code = kind == 1  # DW_UT_compile
        if length >= 0xFFFFFFF0 or version not in (4, 5) or size != 8:
            raise UnsupportedError(
                f"debug information of DWARF version {version} with addresses of "
                f"{size} bytes"
            )
        self.version = version
        self.end = at + 4 + length
        self._offset = offset
        self._low = 0
        self._files: tuple[str, ...] = ()
        self._program: LineProgram | None = None
        self._bases: dict[int, int] = {}
        self._found: list[_Found] = []

    def read(self) -> None:
        """Walk the entries; section 2.3: children follow, a zero ends them."""
        abbreviations = self._reader.abbreviations(self._offset)
        info, at = self._reader.info, self._at
        nesting: list[bool] = []
        depth = 0
        while at < self.end:
            here = at
            code, at = uleb128(info, at)
            if not code:
                if nesting:
                    depth -= nesting.pop()
                continue
            abbreviation = abbreviations[code]
            values, at = self._values(abbreviation, at)
            if abbreviation.tag == TAG_COMPILE_UNIT:
                self._enter_unit(values)
                counts = False
            else:
                counts = self._add(abbreviation.tag, here, values, depth)
            if abbreviation.children:
                nesting.append(counts)
                depth += counts

    def _values(
        self, abbreviation: _Abbreviation, at: int
    ) -> tuple[dict[int, tuple[int, int | str]], int]:
        """Return {attribute: (form, value)} of one entry."""
        values: dict[int, tuple[int, int | str]] = {}
        info = self._reader.info
        for attribute, form, constant in abbreviation.attributes:
            value: int | str
            width = _FIXED.get(form)
            if width is not None:
                value = int.from_bytes(info[at : at + width], "little")
                at += width
            elif form in _UNSIGNED:
                value, at = uleb128(info, at)
            elif form == 0x0D:  # DW_FORM_sdata
                value, at = sleb128(info, at)
            elif form == 0x08:  # DW_FORM_string
                value, at = string(info, at)
            elif form in (0x19, 0x21):  # DW_FORM_flag_present, DW_FORM_implicit_const
                value = constant
            elif form in (0x09, 0x18):  # DW_FORM_block, DW_FORM_exprloc
                length, at = uleb128(info, at)
                value, at = 0, at + length
            elif form in _BLOCKS:
                end = at + _BLOCKS[form]
                value, at = 0, end + int.from_bytes(info[at:end], "little")
            else:
                raise UnsupportedError(f"an attribute of form {form:#x}")
            values[attribute] = (form, value)
        return values, at

    def _enter_unit(self, values: dict[int, tuple[int, int | str]]) -> None:
        for base in (AT_STR_OFFSETS_BASE, AT_ADDR_BASE, AT_RNGLISTS_BASE):
            if base in values:
                self._bases[base] = int(values[base][1])
        self._low = self._address(values.get(AT_LOW_PC, (0x01, 0)))
        directory = self._text(values.get(AT_COMP_DIR, (0x08, "")))
        if AT_STMT_LIST not in values:
            return
        at = int(values[AT_STMT_LIST][1])
        programs = self._reader.programs
        if at in programs:
            # Units may share a program; its rows are handed out once.
            program = programs[at]
            self._files = program.files
            return
        program = read_line_program(self._reader.sections, at, directory)
        programs[at] = program
        self._program, self._files = program, program.files

    def _add(
        self, tag: int, here: int, values: dict[int, tuple[int, int | str]], depth: int
    ) -> bool:
        """Note a function or inlined function; tell whether it has code."""
        if tag not in (TAG_SUBPROGRAM, TAG_INLINED_SUBROUTINE):
            return False
        if AT_NAME in values:
            self._reader.names[here] = self._text(values[AT_NAME])
        ranges = self._ranges(values)
        if not ranges:
            return False
        inlined = tag == TAG_INLINED_SUBROUTINE
        origin = self._reference(values.get(AT_ABSTRACT_ORIGIN), here)
        file = int(values.get(AT_CALL_FILE, (0, 0))[1])
        line = int(values.get(AT_CALL_LINE, (0, 0))[1])
        call_file = self._files[file] if inlined and file < len(self._files) else ""
        scope = Scope(ranges, depth, "", inlined, call_file, line)
        self._found.append(_Found(origin, scope))
        return True

    def _reference(self, value: tuple[int, int | str] | None, default: int) -> int:
        if value is None:
            return default
        form, offset = value
        return int(offset) + (self._start if form in _UNIT_REFERENCES else 0)

    def _text(self, value: tuple[int, int | str]) -> str:
        form, content = value
        if isinstance(content, str):
            return content
        sections = self._reader.sections
        if form == 0x0E:  # DW_FORM_strp
            return string(sections[".debug_str"], content)[0]
        if form == 0x1F:  # DW_FORM_line_strp
            return string(sections[".debug_line_str"], content)[0]
        if form in _STRING_INDEXES:
            at = self._bases[AT_STR_OFFSETS_BASE] + 4 * content
            (offset,) = _U32.unpack_from(sections[".debug_str_offsets"], at)
            return string(sections[".debug_str"], offset)[0]
        raise UnsupportedError(f"a name of form {form:#x}")

    def _address(self, value: tuple[int, int | str]) -> int:
        form, content = value
        if form in _ADDRESS_INDEXES:
            return self._indexed_address(int(content))
        return int(content)

    def _indexed_address(self, index: int) -> int:
        at = self._bases[AT_ADDR_BASE] + 8 * index
        return int(_U64.unpack_from(self._reader.sections[".debug_addr"], at)[0])

    def _ranges(
        self, values: dict[int, tuple[int, int | str]]
    ) -> tuple[tuple[int, int], ...]:
        """Return the addresses of an entry; section 2.17."""
        if AT_RANGES in values:
            form, value = values[AT_RANGES]
            if self.version >= 5:
                return tuple(self._range_list_5(form, int(value)))
            return tuple(self._range_list_4(int(value)))
        if AT_LOW_PC not in values or AT_HIGH_PC not in values:
            return ()
        low = self._address(values[AT_LOW_PC])
        form, high = values[AT_HIGH_PC]
        if form == 0x01 or form in _ADDRESS_INDEXES:
            return ((low, self._address((form, high))),)
        return ((low, low + int(high)),)

    def _range_list_4(self, at: int) -> Iterator[tuple[int, int]]:
        """Version 4, section 2.17.3: pairs relative to the unit or a given base."""
        data = self._reader.sections[".debug_ranges"]
        base = self._low
        while True:
            low, high = _PAIR.unpack_from(data, at)
            at += _PAIR.size
            if not low and not high:
                return
            if low == _ALL_ONES:
                base = high
            elif low < high:
                yield base + low, base + high

    def _range_list_5(self, form: int, value: int) -> Iterator[tuple[int, int]]:
        """Version 5, section 7.25: entries with a kind of their own each."""
        data = self._reader.sections[".debug_rnglists"]
        at = value
        if form == 0x23:  # DW_FORM_rnglistx
            table = self._bases[AT_RNGLISTS_BASE]
            at = table + int(_U32.unpack_from(data, table + 4 * value)[0])
        base = self._low
        while True:
            kind = data[at]
            at += 1
            if kind == 0:  # DW_RLE_end_of_list
                return
            if kind == 1:  # DW_RLE_base_addressx
                index, at = uleb128(data, at)
                base = self._indexed_address(index)
                continue
            if kind == 5:  # DW_RLE_base_address
                (base,) = _U64.unpack_from(data, at)
                at += 8
                continue
            low, high, at = self._range_5(kind, at, base)
            if low < high:
                yield low, high

    def _range_5(self, kind: int, at: int, base: int) -> tuple[int, int, int]:
        data = self._reader.sections[".debug_rnglists"]
        if kind == 6:  # DW_RLE_start_end
            low, high = _PAIR.unpack_from(data, at)
            return low, high, at + _PAIR.size
        if kind == 7:  # DW_RLE_start_length
            (low,) = _U64.unpack_from(data, at)
            length, at = uleb128(data, at + 8)
            return low, low + length, at
        first, at = uleb128(data, at)
        second, at = uleb128(data, at)
        if kind == 2:  # DW_RLE_startx_endx
            low, high = self._indexed_address(first), self._indexed_address(second)
        elif kind == 3:  # DW_RLE_startx_length
            low = self._indexed_address(first)
            high = low + second
        elif kind == 4:  # DW_RLE_offset_pair
            low, high = base + first, base + second
        else:
            raise UnsupportedError(f"a range list entry of kind {kind}")
        return low, high, at

    def result(self) -> Unit:
        """Return what was found, with the names of origins filled in."""
        names = self._reader.names
        return Unit(
            self._program,
            tuple(
                found.scope._replace(name=names.get(found.origin, ""))
                for found in self._found
            ),
        )
