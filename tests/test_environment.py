"""Facts for a profile's header."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from numbaprof import environment


def test_python_is_named():
    """Implementation and version."""
    version = ".".join(map(str, sys.version_info[:3]))
    assert environment.python_text() == f"CPython {version}"


def test_installed_package_has_its_version():
    """A package's version is that of its metadata."""
    import numba

    assert environment.package_version("numba") == numba.__version__


def test_missing_package_is_told():
    """What is not installed is said to be so."""
    assert environment.package_version("no-such-package-xyz") == "not installed"


def test_cpu_has_a_name(monkeypatch):
    """The processor's own name is taken from the kernel."""
    text = "processor : 0\nmodel name\t: Some CPU @ 3 GHz\n"
    monkeypatch.setattr(Path, "read_text", lambda self, **options: text)
    assert environment.cpu_name() == "Some CPU @ 3 GHz"


@pytest.mark.parametrize("text", ["", "processor : 0\n"])
def test_cpu_without_a_name_is_its_machine(monkeypatch, text):
    """Where the kernel tells no name the architecture has to do."""
    monkeypatch.setattr(Path, "read_text", lambda self, **options: text)
    monkeypatch.setattr(environment.platform, "machine", lambda: "riscv64")
    assert environment.cpu_name() == "riscv64"


def test_unreadable_cpuinfo_is_no_error(monkeypatch):
    """Systems without /proc are asked another way."""

    def fail(self, **options):
        raise OSError

    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.setattr(environment.platform, "processor", lambda: "arm")
    assert environment.cpu_name() == "arm"


def test_processors_are_those_we_may_use():
    """A process bound to some processors has so many."""
    assert environment.cpu_count() >= 1
    if hasattr(os, "sched_getaffinity"):
        assert environment.cpu_count() == len(os.sched_getaffinity(0))


def test_processors_without_affinity(monkeypatch):
    """Where affinity is unknown all are counted."""
    monkeypatch.delattr(environment.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(environment.os, "cpu_count", lambda: None)
    assert environment.cpu_count() == 1


def test_settings_are_numbas_only(monkeypatch):
    """Variables of other programs are not in a profile."""
    monkeypatch.setenv("NUMBA_OPT", "2")
    monkeypatch.setenv("NUMBAPROF_X", "1")
    monkeypatch.setenv("MY_NUMBA_SECRET", "1")
    found = dict(environment.numba_settings())
    assert found["NUMBA_OPT"] == "2"
    assert not {"NUMBAPROF_X", "MY_NUMBA_SECRET"} & found.keys()


def test_command_line_is_pythons():
    """The command line is the one the interpreter was started with."""
    assert environment.command_line() == tuple(sys.orig_argv)


def test_time_is_in_utc():
    """The time of day is ISO 8601 to the second, with its zone."""
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    assert re.fullmatch(pattern, environment.now_text())


def test_platform_names_system_and_machine():
    """Operating system, release and architecture."""
    assert environment.platform.machine() in environment.platform_text()
