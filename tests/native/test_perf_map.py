"""Names of compiled functions in the file that perf reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import machine_code
import pytest
from numba import njit

import numbaprof
from numbaprof.errors import NumbaprofWarning, UnsupportedError
from numbaprof.native import numba_api, objcode, perf_map
from numbaprof.native.objcode import JitObject, Objects

pytestmark = pytest.mark.linux

FORMAT = re.compile(r"([0-9a-f]+) ([0-9a-f]+) (\S.*) \[(numba|jit)\]\n")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Return a folder in the place of /tmp."""
    monkeypatch.setattr(perf_map, "FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def kernel():
    """Return a compiled dispatcher."""

    @njit
    def mapped_kernel(x):
        return x + 0.25

    mapped_kernel(1.0)
    return mapped_kernel


def emitted() -> Objects:
    """Return two functions at known addresses."""
    data = machine_code.emit_inlined()
    return Objects([JitObject.from_bytes(data, 0x7F0000001000)], "test")


def test_lines_have_perfs_format():
    """START SIZE name, in hexadecimal without 0x, as jit-interface.txt says."""
    assert list(perf_map.lines_of(emitted(), {"outer": "f(int64)"})) == [
        "7f0000001000 1c f(int64) [jit]\n",
        "7f0000001020 8 bare [jit]\n",
    ]


def test_name_is_one_line():
    """Whatever a name contains, the line does not end in it."""
    (first, _) = perf_map.lines_of(emitted(), {"outer": "f(\n  int64)"})
    assert FORMAT.fullmatch(first)


def test_profile_appends_the_functions_of_this_process(folder, kernel):
    """Overload, wrappers, and everything else that is loaded; addresses are right."""
    with numbaprof.profile(perf_map=True):
        kernel(2.0)
    lines = perf_map.file_of(os.getpid()).read_text().splitlines(keepends=True)
    found = {m[3]: m for m in (FORMAT.fullmatch(line) for line in lines)}
    (overload,) = kernel.overloads.values()
    symbol = numba_api.kernel_symbol(overload)
    address = overload.library.get_pointer_to_function(symbol)
    name = next(n for n in found if n.endswith("mapped_kernel(float64)"))
    assert int(found[name][1], 16) == address
    assert found[name][4] == "numba"
    assert f"{name} (Python wrapper)" in found
    assert len(lines) == sum(
        len([s for s in one.symbols() if s.size]) for one in objcode.load_objects()
    )


def test_file_is_appended_to(folder, kernel):
    """CPython's own names stay, and so do those of an earlier profile."""
    path = perf_map.file_of(os.getpid())
    path.write_text("1000 10 py::main\n")
    perf_map.append(objcode.load_objects(), {})
    assert path.read_text().startswith("1000 10 py::main\n")
    assert path.stat().st_size > 100


def test_file_of_a_dead_process_is_emptied(folder, kernel):
    """One from before this process began has other code's names."""
    path = perf_map.file_of(os.getpid())
    path.write_text("1000 10 somebody_else\n")
    os.utime(path, (1, 1))
    perf_map.append(objcode.load_objects(), {})
    assert "somebody_else" not in path.read_text()


def test_file_is_private(folder, kernel):
    """Others cannot write into it; perf asks for no more than reading."""
    path = perf_map.append(objcode.load_objects(), {})
    assert path.stat().st_mode & 0o077 == 0


def test_link_is_not_followed(folder, kernel):
    """In a folder that all can write to, the name may be somebody's trap."""
    victim = folder / "victim"
    victim.write_text("precious")
    perf_map.file_of(os.getpid()).symlink_to(victim)
    with pytest.raises(UnsupportedError, match="cannot be written"):
        perf_map.append(objcode.load_objects(), {})
    assert victim.read_text() == "precious"


def test_file_of_somebody_else_is_left_alone(folder, kernel, monkeypatch):
    """Perf would not read it."""
    path = perf_map.file_of(os.getpid())
    path.write_text("precious")
    monkeypatch.setattr(perf_map.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UnsupportedError, match="belongs to somebody else"):
        perf_map.append(objcode.load_objects(), {})
    assert path.read_text() == "precious"


def test_code_that_cannot_be_found_is_a_reason(folder):
    """No empty file that looks like an answer."""
    with pytest.raises(UnsupportedError, match="was not found: stripped"):
        perf_map.append(Objects((), "none", "stripped"), {})
    assert list(folder.iterdir()) == []


def test_profile_goes_on_with_a_warning(monkeypatch, kernel, tmp_path):
    """The names are missing, the measurement is not."""
    monkeypatch.setattr(perf_map, "FOLDER", tmp_path / "missing")
    with (
        pytest.warns(NumbaprofWarning, match="no-perf-map"),
        numbaprof.profile(perf_map=True) as p,
    ):
        kernel(2.0)
    assert p.result.overloads


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN8__main__1fB2v1B90c8tJTC_2fWQdE", "__main__.f"),
        ("_ZN3pkg12_3clambda_3eB2v2B38c8tEd", "pkg.<lambda>"),
        ("_ZN7cpython8__main__1fB2v1Ed", "__main__.f (Python wrapper)"),
        ("cfunc._ZN8__main__1fB2v1Ed", "__main__.f (C wrapper)"),
        ("__gufunc__._ZN13_3cdynamic_3e4bodyB2v6E", "<dynamic>.body (loop)"),
        ("_ZN3pkg8my_abc_xE", "pkg.my_abc_x"),
        ("NRT_incref", "NRT_incref"),
        ("_ZN", "_ZN"),
        ("known", "its name"),
        ("cfunc.known", "its name (C wrapper)"),
    ],
)
def test_readable_name(symbol, name):
    """Mangled names are taken apart, wrappers named after their kernel."""
    assert perf_map.readable_name(symbol, {"known": "its name"}) == name


PROGRAM = """
import numpy as np
from numba import njit
@njit
def perf_sees_me(a):
    total = 0.0
    for k in range(3000):
        for x in a:
            total += np.sqrt(x + total)
    return total
perf_sees_me(np.ones(20000))
"""


@pytest.mark.long
@pytest.mark.slow
def test_perf_report_shows_the_name(tmp_path):
    """End to end, where perf is installed and may record."""
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    data = str(tmp_path / "perf.data")
    record = ["perf", "record", "-e", "cpu-clock:u", "-F", "200", "-o", data]
    run = [sys.executable, "-m", "numbaprof", "run", "--perf-map", "-q", str(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])}
    done = subprocess.run(
        [*record, *run],
        env=environment,
        cwd=Path(numbaprof.__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr[-200:]}")
    shown = subprocess.run(
        ["perf", "report", "-i", data, "--stdio", "--sort", "symbol"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for pid in set(re.findall(r"perf-(\d+)\.map", perf_maps(data))):
        Path(f"/tmp/perf-{pid}.map").unlink()
    assert "perf_sees_me(float64[::1]) [numba]" in shown


def perf_maps(data: str) -> str:
    """Return the map files that perf has used for a recording."""
    pids = subprocess.run(
        ["perf", "script", "-i", data, "-F", "pid"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return " ".join(
        f"perf-{pid}.map" for pid in set(pids) if Path(f"/tmp/perf-{pid}.map").exists()
    )
