"""Kernels of every kind that Numba compiles, and a program that compiles them.

``python tests/kernel_corpus.py FILE [--mode plain|lines|remarks] [--only NAME,NAME]
[--repeat N]`` compiles the kernels in a fresh process, calls each, and writes to FILE
as JSON: every object that LLVM made (SHA-256 and size of its machine code, whether it
has a line table, its first symbols), and the least CPU time per call of N measurements.
Objects of two runs can be compared one by one, because they come in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np
from numba import njit, prange, typed, types
from numba.experimental import jitclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Kernel:
    """How one kernel is compiled and called."""

    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    options: dict[str, Any] = field(default_factory=dict)
    decorate: Callable[..., Any] = njit

    @property
    def is_parallel(self) -> bool:
        """Whether several threads run it."""
        return bool(self.options.get("parallel")) or "target" in self.options

    def compile(self, **options: Any) -> Callable[..., Any]:
        """Return the decorated function; what is lazy compiles at its first call."""
        return self.decorate(**self.options | options)(self.function)


CORPUS: dict[str, Kernel] = {}


def kernel(
    *arguments: Callable[[], Any],
    decorate: Callable[..., Any] = njit,
    **options: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the corpus, with makers of its arguments."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        CORPUS[function.__name__] = Kernel(
            function, lambda: tuple(make() for make in arguments), options, decorate
        )
        return function

    return enter


# ---------------------------------------------------------------------------- arguments


def vector() -> np.ndarray:
    """Return 1000 numbers between 0 and 1."""
    return np.random.default_rng(0).random(1000)


def shifted() -> np.ndarray:
    """Return 1000 numbers between 1 and 2."""
    return np.random.default_rng(1).random(1000) + 1


def matrix() -> np.ndarray:
    """Return a matrix that can be inverted."""
    return np.random.default_rng(2).random((30, 30)) + 30 * np.eye(30)


def number(value: Any) -> Callable[[], Any]:
    """Return a maker of ``value``."""
    return lambda: value


def histogram() -> np.ndarray:
    """Return eleven bins."""
    return np.zeros(11, dtype=np.int64)


def vectorized(**options: Any) -> Callable[..., Any]:
    """Return a decorator with one eager signature."""
    return nb.vectorize(["float64(float64,float64)"], **options)


def vectorized_lazily(**options: Any) -> Callable[..., Any]:
    """Return a decorator that compiles at the first call."""
    return nb.vectorize(**options)


def generalized(**options: Any) -> Callable[..., Any]:
    """Return a decorator of a generalized ufunc."""
    signature = "void(float64[:],float64,float64[:])"
    return nb.guvectorize([signature], "(n),()->(n)", **options)


def c_callback(**options: Any) -> Callable[..., Any]:
    """Return a decorator whose result is called through its C address."""

    def decorate(function: Any) -> Any:
        made = nb.cfunc("float64(float64)", **options)(function)
        return made.ctypes

    return decorate


# ------------------------------------------------------------------------------ callees


@njit
def squared(x):
    """Be inlined by LLVM."""
    return x * x + 1.0


@njit
def polynomial(x):
    """Call another function."""
    y = squared(x)
    return y * 0.5 + math.sin(y)


@njit(inline="always")
def inlined_early(x):
    """Be inlined by Numba."""
    y = x * 3.0
    return y - 1.0


@njit(inline="always")
def inlined_twice(x):
    """Be inlined by Numba, with what it inlines."""
    z = inlined_early(x) + 2.0
    return z * 0.25


@njit(forceinline=True)
def forced(x):
    """Be inlined by order."""
    return x * x - 2


@njit
def fibonacci(n):
    """Recurse."""
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@njit
def countdown(n):
    """Be a generator."""
    while n > 0:
        n -= 1
        yield n * n


@jitclass([("total", types.float64), ("count", types.int64)])
class Mean:
    """Have state, a method and a property."""

    def __init__(self):
        self.total = 0.0
        self.count = 0

    def add(self, value):
        """Take a value."""
        self.total += value * value
        self.count += 1

    @property
    def mean(self):
        """Return what it is all about."""
        return self.total / self.count


@nb.stencil
def cross(a):
    """Look at four neighbours."""
    return 0.25 * (a[0, 1] + a[1, 0] + a[0, -1] + a[-1, 0])


# --------------------------------------------------------------------------- the corpus


@kernel(vector, vector)
def two_loops(a, out):
    """Have one loop that vectorizes and one that does not."""
    for i in range(len(a)):
        out[i] = (7 + a[i] / 9 + (a[i] ** 2) / 7) / 5
    total = 0.0
    for i in range(len(out)):
        total += np.sin(out[i])
    return total


@kernel(vector)
def calls(a):
    """Call functions that LLVM inlines."""
    total = 0.0
    for x in a:
        total += polynomial(x)
    return total


@kernel(vector, parallel=True)
def parallel_loop(a):
    """Reduce in parallel."""
    total = 0.0
    for i in prange(len(a)):
        total += np.exp(a[i])
    return total


@kernel(vector, parallel=True, fastmath=True, error_model="numpy", nogil=True)
def parallel_fast(a):
    """Reduce in parallel with every option."""
    total = 0.0
    for i in prange(len(a)):
        total += np.sqrt(a[i]) / (1 + a[i])
    return total


@kernel(matrix, parallel=True)
def parallel_nested(a):
    """Call and loop within a parallel loop."""
    n, m = a.shape
    out = np.zeros(n)
    for i in prange(n):
        total = 0.0
        for j in range(m):
            total += polynomial(a[i, j])
        out[i] = total
    return out


@kernel(vector, shifted, parallel=True)
def parallel_expression(a, b):
    """Have array expressions and a reduction that become parfors."""
    c = a * b + 1.0
    return c.sum()


@kernel(vector, fastmath=True)
def fast_sum(a):
    """Vectorize a reduction."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * a[i]
    return total


@kernel(vector, shifted, error_model="numpy")
def numpy_errors(a, b):
    """Divide without checks."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] / b[i]
    return total


@kernel(number(40))
def typed_containers(n):
    """Use typed lists and dictionaries."""
    items = typed.List()
    for i in range(n):
        items.append(i * 2)
    table = typed.Dict()
    for i in range(n):
        table[i] = float(items[i])
    total = 0.0
    for key in table:
        total += table[key]
    return total


@kernel(number(40))
def reflected_list(n):
    """Grow a list."""
    items = [0]
    for i in range(n):
        items.append(i)
    return len(items)


@kernel(lambda: [1.0, 2.0], lambda: {1, 2})
def container_arguments(items, found):
    """Take containers apart and back, by a wrapper with destructors."""
    items.append(3.0)
    found.add(3)
    return items.pop() + len(found)


@kernel(vector, number(2.0))
def closure(a, c):
    """Call a function of its own."""

    def inner(x):
        return x * c + 1.0

    total = 0.0
    for i in range(a.size):
        total += inner(a[i])
    return total


@kernel(vector)
def early_inlining(a):
    """Call functions that Numba inlines."""
    total = 0.0
    for i in range(a.size):
        total += inlined_twice(a[i])
        total -= inlined_early(a[i])
    return total


@kernel(vector)
def forced_inlining(a):
    """Call a function that has to be inlined."""
    total = 0.0
    for i in range(a.size):
        total += forced(a[i])
    return total


@kernel(vector, shifted)
def array_expression(a, b):
    """Be one array expression."""
    return a * b + np.sqrt(a) - 2.0 * b


@kernel(matrix, matrix, matrix)
def matrix_product(a, b, out):
    """Nest three loops."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total


@kernel(number(10))
def recursion(n):
    """Call what calls itself."""
    return fibonacci(n)


@kernel(number(15))
def strings(n):
    """Make strings."""
    text = ""
    for i in range(n):
        text += str(i)
    return len(text)


@kernel(vector, number(3))
def raising(a, i):
    """Be able to raise."""
    if i >= a.size:
        raise IndexError("too big")
    return a[i]


@kernel(vector)
def catching(a):
    """Raise and catch."""
    total = 0.0
    for i in range(a.size):
        try:
            if a[i] > 0.99:
                raise ValueError
            total += a[i]
        except Exception:
            total -= 1
    return total


@kernel(vector)
def tuples(a):
    """Take a tuple apart."""
    t = (a, a[::2], a.sum())
    return t[0][0] + t[1][1] + t[2]


@kernel(vector)
def sorting(a):
    """Sort a copy."""
    b = a.copy()
    b.sort()
    return b[0]


@kernel(number(10))
def generating(n):
    """Consume a generator."""
    total = 0
    for i in countdown(n):
        total += i
    return total


@kernel(vector, boundscheck=True)
def checked(a):
    """Check bounds."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * 2
    return total


@kernel(vector, shifted)
def convolution(f, w):
    """Allocate, slice and reverse arrays."""
    w = w[:20][::-1]
    full = np.zeros(f.size + 2 * w.size - 2)
    for i in range(full.size):
        if w.size - 1 <= i < w.size + f.size - 1:
            full[i] = f[i - w.size + 1]
    out = np.zeros(full.size - w.size + 1)
    for i in range(out.size):
        out[i] = np.sum(np.multiply(full[i : i + w.size], w))
    return out


@kernel(number(10))
def random_numbers(n):
    """Draw numbers."""
    total = 0.0
    for _ in range(n):
        total += np.random.random()
    return total


@kernel(lambda: vector() + 1j * shifted())
def complex_numbers(a):
    """Multiply complex numbers."""
    total = 0j
    for z in a:
        total += z * z.conjugate()
    return total


@kernel(vector, histogram)
def scatter(a, bins):
    """Write where the data say."""
    for value in a:
        bins[int(value * 10)] += 1
    return bins


@kernel(number(10))
def comprehension(n):
    """Make a list in one expression."""
    return sum([i * 2.0 for i in range(n)])


@kernel(number(10))
def sets(n):
    """Fill a set."""
    found = set()
    for i in range(n):
        found.add(i % 7)
    return len(found)


@kernel(vector)
def class_instance(a):
    """Use a jitclass."""
    mean = Mean()
    for i in range(a.size):
        mean.add(a[i])
    return mean.mean


@kernel(matrix)
def stencil_call(a):
    """Call a stencil."""
    return cross(a)


@kernel(vector, shifted, decorate=vectorized)
def universal(x, y):
    """Be a ufunc."""
    return x * y + math.exp(x)


@kernel(vector, shifted, decorate=vectorized_lazily)
def universal_lazily(x, y):
    """Be a ufunc that compiles when it is called."""
    z = x - y
    return z * z


@kernel(vector, shifted, decorate=vectorized, target="parallel")
def universal_parallel(x, y):
    """Be a ufunc for several threads."""
    return x / y + math.sqrt(x)


@kernel(vector, number(2.0), decorate=generalized)
def row_by_row(a, n, out):
    """Be a generalized ufunc."""
    for i in range(a.shape[0]):
        out[i] = a[i] * n


@kernel(number(0.5), decorate=c_callback)
def called_from_c(x):
    """Be a C callback."""
    y = x + 1.0
    return y * math.cos(x)


@kernel(vector)
def object_mode(a):
    """Leave compiled code for a moment."""
    total = 0.0
    with nb.objmode(t="float64"):
        t = float(len(a))
    for i in range(a.size):
        total += a[i] * t
    return total


@kernel(number(8), number(8), number(20))
def mandelbrot(height, width, limit):
    """Leave a loop early."""
    out = np.zeros((height, width), dtype=np.int64)
    for i in range(height):
        for j in range(width):
            c = complex(j / width * 3 - 2, i / height * 2 - 1)
            z = 0j
            n = 0
            while abs(z) < 2 and n < limit:
                z = z * z + c
                n += 1
            out[i, j] = n
    return out


@kernel(vector)
def enumerating(a):
    """Use enumerate and zip."""
    total = 0.0
    for i, (x, y) in enumerate(zip(a, a[::-1])):  # noqa: B905 - Numba has no strict
        total += i * x - y
    return total


FAST = (
    "array_expression",
    "closure",
    "container_arguments",
    "early_inlining",
    "parallel_loop",
    "row_by_row",
    "stencil_call",
    "two_loops",
    "universal",
)
"""One of each way that lines take into a line table, in few seconds."""


# -------------------------------------------------------------------------- the program


@contextlib.contextmanager
def captured_objects() -> Iterator[list[bytes]]:
    """Collect the object files that LLVM makes for Numba meanwhile."""
    from numba.core.registry import cpu_target

    engine = cpu_target.target_context._internal_codegen._engine._ee
    notify, found = engine._object_cache_notify, []

    def keep(module: Any, buffer: Any) -> None:
        found.append(bytes(buffer))
        notify(module, buffer)

    engine._object_cache_notify = keep
    try:
        yield found
    finally:
        engine._object_cache_notify = notify


SECTION = struct.Struct("<IIQQQQIIQQ")
"""``Elf64_Shdr``: name, type, flags, address, offset, size, link, ..."""
SYMBOL = struct.Struct("<IBBHQQ")
"""``Elf64_Sym``: name, info, other, section, value, size."""
FUNCTION, SYMBOL_TABLE, EXECUTABLE = 2, 2, 4


def describe(image: bytes) -> dict[str, Any]:
    """Return what is compared of an ELF object file."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", image, 0x3A)
    sections = [SECTION.unpack_from(image, table + i * size) for i in range(count)]

    def text_at(strings: int, at: int) -> str:
        start = sections[strings][4] + at
        return image[start : image.index(b"\0", start)].decode()

    def content(section: tuple[int, ...]) -> bytes:
        return image[section[4] : section[4] + section[5]]

    code = b"".join(content(s) for s in sections if s[2] & EXECUTABLE)
    symbols = [
        text_at(section[6], symbol[0])
        for section in sections
        if section[1] == SYMBOL_TABLE
        for symbol in SYMBOL.iter_unpack(content(section))
        if symbol[1] & 15 == FUNCTION
    ]
    return {
        "sha256": hashlib.sha256(code).hexdigest(),
        "size": len(code),
        "object_size": len(image),
        "has_lines": any(text_at(names_at, s[0]) == ".debug_line" for s in sections),
        "symbols": symbols[:2],
    }


def run(names: list[str], repeat: int) -> dict[str, float]:
    """Compile and call kernels; return the least CPU seconds per call of each."""
    seconds = {}
    for name in names:
        one = CORPUS[name]
        call = one.compile()
        arguments = one.arguments()
        call(*arguments)
        if repeat and not one.is_parallel:
            calls = math.ceil(TIMED_S / max(cpu_seconds(call, arguments, 3), 1e-7))
            calls = min(calls, MAX_CALLS)
            seconds[name] = min(
                cpu_seconds(call, one.arguments(), calls) for _ in range(repeat)
            )
    return seconds


TIMED_S = 0.01
MAX_CALLS = 2_000
"""What one measurement of one kernel is to take, and how many calls at most."""


def cpu_seconds(call: Any, arguments: tuple[Any, ...], calls: int) -> float:
    """Return the CPU time of this process per call."""
    started = time.process_time_ns()
    for _ in range(calls):
        call(*arguments)
    return (time.process_time_ns() - started) / 1e9 / calls


def instruments(mode: str) -> contextlib.AbstractContextManager[Any]:
    """Return what is on while the kernels are compiled."""
    if mode == "plain":
        return contextlib.nullcontext()
    from numbaprof.native.linetable import LineTables

    if mode == "lines":
        return LineTables()
    from numbaprof.native import remarks

    stack = contextlib.ExitStack()
    stack.enter_context(LineTables())
    stack.enter_context(remarks.collect())
    return stack


def main() -> None:
    """Compile, and write what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--mode", default="plain")
    parser.add_argument("--only", default=",".join(CORPUS))
    parser.add_argument("--repeat", type=int, default=0)
    options = parser.parse_args()
    with captured_objects() as objects, instruments(options.mode):
        seconds = run(options.only.split(","), options.repeat)
    outcome = {"objects": [describe(image) for image in objects], "seconds": seconds}
    with open(options.file, "w") as file:
        json.dump(outcome, file)


if __name__ == "__main__":
    main()
