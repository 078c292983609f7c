"""``numbaprof run``: when measuring begins and ends, and where the profile goes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import Runner

from numbaprof import store

CALL = "import numba; numba.kernel()\n"


@pytest.fixture
def runner(tmp_path):
    """Run programs with the false Numba."""
    return Runner(tmp_path)


def test_variables_set_before_the_import_of_numba_count(runner):
    """The program's own settings reach Numba, as without us."""
    runner.write(
        "import os, sys\nprint('numba' in sys.modules)\n"
        "os.environ['NUMBA_DISABLE_JIT'] = '1'\n"
        "import numba; print(numba.DISABLE_JIT)\n"
    )
    assert runner.profile("script.py").stdout == "False\n1\n"


@pytest.mark.parametrize(
    ("ending", "exit"),
    [
        ("", ""),
        ("import sys; sys.exit(3)", "SystemExit(3)"),
        ("import sys; sys.exit('no')", "SystemExit('no')"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os; os.kill(os.getpid(), 15)", "SIGTERM"),
    ],
)
def test_profile_is_saved_whatever_ends_the_program(runner, ending, exit):
    """The profile knows the calls and how the program ended."""
    runner.write(CALL + ending)
    run = runner.profile("script.py")
    assert run.calls == 1
    assert run.result.processes[0].exit == exit


def test_calls_of_atexit_handlers_are_in_the_profile(runner):
    """The profile is made after the program's own handlers have run."""
    runner.write(
        "import atexit, numba\natexit.register(numba.kernel)\n"
        "numba.kernel(); raise SystemExit(3)"
    )
    run = runner.profile("script.py")
    assert (run.exit_code, run.calls) == (3, 2)


def test_calls_of_threads_that_outlive_the_main_one_are_in_the_profile(runner):
    """Threads are joined before the profile is made."""
    runner.write(
        "import numba, threading\n"
        "def work():\n    threading.main_thread().join(); numba.kernel()\n"
        "threading.Thread(target=work).start()"
    )
    assert runner.profile("script.py").calls == 1


def test_program_that_handles_sigterm_keeps_its_handler(runner):
    """Our handler gives way, and the profile is made at the end."""
    runner.write(
        CALL + "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *a: print('mine'))\n"
        "os.kill(os.getpid(), signal.SIGTERM); numba.kernel()"
    )
    run = runner.profile("script.py")
    assert (run.stdout, run.exit_code, run.calls) == ("mine\n", 0, 2)


def test_sigterm_ends_the_process_as_it_would_without_us(runner):
    """A supervisor sees the signal in the exit status."""
    runner.write(CALL + "import os; os.kill(os.getpid(), 15)\nprint('not reached')")
    run = runner.profile("script.py")
    assert (run.stdout, run.exit_code) == ("", -signal.SIGTERM)


def test_interrupt_from_the_keyboard_leaves_a_profile(runner):
    """Ctrl-C on a program that runs for ever."""
    runner.write(CALL + "print('ready', flush=True)\nimport time\ntime.sleep(600)")
    command = [sys.executable, "-m", "numbaprof", "run", "-q", "-o", runner.output]
    with subprocess.Popen(
        [*command, "script.py"],
        cwd=runner.folder,
        env=runner.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == -signal.SIGINT
    assert stderr.endswith(b"KeyboardInterrupt\n")
    assert store.load(runner.output).processes[0].exit == "KeyboardInterrupt"


def test_report_goes_to_stderr(runner):
    """Stdout is the program's."""
    runner.write(CALL + "print('output')")
    run = runner.numbaprof("run", "script.py")
    assert run.stdout == "output\n"
    assert "kernel(int64)" in run.stderr


def test_report_is_printed_though_the_program_closed_stderr(runner):
    """The report goes where stderr went at the start."""
    runner.write(
        CALL + "import os, sys\nsys.stderr.close()\n"
        "sys.stderr = sys.__stderr__ = None\n"
    )
    assert "kernel(int64)" in runner.numbaprof("run", "script.py").stderr


def test_report_follows_its_options(runner):
    """The options of the report are those of ``numbaprof report``."""
    runner.write(CALL)
    run = runner.numbaprof("run", "--only", "no_such_function", "script.py")
    assert "kernel(int64)" not in run.stderr


def test_quiet_run_prints_nothing(runner):
    """With -q only problems are said."""
    runner.write(CALL)
    assert runner.numbaprof("run", "-q", "script.py").stderr == ""


def test_saved_profile_is_announced_instead_of_the_report(runner):
    """With -o the last line says what to do with the file."""
    runner.write(CALL)
    run = runner.numbaprof("run", "-o", "p.json", "script.py")
    assert run.stderr == (
        f"numbaprof: profile saved; see it with: numbaprof report {runner.output}\n"
    )


def test_output_is_relative_to_where_the_run_began(runner):
    """A program that changes its folder does not move the profile."""
    runner.write(CALL + "import os; os.chdir('/')")
    assert runner.numbaprof("run", "-o", "p.json", "script.py").calls == 1


def test_profile_is_rescued_when_the_output_cannot_be_written(runner):
    """A run is never lost to a wrong file name, and its exit code stands."""
    runner.write(CALL + "raise SystemExit(3)")
    run = runner.numbaprof("run", "-q", "-o", "no/such/p.json", "script.py")
    assert run.exit_code == 3
    found = re.search(r"No such file.*saved in (\S+) instead", run.stderr)
    assert found is not None
    assert store.load(Path(found[1])).overloads[0].calls == 1


def test_program_without_numba_is_said_to_be_one(runner):
    """Nothing measured is said, not shown as an empty table."""
    runner.write("print('output')")
    run = runner.numbaprof("run", "-o", "p.json", "script.py")
    assert run.stderr == (
        "numbaprof: nothing was measured: the program did not import numba\n"
    )
    assert not runner.output.exists()


def test_program_runs_though_measuring_cannot_start(runner):
    """What is wrong with us is said once and does not stop the program."""
    runner.write(CALL + "print('output'); raise SystemExit(3)")
    run = runner.profile("script.py", environment={"FAKE_START_FAILS": "1"})
    assert (run.stdout, run.exit_code) == ("output\n", 3)
    assert "could not start: RuntimeError: no such processor" in run.stderr


def test_program_decides_what_is_measured_when_started_disabled(runner):
    """Only calls between start and stop are in the profile."""
    runner.write(
        "import numba, numbaprof\nnumba.kernel()\n"
        "for _ in range(2):\n"
        "    assert numbaprof.start()\n    numba.kernel()\n"
        "    assert numbaprof.stop()\n    numba.kernel()\n"
    )
    run = runner.profile("--start-disabled", "script.py")
    assert run.calls == 2
    assert len(run.result.processes) == 2


def test_program_that_never_starts_is_told_how(runner):
    """--start-disabled without a start is a mistake."""
    runner.write(CALL)
    run = runner.profile("--start-disabled", "script.py")
    assert "did not call numbaprof.start()" in run.stderr


def test_patterns_of_detail_reach_the_session(runner):
    """--detail may be repeated."""
    runner.write(CALL)
    run = runner.profile("--detail", "a*", "--detail", "b", "script.py")
    assert run.result.processes[0].environment.numba_settings == (
        ("detail", "a*"),
        ("detail", "b"),
    )


def test_nothing_is_left_in_the_temporary_folder(runner):
    """The spool is removed with the run."""
    runner.write(CALL)
    runner.profile("script.py")
    assert runner.left_in_temporary_folder() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "signature"),
    [("ndim", "(array: float64[:])"), ("none", "")],
)
def test_python_functions_are_in_the_profile_when_asked_for(tmp_path, level, signature):
    """From the import of Numba on, also in a child that was spawned."""
    runner = Runner(tmp_path, fake=False)
    runner.write(
        "import numba, numpy, subprocess, sys\n"
        "def work(array): return len(array)\n"
        "work(numpy.empty(3)); work(numpy.empty(4))\n"
        "if len(sys.argv) == 1:\n"
        "    subprocess.run([sys.executable, 'script.py', 'child'], check=True)\n"
    )
    run = runner.profile("--python", "--signatures", level, "script.py")
    result = run.result
    result.check()
    found = {
        row.signature: row.calls for row in result.python_rows if row.name == "work"
    }
    assert (run.exit_code, found, len(result.processes)) == (0, {signature: 4}, 2)


CLOSED = """
import os
import numba
os.closerange(3, 64)
keep = open("data.txt", "w")
keep.write("mine")
keep.flush()
print(keep.fileno())
"""


def test_descriptor_that_a_program_took_over_is_its_own(runner):
    """A program that closes every file gets our number for one of its own."""
    runner.write(CLOSED)
    run = runner.python("-m", "numbaprof", "run", "script.py")
    assert (run.stdout, run.exit_code) == ("3\n", 0)
    assert (runner.folder / "data.txt").read_text() == "mine"
