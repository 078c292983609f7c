"""The line number program of one compilation unit.

DWARF Debugging Information Format version 5, section 6.2, and version 4 for the header
that LLVM writes by default (MCDwarf.cpp). Versions 2 to 5 are read.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.native.leb128 import sleb128, string, uleb128

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["END", "LineProgram", "read_line_program"]

END = -1
"""Line of a row that only says where the one before it ends."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_DWARF64 = 0xFFFFFFF0
"""Initial lengths from here on belong to the 64-bit format, which LLVM does not use."""
_LAST_VERSION = 5


class LineProgram(NamedTuple):
    """What a line number program says."""

    files: tuple[str, ...]
    """Absolute paths by file number; number 0 is "" before version 5."""
    rows: list[tuple[int, int, int]]
    """(address, file number, line), in the order of the program."""


class _Header(NamedTuple):
    version: int
    program: int
    end: int
    step: int
    line_base: int
    line_range: int
    opcode_base: int
    lengths: bytes
    tables: int


def read_line_program(
    sections: Mapping[str, bytes], at: int, directory: str
) -> LineProgram:
    """Read the program of one unit.

    Parameters
    ----------
    sections : mapping of str to bytes
        Relocated sections: ``.debug_line``, and for version 5 ``.debug_line_str`` and
        ``.debug_str``.
    at : int
        Where in ``.debug_line`` the unit begins (``DW_AT_stmt_list``).
    directory : str
        ``DW_AT_comp_dir`` of the unit, to which relative paths belong.

    Raises
    ------
    UnsupportedError
        The unit is of a version or form that is not known here.
    """
    data = sections[".debug_line"]
    header = _read_header(data, at)
    if header.version >= 5:
        files = _files_of_version_5(sections, header.tables, directory)
    else:
        files = _files_of_version_4(data, header.tables, directory)
    return LineProgram(files, _run(data, header))


def _read_header(data: bytes, at: int) -> _Header:
    (length,) = _U32.unpack_from(data, at)
    (version,) = _U16.unpack_from(data, at + 4)
    if length >= _DWARF64 or not 2 <= version <= _LAST_VERSION:
        raise UnsupportedError(f"a line table of DWARF version {version} ({length:#x})")
    end = at + 4 + length
    at += 6
    if version >= 5:
        at += 2  # address_size, segment_selector_size
    (header_length,) = _U32.unpack_from(data, at)
    at += 4
    program = at + header_length
    step = data[at]
    # maximum_operations_per_instruction (version 4 on) and default_is_stmt say
    # nothing about addresses and lines on machines without bundles.
    at += 3 if version >= 4 else 2
    base = data[at] - 256 if data[at] > 127 else data[at]
    line_range, opcode_base = data[at + 1], data[at + 2]
    at += 3
    lengths = data[at : at + opcode_base - 1]
    tables = at + opcode_base - 1
    return _Header(
        version, program, end, step, base, line_range, opcode_base, lengths, tables
    )


def _files_of_version_4(data: bytes, at: int, directory: str) -> tuple[str, ...]:
    """Version 4, section 6.2.4: two lists that end in an empty name, from 1."""
    directories = [directory]
    while data[at]:
        name, at = string(data, at)
        directories.append(os.path.join(directory, name))
    at += 1
    files = [""]
    while data[at]:
        name, at = string(data, at)
        number, at = uleb128(data, at)
        _, at = uleb128(data, at)
        _, at = uleb128(data, at)
        files.append(os.path.join(directories[number], name))
    return tuple(files)


_CONTENT_PATH = 1
_CONTENT_DIRECTORY = 2


def _files_of_version_5(
    sections: Mapping[str, bytes], at: int, directory: str
) -> tuple[str, ...]:
    """Version 5, section 6.2.4.1: two tables that describe their own columns."""
    rows, at = _entry_table(sections, at)
    directories = [os.path.join(directory, str(row.get(_CONTENT_PATH))) for row in rows]
    rows, at = _entry_table(sections, at)
    return tuple(
        os.path.join(
            directories[int(row.get(_CONTENT_DIRECTORY, 0))], str(row[_CONTENT_PATH])
        )
        for row in rows
    )


def _entry_table(
    sections: Mapping[str, bytes], at: int
) -> tuple[list[dict[int, int | str]], int]:
    data = sections[".debug_line"]
    n_columns = data[at]
    at += 1
    columns = []
    for _ in range(n_columns):
        content, at = uleb128(data, at)
        form, at = uleb128(data, at)
        columns.append((content, form))
    count, at = uleb128(data, at)
    rows = []
    for _ in range(count):
        row: dict[int, int | str] = {}
        for content, form in columns:
            row[content], at = _entry_value(sections, form, at)
        rows.append(row)
    return rows, at


def _entry_value(
    sections: Mapping[str, bytes], form: int, at: int
) -> tuple[int | str, int]:
    """Read one value; section 6.2.4.1 lists the forms that may occur."""
    data = sections[".debug_line"]
    if form == 0x08:  # DW_FORM_string
        return string(data, at)
    if form in (0x1F, 0x0E):  # DW_FORM_line_strp, DW_FORM_strp
        name = ".debug_line_str" if form == 0x1F else ".debug_str"
        (offset,) = _U32.unpack_from(data, at)
        return string(sections[name], offset)[0], at + 4
    if form == 0x0F:  # DW_FORM_udata
        return uleb128(data, at)
    widths = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}  # DW_FORM_data1 to data16
    if form not in widths:
        raise UnsupportedError(f"a file table with a value of form {form:#x}")
    end = at + widths[form]
    return int.from_bytes(data[at:end], "little"), end


class _State:
    """The registers of the line number machine (section 6.2.2) that matter here."""

    __slots__ = ("address", "file", "line")

    def __init__(self) -> None:
        self.address, self.file, self.line = 0, 1, 1


def _run(data: bytes, header: _Header) -> list[tuple[int, int, int]]:
    """Execute the program; section 6.2.5."""
    rows: list[tuple[int, int, int]] = []
    state = _State()
    at, end, base = header.program, header.end, header.opcode_base
    while at < end:
        opcode = data[at]
        at += 1
        if opcode >= base:
            advance, line = divmod(opcode - base, header.line_range)
            state.address += advance * header.step
            state.line += header.line_base + line
            rows.append((state.address, state.file, state.line))
        elif opcode == 0:
            state, at = _extended(data, at, state, rows)
        elif opcode == 1:  # DW_LNS_copy
            rows.append((state.address, state.file, state.line))
        elif opcode in _STANDARD:
            at = _STANDARD[opcode](data, at, state, header)
        else:
            for _ in range(header.lengths[opcode - 1]):
                _, at = uleb128(data, at)
    return rows


def _extended(
    data: bytes, at: int, state: _State, rows: list[tuple[int, int, int]]
) -> tuple[_State, int]:
    """Execute an extended opcode; section 6.2.5.3."""
    length, at = uleb128(data, at)
    opcode = data[at]
    if opcode == 1:  # DW_LNE_end_sequence
        rows.append((state.address, state.file, END))
        state = _State()
    elif opcode == 2:  # DW_LNE_set_address
        (state.address,) = _U64.unpack_from(data, at + 1)
    return state, at + length


def _advance_pc(data: bytes, at: int, state: _State, header: _Header) -> int:
    value, at = uleb128(data, at)
    state.address += value * header.step
    return at


def _advance_line(data: bytes, at: int, state: _State, header: _Header) -> int:
    value, at = sleb128(data, at)
    state.line += value
    return at


def _set_file(data: bytes, at: int, state: _State, header: _Header) -> int:
    state.file, at = uleb128(data, at)
    return at


def _const_add_pc(data: bytes, at: int, state: _State, header: _Header) -> int:
    state.address += (255 - header.opcode_base) // header.line_range * header.step
    return at


def _fixed_advance_pc(data: bytes, at: int, state: _State, header: _Header) -> int:
    state.address += _U16.unpack_from(data, at)[0]
    return at + 2


_STANDARD: Mapping[int, Callable[[bytes, int, _State, _Header], int]] = {
    2: _advance_pc,
    3: _advance_line,
    4: _set_file,
    8: _const_add_pc,
    9: _fixed_advance_pc,
}
"""Standard opcodes that change a register kept here; section 6.2.5.2."""
