"""Compile events: what Numba compiled and loaded, how it nests, and who asked."""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numba import (
    cfunc,
    float64,
    guvectorize,
    int64,
    jit,
    literally,
    njit,
    objmode,
    stencil,
    vectorize,
)
from numba.core import event as numba_event
from numba.core.caching import Cache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError
from numba.extending import overload

from numbaprof import compile_events
from numbaprof.compile_events import CompileEvents
from numbaprof.errors import AttachError, SessionStateError
from numbaprof.model import FunctionId
from numbaprof.native import compile_points
from numbaprof.native.compile_points import Work
from numbaprof.native.numba_api import FunctionRegistry

TIMEOUT_S = 60


class Recording:
    """One use of the instrument, readable once it has stopped."""

    def __init__(self, **options):
        self.registry = FunctionRegistry()
        self.instrument = CompileEvents(self.registry, **options)

    @property
    def all(self):
        """Every event, Numba's own helpers included."""
        return self.instrument.events()

    @property
    def events(self):
        """The events of the program's own functions."""
        return [event for event in self.all if not event.internal]

    def of(self, thing):
        """Return the events of one function."""
        function = self.registry.identify(thing)
        return [event for event in self.all if event.function == function]


@contextmanager
def recording(**options):
    """Record what happens in the block; nothing may go wrong unnoticed."""
    record = Recording(**options)
    record.instrument.start()
    try:
        yield record
    finally:
        record.instrument.stop()
    assert record.instrument.hook_errors == ()
    assert record.instrument.unrestored == ()


def outline(events):
    """Reduce events to (event, kind, signature)."""
    return [(event.event, event.kind, event.signature) for event in events]


class Tree:
    """A context tree that checks nesting and keeps the kinds."""

    def __init__(self):
        self.open = []
        self.kinds = []

    def open_frame(self, kind):
        """Push a frame."""
        self.open.append(len(self.kinds))
        self.kinds.append(kind)
        return self.open[-1]

    def rename_frame(self, token, kind):
        """Change the kind of the top frame."""
        assert self.open[-1] == token
        self.kinds[token] = kind

    def close_frame(self, token):
        """Pop a frame, which must be the top one."""
        assert self.open.pop() == token


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        """Return the time."""
        return self.now


# -- what is recorded, on real Numba --------------------------------------------------


def test_nested_compilations_add_up_to_the_outer_one():
    """Calls three deep: three events, whose exclusive times sum to the outermost."""

    @njit
    def g(x):
        return x + 1

    @njit
    def h(x):
        return g(x) * 2

    @njit
    def f(x):
        return h(x) + g(x)

    with recording() as record:
        assert f(1) == 6
    names = [event.function.qualname.rpartition(".")[2] for event in record.all]
    assert names == ["f", "h", "g"]
    assert [event.parent for event in record.all] == [-1, 0, 1]
    assert outline(record.all) == [("compile", "dispatcher", "(int64)")] * 3
    assert record.all[0].inclusive_ns == sum(e.exclusive_ns for e in record.all)


def test_trigger_of_nested_events_is_the_programs_call():
    """Function, line and file of the call that made it all necessary."""

    @njit
    def inner(x):
        return x

    @njit
    def outer(x):
        return inner(x)

    with recording() as record:
        line = inspect.currentframe().f_lineno + 1
        outer(1)
    places = {(e.trigger.file, e.trigger.line, e.trigger.module) for e in record.all}
    assert places == {(__file__, line, __name__)}
    assert [event.at_import for event in record.all] == [False, False]


def test_second_call_compiles_nothing():
    """No event without compiling."""

    @njit
    def f(x):
        return x

    f(1)
    with recording() as record:
        f(2)
    assert record.all == ()


def test_failed_compilation_says_why():
    """The error's type and the line that says something; the program gets the error."""

    @njit
    def bad(x):
        return x.nope

    with recording() as record, pytest.raises(TypingError):
        bad(1)
    [event] = record.all
    assert outline([event]) == [("failed", "dispatcher", "(int64)")]
    assert event.error == "TypingError: Unknown attribute 'nope' of type int64"


def test_failure_inside_another_compilation_fails_both():
    """The inner failure is the outer one's child."""

    @njit
    def bad(x):
        return x.nope

    @njit
    def caller(x):
        return bad(x)

    with recording() as record, pytest.raises(TypingError):
        caller(1)
    own = record.events
    assert [event.event for event in own][:2] == ["failed", "failed"]
    assert own[1].parent == record.all.index(own[0])


def test_interrupt_is_recorded_and_passed_on():
    """KeyboardInterrupt while compiling reaches the program and ends the event."""

    def interruptible():
        return None

    @overload(interruptible)
    def interrupt():
        raise KeyboardInterrupt

    @njit
    def f():
        return interruptible()

    with recording() as record, pytest.raises(KeyboardInterrupt):
        f()
    [event] = record.of(f)
    assert (event.event, event.error) == ("failed", "KeyboardInterrupt")
    assert record.instrument.unfinished == 0


def test_request_for_literals_is_not_a_failure():
    """A function that wants a literal is compiled twice: to find out, and with it."""

    @njit
    def f(x):
        return literally(x)

    with recording() as record:
        assert f(3) == 3
    assert outline(record.of(f)) == [
        ("compile", "literal request", "(int64)"),
        ("compile", "dispatcher", "(Literal[3])"),
    ]


def test_eager_signatures_compile_in_the_decorator():
    """One event per signature, triggered by the line of the decorator."""
    with recording() as record:

        @njit([int64(int64), float64(float64)])
        def f(x):
            return x

    assert outline(record.of(f)) == [
        ("compile", "dispatcher", "(int64)"),
        ("compile", "dispatcher", "(float64)"),
    ]
    assert {event.trigger.module for event in record.all} == {__name__}


def test_passes_are_named_and_timed():
    """Pass times come from Numba, in order, and fit into the event."""

    @njit
    def f(x):
        return x

    with recording() as record:
        f(1)
    [event] = record.all
    names = [name for name, _ in event.passes]
    assert names[0] == "translate_bytecode"
    assert names.index("nopython_type_inference") < names.index("native_lowering")
    assert 0 < sum(ns for _, ns in event.passes) <= event.inclusive_ns


def test_recursion_is_one_event():
    """A function that calls itself compiles once."""

    @njit
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    with recording() as record:
        fib(3)
    assert outline(record.all) == [("compile", "dispatcher", "(int64)")]


def test_objmode_body_is_a_child():
    """The lifted block is compiled within its function."""

    @njit
    def f(x):
        with objmode(y="int64"):
            y = x + 1
        return y

    with recording() as record:
        assert f(1) == 2
    assert [event.kind for event in record.all] == ["dispatcher", "objmode body"]
    assert record.all[1].parent == 0


def test_lifted_loop_has_its_own_event():
    """An object-mode function compiles, then its loop when first run."""

    @jit(forceobj=True)
    def f(values):
        text = str(values.size)
        total = 0.0
        for i in range(values.size):
            total += values[i]
        return total, text

    with recording() as record:
        assert f(np.ones(3)) == (3.0, "3")
    assert [event.kind for event in record.all] == ["dispatcher", "lifted loop"]


def test_overload_implementation_is_a_child_of_its_own_kind():
    """An @overload implementation cannot be called from Python, and is marked so."""

    def triple(x):
        return 3 * x

    @overload(triple)
    def compile_triple(x):
        return lambda x: x * 3

    @njit
    def f(x):
        return triple(x)

    with recording() as record:
        assert f(2) == 6
    assert [event.kind for event in record.all] == ["dispatcher", "overload"]
    assert record.all[1].parent == 0


def test_helpers_of_numba_are_internal():
    """What Numba compiles for itself is marked, and nests in what needed it."""

    @njit
    def f(values):
        # One that no other test has compiled in this process.
        return np.ptp(values)

    with recording() as record:
        assert f(np.ones(3)) == 0.0
    [own] = record.events
    helpers = [event for event in record.all if event.internal]
    assert own.function == record.registry.identify(f)
    assert helpers
    assert {event.function.module.partition(".")[0] for event in helpers} == {"numba"}
    assert all(event.parent >= 0 for event in helpers)


def test_vectorize_compiles_once_per_loop():
    """A dynamic ufunc has one event for each loop it had to make."""

    @vectorize
    def inc(x):
        return x + 1

    with recording() as record:
        inc(np.arange(3))
        inc(np.ones(3))
        inc(np.arange(3))
    assert outline(record.of(inc)) == [
        ("compile", "vectorize", "(int64)"),
        ("compile", "vectorize", "(float64)"),
    ]
    assert all(event.passes for event in record.all)


def test_vectorize_called_in_compiled_code_is_a_child():
    """A loop that another function's compilation needs belongs to it."""

    @vectorize
    def inc(x):
        return x + 1

    @njit
    def f(values):
        return inc(values)

    with recording() as record:
        f(np.ones(3))
    [event] = record.of(inc)
    assert record.all[event.parent].function == record.registry.identify(f)


def test_failed_vectorize_names_the_requested_types():
    """Failures of ufuncs, which Numba does not announce, are events as well."""

    def bad(x):
        return x.nope

    with recording() as record, pytest.raises(TypingError):
        vectorize(["f8(f8)"])(bad)
    assert outline(record.all) == [("failed", "vectorize", "(float64)")]
    assert record.all[0].error == (
        "TypingError: Unknown attribute 'nope' of type float64"
    )


def test_rejected_signature_is_no_event():
    """Nothing has been compiled when the types are refused before it."""

    @vectorize(["f8(f8)"])
    def f(x):
        return x

    with recording() as record, pytest.raises(RuntimeError, match="disabled"):
        f.add("i8(i8)")
    assert record.all == ()


def test_parallel_vectorize_compiles_kernels_then_wrappers():
    """The wrapper of a parallel loop is compiled apart, and costs its own time."""
    with recording() as record:

        @vectorize(["f8(f8)", "f4(f4)"], target="parallel")
        def inc(x):
            return x + 1

    assert outline(record.all) == [
        ("compile", "vectorize", "(float64)"),
        ("compile", "vectorize", "(float32)"),
        ("compile", "loop wrapper", "(float64)"),
        ("compile", "loop wrapper", "(float32)"),
    ]
    assert record.of(inc) == list(record.all)


GUFUNC_OUTLINE = [
    ("compile", "guvectorize", "(float64, int64)"),
    ("compile", "loop wrapper", "(float64, int64)"),
]


@pytest.mark.parametrize("target", ["cpu", "parallel"])
def test_guvectorize_compiles_kernel_and_wrapper(target):
    """Both targets have the same events, under the identity of what was returned.

    The signature is that of the loop: the element types of its inputs.
    """
    with recording() as record:

        @guvectorize(["void(f8[:], i8, f8[:])"], "(n),()->()", target=target)
        def pick(values, index, result):
            result[0] = values[index]

    assert outline(record.all) == GUFUNC_OUTLINE
    assert record.of(pick) == list(record.all)
    assert record.all[0].function.instance == 0


def test_dynamic_guvectorize_compiles_when_called():
    """Without signatures the first call of each type compiles, under one identity."""

    @guvectorize("(n),()->()")
    def pick(values, index, result):
        result[0] = values[index]

    with recording() as record:
        pick(np.ones((2, 3)), 1, np.zeros(2))
        pick(np.ones((2, 3)), 1, np.zeros(2))
    assert outline(record.all) == GUFUNC_OUTLINE
    assert record.of(pick) == list(record.all)


def test_cfunc_is_an_event():
    """A C callback compiles in its decorator; what it calls is its child."""

    @njit
    def half(x):
        return x / 2

    with recording() as record:

        @cfunc("f8(f8)")
        def callback(x):
            return half(x)

    assert outline(record.all) == [
        ("compile", "cfunc", "(float64)"),
        ("compile", "dispatcher", "(float64)"),
    ]
    assert record.all[1].parent == 0
    assert record.of(callback) == [record.all[0]]
    assert record.all[0].passes


def test_stencil_compiles_on_every_call_from_python():
    """Three calls with the same types are three compilations."""

    @stencil
    def smooth(a):
        return a[-1] + a[1]

    with recording() as record:
        for _ in range(3):
            smooth(np.ones(5))
    assert outline(record.of(smooth)) == [("compile", "stencil", "(float64[::1])")] * 3


def test_stencil_in_compiled_code_is_told_apart():
    """A stencil that an njit function uses compiles with it, and once."""

    @stencil
    def smooth(a):
        return a[-1] + a[1]

    @njit
    def f(a):
        return smooth(a)

    with recording() as record:
        f(np.ones(5))
        f(np.ones(5))
    [event] = record.of(smooth)
    assert event.kind == "nested stencil"
    assert record.all[event.parent].function == record.registry.identify(f)


# -- the cache ------------------------------------------------------------------------

CACHED_PROGRAM = '''
"""Compiles or loads one function of each kind, and prints the events."""

import json

import numpy as np
from numba import cfunc, guvectorize, njit, vectorize

from numbaprof.compile_events import CompileEvents
from numbaprof.native.numba_api import FunctionRegistry


class Tree:
    kinds = []

    def open_frame(self, kind):
        self.kinds.append([kind, None])
        return len(self.kinds) - 1

    def rename_frame(self, token, kind):
        self.kinds[token][0] = kind

    def close_frame(self, token):
        self.kinds[token][1] = "closed"


registry = FunctionRegistry()
instrument = CompileEvents(registry, tree=Tree())
instrument.start()


@njit(cache=True)
def inner(x):
    return x + 1


@njit(cache=True)
def outer(x):
    return inner(x)


@vectorize(cache=True)
def inc(x):
    return x + 1


@guvectorize(["void(f8[:], f8[:])"], "(n)->()", cache=True)
def first(values, result):
    result[0] = values[0]


@cfunc("f8(f8)", cache=True)
def callback(x):
    return x


outer(1)
inc(np.ones(3))
instrument.stop()
print(json.dumps({
    "events": [
        [e.function.qualname, e.event, e.kind, e.signature, len(e.passes) > 0]
        for e in instrument.events()
    ],
    "identities": [
        e.function == registry.identify(outer)
        for e in instrument.events() if e.function.qualname == "outer"
    ],
    "errors": instrument.hook_errors + instrument.unrestored,
    "unfinished": instrument.unfinished,
    "open": sum(end is None for _, end in Tree.kinds),
    "misses": sum(kind == "cache_miss" for kind, _ in Tree.kinds),
}))
'''


def run_cached_program(directory):
    """Run the program in a process of its own; return what it printed."""
    script = directory / "cached_program.py"
    if not script.exists():
        script.write_text(CACHED_PROGRAM)
    root = Path(compile_events.__file__).parents[1]
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(directory / "cache"),
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout)


def test_second_process_loads_what_the_first_compiled(tmp_path):
    """A hit is one cache_load event, under the function's name; a miss is none."""
    first = run_cached_program(tmp_path)
    second = run_cached_program(tmp_path)
    assert first == {
        "events": [
            ["first", "compile", "guvectorize", "(float64)", True],
            ["first", "compile", "loop wrapper", "(float64)", False],
            ["callback", "compile", "cfunc", "(float64)", True],
            ["outer", "compile", "dispatcher", "(int64)", True],
            ["inner", "compile", "dispatcher", "(int64)", True],
            ["inc", "compile", "vectorize", "(float64)", True],
        ],
        "identities": [True],
        "errors": [],
        "unfinished": 0,
        "open": 0,
        "misses": 5,
    }
    assert second == {
        "events": [
            ["first", "cache_load", "guvectorize", "(float64)", False],
            ["first", "cache_load", "loop wrapper", "(float64)", False],
            ["callback", "cache_load", "cfunc", "(float64)", False],
            ["outer", "cache_load", "dispatcher", "(int64)", False],
            ["inc", "cache_load", "vectorize", "(float64)", False],
        ],
        "identities": [True],
        "errors": [],
        "unfinished": 0,
        "open": 0,
        "misses": 0,
    }


# -- imports --------------------------------------------------------------------------


def test_compilation_at_import_names_module_and_line(tmp_path, monkeypatch):
    """An eager function in a module is charged to its decorator, at import of it."""
    (tmp_path / "eager_kernels.py").write_text(
        "from numba import njit\n\n\n@njit('i8(i8)')\ndef twice(x):\n    return 2 * x\n"
    )
    (tmp_path / "eager_package.py").write_text("import eager_kernels\n")
    monkeypatch.syspath_prepend(tmp_path)
    with recording() as record:
        importlib.import_module("eager_package")
    for name in ("eager_package", "eager_kernels"):
        del sys.modules[name]
    [event] = record.all
    # The call of a decorator has its own line since 3.11, the line of the def before.
    line = 4 if sys.version_info >= (3, 11) else 5
    assert (event.trigger.module, event.trigger.line) == ("eager_kernels", line)
    assert (event.at_import, event.import_module) == (True, "eager_kernels")


# -- threads --------------------------------------------------------------------------


def test_threads_compile_one_after_the_other():
    """Events of waiting threads do not contain the wait: they do not overlap."""
    functions = [njit(lambda x: x + 1) for _ in range(4)]
    ready = threading.Barrier(len(functions))

    def work(function):
        ready.wait(TIMEOUT_S)
        function(1)

    with recording() as record:
        threads = [
            threading.Thread(target=work, args=(function,), name=f"compiler {number}")
            for number, function in enumerate(functions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = sorted(record.all, key=lambda event: event.start_ns)
    assert {event.thread for event in events} == {f"compiler {n}" for n in range(4)}
    assert {event.parent for event in events} == {-1}
    ends = [event.start_ns + event.inclusive_ns for event in events]
    assert all(e.start_ns >= end for e, end in zip(events[1:], ends, strict=False))


def test_waiting_for_the_compiler_lock_is_not_compiling():
    """A C callback that had to wait starts when the lock is free."""
    waiting = threading.Event()

    class Waiter(numba_event.Listener):
        def on_start(self, event):
            if threading.current_thread() is not threading.main_thread():
                waiting.set()

        def on_end(self, event):
            pass

    def compile_callback():
        cfunc("f8(f8)")(lambda x: x)

    clock = Clock()
    with (
        recording(clock=clock) as record,
        numba_event.install_listener("numba:compiler_lock", Waiter()),
    ):
        thread = threading.Thread(target=compile_callback)
        with global_compiler_lock:
            thread.start()
            assert waiting.wait(TIMEOUT_S)
            clock.now = 1000
        thread.join()
    [event] = record.all
    assert (event.kind, event.start_ns) == ("cfunc", 1000)


@contextmanager
def compilation_under_way():
    """Hold a compilation in another thread while the block runs."""
    entered, leave = threading.Event(), threading.Event()

    def pausing():
        return None

    @overload(pausing)
    def pause():
        entered.set()
        assert leave.wait(TIMEOUT_S)
        return lambda: 5

    @njit
    def f():
        return pausing()

    results = []
    thread = threading.Thread(target=lambda: results.append(f()))
    thread.start()
    assert entered.wait(TIMEOUT_S)
    try:
        yield
    finally:
        leave.set()
        thread.join()
    assert results == [5]


def test_stop_during_a_compilation_counts_it_as_unfinished():
    """Stopping does not wait, and the compilation goes on undisturbed."""
    record = Recording()
    record.instrument.start()
    with compilation_under_way():
        record.instrument.stop()
        assert record.instrument.unfinished == 1
    assert (record.all, record.instrument.unfinished) == ((), 1)
    assert record.instrument.hook_errors == ()


def test_start_during_a_compilation_counts_it_as_unfinished():
    """An end without a beginning is a loss; what begins later inside is an event."""
    record = Recording()
    with compilation_under_way():
        record.instrument.start()
    record.instrument.stop()
    assert [event.kind for event in record.all] == ["overload"]
    assert record.all[0].parent == -1
    assert record.instrument.unfinished == 1


# -- what must not happen -------------------------------------------------------------


def test_dispatchers_are_not_kept_alive():
    """An event keeps the identity of a function, never the function."""

    @njit
    def f(x):
        return x

    with recording() as record:
        f(1)
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None
    assert record.all[0].function.qualname.endswith("<locals>.f")


class FailingRegistry(FunctionRegistry):
    """A registry with a bug."""

    def identify(self, thing, args=None):
        """Fail."""
        raise LookupError("no identity")


def test_error_of_ours_does_not_reach_the_program():
    """The program gets its results, we get a message."""
    instrument = CompileEvents(FailingRegistry())
    instrument.start()
    assert njit(lambda x: x + 1)(1) == 2
    assert vectorize(lambda x: x + 1)(1) == 2
    instrument.stop()
    assert instrument.events() == ()
    assert instrument.hook_errors == (
        "listener of numba:compile: LookupError: no identity",
        "after DUFunc._compile_for_argtys: LookupError: no identity",
    )


def test_patch_by_somebody_else_is_reported_and_left():
    """What was changed after us stays, with a reason."""
    original = Cache.__dict__["load_overload"]
    instrument = CompileEvents(FunctionRegistry())
    instrument.start()

    def theirs(self, sig, target_context):
        return original(self, sig, target_context)

    Cache.load_overload = theirs
    try:
        instrument.stop()
        assert Cache.__dict__["load_overload"] is theirs
        [reason] = instrument.unrestored
        assert reason.startswith("Cache.load_overload was replaced by <function")
    finally:
        Cache.load_overload = original


def test_start_that_fails_leaves_nothing_behind(monkeypatch):
    """When a place cannot be listened to, the others are restored."""
    monkeypatch.delattr(compile_points.StencilFunc, "_stencil_wrapper")
    original = Cache.__dict__["load_overload"]
    instrument = CompileEvents(FunctionRegistry())
    with pytest.raises(AttachError, match=r"StencilFunc\._stencil_wrapper does not"):
        instrument.start()
    assert Cache.__dict__["load_overload"] is original
    assert numba_event._registered["numba:compile"] == []


def test_starting_twice_is_refused():
    """One instance measures one session."""
    instrument = CompileEvents(FunctionRegistry())
    instrument.start()
    with pytest.raises(SessionStateError, match="make a new CompileEvents"):
        instrument.start()
    instrument.stop()
    with pytest.raises(SessionStateError, match="make a new CompileEvents"):
        instrument.start()


@pytest.mark.parametrize("name", compile_points.PRIVATE_NAMES)
def test_private_name_of_numba_exists(name):
    """Numba still has what the compile points hook or read."""
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    assert found is not None


def test_event_still_carries_its_exception():
    """`Event._exc_details`, read because `is_failed` is inverted, is still there."""
    error = ValueError("why")
    event = numba_event.Event(
        "numba:compile",
        numba_event.EventStatus.END,
        exc_details=(ValueError, error, None),
    )
    assert event._exc_details[1] is error
    assert not event.is_failed


# -- accounting, with a clock of our own ----------------------------------------------


class Bench:
    """An instrument that is told what happens, at times that are set."""

    def __init__(self):
        self.clock = Clock()
        self.tree = Tree()
        self.instrument = CompileEvents(
            FunctionRegistry(), tree=self.tree, clock=self.clock
        )
        self.tokens = {}

    def at(self, now_ns):
        """Set the time; return the instrument."""
        self.clock.now = now_ns
        return self.instrument

    def token(self, name):
        """Return the token of a name."""
        return self.tokens.setdefault(name, [name])

    def begin(self, now_ns, name, outcome="compile", lookups="apart"):
        """Begin some work."""
        self.at(now_ns).begin(self.token(name), outcome, lookups)

    def end(self, now_ns, name, failed=False):
        """End some work."""
        self.at(now_ns).end(self.token(name), self.describe(name), failed)

    def look(self, begin_ns, end_ns, name, result):
        """Look into the cache."""
        self.at(begin_ns).look_up(self.token(name))
        self.at(end_ns).looked_up(self.token(name), result, self.describe(name))

    @staticmethod
    def describe(name):
        """Return the description of some work."""
        return lambda: Work(FunctionId("m", name, "m.py", 1), (), "dispatcher")

    @property
    def summary(self):
        """Name, outcome, start, inclusive, exclusive and parent of each event."""
        return [
            (
                event.function.qualname,
                event.event,
                event.start_ns,
                event.inclusive_ns,
                event.exclusive_ns,
                event.parent,
            )
            for event in self.instrument.events()
        ]


@pytest.fixture
def bench():
    """Return a bench, started at 100 ns."""
    bench = Bench()
    bench.at(100).start()
    yield bench
    bench.instrument.stop()
    assert bench.instrument.hook_errors == ()


def test_exclusive_time_is_without_the_events_inside(bench):
    """Children and grandchildren are each taken out once."""
    bench.begin(110, "f")
    bench.begin(120, "h")
    bench.begin(125, "g")
    bench.end(135, "g")
    bench.end(140, "h")
    bench.begin(150, "k")
    bench.end(155, "k")
    bench.end(210, "f")
    assert bench.summary == [
        ("f", "compile", 10, 100, 75, -1),
        ("h", "compile", 20, 20, 10, 0),
        ("g", "compile", 25, 10, 10, 1),
        ("k", "compile", 50, 5, 5, 0),
    ]
    assert bench.tree.open == []


def test_origin_may_be_given():
    """Start times can count from the session's own beginning."""
    bench = Bench()
    bench.at(100).start(origin_ns=40)
    bench.begin(110, "f")
    bench.end(111, "f")
    bench.instrument.stop()
    assert bench.summary == [("f", "compile", 70, 1, 1, -1)]


def test_process_index_is_set_on_request(bench):
    """Events can be made for any process of a result."""
    bench.begin(110, "f")
    bench.end(111, "f")
    assert [event.process for event in bench.instrument.events(process=2)] == [2]


def test_failure_is_an_event_of_its_outcome(bench):
    """A failed compilation keeps its time."""
    bench.begin(110, "f")
    bench.end(130, "f", failed=True)
    assert bench.summary == [("f", "failed", 10, 20, 20, -1)]


def test_cache_hit_is_an_event(bench):
    """A load inside a compilation is its child."""
    bench.begin(110, "f")
    bench.look(120, 123, "g", object())
    bench.end(130, "f")
    assert bench.summary == [
        ("f", "compile", 10, 20, 17, -1),
        ("g", "cache_load", 20, 3, 3, 0),
    ]
    assert bench.tree.kinds == ["compile", "cache_load"]


def test_cache_miss_has_not_happened(bench):
    """The time of a miss stays with what is around it; events inside move up."""
    bench.begin(110, "f")
    bench.at(120).look_up(bench.token("g"))
    bench.begin(121, "k")
    bench.end(123, "k")
    bench.at(125).looked_up(bench.token("g"), None, bench.describe("g"))
    bench.end(130, "f")
    assert bench.summary == [
        ("f", "compile", 10, 20, 18, -1),
        ("k", "compile", 21, 2, 2, 0),
    ]
    assert bench.tree.kinds == ["compile", "cache_miss", "compile"]
    assert bench.tree.open == []


def test_failed_load_is_an_event(bench):
    """A cache that raises is a failure of its own."""
    bench.at(110).look_up(bench.token("g"))
    bench.at(115).lookup_failed(bench.token("g"), bench.describe("g"))
    assert bench.summary == [("g", "failed", 10, 5, 5, -1)]


def test_expected_work_starts_with_the_first_pass(bench):
    """Time before the first sign of work (the compiler lock) is not counted."""
    bench.begin(110, "f", None)
    bench.at(150).advance()
    bench.at(160).advance()
    bench.end(170, "f")
    assert bench.summary == [("f", "compile", 50, 20, 20, -1)]


def test_expected_work_that_never_came_is_no_event(bench):
    """Nothing is recorded, and events inside belong to what is around."""
    bench.begin(110, "f")
    bench.begin(120, "idle", None)
    bench.begin(125, "g")
    bench.end(128, "g")
    bench.end(130, "idle")
    bench.end(140, "f")
    assert bench.summary == [
        ("f", "compile", 10, 30, 27, -1),
        ("g", "compile", 25, 3, 3, 0),
    ]


def test_hit_makes_expected_work_a_load(bench):
    """The whole of it counts, from the look into the cache on."""
    bench.begin(110, "f", None)
    bench.look(120, 130, "f's cache", object())
    bench.end(150, "f")
    assert bench.summary == [("f", "cache_load", 20, 30, 30, -1)]
    assert bench.tree.kinds == ["cache_load"]
    assert bench.tree.open == []


def test_miss_leaves_expected_work_expected(bench):
    """After a miss it is the first pass that starts the time."""
    bench.begin(110, "f", None)
    bench.look(120, 130, "f's cache", None)
    bench.at(135).advance()
    bench.look(140, 145, "callee", object())
    bench.end(150, "f")
    assert bench.summary == [
        ("f", "compile", 35, 15, 10, -1),
        ("callee", "cache_load", 40, 5, 5, 0),
    ]
    assert bench.tree.kinds == ["cache_miss", "compile", "cache_load"]


def test_failed_look_for_expected_work_is_one_failure(bench):
    """The work fails, not the look."""
    bench.begin(110, "f", None)
    bench.at(120).look_up(bench.token("cache"))
    bench.at(125).lookup_failed(bench.token("cache"), bench.describe("cache"))
    bench.end(130, "f", failed=True)
    assert bench.summary == [("f", "failed", 20, 10, 10, -1)]


@pytest.mark.parametrize(
    ("lookups", "result", "event"),
    [
        ("decide", object(), "cache_load"),
        ("decide", None, "compile"),
        ("part", object(), "compile"),
    ],
)
def test_look_that_is_a_part_of_the_work(bench, lookups, result, event):
    """Wrappers look into the cache themselves; what that means is up to them."""
    bench.begin(110, "wrapper", "compile", lookups)
    bench.look(115, 118, "its cache", result)
    bench.end(130, "wrapper")
    assert bench.summary == [("wrapper", event, 10, 20, 20, -1)]
    assert bench.tree.kinds == [event]


def test_load_is_named_by_who_takes_it(bench):
    """The dispatcher that gets a loaded overload gives it identity and kind."""

    class Result:
        class signature:
            args = ()

    owner = FunctionId("m", "owner", "m.py", 1, instance=3)
    bench.look(120, 130, "python function", Result)
    bench.instrument.claim(object(), owner, "somebody else's")
    bench.instrument.claim(Result, owner, "lifted loop")
    bench.instrument.claim(Result, FunctionId("m", "late", "m.py", 1), "late")
    [event] = bench.instrument.events()
    assert (event.function, event.kind) == (owner, "lifted loop")


def test_lost_end_is_counted_and_does_not_spoil_the_rest(bench):
    """Work whose end never came is dropped when what is around it ends."""
    bench.begin(110, "f")
    bench.begin(120, "lost")
    bench.begin(125, "g")
    bench.end(130, "g")
    bench.end(140, "f")
    assert bench.summary == [
        ("f", "compile", 10, 30, 25, -1),
        ("g", "compile", 25, 5, 5, 0),
    ]
    assert bench.instrument.unfinished == 1
    assert bench.tree.open == []


def test_end_without_a_beginning_is_counted(bench):
    """What began before the session is not an event."""
    bench.end(120, "early")
    assert (bench.summary, bench.instrument.unfinished) == ([], 1)


def test_forked_child_starts_with_nothing(bench):
    """Events, open work and losses of the parent are not the child's."""
    bench.end(105, "early")
    bench.begin(110, "f")
    bench.begin(112, "g")
    bench.end(115, "g")
    bench.at(150).reset_after_fork()
    assert (bench.summary, bench.instrument.unfinished) == ([], 0)
    bench.end(160, "f")
    bench.begin(170, "h")
    bench.end(172, "h")
    assert bench.summary == [("h", "compile", 20, 2, 2, -1)]
    assert bench.instrument.unfinished == 1


def test_nothing_is_recorded_after_stop(bench):
    """Open work is counted at stop, once, and its end changes nothing."""
    bench.begin(110, "f")
    bench.begin(115, "idle", None)
    bench.instrument.stop()
    bench.end(120, "f")
    bench.begin(130, "late")
    bench.end(131, "late")
    bench.instrument.stop()
    assert (bench.summary, bench.instrument.unfinished) == ([], 1)
