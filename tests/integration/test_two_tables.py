"""The table of a program built on stumpy: ours beside cProfile's.

``two_tables.py`` runs the program under both. From Python 3.12 on cProfile does not see
compiled functions, so our rows of overloads must be the only difference; before, the
tables are equal to the last number. Those of pynndescent are not, as it should be: it
has Numba find the types of functions in each call, which is Python code that cProfile
shows and we count as dispatch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_real_programs import PROGRAMS, ROOT, TIMEOUT_S, needs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real programs")]

Row = tuple[str, int, str]
Table = dict[Row, tuple[int, int, dict[Row, tuple[int, int]]]]


def run_under_both(folder: Path, backend: str, *program: str | Path) -> dict:
    """Run a program under both profilers."""
    out = folder / f"{backend}.json"
    subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("two_tables.py")),
            str(out),
            *map(str, program),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NUMBAPROF_BACKEND": backend,
            "NUMBA_CACHE_DIR": str(folder.parent / "cache of two tables"),
            "NUMBA_NUM_THREADS": "2",
        },
        timeout=TIMEOUT_S,
        check=True,
    )
    return json.loads(out.read_text())


def read(rows: list) -> Table:
    """Return a table as pstats has it."""
    return {
        (file, line, name): (
            primitive,
            calls,
            {tuple(caller[:3]): tuple(caller[3:]) for caller in callers},
        )
        for file, line, name, primitive, calls, callers in rows
    }


def without(table: Table, compiled: set[Row]) -> Table:
    """Leave compiled functions out, and whom they called to their callers."""
    return {
        row: (primitive, calls, through(callers, compiled, table))
        for row, (primitive, calls, callers) in table.items()
        if row not in compiled
    }


def through(callers: dict, compiled: set[Row], table: Table) -> dict:
    """Replace compiled callers that have one caller themselves by that one."""
    found: dict[Row, tuple[int, int]] = {}
    for caller, counts in callers.items():
        while caller in compiled:
            (caller,) = table[caller][2]
        old = found.get(caller, (0, 0))
        found[caller] = (old[0] + counts[0], old[1] + counts[1])
    return found


@needs("stumpy")
@pytest.mark.parametrize("backend", ["native", "python"])
def test_table_of_stumpy_is_that_of_cprofile(tmp_path, backend):
    """Rows, both halves of ncalls and every caller's counts."""
    arguments = (PROGRAMS / "matrix_profile.py", ROOT / "examples" / "nile.csv")
    found = run_under_both(tmp_path, backend, *arguments)
    ours, theirs = read(found["numbaprof"]), read(found["cProfile"])
    compiled = {tuple(row) for row in found["compiled"]} & set(ours)
    assert len(compiled) >= 10
    if sys.version_info >= (3, 12):
        assert not compiled & set(theirs)
        ours = without(ours, compiled)
    assert ours == theirs
    assert len(ours) > 200
    assert found["backend"][0] == backend_name(backend)


def backend_name(backend: str) -> str:
    """Return what a backend calls itself."""
    if backend == "native":
        return backend
    return "sys.monitoring" if sys.version_info >= (3, 12) else "sys.setprofile"
