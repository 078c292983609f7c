"""Kernels whose machine code is explained, each with what must be found in it."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange


@njit
def doubled(x):
    """Be inlined."""
    return x * 2.0 + 1.0


@njit
def vector(a, b):
    """Become vector code, a callee inlined."""
    unused = 3  # noqa: F841  a line that no code is left of
    for i in range(a.shape[0]):
        b[i] = doubled(a[i])


@njit
def ordered_sum(a):
    """Be refused: the order of additions matters."""
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i]
    return s


@njit(fastmath=True)
def free_sum(a):
    """Be the same, vectorized."""
    s = 0.0
    for i in range(a.shape[0]):
        s += a[i]
    return s


@njit
def invariant(a, c):
    """Have something to move out of the loop."""
    for i in range(a.shape[0]):
        k = math.sqrt(c)
        a[i] *= k


@njit
def early(a, x):
    """End early."""
    for i in range(a.shape[0]):
        if a[i] == x:
            return i
    return -1


@njit
def gathered(a, indices, out):
    """Add to places that may be the same."""
    for i in range(indices.shape[0]):
        out[indices[i]] += a[i]


@njit
def recurrence(a):
    """Need each element for the next."""
    for i in range(1, a.shape[0]):
        a[i] = a[i - 1] * 0.5 + a[i]


@njit
def formula(n):
    """Have a loop that LLVM replaces by a formula."""
    total = 0
    for i in range(n):
        total += i
    return total


@njit(parallel=True)
def regions(a, b):
    """Have code in a parallel region."""
    for i in prange(a.shape[0]):
        b[i] = a[i] * 3.0


@njit
def table_of_numba(a):
    """Contain code of Numba's own."""
    b = np.zeros(a.shape[0])
    b[0] = a.sum()
    return b


ARRAY = np.arange(64.0)
CALLS = [
    (vector, (ARRAY, ARRAY.copy())),
    (ordered_sum, (ARRAY,)),
    (free_sum, (ARRAY,)),
    (invariant, (ARRAY.copy(), 2.0)),
    (early, (ARRAY, 3.0)),
    (gathered, (ARRAY, np.arange(64), ARRAY.copy())),
    (recurrence, (ARRAY.copy(),)),
    (formula, (10,)),
    (regions, (ARRAY, ARRAY.copy())),
    (table_of_numba, (ARRAY,)),
]
