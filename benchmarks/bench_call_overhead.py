"""What does measuring add to one call of a jitted function, against other ways?

All candidates are interleaved round by round in one process, so that a slow phase of
the machine hits all of them; the figure is the difference of the minima, per call.
Peers: a Python wrapper with two clock reads, and cProfile (on 3.12 and later with the
``sys.monitoring`` support of Numba's dispatcher switched on, without which cProfile
sees no jitted call at all).

Run: python benchmarks/bench_call_overhead.py [rounds]
"""

from __future__ import annotations

import cProfile
import functools
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

CALLS = 2_000
"""Calls per round and candidate; about 0.4 ms."""
ROUNDS = 150
TARGET_NS = 35.0
TARGET_RATIO = 15.0


@njit
def scalar(x):
    """Return the argument."""
    return x


@njit
def array(a):
    """Add up an array."""
    s = 0.0
    for v in a:
        s += v
    return s


@njit
def nothing():
    """Do nothing."""


SUBJECTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scalar(int)": (scalar, (1,)),
    "array(float64[10])": (array, (np.ones(10),)),
    "nothing()": (nothing, ()),
}


def time_calls(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Return nanoseconds per call of one round; the loop is the same for all."""
    clock = time.perf_counter_ns
    begin = clock()
    for _ in repeat(None, CALLS):
        function(*args)
    return (clock() - begin) / CALLS


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python wrapper that keeps, per function, a part of what numbaprof keeps.

    Calls, errors, total, minimum and maximum; no overloads, callers, own time or
    distribution.
    """
    stats = {"calls": 0, "errors": 0, "total": 0, "low": 2**62, "high": 0}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        except BaseException:
            stats["errors"] += 1
            raise
        finally:
            spent = time.perf_counter_ns() - begin
            stats["calls"] += 1
            stats["total"] += spent
            if spent < stats["low"]:
                stats["low"] = spent
            if spent > stats["high"]:
                stats["high"] = spent

    return wrapper


def under_numbaprof(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Time calls in a session."""
    profile = numbaprof.profile()
    profile.start()
    try:
        return time_calls(function, args)
    finally:
        profile.stop()


def under_cprofile(function: Callable[..., Any], args: tuple[Any, ...]) -> float:
    """Time calls under cProfile, which is made to see them."""
    if sys.version_info >= (3, 12):
        function._enable_sysmon = True  # as NUMBA_ENABLE_SYS_MONITORING=1 does
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        return time_calls(function, args)
    finally:
        profiler.disable()
        if sys.version_info >= (3, 12):
            function._enable_sysmon = False


CANDIDATES: dict[str, Callable[[Callable[..., Any], tuple[Any, ...]], float]] = {
    "plain": time_calls,
    "numbaprof": under_numbaprof,
    "wrapper": lambda function, args: time_calls(wrapped(function), args),
    "cProfile": under_cprofile,
}


def main(rounds: int) -> None:
    """Print the table and the ratio."""
    print(f"CPython {platform.python_version()}, {rounds} rounds")
    worst, ratio = 0.0, float("inf")
    for name, (function, args) in SUBJECTS.items():
        function(*args)
        best = dict.fromkeys(CANDIDATES, float("inf"))
        for _ in range(rounds):
            for candidate, run in CANDIDATES.items():
                best[candidate] = min(best[candidate], run(function, args))
        added = {c: best[c] - best["plain"] for c in CANDIDATES if c != "plain"}
        cheapest = min(value for c, value in added.items() if c != "numbaprof")
        worst = max(worst, added["numbaprof"])
        ratio = min(ratio, cheapest / added["numbaprof"])
        figures = "  ".join(f"{c} +{value:.1f}" for c, value in added.items())
        print(
            f"  {name:20} plain {best['plain']:.1f} ns  {figures}  "
            f"ratio {cheapest / added['numbaprof']:.1f}"
        )
    print(
        f"numbaprof adds at most {worst:.1f} ns per call (target {TARGET_NS:.0f} in a "
        f"quiet phase), {ratio:.1f} times less than the cheapest other way "
        f"(target {TARGET_RATIO:.0f})"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
