"""How machine code is counted: loops, places, what belongs to a function."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from numbaprof.native import code_evidence
from numbaprof.native.code_evidence import collect, dispatchers_in
from numbaprof.native.disassembly import Instruction


def code(*mnemonics):
    """Return instructions of four bytes each; a jump is written ``jne 8``."""
    found = []
    for number, text in enumerate(mnemonics):
        mnemonic, _, target = text.partition(" ")
        operands = hex(int(target)) if target else ""
        found.append(Instruction(4 * number, 4, mnemonic, operands, 0))
    return found


@pytest.mark.parametrize(
    ("instructions", "loops"),
    [
        (code("add", "ret"), []),
        (code("add", "jne 0", "ret"), [(0, 8)]),
        (code("jmp 8", "add", "ret"), []),
        (code("add", "add", "jne 4", "jne 0"), [(0, 16)]),
        (code("jne 0", "add", "jne 8", "ret"), [(0, 4), (8, 12)]),
        (code("add", "call 0"), []),
    ],
)
def test_loops_are_what_jumps_backwards_go_over(instructions, loops):
    """Nested ones are one; calls and jumps forward are none."""
    assert code_evidence._loops(instructions) == loops


@njit
def stepped(n):
    """Be a generator, whose code is in a function of its own."""
    for i in range(n):
        yield i * 3


@njit
def summed(n):
    """Call itself."""
    if n < 1:
        return 0
    return n + summed(n - 1)


def test_body_of_a_generator_is_found():
    """The function of its name only makes the generator."""
    list(stepped(3))
    (overload,) = collect(stepped).overloads
    assert all(line.total for line in overload.lines)


def test_recursive_function_is_explained():
    """It meets itself while it is compiled again."""
    summed(3)
    (overload,) = collect(summed).overloads
    assert overload.reason == ""
    assert overload.instructions > 0


def test_object_mode_has_no_machine_code_of_its_own():
    """Python runs it."""
    from numba import jit

    function = jit(forceobj=True)(lambda x: x)
    function(1)
    (overload,) = collect(function).overloads
    assert "object mode" in overload.reason


def test_functions_of_a_file_are_found_by_line():
    """Those alive, of that file only."""
    summed(np.int32(1))
    found = dispatchers_in((__file__,))
    assert [one.__name__ for one in found][:2] == ["stepped", "summed"]
    assert dispatchers_in(("elsewhere.py",)) == []
