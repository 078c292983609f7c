"""``numbaprof explain``: which target is run, what goes where, what it exits with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from numbaprof.cli import main

SCRIPT = """\
import sys
import numpy as np
from numba import njit

@njit
def scaled(a):
    for i in range(a.shape[0]):
        a[i] *= 2.0

@njit
def unused(a):
    return a

if __name__ == "__main__":
    scaled(np.arange(4.0))
    print("arguments:", sys.argv[1:])
    sys.exit(3)
"""


def run(folder, *arguments):
    """Run the command in ``folder``."""
    return subprocess.run(
        [sys.executable, "-m", "numbaprof", "explain", *arguments],
        cwd=folder,
        env={
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "PATH": "",
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_program_keeps_its_output_arguments_and_exit_code(tmp_path):
    """The explanation of what it compiled goes to stderr."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tmp_path, "script.py", "--flag", "x")
    assert (done.returncode, done.stdout) == (3, "arguments: ['--flag', 'x']\n")
    assert "Why the lines of scaled have no time of their own" in done.stderr
    assert "unused has not been compiled yet" in done.stderr
    only = run(tmp_path, "script.py:scaled")
    assert "scaled(float64[::1])" in only.stderr
    assert "unused" not in only.stderr


@pytest.mark.slow
def test_function_of_a_module_is_imported_from_the_current_folder(tmp_path):
    """The explanation is what was asked for: stdout."""
    (tmp_path / "mine.py").write_text(SCRIPT.replace("@njit\n", "@njit('f8(f8)')\n", 0))
    (tmp_path / "eager.py").write_text(
        "from numba import njit\n@njit('f8(f8)')\ndef half(x):\n    return x / 2\n"
    )
    done = run(tmp_path, "eager:half")
    assert done.returncode == 0
    assert "half(float64)" in done.stdout
    lazy = run(tmp_path, "mine:scaled")
    assert (lazy.returncode, lazy.stdout) == (1, "")
    assert "numbaprof: scaled has not been compiled yet" in lazy.stderr


def test_target_that_is_neither_file_nor_function_is_refused(capsys):
    """With the forms there are."""
    assert main(["explain", "nothing-of-the-kind"]) == 2
    assert "give script.py, script.py:function or module:function" in (
        capsys.readouterr().err
    )
