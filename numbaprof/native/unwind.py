"""From the registers and stack slices of a sample to the calls that were under way.

Each frame's caller is found by call frame information (CFI), which compiled code and
system libraries carry. Three things go without:

- Assembly without CFI. OpenBLAS' kernels are the case that matters: ``sp`` lies a whole
  buffer below their frame, and ``rbx`` holds the frame. So where CFI ends in a library,
  return addresses are looked for from ``rbx``, ``rbp`` and ``sp`` on, and the first one
  is taken from which CFI by itself leads into compiled code. A word counts as a return
  address only if the instruction before it is a call: without that check stale words
  were taken for callers in 14 to 18 % of the samples (field notes, section 4).
- Compiled functions that LLVM proved not to raise, which have CFI only in the object of
  their twin. Without one, the first return address is taken whose call instruction
  calls that very function.
- What is not in the slices. The stack is then cut off, and says so.

Everything runs at report time in Python; rules are kept by address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from numbaprof.errors import UnsupportedError
from numbaprof.native import emit, memory, objcode
from numbaprof.native.cfi_libraries import LibraryFrames
from numbaprof.native.native_symbols import (
    NativeSymbols,
    kind_of_library,
    short_name,
)
from numbaprof.native.signals import Register

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numbaprof.native.cfi_rules import CfiRule
    from numbaprof.native.native_symbols import LibraryKind
    from numbaprof.native.objcode import JitObject, Objects
    from numbaprof.native.records import Record

__all__ = ["AddressSpace", "Ending", "NativeFrame", "Walk", "unwind"]

Ending = Literal["left", "root", "no rule", "slice", "lost", "limit"]
"""Why a stack ends: compiled code was left; there is no caller; nothing says where the
caller is; it is not in what was copied; it is no code; enough frames."""

MAX_FRAMES = 64
MAX_CANDIDATES = 24
"""Return addresses tried where CFI has ended; the right one was the third at most."""
LOWEST_CODE = 4096
"""No code lies in the first page (vm.mmap_min_addr)."""
LONGEST_CALL = 7
NEAR_CALL = 128
"""Bytes before a call in which its target is loaded; arguments come in between."""
_WORD = 8
_WRAP = 2**64 - 1

_DWARF_NUMBERS: dict[int, Register] = {
    0: Register.RAX,
    1: Register.RDX,
    2: Register.RCX,
    3: Register.RBX,
    4: Register.RSI,
    5: Register.RDI,
    6: Register.RBP,
    7: Register.RSP,
    8: Register.R8,
    9: Register.R9,
    10: Register.R10,
    11: Register.R11,
    12: Register.R12,
    13: Register.R13,
    14: Register.R14,
    15: Register.R15,
    16: Register.RIP,
}
"""x86-64 psABI, figure 3.36."""
_RBX, _RBP, _RSP, _RIP = 3, 6, 7, 16


class NativeFrame(NamedTuple):
    """Code of a shared library."""

    library: str
    """Short name: ``libm``."""
    function: str
    """``sin``; "" if it has no name."""
    kind: LibraryKind

    def __str__(self) -> str:
        return f"{self.function} ({self.library})" if self.function else self.library


class AddressSpace:
    """All code of this process at one moment.

    Parameters
    ----------
    objects : Objects, optional
        Compiled code; found when not given.
    twins : mapping of int to JitObject, optional
        Objects with the same code and complete CFI, by the address at which the code of
        the original starts (``TwinResult.by_address``).

    Notes
    -----
    Costs some milliseconds; tables are read when first needed.
    """

    def __init__(
        self,
        objects: Objects | None = None,
        *,
        twins: Mapping[int, JitObject] | None = None,
    ) -> None:
        self.objects = objcode.load_objects() if objects is None else objects
        self._twins = twins or {}
        self._libraries = LibraryFrames()
        self._symbols = NativeSymbols(self._libraries.function_start)
        self._ours = _own_objects(self.objects)
        self._rules: dict[int, CfiRule | None] = {}
        self._jit: dict[int, JitObject | None] = {}
        self._returns: dict[int, bool] = {}
        self._calls: dict[tuple[int, int], bool] = {}
        self.problems: dict[str, None] = {}
        """What could not be read, in order, each once."""
        if self.objects.reason:
            self.problems[f"compiled code: {self.objects.reason}"] = None

    def jit_object(self, pc: int) -> JitObject | None:
        """Return the object of the program that ``pc`` lies in; never one of ours."""
        if pc not in self._jit:
            found = self.objects.find(pc)
            ours = found is not None and found.start in self._ours
            self._jit[pc] = None if ours else found
        return self._jit[pc]

    def is_code(self, pc: int) -> bool:
        """Whether ``pc`` lies in code that is known."""
        return self._libraries.find(pc) is not None or (
            self.objects.find(pc) is not None
        )

    def kind(self, pc: int) -> LibraryKind | Literal["jit", ""]:
        """Say whose code ``pc`` lies in; "" if nobody knows."""
        if self.jit_object(pc) is not None:
            return "jit"
        frame = self.native_frame(pc, named=False)
        return "" if frame is None else frame.kind

    def native_frame(self, pc: int, *, named: bool = True) -> NativeFrame | None:
        """Return library and function at ``pc``, None outside libraries.

        Parameters
        ----------
        named : bool
            Whether the function's name is wanted, for which files are read.
        """
        library = self._libraries.find(pc)
        if library is not None:
            name = self._symbols.name(pc, library.path, library.low) if named else ""
            kind = kind_of_library(library.path)
            return NativeFrame(short_name(library.path), name, kind)
        ours = self.objects.find(pc)
        if ours is None or self.jit_object(pc) is not None:
            return None
        symbol = ours.symbol_at(pc)
        return NativeFrame("numbaprof", symbol.name if symbol else "", "native")

    def rule(self, pc: int) -> CfiRule | None:
        """Return how to unwind from the instruction at ``pc``."""
        if pc not in self._rules:
            self._rules[pc] = self._find_rule(pc)
        return self._rules[pc]

    def _find_rule(self, pc: int) -> CfiRule | None:
        found = self.objects.find(pc)
        if found is None:
            return self._libraries.rule(pc)
        try:
            rule = found.rule(pc)
            twin = self._twins.get(found.start)
            if rule is None and twin is not None:
                rule = twin.rule(pc - found.start + twin.start)
        except UnsupportedError as error:
            self.problems[f"callers of some compiled code are not known: {error}"] = (
                None
            )
            return None
        return rule

    def function_start(self, pc: int) -> int | None:
        """Return where the compiled function that ``pc`` lies in begins."""
        found = self.objects.find(pc)
        symbol = None if found is None else found.symbol_at(pc)
        return None if symbol is None else symbol.address

    def calls(self, address: int, function: int) -> bool:
        """Whether the call that ``address`` returns from is one of ``function``.

        That is plain from ``call rel32``; before ``call *%reg``, the address is loaded
        as a constant (the large code model of MCJIT).
        """
        key = address, function
        if key not in self._calls:
            self._calls[key] = self.is_return_address(address) and self._has_target(
                address, function
            )
        return self._calls[key]

    def _has_target(self, address: int, function: int) -> bool:
        try:
            before = memory.read(address - NEAR_CALL, NEAR_CALL)
        except UnsupportedError:
            return False
        distance = (function - address) & 0xFFFFFFFF
        direct = b"\xe8" + distance.to_bytes(4, "little")
        return before.endswith(direct) or function.to_bytes(8, "little") in before

    def is_return_address(self, address: int) -> bool:
        """Whether a call instruction ends where ``address`` points, in known code."""
        if address not in self._returns:
            self._returns[address] = self._follows_call(address)
        return self._returns[address]

    def _follows_call(self, address: int) -> bool:
        if address < LOWEST_CODE or not self.is_code(address - 1):
            return False
        try:
            before = memory.read(address - LONGEST_CALL, LONGEST_CALL)
        except UnsupportedError:
            return False
        return _ends_with_call(before)


def _ends_with_call(code: bytes) -> bool:
    """Tell whether seven bytes may end with a call; Intel SDM vol. 2, "CALL"."""
    if code[2] == 0xE8:  # call rel32
        return True
    if code[5] == 0xFF and 0xD0 <= code[6] <= 0xD7:  # call *%reg
        return True
    # call *disp(%reg), by the length of the displacement and the presence of a SIB.
    for at, mode in ((5, 0x10), (4, 0x50), (3, 0x50), (1, 0x90), (0, 0x90), (1, 0x10)):
        if code[at] == 0xFF and code[at + 1] & 0xF8 == mode:
            return True
    return False


def _own_objects(objects: Objects) -> frozenset[int]:
    """Return the starts of the objects that hold numbaprof's own code."""
    found = (objects.find(address) for address in emit.compiled_addresses())
    return frozenset(own.start for own in found if own is not None)


@dataclass(frozen=True, slots=True)
class Walk:
    """One unwound sample."""

    pcs: tuple[int, ...]
    """Innermost first. The first is the instruction itself; the others lie within the
    call instruction, one byte before the return address, so that each can be looked up
    as it is. After compiled code, frames that called it are left out."""
    ending: Ending
    guessed: bool
    """Whether some caller was found by its looks and not by CFI."""


class _Frames(NamedTuple):
    pcs: list[int]
    ending: Ending
    registers: dict[int, int]
    """DWARF number to value, at the last frame."""
    has_jit: bool
    guessed: bool


def unwind(space: AddressSpace, record: Record) -> Walk:
    """Return the calls that were under way when a sample was taken.

    Parameters
    ----------
    space : AddressSpace
        The code of the process.
    record : Record
        What the signal handler wrote.

    Notes
    -----
    Takes 20 to 300 us. Never raises for a stack that makes no sense.
    """
    registers = {
        number: record.registers[register]
        for number, register in _DWARF_NUMBERS.items()
    }
    pc = record.registers[Register.RIP]
    first = _follow(space, registers, pc, record)
    if first.has_jit or first.ending != "no rule" or space.kind(pc) == "python":
        return Walk(tuple(first.pcs), first.ending, first.guessed)
    found = _guess(space, first.registers, record)
    if found is None:
        return Walk(tuple(first.pcs), first.ending, guessed=False)
    return Walk((*first.pcs, *found.pcs), found.ending, guessed=True)


def _follow(
    space: AddressSpace, registers: dict[int, int], pc: int, record: Record
) -> _Frames:
    """Follow CFI from one frame on."""
    pcs = [pc]
    has_jit = space.jit_object(pc) is not None
    guessed = False
    while len(pcs) < MAX_FRAMES:
        step = _by_rule(space, registers, pcs[-1], record)
        if step == "no rule" and space.jit_object(pcs[-1]) is not None:
            step = _by_target(space, registers, pcs[-1], record)
            guessed = guessed or not isinstance(step, str)
        if isinstance(step, str):
            return _Frames(pcs, step, registers, has_jit, guessed)
        address, registers = step
        caller = address - 1
        if space.jit_object(caller) is not None:
            has_jit = True
        elif has_jit:
            return _Frames(pcs, "left", registers, has_jit, guessed)
        elif not space.is_code(caller):
            ending: Ending = "lost" if address else "root"
            return _Frames(pcs, ending, registers, has_jit, guessed)
        pcs.append(caller)
    return _Frames(pcs, "limit", registers, has_jit, guessed)


_Step = tuple[int, dict[int, int]]
"""Return address, and registers of the caller."""


def _by_rule(
    space: AddressSpace, registers: dict[int, int], pc: int, record: Record
) -> _Step | Ending:
    rule = space.rule(pc)
    cfa = None if rule is None else _canonical_address(rule, registers, pc)
    if rule is None or cfa is None:
        return "no rule"
    return_slot = rule.registers.get(rule.return_register)
    if return_slot is None:  # Undefined: the thread's first function.
        return "root"
    address = _word(record, cfa + return_slot)
    if address is None:
        return "slice"
    return address, _caller_registers(rule, registers, cfa, record)


def _by_target(
    space: AddressSpace, registers: dict[int, int], pc: int, record: Record
) -> _Step | Ending:
    """Find the caller of compiled code without CFI by what it calls."""
    function = space.function_start(pc)
    if function is None:
        return "no rule"
    sp = registers.get(_RSP, 0)
    for low, words in record.slices:
        index = (sp - low) // _WORD
        if not 0 <= index < len(words):
            continue
        for place, value in enumerate(words[index:], index):
            if space.jit_object(value - 1) is not None and space.calls(value, function):
                return value, {_RSP: low + _WORD * (place + 1)}
    return "no rule"


def _caller_registers(
    rule: CfiRule, registers: dict[int, int], cfa: int, record: Record
) -> dict[int, int]:
    found = {
        number: value
        for number, value in registers.items()
        if number not in rule.unknown
    }
    for number, offset in rule.registers.items():
        value = _word(record, cfa + offset)
        if value is None:
            found.pop(number, None)
        else:
            found[number] = value
    found[_RSP] = cfa
    return found


def _word(record: Record, address: int) -> int | None:
    """Return a word of the stack, None if it was not copied."""
    for low, words in record.slices:
        index = (address - low) // _WORD
        if 0 <= index < len(words):
            return words[index]
    return None


def _canonical_address(
    rule: CfiRule, registers: Mapping[int, int], pc: int
) -> int | None:
    if rule.cfa_register is not None:
        base = registers.get(rule.cfa_register)
        return None if base is None else (base + rule.cfa_offset) & _WRAP
    return _evaluate(rule.cfa_expression, {**registers, _RIP: pc})


_OP_AND, _OP_PLUS, _OP_SHL, _OP_GE = 0x1A, 0x22, 0x24, 0x2A


def _evaluate(expression: bytes, registers: Mapping[int, int]) -> int | None:
    """Evaluate what linkers write for stubs (PLT); None for anything else.

    DWARF 5, section 2.5: ``rsp + 8 + ((rip & 15 >= 11) << 3)`` and its likes.
    """
    stack: list[int] = []
    at = 0
    while at < len(expression):
        opcode = expression[at]
        at += 1
        if 0x30 <= opcode <= 0x4F:  # DW_OP_lit0 to lit31
            stack.append(opcode - 0x30)
        elif 0x70 <= opcode <= 0x8F:  # DW_OP_breg0 to breg31, a byte is enough here
            value = registers.get(opcode - 0x70)
            if value is None or at == len(expression) or expression[at] >= 0x40:
                return None
            stack.append(value + expression[at])
            at += 1
        elif opcode in (_OP_AND, _OP_PLUS, _OP_SHL, _OP_GE) and len(stack) > 1:
            right, left = stack.pop(), stack.pop()
            stack.append(_combine(opcode, left, right))
        else:
            return None
    return stack[-1] & _WRAP if stack else None


def _combine(opcode: int, left: int, right: int) -> int:
    if opcode == _OP_AND:
        return left & right
    if opcode == _OP_PLUS:
        return left + right
    return left << (right & 63) if opcode == _OP_SHL else int(left >= right)


def _guess(
    space: AddressSpace, registers: Mapping[int, int], record: Record
) -> _Frames | None:
    """Return the frames above one without CFI, None if none can be trusted."""
    unconfirmed = None
    for tried, (address, value) in enumerate(_candidates(space, registers, record)):
        if tried == MAX_CANDIDATES:
            break
        found = _follow(space, {_RSP: address + _WORD}, value - 1, record)
        if found.has_jit and found.ending in ("left", "slice"):
            return found
        if unconfirmed is None and space.jit_object(value - 1) is not None:
            # Compiled code without CFI of its own: its line is right all the same.
            unconfirmed = found
    return unconfirmed


def _candidates(
    space: AddressSpace, registers: Mapping[int, int], record: Record
) -> Iterator[tuple[int, int]]:
    """Yield (where, return address) from rbx, rbp and sp upwards."""
    sp = registers.get(_RSP, 0)
    for register in (_RBX, _RBP, _RSP):
        begin = registers.get(register, 0)
        if begin < sp:
            continue
        for low, words in record.slices:
            index = (begin - low) // _WORD
            if not 0 <= index < len(words):
                continue
            for place, value in enumerate(words[index:], index):
                if space.is_return_address(value):
                    yield low + _WORD * place, value
