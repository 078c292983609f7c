"""The file of ``numbaprof ab``."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
from run_builders import make_run, make_run_overload, make_side, make_times

from numbaprof import runfile
from numbaprof.errors import FormatError, SaveError


def equal(one, other):
    """Compare runs that hold NaN."""
    return repr(one) == repr(other)


def test_loaded_run_equals_the_saved_one(tmp_path):
    """Nothing is lost, not even a session without a value."""
    times = make_times(0.1, math.nan, 0.2)
    run = make_run(make_run_overload(times=(times,)), problems=("a problem",))
    runfile.save_run(run, tmp_path / "run.json")
    assert equal(runfile.load_run(tmp_path / "run.json"), run)


def sha(seed):
    """Return a hash as fingerprints have it in run files: 16 digits."""
    return f"{seed * 0x1234_5678_9ABC_DEF:016x}"


def test_row_takes_less_than_a_kilobyte(tmp_path):
    """Ten sessions of one overload in one test, pytest-benchmark's part included."""
    ratios = runfile.log_rounded(0.01234 + 0.00017 * n for n in range(10))
    base = runfile.significant(3801.23 + n for n in range(10))
    head = runfile.significant(4012.74 + n for n in range(10))
    times = runfile.TestTimes("tests/test_k.py::test_dot", base, head, ratios)
    side = make_side(sha(1)), make_side(sha(2))
    rows = [
        make_run_overload(
            f"package.kernels.kernel_{n}",
            times=(times,),
            base=side[0],
            head=side[1],
            base_tests=(),
            head_tests=(),
        )
        for n in range(100)
    ]
    runfile.save_run(make_run(*rows), tmp_path / "run.json")
    assert (tmp_path / "run.json").stat().st_size / len(rows) < 1024


def test_pytest_benchmark_reads_it(tmp_path):
    """``pytest-benchmark compare`` shows one line per test and overload."""
    pytest.importorskip("pytest_benchmark")
    for name in ("0001_base", "0002_head"):
        runfile.save_run(make_run(make_run_overload()), tmp_path / f"{name}.json")
    command = [sys.executable, "-m", "pytest_benchmark", "compare", "--columns=median"]
    done = subprocess.run(
        [*command, "0001_base.json", "0002_head.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("dot(float64[::1], float64[::1])") == 2


def test_unwritable_place_is_refused(tmp_path):
    """The message says what to do; nothing is left behind."""
    with pytest.raises(SaveError, match="choose a file"):
        runfile.save_run(make_run(), tmp_path / "no" / "run.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"numbaprof": 1}'])
def test_other_file_is_no_run(tmp_path, content):
    """The message says what is expected."""
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(FormatError, match="not a run file"):
        runfile.load_run(path)


def test_document_has_schema_and_version(tmp_path):
    """What reads it can tell what it is."""
    runfile.save_run(make_run(), tmp_path / "run.json")
    part = json.loads((tmp_path / "run.json").read_text())["numbaprof"]
    assert (part["schema"], part["version"]) == ("numbaprof-run", 1)
