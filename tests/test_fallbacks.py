"""Limits, and machines that are not as they should be: programs run on, and are told.

Every test builds an engine of its own, in a process that has not got one yet.
"""

from __future__ import annotations

import ctypes
import dataclasses
import threading
import warnings

import numpy as np
import pytest
from numba import njit, objmode, vectorize

from numbaprof import profile
from numbaprof.errors import UnsupportedError
from numbaprof.native import clock as clocks
from numbaprof.native import cpython_api, emit, engine, shared, trampolines
from numbaprof.native import hooks as native_hooks
from numbaprof.session import active_session


@njit
def leaf(value):
    """Be called."""
    return value + 1


@njit
def recurse(number):
    """Recurse through Python."""
    result = 0
    if number > 0:
        with objmode(result="int64"):
            result = recurse(number - 1)
    return result + 1


@vectorize(["float64(float64)"])
def twice(value):
    """Be a ufunc."""
    return 2 * value


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is counted."""
    leaf(1)
    recurse(1)


@pytest.fixture(autouse=True)
def no_engine_yet(monkeypatch):
    """Let the process have no engine."""
    monkeypatch.setattr(shared, "_ENGINES", {})


def row(result, function):
    """Return the one row of a function."""
    name = function.py_func.__name__
    (found,) = [
        overload
        for overload in result.overloads
        if (overload.function.module, overload.function.qualname) == (__name__, name)
    ]
    return found


def losses(result):
    """Check the books and return the losses."""
    result.check()
    assert result.losses.hook_errors == ()
    assert result.losses.unrestored == ()
    return result.losses


# -- limits ----------------------------------------------------------------------------


def test_deep_recursion_grows_the_stack():
    """A few hundred frames are more than there are at first."""
    with profile() as p:
        assert recurse(150) == 151
    losses(p.result)
    assert row(p.result, recurse).calls == 151


def test_recursion_deeper_than_the_stack_runs_unmeasured(monkeypatch):
    """Beyond the depth limit calls run, and only those within it are counted."""
    monkeypatch.setattr(trampolines, "MAX_DEPTH", 64)
    with profile() as p:
        assert recurse(100) == 101
        assert leaf(1) == 2
    losses(p.result)
    assert (row(p.result, recurse).calls, row(p.result, leaf).calls) == (32, 1)


@pytest.fixture
def small_tree(monkeypatch):
    """Let the tree have room for 64 nodes, and 64 more for what does not fit."""
    monkeypatch.setattr(trampolines, "RESERVED_NODES", 64)
    monkeypatch.setattr(engine, "MAX_NODES", 128)


@pytest.mark.usefixtures("small_tree")
def test_contexts_that_do_not_fit_are_counted():
    """With a full tree every call is in its overload, and the loss is a number."""
    with profile() as p:
        for _ in range(3):
            recurse(40)
        leaf(1)
    assert losses(p.result).truncated_contexts > 0
    assert (row(p.result, recurse).calls, row(p.result, leaf).calls) == (123, 1)


@pytest.mark.usefixtures("small_tree")
def test_times_balance_when_contexts_do_not_fit():
    """The time of calls without a context stays in the tree, where it was spent."""
    with profile() as p:
        recurse(60)
    losses(p.result)
    nodes = p.result.contexts
    parts = sum(node.exclusive_ns + node.dispatch_ns for node in nodes)
    assert parts == sum(node.inclusive_ns for node in nodes if node.parent == -1)
    assert "truncated" in {node.kind for node in nodes}


@pytest.mark.usefixtures("small_tree")
def test_thread_that_comes_when_the_tree_is_full():
    """A thread without room for a root has its calls counted."""

    def work():
        for _ in range(5):
            leaf(1)

    with profile() as p:
        recurse(60)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    losses(p.result)
    assert row(p.result, leaf).calls == 5


# -- things that are not as they should be ---------------------------------------------


def measure():
    """Measure a little; return slugs of warnings, the row of leaf, the environment."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with profile() as p:
            assert leaf(3) == 4
            assert (twice(np.ones(3)) == 2).all()
    p.result.check()
    assert active_session() is None
    assert p.report()
    slugs = [warning.message.slug for warning in caught]
    return slugs, row(p.result, leaf), p.result.processes[0].environment


def fail(reason):
    """Return a function that finds nothing."""

    def find(*arguments):
        raise UnsupportedError(reason)

    return find


def test_m_self_that_is_not_found_falls_back(monkeypatch):
    """With m_self elsewhere nothing is patched, and the reason is given."""
    monkeypatch.setattr(cpython_api, "find_method_self", fail("m_self is nowhere"))
    slugs, found, environment = measure()
    assert slugs == ["no-engine"]
    assert (found.calls, found.not_countable_reason) == (None, "m_self is nowhere")
    assert environment.backends[0].reason == "m_self is nowhere"
    assert environment.overhead_reason == "m_self is nowhere"


def test_tp_call_that_is_not_found_falls_back(monkeypatch):
    """Without tp_call calls are counted, without dispatch time."""
    monkeypatch.setattr(cpython_api, "find_type_call", fail("tp_call is nowhere"))
    slugs, found, environment = measure()
    assert slugs == []
    assert (found.calls, found.dispatch_ns) == (1, None)
    assert found.dispatch_reason == "tp_call is nowhere"
    assert environment.backends[0].reason == "no dispatch time: tp_call is nowhere"


def test_wrong_offset_of_tp_call_falls_back(monkeypatch):
    """A word that is not tp_call is not written to."""
    right = cpython_api.find_type_call()
    monkeypatch.setattr(cpython_api, "find_type_call", lambda: right + 8)
    slugs, found, _ = measure()
    assert (slugs, found.calls, found.dispatch_ns) == ([], 1, None)
    assert "tp_call of Numba's dispatcher was not found" in found.dispatch_reason


def test_frame_that_is_not_found_falls_back(monkeypatch):
    """Without a way to the caller's code calls are counted without callers."""
    monkeypatch.setattr(cpython_api, "_find_chain", fail("no frame"))
    _, found, environment = measure()
    assert found.calls == 1
    assert environment.backends[0].reason == "no callers: no frame"


def test_wrong_way_to_the_caller_is_noticed(monkeypatch):
    """A chain of offsets that leads elsewhere fails its verification."""
    right = cpython_api._find_chain

    def wrong(reader):
        layout = right(reader)
        return dataclasses.replace(layout, code=layout.code + 8)

    monkeypatch.setattr(cpython_api, "_find_chain", wrong)
    _, found, environment = measure()
    assert found.calls == 1
    assert "wrong in a function" in environment.backends[0].reason


def test_ctypes_with_another_layout_falls_back(monkeypatch):
    """If a structure does not begin with its address there is no engine."""

    class Elsewhere:
        def __getattr__(self, name):
            return getattr(ctypes, name)

        def addressof(self, thing):
            moved = 8 if isinstance(thing, engine.Slot) else 0
            return ctypes.addressof(thing) + moved

    monkeypatch.setattr(engine, "ctypes", Elsewhere())
    slugs, found, _ = measure()
    assert (slugs, found.calls) == (["no-engine"], None)
    assert "a ctypes structure does not begin" in found.not_countable_reason


def test_free_threaded_build_falls_back(monkeypatch):
    """Without a GIL nothing native is used."""
    monkeypatch.setattr(cpython_api, "is_free_threaded", lambda: True)
    slugs, found, _ = measure()
    assert (slugs, found.calls) == (["no-engine"], None)
    assert "free-threaded build" in found.not_countable_reason


def test_clock_the_kernel_does_not_trust_is_not_used(monkeypatch):
    """With an untrusted counter the time comes from the system, and it says why."""
    monkeypatch.setattr(clocks, "_native_counter", lambda: ("tsc", "time by hpet"))
    slugs, found, environment = measure()
    assert (slugs, found.calls) == ([], 1)
    assert (environment.clock.name, environment.clock.reason) == (
        "clock_gettime",
        "time by hpet",
    )


def test_compiler_that_fails_falls_back(monkeypatch):
    """If LLVM cannot build the engine, the program runs and the reason is given."""

    def broken(*arguments, **options):
        raise RuntimeError("no code generator")

    monkeypatch.setattr(emit.llvm, "create_mcjit_compiler", broken)
    slugs, found, _ = measure()
    assert (slugs, found.calls) == (["no-engine"], None)
    assert "no code generator" in found.not_countable_reason


def test_hooks_that_cannot_be_built_leave_the_rest(monkeypatch):
    """Without hooks calls are counted; that compilations are not is told."""
    monkeypatch.setattr(native_hooks, "_new_method", fail("no hooks here"))
    slugs, found, environment = measure()
    assert (slugs, found.calls) == (["no-compile-events"], 1)
    (events,) = [b for b in environment.backends if b.instrument == "compile events"]
    assert (events.backend, events.reason) == ("none", "no hooks here")


def test_self_test_that_fails_falls_back(monkeypatch):
    """An engine that miscounts is not used."""
    monkeypatch.setattr(shared.selftest, "check", fail("counted 5 where 4 were made"))
    slugs, found, _ = measure()
    assert (slugs, found.calls) == (["no-engine"], None)
    assert found.not_countable_reason == "counted 5 where 4 were made"
