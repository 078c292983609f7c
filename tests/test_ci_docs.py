"""The commands that docs/ci.md and README.md give for continuous integration."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from numbaprof import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "ci.md"
QUICK = "--sessions 1 --confirm 0 --rounds 2 --round-time 300us"
KERNELS = """
from numba import njit

@njit
def double(x):
    return x + x
"""
TESTS = """
from kernels import double

def test_double(benchmark):
    assert benchmark(double, 21) == 42
"""


def blocks(language):
    """Return the fenced blocks of a language in docs/ci.md."""
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)


def shell_commands():
    """Return the commands of numbaprof in the shell blocks."""
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


def workflow_commands():
    """Return what the two services are told to run of numbaprof."""
    text = "\n".join(blocks("yaml"))
    found = re.findall(r"^ *- (?:run: )?(numbaprof .*)$", text, re.MULTILINE)
    assert len(found) == 2
    return found


@pytest.mark.parametrize("command", shell_commands())
def test_command_is_understood(capsys, tmp_path, monkeypatch, command):
    """Each command has options that exist; here its files do not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    program, *words = shlex.split(command)
    assert program == "numbaprof"
    with contextlib.suppress(SystemExit, FileNotFoundError):
        cli.main(words)
    assert "usage:" not in capsys.readouterr().err


def readme_commands():
    """Return the commands of the README's section on CI."""
    text = (ROOT / "README.md").read_text()
    section = text.partition("## In CI\n")[2].partition("\n## ")[0]
    commands = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert commands is not None
    return commands[1].strip().splitlines()


def test_readme_has_two_commands_for_ci():
    """A newcomer installs pytest with it and asks one question."""
    commands = readme_commands()
    assert len(commands) == 2
    assert commands[1].startswith("numbaprof ab ")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.parametrize("command", [*workflow_commands(), readme_commands()[1]])
def test_command_runs_as_it_is_written(tmp_path, command):
    """In a repository with a branch to merge into; quick options are added."""
    project, bin_ = tmp_path / "project", tmp_path / "bin"
    project.mkdir()
    bin_.mkdir()
    (project / "kernels.py").write_text(KERNELS)
    (project / "test_kernels.py").write_text(TESTS)
    script = bin_ / "numbaprof"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m numbaprof "$@" {QUICK}\n')
    script.chmod(0o755)
    for line in (
        "init -q",
        "add .",
        "-c user.name=A -c user.email=a@example.org commit -q -m first",
        "update-ref refs/remotes/origin/main HEAD",
    ):
        subprocess.run(["git", *line.split()], cwd=project, check=True)
    environment = os.environ | {
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD",
    }
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no regression" in done.stdout
    assert "kernels.double" in done.stdout
    if "junit=" in command:
        assert (project / "numbaprof.xml").read_text().startswith("<?xml")
    if "--github" in command:
        assert "no regression" in (tmp_path / "summary.md").read_text()
        assert (project / "numbaprof.md").read_text().startswith("## ")
