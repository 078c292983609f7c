"""The reference tracer: it must see what cProfile sees, and split it by signature."""

from __future__ import annotations

import ast
import contextlib
import cProfile
import functools
import gc
import inspect
import json
import pstats
import re
import sys
import threading
import weakref

import numpy as np
import pytest
from row_engine import RowEngine, label_of, table, undisturbed

from numbaprof import cprofile_bridge
from numbaprof.cprofile_bridge import backend_request, reference_tracer
from numbaprof.errors import ActiveSessionError, OptionError, UnsupportedError
from numbaprof.rowbook import RowBook
from numbaprof.signatures import Level

pytestmark = pytest.mark.usefixtures("no_gc")

MONITORING = sys.version_info >= (3, 12)


class Traced:
    """A run under the reference tracer, and the table that came of it."""

    def __init__(self, level=Level.NONE, *, builtins=True, cap=32):
        self.engine = RowEngine()
        self.book = RowBook(self.engine.new_row, level, cap=cap)
        self.tracer = reference_tracer(self.engine, self.book, builtins=builtins)

    def __enter__(self):
        self.tracer.start()
        return self

    def __exit__(self, *_):
        self.tracer.stop()

    def table(self, key=label_of):
        """Fold the calls; see :func:`row_engine.table`."""
        return table(self.engine, self.book, key)

    def node(self, func):
        """Return the one context of a function."""
        rows = {row.address: row for row in self.book.rows}
        (node,) = [
            n for n in self.engine.nodes[1:] if rows[n.row].code is func.__code__
        ]
        return node

    def calls(self):
        """Return the calls of each function of this file, by its label."""
        return {
            name: line.calls
            for (file, _, name), line in self.table().items()
            if file == __file__
        }


def unsplit(row):
    """Return what pstats would know a row by without signatures."""
    return (row.file, row.line, row.name)


def counts(lines):
    """Return both halves of ncalls, of each function and of each of its callers."""
    return {
        key: (
            line.primitive,
            line.calls,
            {caller: tuple(edge) for caller, edge in line.callers.items()},
        )
        for key, line in lines.items()
    }


def counts_of_cprofile(run, **options):
    """Return the same as cProfile has it, without its own last call."""
    profile = cProfile.Profile(**options)
    with undisturbed():
        profile.enable()
        run()
        profile.disable()
    return {
        key: (
            primitive,
            calls,
            {caller: edge[:2] for caller, edge in callers.items()},
        )
        for key, (primitive, calls, _, _, callers) in pstats.Stats(
            profile
        ).stats.items()
        if "_lsprof.Profiler" not in key[2]
    }


# -- a program with all there is -------------------------------------------------------


def fib(n):
    """Recurse twice."""
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def even(n):
    """Recurse through another."""
    return True if n == 0 else odd(n - 1)


def odd(n):
    """Recurse through another."""
    return False if n == 0 else even(n - 1)


def steps(n):
    """Be resumed."""
    yield from range(n)


def fail(n):
    """Raise through several frames."""
    if n == 0:
        raise KeyError(n)
    try:
        fail(n - 1)
    finally:
        pass


async def wait(n):
    """Await itself."""
    if n:
        await wait(n - 1)


def drive(coroutine):
    """Run a coroutine that never waits."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)


class Thing:
    """Have methods of all kinds."""

    def __init__(self):
        self.x = 1

    def __len__(self):
        return 3

    @property
    def prop(self):
        """Call a function."""
        return fib(3)

    @classmethod
    def make(cls):
        """Make one."""
        return cls()

    @staticmethod
    def double(x):
        """Double."""
        return 2 * x


def generators():
    """Exhaust, close and throw into generators."""
    list(steps(5))
    sum(x for x in steps(3))
    closed = steps(3)
    next(closed)
    closed.close()
    thrown = steps(2)
    next(thrown)
    with pytest.raises(ValueError, match="thrown"):
        thrown.throw(ValueError("thrown"))
    steps(1).close()


def failures():
    """Raise from Python and from C."""
    for failing in (functools.partial(fail, 5), functools.partial(int, "x"), [].pop):
        with contextlib.suppress(KeyError, ValueError, IndexError):
            failing()
    with contextlib.suppress(IndexError):
        [].pop()


def callbacks():
    """Be called from C."""
    sorted([3, 1, 2], key=lambda q: -q)
    "a".join(map(str, [1, 2]))
    functools.reduce(lambda a, b: a + b, [1, 2, 3])
    list(map(fib, [3, 4]))
    max([1, 2], key=fib)


def builtins():
    """Call C functions in all forms."""
    [].append(1)
    list.append([], 1)
    dict.fromkeys("ab")
    list({1: 2}.items())
    str.maketrans("a", "b")
    str(1.5).encode()
    object.__new__(object)
    len(Thing())
    np.zeros(3).sum()


def program():
    """Do all of it."""
    fib(8)
    even(30)
    drive(wait(4))
    generators()
    failures()
    callbacks()
    builtins()
    thing = Thing.make()
    assert thing.prop == Thing.double(1)
    re.compile("a+b*")
    json.dumps({"a": [1, 2, {"b": None}]})


def round_trip():
    """Take the source of a module apart and put it together again."""
    tree = ast.parse(inspect.getsource(functools))
    return ast.unparse(tree)


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """Let caches of the standard library fill before calls are compared."""
    program()
    round_trip()


@pytest.mark.parametrize("level", [Level.NONE, Level.SHAPE])
@pytest.mark.parametrize("run", [program, round_trip])
def test_rows_and_counts_are_those_of_cprofile(run, level):
    """Functions, both halves of ncalls and every caller's counts are equal.

    With signatures, their sums are.
    """
    with Traced(level) as traced:
        run()
    assert counts(traced.table(unsplit)) == counts_of_cprofile(run)
    assert traced.tracer.problems == []


def test_rows_without_builtins_are_those_of_cprofile():
    """C functions are not booked when they are not asked for."""
    with Traced(builtins=False) as traced:
        program()
    assert counts(traced.table()) == counts_of_cprofile(program, builtins=False)


def test_time_of_the_tracer_is_in_no_figure():
    """Between two of its readings one tick passes, and nothing else is counted."""

    def caller():
        for _ in range(7):
            odd(0)

    with Traced(builtins=False) as traced:
        caller()
    inner, outer = (traced.node(func) for func in (odd, caller))
    assert (inner.calls, inner.ticks, inner.child_ticks) == (7, 7, 0)
    assert outer.ticks - outer.child_ticks == 8


# -- signatures ------------------------------------------------------------------------


def dot(a, b):
    """Call a builtin in a loop."""
    total = 0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def test_row_per_signature_and_builtin_of_its_own():
    """``len`` is no recursion of ``dot``; each dtype and shape has its row."""
    for32 = np.ones(16, np.float32)
    with Traced(Level.SHAPE) as traced:
        dot(for32, for32)
        dot(for32, for32)
        dot(np.ones(4), [1] * 4)
    lines = traced.table()
    first = (
        __file__,
        dot.__code__.co_firstlineno,
        "dot(a: float32[16], b: float32[16])",
    )
    assert traced.calls() == {
        "dot(a: float32[16], b: float32[16])": 2,
        "dot(a: float64[4], b: list)": 1,
    }
    assert (lines[first].primitive, lines[first].calls) == (2, 2)
    assert lines["~", 0, "<built-in method builtins.len>"].calls == 3


def captured(a):
    """Have a parameter in a cell."""

    def inner():
        return a

    return inner()


def collect(*args, key=None, **kw):
    """Have parameters with stars."""
    return args, key, kw


def rebound(a):
    """Let the parameter go."""
    a = str(a)
    yield a
    del a
    yield 1


def test_parameters_are_read_wherever_they_are():
    """In cells, behind stars, rebound and deleted by a generator."""
    with Traced(Level.SHAPE, builtins=False) as traced:
        for value in (1, 1.5, "s"):
            captured(value)
        collect(1, 2.0, key="k", other=1)
        collect()
        list(rebound(1))
    calls = traced.calls()
    calls.pop("inner()")
    assert calls == {
        "captured(a: int)": 1,
        "captured(a: float)": 1,
        "captured(a: str)": 1,
        "collect(key: str, *args: (int, float), **kw: dict)": 1,
        "collect(key: None, *args: (), **kw: dict)": 1,
        "rebound(a: int)": 1,
        "rebound(a: str)": 1,
        "rebound(a: ?)": 1,
    }


def test_row_of_the_others_knows_their_sizes():
    """How many there were, the smallest and the largest."""
    with Traced(Level.SHAPE, cap=2) as traced:
        for n in (5, 6, 70, 3, 5, 3):
            dot(np.ones(n), 1 + np.ones(n))
    mine = [row for row in traced.book.rows if row.name == "dot"]
    (others,) = [row for row in mine if row.sizes is not None]
    assert label_of(others)[2] == ("dot(a: float64[:], b: float64[:]) (other shapes)")
    assert str(others.sizes) == "3 calls, 6 to 140 array elements"


def test_many_signatures_take_few_look_ups():
    """Once the cap is reached, keys answer for shapes that were never seen."""
    with Traced(Level.SHAPE, cap=4) as traced:
        for n in range(3000):
            fib_of(np.empty(n))
    assert len(traced.calls()) == 5
    assert traced.book.level_of(fib_of.__code__) is Level.NDIM


def fib_of(array):
    """Take an array."""
    return array


def test_arguments_live_no_longer_than_without():
    """What a function deletes is gone, although its arguments were looked at."""

    class Big:
        pass

    gone = []

    def consume(big):
        reference = weakref.ref(big)
        del big
        gc.collect()
        gone.append(reference() is None)

    def call(traced):
        consume(Big())

    with Traced(Level.SHAPE) as traced:
        call(traced)
    # Before 3.12 the interpreter itself keeps them, for every profiling function.
    assert gone == [MONITORING]


# -- beginnings and ends ---------------------------------------------------------------


def test_own_frames_are_hidden():
    """Neither starting nor stopping is in the table."""
    with Traced() as traced:
        pass
    assert {key[2] for key in traced.table()} <= {"__exit__"}


def test_frames_entered_before_are_passed_over():
    """Returning from what was entered before the start books nothing."""
    traced = Traced(builtins=False)

    def inner():
        traced.tracer.start()
        fib(1)

    def outer():
        inner()
        fib(1)

    outer()
    fib(1)
    traced.tracer.stop()
    assert traced.calls() == {"fib": 3}
    assert traced.table()[unsplit_of(fib)].callers == {}


def unsplit_of(func):
    """Return what pstats knows a function by."""
    code = func.__code__
    return (code.co_filename, code.co_firstlineno, code.co_name)


def test_generator_may_be_suspended_across_a_stop():
    """Only what runs while the tracer does is counted."""
    generator = steps(9)
    with Traced(builtins=False) as traced:
        next(generator)
        next(generator)
    next(generator)
    with Traced(builtins=False) as again:
        next(generator)
    assert (traced.calls(), again.calls()) == ({"steps": 2}, {"steps": 1})


def test_deep_recursion_is_followed():
    """``1/901``, as cProfile says."""

    def deep(n):
        return 0 if n == 0 else deep(n - 1)

    with Traced(builtins=False) as traced:
        deep(900 - len(inspect.stack()))
    (line,) = [line for key, line in traced.table().items() if key[2] == "deep"]
    assert line.primitive == 1
    assert line.calls == 901 - len(inspect.stack())


def test_recursion_error_is_the_programs_own():
    """It is raised and caught, and the stack is right afterwards."""

    def endless():
        endless()

    with Traced(builtins=False) as traced:
        try:
            endless()
        except RecursionError:
            fib(1)
    if MONITORING:
        assert traced.table()[unsplit_of(fib)].callers == {}
    else:
        # The interpreter drops a profiling function it has no stack left to call.
        assert "the recursion limit was reached" in traced.tracer.problems[-1]


def test_nothing_is_booked_while_numba_is_at_work():
    """Frames below dispatching or compiling are left out, and stay so in recursion."""
    traced = Traced(builtins=False)

    def compile_it():
        traced.engine.closed = True
        fib(3)
        compile_it_again()
        traced.engine.closed = False
        fib(1)

    def compile_it_again():
        if not traced.engine.closed:
            compile_it()

    with traced:
        compile_it_again()
    assert traced.calls() == {"compile_it": 1, "compile_it_again": 1, "fib": 1}


def test_failure_of_the_profiler_is_not_the_programs(monkeypatch):
    """It is noted once, and the calls are their caller's."""
    traced = Traced(builtins=False)
    monkeypatch.setattr(traced.book, "python_row", lambda *_: 1 / 0)
    with traced:
        assert fib(5) == 5
    assert traced.tracer.problems == [
        "Python calls: ZeroDivisionError: division by zero"
    ]
    assert traced.table() == {}


# -- threads and other tools -----------------------------------------------------------


def test_threads_have_stacks_of_their_own():
    """One function in two threads at once is no recursion."""
    inside, done = threading.Barrier(2), threading.Event()

    def work(thread):
        inside.wait(timeout=10)
        thread.join(timeout=10) if thread else done.wait(timeout=10)

    with Traced(builtins=False) as traced:
        thread = threading.Thread(target=work, args=(None,))
        thread.start()
        done.set()
        work(thread)
    line = traced.table()[unsplit_of(work)]
    assert (line.primitive, line.calls) == (2, 2)
    assert unsplit_of(work) not in line.callers


def test_threads_that_outlive_the_tracer_are_left_alone():
    """Their calls are not booked any more, and no profiling function stays."""
    stop, checked = threading.Event(), []
    started = threading.Event()

    def work():
        started.set()
        stop.wait(timeout=10)
        fib(1)
        checked.append(sys.getprofile())

    with Traced(builtins=False) as traced:
        thread = threading.Thread(target=work)
        thread.start()
        started.wait(timeout=10)
    stop.set()
    thread.join()
    assert checked == [None]
    assert "fib" not in traced.calls()


@pytest.mark.skipif(MONITORING, reason="several tools may listen on this Python")
def test_another_profiler_is_named_when_it_has_the_only_place():
    """Starting would blind it, so it is refused."""
    other = cProfile.Profile()
    traced = Traced()
    other.enable()
    try:
        with pytest.raises(ActiveSessionError, match=r"another profiler.*Profile"):
            traced.tracer.start()
        assert sys.getprofile() is other
    finally:
        other.disable()


@pytest.mark.skipif(MONITORING, reason="several tools may listen on this Python")
def test_profiler_that_takes_over_is_told_of():
    """It is left in place; what we missed is a problem of the result."""
    other = cProfile.Profile()
    traced = Traced()
    traced.tracer.start()
    other.enable()
    traced.tracer.stop()
    assert sys.getprofile() is other
    other.disable()
    assert "took over sys.setprofile" in traced.tracer.problems[0]


@pytest.mark.skipif(not MONITORING, reason="there is one place on this Python")
@pytest.mark.parametrize("ours_first", [True, False])
def test_cprofile_may_run_beside(ours_first):
    """Both see every call, whoever starts first."""
    other, traced = cProfile.Profile(builtins=False), Traced(builtins=False)
    starts = [traced.tracer.start, other.enable]
    stops = [traced.tracer.stop, other.disable]
    for start in starts if ours_first else starts[::-1]:
        start()
    fib(5)
    for stop in stops[::-1] if ours_first else stops:
        stop()
    assert traced.calls()["fib"] == 15
    assert pstats.Stats(other).stats[unsplit_of(fib)][1] == 15


@pytest.mark.skipif(not MONITORING, reason="there are no tool ids on this Python")
def test_holders_of_all_tool_ids_are_named():
    """Without an id nothing can be seen, and the message says who has them."""
    for tool in (3, 4, 5):
        sys.monitoring.use_tool_id(tool, f"tool{tool}")
    try:
        with pytest.raises(UnsupportedError, match="tool3, tool4, tool5"):
            Traced().tracer.start()
    finally:
        for tool in (3, 4, 5):
            sys.monitoring.free_tool_id(tool)


def test_compiled_call_has_no_python_row():
    """What Numba announces for a compiled call is no call of the Python function."""
    import numba

    @numba.njit
    def double(x):
        return 2 * x

    double(1)
    if MONITORING:
        double._enable_sysmon = True

    def caller():
        return double(1) + next(map(double, [1, 2])) + double.py_func(1)

    with Traced(builtins=False) as traced:
        caller()
    assert traced.calls() == {"caller": 1, "double": 1}
    assert traced.tracer.problems == []


# -- the real engine -------------------------------------------------------------------


def test_calls_reach_the_tree_of_the_engine():
    """Rows are nodes of the one tree, under their callers."""
    from numbaprof.native.row_stack import RowStack
    from numbaprof.native.shared import shared_engine

    shared = shared_engine()
    engine = shared.engine
    if engine is None:
        pytest.skip(shared.reason)
    book = RowBook(engine.new_row, Level.SHAPE)
    tracer = reference_tracer(RowStack(engine), book, builtins=False)
    engine.start(shared.ns_per_tick)
    tracer.start()
    fib(5)
    tracer.stop()
    engine.stop()
    records = engine.records()
    names = {row.address: row.name + row.signature for row in book.rows}
    mine = [record for record in records if record.slot in names]
    assert {names[record.slot] for record in mine} == {"fib(n: int)"}
    assert sum(record.calls for record in mine) == 15
    assert all(record.inclusive_ticks >= record.child_ticks for record in mine)
    outermost = [record for record in mine if records[record.parent].slot not in names]
    assert [record.calls for record in outermost] == [1]


# -- choosing --------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["", "native", "python"])
def test_backend_can_be_forced(monkeypatch, asked):
    """The environment names one, or none."""
    monkeypatch.setenv(cprofile_bridge.BACKEND_VARIABLE, asked)
    assert backend_request() == asked


def test_backend_that_does_not_exist_is_refused(monkeypatch):
    """The message names the variable and the choices."""
    monkeypatch.setenv(cprofile_bridge.BACKEND_VARIABLE, "magic")
    with pytest.raises(OptionError, match=r"NUMBAPROF_BACKEND='magic'.*native, python"):
        backend_request()


def test_backend_is_named():
    """The record says which mechanism was used."""
    expected = "sys.monitoring" if MONITORING else "sys.setprofile"
    assert Traced().tracer.backend.backend == expected
