"""Single trampolines: histogram buckets, growth, and what they let through."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading

import pytest
from scripted_engine import NativePlayer, Op, new_engine

from numbaprof.native import emit
from numbaprof.native.cpython_api import METH_VARARGS_KEYWORDS, MethodDef, new_method
from numbaprof.native.layout import (
    EDGE_ROWS,
    INITIAL_FRAMES,
    INITIAL_TABLE,
    NO_NODE,
    PseudoSlot,
    SlotField,
)


@pytest.fixture(scope="module")
def made():
    """Return an engine of its own and its time."""
    return new_engine()


@pytest.fixture
def engine(made):
    """Return the engine in a session."""
    engine, word = made
    word.value = 1000
    engine.restart_after_fork(1.0)
    yield engine
    if engine.running:
        engine.stop()
    engine.records()


KEPT = []
"""Method definitions, which PyCFunctions point to."""


def entry_point(engine, body):
    """Return an entry point whose compiled code is ``body``, and its slot."""
    slot = engine.new_slot(emit.address_of("PyObject_Call"), body, 0)
    definition = MethodDef(
        b"entry", engine.addresses["overload"], METH_VARARGS_KEYWORDS, None
    )
    KEPT.append((definition, slot))
    return new_method(definition, slot), slot


@pytest.mark.parametrize(
    ("ticks", "bucket"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (2**62, 63)],
)
def test_histogram_bucket(made, engine, ticks, bucket):
    """Bucket b holds 2**(b-1) <= ns < 2**b."""

    def body():
        made[1].value += ticks

    call, slot = entry_point(engine, body)
    for calls in (1, 2, 3):  # machine code counts all but the last
        call()
        counts = engine.histogram(slot)
        assert {b: count for b, count in enumerate(counts) if count} == {bucket: calls}


@pytest.mark.parametrize("rate", [0.25, 0.408, 1.0, 40.0])
def test_histogram_is_in_nanoseconds(made, rate):
    """The rate of the clock decides the bucket."""
    engine, word = made
    engine.start(rate)

    def body():
        word.value += 1000

    call, slot = entry_point(engine, body)
    call()
    call()
    engine.stop()
    engine.records()
    counts = engine.histogram(slot)
    bucket = int(1000 * rate).bit_length()
    assert {b: count for b, count in enumerate(counts) if count} == {bucket: 2}


def test_arguments_and_keywords_pass(engine):
    """The wrapper gets what was passed."""

    def body(*args, **kwargs):
        return args, kwargs

    call, _ = entry_point(engine, body)
    assert call(1, "two", key=3) == ((1, "two"), {"key": 3})
    assert call() == ((), {})


def test_exception_passes(engine):
    """The wrapper's exception comes out, and is counted as an error."""
    error = LookupError("mine")

    def body():
        raise error

    call, slot = entry_point(engine, body)
    with pytest.raises(LookupError) as caught:
        call()
    assert caught.value is error
    engine.stop()
    (record,) = [r for r in engine.records() if r.slot == slot.address]
    assert (record.calls, record.errors) == (1, 1)


def test_references_are_kept_in_balance(engine):
    """Ten thousand calls leave every reference count as it was."""
    thing = object()
    call, _ = entry_point(engine, lambda argument: argument)
    call(thing)
    before = sys.getrefcount(thing)
    for _ in range(10_000):
        call(thing)
    assert sys.getrefcount(thing) == before


def test_code_objects_are_given_back(made):
    """A caller's code is held by the tree, and let go with it."""
    engine, _ = made
    engine.restart_after_fork(1.0)
    call, _ = entry_point(engine, lambda: None)
    space = {"call": call}
    exec("def caller(): call()", space)
    code = space["caller"].__code__
    before = sys.getrefcount(code)
    space["caller"]()
    during = sys.getrefcount(code)
    engine.stop()
    engine.records()
    gc.collect()
    assert (during, sys.getrefcount(code)) == (before + 1, before)


def test_stack_grows(engine):
    """More frames than at first are one frame each, nested."""
    depth = INITIAL_FRAMES * 3

    def body(level):
        if level:
            call(level - 1)

    call, slot = entry_point(engine, body)
    call(depth)
    engine.stop()
    records = engine.records()
    mine = [r for r in records if r.slot == slot.address]
    assert sum(r.calls for r in mine) == depth + 1
    assert len(mine) == depth + 1


def test_thread_table_grows(engine):
    """More threads than there is room for at first have a root each."""
    count = INITIAL_TABLE
    call, slot = entry_point(engine, lambda: None)
    barrier = threading.Barrier(count)

    def work():
        barrier.wait()
        call()
        barrier.wait()

    old = threading.stack_size(256 * 1024)
    try:
        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.stack_size(old)
    engine.stop()
    records = engine.records()
    roots = {r.parent for r in records if r.slot == slot.address}
    assert len(roots) == count
    assert len({records[root].thread_ident for root in roots}) == count


def test_more_frames_than_are_open_cannot_be_closed(engine):
    """A token that is gone, or never was, closes nothing."""
    token = engine.open_frame(PseudoSlot.COMPILE)
    assert engine.close_frame(token) >= 0
    assert [engine.close_frame(t) for t in (token, NO_NODE, 99)] == [NO_NODE] * 3


def test_frame_is_not_opened_without_a_session(engine):
    """Without a session there is nothing to open."""
    engine.stop()
    assert engine.open_frame(PseudoSlot.COMPILE) == NO_NODE
    engine.start(1.0)


def test_loop_with_many_callers_keeps_its_total(made):
    """Callers beyond the rows share the last one, and no call is lost."""
    player = NativePlayer(*made)
    try:
        depth = EDGE_ROWS + 8
        script = Op("loop", body=(Op("tick", 3),))
        for _ in range(depth):
            script = Op("raw", overload=2, body=(script, Op("loop", body=())))
        observed = player.play((script,))
    finally:
        player.close()
    (books,) = observed.books
    edges = books.edges["loop", 0]
    assert sum(counts.calls for counts in edges.values()) == depth + 1
    assert len(edges) == EDGE_ROWS
    assert edges[()].calls == depth + 1 - sum(
        counts.calls for path, counts in edges.items() if path
    )


def test_clock_is_read_three_times_per_call():
    """A call through both trampolines reads the clock at t0, t1 and t2, no more."""
    engine, word = new_engine(step=1)
    word.value = 1000
    engine.start(1.0)
    body = type("Body", (), {"__call__": lambda self: None})()
    slot = engine.new_slot(emit.address_of("PyObject_Call"), body, 0)
    overload = MethodDef(
        b"entry", engine.addresses["overload"], METH_VARARGS_KEYWORDS, None
    )
    inner = new_method(overload, slot)
    dispatch = MethodDef(
        b"dispatch", engine.addresses["dispatch"], METH_VARARGS_KEYWORDS, None
    )
    outer = new_method(dispatch, inner)
    KEPT.append((overload, dispatch, slot, inner))
    slot.words[SlotField.DISPATCHER] = id(inner)
    engine.set_dispatch_target(emit.address_of("PyObject_Call"))
    before = word.value
    outer()
    assert word.value - before == 3
    engine.stop()
    (record,) = [r for r in engine.records() if r.slot == slot.address]
    assert (record.dispatch_ticks, record.inclusive_ticks) == (1, 1)
    assert ctypes.sizeof(slot) == SlotField.SIZE * 8
