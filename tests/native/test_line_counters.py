"""Counters in Numba's IR: where they are put and what they become."""

from __future__ import annotations

from numba import njit
from numba.core import bytecode, ir

from numbaprof.native import line_counters
from numbaprof.native.line_counters import CountedCode, CountingInterpreter


def translate(function):
    """Return the counters and the IR of a Python function."""
    counted = CountedCode(function, function.__code__)
    identity = bytecode.FunctionIdentity.from_function(function)
    translator = CountingInterpreter(identity)
    translator.wanted = lambda func_id: counted
    return counted, translator.interpret(bytecode.ByteCode(func_id=identity))


def calls_in(func_ir, function):
    """Return the calls of one of our functions."""
    names = {
        statement.target.name
        for block in func_ir.blocks.values()
        for statement in block.body
        if isinstance(statement, ir.Assign)
        and isinstance(statement.value, ir.Global)
        and statement.value.value is function
    }
    return [
        statement
        for block in func_ir.blocks.values()
        for statement in block.body
        if isinstance(statement, ir.Assign)
        and isinstance(statement.value, ir.Expr)
        and statement.value.op == "call"
        and statement.value.func.name in names
    ]


def test_straight_code_has_one_counter_a_line():
    """Each time the interpreter comes to a line; where it begins, depends on it."""

    # fmt: off
    def straight(x):
        y = x + 1
        z = y * (
            x
        )
        return z
    # fmt: on

    counted, func_ir = translate(straight)
    first = straight.__code__.co_firstlineno
    assert sorted(line - first for line in counted.cell_lines[1:]) == [1, 2, 2, 3, 5]
    assert len(calls_in(func_ir, line_counters.count_line)) == 5


def test_every_variable_of_a_counter_is_defined():
    """Later passes look definitions up."""

    def looped(n):
        for i in range(n):
            n -= i
        return n

    _, func_ir = translate(looped)
    for statement in calls_in(func_ir, line_counters.count_line):
        for variable in (statement.value.func, *statement.value.args):
            assert len(func_ir._definitions[variable.name]) == 1


def test_unwanted_function_is_translated_as_ever():
    """Statement by statement."""

    def plain(n):
        return n + 1

    identity = bytecode.FunctionIdentity.from_function(plain)
    func_ir = CountingInterpreter(identity).interpret(
        bytecode.ByteCode(func_id=identity)
    )
    assert calls_in(func_ir, line_counters.count_line) == []


def test_branch_counter_adds_to_the_cell_of_its_way():
    """Or to the cell that nobody reads."""
    counted, _ = translate(lambda: 1)
    true, waste = counted._address(1), counted.waste
    count_branch = line_counters.count_branch

    @njit
    def both(condition):
        count_branch(condition, true, waste)

    for condition in (True, False, True):
        both(condition)
    assert list(counted.cells[:2]) == [1, 2]
