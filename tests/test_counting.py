"""Hits of the counting build, against line_profiler's on the interpreted function."""

from __future__ import annotations

import sys

import hit_kernels
import numpy as np
import pytest
from interpreted_hits import interpreted_hits
from numba import jit, literally, njit, objmode, types, vectorize
from numba.core import event
from numba.core.errors import TypingError
from numba.experimental import jitclass
from numba.typed import Dict, List

import numbaprof
from numbaprof.counting import count_hits
from numbaprof.errors import TargetError, UnsupportedError
from numbaprof.native import numba_api


def reached(lines):
    """Leave out lines without hits, which line_profiler does not know."""
    return {place: hits for place, hits in lines.items() if hits}


def _case(index, kernel, args):
    # Each compiles for about a second; half of them are left for the long tests.
    marks = [pytest.mark.slow, pytest.mark.long] if index % 2 else []
    return pytest.param(kernel, args, id=f"{kernel.__name__}-{index}", marks=marks)


@pytest.mark.parametrize(
    ("kernel", "args"),
    [_case(index, *case) for index, case in enumerate(hit_kernels.KERNELS)],
)
def test_hits_are_those_of_line_profiler(kernel, args):
    """Line by line, in the function and in all it calls."""
    expected = interpreted_hits(kernel, args_of(args))
    assert reached(count_hits(kernel, args).lines) == expected


def args_of(args):
    """Return arguments that the interpreter may write to."""
    return tuple(
        arg.copy() if isinstance(arg, np.ndarray | list) else arg for arg in args
    )


@njit
def scale(x):
    """Be called by functions that are counted."""
    return x * 2.0


@njit
def fill(a, b):
    """Write to arguments that overlap."""
    for i in range(a.shape[0]):
        a[i] = scale(i)
    b[0] += 1
    return a.sum() + b.sum()


def lines_of(function):
    """Return the line numbers of a jitted function's body, first to last."""
    code = function.py_func.__code__
    return sorted({line for _, _, line in code.co_lines() if line})


def test_value_is_that_of_the_function_itself():
    """On copies, of which those that overlap still do."""
    a = np.arange(6.0)
    counted = count_hits(fill, (a, a[::-2]))
    assert np.array_equal(a, np.arange(6.0))
    assert counted.value == fill.py_func(a, a[::-2])
    assert not np.array_equal(a, np.arange(6.0))


def test_dispatcher_is_left_alone():
    """No overload is added or replaced, and what is compiled later is uncounted."""

    @njit
    def callee(x):
        return x + 1

    @njit
    def caller(x):
        return callee(x) * 2

    assert caller(1) == 4
    before = dict(caller.overloads), dict(callee.overloads)
    counted = count_hits(caller, (1,))
    assert (dict(caller.overloads), dict(callee.overloads)) == before
    seen = dict(counted.lines)

    @njit
    def later(x):
        return callee(x) + caller(x)

    assert later(1) == 6
    assert caller(1.5) == 5.0
    assert counted.lines == seen


@pytest.mark.slow
def test_function_given_to_one_of_numba_s_own_is_counted_there_and_nowhere_else():
    """`sorted` is compiled for the key; what it compiled must not count ever after."""

    @njit
    def key(x):
        return -x

    @njit
    def ordered(values):
        return sorted(values, key=key)

    counted = count_hits(ordered, (np.array([3, 1, 2]),))
    lines = counted.lines
    assert counted.value == [3, 2, 1]
    assert lines[key.py_func.__code__.co_filename, lines_of(key)[-1]] == 3
    assert ordered(np.array([3, 1, 2])) == [3, 2, 1]
    assert counted.lines == lines
    again = count_hits(ordered, (np.array([3, 1, 2]),))
    assert again.lines == lines


def test_overloads_are_told_apart():
    """Each signature that was compiled has hits of its own."""

    @njit
    def half(x):
        return x / 2

    @njit
    def both(n):
        total = 0.0
        for i in range(n):
            total += half(i) + half(float(i)) + half(1j * i).imag
        return total

    counted = count_hits(both, (4,))
    found = {
        one.signature: list(one.lines.values())
        for one in counted.overloads
        if one.function.qualname.endswith("half")
    }
    assert found == {"(int64)": [4], "(float64)": [4], "(complex128)": [4]}


def test_error_is_part_of_the_result():
    """The hits are those up to where it was raised."""
    counted = count_hits(hit_kernels.raises_halfway, ((1, 2, 3, 4),))
    assert isinstance(counted.error, ValueError)
    assert counted.value is None


def test_lines_that_were_not_reached_have_no_hits():
    """They are listed, so that dead code shows; lines without code are not."""

    @njit
    def choose(x):
        if x > 0:
            return 1

        # never reached
        return 2

    first = choose.py_func.__code__.co_firstlineno
    lines = {
        line - first: hits for (_, line), hits in count_hits(choose, (1,)).lines.items()
    }
    assert lines == {2: 1, 3: 1, 6: 0}


def test_random_numbers_stay_where_they_were():
    """What the function draws afterwards is what it would have drawn."""

    @njit
    def draw(seed):
        if seed >= 0:
            np.random.seed(seed)
        return np.random.rand()

    draw(7)
    counted = count_hits(draw, (-1,))
    assert draw(-1) == counted.value


def test_signatures_given_to_the_decorator_are_kept_to():
    """Arguments are cast to them, as in the function itself."""

    @njit("float64(float64)")
    def eager(x):
        return x / 2

    @njit
    def calls(n):
        return eager(n)

    counted = count_hits(eager, (3,))
    assert counted.value == 1.5
    assert [one.signature for one in counted.overloads] == ["(float64)"]
    assert "(float64)" in {one.signature for one in count_hits(calls, (3,)).overloads}


def test_literal_arguments_are_asked_for_as_usual():
    """A function that needs a value at compile time gets it."""

    @njit
    def pick(items, index):
        return items[literally(index)]

    assert count_hits(pick, ((1, 2.5), 1)).value == 2.5


def test_methods_of_jitclasses_are_counted():
    """Those that compiled code calls."""

    @jitclass([("total", types.int64)])
    class Sum:
        def __init__(self):
            self.total = 0

        def add(self, x):
            self.total += x

    @njit
    def use(n):
        s = Sum()
        for i in range(n):
            s.add(i)
        return s.total

    counted = count_hits(use, (4,))
    assert counted.value == 6
    hits = {one.function.qualname.rpartition(".")[2]: one for one in counted.overloads}
    assert list(hits["add"].lines.values()) == [4]
    with pytest.raises(TargetError, match="argument 0 is a Sum, of which no copy"):
        count_hits(use, (Sum(),))


@pytest.mark.slow
def test_typed_containers_are_copied():
    """Deeply: what lists and dictionaries hold can be written to as well."""

    @njit
    def write(items, table, arrays):
        items.append(1)
        table["b"] = 2
        arrays[0][0] = 5.0
        return len(items) + len(table)

    items, arrays = List([1, 2]), List([np.zeros(2), np.zeros(3)])
    table = Dict.empty(types.unicode_type, types.int64)
    table["a"] = 1
    assert count_hits(write, (items, table, arrays)).value == 5
    assert (list(items), dict(table), arrays[0][0]) == ([1, 2], {"a": 1}, 0.0)


@pytest.mark.filterwarnings("ignore:First-class function")
def test_functions_called_by_address_are_noted():
    """They are the user's own machine code, which does not count."""

    @njit("float64(float64)")
    def one(x):
        return x

    @njit("float64(float64)")
    def two(x):
        return 2 * x

    @njit
    def all_of(functions, x):
        total = 0.0
        for function in functions:
            total += function(x)
        return total

    counted = count_hits(all_of, ((one, two), 1.0))
    assert counted.value == 3.0
    assert "calls functions by their address" in counted.notes[0]


@jit(forceobj=True)
def in_object_mode(x):
    """Be run by Python."""
    return x


@njit
def enters_object_mode(x):
    """Be run by Python in part."""
    y = x
    with objmode(z="int64"):
        z = y + 1
    return z


@vectorize
def ufunc(x):
    """Be no dispatcher."""
    return x


@pytest.mark.parametrize(
    ("thing", "error", "message"),
    [
        (lines_of, TargetError, "lines_of is a Python function; count_hits"),
        (ufunc, TargetError, "ufunc is a DUFunc; only functions made by @jit"),
        (in_object_mode, TargetError, "compiled with forceobj=True"),
        (enters_object_mode, UnsupportedError, "enters object mode, which Python runs"),
        (3, TargetError, "3 is a int; only functions"),
    ],
)
def test_what_cannot_be_counted_is_refused(thing, error, message):
    """With the reason, and the compiler as it was."""
    with pytest.raises(error, match=message):
        count_hits(thing, (1,))
    assert types.Dispatcher.dispatcher.fget.__module__ == "numba.core.types.functions"


def test_function_that_does_not_compile_says_so_itself():
    """With Numba's own message."""

    @njit
    def wrong(x):
        return x.nowhere

    with pytest.raises(TypingError, match="nowhere"):
        count_hits(wrong, (1,))


def test_inner_functions_are_counted_which_line_profiler_would_have_to_be_given():
    """Their lines are their own, so nothing is added up."""
    expected = interpreted_hits(hit_kernels.inner_functions, (4,))
    found = reached(count_hits(hit_kernels.inner_functions, (4,)).lines)
    first = hit_kernels.inner_functions.py_func.__code__.co_firstlineno
    more = {
        line - first: hits for (_, line), hits in (found.items() - expected.items())
    }
    assert expected.items() <= found.items()
    assert more == {5: 4, 6: 4}


def test_lambda_beside_its_njit_is_counted_on_every_python():
    """3.13 announces no line of it to line_profiler, and would make it look unused."""
    double = njit(lambda x: x * 2)
    (hits,) = count_hits(double, (3,)).lines.values()
    assert hits == 1


def test_comprehension_is_counted_as_the_interpreter_does():
    """Before 3.12 it is a function of its own, which line_profiler does not count."""
    hits = count_hits(hit_kernels.comprehensions, (6,)).lines
    file = hit_kernels.comprehensions.py_func.__code__.co_filename
    first = hit_kernels.comprehensions.py_func.__code__.co_firstlineno
    # The lines `i * j`, `for i in ..`, `for j in ..` of the one that is spread out.
    inside = [hits.get((file, first + offset), 0) for offset in (4, 5, 6)]
    assert (sum(inside) > 10) == (sys.version_info >= (3, 12))


def test_sessions_and_listeners_see_nothing_of_the_build():
    """No compilation, no overload, no dispatcher that was not there."""

    @njit
    def root(x):
        return scale(x) + 1

    root(1.0)
    heard = []

    class Listener(event.Listener):
        def on_start(self, happened):
            heard.append(happened)

        def on_end(self, happened):
            heard.append(happened)

    listener = Listener()
    before = set(map(id, numba_api.live_dispatchers()))
    event.register("numba:compile", listener)
    try:
        with numbaprof.profile() as p:
            count_hits(root, (2.0,))
    finally:
        event.unregister("numba:compile", listener)
    assert heard == []
    assert len(p.result.compiles) == 0
    assert set(map(id, numba_api.live_dispatchers())) == before
