"""The plugin as a whole, in runs of pytest of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from running import ROOT
from suites import PLUGIN, Suite, outcomes

import numbaprof

KERNELS = """
import numpy as np
import pytest
from numba import njit

@njit
def dot(a, b):
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    return s

A = np.ones(100)
F = A.astype(np.float32)
"""

BUDGETS = f"""{KERNELS}
@pytest.mark.numbaprof(max_overloads=1)
def test_one_type(numbaprof):
    assert numbaprof(dot, A, A) == 100
    assert numbaprof.stats.ncalls.sum() == 1

@pytest.mark.numbaprof(max_overloads=1)
def test_two_types(numbaprof):
    with numbaprof:
        dot(A, A)
        dot(F, A)

@pytest.mark.numbaprof(no_compile=True)
def test_whole():
    dot(A, F)

@pytest.mark.numbaprof(no_compile=True)
def test_warmed_up_itself(numbaprof):
    dot(F, F)
    numbaprof(dot, F, F)

@pytest.mark.numbaprof(max_overload=1)
def test_misspelt():
    pass

@pytest.mark.numbaprof(no_compile=True)
def test_unused(numbaprof):
    pass

@pytest.mark.numbaprof(no_compile=True)
def test_fails_itself():
    assert dot(F[::2], F) == 0

@pytest.mark.numbaprof(max_overloads=1)
def test_measures_itself():
    import numbaprof
    with numbaprof.profile():
        dot(A, A)
"""

REPORTED = f"""{KERNELS}
@pytest.fixture(scope="module")
def warm():
    dot(A, A)

def test_compiles():
    dot(F, A)

def test_fixture_compiled(warm):
    dot(A, A)

def test_measures_itself():
    import numbaprof
    p = numbaprof.profile(dot)
    p(A, A)
    assert p.stats.ncalls.sum() == 1

def test_after():
    dot(A, F)

@pytest.mark.numbaprof(no_compile=True)
def test_budget():
    dot(A, F)
"""


@pytest.fixture(scope="module")
def budgets(tmp_path_factory):
    """Run the tests with budgets, without any option."""
    return Suite(tmp_path_factory.mktemp("budgets"), test_budgets=BUDGETS).run(
        "-p", "no:benchmark"
    )


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Run a suite with the compile report, and save the profile."""
    suite = Suite(tmp_path_factory.mktemp("reported"), test_kernels=REPORTED)
    run = suite.run("--numbaprof", "--numbaprof-save", "run.json")
    return run, numbaprof.load(suite.folder / "run.json")


# -- without being asked ---------------------------------------------------------------


def test_nothing_is_imported_until_it_is_asked_for(tmp_path):
    """Neither Numba nor what measures, in a run of tests that have nothing to do
    with it.
    """
    suite = Suite(
        tmp_path,
        test_modules="""
import sys
def test_modules():
    assert "numbaprof.pytest_plugin" in sys.modules
    heavy = {"numba", "numpy", "pandas", "numbaprof.session", "numbaprof.model"}
    assert not heavy & sys.modules.keys()
""",
    )
    run = suite.run()
    assert run.exit_code == 0, run.stdout
    assert "numbaprof: what" not in run.stdout


def test_budgets_fail_like_a_test(budgets):
    """FAILED and not ERROR; only a marker that cannot be read is an error."""
    assert outcomes(budgets) == {
        "test_one_type": "PASSED",
        "test_two_types": "FAILED",
        "test_whole": "FAILED",
        "test_warmed_up_itself": "PASSED",
        "test_misspelt": "ERROR",
        "test_unused": "FAILED",
        "test_fails_itself": "FAILED",
        "test_measures_itself": "FAILED",
    }
    assert budgets.exit_code == 1


def test_failure_says_why_the_overload_exists(budgets):
    """The reason stands beside each overload that is over the budget."""
    assert "numbaprof budget: max_overloads=1: 2 overloads called" in budgets.stdout
    assert (
        "dot(float32[::1], float64[::1]): compiled again because of `a`: "
        "dtype float64 to float32" in budgets.stdout
    )
    assert "numbaprof budget: no_compile: 1 compilation" in budgets.stdout


def test_error_lists_the_budgets_there_are(budgets):
    """With the one that was meant."""
    assert "ERROR at setup of test_misspelt" in budgets.stdout
    assert "no budget 'max_overload'; did you mean max_overloads?" in budgets.stdout
    assert "max_overloads, no_compile, max_compile_s" in budgets.stdout


def test_what_cannot_be_judged_is_not_passed(budgets):
    """A fixture that was not used, a session of the test's own."""
    assert "the fixture numbaprof was not used" in budgets.stdout
    assert "the test started a session of numbaprof itself" in budgets.stdout


def test_a_tests_own_failure_is_the_one_shown(budgets):
    """The budget is not judged then."""
    assert "assert 50.0 == 0" in budgets.stdout
    assert "dot(float32[:], float32[::1])" not in budgets.stdout


# -- with --numbaprof ------------------------------------------------------------------


def test_report_charges_each_test_and_fixture(reported):
    """What was compiled, why, and in which phase; all tests pass as they do without."""
    run, _ = reported
    assert outcomes(run) == {
        "test_compiles": "PASSED",
        "test_fixture_compiled": "PASSED",
        "test_measures_itself": "PASSED",
        "test_after": "PASSED",
        "test_budget": "PASSED",
    }
    report = run.stdout.partition("numbaprof: what the tests compiled")[2]
    assert "3 compilations took" in report
    assert "test_kernels.py::test_compiles\n" in report
    assert "test_kernels.py::test_fixture_compiled (setup)\n" in report
    assert "dot(float32[::1], float64[::1]): first call" in report
    assert (
        "dot(float64[::1], float64[::1]): compiled again because of `a`: dtype "
        "float32 to float64" in report
    )


def test_a_session_of_a_test_goes_first(reported):
    """Ours steps aside, says so, and goes on with the next test."""
    run, _ = reported
    assert "note: test_kernels.py::test_measures_itself started a session" in run.stdout
    assert "test_kernels.py::test_after\n" in run.stdout


def test_saved_profile_is_one_process_that_knows_its_tests(reported):
    """All calls but those that the test's own session took, each event with a test."""
    _, result = reported
    result.check()
    assert [process.label for process in result.processes] == ["main"]
    calls = {o.signature: o.calls for o in result.overloads if not o.internal}
    assert calls == {
        "(float32[::1], float64[::1])": 1,
        "(float64[::1], float64[::1])": 2,
        "(float64[::1], float32[::1])": 2,
    }
    tests = result.compiles.set_index("signature")["test"]
    assert tests["(float64[::1], float32[::1])"] == "test_kernels.py::test_after"
    assert list(result.compile_events) == sorted(
        result.compile_events, key=lambda event: event.start_ns
    )


def test_two_measurements_of_one_process_are_refused(tmp_path):
    """Under ``numbaprof run`` the option says what to do instead."""
    suite = Suite(tmp_path, test_nothing="import numba\ndef test(): pass")
    run = suite.run_profiled("--numbaprof")
    assert run.exit_code == 4
    assert "measured by `numbaprof run` already" in run.stderr + run.stdout


WARMED = f"""{KERNELS}
def test_before():
    dot(F, F)

@pytest.mark.numbaprof(warmup=True)
def test_warm():
    dot(A, A)

@pytest.fixture
def more():
    dot(A, F)

def test_steady(more):
    dot(A, A)
    dot(A, F)

def test_late():
    dot(F, A)
"""


def test_compiling_after_the_warm_up_fails(tmp_path):
    """What ran before, the warm-up itself and fixtures may compile."""
    run = Suite(tmp_path, test_warmed=WARMED).run("--numbaprof-fail-on-compile")
    assert outcomes(run) == {
        "test_before": "PASSED",
        "test_warm": "PASSED",
        "test_steady": "PASSED",
        "test_late": "FAILED",
    }
    assert "--numbaprof-fail-on-compile: 1 compilation" in run.stdout
    assert "dot(float32[::1], float64[::1]), " in run.stdout
    assert "note: 1 test compiled before all tests marked" in run.stdout


@pytest.mark.slow
def test_workers_are_merged(tmp_path):
    """Eight calls, two compilations, one in each of the two workers."""
    pytest.importorskip("xdist")
    source = f"""{KERNELS}
@pytest.mark.parametrize("i", range(8))
def test_dot(i):
    assert dot(A, A) == 100
"""
    suite = Suite(tmp_path, test_parallel=source)
    run = suite.run("-n", "2", "--numbaprof", "--numbaprof-save", "run.json")
    assert run.exit_code == 0, run.stdout
    result = numbaprof.load(suite.folder / "run.json")
    result.check()
    assert sorted(process.label for process in result.processes) == ["gw0", "gw1"]
    (overload,) = (o for o in result.overloads if not o.internal)
    assert overload.calls == 8
    events = [event for event in result.compile_events if not event.internal]
    assert sorted(event.process for event in events) == [0, 1]
    assert all("test_dot[" in event.test for event in events)
    assert "[gw0]" in run.stdout
    assert "repeated what another worker had compiled" in run.stdout


@pytest.mark.slow
def test_a_worker_that_dies_is_named(tmp_path):
    """Its profile is missing, and the report says so."""
    pytest.importorskip("xdist")
    source = "import os\ndef test_dies():\n    os._exit(3)\n"
    run = Suite(tmp_path, test_dies=source).run(
        "-n", "1", "--max-worker-restart=0", "--numbaprof"
    )
    assert run.exit_code == 1
    assert "note: worker gw0 left no profile" in run.stdout


def test_plugin_needs_no_numba(tmp_path):
    """A suite without it runs, and the report has nothing to say."""
    suite = Suite(tmp_path, test_nothing="def test(): pass")
    run = suite.run("--numbaprof-save", "run.json")
    assert run.exit_code == 0
    assert "no test imported numba" in run.stdout
    assert "so no profile was saved" in run.stdout
    assert not (tmp_path / "run.json").exists()


def test_disabled_jit_is_said(tmp_path):
    """Nothing is compiled, and the tests run."""
    source = "import numba\nf = numba.njit(lambda x: x)\ndef test(): assert f(1) == 1"
    run = Suite(tmp_path, test_plain=source).run("--numbaprof", NUMBA_DISABLE_JIT="1")
    assert run.exit_code == 0, run.stdout
    assert "jit is disabled: nothing was compiled" in run.stdout


def test_own_suite_is_refused_with_the_reason():
    """Ours would be what its tests find left behind."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *PLUGIN, "--numbaprof", "-q"),
            *("-p", "no:cacheprovider", str(ROOT / "tests" / "test_wording.py")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 4
    assert "cannot run under --numbaprof" in run.stderr


VECTORIZED = f"""{KERNELS}
@njit(fastmath=True)
def fast(a, b):
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    return s

@pytest.mark.numbaprof(vectorized=True)
def test_packed(numbaprof):
    numbaprof(fast, A, A)

@pytest.mark.numbaprof(vectorized=True)
def test_scalar(numbaprof):
    numbaprof(dot, A, A)

@pytest.mark.numbaprof(vectorized="fast")
def test_scalar_beside_it(numbaprof):
    numbaprof(lambda: dot(A, A) + fast(A, A))

@pytest.mark.numbaprof(min_vector_bits=1024)
def test_too_wide(numbaprof):
    numbaprof(fast, A, A)
"""


@pytest.mark.slow
def test_vectorization_is_judged_by_the_machine_code(tmp_path):
    """A reduction without fastmath has no packed instructions, with it there are."""
    pytest.importorskip("capstone")
    run = Suite(tmp_path, test_vectorized=VECTORIZED).run("-p", "no:benchmark")
    assert outcomes(run) == {
        "test_packed": "PASSED",
        "test_scalar": "FAILED",
        "test_scalar_beside_it": "PASSED",
        "test_too_wide": "FAILED",
    }
    assert "has no packed floating-point instruction" in run.stdout
    assert "has packed instructions of " in run.stdout


def test_pytest_does_not_warn_that_numbaprof_was_imported_before():
    """It looks for this word in the package; see the package's own text."""
    assert "PYTEST_DONT_REWRITE" in (numbaprof.__doc__ or "")
