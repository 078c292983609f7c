import warnings

import numpy as np
from numba import njit, typed, types
from numba.experimental import structref
from numba.extending import intrinsic, overload

warnings.simplefilter("ignore")


@njit
def total(values):
    result = 0
    for value in values:
        result += value
    return result


@njit
def fill(mapping, n):
    for i in range(n):
        mapping[i] = i * 0.5


@njit
def nested(lists):
    return len(lists[0])


@njit
def unique(values):
    return len(values)


@structref.register
class VectorType(types.StructRef):
    def preprocess_fields(self, fields):
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Vector(structref.StructRefProxy):
    def __new__(cls, x, y):
        return structref.StructRefProxy.__new__(cls, x, y)


structref.define_proxy(Vector, VectorType, ["x", "y"])


@njit
def norm(vector):
    return vector.x * vector.x + vector.y * vector.y


@njit
def make(x):
    return Vector(x, x)


def shift(x):
    raise NotImplementedError


@overload(shift)
def shift_implementation(x):
    return lambda x: x + 1


@intrinsic
def negated(context, x):
    def generate(context, builder, signature, args):
        return builder.neg(args[0])

    return types.int64(types.int64), generate


@njit
def extended(x):
    return negated(shift(x))


values = typed.List([1, 2, 3])
values.append(4)
print(len(values), values[0], total(values), total(np.arange(3)), total(values))
mapping = typed.Dict.empty(types.int64, types.float64)
fill(mapping, 3)
mapping[5] = 1.0
print(dict(mapping))
print(nested(typed.List([values])))
print(unique({1, 2}), unique({3}))
print(norm(Vector(1.0, 2.0)), norm(make(3.0)))
print(extended(1), extended(2))
