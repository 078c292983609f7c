"""The proof, at the first start, that the engine counts right."""

from __future__ import annotations

import dataclasses

import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import clock as clocks
from numbaprof.native import cpython_api, selftest
from numbaprof.native.engine import Engine
from numbaprof.native.layout import State


@pytest.fixture(scope="module")
def engine():
    """Return an engine of its own."""
    return Engine(cpython_api.discover(), clocks.choose_clock())


def test_right_engine_passes(engine):
    """The engine of this machine is accepted, and left as it was."""
    target = engine.state[State.DISPATCH_TARGET]
    selftest.check(engine)
    assert engine.state[State.DISPATCH_TARGET] == target
    assert not engine.running


def test_engine_without_callers_passes():
    """Callers are not needed."""
    layouts = dataclasses.replace(
        cpython_api.discover(), caller=None, caller_reason="none"
    )
    engine = Engine(layouts, clocks.choose_clock())
    selftest.check(engine)
    assert engine.running is False


def records_of(engine, monkeypatch, change):
    """Let the engine's records be changed on the way to the self-test."""
    right = engine.records
    monkeypatch.setattr(engine, "records", lambda: [change(r) for r in right()])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: dataclasses.replace(r, calls=r.calls * 2), "counted"),
        (lambda r: dataclasses.replace(r, inclusive_ticks=-1), "went backwards"),
        (lambda r: dataclasses.replace(r, code=None), "the callers read were"),
    ],
)
def test_wrong_books_are_refused(engine, monkeypatch, change, message):
    """Books that differ from what was done are refused, and it says how."""
    records_of(engine, monkeypatch, change)
    with pytest.raises(UnsupportedError, match=message):
        selftest.check(engine)


def test_changed_result_is_refused(engine, monkeypatch):
    """A trampoline that changes a result is refused."""
    monkeypatch.setattr(selftest, "_call_once", lambda function: ("other",))
    with pytest.raises(UnsupportedError, match="changed a result"):
        selftest.check(engine)


def test_overhead_is_measured_and_leaves_nothing(engine):
    """The overhead is a number of nanoseconds, and the engine is free afterwards."""
    overhead = selftest.measure_overhead_ns(engine, 1.0)
    assert 0 <= overhead < float("inf")
    assert not engine.running
