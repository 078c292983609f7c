"""Does it matter for an overload's compile time which tests ran before its own?

Runs one suite in several orders and with each test alone (``-k``), with Numba's
compiler started beforehand as ``pytest --numbaprof`` does, with and without Python's
garbage collector (a full collection takes 70 ms or more, and falls into whatever
compilation is under way then), and not started beforehand; prints by how
much the exclusive CPU time of an overload's compilation is off from that in the first
order, as the largest and the median change over overloads. Each time is the least of
all runs: a busy machine makes CPU time longer as well, up to twice, and never shorter.

Run: python benchmarks/bench_pytest_order.py [runs]
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from importlib.metadata import entry_points
from pathlib import Path

import numbaprof

RUNS = 5
INSTALLED = bool(entry_points(group="pytest11", name="numbaprof"))
WITH = () if INSTALLED else ("-p", "numbaprof.pytest_plugin")
LIMIT = 0.25
"""What a gate on compile time has to bear (a fault that doubles it is +100 %)."""

SUITE = """
import numpy as np
import pytest
from numba import njit

A = np.arange(100.0)

@njit
def total(a):
    s = 0.0
    for i in range(a.size):
        s += a[i]
    return s

@njit
def scaled(a, k):
    return a * k + np.sqrt(a)

@njit
def table(n):
    d = {}
    for i in range(n):
        d[i] = i * 2.0
    return d[n - 1]

@njit
def ordered(a):
    return np.sort(a)[0] + a.mean()

@njit
def scalar(x):
    return x * x + 1

def test_total(): total(A)
def test_scaled(): scaled(A, 2.0)
def test_table(): table(3)
def test_ordered(): ordered(A)
def test_scalar(): scalar(3)
"""
TESTS = ("total", "scaled", "table", "ordered", "scalar")
UNPRIMED = """
from numbaprof.native import priming
priming._primed = True
"""
NO_COLLECTOR = """
import gc
gc.disable()
"""

Times = dict[str, list[float]]


def run(folder: str, *arguments: str) -> dict[str, float]:
    """Return the exclusive CPU seconds of each function's compilation."""
    file = Path(folder, "run.json")
    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITH),
            *("--numbaprof-save", str(file), *arguments),
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    result = numbaprof.load(file)
    return {
        event.function.qualname: (event.cpu_ns or 0) / 1e9
        for event in result.compile_events
        if event.function.qualname in TESTS
    }


def measure(folder: str, runs: int) -> dict[str, Times]:
    """Return CPU seconds by order and function."""
    ids = [f"test_order.py::test_{name}" for name in TESTS]
    orders = {
        "as written": [ids],
        "reversed": [ids[::-1]],
        "shuffled": [[ids[n] for n in (2, 4, 0, 3, 1)]],
        "each alone": [[test] for test in ids],
    }
    found: dict[str, Times] = {name: defaultdict(list) for name in orders}
    for _ in range(runs):
        for name, selections in orders.items():
            for selection in selections:
                for function, seconds in run(folder, *selection).items():
                    found[name][function].append(seconds)
    return found


def main(runs: int) -> None:
    """Print the figures."""
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {runs} runs"
    )
    for title, conftest in (
        ("primed, collector off", NO_COLLECTOR),
        ("primed", ""),
        ("not primed", UNPRIMED),
    ):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_order.py").write_text(SUITE)
            Path(folder, "conftest.py").write_text(conftest)
            found = measure(folder, runs)
        base = {name: min(v) for name, v in found["as written"].items()}
        print(
            f"  {title}; CPU ms in the order as written: "
            + ", ".join(f"{name} {base[name] * 1e3:.0f}" for name in TESTS)
        )
        for order, times in found.items():
            changes = {name: min(times[name]) / base[name] - 1 for name in TESTS}
            worst = max(changes, key=lambda name: abs(changes[name]))
            middle = statistics.median(abs(change) for change in changes.values())
            verdict = "within" if abs(changes[worst]) <= LIMIT else "beyond"
            print(
                f"    {order:10}  largest change {changes[worst]:+7.1%} ({worst}), "
                f"median {middle:6.1%}: {verdict} {LIMIT:.0%}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
