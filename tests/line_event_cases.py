"""Python functions in all the forms that change which line events there are.

Formatted by hand: how code is spread over lines is what is tested.
"""
# ruff: noqa: D103, E701, RUF021, C416
# fmt: off

from __future__ import annotations


def nested(n):
    total = 0
    for i in range(n):
        for j in range(i):
            total += i * j
    return total


def one_line_loops(n):
    total = 0
    for i in range(n): total += i
    while n > 0: n -= 1
    return total


def while_break(n):
    i = 0
    while True:
        i += 1
        if i % 2:
            continue
        if i > n:
            break
    else:
        i = -1
    return i


def for_else(n):
    for i in range(n):
        if i == 5:
            break
    else:
        return -1
    return (
        n
        + i
    )


def handlers(n):
    total = 0
    for i in range(n):
        try:
            total += 1 // (i % 3)
        except ZeroDivisionError:
            total += 100
        finally:
            total += 1
    return total


def raises(n):
    try:
        return (
            n
            // 0
        )
    finally:
        n = 1


def booleans(a, b):
    if (
        a
        and b
        or not a
    ):
        return [
            a
            for _ in range(3)
            if a
        ]
    return (a if
            b else
            2)


def generator(n):
    for i in range(n):
        yield i
        yield (
            i
            + 1
        )
    yield from range(3)


def one_liner(n): return n + 1


def comprehension(n):
    return sum([i * j for i in range(n) for j in range(i)])


def spread_comprehension(n):
    pairs = [
        i * j
        for i in range(n)
        for j in range(i)
        if (i + j) % 2
    ]
    return len(
        [
            (k,
             [
                 k
                 for k in range(
                     2
                 )
             ])
            for k in pairs
        ]
    )


def pass_and_nothing(n):
    if n:
        pass
    for _ in range(n):
        pass
    while n:
        n -= 1
        if n == 2: continue


# More than 256 constants: instructions have prefixes.
exec(compile(
    "def many_constants(n):\n"
    "    total = 0\n"
    "    for i in range(n):\n"
    "        if i % 2:\n"
    "            total += ("
    + "\n+ ".join(f"{1000 + k} * i" for k in range(300)) +
    ")\n"
    "    return total\n",
    __file__, "exec",
))


CASES = [
    (nested, 4), (one_line_loops, 4), (while_break, 5), (for_else, 3), (for_else, 9),
    (handlers, 7), (raises, 3), (booleans, 0, 1), (booleans, 1, 0), (booleans, 1, 1),
    (generator, 3), (comprehension, 4), (spread_comprehension, 5),
    (pass_and_nothing, 4), (many_constants, 5),  # noqa: F821
]
