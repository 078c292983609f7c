"""Does ``numbaprof ab`` stay silent on equal code and find planted faults?

Runs whole comparisons, as the command line does, on projects written for it:

- *A/A*: a project of 24 overloads against itself; also with the rule that equal machine
  code is never slower switched off, which leaves only the statistics;
- *faults*: a loop that is 10 % longer, a lost ``fastmath``, a temporary that became
  float32, and a comment that moves every line.

Prints how many runs were judged right. With ``--busy`` a second process keeps one
processor busy all the time. One run takes minutes.

Run: python benchmarks/bench_ci_faults.py [--aa N] [--faults N] [--sessions N] [--busy]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from numbaprof import environment
from numbaprof.ab import AbOptions, run_ab
from numbaprof.comparing import compare
from numbaprof.comparison import GateOptions

KERNELS = """
import numpy as np
from numba import njit

@njit
def chain(a):
    s = a[0]
    for i in range(a.shape[0]):
        s = s * 0.5 + a[i]
    return s

@njit(fastmath=True)
def dot(a, b):
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    return s

@njit
def clip(a, low):
    r = np.empty_like(a)
    for i in range(a.shape[0]):
        r[i] = a[i] if a[i] > low else low
    return r

@njit
def roots(a):
    s = 0.0
    for i in range(a.shape[0]):
        s += np.sqrt(a[i])
    return s

def pipeline(a):
    return roots(a) + dot(a, a)
"""
FAULTY = (
    KERNELS.replace("import numpy", "# moves every line\n\nimport numpy", 1)
    .replace("s = s * 0.5 + a[i]\n", "s = s * 0.5 + a[i]\n        if i % 10 == 0:\n"
             "            s = s * 0.5 + 1.0\n")
    .replace("@njit(fastmath=True)", "@njit")
    .replace("return roots(a) + dot(a, a)",
             "b = a.astype(np.float32)\n    return roots(a) + dot(a, a) + "
             "dot(b[:4], a[:4])")
)  # fmt: skip
TESTS = """
import numpy as np
import kernels

A = np.random.RandomState(0).rand(20000)

def test_chain(benchmark):
    benchmark(kernels.chain, A)

def test_dot(benchmark):
    benchmark(kernels.dot, A, A)

def test_clip(benchmark):
    benchmark(kernels.clip, A, 0.5)

def test_roots(benchmark):
    benchmark(kernels.roots, A)

def test_pipeline(benchmark):
    benchmark(kernels.pipeline, A)
"""
MANY_TESTS = """
import numpy as np
import pytest
import kernels

FORMS = {
    "float64": np.ones(4000), "float32": np.ones(4000, np.float32),
    "strided": np.ones(8000)[::2], "int64": np.ones(4000, np.int64),
    "int32": np.ones(4000, np.int32), "uint8": np.ones(4000, np.uint8),
}

@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["chain", "dot", "clip", "roots"])
def test_kernel(benchmark, name, form):
    a = FORMS[form]
    more = {"dot": (a,), "clip": (a[0],)}.get(name, ())
    benchmark(getattr(kernels, name), a, *more)
"""


def write(folder: Path, kernels: str, tests: str) -> str:
    """Write a project and return its folder."""
    folder.mkdir(parents=True)
    (folder / "kernels.py").write_text(kernels)
    (folder / "test_kernels.py").write_text(tests)
    return str(folder)


def measure(base: str, head: str, options: AbOptions, **gates: bool):
    """Run one comparison; return it and its length in seconds."""
    started = time.monotonic()
    run = run_ab(base, head, options, gates=GateOptions(**gates))
    return compare(run, **gates), time.monotonic() - started


def judge_faults(comparison) -> dict[str, bool]:
    """Say which of the planted faults were judged right."""
    gates = {
        (row.test.rpartition("::")[2], row.function.rpartition(".")[2], row.signature):
        {failure.gate for failure in row.failures}
        for row in comparison.entries
    }  # fmt: skip
    one, two = "(float64[::1])", "(float64[::1], float64[::1])"
    untouched = [
        row for row in comparison.entries if row.function.endswith((".clip", ".roots"))
    ]
    return {
        "10 % longer loop: slower": "time" in gates["test_chain", "chain", one],
        "lost fastmath: vectorisation lost": "simd" in gates["test_dot", "dot", two],
        "lost fastmath: slower": "time" in gates["test_dot", "dot", two],
        "float32 temporary: new overload": any(
            "new" in found and "float32" in key[2] for key, found in gates.items()
        ),
        "moved lines: same code, no failure": bool(untouched)
        and all(row.code == "same" and not row.failed for row in untouched),
        "exit code 1": comparison.exit_code == 1,
    }


def run_faults(folder: Path, runs: int, options: AbOptions) -> None:
    """Print how often each fault was judged right."""
    base = write(folder / "base", KERNELS, TESTS)
    head = write(folder / "head", FAULTY, TESTS)
    right: dict[str, int] = {}
    changes = []
    for _ in range(runs):
        comparison, seconds = measure(base, head, options)
        for name, found in judge_faults(comparison).items():
            right[name] = right.get(name, 0) + found
        (chain,) = (r for r in comparison.entries if r.function.endswith(".chain"))
        changes.append(f"{chain.change:+.1%} in {seconds:.0f} s")
        print(f"faults: {changes[-1]}: {comparison.verdict}", flush=True)
    print("\n| planted fault | judged right | ratio |\n| --- | --- | --- |")
    for name, count in right.items():
        print(f"| {name} | {count} of {runs} | {count / runs:.2f} |")


def run_equal(folder: Path, runs: int, options: AbOptions) -> None:
    """Print how often equal code raised an alarm."""
    same = write(folder / "same", KERNELS, MANY_TESTS)
    copy = write(folder / "copy", KERNELS, MANY_TESTS)
    print("\n| A/A | rows | runs | with an alarm | rows failing | noise |")
    print("| --- | --- | --- | --- | --- | --- |")
    for label, gates in (("as shipped", {}), ("code ignored", {"ignore_code": True})):
        alarms = failing = rows = 0
        noise = []
        for _ in range(runs):
            comparison, _ = measure(same, copy, options, **gates)
            failing += len(comparison.failing)
            alarms += bool(comparison.failing)
            rows = sum(bool(row.function) for row in comparison.entries)
            if comparison.noise is not None:
                noise += [comparison.noise.low, comparison.noise.high]
        spread = f"{min(noise):+.1%} to {max(noise):+.1%}" if noise else "-"
        print(f"| {label} | {rows} | {runs} | {alarms} | {failing} | {spread} |",
              flush=True)  # fmt: skip


def keep_busy() -> None:
    """Use one processor for good."""
    while True:
        sum(range(10**6))


def main() -> None:
    """Run what was asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--aa", type=int, default=1, metavar="N")
    parser.add_argument("--faults", type=int, default=1, metavar="N")
    parser.add_argument("--sessions", type=int, default=5, metavar="N")
    parser.add_argument("--rounds", type=int, default=30, metavar="N")
    parser.add_argument("--busy", action="store_true")
    given = parser.parse_args()
    print(f"{environment.now_text()}, {environment.cpu_name()}, "
          f"{environment.cpu_count()} processors, {environment.python_text()}, load "
          f"{os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    companion = multiprocessing.Process(target=keep_busy, daemon=True)
    if given.busy:
        companion.start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = AbOptions(
            sessions=given.sessions,
            confirm=given.sessions,
            rounds=given.rounds,
            budget_s=3600.0,
            output=folder / "run.json",
        )
        if given.faults:
            run_faults(folder, given.faults, options)
        if given.aa:
            run_equal(folder, given.aa, options)
    if given.busy:
        companion.terminate()


if __name__ == "__main__":
    main()
