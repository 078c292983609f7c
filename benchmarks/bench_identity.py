"""Is code the same with line tables, and is it with debug=True, and how fast is it?

Every kernel of ``tests/kernel_corpus.py`` is compiled in fresh processes: plainly, with
numbaprof's line tables, and with Numba's debug information (``NUMBA_DEBUGINFO=1``, or
``debug=True`` everywhere), which is what profilers that need a debugger ask for. The
objects that LLVM makes are compared one by one, and the CPU time per call is the least
of several measurements in several processes; parallel kernels are not timed, because
their threads spin. What is between plain and plain is the noise of the machine.

Run: python benchmarks/bench_identity.py [rounds]
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "kernel_corpus.py"
MODES = ("plain", "plain again", "lines", "debug=True")
ROUNDS = 2
REPEATS = 7
NOTABLE = 1.25
"""Ratio from which on a kernel is listed."""

VARYING = re.compile(r"B\d+v\d+.*|0x[0-9a-f]+|^\.kernel\.\d+")
"""What differs between the symbols of two processes."""


def compile_and_time(mode: str, folder: Path) -> dict[str, Any]:
    """Return objects and times of one fresh process."""
    output = folder / "out.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    # Object mode pickles a function into its code, whose length follows the order of
    # sets.
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    if mode == "debug=True":
        environment["NUMBA_DEBUGINFO"] = "1"
    name = "lines" if mode == "lines" else "plain"
    subprocess.run(
        [
            *(sys.executable, str(CORPUS), str(output)),
            *("--mode", name, "--repeat", str(REPEATS)),
        ],
        env=environment,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    outcome: dict[str, Any] = json.loads(output.read_text())
    return outcome


def identical(plain: list[dict[str, Any]], other: list[dict[str, Any]]) -> int:
    """Return how many objects of a plain run have their equal in another one."""

    def keys(objects: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
        return Counter(
            (found["sha256"], *(VARYING.sub("", name) for name in found["symbols"][:1]))
            for found in objects
        )

    return sum((keys(plain) & keys(other)).values())


def geometric_mean(values: list[float]) -> float:
    """Return the mean of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Compile, compare, print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    objects: dict[str, list[dict[str, Any]]] = {}
    seconds: dict[str, dict[str, float]] = {mode: {} for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for mode in MODES:
                found = compile_and_time(mode, Path(folder))
                objects[mode] = found["objects"]
                for name, value in found["seconds"].items():
                    best = seconds[mode].get(name, math.inf)
                    seconds[mode][name] = min(best, value)
    plain = objects["plain"]
    print("| against plain | objects | same code | other code | time | range |")
    print("| --- | --- | --- | --- | --- | --- |")
    for mode in MODES[1:]:
        same = identical(plain, objects[mode])
        ratios = [seconds[mode][k] / seconds["plain"][k] for k in seconds["plain"]]
        print(
            f"| {mode} | {len(plain)} | {same} | {len(plain) - same} "
            f"| x{geometric_mean(ratios):.2f} "
            f"| x{min(ratios):.2f} to x{max(ratios):.2f} |"
        )
    print(f"\n{len(seconds['plain'])} kernels; those that x{NOTABLE} or more apart:")
    for name, value in seconds["plain"].items():
        ratios = [seconds[mode][name] / value for mode in MODES[1:]]
        if any(not 1 / NOTABLE < ratio < NOTABLE for ratio in ratios):
            listed = ", ".join(
                f"{mode} x{ratio:.2f}"
                for mode, ratio in zip(MODES[1:], ratios, strict=True)
            )
            print(f"  {name}: {listed}")


if __name__ == "__main__":
    main()
