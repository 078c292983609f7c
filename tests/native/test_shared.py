"""The process's one engine: built once, in any thread, or why there is none."""

from __future__ import annotations

import threading

import pytest

from numbaprof.errors import OptionError, UnsupportedError
from numbaprof.native import cpython_api, shared


@pytest.fixture
def no_engine_yet(monkeypatch):
    """Let the process have no engine."""
    monkeypatch.setattr(shared, "_ENGINES", {})


def test_engine_is_built_once():
    """Everybody gets the same engine."""
    first = shared.shared_engine()
    assert shared.shared_engine() is first
    assert first.engine is not None
    assert first.overhead_ns >= 0


def test_engine_is_built_once_by_many_threads(monkeypatch, no_engine_yet):
    """Threads that ask together wait for one another."""
    built = []

    def build(clock):
        built.append(clock)
        return shared.SharedEngine(None, "a test")

    monkeypatch.setattr(shared, "_build", build)
    barrier = threading.Barrier(8)
    found = []

    def work():
        barrier.wait()
        found.append(shared.shared_engine())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [None]
    assert len({id(engine) for engine in found}) == 1


def test_each_clock_has_its_own_engine():
    """The clock is compiled in."""
    default = shared.shared_engine().engine
    other = shared.shared_engine("clock_gettime").engine
    assert other is not default
    assert other.clock.name == "clock_gettime"


@pytest.mark.usefixtures("no_engine_yet")
def test_failure_is_a_reason_and_not_tried_again(monkeypatch):
    """What cannot be built is not built at every start."""
    tries = []

    def fail(engine):
        tries.append(engine)
        raise UnsupportedError("it miscounts")

    monkeypatch.setattr(shared.selftest, "check", fail)
    results = [shared.shared_engine() for _ in range(2)]
    assert [(r.engine, r.reason) for r in results] == [(None, "it miscounts")] * 2
    assert len(tries) == 1


@pytest.mark.usefixtures("no_engine_yet")
def test_layout_that_is_not_found_is_the_reason(monkeypatch):
    """Without m_self there is nothing to build."""

    def fail():
        raise UnsupportedError("m_self is nowhere")

    monkeypatch.setattr(cpython_api, "find_method_self", fail)
    assert shared.shared_engine().reason == "m_self is nowhere"


def test_bad_clock_is_an_error():
    """A clock that does not exist is the caller's mistake, not a fallback."""
    with pytest.raises(OptionError):
        shared.shared_engine("sundial")
