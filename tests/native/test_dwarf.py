"""From an address to lines: unfolding inlined calls, and the rule for line 0."""

from __future__ import annotations

import inspect

import machine_code
import pytest

from numbaprof.native import objcode
from numbaprof.native.dwarf import Function, LineTable, Row
from numbaprof.native.dwarf_units import Scope
from numbaprof.native.linetable import LineTables
from numbaprof.native.objcode import JitObject


def scope(low, high, depth, name, call_line=0):
    """Return a scope; one at depth 0 is a function."""
    return Scope(
        ((low, high),), depth, name, depth > 0, "u.py" if depth else "", call_line
    )


def table(rows, scopes=(), functions=((0, 100, "_Zf"),)):
    """Return a line table with all rows in one file."""
    return LineTable(
        [Row(address, "u.py", line) for address, line in rows],
        list(scopes),
        [Function(*function) for function in functions],
    )


def seen(found, pc):
    """Return (function, line) from the innermost frame out."""
    return [(frame.function, frame.line) for frame in found.lookup(pc)]


def test_row_holds_up_to_the_next():
    """An address belongs to the nearest row before it."""
    found = table([(0, 3), (10, 4), (20, -1)])
    assert [seen(found, pc) for pc in (0, 9, 10, 19)] == [
        [("_Zf", 3)],
        [("_Zf", 3)],
        [("_Zf", 4)],
        [("_Zf", 4)],
    ]


def test_nothing_is_known_outside_the_rows():
    """Before the first row and after an end there are no frames."""
    found = table([(5, 3), (20, -1)])
    assert found.lookup(4) == found.lookup(20) == ()


def test_end_and_begin_at_one_address():
    """Where one sequence ends and another begins, the new one holds."""
    assert seen(table([(10, 7), (20, -1), (0, 3), (10, -1)]), 10) == [("_Zf", 7)]


def test_last_of_several_rows_at_one_address_holds():
    """As a debugger does it."""
    assert seen(table([(0, 3), (0, 4), (9, -1)]), 0) == [("_Zf", 4)]


def test_row_does_not_reach_into_the_next_function():
    """A function without rows does not get those of its neighbour."""
    functions = ((0, 10, "f"), (16, 30, "bare"))
    found = table([(0, 3), (30, -1)], functions=functions)
    assert seen(found, 9) == [("f", 3)]
    assert found.lookup(12) == ()  # padding
    assert found.lookup(16) == ()
    assert [(s.low, s.high) for s in found.segments()] == [(0, 10)]


def test_inlined_calls_are_unfolded_innermost_first():
    """Each scope contributes its name, the next its call site."""
    scopes = [scope(0, 50, 0, "f"), scope(10, 30, 1, "g", 5), scope(15, 20, 2, "h", 8)]
    found = table([(0, 3), (10, 80), (15, 90), (20, 81), (30, 6)], scopes)
    assert seen(found, 16) == [("h", 90), ("g", 8), ("f", 5)]
    assert seen(found, 25) == [("g", 81), ("f", 5)]
    assert seen(found, 40) == [("f", 6)]
    assert [frame.inlined for frame in found.lookup(16)] == [True, True, False]


def test_function_without_scope_has_its_symbol_name():
    """Line tables alone drop functions into which nothing was inlined."""
    assert seen(table([(0, 3)]), 5) == [("_Zf", 3)]


def test_line_0_takes_the_nearest_earlier_line_of_its_scope():
    """Not that of a callee in between."""
    scopes = [scope(0, 50, 0, "f"), scope(10, 20, 1, "g", 5)]
    found = table([(0, 3), (5, 4), (10, 80), (20, 0), (30, 6)], scopes)
    assert seen(found, 22) == [("f", 4)]


def test_line_0_in_an_inlined_scope_stays_within_it():
    """The earlier line of the caller does not count, that of the scope does."""
    scopes = [scope(0, 50, 0, "f"), scope(10, 30, 1, "g", 5)]
    found = table([(0, 3), (10, 80), (15, 0), (30, 6)], scopes)
    assert seen(found, 20) == [("g", 80), ("f", 5)]


def test_line_0_without_an_earlier_line_takes_the_call_site():
    """The callee's frame is left out, since nothing is known of it."""
    scopes = [scope(0, 50, 0, "f"), scope(10, 30, 1, "g", 5)]
    assert seen(table([(0, 3), (10, 0), (30, 6)], scopes), 12) == [("f", 5)]


def test_line_0_at_the_begin_of_a_function_stays_0():
    """There is nothing before it that could be meant."""
    functions = ((0, 10, "f"), (10, 20, "g"))
    found = table([(0, 3), (10, 0), (20, -1)], functions=functions)
    assert seen(found, 12) == [("g", 0)]


def test_inferred_lines_are_marked():
    """Segments say where LLVM kept no line."""
    found = table([(0, 3), (10, 0), (20, 5), (30, -1)])
    assert [(s.low, s.high, s.frames[0].line, s.exact) for s in found.segments()] == [
        (0, 10, 3, True),
        (10, 20, 3, False),
        (20, 30, 5, True),
    ]


def test_ranges_of_lines_are_joined():
    """Neighbouring stretches of one line are one range."""
    found = table([(0, 3), (10, 0), (20, 5), (25, 3), (30, -1)])
    assert found.lines() == {("u.py", 3): [(0, 20), (25, 30)], ("u.py", 5): [(20, 25)]}


def test_object_without_line_table_has_an_empty_one():
    """No rows, no frames, no error."""
    found = JitObject.from_bytes(machine_code.emit_inlined(kind="NoDebug"))
    assert not found.has_lines
    assert not found.rows().has_lines
    assert found.rows().lookup(found.start) == ()
    assert found.rows().lines() == {}


@pytest.mark.parametrize("machine", list(machine_code.TRIPLES))
@pytest.mark.parametrize("version", [4, 5])
def test_lines_of_an_emitted_object(machine, version):
    """Both machines and versions give the lines the IR was written with."""
    data = machine_code.emit_inlined(machine, version=version)
    found = JitObject.from_bytes(data, start=0x7000)
    lines = [
        [(frame.function, frame.line) for frame in segment.frames]
        for segment in found.rows().segments()
        if segment.exact
    ]
    assert [("inner", 4), ("outer", 12)] in lines
    assert [("innermost", 8), ("inner", 5), ("outer", 12)] in lines
    assert [("outer", 300)] in lines
    assert all(segment.low >= 0x7000 for segment in found.rows().segments())
    assert found.rows().lookup(found.symbol("bare").address) == ()


def test_lines_of_a_numba_function_are_those_of_its_source():
    """All lines lie within it, and the callee is inlined into the line of the call."""
    with LineTables():
        function, arguments = machine_code.kernels()[0]
        function(*arguments)
    overload = next(iter(function.overloads.values()))
    objects = objcode.load_objects()
    found = objects.with_symbol(overload.fndesc.llvm_func_name)
    source, first = inspect.getsourcelines(function.py_func)
    body = range(first, first + len(source))
    called_from = set()
    for segment in found.rows().segments():
        outermost = segment.frames[-1]
        if outermost.file == __file__.replace("native/test_dwarf", "machine_code"):
            assert outermost.line in body
        if segment.frames[0].function.endswith("square"):
            called_from.add(outermost.line)
    assert called_from == {first + 4}
