"""What each call frame instruction does, as DWARF 5, section 6.4.2, says."""

from __future__ import annotations

import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native.cfi_rules import CommonEntry, FrameEntry, rule_of

INITIAL = b"\x0c\x07\x08\x90\x01"
"""DW_CFA_def_cfa(7, 8), DW_CFA_offset(16, 1 * -8): the state at every entry."""


def rule(code: bytes, pc: int = 0x1010, initial: bytes = INITIAL):
    """Return the rule at ``pc`` of a function that begins at 0x1000."""
    common = CommonEntry(1, -8, 16, 0, True, False, initial)
    return rule_of(FrameEntry(0x1000, 0x1100, common, code), pc)


@pytest.mark.parametrize(
    ("code", "cfa", "registers"),
    [
        (b"", (7, 8), {16: -8}),
        (b"\x00", (7, 8), {16: -8}),  # nop
        (b"\x0e\x10", (7, 16), {16: -8}),  # def_cfa_offset
        (b"\x0d\x06", (6, 8), {16: -8}),  # def_cfa_register
        (b"\x0c\x06\x20", (6, 32), {16: -8}),  # def_cfa
        (b"\x12\x06\x7e", (6, 16), {16: -8}),  # def_cfa_sf
        (b"\x13\x7e", (7, 16), {16: -8}),  # def_cfa_offset_sf
        (b"\x86\x02", (7, 8), {16: -8, 6: -16}),  # offset
        (b"\x05\x11\x03", (7, 8), {16: -8, 17: -24}),  # offset_extended
        (b"\x11\x11\x7d", (7, 8), {16: -8, 17: 24}),  # offset_extended_sf
        (b"\x2f\x11\x03", (7, 8), {16: -8, 17: 24}),  # GNU_negative_offset_extended
        (b"\x2e\x08", (7, 8), {16: -8}),  # GNU_args_size
        (b"\x86\x02\xc6", (7, 8), {16: -8}),  # restore
        (b"\x90\x05\xd0", (7, 8), {16: -8}),  # restore to what the CIE says
        (b"\x86\x02\x06\x06", (7, 8), {16: -8}),  # restore_extended
        (b"\x86\x02\x08\x06", (7, 8), {16: -8}),  # same_value
        (b"\x86\x02\x07\x06", (7, 8), {16: -8}),  # undefined
        (b"\x86\x02\x09\x06\x03", (7, 8), {16: -8}),  # register
        (b"\x86\x02\x10\x06\x01\x00", (7, 8), {16: -8}),  # expression
        (b"\x86\x02\x16\x06\x01\x00", (7, 8), {16: -8}),  # val_expression
        (b"\x86\x02\x14\x06\x01", (7, 8), {16: -8}),  # val_offset
        (b"\x86\x02\x15\x06\x7f", (7, 8), {16: -8}),  # val_offset_sf
        (b"\x0a\x0e\x10\x86\x02\x0b", (7, 8), {16: -8}),  # remember, restore state
        (b"\x48\x0e\x10\x48\x0e\x18\x48\x0e\x20", (7, 24), {16: -8}),  # advance_loc
        (b"\x02\x11\x0e\x10", (7, 8), {16: -8}),  # advance_loc1 beyond
        (b"\x03\x10\x00\x0e\x10", (7, 16), {16: -8}),  # advance_loc2
        (b"\x04\x10\x00\x00\x00\x0e\x10", (7, 16), {16: -8}),  # advance_loc4
        (b"\x2d", (7, 8), {16: -8}),  # AARCH64_negate_ra_state
    ],
)
def test_instruction(code, cfa, registers):
    """Each changes the row that DWARF says it changes."""
    found = rule(code)
    assert (found.cfa_register, found.cfa_offset) == cfa
    assert dict(found.registers) == registers


def test_expression_for_the_frame_is_kept():
    """Whoever can evaluate it may; no register is claimed."""
    found = rule(b"\x0f\x02\x77\x08")
    assert found.cfa_register is None
    assert found.cfa_expression == b"\x77\x08"


@pytest.mark.parametrize("code", [b"\x07\x06", b"\x09\x06\x03", b"\x10\x06\x01\x00"])
def test_register_in_an_unknown_place_is_unknown(code):
    """It has not kept its value, and where that is is not modelled."""
    assert rule(code).unknown == {6}
    assert rule(code + b"\x08\x06").unknown == frozenset()


def test_unknown_instruction_is_refused():
    """Better no rule than a wrong one."""
    with pytest.raises(UnsupportedError, match="0x3f"):
        rule(b"\x3f")


@pytest.mark.parametrize("code", [b"\x0b", b"\x0c\x07", b"\x0e"])
def test_damaged_instructions_are_told(code):
    """Operands that are missing, or a state that was never remembered."""
    with pytest.raises(UnsupportedError, match="damaged"):
        rule(code)
