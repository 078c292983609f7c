"""How long does starting take with 1,000 overloads alive, and is stopping exact?

The figures are for the first start in a process (the engine is built and tested), for
attaching to 1,000 overloads and detaching, and whether every patched byte is back. The
overloads are 1,000 dispatchers of a trivial function; compiling those takes a minute.

Run: python benchmarks/bench_attach.py [overloads]
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import time

OVERLOADS = 1_000
TARGET_ATTACH_S = 0.2
TARGET_FIRST_START_S = 0.3
FIRST_START = """
import time, numba
begin = time.perf_counter()
import numbaprof
profile = numbaprof.profile()
profile.start()
print(time.perf_counter() - begin)
profile.stop()
"""
IMPORT = """
import time, numba
begin = time.perf_counter()
import numbaprof
print(time.perf_counter() - begin)
"""
REPEATS = 7


def seconds_in_new_process(program: str) -> float:
    """Return the smallest time the program prints in several new processes."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        for _ in range(REPEATS)
    ]
    return min(float(run.stdout) for run in runs)


def make_overloads(count: int) -> list[object]:
    """Return ``count`` dispatchers with one overload each."""
    from numba import njit

    found = []
    for _ in range(count):

        def kernel(x):
            return x

        # The cheapest pipeline Numba has; what is compiled does not matter here.
        found.append(njit("int64(int64)", no_cfunc_wrapper=True)(kernel))
    return found


def entry_point_bytes(dispatchers: list[object]) -> bytes:
    """Return the bytes of all entry points and of their method definitions."""
    image = bytearray()
    for dispatcher in dispatchers:
        for cres in dispatcher.overloads.values():
            address = id(cres.entry_point)
            size = type(cres.entry_point).__basicsize__
            words = (ctypes.c_uint64 * (size // 8)).from_address(address)
            # The first word is the reference count.
            image += bytes(words)[8:]
            definition = words[2]
            image += bytes((ctypes.c_uint64 * 4).from_address(definition))
    return bytes(image)


def main(count: int) -> None:
    """Print the figures."""
    print(f"{platform.python_implementation()} {platform.python_version()}")
    print(f"  import after numba   {seconds_in_new_process(IMPORT) * 1e3:8.1f} ms")
    first = seconds_in_new_process(FIRST_START)
    print(
        f"  first start          {first * 1e3:8.1f} ms   "
        f"(target {TARGET_FIRST_START_S * 1e3:.0f})"
    )
    import numbaprof

    begin = time.perf_counter()
    dispatchers = make_overloads(count)
    print(f"  ({count} overloads compiled in {time.perf_counter() - begin:.0f} s)")
    full = []
    before = entry_point_bytes(dispatchers)
    for _ in range(REPEATS):
        begin = time.perf_counter()
        profile = numbaprof.profile()
        profile.start()
        started = time.perf_counter()
        profile.stop()
        full.append((started - begin, time.perf_counter() - started))
    after = entry_point_bytes(dispatchers)
    attach, detach = min(a for a, _ in full), min(d for _, d in full)
    print(
        f"  start with {count:5}     {attach * 1e3:8.1f} ms   "
        f"(target {TARGET_ATTACH_S * 1e3:.0f}), {attach / count * 1e6:.0f} us each"
    )
    print(f"  stop with  {count:5}     {detach * 1e3:8.1f} ms")
    print(f"  bytes of all entry points identical: {before == after}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else OVERLOADS)
