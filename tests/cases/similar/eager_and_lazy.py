import warnings

from numba import jit, njit
from numba.core.errors import TypingError

warnings.simplefilter("ignore")


@njit(["int64(int64)", "float64(float64)"])
def eager(x):
    return x + 1


@njit
def by_hand(x):
    return x + 1


@njit
def closed(x):
    return x + 1


@njit
def again(x):
    return x + 1


@jit(forceobj=True)
def objects(x):
    return [x]


@njit
def failing(x):
    return x + 1


print(eager(1), eager(2), eager(2.5))
try:
    eager("text")
except TypeError as error:
    print(type(error).__name__)

by_hand.compile("int32(int32)")
print(by_hand(1))

closed(1)
closed.disable_compile()
print(closed(2))
try:
    closed("text")
except TypeError as error:
    print(type(error).__name__)

again(1)
again(2)
again.recompile()
print(again(3))

print(objects(1), objects("a"), objects(None))

failing(1)
try:
    failing("text")
except TypingError as error:
    print(type(error).__name__)
