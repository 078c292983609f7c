"""Does the compile time of an overload depend on which test comes first?

The first compilation of a process pays for starting the compiler: a second or two of
CPU time. ``numbaprof ab`` compiles something else first. This runs the same tests in
three orders, several sessions each, and prints for each overload the exclusive CPU time
of its compilation (median over sessions and both sides) and the largest ratio between
two orders; the target is 1.25.

Run: python benchmarks/bench_ci_compile_order.py [sessions]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench_ci_faults import KERNELS, TESTS, write

from numbaprof import environment
from numbaprof.ab import AbOptions, run_ab

ORDERS = (
    ("as written", ("test_chain", "test_dot", "test_clip", "test_roots")),
    ("reversed", ("test_roots", "test_clip", "test_dot", "test_chain")),
    ("two alone", ("test_clip", "test_chain")),
)
TARGET = 1.25


def compile_ms(folder: str, tests: tuple[str, ...], sessions: int) -> dict[str, float]:
    """Return the compile CPU time of each overload, milliseconds."""
    options = AbOptions(
        sessions=sessions,
        confirm=0,
        rounds=2,
        round_ns=200_000,
        budget_s=3600.0,
        output=Path(folder).parent / "run.json",
        pytest_args=tuple(f"test_kernels.py::{test}" for test in tests),
    )
    run = run_ab(folder, folder, options)
    return {
        overload.function.rpartition(".")[2]: statistics.median(
            (*overload.base.compile_cpu_ms, *overload.head.compile_cpu_ms)
        )
        for overload in run.overloads
        if overload.base is not None and overload.head is not None
    }


def main() -> None:
    """Print the table."""
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{environment.now_text()}, {environment.cpu_name()}, {sessions} sessions")
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name, "project"), KERNELS, TESTS)
        found = [compile_ms(folder, tests, sessions) for _, tests in ORDERS]
    print(f"| overload | {' | '.join(label for label, _ in ORDERS)} | ratio |")
    print("| --- | --- | --- | --- | --- |")
    worst = 1.0
    for function in found[0]:
        values = [times.get(function) for times in found]
        known = [value for value in values if value]
        ratio = max(known) / min(known)
        worst = max(worst, ratio)
        cells = [f"{value:.0f} ms" if value else "-" for value in values]
        print(f"| `{function}` | {' | '.join(cells)} | {ratio:.2f} |")
    print(f"\nlargest ratio {worst:.2f}, target {TARGET}")


if __name__ == "__main__":
    main()
