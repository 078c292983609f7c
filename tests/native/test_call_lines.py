"""Which source lines call which function outside compiled code."""

from __future__ import annotations

import json

import llvmlite.ir as ir
import pytest

from numbaprof.native import call_lines
from numbaprof.native.dwarf import Function, LineTable, Row


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Begin with nothing and put back what was known."""
    monkeypatch.setattr(call_lines, "_known", {})


def module_calling(*callees):
    """Build a module that calls each function on a line of its own, from 1."""
    module = ir.Module()
    double = ir.DoubleType()
    caller = ir.Function(module, ir.FunctionType(double, [double]), "caller")
    builder = ir.IRBuilder(caller.append_basic_block())
    value = caller.args[0]
    places = {}
    for line, name in enumerate(callees, 1):
        callee = ir.Function(module, ir.FunctionType(double, [double]), name)
        node = module.add_debug_info("DILocation", {"line": line})
        places[id(node)] = ("k.py", line)
        builder.debug_metadata = node
        value = builder.call(callee, [value])
    builder.debug_metadata = None
    builder.ret(value)
    return module, places


def table(*rows):
    """Build the table of one function from 100 to 200."""
    return LineTable(
        [Row(address, "k.py", line) for address, line in rows],
        [],
        (Function(100, 200, "kernel"),),
    )


def test_intrinsics_are_known_by_the_function_they_become():
    """``llvm.sin.f32`` is a call of ``sinf``; other names are kept."""
    call_lines.note_calls(*module_calling("llvm.sin.f64", "llvm.sin.f32", "numba_x"))
    assert call_lines.lines_calling("sin") == {("k.py", 1)}
    assert call_lines.lines_calling("sinf") == {("k.py", 2)}
    assert call_lines.lines_calling("numba_x") == {("k.py", 3)}
    assert call_lines.lines_calling("cos") == frozenset()


def test_call_made_of_two_is_on_the_lines_of_both():
    """LLVM joins a sine and a cosine of the same number."""
    call_lines.note_calls(*module_calling("llvm.sin.f64", "llvm.cos.f64"))
    assert call_lines.lines_calling("sincos") == {("k.py", 1), ("k.py", 2)}


def test_call_that_lost_its_line_is_on_that_of_the_next_instruction_that_calls_it():
    """The ``for`` before it never called a sine."""
    call_lines.adopt({"sin": [["k.py", 8]]})
    rows = table((100, 7), (120, 8), (130, 7), (150, 8), (160, 9))
    (frame,) = call_lines.place_call(rows, 149, "sin")
    assert (frame.line, rows.lookup(149)[0].line) == (8, 7)


def test_call_on_a_line_that_calls_it_stays_there():
    """Of two lines with a sine each keeps its own."""
    call_lines.adopt({"sin": [["k.py", 7], ["k.py", 8]]})
    (frame,) = call_lines.place_call(table((100, 7), (120, 8)), 110, "sin")
    assert frame.line == 7


def test_call_nobody_knows_stays_where_the_table_has_it():
    """Without evidence nothing is moved."""
    (frame,) = call_lines.place_call(table((100, 7), (120, 8)), 110, "sin")
    assert frame.line == 7


def test_line_without_an_instruction_left_is_taken_if_it_is_the_only_one():
    """All of the line but the call was optimised away."""
    call_lines.adopt({"sin": [["k.py", 30], ["other.py", 4]]})
    (frame,) = call_lines.place_call(table((100, 7), (120, 8)), 110, "sin")
    assert frame.line == 30


def test_code_without_lines_has_none():
    """No frames, as without a callee."""
    call_lines.adopt({"sin": [["k.py", 8]]})
    assert call_lines.place_call(LineTable.empty(), 110, "sin") == ()


def test_what_is_known_goes_through_json():
    """Twins on disk keep it beside the object."""
    call_lines.note_calls(*module_calling("llvm.exp.f64"))
    stored = json.loads(json.dumps(call_lines.exported(["k.py"])))
    assert call_lines.exported(["other.py"]) == {}
    call_lines._known.clear()
    call_lines.adopt(stored)
    assert call_lines.lines_calling("exp") == {("k.py", 1)}


@pytest.mark.parametrize("damaged", [[], {"sin": 3}, {"sin": [["k.py", "x"]]}])
def test_damaged_notes_are_refused_whole(damaged):
    """A file of somebody else's adds nothing."""
    with pytest.raises((ValueError, TypeError, AttributeError)):
        call_lines.adopt(damaged)
    assert call_lines._known == {}
