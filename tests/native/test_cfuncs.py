"""Forwarding functions in front of C callbacks."""

from __future__ import annotations

import ctypes
import threading

import pytest
from numba import carray, cfunc, types

from numbaprof.native import cfuncs
from numbaprof.native.layout import UfuncField
from numbaprof.native.shared import shared_engine


@cfunc(types.float64(types.float64, types.int32))
def scale(x, n):
    """Return a number."""
    return x * n


@cfunc(types.void(types.CPointer(types.int64)))
def store(target):
    """Return nothing."""
    carray(target, 1)[0] = 42


@pytest.fixture(scope="module")
def engine():
    """Return the process's engine, with no session running."""
    return shared_engine().engine


@pytest.fixture
def session(engine):
    """Let the engine count."""
    engine.start(1.0)
    yield engine
    if engine.running:
        engine.stop()
    engine.records()


def counted(slot):
    """Return the finished calls on a slot."""
    first = UfuncField.HISTOGRAM
    return sum(slot.words[first : UfuncField.EDGES])


def test_arguments_and_result_pass(session):
    """The forwarding function has the callback's C signature."""
    slot = session.new_ufunc_slot(0, 0)
    address = cfuncs.forward(session, scale, slot)
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int32)(address)
    assert [call(1.5, 2), call(2.0, -3)] == [3.0, -6.0]
    assert (counted(slot), slot.words[UfuncField.ELEMENTS]) == (2, 2)


def test_function_without_a_result_passes(session):
    """A callback that returns nothing is forwarded as one."""
    slot = session.new_ufunc_slot(0, 0)
    address = cfuncs.forward(session, store, slot)
    target = ctypes.c_int64(0)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(target))
    assert (target.value, counted(slot)) == (42, 1)


def test_calls_without_a_session_are_not_counted(session):
    """After the session the address works and counts nothing."""
    slot = session.new_ufunc_slot(0, 0)
    address = cfuncs.forward(session, scale, slot)
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int32)(address)
    session.stop()
    assert call(1.5, 2) == 3.0
    assert counted(slot) == 0


def test_calls_from_many_threads_are_counted(session):
    """Threads without the GIL lose no call."""
    slot = session.new_ufunc_slot(0, 0)
    address = cfuncs.forward(session, scale, slot)
    call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int32)(address)

    def work():
        for _ in range(2000):
            call(1.0, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted(slot) == 8000
    assert slot.words[UfuncField.ACTIVE] == 0
