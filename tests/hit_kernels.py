"""Kernels whose lines are counted, by us and by line_profiler, with their arguments.

Formatted by hand: how expressions are spread over lines is what is tested.
"""
# ruff: noqa: B904, B905, C408, D103, E701, RUF021
# fmt: off

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange
from numba.typed import List


@njit
def nested_loops(n):
    total = 0
    for i in range(n):
        for j in range(i):
            for k in range(2):
                total += i * j - k
        total -= 1
    return total


@njit
def while_break_continue(n):
    i = 0
    total = 0
    while True:
        i += 1
        if i % 3 == 0:
            continue
        total += i
        if i > n:
            break
    while total > 100:
        total -= 7
    else:
        total += 1
    return total


@njit
def comprehensions(n):
    squares = [i * i for i in range(n)]
    pairs = [
        i * j
        for i in range(n)
        for j in range(i)
        if (i + j) % 2
    ]
    table = np.array([x + 1 for x in squares])
    unique = {x % 3 for x in squares} if False else set(squares)
    return len(pairs) + table.sum() + len(unique)


@njit
def early_return(values, wanted):
    if len(values) == 0:
        return -1
    for index, value in enumerate(values):
        if value == wanted:
            return index
    return len(values)


@njit
def catches(values):
    total = 0
    for value in values:
        try:
            if value < 0:
                raise ValueError("negative")
            total += value
        except Exception:
            total += 100
        total += 1
    return total


@njit
def checked(value):
    if value == 3:
        raise ValueError(
            "three",
        )
    return value * 2


@njit
def catches_callee(n):
    total = 0
    for i in range(n):
        try:
            total += checked(i)
            total += 1
        except Exception:
            total -= 1
        total += 1000
    return total


@njit
def cleans_up(n):
    total = 0
    for i in range(n):
        try:
            total += i * 2
            if i == 4:
                continue
        finally:
            total += 1000
    return total


@njit
def raises_halfway(values):
    total = 0
    for value in values:
        assert value >= 0
        total += 1
        total += checked(value)
    return total


@njit
def halve(x):
    return x // 2


@njit
def steps(x):
    count = 0
    while x > 0:
        x = halve(x)
        count += 1
    return count


@njit
def nested_calls(n):
    total = 0
    for i in range(n):
        total += steps(i)
    return total + steps(
        halve(n),
    )


@njit
def multi_line(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += (
            a[i]
            * b[i]
            + math.sin(
                a[i]
            )
        )
        value = max(
            a[i],
            b[i],
            total,
        )
        total = total if value > 0 else (
            value
        )
    return (
        total
    )


@njit
def unpacking(n):
    a, b = 0, 1
    for i in range(n):
        a, b = b, a + b
        (c, d), e = (a, b), i
        a, (b, c) = c, (
            d,
            e,
        )
    for i, (x, y) in enumerate(zip(range(n), range(n, 2 * n))):
        a += i + x * y
    return a, b


@njit
def ternaries(n):
    total = 0
    for i in range(n):
        total += i if i % 2 else -i
        total += (
            10
            if i > 2
            else 20
            if i > 1
            else 30
        )
    return total


@njit
def for_else(n, stop):
    for i in range(n):
        if i == stop:
            break
    else:
        return -1
    for _ in range(2): pass
    for j in range(n): i += j
    while i > 0: i -= 5
    return i


@njit
def booleans(n):
    total = 0
    for i in range(n):
        if (
            i > 1
            and i % 2 == 0
            or i == 7
        ):
            total += 1
        if not (i < 3 or
                i > 6):
            total += 10
        flag = (i and
                total or
                n)
        if 1 < i <= flag < 100: total += 1
        while (total > 5
               and i > 3):
            total -= 3
    return total


@njit
def augmented(a):
    n = 0
    for i in range(len(a)):
        a[i] += 1
        a[
            i
        ] *= 2
        n |= i
        n <<= 1
        n %= 1000
    a[:] -= 1
    return n


@njit
def fibonacci(n):
    if n < 2:
        return n
    return (
        fibonacci(n - 1)
        + fibonacci(n - 2)
    )


@njit
def is_even(n):
    if n == 0:
        return True
    return not is_even(n - 1)


@njit
def generator(n):
    for i in range(n):
        if i % 2:
            yield i
        yield (
            i
            * 2
        )


@njit
def consumes(n):
    total = 0
    for value in generator(n):
        if value > 6: break
        total += value
    return total


@njit
def inner_functions(n):
    scale = 3

    def scaled(x):
        y = x * scale
        return y

    total = 0
    for i in range(n):
        total += scaled(i)
    return total


@njit(inline="always")
def inlined(x):
    if x > 2:
        return x
    return -x


@njit
def calls_inlined(n):
    total = 0
    for i in range(n):
        total += inlined(i)
    return total


@njit(parallel=True)
def parallel_sum(a):
    total = 0.0
    for i in prange(a.shape[0]):
        if a[i] > 1:
            total += a[i]
        else:
            total += 1
    b = np.zeros_like(a)
    for i in prange(a.shape[0]):
        for j in range(i):
            b[i] += a[j]
    return total + b.sum()


@njit
def none_default(a, b=None, *rest):
    if b is None:
        b = 1
    for value in rest:
        a += value * b
    return a


@njit
def nothing(n):
    if n:
        pass
    for _ in range(n):
        pass
    for _ in range(n): ...
    while n:
        n -= 1
        if n == 2: continue
        if n == 1: pass
    return


@njit
def strings_and_containers(n):
    names = List()
    counts = dict()
    for i in range(n):
        name = str(i % 3)
        names.append(name)
        if name in counts:
            counts[name] += 1
        else:
            counts[name] = 1
    total = 0
    for name, count in counts.items():
        total += count * len(name)
    return total


@njit(fastmath=True, error_model="numpy", boundscheck=True)
def options(a):
    total = 0.0
    for i in range(len(a)):
        total += a[i] / (i + 1)
    return total


@njit
def nested_tries(n):
    total = 0
    for i in range(n):
        try:
            try:
                total += checked(i)
            finally:
                total += 1
        except Exception:
            if i > 100:
                raise ValueError("late")
            total += 5
            continue
        total += 2
    return total


@njit
def applies(function, n):
    total = 0
    for i in range(n):
        total += function(i)
    return total


KERNELS = [
    (nested_loops, (5,)),
    (nested_loops, (0,)),
    (while_break_continue, (40,)),
    (while_break_continue, (2,)),
    (comprehensions, (6,)),
    (early_return, ((4, 5, 6), 5)),
    (early_return, ((4, 5, 6), 7)),
    (catches, ((1, -1, 2, -3),)),
    (catches_callee, (6,)),
    (cleans_up, (6,)),
    (raises_halfway, ((1, 2, 3, 4),)),
    (raises_halfway, ((1, -2, 3),)),
    (nested_calls, (9,)),
    (multi_line, (np.arange(4.0), np.ones(4))),
    (multi_line, (-np.arange(4.0), -np.ones(4))),
    (unpacking, (4,)),
    (ternaries, (5,)),
    (for_else, (5, 3)),
    (for_else, (3, 7)),
    (booleans, (9,)),
    (augmented, (np.arange(5),)),
    (fibonacci, (7,)),
    (is_even, (5,)),
    (generator, (6,)),
    (consumes, (6,)),
    (calls_inlined, (6,)),
    (parallel_sum, (np.arange(6.0),)),
    (none_default, (1, None, 5)),
    (none_default, (1, 2, 3, 4)),
    (nothing, (5,)),
    (strings_and_containers, (8,)),
    (options, (np.arange(6.0),)),
    (nested_tries, (6,)),
    (applies, (halve, 5)),
]
# fmt: on
