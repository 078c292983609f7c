"""Cases about processes: how they start, what they are given, how they end."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from harness import SIMILAR
from suites import PLUGIN

if TYPE_CHECKING:
    from harness import CaseRunner


@pytest.mark.linux
@pytest.mark.slow
def test_case_27_counts_of_pool_workers_are_added_once(cases: CaseRunner) -> None:
    """Nine calls; compiled in the parent and in each spawn worker, not in a fork."""
    case = cases.case(27, scrub=_without_spawn_order, traced=False)
    assert case.calls == {"k": {"(float64)": 9}}
    assert case.result.losses.missing_processes == ()
    labels = [process.label for process in case.result.processes]
    assert sorted(labels) == ["fork", "fork", "main", "spawn", "spawn"]
    compiled = [labels[event.process] for event in case.events("k")]
    n_spawned_at_work = len(compiled) - 1
    assert sorted(compiled) == ["main"] + ["spawn"] * n_spawned_at_work
    assert n_spawned_at_work in (1, 2)


def _without_spawn_order(text: str) -> str:
    """Drop which of the two workers took how many tasks: a race."""
    return text.partition("spawn")[0]


def test_case_28_tests_without_workers_compile_once(cases: CaseRunner) -> None:
    """Eight tests in one process: eight calls, one compilation, in the first test."""
    name = cases.copy_case(28)
    case = cases.run("-m", "pytest", "-q", "-p", "no:cacheprovider", name, scrub=_head)
    assert "8 passed" in case.profiled.stdout
    assert case.calls == {"f": {"(float64[::1])": 8}}
    (event,) = case.events("f")
    assert event.trigger.function == "test_f"


@pytest.mark.slow
def test_case_28_each_xdist_worker_compiles_once(cases: CaseRunner) -> None:
    """Eight tests over two workers: eight calls, two compilations."""
    name = cases.copy_case(28)
    case = cases.run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", name),
        scrub=_head,
        traced=False,
    )
    assert "8 passed" in case.profiled.stdout
    assert case.calls == {"f": {"(float64[::1])": 8}}
    assert len({event.process for event in case.events("f")}) == 2
    assert len(case.events("f")) == 2


@pytest.mark.slow
def test_case_28_processes_are_labelled_by_worker(cases: CaseRunner) -> None:
    """The merged report names gw0 and gw1, and charges each test its compiling."""
    name = cases.copy_case(28)
    run = cases.runner.python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, "-n", "2", name),
        *("--numbaprof", "--numbaprof-save", str(cases.runner.output)),
    )
    assert "8 passed" in run.stdout
    result = run.result
    result.check()
    labels = [process.label for process in result.processes]
    assert sorted(labels) == ["gw0", "gw1"]
    (overload,) = (found for found in result.overloads if not found.internal)
    assert overload.calls == 8
    events = [event for event in result.compile_events if not event.internal]
    assert {labels[event.process] for event in events} == {"gw0", "gw1"}
    for event in events:
        assert f"{event.test}  [{labels[event.process]}]" in run.stdout


def _head(text: str) -> str:
    """Drop pytest's line with the time, and ours: its controller imports no numba."""
    lines = text.splitlines()
    return "\n".join(
        line
        for line in lines
        if " passed in " not in line and not line.startswith("numbaprof: ")
    )


def test_case_34_the_exit_code_and_calls_at_exit_are_kept(cases: CaseRunner) -> None:
    """Exit code 3; the profile is written after the user's handlers: two calls."""
    case = cases.case(34)
    assert case.profiled.exit_code == 3
    assert case.calls == {"f": {"(int64)": 2}}
    assert case.result.processes[0].exit == "SystemExit(3)"


def test_case_35_stdin_arguments_and_main_are_the_programs(cases: CaseRunner) -> None:
    """The arguments are not parsed, pickle finds the class in ``__main__``."""
    case = cases.case(35, "a", "--b", input="1\n2\n")
    assert case.profiled.stdout == "['a', '--b'] 5 __main__ True\n"
    assert case.calls == {"f": {"(int64)": 2}}


def test_case_45_a_benchmark_runs_the_same_rounds(cases: CaseRunner) -> None:
    """Cold: five rounds; the warm kernel is counted in every one of its calls."""
    pytest.importorskip("pytest_benchmark")
    name = cases.copy_case(45)
    run = cases.runner.profile(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", name),
        *("--benchmark-max-time=0.05", "--benchmark-json=rounds.json"),
    )
    assert "2 passed" in run.stdout
    assert run.exit_code == 0
    run.result.check()
    cold, warm = (
        overload for overload in run.result.overloads if not overload.internal
    )
    assert cold.function.qualname == warm.function.qualname == "make.<locals>.k"
    assert all(overload.compile_ns for overload in (cold, warm))
    written = json.loads((cases.folder / "rounds.json").read_text())
    cold_rounds, warm_rounds = (
        found["stats"]["rounds"] * found["stats"]["iterations"]
        for found in written["benchmarks"]
    )
    # The benchmark calls twice before the rounds of something slow; before those of
    # something fast it finds out how many calls a round needs.
    assert cold_rounds == 5
    assert cold.calls == cold_rounds + 2
    assert warm_rounds + 3 <= warm.calls < 1.1 * warm_rounds


def test_case_45_cold_and_warm_give_one_figure(cases: CaseRunner) -> None:
    """With the plugin both are measured alike, and the compile time is told apart."""
    pytest.importorskip("pytest_benchmark")
    name = cases.copy_case(45)
    run = cases.runner.python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, name, "--numbaprof"),
        *("--benchmark-max-time=0.05", "--benchmark-json=rounds.json"),
    )
    assert "2 passed" in run.stdout
    written = json.loads((cases.folder / "rounds.json").read_text())
    for found in written["benchmarks"]:
        info = found["extra_info"]["numbaprof"]
        # Cold, without the plugin, there are five, of something 24 % slower.
        assert found["stats"]["rounds"] * found["stats"]["iterations"] > 100
        assert info["compiles_in_rounds"] == 0
        (row,) = info["overloads"]
        assert row["function"].endswith("make.<locals>.k")
        assert row["new"]
        assert row["compile_s"] > 0.01


@pytest.mark.linux
@pytest.mark.slow
def test_children_of_every_kind_are_added(cases: CaseRunner) -> None:
    """Executor, os.fork, a subprocess: calls add up, compilations too."""
    case = cases.similar("children", traced=False)
    # The executor unpickles its function: another dispatcher, compiled once more.
    assert case.totals == {"kernel": 1 + 1 + 2, "kernel#2": 4}
    labels = sorted(process.label for process in case.result.processes)
    assert labels.count("main") == 1
    assert labels.count("spawn") == 1
    assert case.result.losses.missing_processes == ()


def test_an_uncaught_exception_keeps_its_traceback(cases: CaseRunner) -> None:
    """Exit code 1, the same text on stderr; the failing call is an error."""
    case = cases.similar("raising")
    assert case.profiled.exit_code == 1
    assert "ValueError: too big: 5" in case.profiled.stderr
    overload = case.overload("check")
    assert (overload.calls, overload.errors) == (4, 3)
    assert case.overload("check_lazily").errors == 1
    assert case.result.processes[0].exit == "ValueError"


@pytest.mark.linux
def test_an_interrupt_ends_the_program_as_it_would(cases: CaseRunner) -> None:
    """KeyboardInterrupt inside an objmode block: same end, complete profile."""
    case = cases.similar("interrupted")
    assert case.profiled.exit_code in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "KeyboardInterrupt" in case.profiled.stderr
    assert "caught one" in case.profiled.stdout
    waits = case.overload("wait")
    assert (waits.calls, waits.errors) == (2, 2)


def test_a_package_runs_as_a_module(cases: CaseRunner) -> None:
    """``-m package``: relative imports, ``__package__``, arguments."""
    write = cases.runner.write
    write("", "tool/__init__.py")
    write(
        "from numba import njit\n@njit\ndef kernel(x):\n    return x + 1\n",
        "tool/kernels.py",
    )
    write(
        "import sys\n"
        "from .kernels import kernel\n"
        "print(__name__, __package__, sys.argv[1:], kernel(1), kernel(2))\n",
        "tool/__main__.py",
    )
    case = cases.run("-m", "tool", "-x", "y")
    assert case.profiled.stdout == "__main__ tool ['-x', 'y'] 2 3\n"
    assert case.calls == {"kernel": {"(int64)": 2}}
    assert case.overload("kernel").function.module == "tool.kernels"


def test_code_on_the_command_line_runs(cases: CaseRunner) -> None:
    """``-c`` with arguments; the functions have no file."""
    source = (
        "import sys; from numba import njit\n"
        "f = njit(lambda x: x + 1)\n"
        "print(f(1), f(2.0), sys.argv)"
    )
    case = cases.run("-c", source, "a")
    assert case.calls == {"<lambda>": {"(int64)": 1, "(float64)": 1}}


def test_doctests_and_unittests_are_programs_too(cases: CaseRunner) -> None:
    """``-m doctest`` and ``-m unittest`` call what they call."""
    cases.copy(SIMILAR / "tested.py")
    doctests = cases.run("-m", "doctest", "tested.py")
    assert doctests.totals == {"square": 2}
    unittests = cases.run("-m", "unittest", "-q", "tested", scrub=_without_time)
    assert unittests.profiled.exit_code == 0
    assert unittests.totals == {"square": 3}
    assert unittests.calls["square"] == {"(int64)": 2, "(float64)": 1}


def _without_time(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if " tests in " not in line)


def test_warnings_as_errors_meet_none_of_ours(cases: CaseRunner) -> None:
    """``python -W error -X dev``: nothing of numbaprof's warns or leaks."""
    program = cases.runner.write(
        "from numba import njit\n@njit\ndef f(x):\n    return x + 1\nprint(f(1))\n"
    )
    case = cases.run(program.name, python=("-W", "error", "-X", "faulthandler"))
    assert case.profiled.stderr == ""
    assert case.totals == {"f": 1}
