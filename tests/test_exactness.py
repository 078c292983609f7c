"""Counts and times of real Numba programs, against what they are known to do."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from numba import cfunc, guvectorize, njit, objmode, types, vectorize

from numbaprof import profile

N_THREADS = 6
N_CALLS = 200


@njit(nogil=True)
def nogil_sum(array):
    """Sum without the GIL."""
    total = 0.0
    for value in array:
        total += value
    return total


@njit
def raising(value):
    """Raise for negative values."""
    if value < 0:
        raise ValueError("negative")
    return value


@njit
def leaf(value):
    """Be called from everywhere."""
    return value + 1


@njit
def through_python(value):
    """Call compiled code through Python."""
    with objmode(result="int64"):
        result = leaf(value)
    return result


@njit
def native_recursion(number):
    """Recurse in compiled code, where nobody can look."""
    return 0 if number == 0 else native_recursion(number - 1) + 1


@njit
def python_recursion(number):
    """Recurse through Python."""
    result = 0
    if number > 0:
        with objmode(result="int64"):
            result = python_recursion(number - 1)
    return result + 1


@njit
def ping(number):
    """Recurse mutually through Python."""
    result = 0
    if number > 0:
        with objmode(result="int64"):
            result = pong(number - 1)
    return result + 1


@njit
def pong(number):
    """Recurse mutually through Python."""
    result = 0
    if number > 0:
        with objmode(result="int64"):
            result = ping(number - 1)
    return result + 1


@njit
def two_overloads(a, b=3):
    """Take defaults and keywords."""
    return a + b


@vectorize(["int64(int64, int64)", "float64(float64, float64)"])
def plus(a, b):
    """Add, as a ufunc."""
    return a + b


@vectorize
def lazy_plus(a, b):
    """Add, as a ufunc that compiles when called."""
    return a + b


@guvectorize(["void(float64[:], float64[:])"], "(n)->()")
def row_sum(row, out):
    """Sum a row."""
    out[0] = row.sum()


@guvectorize(["void(float64[:], float64[:])"], "(n)->()", target="parallel")
def parallel_row_sum(row, out):
    """Sum a row, with threads."""
    out[0] = row.sum()


@njit
def call_back(function, times):
    """Call a C callback from compiled code."""
    total = 0.0
    for _ in range(times):
        total += function(1.0)
    return total


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is counted."""
    array = np.ones(4)
    nogil_sum(array)
    raising(1)
    through_python(1)
    native_recursion(2)
    python_recursion(1)
    ping(2)
    pong(2)
    two_overloads(1)
    two_overloads(1, 2)
    two_overloads(1.0, 2)


class Counts:
    """The rows of a profile by function.

    Parameters
    ----------
    result : ProfileResult
        Checked at once: its books must balance.
    """

    def __init__(self, result):
        result.check()
        assert result.losses.hook_errors == ()
        assert result.losses.unrestored == ()
        self.result = result

    def rows(self, thing, kind=None):
        """Return the rows of a function, ufunc or callback."""
        name = getattr(thing, "py_func", thing).__name__
        return [
            overload
            for overload in self.result.overloads
            if overload.function.module == __name__
            and overload.function.qualname.split(" [")[0] == name
            and (kind is None or overload.kind == kind)
        ]

    def calls(self, thing, kind=None):
        """Return the sum of calls over the rows of a function."""
        return sum(row.calls or 0 for row in self.rows(thing, kind))

    def row(self, thing, signature):
        """Return the one row with a signature."""
        (row,) = [r for r in self.rows(thing) if r.signature == signature]
        return row


# -- threads ---------------------------------------------------------------------------


def run_threads(work, count=N_THREADS):
    """Run ``work(number)`` in threads that all wait for each other first."""
    barrier = threading.Barrier(count)
    failures = []

    def start(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.fixture(scope="module")
def six_threads():
    """Profile six threads that mix all sorts of kernels."""
    array = np.ones(500)

    def work(number):
        for call in range(N_CALLS):
            nogil_sum(array)
            through_python(call)
            if call % 2:
                with pytest.raises(ValueError, match="negative"):
                    raising(-1)
            else:
                raising(1)
            python_recursion(2)
            plus(array, array)

    with profile() as p:
        run_threads(work)
    return Counts(p.result)


TOTAL = N_THREADS * N_CALLS


@pytest.mark.parametrize(
    ("function", "kind", "calls", "errors"),
    [
        (nogil_sum, "function", TOTAL, 0),
        (through_python, "function", TOTAL, 0),
        (through_python, "objmode body", TOTAL, 0),
        (leaf, "function", TOTAL, 0),
        (raising, "function", TOTAL, TOTAL // 2),
        (python_recursion, "function", 3 * TOTAL, 0),
        (plus, "ufunc loop", TOTAL, 0),
    ],
)
def test_six_threads_lose_no_call(six_threads, function, kind, calls, errors):
    """Every call of every thread is counted once, with and without the GIL."""
    assert six_threads.calls(function, kind) == calls
    assert sum(row.errors for row in six_threads.rows(function, kind)) == errors


def test_six_threads_have_six_roots(six_threads):
    """Every thread has its own tree."""
    roots = [n for n in six_threads.result.contexts if n.kind == "thread"]
    assert len(roots) == N_THREADS


def test_elements_of_loops_are_counted(six_threads):
    """The elements a loop went through are summed."""
    assert six_threads.row(plus, "(float64, float64)").elements == 500 * TOTAL


def test_times_of_the_tree_sum_to_its_roots(six_threads):
    """Exclusive and dispatch times over all nodes are the roots' inclusive times."""
    contexts = six_threads.result.contexts
    parts = sum(node.exclusive_ns + node.dispatch_ns for node in contexts)
    assert parts == sum(node.inclusive_ns for node in contexts if node.parent == -1)


def test_times_of_overloads_sum_to_the_tree(six_threads):
    """The same total comes out of the overloads: nothing else was going on."""
    overloads = six_threads.result.overloads
    parts = sum((o.exclusive_ns or 0) + (o.dispatch_ns or 0) for o in overloads)
    roots = [n for n in six_threads.result.contexts if n.parent == -1]
    assert parts == sum(root.inclusive_ns for root in roots)


def test_histogram_holds_every_call(six_threads):
    """Each distribution sums to its overload's calls."""
    for row in six_threads.result.overloads:
        if row.calls:
            assert sum(row.histogram) == row.calls


def test_extremes_enclose_the_mean(six_threads):
    """Minimum, mean and maximum of an overload are in order."""
    for row in six_threads.result.overloads:
        if row.calls and row.kind != "objmode body" and row.inclusive_ns is not None:
            assert row.min_ns * row.calls <= row.inclusive_ns + row.calls or (
                row.function.qualname == "python_recursion"
            )
            assert row.min_ns <= row.max_ns


# -- one thread ------------------------------------------------------------------------


def test_overloads_sum_to_the_calls_of_the_dispatcher():
    """Each signature has its own row, and together they have all calls."""
    with profile() as p:
        for _ in range(5):
            two_overloads(1)
        for _ in range(7):
            two_overloads(1, b=2)
        for _ in range(11):
            two_overloads(1.0, 2)
    counts = Counts(p.result)
    assert counts.calls(two_overloads) == 23
    assert sorted(row.calls for row in counts.rows(two_overloads)) == [5, 7, 11]


def test_first_call_of_a_late_overload_is_counted():
    """A signature first met while profiling is compiled, attached, and counted."""

    @njit
    def late(value):
        return value

    with profile() as p:
        for value in (1, 1.0, True, 2, 2.0):
            late(value)
    rows = [o for o in p.result.overloads if o.function.qualname.endswith("late")]
    assert sorted((row.signature, row.calls) for row in rows) == [
        ("(bool)", 1),
        ("(float64)", 2),
        ("(int64)", 2),
    ]
    assert all(row.created_in_session for row in rows)
    p.result.check()


def test_failing_dispatch_is_no_call():
    """Arguments that match nothing are a failed dispatch, not a call."""

    @njit("int64(int64)")
    def strict(value):
        return value

    with profile() as p:
        strict(1)
        with pytest.raises(TypeError):
            strict("text")
    (row,) = [o for o in p.result.overloads if o.function.qualname.endswith("strict")]
    failed = [n for n in p.result.contexts if n.kind == "failed dispatch"]
    assert (row.calls, [(n.calls, n.errors) for n in failed]) == (1, [(1, 1)])
    p.result.check()


def test_native_recursion_is_one_call():
    """Recursion inside compiled code is one call, and said not to be all."""
    with profile() as p:
        native_recursion(10)
    (row,) = Counts(p.result).rows(native_recursion)
    assert row.calls == 1
    assert "native_recursion" in row.not_countable_reason


def test_python_recursion_counts_each_level():
    """Recursion through Python counts every level; time is counted once."""
    with profile() as p:
        python_recursion(9)
    counts = Counts(p.result)
    (row,) = counts.rows(python_recursion, "function")
    (root,) = [n for n in p.result.contexts if n.parent == -1]
    assert row.calls == 10
    assert row.inclusive_ns == root.inclusive_ns - row_dispatch_of_roots(p.result)


def row_dispatch_of_roots(result):
    """Return the dispatch time of the calls made by threads."""
    roots = {i for i, node in enumerate(result.contexts) if node.parent == -1}
    return sum(node.dispatch_ns for node in result.contexts if node.parent in roots)


def test_mutual_recursion_counts_each_level():
    """Two functions that call each other have their own calls."""
    with profile() as p:
        ping(5)
    counts = Counts(p.result)
    assert (counts.calls(ping, "function"), counts.calls(pong, "function")) == (3, 3)
    for function in (ping, pong):
        (row,) = counts.rows(function, "function")
        assert row.exclusive_ns <= row.inclusive_ns


def test_caller_is_the_python_function():
    """A call's context names the Python function that made it."""

    def caller():
        return leaf(1)

    with profile() as p:
        caller()
    (node,) = [n for n in p.result.contexts if n.kind == "overload"]
    assert (node.via.file, node.via.line) == (__file__, caller.__code__.co_firstlineno)


def test_compiled_caller_has_no_python_function():
    """What an objmode body calls has it for its caller, and no Python function."""
    with profile() as p:
        through_python(1)
    (node,) = [
        n
        for n in p.result.contexts
        if n.kind == "overload"
        and p.result.overloads[n.overload].function.qualname == "leaf"
    ]
    parent = p.result.overloads[p.result.contexts[node.parent].overload]
    assert (parent.kind, node.via) == ("objmode body", None)


# -- ufuncs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "calls"),
    [
        (lambda a: plus(a, a), 1),
        (lambda a: plus.reduce(a), 1),
        (lambda a: plus.accumulate(a), 1),
        (lambda a: plus.reduceat(a, [0, 2]), 2),
    ],
    ids=["call", "reduce", "accumulate", "reduceat"],
)
def test_methods_of_a_ufunc_are_counted(use, calls):
    """What NumPy does with a loop is counted, and comes out the same."""
    array = np.arange(8.0)
    expected = use(array)
    with profile() as p:
        result = use(array)
    np.testing.assert_array_equal(result, expected)
    assert Counts(p.result).row(plus, "(float64, float64)").calls == calls


def test_outer_counts_its_elements():
    """An outer product goes through all pairs."""
    with profile() as p:
        plus.outer(np.arange(8.0), np.arange(5.0))
    assert Counts(p.result).row(plus, "(float64, float64)").elements == 40


def test_at_counts_its_elements():
    """ufunc.at goes through all indices."""
    array = np.zeros(4)
    with profile() as p:
        plus.at(array, [0, 1, 1, 3], 1.0)
    assert array.tolist() == [1, 2, 0, 1]
    assert Counts(p.result).row(plus, "(float64, float64)").elements == 4


def test_loops_of_one_ufunc_are_told_apart():
    """Each pair of dtypes is its own row."""
    with profile() as p:
        plus(np.ones(3), np.ones(3))
        plus(np.arange(5), np.arange(5))
    counts = Counts(p.result)
    assert counts.row(plus, "(float64, float64)").elements == 3
    assert counts.row(plus, "(int64, int64)").elements == 5


def test_loop_compiled_while_profiling_is_counted():
    """The first call of a lazy ufunc is counted too."""
    with profile() as p:
        lazy_plus(np.ones(3), np.ones(3))
        lazy_plus(np.ones(4), np.ones(4))
    row = Counts(p.result).row(lazy_plus, "(float64, float64)")
    assert (row.calls, row.elements, row.created_in_session) == (2, 7, True)


@pytest.mark.parametrize("gufunc", [row_sum, parallel_row_sum], ids=["cpu", "parallel"])
def test_generalized_ufunc_counts_outer_iterations(gufunc):
    """A generalized ufunc's loop is called for the outer dimension."""
    with profile() as p:
        result = gufunc(np.ones((6, 5)))
    assert result.tolist() == [5.0] * 6
    rows = [o for o in p.result.overloads if o.kind == "gufunc loop" and o.calls]
    assert [(row.calls, row.elements) for row in rows] == [(1, 6)]
    p.result.check()


def test_ufunc_with_more_callers_than_rows_keeps_its_total():
    """A loop called from many contexts has all its calls and all its time."""

    @njit
    def recurse(number, array):
        if number > 0:
            with objmode():
                plus_alias(array, array)
                recurse(number - 1, array)

    plus_alias = plus
    recurse(1, np.ones(3))
    with profile() as p:
        recurse(25, np.ones(3))
    counts = Counts(p.result)
    loops = [o for o in p.result.overloads if o.kind == "ufunc loop" and o.calls]
    assert sum(loop.calls for loop in loops) == 25
    assert counts.result.losses.truncated_contexts == 0


# -- C callbacks -----------------------------------------------------------------------


def make_callback():
    """Return a C callback made now."""

    @cfunc(types.float64(types.float64))
    def half(value):
        return value / 2

    return half


def test_callback_made_while_profiling_is_counted():
    """Calls through ctypes and from compiled code are counted alike."""
    warm = make_callback()
    call_back(warm, 1)
    with profile() as p:
        half = make_callback()
        by_ctypes = [half.ctypes(float(value)) for value in range(7)]
        from_compiled = call_back(half, 5)
        raw = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(half.address)
        assert raw(8.0) == 4.0
    assert by_ctypes == [value / 2 for value in range(7)]
    assert from_compiled == 2.5
    (row,) = [o for o in p.result.overloads if o.kind == "cfunc"]
    assert row.calls == 13
    p.result.check()


def test_address_of_a_callback_stays_good_after_the_session():
    """An address handed out while profiling can be called for ever."""
    with profile() as p:
        half = make_callback()
        raw = half.ctypes
        raw(1.0)
    assert raw(3.0) == 1.5
    assert half.ctypes(3.0) == 1.5
    (row,) = [o for o in p.result.overloads if o.kind == "cfunc"]
    assert row.calls == 1


# -- both clocks -----------------------------------------------------------------------


@pytest.mark.parametrize("clock", ["clock_gettime", None])
def test_books_balance_on_every_clock(clock):
    """Counts and sums hold whatever the time is read from."""
    with profile(clock=clock) as p:
        for _ in range(50):
            python_recursion(3)
    counts = Counts(p.result)
    assert counts.calls(python_recursion, "function") == 200


@pytest.mark.usefixtures("compiled")
def test_time_inside_is_within_the_session():
    """The roots of one thread spend no more than the session lasted."""
    with profile() as p:
        for _ in range(100):
            nogil_sum(np.ones(1000))
    (root,) = [n for n in p.result.contexts if n.parent == -1]
    assert 0 < root.inclusive_ns <= p.result.wall_ns
