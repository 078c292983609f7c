"""Call frame information of compiled code, row by row against pyelftools."""

from __future__ import annotations

import struct

import dwarf_oracle
import machine_code
import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import cfi, objcode
from numbaprof.native.cfi import CfiTable
from numbaprof.native.objcode import JitObject


def compare(found: JitObject) -> int:
    """Compare all entries of both tables; return how many rows were compared."""
    rows = 0
    for name in (".eh_frame", ".debug_frame"):
        section = found.section(name)
        if section is None:
            continue
        address, data = section
        eh = name == ".eh_frame"
        table = CfiTable(data, address, eh=eh)
        expected = dwarf_oracle.frame_rows(data, address, eh=eh)
        assert [(entry.low, entry.high) for entry in table.entries] == sorted(
            (low, high) for low, high, _ in expected
        )
        for _, high, decoded in expected:
            ends = [row["pc"] for row in decoded[1:]] + [high]
            for row, end in zip(decoded, ends, strict=True):
                for pc in {row["pc"], end - 1}:
                    dwarf_oracle.assert_same_rule(table.rule(pc), row)
                rows += 1
    return rows


@pytest.mark.parametrize("machine", list(machine_code.TRIPLES))
def test_rows_of_emitted_objects_are_those_pyelftools_sees(machine):
    """Both tables of both machines."""
    found = JitObject.from_bytes(machine_code.emit_inlined(machine))
    assert compare(found) >= 3


def test_rows_of_numba_objects_are_those_pyelftools_sees():
    """Every entry of every object in the process, at both ends of each row."""
    assert machine_code.objects_with_lines()
    assert sum(compare(found) for found in objcode.load_objects()) > 100


def test_every_function_with_a_line_table_can_be_unwound():
    """Functions that cannot unwind have theirs in .debug_frame."""
    for found in machine_code.objects_with_lines():
        for symbol in found.symbols():
            frames = found.rows().lookup(symbol.address)
            assert not frames or found.rule(symbol.address) is not None


def test_aarch64_keeps_its_return_address_in_register_30():
    """The rule of a function that has saved it, as sampler notes give it."""
    found = JitObject.from_bytes(machine_code.emit_inlined("aarch64"))
    rule = found.rule(found.symbol("outer").address + 8)
    assert rule.return_register == 30
    assert rule.cfa_register == 31
    assert rule.registers[30] == -16


def test_no_rule_outside_functions():
    """Padding between functions and addresses elsewhere have none."""
    found = JitObject.from_bytes(machine_code.emit_inlined())
    outer = found.symbol("outer")
    assert found.rule(outer.address + outer.size) is None
    assert found.rule(found.end + 1000) is None


@pytest.mark.parametrize(
    ("encoding", "data", "value"),
    [
        (0x00, struct.pack("<Q", 5), 5),
        (0x02, struct.pack("<H", 5), 5),
        (0x03, struct.pack("<I", 5), 5),
        (0x0A, struct.pack("<h", -5), 2**64 - 5),
        (0x0B, struct.pack("<i", 5), 5),
        (0x1B, struct.pack("<i", -5), 0x1000 - 5),
        (0x1C, struct.pack("<q", -5), 0x1000 - 5),
        (0x3B, struct.pack("<i", 5), 0x1005),
    ],
)
def test_pointer_encoding(encoding, data, value):
    """The encodings of the Linux Standard Base, relative ones to their place."""
    assert cfi.read_pointer(data, 0, encoding, 0x1000) == (value, len(data))


@pytest.mark.parametrize("encoding", [0x01, 0x9B, 0x50, 0xFF])
def test_unknown_pointer_encoding_is_refused(encoding):
    """Indirect, aligned and variable-length pointers do not occur."""
    with pytest.raises(UnsupportedError, match="encoding"):
        cfi.read_pointer(bytes(8), 0, encoding, 0)


def test_damage_is_told_and_nothing_else_happens():
    """Whatever byte is wrong, the error is ours."""
    address, data = JitObject.from_bytes(machine_code.emit_inlined()).section(
        ".eh_frame"
    )
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        try:
            table = CfiTable(bytes(damaged), address)
            for entry in table.entries:
                table.rule(entry.low)
        except UnsupportedError:
            refused += 1
    assert refused
