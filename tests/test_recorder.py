"""One process's part in a run."""

from __future__ import annotations

import os

import pytest
from builders import make_overload, make_process, make_result

from numbaprof import recorder as recording
from numbaprof.recorder import Recorder


class FakeSession:
    """Counts nothing, remembers everything."""

    log: list[str]

    def __init__(self, log, label, *, fails=""):
        self.log = log
        self.label = label
        self.fails = fails

    def _do(self, what):
        self.log.append(what)
        if self.fails == what:
            raise RuntimeError(f"{what} failed")

    def start(self):
        """Begin."""
        self._do("start")

    def stop(self, exit=""):
        """Return a profile of one call."""
        self._do("stop")
        number = len(self.log)
        process = make_process(wall_ns=number, label=self.label, exit=exit)
        return make_result(make_overload(), processes=(process,))

    def reset_after_fork(self, label):
        """Take the label."""
        self.label = label
        self._do("reset")


class FakeOutlet:
    """Keeps what it is given."""

    def __init__(self):
        self.log = []
        self.delivered = []

    def opened(self):
        """Remember."""
        self.log.append("opened")

    def abandon(self):
        """Remember."""
        self.log.append("abandoned")

    def deliver(self, result, problem):
        """Keep both."""
        self.delivered.append((result, problem))


class FakeSigterm:
    """Leaves the signal alone."""

    def __init__(self, callback):
        self.callback = callback
        self.log = []

    def install(self):
        """Remember."""
        self.log.append("installed")

    def restore(self):
        """Remember."""
        self.log.append("restored")

    def renew_after_fork(self):
        """Remember."""
        self.log.append("renewed")

    def end(self):
        """Remember, instead of ending the process."""
        self.log.append("ended")


@pytest.fixture(autouse=True)
def fake_sigterm(monkeypatch):
    """Let no test of this file handle a signal."""
    monkeypatch.setattr(recording, "SigtermHandler", FakeSigterm)


@pytest.fixture
def outlet():
    """Return an outlet that shows what reached it."""
    return FakeOutlet()


def make_recorder(outlet, *, fails="", enabled=True):
    """Make a recorder and return it with the log of its sessions."""
    log = []
    new_session = lambda label: FakeSession(log, label, fails=fails)  # noqa: E731
    return Recorder(new_session, outlet, enabled=enabled), log


def test_profile_is_delivered_once(outlet):
    """The end can come twice: by a finalizer and by atexit."""
    recorder, log = make_recorder(outlet)
    recorder.numba_imported()
    recorder.finish()
    recorder.finish()
    assert log == ["start", "stop"]
    ((result, problem),) = outlet.delivered
    assert (len(result.overloads), problem) == (1, "")


def test_exit_of_the_program_is_in_the_profile(outlet):
    """How the program ended is part of what happened."""
    recorder, _ = make_recorder(outlet)
    recorder.numba_imported()
    recorder.exit = "SystemExit(3)"
    recorder.finish()
    assert outlet.delivered[0][0].processes[0].exit == "SystemExit(3)"


def test_disabled_recorder_waits_for_the_program(outlet):
    """``--start-disabled`` leaves the import of Numba unmeasured."""
    recorder, log = make_recorder(outlet, enabled=False)
    recorder.numba_imported()
    assert log == []
    recorder.start()
    assert log == ["start"]


def test_stretches_are_added(outlet):
    """Start and stop may alternate; what lies between counts for nothing."""
    recorder, log = make_recorder(outlet)
    recorder.start()
    recorder.start()
    recorder.stop()
    recorder.stop()
    recorder.start()
    recorder.finish()
    assert log == ["start", "stop", "start", "stop"]
    assert outlet.delivered[0][0].overloads[0].calls == 2


def test_stop_before_numba_is_imported_is_respected(outlet):
    """The program's word counts more than the default."""
    recorder, log = make_recorder(outlet)
    recorder.stop()
    recorder.numba_imported()
    assert log == []


@pytest.mark.parametrize(
    ("enabled", "reason"),
    [(True, "did not import numba"), (False, "numbaprof.start()")],
)
def test_reason_is_delivered_when_nothing_was_measured(outlet, enabled, reason):
    """No profile is not an empty profile."""
    recorder, _ = make_recorder(outlet, enabled=enabled)
    recorder.finish()
    ((result, problem),) = outlet.delivered
    assert result is None
    assert reason in problem


@pytest.mark.parametrize("fails", ["start", "stop"])
def test_session_that_fails_does_not_reach_the_program(outlet, fails):
    """The program runs on; the reason comes with the missing profile."""
    recorder, _ = make_recorder(outlet, fails=fails)
    recorder.numba_imported()
    recorder.finish()
    ((result, problem),) = outlet.delivered
    assert result is None
    assert f"RuntimeError: {fails} failed" in problem


def test_forked_child_delivers_to_its_own_outlet(outlet):
    """What the parent had measured is the parent's."""
    recorder, log = make_recorder(outlet)
    recorder.start()
    recorder.stop()
    recorder.start()
    child = FakeOutlet()
    recorder.become_child(child, label="fork")
    recorder.finish()
    assert log[-2:] == ["reset", "stop"]
    assert (outlet.log, outlet.delivered) == (["opened", "opened", "abandoned"], [])
    assert child.log == ["opened"]
    (process,) = child.delivered[0][0].processes
    assert process.label == "fork"


def test_child_whose_session_cannot_be_reset_only_leaves_its_mark(outlet):
    """A child that would deliver the parent's calls delivers nothing."""
    recorder, _ = make_recorder(outlet, fails="reset")
    recorder.start()
    child = FakeOutlet()
    recorder.become_child(child, label="fork")
    recorder.finish()
    assert (child.log, child.delivered) == (["opened"], [])


def test_copy_of_a_recorder_in_another_process_delivers_nothing(outlet, monkeypatch):
    """Between a fork and our hook the child still has the parent's recorder."""
    recorder, _ = make_recorder(outlet)
    recorder.start()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    recorder.finish()
    assert outlet.delivered == []


def test_signal_delivers_and_lets_the_process_end(outlet):
    """The profile is out before SIGTERM has its way."""
    recorder, _ = make_recorder(outlet)
    recorder.start()
    assert recorder._sigterm.callback()
    assert outlet.delivered[0][0].processes[0].exit == "SIGTERM"
    assert recorder._sigterm.log == ["installed", "restored"]


def test_signal_between_fork_and_hook_finds_the_parents_recorder(outlet, monkeypatch):
    """The parent's calls are not delivered by a child that ends at once."""
    recorder, _ = make_recorder(outlet)
    recorder.start()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert recorder._sigterm.callback()
    assert outlet.delivered == []


def test_signal_waits_until_a_child_has_forgotten_the_parents_calls(outlet):
    """A half reset profile is not delivered."""
    recorder, log = make_recorder(outlet)
    recorder.start()
    child = FakeOutlet()
    child.opened = lambda: answers.append(recorder._sigterm.callback())
    answers: list[bool] = []
    recorder.become_child(child, label="fork")
    assert answers == [False]
    assert log == ["start", "reset", "stop"]
    assert recorder._sigterm.log[-1] == "ended"


@pytest.mark.parametrize("during", ["start", "stop"])
def test_signal_in_the_middle_of_something_waits_for_its_end(outlet, during):
    """A session that is starting or ending is not entered a second time."""
    recorder, log = make_recorder(outlet)
    answers = []

    def interrupt(session, *args, **kwargs):
        result = original(session, *args, **kwargs)
        answers.append(recorder._sigterm.callback())
        return result

    original = getattr(FakeSession, during)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeSession, during, interrupt)
        recorder.start()
        recorder.finish()
    assert answers == [False]
    assert log == ["start", "stop"]
    assert len(outlet.delivered) == 1
    assert recorder._sigterm.log[-1] == "ended"


def test_functions_do_nothing_outside_a_run():
    """A program may keep its calls when it is not profiled."""
    assert recording.current() is None
    assert (recording.start(), recording.stop()) == (False, False)


def test_functions_control_the_recorder_of_the_run(outlet):
    """``numbaprof.start`` and ``numbaprof.stop`` reach the session."""
    recorder, log = make_recorder(outlet, enabled=False)
    recording.set_current(recorder)
    try:
        assert recording.start()
        assert recording.stop()
    finally:
        recording.set_current(None)
    assert log == ["start", "stop"]
