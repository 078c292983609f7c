"""How far is the sampled share of a line from the CPU time that it really took?

Each kernel has two sides, A and B, marked in its source, which are run in turn within
one sampled run. The truth is the CPU time of all threads, read around each side: the
same code, the same run, so a machine that changes its speed changes both. Compared with
it is the share of the samples that the line tables put on A's lines. The error of
counting (one sigma) is printed beside the error found.

Run: python benchmarks/bench_line_accuracy.py [--seconds S] [--source S]
     [--interval-ns N] [--tables twins|linetable] [--cases NAME,...] [--profila PYTHON]

With ``--tables twins`` the kernels are compiled as ever, and their tables come from
twins afterwards. ``--profila`` runs profila by the Python it is installed in, on the
same kernels, and shows what it reports beside the truth of its own run. It expects gdb
as ``~/.profila-gdb/bin/gdb``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

# As in the field notes; more threads of BLAS would only blur the sides.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numba import njit, prange

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 2.0
TURNS = 4
"""How often each side is run."""
TARGET = 0.02
"""Of the error of each case, or two sigma of counting where that is more."""
SELF = str(Path(__file__).resolve())


@njit
def two_loops(a, na, nb):
    """Run two loops that no compiler shortens."""
    s = 0.0
    for _ in range(na):  # A
        for i in range(a.size):  # A
            s += a[i] * a[i] - s * 1e-9  # A
    t = 1.0
    for _ in range(nb):  # B
        for i in range(a.size):  # B
            t = t * 0.999 + a[i]  # B
    return s + t


@njit
def libm(a, na, nb):
    """Call the C library in a loop, then add."""
    s = 0.0
    for _ in range(na):  # A
        for i in range(a.size):  # A
            s += math.sin(a[i])  # A
    t = 1.0
    for _ in range(nb):  # B
        for i in range(a.size):  # B
            t = t * 0.999 + a[i]  # B
    return s + t


@njit(parallel=True)
def parallel(a, na, nb):
    """Do both in the threads of a prange."""
    s = 0.0
    for i in prange(a.size):
        x = 0.0
        for k in range(na):  # A
            x += math.exp(a[i] * k * 1e-3)  # A
        y = 1.0
        for _ in range(nb):  # B
            y = y * 0.999 + a[i]  # B
        s += x + y
    return s


@njit
def inlined_helper(x):
    """Return a polynomial; LLVM inlines it."""
    return ((x * 0.5 + 1.0) * x + 0.25) * x - 0.125  # A


@njit
def recursive(n, x):
    """Return a sum over a binary tree."""
    if n == 0:  # B
        return x  # B
    return recursive(n - 1, x * 0.5) + recursive(n - 1, x + 1.0)  # B


@njit
def calls(a, na, nb):
    """Call an inlined helper, then a recursive function."""
    s = 0.1
    for _ in range(na):  # A
        for i in range(a.size):  # A
            s = inlined_helper(s + a[i]) * 1e-3  # A
    t = 0.0
    for k in range(nb):  # B
        t += recursive(10, a[k % a.size])  # B
    return s + t


@njit
def blas(m, na, nb):
    """Multiply matrices by BLAS, then evaluate an array expression."""
    s = 0.0
    for _ in range(na):  # A
        q = np.dot(m, m)  # A
        s += q[0, 0]  # A
    for _ in range(nb):  # B
        r = m * 2.0 + m * m - m  # B
        s += r[1, 1]  # B
    return s


@njit
def vectorised(a, na, nb):
    """Run a loop that LLVM vectorises, then one with a condition."""
    r = np.empty_like(a)
    for k in range(na):  # A
        for i in range(a.size):  # A
            r[i] = a[i] * 2.0 + k  # A
    s = 0.0
    for _ in range(nb):  # B
        for i in range(a.size):  # B
            if a[i] > 0.5:  # B
                s += r[i]  # B
    return s


@njit
def page_faults(a, na, nb):
    """Touch fresh pages, which the kernel has to find, then add."""
    s = 0.0
    for _ in range(na):  # A
        fresh = np.empty(1 << 20)  # A
        for i in range(0, fresh.size, 512):  # A
            fresh[i] = 1.0  # A
        s += fresh[0]  # A
    for _ in range(nb):  # B
        for i in range(a.size):  # B
            s += a[i] * a[i] - s * 1e-9  # B
    return s


VECTOR = np.random.default_rng(0).random(20_000)
MATRIX = np.random.default_rng(1).random((120, 120))
CASES: list[tuple[Any, Any, float]] = [
    (two_loops, VECTOR, 0.5),
    (two_loops, VECTOR, 0.9),
    (two_loops, VECTOR, 0.99),
    (libm, VECTOR, 0.5),
    (libm, VECTOR, 0.9),
    (parallel, VECTOR, 0.5),
    (parallel, VECTOR, 0.8),
    (calls, VECTOR, 0.5),
    (calls, VECTOR, 0.2),
    (blas, MATRIX, 0.5),
    (blas, MATRIX, 0.8),
    (vectorised, VECTOR, 0.5),
    (vectorised, VECTOR, 0.9),
    (page_faults, VECTOR, 0.5),
]


@dataclass(frozen=True)
class Plan:
    """How often to run each side of a kernel."""

    kernel: Any
    data: Any
    a: int
    b: int

    @property
    def name(self) -> str:
        """Of the kernel."""
        return str(self.kernel.py_func.__name__)


def marks() -> dict[int, str]:
    """Return A or B by line of this file."""
    found = {}
    for number, line in enumerate(Path(SELF).read_text().splitlines(), 1):
        match = re.search(r"  # ([AB])$", line)
        if match:
            found[number] = match.group(1)
    return found


def cpu_seconds() -> float:
    """Return the CPU time of all threads that there are, exact for each.

    The clock of the process is as coarse as the tick while the sampler is at work.
    """
    total = 0.0
    for tid in map(int, os.listdir("/proc/self/task")):
        # The CPU clock of another thread (kernel/time/posix-cpu-timers.c).
        total += time.clock_gettime(~tid << 3 | 6)
    return total


def plan(kernel: Any, data: Any, share: float, seconds: float) -> Plan:
    """Return how often to run each side for ``share`` of ``seconds`` on A."""
    kernel(data, 1, 1)
    rates = []
    for side in (0, 1):
        count = 1
        while True:
            begin = cpu_seconds()
            kernel(data, count * (1 - side), count * side)
            took = cpu_seconds() - begin
            if took > 0.05:
                break
            count *= 2
        rates.append(count / took)
    turn = seconds / TURNS
    return Plan(
        kernel,
        data,
        max(1, round(rates[0] * turn * share)),
        max(1, round(rates[1] * turn * (1 - share))),
    )


def run_sides(work: Plan) -> float:
    """Run both sides in turn; return the share of CPU time that A took."""
    took = [0.0, 0.0]
    for _ in range(TURNS):
        for side, counts in enumerate(((work.a, 0), (0, work.b))):
            begin = cpu_seconds()
            work.kernel(work.data, *counts)
            took[side] += cpu_seconds() - begin
    return took[0] / sum(took)


def side_of(frames: Iterator[tuple[str, int]], marked: dict[int, str]) -> str:
    """Return A or B by the innermost marked line, "" if there is none."""
    for file, line in frames:
        if file == SELF and line in marked:
            return marked[line]
    return ""


def measure(work: Plan, options: Any, tables: str) -> tuple[float, Counter[str]]:
    """Return the truth and the samples by side, "" for other places."""
    from numbaprof.native import twins
    from numbaprof.native.unwind import AddressSpace
    from numbaprof.sampler import Sampler

    sampler = Sampler(options)
    sampler.start()
    truth = run_sides(work)
    raw = sampler.stop()
    space = AddressSpace()
    twin_of: dict[int, Any] = {}
    if tables == "twins":
        stacks = raw.resolve(space, raw.stacks(space))
        hot: Counter[int] = Counter()
        for stack in stacks:
            hot.update({pc: stack.count for _, pc in stack.jit})
        wanted = [pc for pc, _ in hot.most_common()]
        with tempfile.TemporaryDirectory() as folder:
            store = twins.TwinStore(Path(folder))
            twin_of = twins.build(wanted=wanted, store=store).by_address
        space = AddressSpace(twins=twin_of)
    marked = marks()
    found: Counter[str] = Counter()
    for stack in raw.resolve(space, raw.stacks(space)):
        frames = (
            (frame.file, frame.line)
            for code, pc in stack.jit
            for frame in lines_at(code, pc, twin_of)
        )
        found[side_of(frames, marked)] += stack.count
    assert found.total() == raw.taken
    return truth, found


def lines_at(code: Any, pc: int, twin_of: dict[int, Any]) -> Any:
    """Return the source frames at an address, innermost first."""
    twin = twin_of.get(code.start, code)
    return twin.rows().lookup(pc - code.start + twin.start)


def report(name: str, truth: float, found: Counter[str]) -> tuple[float, bool]:
    """Print one case; return its error and whether it is small enough."""
    sides = found["A"] + found["B"]
    share = found["A"] / sides if sides else math.nan
    sigma = math.sqrt(truth * (1 - truth) / sides) if sides else math.nan
    print(
        f"  {name:12} truth {truth:.3f}  sampled {share:.3f}  "
        f"error {share - truth:+.3f}  (1 sigma {sigma:.3f})  {found.total()} samples, "
        f"{sides / max(1, found.total()):.1%} on the kernel's lines",
        flush=True,
    )
    error = abs(share - truth)
    return error, error <= max(TARGET, 2 * sigma)


def run_cases(arguments: argparse.Namespace) -> None:
    """Measure every case and print the errors."""
    from numbaprof.native.linetable import LineTables
    from numbaprof.sampler import SamplerOptions

    options = SamplerOptions(arguments.interval_ns, arguments.source)
    print(
        f"Python {platform.python_version()}, {options.source}, tables by "
        f"{arguments.tables}, {arguments.seconds:g} s each"
    )
    tables = LineTables()
    if arguments.tables == "linetable":
        tables.start()
    errors, missed, on_lines = [], 0, Counter[str]()
    for kernel, data, share in chosen(arguments.cases):
        work = plan(kernel, data, share, arguments.seconds)
        truth, found = measure(work, options, arguments.tables)
        error, is_small = report(work.name, truth, found)
        errors.append(error)
        missed += not is_small
        on_lines += found
    tables.stop()
    mean = sum(errors) / len(errors)
    print(
        f"  error: mean {mean:.4f}, largest {max(errors):.4f}; target {TARGET} or two "
        f"sigma: {f'MISSED by {missed}' if missed else 'met'}; samples on the kernels' "
        f"lines {1 - on_lines[''] / on_lines.total():.1%}"
    )


def chosen(names: str) -> list[tuple[Any, Any, float]]:
    """Return the cases whose kernels are named, all for ""."""
    wanted = set(filter(None, names.split(",")))
    return [case for case in CASES if not wanted or case[0].__name__ in wanted]


# -- profila ---------------------------------------------------------------------------

PROFILA_LINE = re.compile(r"^\s*([0-9.]+)%\s*\|(.*)$")


def run_profila(python: str, arguments: argparse.Namespace) -> None:
    """Run each case under profila and print what it says of A."""
    print("profila (a build with debug information, its own truth):")
    for kernel, data, share in chosen(arguments.cases):
        work = plan(kernel, data, share, arguments.seconds)
        job = json.dumps([work.name, work.a, work.b])
        command = [python, "-m", "profila", "annotate", "--", SELF, "--child", job]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - begin
        found = Counter[str]()
        for line in done.stdout.splitlines():
            match = PROFILA_LINE.match(line)
            side = match and re.search(r"# ([AB])\s*$", match.group(2))
            if match and side:
                found[side.group(1)] += float(match.group(1))
        truth = re.search(r"^TRUTH ([0-9.]+)", done.stdout, re.M)
        total = found.total()
        said = f"{found['A'] / total:.3f}" if total else "nothing"
        print(
            f"  {kernel.__name__:12} truth {truth.group(1) if truth else '?'}  "
            f"profila {said}  {total:.0f} % of its samples on the kernel's lines, "
            f"{wall:.0f} s",
            flush=True,
        )


def run_child(job: str) -> None:
    """Run one case by itself and print the truth."""
    name, a, b = json.loads(job)
    kernel, data, _ = next(case for case in CASES if case[0].__name__ == name)
    kernel(data, 1, 1)
    print(f"TRUTH {run_sides(Plan(kernel, data, a, b)):.4f}", flush=True)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--source", default="auto")
    parser.add_argument("--interval-ns", type=int, default=4_000_000)
    parser.add_argument("--tables", choices=("twins", "linetable"), default="twins")
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--profila", metavar="PYTHON", default="")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_child(arguments.child)
        return
    run_cases(arguments)
    if arguments.profila:
        run_profila(arguments.profila, arguments)


if __name__ == "__main__":
    sys.exit(main())
