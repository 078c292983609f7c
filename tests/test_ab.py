"""``numbaprof ab`` end to end: two pytest processes in lock-step, on tiny projects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from numbaprof import cli
from numbaprof.ab import AbOptions
from numbaprof.comparing import compare
from numbaprof.errors import OptionError
from numbaprof.runfile import load_run

KERNELS = """
from numba import njit

@njit
def total(a):
    s = a[0] * 0
    for i in range(a.shape[0]):
        s += a[i]
        EXTRA
    return s

@njit
def double(x):
    return x + x
"""
TESTS = """
import numpy as np
from kernels import double, total

def test_int(benchmark):
    assert benchmark(total, np.arange(500)) == 124750

def test_double_precision(benchmark):
    def setup():
        return (np.ones(500),), {}
    assert benchmark.pedantic(total, setup=setup, rounds=3) == 500.0

def test_single_precision(numbaprof):
    assert numbaprof(total, np.ones(500, np.float32)) > 0
"""
SLOWER_IN_SINGLE = """
        if a.itemsize == 4:
            for j in range(20):
                s = s * a[i] + a[j]
"""
QUICK = "--sessions 1 --confirm 0 --rounds 4 --round-time 300us"


def project(folder, *, extra="", tests=TESTS):
    """Write a project and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernels.py").write_text(
        KERNELS.replace("EXTRA", extra.strip() or "pass")
    )
    (folder / "test_kernels.py").write_text(tests)
    return folder


def ab(capsys, line):
    """Run ``numbaprof ab``; return exit code, stdout and stderr."""
    try:
        code = cli.main(["ab", *line.split()])
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def git(*arguments, cwd):
    """Run git as somebody."""
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(
        ["git", *identity, *arguments], cwd=cwd, check=True, capture_output=True
    )


def worktrees(folder):
    """Return what git lists, a line per worktree."""
    return subprocess.run(
        ["git", "worktree", "list"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
@pytest.mark.slow
def test_slowdown_of_one_overload_names_that_overload_alone(capsys, here):
    """Of three overloads of one function, one became slower: it is the only suspect.

    Two sessions and two to confirm cannot prove it; ``bench_ci_faults.py`` makes all.
    """
    project(here / "base")
    project(here / "head", extra=SLOWER_IN_SINGLE)
    line = "base head --sessions 1 --confirm 1 --rounds 6 --round-time 300us"
    line += " --min-effect 50%"  # single sessions on a busy machine are noisy
    code, out, err = ab(capsys, f"{line} --write csv=out.csv --fail time")
    (row,) = compare("numbaprof-ab.json").suspects
    assert (code, row.signature) == (0, "(float32[::1])")
    assert row.test == "test_kernels.py::test_single_precision"
    assert row.change > 0.5
    assert "no regression in 6 rows, 1 suspect" in out
    assert "confirming session 1 of 1: 1 test" in err
    assert "float32" in (here / "out.csv").read_text()


NEWCOMER = """
import numpy as np
from kernels import double, total

def test_total(benchmark):
    benchmark(total, np.ones(500))

def test_double(benchmark):
    benchmark(double, 3)

def test_nothing_measured():
    assert True
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["", " -- -p no:benchmark"])
def test_newcomer_compares_work_with_the_last_commit(capsys, here, arguments):
    """Two jitted functions, two plain tests, one command; with pytest-benchmark or not.

    The commit is checked out beside, and gone afterwards; nothing is left in the
    project but the run file.
    """
    project(here, tests=NEWCOMER)
    git("init", "-q", cwd=here)
    git("add", ".", cwd=here)
    git("commit", "-q", "-m", "first", cwd=here)
    kernels = here / "kernels.py"
    kernels.write_text("# moved\n" + kernels.read_text().replace("x + x", "3.5 * x"))
    code, out, _ = ab(capsys, f"HEAD {QUICK}{arguments}")
    assert code == 0
    rows = {
        (row.test, row.function): row for row in compare("numbaprof-ab.json").entries
    }
    assert ("test_kernels.py::test_total", "kernels.total") in rows
    double = rows["test_kernels.py::test_double", "kernels.double"]
    assert (double.file, double.status) == ("kernels.py", "common")
    assert double.base_ns > 0
    assert double.head_ns > 0
    assert double.base_calls == double.head_calls == 1
    assert double.base_compile_ns > 1e6
    assert "kernels.total" in out
    assert worktrees(here).count("\n") == 1
    assert {path.name for path in here.iterdir()} == {
        ".git", "kernels.py", "test_kernels.py", "numbaprof-ab.json"
    }  # fmt: skip


FAILING = """
import numpy as np
from kernels import total

def test_int(benchmark):
    assert benchmark(total, np.arange(500)) == 0

def test_new_name(benchmark):
    benchmark(total, np.ones(500))

def test_single_precision(benchmark):
    benchmark(total, np.ones(500, np.float32))
"""


@pytest.mark.long
@pytest.mark.slow
def test_failing_and_renamed_tests_are_told(capsys, here):
    """A test that fails on one side: exit code 2, the rest is measured all the same."""
    project(here / "base")
    project(here / "head", tests=FAILING)
    code, out, _ = ab(capsys, f"base head {QUICK} --format md")
    assert code == 2
    assert "1 of the common tests failed on the head side" in out
    rows = {row.test: row.status for row in compare("numbaprof-ab.json").entries}
    assert rows["test_kernels.py::test_double_precision"] == "gone test"
    assert rows["test_kernels.py::test_new_name"] == "new test"
    assert rows["test_kernels.py::test_single_precision"] == "common"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("import no_such_module\n", "the head side fails to collect: test_kernels.py"),
        ("def test_plain():\n    pass\n", "no common test"),
    ],
)
def test_side_without_tests_cannot_be_compared(capsys, here, tests, message):
    """One sentence, exit code 2."""
    project(here / "base")
    project(here / "head", tests=tests)
    code, out, err = ab(capsys, f"base head {QUICK}")
    assert (code, out) == (2, "")
    assert message in err


def test_side_that_does_not_start_is_shown(capsys, here):
    """A pytest that ends at once is quoted: here by an option it does not know."""
    project(here / "base")
    code, _, err = ab(capsys, f"base base {QUICK} -- --no-such-option")
    assert code == 2
    assert "did not start, exit code 4" in err
    assert "--no-such-option" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no-such-ref .", "no directory, no Python executable and no commit"),
        (". . --rounds 0", "rounds is 0"),
        (". . --sessions 0", "sessions is 0"),
        (". . --confirm -1", "confirm is -1"),
        (". . --round-time 2", "'2' is no duration"),
        (". . --round-time 0ms", "'0ms' is no duration"),
        (". . --budget soon", "'soon' is no duration"),
        (". . --resume", "nothing to resume"),
    ],
)
def test_wrong_arguments_are_told(capsys, here, line, message):
    """Each says what is expected; exit code 2."""
    code, out, err = ab(capsys, line)
    assert (code, out) == (2, "")
    assert message in err


def test_options_have_their_bounds():
    """A budget of nothing measures nothing."""
    with pytest.raises(OptionError, match="budget_s is 0"):
        AbOptions(budget_s=0)


SLEEPY = TESTS + textwrap.dedent(
    """
    import os, time
    def test_waits(benchmark):
        benchmark(total, np.ones(5))
        if os.path.exists(os.environ["WAIT_FLAG"]):
            time.sleep(60)
    """
)


def wait_for(condition, seconds=90):
    """Wait until something is the case."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.linux
def test_interrupt_keeps_what_was_measured(here):
    """Ctrl-C in the second session: exit code 2, file kept, nothing left running."""
    project(here, tests=SLEEPY)
    git("init", "-q", cwd=here)
    git("add", ".", cwd=here)
    git("commit", "-q", "-m", "first", cwd=here)
    flag = here / "flag"
    package = Path(cli.__file__).parents[1]
    environment = os.environ | {"WAIT_FLAG": str(flag), "PYTHONPATH": str(package)}
    line = "HEAD . --sessions 2 --confirm 0 --rounds 2 --round-time 300us"
    command = [sys.executable, "-m", "numbaprof", "ab", *line.split()]
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert "session 1 of 2" in process.stderr.readline()
    flag.touch()
    started = psutil.Process(process.pid)
    wait_for(lambda: len(started.children(recursive=True)) >= 2)
    children = started.children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interrupted: 1 of 2 sessions made; kept in numbaprof-ab.json" in err
    assert not any(child.is_running() for child in children)
    assert worktrees(here).count("\n") == 1
    run = load_run("numbaprof-ab.json")
    assert (run.sessions, run.stopped) == (1, "it was interrupted")
    flag.unlink()
    done = subprocess.run(
        [*command, "--resume"], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "session 2 of 2" in done.stderr
    assert load_run("numbaprof-ab.json").sessions == 2
