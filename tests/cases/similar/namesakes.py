import functools
import gc

from numba import njit


def outer(p):
    def middle(q):
        @njit
        def inner(x):
            return x + p + q

        return inner

    return middle


one, two = outer(1)(1), outer(2)(2)
print(one(1), two(1), two(2))

a, b, c = njit(lambda x: x + 1), njit(lambda x: x + 2), njit(lambda x: x + 3)
print(a(1), b(1), b(2), c(1), c(2), c(3))


@njit
def again(x):
    return x


print(again(1), again(2), again(3), again(4))


@njit
def again(x):
    return -x


print(again(1))


class Model:
    @staticmethod
    @njit
    def fixed(x):
        return x * 2

    @njit
    def step(self_like, x):
        return self_like + x


model = Model()
print(Model.fixed(1), model.fixed(2), model.fixed(3))
print(Model.step(1, 2), Model.__dict__["step"](3, 4))


@njit
def bound(x, y):
    return x * y


double = functools.partial(bound, 2)
print(double(3), double(4))


@njit
def mapped(x):
    return x * x


print(list(map(mapped, range(3))), max([3, -4], key=lambda x: x), sum(map(mapped, [7])))


def use_and_forget(n):
    @njit
    def forgotten(x):
        return x + 1

    return sum(forgotten(i) for i in range(n))


print(use_and_forget(6))
gc.collect()
