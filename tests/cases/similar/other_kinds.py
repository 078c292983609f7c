import ctypes

import numpy as np
from numba import cfunc, njit, stencil


@njit
def counter(n):
    for i in range(n):
        yield i


@njit
def inner_counter(n):
    for i in range(n):
        yield i * i


@njit
def consume(n):
    total = 0
    for value in inner_counter(n):
        total += value
    return total


@stencil
def average(a):
    return 0.5 * (a[-1] + a[1])


@njit
def smooth(a):
    return average(a)


@cfunc("int64(int64)")
def callback(x):
    return x * 2


foreign = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(callback.address)


@njit
def uses_callback(x):
    return foreign(x)


print(sum(counter(5)), list(counter(3)), next(counter(1)))
print(consume(10))
print(smooth(np.arange(5.0)), smooth(np.ones(4)))
print(callback.ctypes(2), callback.ctypes(3), foreign(4), foreign(5))
print(uses_callback(6))
