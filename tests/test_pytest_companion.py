"""The companion of pytest-benchmark, with the real plugin in runs of its own."""

from __future__ import annotations

import json

import pytest
from suites import Suite, outcomes

pytest.importorskip("pytest_benchmark")

KERNELS = """
import numpy as np
import pytest
from numba import njit

def make():
    @njit(fastmath=True)
    def total(values):
        s = 0.0
        for i in range(values.size):
            s += values[i]
        return s
    return total

A = np.ones(100)
F = A.astype(np.float32)
"""

BENCHMARKS = f"""{KERNELS}
def test_cold(benchmark):
    assert benchmark(make(), A) == 100

def test_warm(benchmark):
    total = make()
    total(A)
    benchmark(total, A)

def test_mixed(benchmark):
    total = make()
    benchmark(lambda: total(A) + total(F) + total(F))

def test_new_type(benchmark):
    total, rounds = make(), []
    def setup():
        rounds.append(A if len(rounds) < 3 else F)
        return (rounds[-1],), {{}}
    benchmark.pedantic(total, setup=setup, rounds=8)

def test_pedantic(benchmark):
    benchmark.pedantic(make(), (A,), rounds=5, iterations=3)

def test_only_once(benchmark):
    calls = []
    total = make()
    def once():
        calls.append(total(A))
    benchmark.pedantic(once)
    assert len(calls) == 1

def test_always_compiles(benchmark):
    benchmark.pedantic(lambda: make()(A), rounds=3)

def test_counting_fails(benchmark):
    total, left = make(), [6]
    def setup():
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("no more")
    benchmark.pedantic(lambda: total(A), setup=setup, rounds=5)

def test_without_numba(benchmark):
    benchmark(sum, [1, 2])

@pytest.mark.xfail(reason="on purpose", strict=True)
def test_that_raises(benchmark):
    benchmark(lambda: 1 / 0)
"""

SHORT = ("--benchmark-max-time=0.02", "--benchmark-json=benchmarks.json")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Run all kinds of benchmarks with the companion."""
    suite = Suite(tmp_path_factory.mktemp("benchmarks"), test_benchmarks=BENCHMARKS)
    run = suite.run("--numbaprof", *SHORT)
    written = json.loads((suite.folder / "benchmarks.json").read_text())
    return suite, run, {found["name"]: found for found in written["benchmarks"]}


def info_of(measured, name):
    """Return what the companion attached to a benchmark."""
    return measured[2][name]["extra_info"]["numbaprof"]


def overloads_of(measured, name):
    """Return (signature, calls per call) of the rows."""
    return {
        row["signature"]: row["calls_per_call"]
        for row in info_of(measured, name)["overloads"]
    }


def test_all_benchmarks_pass_as_they_do_alone(measured):
    """The one that fails on purpose fails in the same way."""
    found = outcomes(measured[1])
    assert {name: word for name, word in found.items() if word != "PASSED"} == {
        "test_that_raises": "XFAIL"
    }
    assert measured[1].exit_code == 0


def test_cold_is_measured_as_warm_is(measured):
    """Not the five rounds of something that takes as long as compiling."""
    for name in ("test_cold", "test_warm"):
        assert measured[2][name]["stats"]["rounds"] > 100
        assert info_of(measured, name)["compiles_in_rounds"] == 0
    (cold,) = info_of(measured, "test_cold")["overloads"]
    assert cold["new"]
    assert cold["compile_s"] > 0.01
    assert info_of(measured, "test_cold")["warmup_calls"] == 2


def test_rows_are_the_overloads_that_a_call_calls(measured):
    """Two types in one benchmark are two rows, with calls per call of the benchmark."""
    assert overloads_of(measured, "test_mixed") == {
        "(float64[::1])": 1.0,
        "(float32[::1])": 2.0,
    }
    for row in info_of(measured, "test_mixed")["overloads"]:
        assert 0 < row["min_ns"] <= row["median_ns"]
        assert row["rounds"] > 1


def test_rounds_that_compile_are_dropped_and_named(measured):
    """The first and the fourth, counted as the test counts them."""
    info = info_of(measured, "test_new_type")
    assert [dropped["round"] for dropped in info["dropped_rounds"]] == [1, 4]
    assert info["dropped_rounds"][1]["compiled"] == [
        "make.<locals>.total(float32[::1])"
    ]
    assert info["compiles_in_rounds"] == 2
    assert measured[2]["test_new_type"]["stats"]["rounds"] == 6
    assert "round 4 dropped, compiled make.<locals>.total" in measured[1].stdout


def test_pedantic_is_warm_and_keeps_its_rounds(measured):
    """As many as the test asked for, none of them with a compilation."""
    stats = measured[2]["test_pedantic"]["stats"]
    assert (stats["rounds"], stats["iterations"]) == (5, 3)
    assert info_of(measured, "test_pedantic")["dropped_rounds"] == []


def test_what_is_called_once_is_called_once(measured):
    """No call is added that the test does not expect; its row has no count."""
    info = info_of(measured, "test_only_once")
    assert "called only once" in info["note"]
    assert [row["calls"] for row in info["overloads"]] == [None]


def test_a_benchmark_of_compiling_keeps_its_rounds(measured):
    """There would be none left; the note says what the figures are of."""
    info = info_of(measured, "test_always_compiles")
    assert measured[2]["test_always_compiles"]["stats"]["rounds"] == 3
    assert "in every round" in info["note"]
    assert info["warmup_calls"] == 5


def test_an_error_in_our_own_calls_is_not_the_tests(measured):
    """The benchmark is done by then; the note says why there are fewer calls."""
    info = info_of(measured, "test_counting_fails")
    assert info["note"] == "counting ended: ValueError: no more"
    assert overloads_of(measured, "test_counting_fails") == {"(float64[::1])": 1.0}


def test_a_benchmark_without_numba_has_no_rows(measured):
    """It is measured as ever."""
    assert info_of(measured, "test_without_numba")["overloads"] == []


def test_pytest_benchmark_still_compares_the_files(measured):
    """Its own command reads what was written."""
    suite, _, _ = measured
    command = "from pytest_benchmark.cli import main; main()"
    run = suite.python("-c", command, "compare", str(suite.folder / "benchmarks.json"))
    assert run.exit_code == 0, run.stderr
    assert "test_cold" in run.stdout


STRUCTURE = f"""{KERNELS}
def test_plain(benchmark):
    benchmark(make(), A)
"""


def shape(value):
    """Return the structure of plain data: names and types, not values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def test_files_are_the_same_while_the_option_is_off(tmp_path):
    """The plugin is loaded, or is not: names and types in the file are the same."""
    suite = Suite(tmp_path, test_plain=STRUCTURE)
    shapes = []
    for plugin in ((), ("-p", "no:numbaprof", "-p", "no:numbaprof.pytest_plugin")):
        run = suite.run(*plugin, *SHORT)
        assert run.exit_code == 0, run.stdout
        written = json.loads((tmp_path / "benchmarks.json").read_text())
        # With its five rounds cold: pytest-benchmark does not see us either.
        assert written["benchmarks"][0]["stats"]["rounds"] == 5
        shapes.append(shape(written))
    assert shapes[0] == shapes[1]


def test_nothing_is_added_where_nothing_is_measured(tmp_path):
    """With --benchmark-disable the function is called once, as ever."""
    source = f"""{KERNELS}
def test_plain(benchmark):
    calls = []
    benchmark(calls.append, 1)
    assert calls == [1]
"""
    suite = Suite(tmp_path, test_plain=source)
    run = suite.run("--numbaprof", "--benchmark-disable")
    assert run.exit_code == 0, run.stdout
    assert "overloads of the benchmarks" not in run.stdout


@pytest.mark.slow
def test_workers_are_left_alone(tmp_path):
    """Under xdist pytest-benchmark measures nothing, and neither do we."""
    pytest.importorskip("xdist")
    suite = Suite(tmp_path, test_plain=STRUCTURE)
    # pytest-benchmark warns that it is disabled.
    run = suite.run("--numbaprof", "-n", "1", "-W", "default")
    assert run.exit_code == 0, run.stdout
    assert "overloads of the benchmarks" not in run.stdout
    assert "test_plain.py::test_plain" in run.stdout


@pytest.mark.slow
def test_codspeed_is_left_alone(tmp_path):
    """Its fixture says that it is pytest-benchmark's and has nothing to join."""
    pytest.importorskip("pytest_codspeed")
    suite = Suite(tmp_path, test_plain=STRUCTURE)
    run = suite.run("--numbaprof", "--codspeed", "-W", "default")
    assert run.exit_code == 0, run.stdout
    assert "overloads of the benchmarks" not in run.stdout


def test_the_private_names_we_need_are_there():
    """Of pytest-benchmark; without them benchmarks are left alone."""
    from pytest_benchmark.fixture import BenchmarkFixture

    from numbaprof.pytest_companion import PRIVATE_NAMES

    assert [name for name in PRIVATE_NAMES if not hasattr(BenchmarkFixture, name)] == []


def test_a_fixture_without_them_is_left_alone():
    """And the report says so, once."""
    from numbaprof.pytest_companion import Companion
    from numbaprof.pytest_recording import Recording

    class Other:
        enabled = True
        _raw = None

    class Definition:
        argname = "benchmark"

    recording = Recording(background=False)
    for _ in range(2):
        fixture = Other()
        setup = Companion(recording).pytest_fixture_setup(Definition(), None)
        next(setup)
        with pytest.raises(StopIteration) as ended:
            setup.send(fixture)
        assert ended.value.value is fixture
        assert vars(fixture) == {}
    assert recording.problems == [
        "benchmarks are left alone: no _make_runner in this benchmark"
    ]
