import warnings

from numba import jit

warnings.simplefilter("ignore")


class Opaque:
    pass


@jit(forceobj=True)
def slow(n):
    thing = Opaque()
    total = 0
    for i in range(n):
        total += i
    return total, type(thing).__name__


print(slow(10), slow(20))
