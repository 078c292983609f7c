"""How long do tables and a page of 60,000 calling contexts take?

The profile is made up: 500,000 calls of 200 overloads from 60,000 contexts, as deep as
twelve. Peer: reading the same profile from its own JSON, which anyone who looks at a
saved profile waits for as well. Times are CPU seconds of this process, so that a busy
machine changes them little.

Run: python benchmarks/bench_html.py [rounds]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numbaprof
from numbaprof import frames, icicle, store
from numbaprof.html import to_html
from numbaprof.model import CallSite, ContextNode, FunctionId, OverloadStats

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXTS = 60_000
CALLS = 500_000
OVERLOADS = 200
DEPTH = 12
ROUNDS = 5
TARGET_S = 1.0


def make_profile() -> numbaprof.ProfileResult:
    """Make a profile whose parts add up, from a measured one of nothing."""
    with numbaprof.profile() as p:
        pass
    rng = random.Random(0)
    parents = [-1]
    depths = [0]
    while len(parents) < CONTEXTS:
        parent = rng.randrange(len(parents))
        if depths[parent] < DEPTH:
            parents.append(parent)
            depths.append(depths[parent] + 1)
    own = [0] + [int(rng.paretovariate(0.7) * 1000) for _ in parents[1:]]
    inclusive = list(own)
    for index in range(len(parents) - 1, 0, -1):
        inclusive[parents[index]] += inclusive[index]
    calls = CALLS // len(parents)
    contexts = [
        ContextNode(
            "overload" if index else "thread",
            parents[index],
            overload=rng.randrange(OVERLOADS) if index else -1,
            via=CallSite(f"module{index % 40}.py", 10, f"caller{index % 90}")
            if index and depths[index] < 3
            else None,
            label="" if index else "MainThread",
            calls=calls if index else 0,
            inclusive_ns=inclusive[index],
            exclusive_ns=own[index],
        )
        for index in range(len(parents))
    ]
    overloads = [
        OverloadStats(
            FunctionId("demo", f"kernel{number}", "demo.py", 10 + number),
            "(float64[::1], int64)",
            "function",
            "compiled",
            calls=sum(node.calls for node in contexts if node.overload == number),
            inclusive_ns=sum(
                node.inclusive_ns for node in contexts if node.overload == number
            ),
            exclusive_ns=sum(
                node.exclusive_ns for node in contexts if node.overload == number
            ),
        )
        for number in range(OVERLOADS)
    ]
    run = replace(p.result.processes[0], wall_ns=inclusive[0])
    return replace(
        p.result,
        processes=(run,),
        overloads=tuple(overloads),
        contexts=tuple(contexts),
    )


def best(function: Callable[[], Any], rounds: int) -> float:
    """Return the shortest time of some rounds, in CPU seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    result = make_profile()
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "profile.json")
        store.save(result, saved)
        subjects: dict[str, Callable[[], Any]] = {
            "stats table": lambda: frames.stats_frame(result),
            "callers table": lambda: frames.callers_frame(result),
            "boxes of the picture": lambda: icicle.build(result),
            "whole page": lambda: to_html(result),
            "reading the JSON (peer)": lambda: store.load(saved),
        }
        seconds = {name: best(call, rounds) for name, call in subjects.items()}
    peer = seconds["reading the JSON (peer)"]
    print(f"{CONTEXTS:,} contexts, {CALLS:,} calls; best of {rounds}")
    for name, value in seconds.items():
        print(f"{name:<26} {value:7.3f} s  {value / peer:5.2f} x reading")
    size = len(to_html(result).encode())
    print(f"page: {size / 1e6:.2f} MB")
    for name in ("stats table", "callers table", "whole page"):
        verdict = "within" if seconds[name] < TARGET_S else "ABOVE"
        print(f"{name}: {verdict} {TARGET_S:g} s")


if __name__ == "__main__":
    main()
