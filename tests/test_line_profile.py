"""``numbaprof.lines`` on real kernels, from the call to the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.experimental import jitclass

import numbaprof
from numbaprof.errors import NumbaprofWarning, OptionError, TargetError
from numbaprof.line_table import account_samples


@numba.njit
def two_lines(a, n):
    """Spend time on two lines, nearly all of it on the second."""
    s = 0.0
    for _ in range(n):
        for x in a:
            s += x  # light
        for x in a:
            s += np.sin(x)  # heavy
    return s


@numba.njit
def branches(n):
    """Run lines a known number of times."""
    s = 0
    for i in range(n):
        if i % 3 == 0:
            s += 1  # a third
    return s


@numba.njit
def write_over(a):
    """Change the argument."""
    for i in range(a.size):
        a[i] += 1.0
    return a.sum()


DATA = np.random.default_rng(1).random(20_000)


def line_with(p, text):
    """Return the row of the line that contains a text."""
    (row,) = (row for row in p.lines.itertuples() if text in row.source)
    return row


@pytest.fixture
def sampled():
    """Return a profile with enough samples to say something."""
    p = numbaprof.lines(two_lines)
    value = p(DATA, 2_000)
    assert value == two_lines(DATA, 2_000)
    return p


def test_heavy_line_is_found(sampled):
    """The line that takes the time has the samples, and says what it was doing."""
    heavy, light = line_with(sampled, "# heavy"), line_with(sampled, "# light")
    assert heavy.samples > 3 * light.samples
    assert heavy.time_low_s < heavy.time_s < heavy.time_high_s
    assert any(name.startswith("sin (") for name in heavy.callees)
    assert heavy.function == "two_lines"
    assert heavy.signature == "(float64[::1], int64)"


def test_nearly_all_samples_in_compiled_code_are_on_lines(sampled):
    """At least 97 of 100, and the books balance."""
    sampled.result.check()
    bins = dict(account_samples(sampled.result).bins)
    assert bins["line"] >= 0.97 * account_samples(sampled.result).compiled
    assert bins["line"] > 50


def test_lines_are_exact_in_calls_and_sampled_in_time(sampled):
    """The table of overloads is beside it, exact as ever."""
    (row,) = sampled.stats[sampled.stats.ncalls > 0].itertuples()
    assert row.ncalls == 1


def test_text_is_the_table_of_lines(sampled):
    """Printing shows lines; the whole report is there on request."""
    text = str(sampled)
    assert "Line Contents" in text
    assert "Overloads" not in text
    assert "Overloads" in sampled.report(lines_only=False)


def test_hits_are_exact():
    """Counted in a build of its own, on the same arguments."""
    p = numbaprof.lines(branches, hits=True)
    assert p(10) == 4
    assert line_with(p, "# a third").hits == 4
    assert line_with(p, "if i % 3").hits == 10
    assert p(10) == 4
    assert line_with(p, "# a third").hits == 8


def test_counting_does_not_write_to_the_arguments():
    """The counting run gets copies; the timed run the arguments themselves."""
    a = np.zeros(5)
    p = numbaprof.lines(write_over, hits=True)
    assert p(a) == 5.0
    assert a.tolist() == [1.0] * 5
    assert line_with(p, "a[i] += 1.0").hits == 5


def test_hits_of_what_is_not_jitted_are_refused():
    """Before anything is run."""
    with pytest.raises(TargetError, match="hits"):
        numbaprof.lines(len, hits=True)


def test_counting_that_fails_does_not_stop_the_timed_run(monkeypatch):
    """Whatever goes wrong in the other build is the reason for missing hits."""
    monkeypatch.setattr(
        "numbaprof.counting.copy_arguments", lambda *_: 1 / 0, raising=True
    )
    p = numbaprof.lines(branches, hits=True)
    assert p(10) == 4
    (reason,) = {row.hits_reason for row in p.lines.itertuples()} - {""}
    assert reason.startswith("ZeroDivisionError")


def test_hits_without_the_jit_are_refused_by_its_name():
    """The function is jitted; it is Numba that was told not to compile."""
    program = (
        "import numba, numbaprof\nnumbaprof.lines(numba.njit(lambda n: n), hits=True)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert "UnsupportedError" in run.stderr
    assert "NUMBA_DISABLE_JIT is set" in run.stderr


def test_function_that_does_not_compile_raises_as_ever():
    """The reason for missing hits is in the profile, the error is the program's."""
    p = numbaprof.lines(branches, hits=True)
    with pytest.raises(numba.TypingError):
        p("text")
    assert any(row.hits_reason for row in p.lines.itertuples())


def test_plain_function_around_kernels_is_profiled_by_line():
    """What counts is the compiled code it calls."""

    def program():
        return two_lines(DATA, 2_000) + two_lines(DATA, 10)

    p = numbaprof.lines(program)
    p()
    assert line_with(p, "# heavy").samples > 10


def test_decorator_and_block_work_alike():
    """Without a function it is used as ``profile`` is."""
    decorated = numbaprof.lines()(two_lines)
    decorated(DATA, 500)
    assert line_with(decorated, "# heavy").samples > 0
    with numbaprof.lines() as p:
        two_lines(DATA, 500)
    assert line_with(p, "# heavy").samples > 0


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lines": False}, "samples lines"),
        ({"hits": 1}, "True or False"),
        ({"interval": "fast"}, "seconds"),
        ({"interval": 1e-6}, "too short"),
        ({"twin_budget": -1}, "0 or more"),
        ({"rate": 5}, "no option rate"),
    ],
)
def test_options_that_cannot_be_are_refused(options, match):
    """Saying what can."""
    with pytest.raises(OptionError, match=match):
        numbaprof.lines(branches, **options)


def test_interval_without_lines_is_refused():
    """An option without effect is a mistake."""
    with pytest.raises(OptionError, match="lines=True"):
        numbaprof.profile(branches, interval=0.01)


def test_signal_that_is_taken_is_said_and_calls_are_counted_all_the_same():
    """Another profiler on SIGPROF keeps it; the profile has a reason for no samples."""
    before = signal.signal(signal.SIGPROF, lambda *_: None)
    try:
        p = numbaprof.lines(branches)
        with pytest.warns(NumbaprofWarning, match="cannot be sampled"):
            assert p(9) == 3
    finally:
        signal.signal(signal.SIGPROF, before)
    (info,) = p.result.sampling
    assert info.source == "none"
    assert "SIGPROF" in info.reason
    assert "Lines were not sampled" in str(p)
    assert p.stats.ncalls.sum() == 1


def test_function_without_source_has_line_numbers():
    """What was made by ``exec`` has no text to show."""
    namespace = {"numba": numba, "np": np}
    exec(
        compile(
            "@numba.njit\n"
            "def made(n):\n"
            "    s = 0.0\n"
            "    for i in range(n):\n"
            "        s += np.sin(i)\n"
            "    return s\n",
            "<made>",
            "exec",
        ),
        namespace,
    )
    p = numbaprof.lines(namespace["made"])
    p(20_000_000)
    rows = p.lines[p.lines.samples > 0]
    assert set(rows.file) == {"<made>"}
    assert 5 in set(rows.line)
    assert set(rows.source) == {""}


def test_sampled_profile_is_saved_and_read_back(sampled, tmp_path):
    """Source text is in the file; the table needs no source later."""
    sampled.save(tmp_path / "p.json")
    loaded = numbaprof.load(tmp_path / "p.json")
    assert loaded.lines.equals(sampled.lines)


def test_two_runs_add_up():
    """Each keeps the interval it was sampled with."""
    p = numbaprof.lines(two_lines)
    p(DATA, 1_000)
    first = account_samples(p.result).taken
    p(DATA, 1_000)
    assert account_samples(p.result).taken > first
    assert len(p.result.sampling) == 2
    p.result.check()


@numba.njit
def outer_of_two(n):
    """Call another function, so that both have a counting build."""
    return branches(n) + branches(n + 1)


def test_counting_leaves_no_function_behind():
    """The builds that count are in no table: not theirs, not of later sessions."""
    p = numbaprof.lines(outer_of_two, hits=True)
    p(3)
    with numbaprof.profile() as later:
        outer_of_two(3)
    for profiled in (p, later):
        names = set(profiled.stats.reset_index().function)
        assert {"branches", "outer_of_two"} <= names
        assert not {"branches#2", "outer_of_two#2"} & names


@numba.njit(fastmath=True)
def sum_of_squares(a):
    """Be a loop that LLVM makes vector code of."""
    s = 0.0
    for i in range(a.size):
        s += a[i] * a[i]
    return s


def test_machine_code_of_hot_lines_is_described(sampled):
    """Instructions of each line, and why a loop was not vectorised."""
    light = line_with(sampled, "# light")
    heavy = line_with(sampled, "# heavy")
    assert heavy.instructions > 0
    assert light.instructions > 0
    assert any("LLVM: " in row.remark for row in sampled.lines.itertuples())


def test_vectorised_loop_says_how_wide():
    """From LLVM's own remark on the code that runs."""
    p = numbaprof.lines()
    with p:
        for _ in range(20_000):
            sum_of_squares(DATA)
    widths = p.lines[p.lines.function == "sum_of_squares"].vector_width.dropna()
    assert max(widths) >= 2
    assert "numbers at once" in str(p)


def test_without_a_budget_nothing_is_compiled_afterwards():
    """Then the lines of what was compiled before are not known, and that is said."""
    compiled_before = numba.njit(two_lines.py_func)
    compiled_before(DATA, 1)
    p = numbaprof.lines(compiled_before, twin_budget=0)
    p(DATA, 500)
    (info,) = p.result.sampling
    bins = dict(account_samples(p.result).bins)
    assert bins.get("function", 0) > 0
    assert "line" not in bins
    assert any("no twin" in problem for problem in info.problems)


@jitclass([("total", numba.float64)])
class Sum:
    """Add up in a method."""

    def __init__(self):
        self.total = 0.0

    def add(self, a):
        """Add what an array holds."""
        for x in a:
            self.total += np.exp(x)  # in a method


def test_method_of_a_jitclass_has_its_lines_and_none_of_what_calls_it():
    """Numba writes a function around each method; nobody asks for its lines."""
    numbers = Sum()
    with numbaprof.lines() as p:
        for _ in range(300):
            numbers.add(DATA)
    rows = p.lines[p.lines.samples > 0]
    assert set(rows.file) == {__file__}
    assert "Sum.add" in set(rows.function)
