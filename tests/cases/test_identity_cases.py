"""Cases about who is who: one name for many, odd sources, wrappers, caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness import Case, CaseRunner


def test_case_15_the_second_process_loads_from_the_cache(cases: CaseRunner) -> None:
    """First a miss and a compilation, then a hit, a load and compile time 0."""
    first = cases.case(15)
    assert "'hits': 0, 'misses': 1" in first.profiled.stdout
    assert len(first.events("f")) == 1
    assert first.events("f", "cache_load") == []
    second = cases.case(15)
    assert "'hits': 1, 'misses': 0" in second.profiled.stdout
    assert second.calls == {"f": {"(float64)": 1}}
    assert second.events("f") == []
    (load,) = second.events("f", "cache_load")
    overload = second.overload("f")
    assert overload.origin == "cache"
    assert overload.compile_ns == 0
    assert overload.cache_load_ns == load.inclusive_ns > 0
    assert "cache" in second.result.report()


def test_case_16_a_cache_that_never_hits_is_found(cases: CaseRunner) -> None:
    """A cached closure over a dispatcher misses in the second process as well."""
    for _ in range(2):
        case = cases.case(16)
        assert "'hits': 0, 'misses': 1" in case.profiled.stdout
        assert case.calls == {
            "leaf": {"(float64)": None},
            "compose.<locals>.inner": {"(float64)": 1},
        }
        (message,) = case.findings("cache-never-hits")
        assert "compose.<locals>.inner" in message


def test_case_19_five_dispatchers_of_one_line_stay_five(cases: CaseRunner) -> None:
    """Counts 1 to 5 and a finding; nothing is merged under the one name."""
    case = cases.case(19)
    assert list(case.totals.values()) == [1, 2, 3, 4, 5]
    assert all(name.startswith("make.<locals>.kern") for name in case.totals)
    assert len(case.result.stats.index.unique()) == 5
    (message,) = case.findings("same-source-compiled")
    assert "same source compiled 5 times" in message


def test_case_21_a_function_without_source_is_profiled(cases: CaseRunner) -> None:
    """File ``<string>``, no module, line 1, three calls."""
    case = cases.case(21)
    assert case.calls == {"gen": {"(int64)": 3}}
    function = case.overload("gen").function
    assert (function.file, function.line) == ("<string>", 1)
    assert function.module in ("", "None")


def test_case_24_the_dispatcher_under_a_decorator_is_found(cases: CaseRunner) -> None:
    """Two overloads of the dispatcher, none of the wrapper with its attributes."""
    case = cases.case(24)
    assert case.calls == {"f": {"(int64)": 1, "(float64)": 1}}


def test_functions_that_share_a_name_are_told_apart(cases: CaseRunner) -> None:
    """Nested factories, lambdas of one line, methods, partials, redefinitions."""
    case = cases.similar("namesakes")
    lambdas = [calls for name, calls in case.totals.items() if "<lambda>" in name]
    assert sorted(lambdas) == [1, 2, 3]
    nested = [calls for name, calls in case.totals.items() if "inner" in name]
    assert nested == [1, 2]
    redefined = [calls for name, calls in case.totals.items() if "again" in name]
    assert redefined == [4, 1]
    assert case.totals["Model.step"] == 2
    assert case.totals["Model.fixed"] == 3
    assert case.totals["bound"] == 2
    assert case.totals["mapped"] == 4
    assert case.totals["use_and_forget.<locals>.forgotten"] == 6


@pytest.mark.slow
def test_changed_source_is_compiled_again_and_then_loaded(cases: CaseRunner) -> None:
    """The cache is for the file as it was: a change misses, a third run hits."""
    source = (
        "from numba import njit\n"
        "@njit(cache=True)\n"
        "def f(x):\n"
        "    return x * {}\n"
        "print(f(1.0), f(1))\n"
    )

    def run(factor: int) -> Case:
        return cases.run(cases.runner.write(source.format(factor)).name)

    outcomes = []
    for factor in (2, 30, 30):
        case = run(factor)
        assert case.totals == {"f": 2}
        outcomes.append([event.event for event in case.result.compile_events])
    assert outcomes == [["compile"] * 2, ["compile"] * 2, ["cache_load"] * 2]
    assert {overload.origin for overload in case.overloads} == {"cache"}


def test_cells_of_a_notebook_are_profiled_like_files(cases: CaseRunner) -> None:
    """Code compiled under a made-up file name that linecache knows has its lines."""
    case = cases.similar("notebook")
    assert case.totals == {"cell_function": 3, "cell_function#2": 1}
    functions = [overload.function for overload in case.overloads]
    assert [function.file for function in functions] == [
        "<ipython-input-1-abc>",
        "<ipython-input-2-abc>",
    ]
    assert [function.line for function in functions] == [4, 2]


def test_recursion_counts_only_calls_from_python(cases: CaseRunner) -> None:
    """Self, mutual and typed recursion; recursion through Python counts each call."""
    case = cases.similar("recursion")
    assert case.totals == {
        "factorial": 1,
        "even": 2,
        "typed": 1,
        "through_python": 4,
        "through_python [objmode at line 32]": 4,
    }
    assert not case.overload("factorial").countable
    assert case.calls["odd"] == {"(int64)": None}
    outer = case.overload("through_python")
    assert outer.inclusive_ns <= case.result.wall_ns
