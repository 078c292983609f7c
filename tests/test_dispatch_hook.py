"""The instrument: what it attaches to, what it says it cannot see, what it keeps."""

from __future__ import annotations

import gc
import textwrap
import weakref

import numpy as np
import pytest
from numba import jit, njit, prange, stencil, types, vectorize
from numba.experimental import jitclass
from numba.typed import Dict

from numbaprof import profile
from numbaprof.dispatch_hook import (
    BEFORE_SESSION_REASON,
    GENERATOR_REASON,
    INLINED_REASON,
    UFUNC_DISPATCH_REASON,
    DispatchHook,
)
from numbaprof.errors import UnsupportedError
from numbaprof.native import numba_api, patches
from numbaprof.native.shared import shared_engine


@njit
def callee(x):
    """Be called from compiled code as well."""
    return x + 1


@njit
def caller(x):
    """Call from compiled code."""
    return callee(x)


@njit(inline="always")
def inlined(x):
    """Have no code of its own."""
    return x * 2


@njit
def inliner(x):
    """Use what is inlined."""
    return inlined(x)


@njit
def generate(n):
    """Be a generator."""
    i = 0
    while i < n:
        yield i
        i += 1


@jit(forceobj=True, looplift=True)
def lifting(n):
    """Have a loop lifted out of object mode."""
    object()
    total = 0
    for i in range(n):
        total += i
    return total


@njit(parallel=True)
def parallel_sum(a):
    """Use several threads."""
    total = 0.0
    for i in prange(a.size):
        total += a[i]
    return total


@njit
def star(first, *rest):
    """Take any number of arguments."""
    return first


@stencil
def neighbours(a):
    """Be a stencil."""
    return a[-1] + a[1]


@vectorize(["float64(float64)"])
def loop(x):
    """Be a ufunc."""
    return x


@jitclass([("value", types.int64)])
class Box:
    """Have members of every sort."""

    def __init__(self, value):
        self.value = value

    def add(self, more):
        """Be a method."""
        return self.value + more

    @property
    def double(self):
        """Be a property."""
        return self.value * 2

    @staticmethod
    def static(x):
        """Be a static method."""
        return x


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is measured."""
    caller(1), callee(1), inliner(1), star(1, 2.0)
    list(generate(3)), lifting(3), parallel_sum(np.ones(4))
    box = Box(3)
    box.add(1), box.double, box.value, Box.static(1)
    box.value = 4


def rows(result, name):
    """Return the rows of a function of this file."""
    result.check()
    assert result.losses.hook_errors == ()
    return [
        o
        for o in result.overloads
        if o.function.module == __name__ and o.function.qualname.startswith(name)
    ]


def measured(work, name):
    """Return the rows of a function after ``work()`` was measured."""
    with profile() as p:
        work()
    return rows(p.result, name)


# -- what is counted -------------------------------------------------------------------


def use_box():
    """Use all of a jitclass."""
    box = Box(3)
    for _ in range(2):
        box.add(1)
    for _ in range(3):
        box.double
    for _ in range(4):
        box.value
    box.value = 9


@pytest.mark.parametrize(
    ("member", "calls", "kind"),
    [
        ("Box.__init__", 1, "constructor"),
        ("Box.add", 2, "method"),
        ("Box.double", 3, "property"),
        ("Box.value", 4, "property"),
    ],
)
def test_members_of_a_jitclass_are_counted(member, calls, kind):
    """Constructor, methods, properties and fields are rows under the user's names."""
    found = [r for r in measured(use_box, member) if r.function.qualname == member]
    assert [(r.calls, r.kind) for r in found] == [(calls, kind)]


def test_lifted_loop_is_a_row_of_its_own():
    """An object mode function and its lifted loop are told apart."""
    found = measured(lambda: lifting(5), "lifting")
    assert sorted((row.kind, row.calls) for row in found) == [
        ("lifted loop", 1),
        ("object mode", 1),
    ]


def test_stencil_is_counted_though_it_recompiles():
    """A stencil called from Python compiles every time, and is one row."""
    (row,) = measured(lambda: [neighbours(np.ones(5)) for _ in range(2)], "neighbours")
    assert (row.kind, row.calls, row.dispatch_reason) == (
        "stencil",
        2,
        "a stencil has no dispatcher",
    )


def test_parallel_calls_are_split_by_threads():
    """Calls of a parallel overload are booked under the number of threads."""
    (row,) = measured(lambda: [parallel_sum(np.ones(9)) for _ in range(3)], "parallel")
    assert sum(split.calls for split in row.threads) == row.calls == 3


def test_star_arguments_are_unfolded():
    """A signature shows star arguments one by one."""
    (row,) = measured(lambda: star(1, 2.0), "star")
    assert row.signature == "(int64, float64)"
    assert [arg.name for arg in row.args] == ["first", "*rest[0]"]


def test_helpers_of_numba_are_internal():
    """Typed containers called from Python are Numba's own rows."""

    def work():
        numbers = Dict.empty(types.int64, types.int64)
        numbers[1] = 2
        len(numbers)

    with profile() as p:
        work()
    internal = [o for o in p.result.overloads if o.internal]
    assert internal
    assert {o.origin for o in internal} == {"internal"}
    assert all(o.calls or o.created_in_session for o in internal)


# -- what is said of what cannot be seen -----------------------------------------------


def test_calls_from_compiled_code_are_said_to_be_unseen():
    """A function that others call natively says by whom."""
    (row,) = measured(lambda: callee(1), "callee")
    assert (row.countable, row.calls) == (False, 1)
    assert "`caller`" in row.not_countable_reason


def test_unseen_function_has_no_number_of_calls():
    """Nothing seen and not all visible is None, not zero."""
    (row,) = measured(lambda: caller(1), "callee")
    assert (row.calls, row.inclusive_ns) == (None, None)


def test_inlined_function_says_so():
    """What is only ever inlined is a row without code."""
    (row,) = measured(lambda: inliner(1), "inlined")
    assert (row.calls, row.signature, row.not_countable_reason) == (
        None,
        "",
        INLINED_REASON,
    )


def test_generator_says_that_only_creation_is_counted():
    """Iterating a generator is not seen."""
    (row,) = measured(lambda: list(generate(5)), "generate")
    assert (row.calls, row.not_countable_reason) == (1, GENERATOR_REASON)


def test_ufunc_has_no_dispatch_time():
    """What NumPy spends to find a loop is not measured, and that is said."""
    (row,) = measured(lambda: loop(np.ones(3)), "loop")
    assert (row.dispatch_ns, row.dispatch_reason) == (None, UFUNC_DISPATCH_REASON)


def test_old_overload_has_no_compile_time():
    """What was compiled before the session says so."""
    (row,) = measured(lambda: callee(1), "callee")
    assert (row.compile_ns, row.compile_reason) == (None, BEFORE_SESSION_REASON)


def test_new_overload_has_its_compile_time():
    """What is compiled in the session has the time of its event."""

    @njit
    def fresh(x):
        return x

    with profile() as p:
        fresh(1)
    (row,) = [o for o in p.result.overloads if o.function.qualname.endswith("fresh")]
    (event,) = p.result.compile_events
    assert (row.compile_ns, row.origin) == (event.inclusive_ns, "compiled")


@pytest.mark.parametrize(
    ("make", "origin"),
    [(lambda: njit("int64(int64)")(lambda x: x), "eager")],
)
def test_origin_of_a_listed_signature(make, origin):
    """A signature in the decorator is eager, before the session and in it."""
    before = make()
    with profile() as p:
        during = make()
        before(1), during(1)
    found = [o for o in p.result.overloads if o.function.qualname.endswith("<lambda>")]
    mine = [o.origin for o in found if o.calls and o.function.file == __file__]
    assert mine == [origin, origin]


def test_cached_overload_is_told(tmp_path):
    """What was loaded from the cache is said to be."""
    file = tmp_path / "cached_module.py"
    file.write_text(
        textwrap.dedent(
            """
            from numba import njit

            @njit(cache=True)
            def cached(x):
                return x + 1
            """
        )
    )

    def load():
        space = {"__name__": "cached_module", "__file__": str(file)}
        exec(compile(file.read_text(), str(file), "exec"), space)
        return space["cached"]

    load()(1)
    with profile() as p:
        load()(1)
    (row,) = [
        o for o in p.result.overloads if o.function.qualname == "cached" and o.calls
    ]
    assert (row.origin, row.calls) == ("cache", 1)
    assert row.cache_load_ns > 0


# -- what it holds ---------------------------------------------------------------------


def make_hook():
    """Return an instrument that has not started."""
    return DispatchHook(shared_engine().engine, numba_api.FunctionRegistry())


def test_instrument_keeps_no_dispatcher_alive():
    """A dispatcher seen by a session can be collected while it runs."""
    function = njit(lambda x: x)
    function(1)
    reference = weakref.ref(function)
    hook = make_hook()
    hook.start()
    try:
        del function
        gc.collect()
        assert reference() is None
    finally:
        hook.stop()


def test_result_keeps_no_slot_alive():
    """When a session is over its slots are gone; only plain data stays."""
    from numbaprof.native.engine import Slot

    def slots():
        gc.collect()
        return {id(o) for o in gc.get_objects() if type(o) is Slot}

    before = slots()
    with profile() as p:
        callee(1)
    assert p.result.overloads
    assert slots() <= before


def test_attaching_is_linear(monkeypatch):
    """Twice the overloads cost twice the steps: one patch and one record each."""
    made = []
    real = patches.EntryPointPatch

    class Counting(real):
        def __init__(self, *arguments):
            made.append(arguments[1])
            super().__init__(*arguments)

    dispatchers = [njit(lambda x: x) for _ in range(8)]
    for dispatcher in dispatchers:
        dispatcher(1)
    monkeypatch.setattr(patches, "EntryPointPatch", Counting)
    counts = []
    for number in (4, 8):
        made.clear()
        chosen = dispatchers[:number]
        monkeypatch.setattr(numba_api, "live_dispatchers", lambda chosen=chosen: chosen)
        monkeypatch.setattr(numba_api, "live_ufuncs", list)
        monkeypatch.setattr(numba_api, "live_property_getters", list)
        hook = make_hook()
        hook.start()
        hook.stop()
        counts.append((len(made), len(hook.records)))
    assert counts == [(4, 4), (8, 8)]


def test_place_that_cannot_be_hooked_is_an_error_of_ours(monkeypatch):
    """The other hooks are installed, and the failure is told."""
    from numbaprof.native.hooks import CallHook

    real = CallHook.install

    def install(self):
        if self.attribute == "_stencil_wrapper":
            raise UnsupportedError("moved")
        real(self)

    monkeypatch.setattr(CallHook, "install", install)
    hook = make_hook()
    hook.start()
    hook.stop()
    assert hook.errors.messages() == (
        "hook StencilFunc._stencil_wrapper: UnsupportedError: moved",
    )


def test_failing_start_restores(monkeypatch):
    """If attaching fails half way, everything attached is put back."""

    def fail():
        raise RuntimeError("half way")

    monkeypatch.setattr(numba_api, "live_ufuncs", fail)
    hook = make_hook()
    with pytest.raises(RuntimeError, match="half way"):
        hook.start()
    entry_point = callee.overloads[callee.signatures[0]].entry_point
    assert not patches.is_patched(entry_point)
    assert hook.unrestored == []


# -- the split of a call ---------------------------------------------------------------


def test_detail_splits_calls():
    """With detail= unboxing, kernel and boxing sum to the calls' time."""
    with profile(detail=("caller",)) as p:
        for number in range(20):
            caller(number)
    (row,) = rows(p.result, "caller")
    split = row.boxing
    assert split.calls == row.calls == 20
    assert split.unbox_ns + split.kernel_ns + split.box_ns == row.inclusive_ns
    assert caller(1) == 2


def test_without_detail_there_is_no_split():
    """What was not asked for says so."""
    (row,) = measured(lambda: caller(1), "caller")
    assert row.boxing is None
    assert row.boxing_reason


def test_call_past_the_dispatcher_has_no_dispatch_time():
    """``f.__call__(x)`` skips ``tp_call``: the call counts, its dispatch is unknown."""
    callee(1)
    with profile() as p:
        callee.__call__(1)
        callee(1)
    (row,) = [
        o
        for o in p.result.overloads
        if o.function.qualname == "callee" and o.function.module == __name__
    ]
    assert (row.calls, row.dispatch_ns) == (2, None)
    assert "past the dispatcher" in row.dispatch_reason
