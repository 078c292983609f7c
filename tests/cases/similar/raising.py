import numpy as np
from numba import njit


@njit
def check(x):
    if x > 2:
        raise ValueError("too big: 5")
    return x


@njit
def check_lazily(a, i):
    if i >= a.size:
        raise IndexError
    return a[i]


try:
    check_lazily(np.ones(1), 3)
except IndexError as error:
    print(repr(error))

print(check(1))
for value in (3, 4):
    try:
        check(value)
    except ValueError as error:
        print(error, error.__traceback__.tb_next is None)
check(5)
