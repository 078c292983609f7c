"""Is a cold function benchmarked as a warm one is, and are its figures left alone?

Both under the plain ``benchmark`` fixture of pytest-benchmark, each pair of runs with
``--numbaprof`` and without, turn about. Prints

- calls that pytest-benchmark measured, cold over warm, and compilations in its rounds;
- medians of the warm functions, with ``--numbaprof`` over without, beside the same
  ratio of runs without against each other: the noise.

Run: python benchmarks/bench_pytest_companion.py [pairs]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path

PAIRS = 10
INSTALLED = bool(entry_points(group="pytest11", name="numbaprof"))
WITH = () if INSTALLED else ("-p", "numbaprof.pytest_plugin")

SUITE = """
import numpy as np
import pytest
from numba import njit

SIZES = [100, 10_000, 100_000]

def make():
    # A chain of dependent steps: its time hangs on no alignment of memory.
    @njit
    def chain(values):
        s = 0.0
        for i in range(values.size):
            s = s * 0.5 + values[i]
        return s
    return chain

@pytest.mark.parametrize("size", SIZES)
def test_cold(benchmark, size):
    benchmark(make(), np.ones(size))

@pytest.mark.parametrize("size", SIZES)
def test_warm(benchmark, size):
    chain, values = make(), np.ones(size)
    chain(values)
    benchmark(chain, values)
"""

Figures = dict[str, tuple[float, float, int | None]]


def run(folder: str, *options: str) -> Figures:
    """Return (median seconds, measured calls, compilations in rounds) by test."""
    file = Path(folder, "benchmarks.json")
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITH),
            *("--benchmark-max-time=0.5", f"--benchmark-json={file}", *options),
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found = {}
    for benchmark in json.loads(file.read_text())["benchmarks"]:
        stats, extra = benchmark["stats"], benchmark["extra_info"]
        compiles = extra["numbaprof"]["compiles_in_rounds"] if extra else None
        calls = stats["rounds"] * stats["iterations"]
        found[benchmark["name"]] = (stats["median"], calls, compiles)
    return found


def main(pairs: int) -> None:
    """Print the figures."""
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {pairs} runs"
    )
    plain, joined = [], []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_chain.py").write_text(SUITE)
        for number in range(pairs):
            for asked in (False, True) if number % 2 else (True, False):
                options = ("--numbaprof",) if asked else ()
                (joined if asked else plain).append(run(folder, *options))
    compiles = sum(count or 0 for figures in joined for _, _, count in figures.values())
    print(f"  compilations in measured rounds: {compiles}")
    print("  size     calls cold/warm, without   with     median with/without    A/A")
    for size in (100, 10_000, 100_000):
        cold, warm = f"test_cold[{size}]", f"test_warm[{size}]"
        calls = [
            statistics.median(figures[cold][1] / figures[warm][1] for figures in runs)
            for runs in (plain, joined)
        ]
        medians = [[figures[warm][0] for figures in runs] for runs in (plain, joined)]
        ratios = [b / a for a, b in zip(*medians, strict=True)]
        noise = [b / a for a, b in pairwise(medians[0])]
        print(
            f"  {size:7}  {calls[0]:24.5f}  {calls[1]:5.2f}  "
            f"{describe(ratios):>22}  {describe(noise)}"
        )


def describe(ratios: list[float]) -> str:
    """Return median and middle half."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
