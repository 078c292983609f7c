"""What a session changes comes back to the byte, and nobody sees it while it lasts."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pickle
import threading
import traceback
import weakref

import numpy as np
import process_state
import pytest
from numba import cfunc, guvectorize, njit, objmode, types, vectorize
from numba.core.errors import TypingError
from numba.core.registry import cpu_target
from numba.experimental import jitclass

from numbaprof import profile
from numbaprof.native import cpython_api, numba_api, patches
from numbaprof.native.engine import UfuncSlot

N_STRESS_CALLS = 20_000


@njit
def callee(value):
    """Be compiled into others."""
    return value * 2


@njit
def raising(value):
    """Raise at a known line."""
    if value < 0:
        raise ValueError("negative value", value)
    return value


@njit
def objmode_raising(value):
    """Raise inside an objmode block."""
    with objmode():
        check(value)
    return value


def check(value):
    """Raise in Python code called from compiled code."""
    if value < 0:
        raise KeyError(f"bad {value}")


@njit("int64(int64)")
def eager(value):
    """Take no other types."""
    return value + 1


@vectorize(["float64(float64)"])
def twice(value):
    """Be a ufunc."""
    return 2 * value


@guvectorize(["void(float64[:], float64[:])"], "(n)->()")
def total(row, out):
    """Be a generalized ufunc."""
    out[0] = row.sum()


@jitclass([("value", types.int64)])
class Box:
    """Have a constructor, a method, a property and a field."""

    def __init__(self, value):
        self.value = value

    def add(self, more):
        """Return the sum."""
        return self.value + more

    @property
    def double(self):
        """Return twice the value."""
        return self.value * 2


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is compared."""
    callee(1)
    callee(1.0)
    raising(1)
    objmode_raising(1)
    use_box()
    total(np.ones((2, 2)))


def use_box():
    """Use all of a jitclass."""
    box = Box(5)
    box.value = 6
    return box.add(2), box.double, box.value


def image():
    """Return the bytes of every place that a session writes to."""
    offset = cpython_api.find_method_self()
    image = {}
    entry_points = [
        cres.entry_point
        for dispatcher in numba_api.live_dispatchers()
        for cres in dispatcher.overloads.values()
        if cres.entry_point is not None
    ]
    entry_points += [getter for _, _, getter in numba_api.live_property_getters()]
    for entry_point in entry_points:
        size = type(entry_point).__basicsize__
        words = cpython_api.read_words(id(entry_point), size // 8)
        words[0] = 0  # the reference count
        definition = words[offset // 8 - 1]
        image[id(entry_point)] = (words, cpython_api.read_words(definition, 4))
    for cls in numba_api.dispatcher_types():
        words = cpython_api.read_words(id(cls), type.__basicsize__ // 8)
        image[cls.__name__] = words[cpython_api.find_type_call() // 8]
    for thing in numba_api.live_ufuncs():
        ufunc = numba_api.underlying_ufunc(thing)
        view = patches._UfuncObject.from_address(id(ufunc))
        image[ufunc.__name__, id(ufunc)] = [
            (view.functions[i], view.data[i]) for i in range(view.ntypes)
        ]
    image["definitions"] = sorted(map(hash, cpu_target.target_context._defns))
    return image


# -- to the byte -----------------------------------------------------------------------


def leave_quietly():
    """End without an exception."""


def leave_by_error():
    """End by an exception."""
    raise LookupError


def leave_by_exit():
    """End by SystemExit."""
    raise SystemExit(2)


def leave_by_interrupt():
    """End by KeyboardInterrupt."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "leave", [leave_quietly, leave_by_error, leave_by_exit, leave_by_interrupt]
)
def test_every_byte_is_restored(leave):
    """Entry points, tp_call, ufunc loops and definitions are what they were."""
    before = image()
    with contextlib.suppress(LookupError, SystemExit, KeyboardInterrupt), profile():
        changed = image()
        callee(1)
        twice(np.ones(2))
        use_box()
        leave()
    assert changed != before
    assert image() == before


def test_every_place_is_changed_while_it_lasts():
    """The comparison sees entry points, tp_call and loops when they are patched."""
    before = image()
    with profile():
        during = image()
    changed = {key for key in before if during[key] != before[key]}
    entry_point = callee.overloads[callee.signatures[0]].entry_point
    assert {id(entry_point), "CPUDispatcher", ("twice", id(twice.ufunc))} <= changed


def test_reference_counts_do_not_grow():
    """A hundred sessions leave no reference on an entry point's closure behind."""
    entry_point = callee.overloads[callee.signatures[0]].entry_point
    with profile():
        pass
    counts = []
    for _ in range(3):
        for _ in range(10):
            with profile():
                callee(1)
        gc.collect()
        slots = [o for o in gc.get_objects() if type(o).__name__ == "Slot"]
        counts.append((len(gc.get_referrers(entry_point.__self__)), len(slots)))
    assert counts[1] == counts[2]


def test_what_somebody_else_changed_is_left_and_told():
    """A loop that another tool replaced during the session stays theirs."""
    view = patches._UfuncObject.from_address(id(twice.ufunc))
    original = (view.functions[0], view.data[0])
    p = profile()
    p.start()
    view.functions[0] = original[0]
    result = p.stop()
    view.functions[0], view.data[0] = original
    assert result.losses.unrestored == ("somebody else changed loop 0 after us",)


# -- invisible -------------------------------------------------------------------------


def formatted(function, *arguments):
    """Return the traceback of a failing call as text."""
    try:
        function(*arguments)
    except Exception:
        return traceback.format_exc()
    raise AssertionError("the call did not fail")


def call(function, value):
    """Call from a line of its own."""
    return function(value)


@pytest.mark.parametrize(
    ("function", "value"),
    [(raising, -1), (objmode_raising, -1), (eager, "text"), (callee, None)],
    ids=["kernel", "objmode", "no match", "typing error"],
)
def test_traceback_is_identical(function, value):
    """No frame is added, message and chain stay, whatever fails."""
    plain = formatted(call, function, value)
    with profile():
        profiled = formatted(call, function, value)
    assert profiled.replace(repr(value), "") == plain.replace(repr(value), "")


def test_exception_object_has_its_arguments():
    """The exception's own data is untouched."""
    with profile(), pytest.raises(ValueError, match="negative") as caught:
        raising(-7)
    assert caught.value.args == ("negative value", -7)


@pytest.mark.parametrize(
    "use",
    [
        lambda: callee(21),
        lambda: callee(2.5),
        lambda: callee(np.arange(3)).tolist(),
        lambda: twice(np.arange(3.0)).tolist(),
        lambda: total(np.ones((2, 3))).tolist(),
        use_box,
        lambda: eager(np.float32(3)),
    ],
    ids=["int", "float", "array", "ufunc", "gufunc", "jitclass", "cast"],
)
def test_result_is_identical(use):
    """Values are the same with and without a profile."""
    plain = use()
    with profile():
        profiled = use()
    assert (profiled, use()) == (plain, plain)


def test_dispatcher_looks_the_same():
    """Signatures, statistics and representation of a dispatcher do not change."""
    plain = (repr(callee), callee.signatures, callee.nopython_signatures)
    with profile():
        assert (repr(callee), callee.signatures, callee.nopython_signatures) == plain


def test_dispatcher_pickles_while_profiled():
    """A profiled function can be sent to another process."""
    with profile():
        copy = pickle.loads(pickle.dumps(callee))
    assert copy(4) == 8


# -- compiling around it ---------------------------------------------------------------


def new_caller(**options):
    """Return a function not compiled yet that calls ``callee``."""

    @njit(**options)
    def caller(value):
        return callee(value) + callee(1.5)

    return caller


@pytest.mark.parametrize("options", [{}, {"fastmath": True}, {"parallel": True}])
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
def test_code_is_compiled_against_patched_functions(options):
    """A caller compiled during a session finds its profiled callee."""
    caller = new_caller(**options)
    with profile():
        assert caller(2) == 7
    assert caller(2) == 7


def test_code_is_compiled_against_restored_functions():
    """A caller compiled after a session finds its callee again."""
    with profile():
        callee(1)
    assert new_caller()(2) == 7


def test_recompile_while_profiled():
    """recompile() gives new overloads, which are counted with the old ones."""

    @njit
    def again(value):
        return value + 1

    again(1)
    with profile() as p:
        again(1)
        again.recompile()
        again(1)
    rows = [o for o in p.result.overloads if o.function.qualname.endswith("again")]
    assert [(row.calls, row.created_in_session) for row in rows] == [(2, True)]
    p.result.check()


def test_dispatcher_may_be_freed_while_profiled():
    """A dispatcher that dies in a session is freed then, and keeps its row."""

    def make():
        @njit
        def short_lived(value):
            return value

        short_lived(1)
        return weakref.ref(short_lived)

    before = make()
    with profile() as p:
        gc.collect()
        during = make()
        gc.collect()
        assert during() is None
    assert before() is None
    rows = [o for o in p.result.overloads if "short_lived" in o.function.qualname]
    assert [row.calls for row in rows] == [1]


def test_definitions_do_not_grow():
    """The compiler's table has no entries for what is gone."""

    def make():
        njit(lambda value: value)(1)

    make()
    gc.collect()
    before = len(cpu_target.target_context._defns)
    with profile():
        make()
        gc.collect()
    gc.collect()
    assert len(cpu_target.target_context._defns) == before


def test_typing_error_while_profiled_leaves_the_function_usable():
    """After a failed compilation the function compiles for other types."""

    @njit
    def picky(value):
        return value + 1

    with profile() as p:
        with pytest.raises(TypingError):
            picky("text")
        assert picky(1) == 2
    (row,) = [o for o in p.result.overloads if o.function.qualname.endswith("picky")]
    assert row.calls == 1


# -- threads ---------------------------------------------------------------------------


def test_eager_function_never_fails_under_starts_and_stops():
    """Three threads call a closed dispatcher without an error while sessions pass."""
    failures = []
    done = threading.Event()

    def work():
        for number in range(N_STRESS_CALLS):
            try:
                if eager(number) != number + 1:
                    failures.append(number)
            except TypeError as error:
                failures.append(error)
        done.set()

    before = process_state.read()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    n_sessions = 0
    while not done.is_set() or n_sessions < 3:
        with profile() as p:
            pass
        p.result.check()
        n_sessions += 1
    for thread in threads:
        thread.join()
    assert failures == []
    assert process_state.differences(before, process_state.read()) == []


def test_loop_that_numpy_holds_outlives_the_session():
    """NumPy goes on calling a loop, row by row, after the ufunc was restored."""
    view = patches._UfuncObject.from_address(id(twice.ufunc))
    with profile():
        function, data = view.functions[0], view.data[0]
    gc.collect()
    # isinstance() would ask dead proxies among them.
    alive = [s for s in gc.get_objects() if type(s) is UfuncSlot]
    assert data in [ctypes.addressof(slot) for slot in alive]
    source, target = np.arange(4.0), np.zeros(4)
    args = (ctypes.c_void_p * 2)(source.ctypes.data, target.ctypes.data)
    dims = (ctypes.c_ssize_t * 1)(4)
    steps = (ctypes.c_ssize_t * 2)(8, 8)
    loop = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(function)
    loop(ctypes.addressof(args), ctypes.addressof(dims), ctypes.addressof(steps), data)
    assert target.tolist() == [0, 2, 4, 6]


def test_loop_slots_are_used_again():
    """Many sessions need no more memory for loops than one."""
    for _ in range(2):
        with profile():
            twice(np.ones(2))
    counts = []
    for _ in range(2):
        for _ in range(5):
            with profile():
                twice(np.ones(2))
        counts.append(sum(type(o) is UfuncSlot for o in gc.get_objects()))
    assert counts[0] == counts[1]


def test_callback_address_is_restored():
    """A C callback made during a session has its own address again afterwards."""
    with profile():

        @cfunc(types.float64(types.float64))
        def half(value):
            return value / 2

        during = half.address
    assert half.address != during
    assert half.ctypes(3.0) == 1.5
