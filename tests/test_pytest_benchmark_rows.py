from __future__ import annotations

from builders import make_event, make_function, make_overload, make_result

from numbaprof.model import Fingerprint
from numbaprof.pytest_benchmark_rows import Pass, build_rows, render_tables

DOT, HELPER = make_function("dot"), make_function("helper")
DOT_KEY = (DOT, "(int64)")


def make_pass(*rounds, **overload):
    """Build a pass over ``dot``: (calls, nanoseconds) of each round, ten calls each."""
    counted = Pass(result=make_result(make_overload(DOT, **overload)))
    calls = time_ns = 0
    for n_calls, spent_ns in rounds:
        before = {DOT_KEY: (calls, time_ns)}
        calls, time_ns = calls + n_calls, time_ns + spent_ns
        counted.add(10, before, {DOT_KEY: (calls, time_ns)})
    return counted


def test_time_per_call_is_the_median_of_rounds():
    """One round with an interruption does not move it."""
    (row,) = build_rows(make_pass((20, 2000), (20, 2200), (20, 90_000)), [])
    assert (row["function"], row["signature"]) == ("demo.dot", "(int64)")
    assert (row["calls"], row["calls_per_call"]) == (60, 2.0)
    assert (row["median_ns"], row["min_ns"], row["rounds"]) == (110, 100, 3)
    assert (row["new"], row["compile_s"]) == (False, 0.0)


def test_a_round_without_a_call_is_no_round_of_the_overload():
    """It has no time per call."""
    counted = make_pass((20, 2000))
    counted.add(10, {DOT_KEY: (20, 2000)}, {DOT_KEY: (20, 2000)})
    (row,) = build_rows(counted, [])
    assert row["rounds"] == 1


def test_what_was_compiled_and_never_called_has_a_row():
    """Its calls cannot be counted, so they are none and not zero."""
    event = make_event(HELPER, inclusive_ns=50_000_000)
    impl = make_event("impl", inclusive_ns=10_000_000, internal=True)
    rows = build_rows(make_pass((10, 1000)), [(event, event), (impl, event)])
    helper = rows[1]
    assert (helper["calls"], helper["median_ns"], helper["new"]) == (None, None, True)
    assert helper["compile_s"] == 0.06


def test_helpers_and_failures_have_none():
    """Numba's own are left out, and so is what never came to be."""
    impl = make_event("impl", internal=True)
    failed = make_event("dot", event="failed")
    assert build_rows(Pass(), [(impl, impl), (failed, failed)]) == []
    counted = make_pass((10, 1000), internal=True)
    assert build_rows(counted, []) == []


def test_table_shows_vector_width_and_notes():
    """One line per overload; below it the rounds that were dropped."""
    code = Fingerprint("abc", 100, 10, 256)
    event = make_event(DOT, inclusive_ns=50_000_000)
    rows = build_rows(make_pass((10, 1000), fingerprint=code), [(event, event)])
    info = {
        "overloads": rows,
        "dropped_rounds": [{"round": 4, "compiled": ["dot(float32)"]}],
        "note": "",
    }
    assert list(render_tables([("t.py::test_dot", info)])) == [
        "test      calls  time/call  compile  new  vector  overload",
        "test_dot     10     100 ns  50.0 ms  yes    256b  dot(int64)",
        "note: t.py::test_dot: round 4 dropped, compiled dot(float32)",
    ]
