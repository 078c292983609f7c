from __future__ import annotations

import numpy as np
import pytest
from numba import njit

import numbaprof
from numbaprof.errors import ActiveSessionError
from numbaprof.pytest_recording import COLLECTION, Recording
from numbaprof.session import Session, active_session


@njit
def increment(value):
    """Return ``value + 1``."""
    return value + 1


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is measured."""
    increment(1)


@pytest.fixture
def recording():
    """A recording that measures in the background, closed whatever happens."""
    found = Recording(background=True, label="gw7")
    found.watch()
    yield found
    found.close()


def fresh():
    """Return a function that has to be compiled."""
    return njit(lambda value: value * 2)


def calls_of(result):
    """Return the calls of ``increment``."""
    return sum(
        o.calls or 0 for o in result.overloads if o.function.qualname == "increment"
    )


def named_by(result):
    """Return the tests of the events, Numba's helpers left out."""
    return [event.test for event in result.compile_events if not event.internal]


def test_each_event_knows_the_test_that_ran(recording):
    """What came before the first test was collected."""
    fresh()(1)
    recording.mark("one (setup)")
    fresh()(1)
    recording.mark("one")
    fresh()(1)
    result = recording.finish()
    assert named_by(result) == [COLLECTION, "one (setup)", "one"]
    assert result.processes[0].label == "gw7"
    result.check()


def test_a_stretch_is_measured_apart_and_is_in_the_whole(recording):
    """The background goes on after it, and nothing is counted twice or lost."""
    recording.mark("one")
    increment(1)
    with recording.measure() as stretch:
        increment(1), increment(1)
    increment(1)
    assert calls_of(stretch.result) == 2
    assert calls_of(recording.finish()) == 4
    assert active_session() is None


def test_a_stretch_without_calls_only_sees_what_compiles(recording):
    """The rounds of a benchmark are measured by somebody else."""
    with recording.measure(calls=False) as stretch:
        increment(1)
        assert stretch.compile_count == 0
        fresh()(1)
        assert stretch.compile_count == 1
    assert calls_of(recording.finish()) == 0


def test_functions_are_the_same_ones_in_all_stretches(recording):
    """Closures of one source keep their numbers, in whatever order they are met."""

    def make():
        return njit(lambda value: value * 3)

    one, two = make(), make()
    one(1), two(1)
    with recording.measure():
        two(1)
    result = recording.finish()
    calls = {
        o.function.instance: o.calls
        for o in result.overloads
        if "make.<locals>" in o.function.qualname and o.function.file == __file__
    }
    assert calls == {0: 1, 1: 2}


def test_a_session_of_the_test_goes_first(recording):
    """Ours ends, the test's runs, ours goes on with the next mark."""
    recording.mark("one")
    increment(1)
    p = numbaprof.profile(increment)
    p(1)
    increment(1)
    recording.mark("two")
    increment(1)
    assert calls_of(p.result) == 1
    assert calls_of(recording.finish()) == 2
    assert recording.gave_way == ["one"]


def test_a_stretch_tells_that_it_gave_way(recording):
    """Whoever judges it must know that it is not all."""
    with recording.measure() as stretch:
        increment(1)
        numbaprof.profile(increment)(1)
    assert stretch.gave_way
    assert calls_of(stretch.result) == 1


def test_somebody_elses_session_is_waited_for():
    """A fixture that measures for a whole module keeps ours out until it ends."""
    other = Session()
    other.start()
    recording = Recording(background=True)
    recording.watch()
    recording.mark("one")
    with pytest.raises(ActiveSessionError), recording.measure():
        pass
    other.stop()
    recording.mark("two")
    increment(1)
    assert calls_of(recording.finish()) == 1
    assert "one" in recording.gave_way


def test_without_a_background_only_stretches_are_measured():
    """As when only markers ask for measuring."""
    recording = Recording(background=False)
    recording.watch()
    recording.mark("one")
    assert active_session() is None
    with recording.measure() as stretch:
        increment(1)
    assert active_session() is None
    assert calls_of(stretch.result) == 1
    assert recording.finish() is None


def test_events_of_a_test_come_with_what_they_are_charged_to(recording):
    """Numba's helpers are charged to the compilation that needed them."""
    fresh()(1)
    recording.mark("one")
    njit(lambda values: values.sum())(np.ones(3))
    pairs = recording.events_of("one")
    assert {event.test for event, _ in pairs} == {"one"}
    owners = {owner.function.qualname.rpartition(".")[2] for _, owner in pairs}
    assert owners == {"<lambda>"}
    assert len(pairs) == recording.compile_count - 1


def test_closing_leaves_nothing_running(recording):
    """For runs that end before they have begun."""
    assert active_session() is not None
    recording.close()
    assert active_session() is None
    recording.mark("one")
    assert active_session() is None
