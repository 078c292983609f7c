"""From registers and slices to calls, over code that is made up."""

from __future__ import annotations

import ctypes
import math

import pytest

from numbaprof.native import emit, objcode
from numbaprof.native.cfi_rules import CfiRule
from numbaprof.native.records import Record
from numbaprof.native.signals import N_REGISTERS, Register
from numbaprof.native.unwind import AddressSpace, _ends_with_call, unwind

pytestmark = pytest.mark.linux

STACK = 0x7000
RAX, RBX, RBP, RSP, RIP = 0, 3, 6, 7, 16


def rule(offset=8, *, register=RSP, saved=(), unknown=(), expression=b""):
    """Return a rule: the CFA is a register plus ``offset``."""
    registers = {RIP: -8, **dict(saved)}
    return CfiRule(
        None if expression else register,
        offset,
        registers,
        RIP,
        False,
        expression,
        frozenset(unknown),
    )


class Space:
    """Code by hundreds: 100 to 199 is one function, 200 to 299 the next, and so on.

    Parameters
    ----------
    jit : set of int
        Which hundreds are compiled.
    rules : dict of int to CfiRule
        By hundred; all are code.
    returns : set of int
        Addresses after a call instruction.
    python : set of int
        Which hundreds are the interpreter.
    """

    def __init__(self, *, jit=(), rules=None, returns=(), python=()):
        self.jit, self.rules = set(jit), dict(rules or {})
        self.returns, self.python = set(returns), set(python)

    def jit_object(self, pc):
        """Anything that is not None."""
        return "object" if pc // 100 in self.jit else None

    def is_code(self, pc):
        """What has a rule, is compiled or is Python."""
        return pc // 100 in {*self.rules, *self.jit, *self.python}

    def kind(self, pc):
        """As far as the unwinder asks."""
        return "python" if pc // 100 in self.python else "native"

    def rule(self, pc):
        """By hundred."""
        return self.rules.get(pc // 100)

    def is_return_address(self, address):
        """As given."""
        return address in self.returns

    def function_start(self, pc):
        """A hundred is a function."""
        return pc // 100 * 100

    def calls(self, address, function):
        """As given: after a call of the function five hundreds below."""
        return address in self.returns and address // 100 * 100 == function + 500


def record(pc, stack, *, rbx=None, rbp=None, at_rbx=(), at_rbp=()):
    """Return a record with slices."""
    registers = [0] * N_REGISTERS
    registers[Register.RSP], registers[Register.RIP] = STACK, pc
    slices = [(STACK, list(stack))]
    for register, value, words in (
        (Register.RBP, rbp, at_rbp),
        (Register.RBX, rbx, at_rbx),
    ):
        if value is not None:
            registers[register] = value
            if words:
                slices.append((value, list(words)))
    return Record(1, 1, 0, tuple(registers), tuple(slices))


def walk(space, record):
    """Unwind over made-up code."""
    return unwind(space, record)


def test_callers_are_followed_until_compiled_code_is_left():
    """Return addresses are given as addresses within the call."""
    space = Space(jit={2, 3}, rules={1: rule(), 2: rule(24), 3: rule(), 4: rule()})
    found = walk(space, record(150, [250, 0, 0, 350, 450]))
    assert found.pcs == (150, 249, 349)
    assert (found.ending, found.guessed) == ("left", False)


def test_saved_register_counts_for_the_callers_frame():
    """A frame pointer is restored before it is used."""
    rules = {1: rule(16, saved={RBP: -16}), 2: rule(16, register=RBP), 3: rule()}
    space = Space(jit={2, 3}, rules=rules)
    found = walk(space, record(150, [STACK + 32, 250, 9, 9, 7, 350, 50]))
    assert found.pcs == (150, 249, 349)


def test_register_that_is_lost_is_not_used():
    """Better no caller than a wrong one."""
    rules = {1: rule(unknown={RBP}), 2: rule(register=RBP)}
    space = Space(jit={2}, rules=rules)
    found = walk(space, record(150, [250], rbp=STACK))
    assert (found.pcs, found.ending) == ((150, 249), "no rule")


def test_stack_that_is_not_in_the_slice_is_cut_off():
    """The compiled frame that was found stays."""
    space = Space(jit={2}, rules={1: rule(), 2: rule(8000)})
    found = walk(space, record(150, [250, 1, 2]))
    assert (found.pcs, found.ending) == ((150, 249), "slice")


def test_first_function_of_a_thread_has_no_caller():
    """Its return address is undefined, or zero."""
    undefined = CfiRule(RSP, 8, {}, RIP, False, b"", frozenset({RIP}))
    space = Space(rules={1: rule(), 2: undefined})
    assert walk(space, record(150, [250])).ending == "root"
    assert walk(Space(rules={1: rule()}), record(150, [0])).ending == "root"


def test_return_address_that_is_no_code_ends_the_stack():
    """Something is wrong, and is not followed."""
    assert walk(Space(rules={1: rule()}), record(150, [77777])).ending == "lost"


def test_recursion_is_limited():
    """A stack of equal frames ends."""
    space = Space(jit={1}, rules={1: rule()})
    found = walk(space, record(150, [150] * 200))
    assert (len(found.pcs), found.ending) == (64, "limit")


def test_stub_of_the_linker_is_followed():
    """PLT: the CFA is rsp + 8, or + 16 when the stub has pushed its number."""
    # breg7+8; breg16+0; lit15; and; lit11; ge; lit3; shl; plus
    expression = bytes([0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22])
    space = Space(jit={2}, rules={1: rule(expression=expression), 2: rule()})
    assert walk(space, record(0x8A, [250, 350])).pcs == (0x8A, 249)
    assert walk(space, record(0x8C, [350, 250])).pcs == (0x8C, 249)


@pytest.mark.parametrize("expression", [b"\x77", b"\x22", b"\xf0", b"\x77\x7f", b""])
def test_expression_that_is_not_known_has_no_value(expression):
    """Anything else is no rule."""
    space = Space(jit={2}, rules={1: rule(expression=expression or b"\x96")})
    assert walk(space, record(150, [250])).ending == "no rule"


# OpenBLAS: sp is far below the frame that rbx holds, and the kernel has no rule.
BLAS = {2: rule(), 3: rule(16), 4: rule()}


def test_frame_is_found_by_rbx():
    """The first return address from which CFI leads to compiled code."""
    space = Space(jit={3}, rules=BLAS, returns={250, 350})
    sample = record(150, [5, 250], rbx=STACK + 800, at_rbx=[7, 250, 350, 0, 450])
    found = walk(space, sample)
    assert found.pcs == (150, 249, 349)
    assert (found.ending, found.guessed) == ("left", True)


def test_word_that_does_not_follow_a_call_is_no_return_address():
    """Stale addresses of functions lie about."""
    space = Space(jit={3}, rules=BLAS, returns={350})
    found = walk(space, record(150, [320, 310, 350, 0, 450]))
    assert found.pcs == (150, 349)


def test_return_address_that_leads_nowhere_is_passed_over():
    """CFI from it must reach compiled code and leave it."""
    space = Space(jit={3}, rules=BLAS, returns={250, 251, 350})
    found = walk(space, record(150, [251, 99, 250, 350, 0, 450]))
    assert found.pcs == (150, 249, 349)


def test_compiled_caller_without_rules_is_better_than_none():
    """Its line is right; its own callers are not known."""
    space = Space(jit={5}, rules=BLAS, returns={550})
    found = walk(space, record(150, [1, 550]))
    assert (found.pcs, found.ending, found.guessed) == ((150, 549), "no rule", True)


def test_nothing_is_guessed_below_the_interpreter():
    """Its stacks are full of what was called before."""
    space = Space(jit={3}, rules={3: rule()}, returns={350}, python={1})
    assert walk(space, record(150, [350, 450])).pcs == (150,)


def test_number_of_guesses_is_limited():
    """A stack full of return addresses costs no more than some."""
    space = Space(jit={3}, rules={2: rule(8000), **BLAS}, returns={250, 350})
    found = walk(space, record(150, [250, 99] * 60 + [350]))
    assert (found.pcs, found.guessed) == ((150,), False)


def test_caller_of_compiled_code_without_rules_calls_it():
    """Other return addresses below are stale."""
    space = Space(jit={1, 3, 6}, rules={6: rule(), 7: rule()}, returns={350, 650})
    found = walk(space, record(150, [350, 99, 650, 750]))
    assert found.pcs == (150, 649)
    assert (found.ending, found.guessed) == ("left", True)


def test_compiled_code_without_rules_or_caller_stands_alone():
    """A caller that does not call it is none."""
    space = Space(jit={1, 3}, returns={350})
    found = walk(space, record(150, [350, 99]))
    assert (found.pcs, found.ending, found.guessed) == ((150,), "no rule", False)


@pytest.mark.parametrize(
    "call",
    [
        "e8 00 00 00 00",  # call rel32
        "ff d0",  # call *%rax
        "41 ff d3",  # call *%r11
        "ff 10",  # call *(%rax)
        "ff 50 18",  # call *0x18(%rax)
        "ff 54 24 08",  # call *8(%rsp)
        "ff 90 00 01 00 00",  # call *0x100(%rax)
        "ff 94 24 00 01 00 00",  # call *0x100(%rsp)
        "ff 15 00 00 00 00",  # call *0(%rip)
    ],
)
def test_call_is_known_in_every_form(call):
    """However long, and whatever is before it."""
    code = bytes.fromhex(call)
    assert _ends_with_call(bytes(7 - len(code)) + code)


@pytest.mark.parametrize(
    "code",
    ["00 00 00 00 00 00 00", "48 89 c7 48 83 c4 08", "0f 1f 80 00 00 00 00"],
)
def test_other_instructions_are_no_calls(code):
    """Moves, additions, padding."""
    assert not _ends_with_call(bytes.fromhex(code))


# -- this process ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def space():
    """Return the code of this process."""
    return AddressSpace()


def address(library, name):
    """Return the address of a C function, a little inside."""
    function = getattr(ctypes.CDLL(library), name)
    return ctypes.cast(function, ctypes.c_void_p).value + 1


@pytest.mark.parametrize(
    ("library", "name", "kind"),
    [("libm.so.6", "sin", "system"), ("libc.so.6", "qsort", "system")],
)
def test_function_of_a_library_is_named(space, library, name, kind):
    """Also if the processor decides which code it is."""
    pc = address(library, name)
    frame = space.native_frame(pc)
    assert (str(frame), frame.kind) == (f"{name} ({library[:4]})", kind)
    assert space.kind(pc) == kind


def test_interpreter_is_known(space):
    """Whether it is a program or a library."""
    pc = ctypes.cast(ctypes.pythonapi.PyEval_EvalFrameEx, ctypes.c_void_p).value + 1
    assert space.kind(pc) == "python"


def test_address_without_code_is_nothing(space):
    """No library, no object."""
    assert space.native_frame(12) is None
    assert space.kind(12) == ""
    assert not space.is_code(12)


def test_own_code_is_not_the_programs():
    """Trampolines and handlers are compiled by the same LLVM."""
    import llvmlite.ir as ir

    module = ir.Module("test")
    signature = ir.FunctionType(emit.VOID, [])
    _, builder = emit.new_function(module, "our_function", signature, ())
    builder.ret_void()
    pc = emit.compile_module(module, ("our_function",))["our_function"]
    space = AddressSpace()
    if space.objects.source == objcode.SOURCE_NONE:
        pytest.skip(space.objects.reason)
    assert space.jit_object(pc) is None
    assert str(space.native_frame(pc)) == "our_function (numbaprof)"
    assert space.rule(pc) is not None


def test_target_of_a_call_is_read(space, monkeypatch):
    """Relative to the next instruction, or as a constant that is loaded before."""
    from numbaprof.native import unwind as module

    filler = bytes(module.NEAR_CALL)
    monkeypatch.setattr(space, "is_return_address", lambda address: True)

    def after(code, address, function):
        monkeypatch.setattr(module.memory, "read", lambda at, size: filler + code)
        return space.calls(address, function)

    relative = bytes.fromhex("e8 f0 ff ff ff")
    assert after(relative, 0x1000, 0xFF0)
    assert not after(relative, 0x1001, 0xFF0)
    loaded = bytes.fromhex("48 b8 88 77 66 55 44 33 22 11 31 ff ff d0")
    assert after(loaded, 0x2000, 0x1122334455667788)
    assert not after(loaded, 0x2000, 0x1122334455667789)


def test_return_address_is_known_in_this_process(space):
    """Bytes before it are read and looked at."""
    assert not space.is_return_address(8)
    assert not space.is_return_address(address("libm.so.6", "sin") - 1)
    assert math.sin(0) == 0
