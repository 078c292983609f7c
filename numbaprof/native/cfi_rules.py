"""From the instructions of one call frame entry to the rule at one address.

DWARF Debugging Information Format version 5, sections 6.4.1 to 6.4.3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.native.leb128 import DAMAGE, sleb128, uleb128

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CfiRule", "CommonEntry", "FrameEntry", "rule_of"]


class CfiRule(NamedTuple):
    """How to get from one instruction to the state of the caller.

    The canonical frame address (CFA) is ``cfa_register + cfa_offset``, and the value of
    a register at the caller lies in memory at CFA plus its offset.
    """

    cfa_register: int | None
    """DWARF number; None if the CFA is an expression."""
    cfa_offset: int
    registers: Mapping[int, int]
    """Offset from the CFA by DWARF number, of those that were saved."""
    return_register: int
    """The one that holds the return address: 16 on x86-64, 30 on aarch64."""
    signal_frame: bool
    """Whether this is a signal handler's frame, whose caller was cut off anywhere."""
    cfa_expression: bytes
    """What computes the CFA; b"" unless ``cfa_register`` is None."""
    unknown: frozenset[int]
    """Registers whose place is not known: an expression, or undefined."""


class CommonEntry(NamedTuple):
    """A CIE: what several functions share."""

    code_alignment: int
    data_alignment: int
    return_register: int
    encoding: int
    """DW_EH_PE of the addresses in its FDEs."""
    augmented: bool
    signal_frame: bool
    instructions: bytes


class FrameEntry(NamedTuple):
    """An FDE: one function."""

    low: int
    high: int
    common: CommonEntry
    instructions: bytes


@dataclass(slots=True)
class _Machine:
    """The state that call frame instructions change (section 6.4.2)."""

    common: CommonEntry
    location: int = 0
    register: int | None = None
    offset: int = 0
    expression: bytes = b""
    saved: dict[int, int] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    initial: tuple[dict[int, int], frozenset[int]] = ({}, frozenset())
    stack: list[tuple[int | None, int, bytes, dict[int, int], frozenset[int]]] = field(
        default_factory=list
    )

    def save(self, register: int, offset: int) -> None:
        """Note that the register's value is at CFA + offset."""
        self.saved[register] = offset
        self.unknown -= {register}

    def forget(self, register: int) -> None:
        """Note that the register's value is in a place not modelled here."""
        self.saved.pop(register, None)
        self.unknown |= {register}

    def keep(self, register: int) -> None:
        """Note that the register still has its value."""
        self.saved.pop(register, None)
        self.unknown -= {register}

    def restore(self, register: int) -> None:
        """Note that the register is as at the begin of the function."""
        saved, unknown = self.initial
        if register in saved:
            self.save(register, saved[register])
        elif register in unknown:
            self.forget(register)
        else:
            self.keep(register)

    def push(self) -> None:
        """Remember the whole row."""
        self.stack.append(
            (
                self.register,
                self.offset,
                self.expression,
                dict(self.saved),
                self.unknown,
            )
        )

    def pop(self) -> None:
        """Go back to the row remembered last."""
        (self.register, self.offset, self.expression, self.saved, self.unknown) = (
            self.stack.pop()
        )

    def rule(self) -> CfiRule:
        """Return the present row."""
        return CfiRule(
            self.register,
            self.offset,
            dict(self.saved),
            self.common.return_register,
            self.common.signal_frame,
            self.expression,
            self.unknown,
        )


def rule_of(entry: FrameEntry, pc: int) -> CfiRule:
    """Return the row of ``entry`` that holds at ``pc``.

    Raises
    ------
    UnsupportedError
        The entry has an instruction that is not known, or is damaged.
    """
    machine = _Machine(entry.common)
    try:
        _run(machine, entry.common.instructions, None)
        machine.initial = (dict(machine.saved), machine.unknown)
        machine.location = entry.low
        _run(machine, entry.instructions, pc)
    except DAMAGE as error:
        raise UnsupportedError(f"damaged call frame information: {error!r}") from error
    return machine.rule()


def _run(machine: _Machine, code: bytes, pc: int | None) -> None:
    """Execute instructions until the row that begins after ``pc``."""
    at = 0
    while at < len(code):
        opcode = code[at]
        at += 1
        primary, low = opcode & 0xC0, opcode & 0x3F
        if primary == 0x80:  # DW_CFA_offset
            value, at = uleb128(code, at)
            machine.save(low, value * machine.common.data_alignment)
        elif primary == 0xC0:  # DW_CFA_restore
            machine.restore(low)
        elif primary == 0x40 or opcode in _ADVANCES:
            delta = low if primary else 0
            if not primary:
                width = _ADVANCES[opcode]
                delta = int.from_bytes(code[at : at + width], "little")
                at += width
            machine.location += delta * machine.common.code_alignment
            if pc is not None and machine.location > pc:
                return
        elif opcode in _EXTENDED:
            at = _EXTENDED[opcode](machine, code, at)
        else:
            raise UnsupportedError(f"call frame instruction {opcode:#x}")


_ADVANCES = {0x02: 1, 0x03: 2, 0x04: 4}
"""DW_CFA_advance_loc1, 2, 4: width of the operand."""
_Operation = Callable[[_Machine, bytes, int], int]


def _nothing(machine: _Machine, code: bytes, at: int) -> int:
    return at


def _define_cfa(
    machine: _Machine, code: bytes, at: int, *, signed: bool = False
) -> int:
    machine.register, at = uleb128(code, at)
    return _define_offset(machine, code, at, signed=signed)


def _define_register(machine: _Machine, code: bytes, at: int) -> int:
    machine.register, at = uleb128(code, at)
    machine.expression = b""
    return at


def _define_offset(
    machine: _Machine, code: bytes, at: int, *, signed: bool = False
) -> int:
    if signed:
        value, at = sleb128(code, at)
        machine.offset = value * machine.common.data_alignment
    else:
        machine.offset, at = uleb128(code, at)
    machine.expression = b""
    return at


def _define_expression(machine: _Machine, code: bytes, at: int) -> int:
    length, at = uleb128(code, at)
    machine.register, machine.offset = None, 0
    machine.expression = code[at : at + length]
    return at + length


def _offset_extended(
    machine: _Machine, code: bytes, at: int, *, signed: bool = False, sign: int = 1
) -> int:
    register, at = uleb128(code, at)
    value, at = sleb128(code, at) if signed else uleb128(code, at)
    machine.save(register, sign * value * machine.common.data_alignment)
    return at


def _register_expression(machine: _Machine, code: bytes, at: int) -> int:
    register, at = uleb128(code, at)
    length, at = uleb128(code, at)
    machine.forget(register)
    return at + length


def _value_offset(machine: _Machine, code: bytes, at: int) -> int:
    register, at = uleb128(code, at)
    _, at = sleb128(code, at)  # skips either kind of number
    machine.forget(register)
    return at


def _in_register(machine: _Machine, code: bytes, at: int) -> int:
    register, at = uleb128(code, at)
    _, at = uleb128(code, at)
    machine.forget(register)
    return at


def _undefined(machine: _Machine, code: bytes, at: int) -> int:
    register, at = uleb128(code, at)
    machine.forget(register)
    return at


def _same_value(machine: _Machine, code: bytes, at: int) -> int:
    register, at = uleb128(code, at)
    machine.keep(register)
    return at


def _restore_extended(machine: _Machine, code: bytes, at: int) -> int:
    register, at = uleb128(code, at)
    machine.restore(register)
    return at


def _remember(machine: _Machine, code: bytes, at: int) -> int:
    machine.push()
    return at


def _recall(machine: _Machine, code: bytes, at: int) -> int:
    machine.pop()
    return at


def _skip_number(machine: _Machine, code: bytes, at: int) -> int:
    return uleb128(code, at)[1]


_EXTENDED: Mapping[int, _Operation] = {
    0x00: _nothing,  # DW_CFA_nop
    0x05: _offset_extended,
    0x06: _restore_extended,
    0x07: _undefined,
    0x08: _same_value,
    0x09: _in_register,  # DW_CFA_register
    0x0A: _remember,
    0x0B: _recall,
    0x0C: _define_cfa,
    0x0D: _define_register,
    0x0E: _define_offset,
    0x0F: _define_expression,
    0x10: _register_expression,
    0x11: functools.partial(_offset_extended, signed=True),
    0x12: functools.partial(_define_cfa, signed=True),
    0x13: functools.partial(_define_offset, signed=True),
    0x14: _value_offset,
    0x15: _value_offset,
    0x16: _register_expression,  # DW_CFA_val_expression
    0x2D: _nothing,  # DW_CFA_AARCH64_negate_ra_state
    0x2E: _skip_number,  # DW_CFA_GNU_args_size
    0x2F: functools.partial(_offset_extended, sign=-1),  # GNU_negative_offset_extended
}
"""By opcode; sections 6.4.2 and 7.24, and for 0x2D to 0x2F the psABIs."""
