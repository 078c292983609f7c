"""What does the start of pytest cost more where numbaprof is installed and not asked?

Compares pytest on one empty test with and without the plugin, turn about, in wall time
and in CPU time of the process, and prints the ratio of the medians; beside it the ratio
of two halves of the runs without, which are the same program: the noise.

Run: python benchmarks/bench_pytest_start.py [runs]
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import entry_points
from pathlib import Path

RUNS = 40
INSTALLED = bool(entry_points(group="pytest11", name="numbaprof"))
WITH = () if INSTALLED else ("-p", "numbaprof.pytest_plugin")
WITHOUT = ("-p", "no:numbaprof")


def run(folder: str, plugin: tuple[str, ...]) -> tuple[float, float]:
    """Return (wall seconds, CPU seconds) of one run of pytest."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def main(runs: int) -> None:
    """Print the figures."""
    print(
        f"{platform.python_implementation()} {platform.python_version()}, {runs} runs"
    )
    plain: list[tuple[float, float]] = []
    loaded: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test(): pass\n")
        for number in range(runs + 1):
            sides = [(plain, WITHOUT), (loaded, WITH)]
            for figures, plugin in sides if number % 2 else reversed(sides):
                found = run(folder, plugin)
                if number:
                    figures.append(found)
    for index, name in enumerate(("wall", "CPU")):
        without = [figures[index] for figures in plain]
        with_it = [figures[index] for figures in loaded]
        noise = statistics.median(without[::2]) / statistics.median(without[1::2])
        ratio = statistics.median(with_it) / statistics.median(without)
        print(
            f"  {name:4}  {statistics.median(without) * 1e3:6.0f} ms without, "
            f"{statistics.median(with_it) * 1e3:6.0f} ms with: ratio {ratio:.3f}, "
            f"of the same program {noise:.3f}; "
            f"minima {min(without) * 1e3:.0f} and {min(with_it) * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
