import numpy as np
from numba import njit, prange, set_num_threads


@njit(parallel=True, fastmath=True)
def scaled(a, factor):
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] * factor
    return out.sum()


@njit(parallel=True)
def inner(a):
    return (a * 2).sum()


@njit
def outer(a):
    return inner(a) + 1


a = np.ones(1000)
set_num_threads(2)
print(scaled(a, 2.0), scaled(a, 3.0))
set_num_threads(1)
print(scaled(a, 2.0))
set_num_threads(2)
print(scaled(a, 2.0))
print(outer(a), outer(a))
