"""What does tracing a Python call with signatures add, against cProfile without?

Interleaved round by round in one process; the difference of the minima, per call. The
last line of each block compares with the figure of data_profiler, the successor of
Accelerate's profiler, which no longer builds: 13,000 to 17,000 ns for two arrays
(measured with the last Pythons it builds on, see docs/accuracy.md).

Run: python benchmarks/bench_python_tracer.py [rounds]
"""

from __future__ import annotations

import cProfile
import platform
import sys
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

import numbaprof

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 400
ROUNDS = 60
TARGET_RATIO = 1.1
TARGET_JITTED_NS = 150.0
PREDECESSOR_NS = 13_000.0
TARGET_PREDECESSOR = 50.0


def empty():
    """Take nothing."""


def two(a, b):
    """Take two arrays."""
    return a


@njit
def jitted(x):
    """Be compiled."""
    return x


SUBJECTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "empty()": (empty, ()),
    "two(array, array)": (two, (np.ones(16, np.float32), np.ones((4, 4)))),
    "len(list)": (len, ([1],)),
    "jitted(int)": (jitted, (1,)),
}


def time_calls(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Return nanoseconds per call of one round; the loop is the same for all."""
    clock = time.perf_counter_ns
    begin = clock()
    for _ in repeat(None, CALLS):
        function(*args)
    return (clock() - begin) / CALLS


def under(profiler: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Time calls while a profiler is on, after those that it learns from."""
    profiler.enable()
    try:
        time_calls(function, args)
        return time_calls(function, args)
    finally:
        profiler.disable()


def main(rounds: int) -> None:
    """Print the table and the ratios."""
    print(f"CPython {platform.python_version()}, {rounds} rounds")
    added: dict[str, dict[str, float]] = {}
    for name, (function, args) in SUBJECTS.items():
        function(*args)
        best = dict.fromkeys(("plain", "cProfile", "numbaprof"), float("inf"))
        for _ in range(rounds):
            for candidate, value in (
                ("plain", time_calls(function, args)),
                ("cProfile", under(cProfile.Profile(), function, args)),
                ("numbaprof", under(numbaprof.Profile(), function, args)),
            ):
                best[candidate] = min(best[candidate], value)
        added[name] = {c: v - best["plain"] for c, v in best.items() if c != "plain"}
        figures = "  ".join(f"{c} +{value:.0f}" for c, value in added[name].items())
        print(f"  {name:20} plain {best['plain']:.0f} ns  {figures}")
    arrays = added["two(array, array)"]
    ratio = arrays["numbaprof"] / arrays["cProfile"]
    print(
        f"two arrays with signatures: {ratio:.2f} times what cProfile adds without "
        f"(target {TARGET_RATIO}), {PREDECESSOR_NS / arrays['numbaprof']:.0f} times "
        f"less than data_profiler (target {TARGET_PREDECESSOR:.0f})"
    )
    print(
        f"a jitted call: +{added['jitted(int)']['numbaprof']:.0f} ns "
        f"(target {TARGET_JITTED_NS:.0f}); cProfile sees it only up to 3.11"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
