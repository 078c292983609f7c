from __future__ import annotations

from builders import (
    array,
    make_dispatcher,
    make_environment,
    make_event,
    make_overload,
    make_process,
    make_result,
)

from numbaprof.pytest_compile_report import owner_of, render

FIRST, SECOND = "tests/test_a.py::test_first", "tests/test_a.py::test_second"
DOUBLE = make_overload("dot", args=(array("float64", name="a"),))
SINGLE = make_overload("dot", args=(array("float32", name="a"),), index=1)


def event(overload, test, milliseconds=100, **fields):
    """Build the compilation of an overload in a test."""
    return make_event(
        overload.function,
        signature=overload.signature,
        inclusive_ns=milliseconds * 1_000_000,
        test=test,
        **fields,
    )


def test_each_test_is_charged_what_it_compiled_and_why():
    """Dearest first, one line per overload with its reason."""
    result = make_result(
        DOUBLE, SINGLE, events=(event(DOUBLE, FIRST), event(SINGLE, SECOND, 300))
    )
    lines = render(result, top=10)
    assert (
        lines[0]
        == "2 compilations took 400 ms, 40 % of the measured 1.00 s, in 2 places"
    )
    assert lines[2:] == [
        f"  300 ms  {SECOND}",
        "            300 ms  dot(float32[::1]): compiled again because of `a`: dtype "
        "float64 to float32",
        f"  100 ms  {FIRST}",
        "            100 ms  dot(float64[::1]): first call",
    ]


def test_helpers_are_charged_to_what_needed_them():
    """The times of a test's lines add up to its own, and all to the total."""
    events = (
        event(DOUBLE, FIRST, 300, exclusive_ns=200_000_000),
        make_event("impl", internal=True, parent=0, test=FIRST),
        make_event("alone", internal=True, test=SECOND),
    )
    lines = render(make_result(DOUBLE, events=events), top=10)
    assert lines[0].startswith("1 compilation took 400 ms")
    assert "            300 ms  dot(float64[::1]): first call" in lines
    assert "            100 ms  Numba's own helpers" in lines
    assert owner_of(events[1], events) is events[0]
    assert owner_of(events[2], events) is events[2]


def test_tests_beyond_the_top_are_summed():
    """Nothing is left out of the sums."""
    events = [event(DOUBLE, f"t.py::test_{n}", 10 + n) for n in range(5)]
    lines = render(make_result(DOUBLE, events=tuple(events)), top=2)
    assert " 33.0 ms  … and 3 more places" in lines
    again = render(make_result(DOUBLE, events=tuple(events)), top=10)
    assert sum("compiled before in this process" in line for line in again) == 4


def test_cache_hits_and_misses_are_counted():
    """A load is a hit; a compilation of a function with a cache is a miss."""
    result = make_result(
        DOUBLE,
        SINGLE,
        events=(event(DOUBLE, FIRST, 5, event="cache_load"), event(SINGLE, SECOND)),
        dispatchers=(make_dispatcher("dot", cache_enabled=True),),
    )
    lines = render(result, top=10)
    assert lines[1] == "cache: 1 hit (5.00 ms), 1 miss (100 ms)"
    assert any("loaded from cache" in line for line in lines)


def test_a_gufunc_is_one_compilation():
    """The loop around its kernel is compiled apart, and is no repetition."""
    events = (event(DOUBLE, FIRST), event(DOUBLE, FIRST, 50, kind="loop wrapper"))
    lines = render(make_result(DOUBLE, events=events), top=10)
    assert lines[0].startswith("1 compilation took 150 ms")
    assert "            150 ms  dot(float64[::1]): first call" in lines


def test_what_no_test_called_is_summed():
    """Signatures that are listed are compiled, used or not."""
    unused = make_overload("dot", args=SINGLE.args, calls=0)
    result = make_result(
        DOUBLE, unused, events=(event(DOUBLE, FIRST), event(unused, FIRST))
    )
    lines = render(result, top=10)
    assert any(
        line.startswith("1 overload that no test called, 100 ms") for line in lines
    )


def test_failures_are_told_with_their_error():
    """A test that expects a TypingError pays for it, too."""
    failed = event(DOUBLE, FIRST, event="failed", error="TypingError: no")
    lines = render(make_result(DOUBLE, events=(failed,)), top=10)
    assert "            100 ms  dot(float64[::1]): failed: TypingError: no" in lines


def test_workers_are_named_and_what_they_repeat():
    """Two workers that compile the same cost it twice."""
    processes = (make_process(label="gw0"), make_process(label="gw1", pid=2))
    events = (event(DOUBLE, FIRST), event(DOUBLE, SECOND, 200, process=1))
    lines = render(make_result(DOUBLE, events=events, processes=processes), top=10)
    assert "of the measured 2.00 s of 2 processes" in lines[0]
    assert f"  200 ms  {SECOND}  [gw1]" in lines
    assert any("1 compilation, 200 ms, repeated" in line for line in lines)


def test_nothing_compiled_is_said():
    """No empty table, and a disabled jit is the first thing said."""
    assert render(make_result(), top=10) == [
        "nothing was compiled, and nothing loaded from the cache"
    ]
    environment = make_environment(jit_disabled=True)
    processes = (make_process(environment=environment),)
    assert "jit is disabled" in render(make_result(processes=processes), top=1)[0]
