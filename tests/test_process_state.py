"""The check that a process is left as it was can tell."""

from __future__ import annotations

import signal
import sys

import numba
import process_state
import pytest
from numba.core import event
from numba.core.dispatcher import _DispatcherBase


def changes_made_by(change) -> str:
    """Return the differences between two readings around ``change()``."""
    before = process_state.read()
    change()
    return "\n".join(process_state.differences(before, process_state.read()))


def test_compiling_and_calling_is_no_difference():
    """What Numba does by itself is not taken for something left behind."""

    def use_numba():
        numba.njit(lambda x: x + 1)(1)

    assert changes_made_by(use_numba) == ""


def test_patched_method_is_a_difference(monkeypatch):
    """A method of a Numba class that was replaced is named."""
    found = changes_made_by(
        lambda: monkeypatch.setattr(_DispatcherBase, "add_overload", print)
    )
    assert found.startswith("numba.core.dispatcher._DispatcherBase.add_overload: was")


def test_added_method_is_a_difference(monkeypatch):
    """A method added to a Numba class is named, also where a base class has it."""
    found = changes_made_by(
        lambda: monkeypatch.setattr(
            "numba.core.dispatcher.LiftedLoop.add_overload", print, raising=False
        )
    )
    assert found.startswith("numba.core.dispatcher.LiftedLoop.add_overload: was")


def test_listener_is_a_difference():
    """An event listener that stays registered is named."""
    listener = event.RecordingListener()
    try:
        found = changes_made_by(lambda: event.register("numba:compile", listener))
    finally:
        event.unregister("numba:compile", listener)
    assert found.startswith("listeners of numba:compile: was")


def test_signal_handler_is_a_difference():
    """A signal handler that stays installed is named."""
    old = signal.getsignal(signal.SIGTERM)
    try:
        found = changes_made_by(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    finally:
        signal.signal(signal.SIGTERM, old)
    assert "SIGTERM" in found


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12"
)
def test_monitoring_tool_is_a_difference():
    """A tool id of sys.monitoring that stays in use is named."""
    try:
        found = changes_made_by(lambda: sys.monitoring.use_tool_id(4, "left"))
    finally:
        sys.monitoring.free_tool_id(4)
    assert found == "sys.monitoring tool 4: was None, is 'left'"


def test_active_session_is_a_difference():
    """A session that was not stopped is named, with the patches it made."""
    from numbaprof.session import Session

    session = Session()
    try:
        found = changes_made_by(session.start)
    finally:
        session.stop()
    assert "active session: was None, is <numbaprof.session.Session" in found


def test_patched_loops_are_a_difference():
    """Loops of different ufuncs with one code in front are named."""
    from numba import vectorize

    from numbaprof.native.patches import UfuncPatch
    from numbaprof.native.shared import shared_engine

    ufuncs = [vectorize(["float64(float64)"])(f) for f in (first_loop, second_loop)]
    made = [UfuncPatch(shared_engine().engine, ufunc.ufunc) for ufunc in ufuncs]
    try:
        found = changes_made_by(lambda: [patch.attach_new() for patch in made])
    finally:
        for patch in made:
            patch.restore()
    assert "jitted loops of ufuncs: was []" in found


def first_loop(x):
    """Be a loop."""
    return x + 1


def second_loop(x):
    """Be another loop."""
    return x + 2


@pytest.mark.linux
def test_sampler_at_work_is_a_difference():
    """Its handler is not one that Python knows of."""
    from numbaprof.sampler import Sampler

    sampler = Sampler()
    try:
        found = changes_made_by(sampler.start)
    finally:
        sampler.stop()
    assert found.startswith("SIGPROF in C: was 0, is ")
