"""Cases about what is around the calls: threads, tracers, settings, other profilers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from harness import PROGRAMS

from numbaprof.line_table import account_samples, build_line_tables

if TYPE_CHECKING:
    from harness import CaseRunner


def test_case_13_calls_are_split_by_the_number_of_threads(cases: CaseRunner) -> None:
    """Forty calls of one overload, twenty with each setting; no inner gufunc row."""
    case = cases.case(13)
    assert case.calls == {"psum": {"(float64[::1])": 40}}
    overload = case.overload("psum")
    by_threads = {split.n_threads: split for split in overload.threads}
    assert {number: split.calls for number, split in by_threads.items()} == {
        1: 20,
        2: 20,
    }
    # The rest is the reading of the CPU clocks, which is not the program's.
    split_ns = sum(split.inclusive_ns for split in by_threads.values())
    assert 0.95 * overload.inclusive_ns < split_ns <= overload.inclusive_ns
    assert all(split.cpu_ns > 0 for split in by_threads.values())
    assert "gufunc" not in "".join(case.calls)


def test_case_30_a_long_kernel_is_one_call_with_nearly_all_time(
    cases: CaseRunner,
) -> None:
    """The kernel of 300 million steps, reduced: its time is that of the run."""
    (program,) = PROGRAMS.glob("case30_*.py")
    source = program.read_text().replace("300_000_000", "30_000_000")
    case = cases.run(cases.runner.write(source, program.name).name)
    assert case.calls == {"grind": {"(int64)": 1}}
    overload = case.overload("grind")
    events_ns = sum(event.exclusive_ns for event in case.result.compile_events)
    assert overload.inclusive_ns > 100_000_000
    assert overload.inclusive_ns + events_ns > 0.8 * case.result.wall_ns


def test_case_30_samples_fall_on_the_line_of_the_sine(cases: CaseRunner) -> None:
    """Nearly all samples are on the ``np.sin`` line, those in libm included."""
    (program,) = PROGRAMS.glob("case30_*.py")
    source = program.read_text().replace("300_000_000", "60_000_000")
    script = cases.runner.write(source, program.name).name
    case = cases.run(script, measures=("--lines",))
    (table,) = build_line_tables(case.result)
    (hot,) = (row for row in table.rows if "# hot line" in row.source)
    (cheap,) = (row for row in table.rows if "# cheap line" in row.source)
    assert hot.samples > 50
    assert hot.share > 0.9
    assert cheap.share < 0.05
    # What was in libm is the line's, and named.
    assert any(name.startswith("sin") and n for name, n in hot.callees)
    assert table.samples >= 0.97 * account_samples(case.result).compiled


def test_case_41_disabled_jit_is_the_first_thing_said(cases: CaseRunner) -> None:
    """Nothing to measure: no row, no error, and the report begins with the reason."""
    case = cases.case(41)
    assert case.profiled.stdout == "function False\n"
    assert case.calls == {}
    assert case.result.processes[0].environment.jit_disabled
    first = case.result.report().splitlines()[0]
    assert "jit is disabled, numbers are for interpreted Python" in first


def test_case_41_a_program_without_numba_runs_as_well(cases: CaseRunner) -> None:
    """No numba at all: the program runs, and numbaprof says that nothing was there."""
    program = cases.runner.write(
        "import sys\nsys.modules['numba'] = None\n"
        "try:\n    import numba\nexcept ImportError:\n    print('none')\nsys.exit(4)\n"
    )
    run = cases.runner.profile(program)
    assert (run.stdout, run.exit_code) == ("none\n", 4)
    assert "did not import numba" in run.stderr


def test_case_43_cprofile_and_numbaprof_do_not_disturb_each_other(
    cases: CaseRunner,
) -> None:
    """The other profiler prints what it prints alone; all 1001 calls are counted."""
    case = cases.case(43)
    expected = sys.version_info < (3, 12)
    assert case.profiled.stdout == f"{sys.version_info[:2]} {expected}\n"
    assert case.calls == {"f": {"(int64)": 1001}}
    callers = case.result.callers.set_index("caller")["ncalls"]
    assert callers["caller"] == 1000


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_case_43_calls_are_counted_once_with_monitoring(cases: CaseRunner) -> None:
    """With NUMBA_ENABLE_SYS_MONITORING=1 cProfile sees ``f``, and we count the same."""
    case = cases.case(43, environment={"NUMBA_ENABLE_SYS_MONITORING": "1"})
    assert case.profiled.stdout == f"{sys.version_info[:2]} True\n"
    assert case.calls == {"f": {"(int64)": 1001}}


MERGED = """
from numba import njit
@njit
def f(n):
    s = 0.0
    for i in range(n): s += i ** 0.5
    return s
f(1)
def caller():
    for i in range(1000): f(20_000)
caller()
"""


def test_case_43_the_kernel_is_taken_out_of_its_caller(cases: CaseRunner) -> None:
    """``f`` with 1000 calls in the functions, outside the self time of ``caller``."""
    (cases.folder / "merged.py").write_text(MERGED)
    save = ("-m", "numbaprof", "run", "--python", "-q")
    output = str(cases.runner.output)
    run = cases.runner.python(*save, "-o", output, "merged.py")
    table = run.result.functions.reset_index()
    own = table.groupby("function")[["ncalls", "tottime"]].sum()
    compiled = own.loc[[name for name in own.index if name.startswith("f")]].iloc[0]
    caller = own.loc[[name for name in own.index if name.startswith("caller")]].iloc[0]
    assert compiled["ncalls"] == 1001
    assert caller["tottime"] < compiled["tottime"] / 2


def test_tracers_and_profilers_see_what_they_see_alone(cases: CaseRunner) -> None:
    """settrace, setprofile, cProfile, sys.monitoring: same events, exact counts."""
    case = cases.similar("traced")
    assert case.calls == {"kernel": {"(int64)": 1 + 5 * 10}}


def test_threads_are_counted_each_and_exactly(cases: CaseRunner) -> None:
    """Four threads without the GIL, one race to compile, a timer, an executor."""
    case = cases.similar("threads")
    assert case.totals == {"work": 4 * 500 + 8, "race": 8}
    assert len(case.events("race")) == 1
    threads = [node for node in case.result.contexts if node.kind == "thread"]
    assert sum(node.inclusive_ns > 0 for node in threads) >= 4


def test_asyncio_signals_and_finalizers_call_kernels(cases: CaseRunner) -> None:
    """Coroutines, to_thread, a signal handler, __del__, gc frozen or off."""
    case = cases.similar("odd_callers")
    assert case.totals == {"kernel": 3 + 3 + 2 + 1 + 1 + 1 + 1}
    callers = {name.rpartition(".")[2] for name in case.result.callers["caller"]}
    assert {"step", "on_alarm", "__del__"} <= callers


def test_settings_of_numba_are_the_programs(cases: CaseRunner) -> None:
    """Set in the environment or before the import; each is shown in the profile."""
    case = cases.similar(
        "settings", environment={"NUMBA_OPT": "1", "NUMBA_BOUNDSCHECK": "1"}
    )
    assert case.profiled.stdout.splitlines() == ["1", "IndexError", "2 2"]
    overload = case.overload("read")
    assert (overload.calls, overload.errors) == (2, 1)
    settings = dict(case.result.processes[0].environment.numba_settings)
    assert settings["NUMBA_OPT"] == "1"
    assert settings["NUMBA_NUM_THREADS"] == "2"


def test_parallel_fastmath_and_inner_calls_are_one_row_each(cases: CaseRunner) -> None:
    """No row for Numba's parallel bodies; a parallel function inside another."""
    case = cases.similar("parallel")
    assert case.totals == {"scaled": 4, "outer": 2}
    assert case.calls["inner"] == {"(float64[::1])": None}
    splits = {split.n_threads: split.calls for split in case.overload("scaled").threads}
    assert splits == {1: 1, 2: 3}
