from __future__ import annotations

import pytest
from builders import (
    make_dispatcher,
    make_environment,
    make_event,
    make_overload,
    make_process,
    make_result,
)

from numbaprof.errors import MergeError
from numbaprof.model import BackendInfo
from numbaprof.stretches import join


def stretch(begin_ns, *, wall_ns=100, hits=0, events=(), backends=()):
    """Build a stretch: when it began, and one overload called once."""
    environment = make_environment(started=f"at {begin_ns}", backends=backends)
    result = make_result(
        make_overload(calls=1),
        events=events,
        dispatchers=(make_dispatcher(cache_enabled=True, cache_hits=hits),),
        processes=(make_process(wall_ns, environment=environment),),
    )
    return begin_ns, result


def test_stretches_are_one_process_with_the_sum_of_the_times():
    """Calls and wall time add up; the time between is nowhere."""
    joined = join([stretch(1000), stretch(5000, wall_ns=30)])
    (process,) = joined.processes
    assert process.wall_ns == 130
    assert process.environment.started == "at 1000"
    assert joined.overloads[0].calls == 2
    joined.check()


def test_events_are_on_one_time_line():
    """Times count from the first stretch, parents and processes fit."""
    early = make_event(start_ns=10)
    outer, inner = make_event("f", start_ns=1), make_event("g", start_ns=2, parent=0)
    joined = join(
        [stretch(1000, events=(early,)), stretch(5000, events=(outer, inner))]
    )
    events = joined.compile_events
    assert [event.start_ns for event in events] == [10, 4001, 4002]
    assert [event.parent for event in events] == [-1, -1, 1]
    assert {event.process for event in events} == {0}


def test_cache_counts_are_the_last_ones():
    """Numba never resets its counts, so that a sum would count hits twice."""
    joined = join([stretch(0, hits=2), stretch(10, hits=3)])
    assert joined.dispatchers[0].cache_hits == 3


def test_every_way_of_measuring_is_named_once():
    """Stretches measured in another way leave their reason in the header."""
    whole, compiles = (
        BackendInfo("dispatch", "trampoline"),
        BackendInfo("dispatch", "-"),
    )
    joined = join(
        [stretch(0, backends=(whole,)), stretch(1, backends=(compiles, whole))]
    )
    assert joined.processes[0].environment.backends == (whole, compiles)


def test_nothing_and_several_processes_are_refused():
    """What is no process's stretches is for merge."""
    with pytest.raises(MergeError, match="no stretch"):
        join([])
    other = make_result(processes=(make_process(pid=7),))
    with pytest.raises(MergeError, match=r"numbaprof\.merge"):
        join([stretch(0), (1, other)])
