"""What do 100,000 kinds of arguments cost a traced function, in memory and per call?

Shapes, classes and structured dtypes, each in processes of its own: one profiled, one
not. A kind is made, passed once and dropped. Memory is the growth of the profiled
process beyond that of the other; the time of a call after the cap is the difference of
the minima over rounds of kinds never seen before.

Run: python benchmarks/bench_signature_cap.py [kinds]
"""

from __future__ import annotations

import gc
import json
import platform
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

import numbaprof

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = 100_000
WARM = 2_000
CHUNK = 1_000
ROUNDS = 7
TARGET_GROWTH_MB = 20.0
TARGET_NS = 1_000.0
BASE = np.zeros(2 * KINDS)

MAKERS: dict[str, Callable[[int], Any]] = {
    "shapes": lambda n: BASE[: n + 1],
    "classes": lambda n: type(f"C{n}", (), {})(),
    "structured dtypes": lambda n: np.zeros(1, [(f"f{n}", "i4")]),
}


def take(a: object) -> None:
    """Take anything."""


def pass_kinds(make: Callable[[int], Any], first: int, count: int) -> None:
    """Make that many kinds, a chunk at a time, and pass each of them once."""
    for begin in range(first, first + count, CHUNK):
        for thing in [make(number) for number in range(begin, begin + CHUNK)]:
            take(thing)
        del thing
        gc.collect()


def time_calls(make: Callable[[int], Any], first: int) -> float:
    """Return nanoseconds per call with kinds that were never seen."""
    things = [make(number) for number in range(first, first + CHUNK)]
    begin = time.perf_counter_ns()
    for thing in things:
        take(thing)
    return (time.perf_counter_ns() - begin) / CHUNK


def measure(what: str, kinds: int, *, profiled: bool) -> dict[str, float]:
    """Return memory growth in MB and nanoseconds per call, in this process."""
    make = MAKERS[what]
    profile = numbaprof.profile(python=True, builtins=False)
    if profiled:
        profile.start()
    pass_kinds(make, 0, WARM)
    before = psutil.Process().memory_info().rss
    pass_kinds(make, WARM, kinds)
    growth = psutil.Process().memory_info().rss - before
    first = WARM + kinds
    times = [time_calls(make, first + CHUNK * n) for n in range(ROUNDS)]
    rows = 0
    if profiled:
        profile.stop()
        rows = sum(row.name == "take" for row in profile.result.python_rows)
    return {"growth_mb": growth / 1e6, "ns": min(times), "rows": rows}


def in_child(what: str, kinds: int, *, profiled: bool) -> dict[str, float]:
    """Measure in a process of its own."""
    words = [what, str(kinds), "profiled" if profiled else "plain"]
    run = subprocess.run(
        [sys.executable, __file__, "--child", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def main(kinds: int) -> None:
    """Print a line per sort of kinds, with what was aimed at."""
    print(f"{kinds:,} kinds, CPython {platform.python_version()}")
    for what in MAKERS:
        plain = in_child(what, kinds, profiled=False)
        ours = in_child(what, kinds, profiled=True)
        growth = ours["growth_mb"] - plain["growth_mb"]
        added = ours["ns"] - plain["ns"]
        print(
            f"{what:18} {ours['rows']:.0f} rows, {growth:+.1f} MB "
            f"(at most {TARGET_GROWTH_MB:g}), {added:+.0f} ns per call after the cap "
            f"(at most {TARGET_NS:g}; plain {plain['ns']:.0f})"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child_what, child_kinds, mode = sys.argv[2:]
        found = measure(child_what, int(child_kinds), profiled=mode == "profiled")
        print(json.dumps(found))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else KINDS)
