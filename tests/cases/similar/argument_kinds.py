from collections import namedtuple

import numpy as np
from numba import int64, literally, njit, optional


@njit
def double(x):
    return x * 2


@njit
def negate(x):
    return -x


@njit
def keywords(a, b=7):
    return a + b


@njit
def stars(*args):
    return len(args)


@njit
def mixed_stars(first, *rest):
    return first + len(rest)


@njit
def record_sum(records):
    return records["x"]


@njit
def length(text):
    return len(text)


@njit
def anything(x):
    return x


@njit
def apply(function, x):
    return function(x)


@njit([int64(optional(int64))])
def maybe(x):
    return 0 if x is None else x


@njit
def power(x, n):
    return x ** literally(n)


@njit
def zero_d(a):
    return a.size


Point = namedtuple("Point", "x y")

print(double(1.5))
print(keywords(1, 2), keywords(1, b=2), keywords(b=1, a=2))
print(keywords(1, 2.5), keywords(1))
print(stars(), stars(1), stars(2), stars(1, 2), stars(1, 2.0))
print(mixed_stars(1.0, 2, 3), mixed_stars(1.0))

records = np.zeros(3, dtype=[("x", np.float64), ("n", np.int32)])
print(record_sum(records), record_sum(records[:2]), record_sum(records[0]))
print(length("abc"), length("ü"), length(b"abc"))

print(anything(None), anything(True), anything(False), anything(1j))
print(anything(np.float32(1)), anything(np.datetime64("2020-01-01")))
print(anything((1, 2)), anything((3, 4)), anything((1, 2.0)), anything((1,)))
print(anything((1, 2, 3)), anything(Point(1, 2)), anything(Point(1, 2.0)))

print(apply(double, 1), apply(double, 2), apply(negate, 3))
print(maybe(None), maybe(1), maybe(2))
print(power(2.0, 2), power(2.0, 3), power(3.0, 3))
print(zero_d(np.array(1.0)), zero_d(np.ones((1, 2, 3))))
