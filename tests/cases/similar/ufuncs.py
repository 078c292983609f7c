import numpy as np
from numba import float64, guvectorize, int64, njit, vectorize


@vectorize([int64(int64, int64), float64(float64, float64)])
def eager_add(a, b):
    return a + b


@vectorize
def lazy_add(a, b):
    return a + b


@vectorize([float64(float64, float64)], target="parallel")
def parallel_add(a, b):
    return a + b


@guvectorize([(float64[:], float64, float64[:])], "(n),()->(n)")
def scale(x, factor, out):
    for i in range(x.size):
        out[i] = x[i] * factor


@guvectorize("(n),()->(n)")
def dynamic(x, factor, out):
    for i in range(x.size):
        out[i] = x[i] * factor


@guvectorize([(int64[:], int64[:])], "(n)->(n)", nopython=True)
def moving(x, out):
    for i in range(x.size):
        out[i] = x[i] + x[i - 1]


@njit
def user(a):
    return lazy_add(a, a).sum()


floats, ints = np.arange(4.0), np.arange(4)
out = np.empty(4)
print(eager_add(floats, floats), eager_add(ints, ints), eager_add(1, 2))
print(eager_add.reduce(ints), eager_add.accumulate(ints))
print(eager_add(floats, ints, out=out), eager_add(floats, 1.5))

print(lazy_add(ints, ints), lazy_add(floats, 1.0), lazy_add(floats, floats))
print(parallel_add(floats[:2], 1.0), parallel_add(np.ones(1198), 1.0).sum())
print(scale(np.ones((3, 2)), 2.0), scale(ints, 2))
dynamic(ints, 2, np.empty(4, np.int64))
dynamic(floats, 2.0, out)
print(out, moving(ints))
print(user(floats))
