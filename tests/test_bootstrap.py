"""Waiting for a program to import Numba."""

from __future__ import annotations

import subprocess
import sys

import pytest
from running import ROOT, STARTUP_FILE, Runner

WATCH = """\
import sys
from numbaprof.bootstrap import call_when_numba_is_imported
call_when_numba_is_imported(lambda: print("called", "numba" in sys.modules))
"""


@pytest.fixture
def runner(tmp_path):
    """Run programs with the false Numba."""
    return Runner(tmp_path)


def test_callback_comes_after_numba_and_before_the_next_statement(runner):
    """The program's first line after its import is already measured."""
    done = runner.python("-c", WATCH + "print('a'); import numba; print('b')")
    assert done.stdout == "a\ncalled True\nb\n"


def test_callback_comes_at_once_when_numba_is_there(runner):
    """A process that has imported Numba need not import it again."""
    done = runner.python("-c", f"import numba\n{WATCH}print('after')")
    assert done.stdout == "called True\nafter\n"


def test_asking_whether_numba_is_installed_is_not_importing_it(runner):
    """``find_spec`` neither starts measuring nor ends the wait."""
    ask = "import importlib.util\nprint(importlib.util.find_spec('numba').name)\n"
    done = runner.python("-c", f"{WATCH}{ask}import numba")
    assert done.stdout == "numba\ncalled True\n"


def test_import_that_fails_can_be_repeated(runner):
    """A program that goes on without Numba, or tries again, is not disturbed."""
    fail = (
        "sys.path.insert(0, 'sub')\n"
        "try:\n    import numba\nexcept ZeroDivisionError:\n    print('failed')\n"
        "sys.path.pop(0)\nimport numba\n"
    )
    runner.write("1 / 0", "sub/numba.py")
    done = runner.python("-c", WATCH + fail)
    assert done.stdout == "failed\ncalled True\n"


def test_numba_looks_as_if_it_had_been_imported_alone(runner):
    """Loader, spec and finders are those of an undisturbed import."""
    show = (
        "import sys, numba\n"
        "print(type(numba.__loader__), type(numba.__spec__.loader))\n"
        "print(numba.__spec__.loader is numba.__loader__, sys.meta_path)\n"
    )
    watched = runner.python("-c", WATCH + show).stdout.split("\n", 1)[1]
    plain = runner.python("-c", show).stdout
    assert [line.split("0x")[0] for line in watched.splitlines()] == [
        line.split("0x")[0] for line in plain.splitlines()
    ]


def test_startup_file_imports_nothing_when_nothing_is_profiled(runner):
    """Every Python process on the machine reads it: it costs one look-up."""
    code = "import sys; print([m for m in sys.modules if 'numbaprof' in m])"
    assert runner.python("-c", code).stdout == "[]\n"


def test_startup_file_imports_only_the_bootstrap_in_a_child(runner):
    """A child that never imports Numba loads nothing that measures."""
    code = "import sys; print(*(m for m in sys.modules if 'numba' in m))"
    spool = {"NUMBAPROF_SPOOL": str(runner.folder)}
    loaded = set(runner.python("-c", code, environment=spool).stdout.split())
    assert "numbaprof.bootstrap" in loaded
    assert loaded.isdisjoint({"numba", "numbaprof.children", "numbaprof.recorder"})


def test_startup_file_is_one_line():
    """The site module runs each line that begins with ``import``."""
    (line,) = STARTUP_FILE.read_text().splitlines()
    assert line.startswith("import os; os.environ.get(")


def test_command_line_imports_neither_numba_nor_numpy():
    """Variables that a program sets before its own imports still count."""
    code = (
        "import sys, numbaprof.cli, numbaprof.runner, numbaprof.program\n"
        "print([m for m in ('numba', 'numpy', 'pandas', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
