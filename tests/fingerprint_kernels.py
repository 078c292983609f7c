"""Source of kernels for fingerprints, and the program that compiles variations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = """
import numpy as np
from numba import njit, prange
{blank}
@njit
def inlined(x):
    return x * {inlined}

@njit
def called(x):
    # Too large to be inlined everywhere, and recursive, so that it stays a function.
    if x > 100.0:
        return called(x / 2.0) + {called}
    if x < 0.0:
        raise ValueError("negative", x)
    return np.sin(x) * x

@njit
def loop(a):
    total = 0.0
    for i in range(a.size):
        total += inlined(a[i])
    return total

@njit
def caller(a):
    total = 0.0
    for x in a:
        total += called(x)
    return total

@njit(parallel=True)
def threaded(a):
    total = 0.0
    for i in prange(a.size):
        total += a[i] * {threaded}
    return total

@njit(fastmath=True)
def packed(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total

@njit
def even(n):
    return True if n == 0 else odd(n - 1)

@njit
def odd(n):
    return False if n == 0 else even(n - {step})

@njit
def table(k):
    if k == 0:
        return {table}
    elif k == 1:
        return 11.5
    elif k == 2:
        return 7.25
    elif k == 3:
        return 3.125
    elif k == 4:
        raise KeyError("no such row", k)
    return -1.0

@njit
def allocating(n):
    return np.zeros(n) + 1.5

def calls():
    a = np.linspace(0.0, 1.0, 32)
    return dict(loop=(a,), caller=(a,), threaded=(a,), packed=(a, a), even=(4,),
                table=(2,), allocating=(3,))
"""

PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
wanted = json.loads(sys.argv[3])
if sys.argv[4] == "lines":
    from numbaprof.native.linetable import LineTables
    LineTables(cached=True).start()
module = importlib.import_module(sys.argv[2])
if sys.argv[4] == "cache":
    # Numba 0.68 itself crashes on mutually recursive functions from its cache.
    for name, value in list(vars(module).items()):
        if hasattr(value, "enable_caching") and name not in ("even", "odd"):
            value.enable_caching()
from numbaprof.native import fingerprints, numba_api, objcode
calls = module.calls()
for name in wanted:
    getattr(module, name)(*calls[name])
objects = objcode.load_objects()
found = {}
for name in sorted(wanted):
    (overload,) = getattr(module, name).overloads.values()
    symbol = numba_api.kernel_symbol(overload)
    found[name] = fingerprints.fingerprint(symbol, objects).code
    if sys.argv[4] == "cache" and name == "loop":
        found["hits"] = sum(getattr(module, name).stats.cache_hits.values())
print(json.dumps(found))
"""

CONSTANTS = {
    "blank": "",
    "inlined": "3.5",
    "called": "1.25",
    "threaded": "2.25",
    "step": "1",
    "table": "5.75",
}
ALL = ["loop", "caller", "threaded", "packed", "even", "table", "allocating"]


def fingerprints_of(
    folder: Path,
    *,
    module: str = "kernels",
    order: list[str] | None = None,
    mode: str = "plain",
    **changes: str,
) -> dict[str, str]:
    """Write the source, compile it in a process of its own, and return the hashes."""
    folder.mkdir(parents=True, exist_ok=True)
    source = SOURCE.format(**(CONSTANTS | changes))
    (folder / f"{module}.py").write_text(source)
    tests = Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests), *sys.path]),
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTHONHASHSEED": "random",
    }
    wanted = json.dumps(ALL if order is None else order)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), module, wanted, mode],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
