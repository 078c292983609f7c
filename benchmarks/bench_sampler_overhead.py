"""What does sampling at the default rate cost the program, in CPU time?

The same work is done in chunks, with the sampler and without it in turn, so that a
machine that changes its speed changes it for both. Compared are the CPU times of the
thread that works; starting and stopping the sampler is timed apart. The ratio is taken
between the minima, the lower quartiles and the medians of the chunks, and once more as
the median over neighbours, with the range that holds it nine times of ten (bootstrap).

Run: python benchmarks/bench_sampler_overhead.py [chunks] [--interval-ns N] [--source S]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from numbaprof.sampler import Sampler, SamplerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNKS = 200
CHUNK_S = 0.04
"""Ten ticks of most kernels."""
TARGET = 1.02
RESAMPLES = 2000


@njit(nogil=True)
def kernel(values, repeats):
    """Return a sum that no compiler shortens."""
    total = 0.0
    for _ in range(repeats):
        for value in values:
            total += value * value - total * 1e-9
    return total


def in_compiled_code(repeats: int) -> float:
    """Work in a kernel, in the thread that started the sampler; return CPU seconds."""
    # Not process_time: while a timer is armed, the kernel reads that clock by the tick.
    begin = time.thread_time()
    kernel(VALUES, repeats)
    return time.thread_time() - begin


def in_other_thread(repeats: int) -> float:
    """Work in another thread, whose stack the kernel copies."""
    took = []
    thread = threading.Thread(target=lambda: took.append(in_compiled_code(repeats)))
    thread.start()
    thread.join()
    return took[0]


def in_interpreter(repeats: int) -> float:
    """Work in Python."""
    begin = time.thread_time()
    for _ in range(repeats):
        sum(range(1000))
    return time.thread_time() - begin


VALUES = np.random.default_rng(0).random(10_000)


def calibrate(work: Callable[[int], float]) -> int:
    """Return how many repeats take as long as a chunk is to be."""
    work(1)  # Compiles.
    repeats = 1
    while True:
        took = work(repeats)
        if took > CHUNK_S / 2:
            return max(1, round(repeats * CHUNK_S / took))
        repeats *= 2


def compare(
    work: Callable[[int], float], chunks: int, options: SamplerOptions
) -> tuple[list[float], list[float], list[float], int]:
    """Return CPU seconds of chunks without and with, of start and stop, and samples."""
    repeats = calibrate(work)
    plain, sampled, service, taken = [], [], [], 0
    for chunk in range(chunks):
        # Which comes first changes, too.
        for with_sampler in (chunk % 2 == 0, chunk % 2 == 1):
            if not with_sampler:
                plain.append(work(repeats))
                continue
            sampler = Sampler(options)
            begin = time.thread_time()
            sampler.start()
            started = time.thread_time()
            sampled.append(work(repeats))
            worked = time.thread_time()
            taken += sampler.stop().taken
            service.append(started - begin + time.thread_time() - worked)
    return plain, sampled, service, taken


def quartile(values: list[float]) -> float:
    """Return the lower quartile."""
    return statistics.quantiles(values, n=4)[0]


def report(
    name: str,
    plain: list[float],
    sampled: list[float],
    service: list[float],
    taken: int,
) -> None:
    """Print the ratios of one workload."""
    pairs = np.array(sampled) / np.array(plain)
    random = np.random.default_rng(1)
    medians = np.median(random.choice(pairs, (RESAMPLES, len(pairs))), axis=1)
    low, high = np.quantile(medians, [0.05, 0.95])
    ratios = [f(sampled) / f(plain) for f in (min, quartile, statistics.median)]
    print(
        f"{name}: {taken / sum(sampled):.0f} samples per CPU second; "
        f"CPU time with/without: minimum {ratios[0]:.4f}, lower quartile "
        f"{ratios[1]:.4f}, median {ratios[2]:.4f}, of neighbours "
        f"{np.median(pairs):.4f} [{low:.4f}, {high:.4f}]; start and stop "
        f"{statistics.median(service) * 1e3:.2f} ms; "
        f"target {TARGET}: {'met' if np.median(pairs) <= TARGET else 'MISSED'}"
    )


def main() -> None:
    """Compare all workloads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chunks", nargs="?", type=int, default=CHUNKS)
    parser.add_argument("--interval-ns", type=int, default=SamplerOptions().interval_ns)
    parser.add_argument("--source", default=SamplerOptions().source)
    arguments = parser.parse_args()
    options = SamplerOptions(arguments.interval_ns, arguments.source)
    print(f"Python {platform.python_version()}, {arguments.chunks} chunks of each kind")
    for work in (in_compiled_code, in_other_thread, in_interpreter):
        report(work.__name__, *compare(work, arguments.chunks, options))


if __name__ == "__main__":
    main()
