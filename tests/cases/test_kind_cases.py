"""Cases about what is not a plain jitted function, and what cannot be counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import without_numbers

if TYPE_CHECKING:
    from harness import CaseRunner


def test_case_07_jitclass_methods_are_rows_of_the_class(cases: CaseRunner) -> None:
    """Calls from Python are counted; those of a kernel are said not to be countable."""
    case = cases.case(7)
    assert case.calls == {
        "Acc.__init__": {"(Acc)": 1},
        "Acc.push": {"(Acc, float64)": 10, "(Acc, int64)": 1},
        "Acc.n": {"(Acc)": 1},
        "Acc.tot": {"(Acc)": 0},
        "drive": {"(Acc, int64)": 1},
    }
    assert case.overload("Acc.__init__").kind == "constructor"
    pushed = case.overload("Acc.push", "(Acc, float64)")
    assert not pushed.countable
    assert "`drive`" in pushed.not_countable_reason
    assert "cannot be counted" in case.result.report()


def test_case_09_a_generator_says_that_its_steps_are_not_included(
    cases: CaseRunner,
) -> None:
    """One creating call is counted; that iterating is not, is said in the report."""
    case = cases.case(9)
    assert case.calls == {"squares": {"(int64)": 1}}
    overload = case.overload("squares")
    assert overload.kind == "generator"
    assert "iteration time not included" in overload.not_countable_reason
    assert "iteration time not included" in case.result.report()


def test_case_10_ufunc_loops_depend_on_the_order_of_calls(cases: CaseRunner) -> None:
    """An int64 call after a float64 loop exists is cast: one loop, two calls."""
    case = cases.case(10)
    assert case.calls == {
        "inc_a": {"(int64)": 1, "(float64)": 1},
        "inc_b": {"(float64)": 2},
    }
    assert {overload.kind for overload in case.overloads} == {"ufunc loop"}
    assert all(overload.compile_ns for overload in case.overloads)


def test_case_11_a_parallel_gufunc_is_reached(cases: CaseRunner) -> None:
    """A plain NumPy ufunc has a row of two calls, float32 cast to float64."""
    case = cases.case(11)
    assert case.calls == {"rowsum": {"(float64)": 2}}
    overload = case.overload("rowsum")
    assert overload.kind == "gufunc loop"
    assert overload.elements == 1010
    assert overload.compile_ns is not None


def test_case_12_a_stencil_compiles_on_every_call(cases: CaseRunner) -> None:
    """Three calls, three compilations, and a finding that says what to do."""
    case = cases.case(12, scrub=without_numbers)
    assert case.calls == {"avg": {"(float64[::1])": 3}}
    events = case.events("avg")
    assert len(events) == 3
    assert {event.kind for event in events} == {"stencil"}
    findings = case.result.findings.set_index("slug")
    found = findings.loc["recompiles-every-call"]
    assert "compiles on every call" in found["message"]
    assert "njit" in found["try"]


def test_case_17_an_objmode_block_is_the_child_of_its_function(
    cases: CaseRunner,
) -> None:
    """Two calls of 50 ms; the block is compiled, and runs, inside its function."""
    case = cases.case(17)
    name = "mixed [objmode at line 6]"
    assert case.totals == {"mixed": 2, name: 2}
    outer, block = case.overload("mixed"), case.overload(name)
    assert block.kind == "objmode body"
    assert outer.inclusive_ns >= block.inclusive_ns >= 100_000_000
    assert outer.exclusive_ns <= outer.inclusive_ns - block.inclusive_ns
    (compiled,) = case.events(name)
    assert case.result.compile_events[compiled.parent].function == outer.function
    (node,) = (
        node
        for node in case.result.contexts
        if node.kind == "overload" and case.result.overloads[node.overload] == block
    )
    parent = case.result.contexts[node.parent]
    assert case.result.overloads[parent.overload] == outer


def test_case_40_an_inlined_function_is_not_called_never_called(
    cases: CaseRunner,
) -> None:
    """It has no overload and no code of its own, and the row says so."""
    case = cases.case(40)
    assert case.calls == {"helper": {"": None}, "user": {"(float64)": 1}}
    assert "inlined into its callers" in case.overload("helper").not_countable_reason
    (message,) = case.findings("inlined")
    assert "helper" in message
    assert case.findings("never-called") == []


@pytest.mark.slow
def test_jitclass_members_of_all_kinds_are_counted(cases: CaseRunner) -> None:
    """Properties, fields, static, inherited and special methods, defaults, stars."""
    case = cases.similar("jitclass_members")
    assert case.calls == {
        "Point.__init__": {"(Point, float64, float64)": 3},
        "Point.x": {"(Point)": 2},
        "Point._y": {"(Point)": 0},
        "Point.x [set]": {"(Point, float64)": 2},
        "Point.y": {"(Point)": 2},
        "Point.y#2": {"(Point, float64)": 1},
        "Point.twice": {"(int64)": 1, "(Point, int64)": 1},
        "Point.add": {"(Point, float64, omitted(3))": 1, "(Point, float64, int64)": 1},
        "Point.many": {"(Point)": 1, "(Point, int64)": 2, "(Point, int64, int64)": 1},
        "Point.__len__": {"(Point)": 1},
        "Point.__getitem__": {"(Point, int64)": 1},
        "Point.chain": {"(Point, float64)": 1},
        "Base.total": {"(Point)": 1},
        "norm": {"(Point)": 2},
    }
    assert case.findings("duplicate-compile") == []
    assert not case.overload("Point.add", "(Point, float64, omitted(3))").countable


def test_ufuncs_are_counted_however_they_are_called(cases: CaseRunner) -> None:
    """One call per inner loop call: signatures, targets, reduce, out, where."""
    case = cases.similar("ufuncs")
    assert case.totals == {
        "eager_add": 7,
        "lazy_add": 3,
        "parallel_add": 2,
        "scale": 2,
        "dynamic": 2,
        "moving": 1,
        "user": 1,
    }
    assert set(case.calls["eager_add"]) == {"(int64, int64)", "(float64, float64)"}
    assert case.calls["lazy_add"] == {"(float64, float64)": 2, "(int64, int64)": 1}
    assert case.calls["dynamic"] == {"(float64, float64)": 1, "(int64, int64)": 1}
    assert case.overload("parallel_add").elements == 1200


def test_generators_stencils_and_callbacks_are_told_apart(cases: CaseRunner) -> None:
    """Each kind has its rows; what compiled code calls is said not to be countable."""
    case = cases.similar("other_kinds")
    assert case.calls["counter"] == {"(int64)": 3}
    assert case.calls["consume"] == {"(int64)": 1}
    assert case.calls["inner_counter"] == {"(int64)": None}
    assert case.calls["smooth"] == {"(float64[::1])": 2}
    assert case.totals["callback"] == 5
    assert case.overload("callback").kind == "cfunc"
    assert case.calls["uses_callback"] == {"(int64)": 1}
    assert case.findings("recompiles-every-call") == []


@pytest.mark.slow
def test_containers_structrefs_and_extensions_are_counted(cases: CaseRunner) -> None:
    """Typed containers touched from Python, a structref, @overload, @intrinsic."""
    case = cases.similar("containers")
    assert case.totals == {
        "total": 3,
        "fill": 1,
        "nested": 1,
        "unique": 2,
        "norm": 2,
        "make": 1,
        "extended": 2,
    }
    assert case.calls["unique"] == {"(set[int64])": 2}
    internal = [overload for overload in case.result.overloads if overload.internal]
    assert any(overload.calls for overload in internal)
