"""What sessions measured, gathered into a run file."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from run_builders import fingerprint, make_machine, make_run

from numbaprof.ab_book import Book
from numbaprof.ab_session import SessionData, TestData
from numbaprof.ab_sides import Side
from numbaprof.runfile import RunSide
from numbaprof.schema import to_plain

TEST = "tests/test_k.py::test_dot"
BASE, HEAD = Path("/w/base"), Path("/w/head")


def key(side, *, function="dot", line=3, file="kern.py", signature="(int64)"):
    """Return an overload as a worker names it."""
    root = BASE if side == "base" else HEAD
    return ("kern", function, str(root / file), line, 0, signature)


def make_book(**changes):
    """Return an empty book for two directories."""
    fields = {"base": RunSide("base"), "head": RunSide("head")}
    run = make_run(sessions=0, confirmed=0, **fields)
    sides = [Side(str(root), "directory", root, "python") for root in (BASE, HEAD)]
    return Book(run, sides, **changes)


def make_test(base_ns=1000.0, head_ns=1200.0, *, rounds=5, node=TEST, keys=None):
    """Return a test whose rounds are all alike, with 10 calls each."""
    pair = keys or (key("base"), key("head"))
    row = ({pair[0]: [10.0, 10 * base_ns]}, {pair[1]: [10.0, 10 * head_ns]})
    return TestData(node, 10, [(base_ns, head_ns)] * rounds, [row] * rounds)


def final(side, overload=None, *, code="a", compile_ns=2_000_000, **changes):
    """Return what a worker sends at its end."""
    found = {
        "key": list(overload or key(side)),
        "kind": "function",
        "parallel": False,
        "fingerprint": to_plain(fingerprint(code)),
        "fingerprint_reason": "",
        "compile_ns": compile_ns,
        "cached": False,
        "not_countable_reason": "",
    }
    return {
        "machine": to_plain(make_machine()),
        "jit_disabled": False,
        "overloads": [found | changes],
        "born": [[*found["key"], TEST]],
        "problems": [],
    }


def session(*tests, **changes):
    """Return a whole session."""
    fields = {
        "collected": {"base": [TEST], "head": [TEST]},
        "tests": list(tests),
        "final": {"base": final("base"), "head": final("head", code="b")},
    }
    return SessionData(**(fields | changes))


def only(book):
    """Return the one overload."""
    (overload,) = book.to_run().overloads
    return overload


def test_session_becomes_medians_and_a_ratio():
    """Median per call on both sides, median log ratio, calls per call of the test."""
    book = make_book()
    book.add(session(make_test()))
    (times,) = only(book).tests
    assert (times.base_ns, times.head_ns) == ((1000.0,), (1200.0,))
    assert times.log_ratio == (pytest.approx(math.log(1.2), abs=1e-4),)
    assert (times.base_calls, times.head_calls) == (1.0, 1.0)
    assert book.run.sessions == 1


def test_files_are_relative_to_their_side():
    """The same file of both checkouts has one name."""
    book = make_book()
    book.add(session(make_test()))
    overload = only(book)
    assert overload.base.file == overload.head.file == "kern.py"


def test_lines_do_not_split_an_overload():
    """A function that moved is paired with itself."""
    book = make_book()
    moved = key("head", line=30)
    data = session(make_test(keys=(key("base"), moved)))
    data.final["head"] = final("head", moved)
    book.add(data)
    assert (only(book).base.line, only(book).head.line) == (3, 30)


def test_missing_sessions_are_nan():
    """A session that did not measure a test leaves a gap, not a shift."""
    other = "tests/test_k.py::test_other"
    book = make_book()
    book.add(session(make_test()))
    book.add(session(make_test(), make_test(node=other)))
    times = {t.test: t for t in only(book).tests}
    assert math.isnan(times[other].log_ratio[0])
    assert times[other].log_ratio[1] > 0


def test_confirming_sessions_follow_the_first():
    """The first ``sessions`` entries are the first stage."""
    book = make_book()
    book.add(session(make_test()))
    book.add(session(make_test(head_ns=1500.0)), confirming=True)
    assert (book.run.sessions, book.run.confirmed) == (1, 1)
    (times,) = only(book).tests
    assert times.head_ns == (1200.0, 1500.0)


def test_compile_times_are_one_per_session():
    """A cache load is counted, not timed."""
    book = make_book()
    book.add(session(make_test()))
    cached = session(make_test())
    cached.final["head"] = final("head", code="b", cached=True)
    book.add(cached)
    overload = only(book)
    assert overload.base.compile_cpu_ms == (2.0, 2.0)
    assert (overload.head.compile_cpu_ms, overload.head.cache_loads) == ((2.0,), 1)


def test_code_that_differs_between_sessions_is_told():
    """Machine code is reproducible; where it is not, a reader must know."""
    book = make_book()
    book.add(session(make_test()))
    other = session(make_test())
    other.final["head"] = final("head", code="c")
    book.add(other)
    assert "differs between sessions" in book.run.problems[0]


def test_session_cut_off_is_kept():
    """Tests that were measured count, without what is known only at the end."""
    book = make_book()
    book.add(session(make_test(), final={}))
    assert book.run.sessions == 1
    assert "cut off" in only(book).head.fingerprint_reason


def test_session_without_a_measured_test_is_none():
    """Interrupted while collecting: nothing was measured."""
    book = make_book()
    book.add(session(final={}))
    assert book.run.sessions == 0


def test_side_that_ran_the_code_of_the_other_is_found():
    """An installed package that hides the checkout must not pass as equal."""
    book = make_book()
    book.add(session(make_test(keys=(key("head"), key("head")))))
    assert "the base side imported the code of the head side" in book.run.blockers[0]


def test_sides_that_ran_installed_code_are_found():
    """Both sides imported the same package from elsewhere."""
    book = make_book()
    installed = ("kern", "dot", "/usr/lib/kern.py", 3, 0, "(int64)")
    data = session(make_test(keys=(installed, installed)))
    data.final = {}
    book.add(data)
    assert "the same installed code (/usr/lib/kern.py)" in book.run.blockers[0]


def test_failed_and_idle_tests_are_noted():
    """What could not be measured is in the file."""
    book = make_book()
    data = session(
        make_test(), failed={"head": ["t.py::x (boom)"]}, not_met=["t.py::y"]
    )
    book.add(data)
    assert book.run.head.failed_tests == ("t.py::x (boom)",)
    assert book.run.problems == (
        "t.py::y was not measured: it did not call its fixture",
    )


def test_rounds_are_kept_when_asked_for():
    """Each round of each session."""
    book = make_book(save_rounds=True)
    book.add(session(make_test(rounds=3)))
    (times,) = only(book).tests
    assert times.rounds == (((1000.0, 1200.0),) * 3,)


def test_book_goes_on_where_a_run_ended():
    """A run that was read gets further sessions as if it had never stopped."""
    whole = make_book()
    for _ in range(2):
        whole.add(session(make_test()))
    half = make_book()
    half.add(session(make_test()))
    sides = list(half._sides.values())
    resumed = Book(half.to_run(), sides)
    resumed.add(session(make_test()))
    assert resumed.to_run() == replace(whole.to_run(), started=resumed.run.started)
