"""Rows of the line table, one by one against pyelftools."""

from __future__ import annotations

import struct

import dwarf_oracle
import machine_code
import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import dwarf_lines
from numbaprof.native.objcode import JitObject

EMITTED = [
    (machine, version, kind)
    for machine in machine_code.TRIPLES
    for version in (4, 5)
    for kind in ("LineTablesOnly", "FullDebug")
]


def in_order(rows):
    """Sort rows as :class:`~numbaprof.native.dwarf.LineTable` does."""
    return sorted(rows, key=lambda row: (row[0], row[2] != -1))


@pytest.mark.parametrize(("machine", "version", "kind"), EMITTED)
def test_rows_of_emitted_objects_are_those_pyelftools_sees(machine, version, kind):
    """Address, file and line agree for both machines and both versions."""
    data = machine_code.emit_inlined(machine, version=version, kind=kind)
    ours = JitObject.from_bytes(data).rows().rows
    assert len(ours) > 6
    assert [tuple(row) for row in ours] == in_order(dwarf_oracle.Oracle(data).rows())


def test_rows_of_numba_objects_are_those_pyelftools_sees():
    """Address, file and line agree for every row of every kernel."""
    compared = 0
    for found in machine_code.objects_with_lines():
        ours = [
            (address - found.start, file, line)
            for address, file, line in found.rows().rows
        ]
        assert ours == in_order(dwarf_oracle.Oracle(found.elf.data).rows())
        compared += len(ours)
    assert compared > 100


def program(code: bytes, *, version: int = 2) -> bytes:
    """Return a unit with the header fields LLVM uses and one file."""
    tables = b"\0" + b"a.py\0\0\0\0" + b"\0"
    lengths = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
    fixed = bytes([1, *([1] if version >= 4 else []), 1, 0xFB, 14, 13])
    rest = fixed + lengths + tables
    body = struct.pack("<HI", version, len(rest)) + rest + code
    return struct.pack("<I", len(body)) + body


SET_ADDRESS = b"\0\x09\x02" + struct.pack("<Q", 0x1000)
END_SEQUENCE = b"\0\x01\x01"


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("code", "rows"),
    [
        (b"\x01", [(0x1000, 1, 1)]),  # copy
        (b"\x02\x05\x01", [(0x1005, 1, 1)]),  # advance_pc
        (b"\x03\x7e\x03\x09\x01", [(0x1000, 1, 8)]),  # advance_line -2, +9
        (b"\x04\x02\x01", [(0x1000, 2, 1)]),  # set_file
        (b"\x08\x01", [(0x1000 + 242 // 14, 1, 1)]),  # const_add_pc
        (b"\x09\x34\x12\x01", [(0x2234, 1, 1)]),  # fixed_advance_pc
        (b"\x05\x07\x06\x07\x0a\x0b\x0c\x01\x01", [(0x1000, 1, 1)]),  # no effect
        (b"\0\x02\x80\x01\x01", [(0x1000, 1, 1)]),  # unknown extended opcode
        (bytes([13 + 14 * 2 + 5 + 3]), [(0x1002, 1, 4)]),  # special: +2, +3
    ],
)
def test_opcode(version, code, rows):
    """Each opcode changes the registers that DWARF says it changes."""
    unit = program(SET_ADDRESS + code + END_SEQUENCE, version=version)
    found = dwarf_lines.read_line_program({".debug_line": unit}, 0, "/dir")
    assert found.rows[:-1] == rows
    assert found.rows[-1][2] == dwarf_lines.END
    assert found.files == ("", "/dir/a.py")


def test_sequences_begin_anew():
    """After the end of a sequence, file and line are 1 again."""
    code = SET_ADDRESS + b"\x04\x05\x03\x09\x01" + END_SEQUENCE + SET_ADDRESS + b"\x01"
    unit = program(code)
    found = dwarf_lines.read_line_program({".debug_line": unit}, 0, "")
    assert found.rows[0] == (0x1000, 5, 10)
    assert found.rows[-1] == (0x1000, 1, 1)


def test_unknown_version_is_refused():
    """A version that nobody has read about here is not guessed at."""
    unit = bytearray(program(b""))
    unit[4] = 6
    with pytest.raises(UnsupportedError, match="DWARF version 6"):
        dwarf_lines.read_line_program({".debug_line": bytes(unit)}, 0, "")
