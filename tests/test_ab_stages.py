"""Which sessions ``ab`` makes: stages, budget, resuming; the sessions are invented."""

from __future__ import annotations

import os
import signal
import time

import pytest
from test_ab_book import TEST, final, key, make_test, session

from numbaprof import ab
from numbaprof.ab import AbOptions, Interrupted, run_ab
from numbaprof.comparing import compare
from numbaprof.comparison import GateOptions
from numbaprof.errors import ComparisonError, OptionError
from numbaprof.runfile import load_run

QUIET = "tests/test_k.py::test_quiet"


class Sessions:
    """Stands in for :func:`numbaprof.ab_session.run_session`."""

    def __init__(self, *, head_ns=1300.0, head_code="b", fail_at=0, error=None):
        self.plans = []
        self._head_ns, self._head_code = head_ns, head_code
        self._fail_at, self._error = fail_at, error

    def __call__(self, sides, plan, data, tell=None):
        """Fill in a session of two tests, of which one has a slower overload."""
        self.plans.append(plan)
        if self._fail_at == len(self.plans):
            raise self._error
        other = key("base", function="quiet"), key("head", function="quiet")
        made = session(
            make_test(head_ns=self._head_ns), make_test(node=QUIET, keys=other)
        )
        made.collected = {"base": [TEST, QUIET], "head": [TEST, QUIET]}
        made.final["head"] = final("head", code=self._head_code)
        quiet = (
            final("base", other[0])["overloads"],
            final("head", other[1])["overloads"],
        )
        made.final["base"]["overloads"] += quiet[0]
        made.final["head"]["overloads"] += quiet[1]
        data.collected, data.final = made.collected, made.final
        data.tests[:] = [t for t in made.tests if not plan.only or t.node in plan.only]
        data.seconds = 10.0


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return a function that compares two folders with invented sessions."""
    monkeypatch.chdir(tmp_path)
    for name in ("base", "head"):
        (tmp_path / name).mkdir()

    def measure(invented, *, gates=None, **options):
        monkeypatch.setattr(ab, "run_session", invented)
        return run_ab("base", "head", AbOptions(**options), gates=gates)

    return measure


def test_only_what_looks_slower_is_confirmed(measured):
    """Five sessions of everything, five of the one test with a slower overload."""
    sessions = Sessions()
    run = measured(sessions)
    assert (run.sessions, run.confirmed, run.candidates) == (5, 5, (TEST,))
    assert [plan.only for plan in sessions.plans] == [()] * 5 + [(TEST,)] * 5
    comparison = compare(run)
    assert [row.function for row in comparison.failing] == ["kern.dot"]
    assert comparison.exit_code == 1


def test_nothing_slower_needs_no_confirmation(measured):
    """The first stage is enough."""
    run = measured(Sessions(head_ns=1000.0))
    assert (run.sessions, run.confirmed) == (5, 0)
    assert compare(run).verdict == "ok"


def test_same_code_needs_no_confirmation(measured):
    """However slow it measured; unless false alarms are to be counted."""
    assert measured(Sessions(head_code="a")).confirmed == 0
    counted = measured(Sessions(head_code="a"), gates=GateOptions(ignore_code=True))
    assert counted.confirmed == 5


def test_budget_bounds_the_sessions(measured):
    """No session is begun that would end after it; the verdict says what is missing."""
    run = measured(Sessions(), budget_s=9.0)
    assert run.sessions == 1
    assert "the budget of 9 s is used up" in run.stopped
    comparison = compare(run)
    assert comparison.exit_code == 2
    assert "only 1 of 5 sessions" in comparison.problems[0]


def test_interrupt_keeps_the_sessions_before(measured):
    """And resuming makes the others."""
    with pytest.raises(Interrupted, match="2 of 5 sessions made; kept in"):
        measured(Sessions(fail_at=3, error=KeyboardInterrupt()))
    assert load_run("numbaprof-ab.json").sessions == 2
    sessions = Sessions()
    run = measured(sessions, resume=True)
    assert (run.sessions, run.confirmed, len(sessions.plans)) == (5, 5, 8)
    assert run.stopped == ""


def test_end_of_a_job_is_an_interrupt(measured):
    """CI systems send SIGTERM; the handler that was there is put back."""
    before = signal.getsignal(signal.SIGTERM)

    def terminated(sides, plan, data, tell=None):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with pytest.raises(Interrupted, match="0 of 5 sessions made"):
        measured(terminated)
    assert signal.getsignal(signal.SIGTERM) is before


def test_failed_session_keeps_the_sessions_before(measured):
    """A crash of one side ends the comparison, not what was measured."""
    error = ComparisonError("the head side ended early")
    with pytest.raises(ComparisonError, match="ended early"):
        measured(Sessions(fail_at=2, error=error))
    assert load_run("numbaprof-ab.json").stopped == "a session failed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 7}, "other rounds: 30 then, 7 now"),
        ({"pytest_args": ("-k", "x")}, "other pytest arguments: none then, -k x now"),
        ({"sessions": 9}, "more sessions"),
    ],
)
def test_other_comparison_is_not_resumed(measured, options, message):
    """Sessions that were made otherwise do not go with the ones there are."""
    measured(Sessions())
    with pytest.raises(OptionError, match=message):
        measured(Sessions(), resume=True, **options)


def test_finished_comparison_needs_no_further_session(measured):
    """Resuming what is complete measures nothing."""
    measured(Sessions())
    sessions = Sessions()
    measured(sessions, resume=True)
    assert sessions.plans == []


def test_progress_is_told(measured, monkeypatch, capsys):
    """One line per session."""
    import sys

    monkeypatch.setattr(ab, "run_session", Sessions(head_ns=1000.0))
    run_ab("base", "head", AbOptions(sessions=2), stream=sys.stderr)
    assert capsys.readouterr().err.splitlines() == [
        "numbaprof: session 1 of 2: 2 tests, 10.0 s",
        "numbaprof: session 2 of 2: 2 tests, 10.0 s",
    ]
