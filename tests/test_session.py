"""Lifetime of a session: one at a time, everything restored whatever happens."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
import warnings

import numpy as np
import process_state
import pytest
from numba import njit, vectorize

import numbaprof
from numbaprof.errors import (
    ActiveSessionError,
    NumbaprofError,
    OptionError,
    SessionStateError,
    TargetError,
)
from numbaprof.session import (
    CALLS_REASON,
    Session,
    SessionOptions,
    active_session,
    profile,
)


@njit
def increment(value):
    """Return ``value + 1``."""
    return value + 1


@vectorize(["float64(float64)"])
def twice(value):
    """Return ``2 * value``."""
    return 2 * value


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile before anything is measured."""
    increment(1)
    increment(1.0)
    twice(np.ones(2))


def calls_of(result, function):
    """Return the calls of all overloads of a function."""
    name = function.py_func.__qualname__
    return sum(o.calls or 0 for o in result.overloads if o.function.qualname == name)


# -- ways to measure -------------------------------------------------------------------


def test_call_returns_the_value():
    """profile(func)(*args) is func(*args), measured."""
    p = profile(increment)
    assert p(41) == 42
    assert calls_of(p.result, increment) == 1


def test_block_is_measured():
    """A with block is measured from its first to its last line."""
    increment(1)
    with profile() as p:
        increment(1)
        increment(2.0)
    increment(1)
    assert calls_of(p.result, increment) == 2


def test_decorated_function_adds_up():
    """Each call of a decorated function adds to one profile."""

    @profile()
    def work(times):
        return [increment(i) for i in range(times)]

    assert (work(2), work(3)) == ([1, 2], [1, 2, 3])
    assert calls_of(work.result, increment) == 5


def test_decorated_method_gets_its_instance():
    """A decorated method is bound like any other."""

    class Holder:
        def __init__(self):
            self.value = 5

        @profile()
        def get(self, more):
            return increment(self.value + more)

    assert Holder().get(1) == 7


def test_decorated_function_keeps_its_name():
    """A decorated function looks like itself."""

    @profile()
    def work():
        """Do it."""

    assert (work.__name__, work.__doc__) == ("work", "Do it.")


def test_recursion_through_the_profiler_is_measured_once():
    """The outermost call measures; the inner ones run in it."""

    @profile()
    def countdown(number):
        increment(number)
        return countdown(number - 1) if number else "done"

    assert countdown(3) == "done"
    assert calls_of(countdown.result, increment) == 4


def test_started_and_stopped_by_hand():
    """start() and stop() may be called from different functions."""
    p = profile()
    p.start()
    increment(1)
    assert p.stop() is p.result
    assert calls_of(p.result, increment) == 1


def test_exception_passes_and_is_noted():
    """The program's exception comes out unchanged; the profile says how it ended."""
    error = LookupError("mine")

    def fail():
        increment(1)
        raise error

    p = profile(fail)
    with pytest.raises(LookupError) as caught:
        p()
    assert caught.value is error
    assert p.result.processes[0].exit == "LookupError"


def test_system_exit_passes_and_is_noted():
    """SystemExit keeps its code."""
    p = profile(sys.exit)
    with pytest.raises(SystemExit) as caught:
        p(3)
    assert caught.value.code == 3
    assert p.result.processes[0].exit == "SystemExit(3)"


# -- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [3, "function", object()])
def test_what_is_not_callable_is_refused(thing):
    """profile(3) says what 3 is and what to write instead."""
    with pytest.raises(TargetError, match="not callable; use `with"):
        profile(thing)


def test_calling_a_profile_without_a_function_is_refused():
    """profile()(3) is neither a decoration nor a call."""
    with pytest.raises(TargetError, match="has no function"):
        profile()(3)


def test_unknown_option_is_named():
    """A misspelled option is named beside those there are."""
    with pytest.raises(
        OptionError, match="no option detial; it has clock, label, detail"
    ):
        profile(detial=("f",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"detail": "f"}, "is a str; give a tuple"),
        ({"detail": (1,)}, "detail contains 1"),
        ({"detail": ("",)}, "detail contains ''"),
        ({"label": ""}, "must be a non-empty string"),
        ({"label": 7}, "must be a non-empty string"),
    ],
)
def test_bad_option_is_refused(options, message):
    """A value an option cannot have is refused when it is given, with the reason."""
    with pytest.raises(OptionError, match=message):
        profile(**options)


def test_bad_clock_is_refused_and_nothing_stays():
    """A clock that does not exist is an error of the start, which leaves nothing."""
    with pytest.raises(OptionError, match="clock='sundial' is not a clock"):
        profile(increment, clock="sundial")(1)
    assert active_session() is None


def test_stop_without_start_is_refused():
    """stop() before start() says so."""
    with pytest.raises(SessionStateError, match="not running; call start"):
        profile().stop()


def test_second_stop_is_refused():
    """stop() after stop() says so, and keeps the result."""
    p = profile()
    p.start()
    result = p.stop()
    with pytest.raises(SessionStateError, match="not running"):
        p.stop()
    assert p.result is result


def test_result_before_stop_is_refused():
    """There is no result while measuring."""
    with profile() as p, pytest.raises(SessionStateError, match="still running"):
        p.result


def test_result_before_start_is_refused():
    """There is no result before measuring."""
    with pytest.raises(SessionStateError, match="has not run yet"):
        profile().result


def test_second_session_names_the_first():
    """A second session is refused, names the first's place, and leaves it running."""
    with profile() as p:
        with pytest.raises(ActiveSessionError, match=rf"{__file__}:\d+; stop it first"):
            profile().start()
        increment(1)
    assert calls_of(p.result, increment) == 1


def test_second_start_of_one_profile_is_refused():
    """Starting what runs is refused and does not stop it."""
    with profile() as p:
        with pytest.raises(ActiveSessionError):
            p.start()
        increment(1)
    assert calls_of(p.result, increment) == 1


def test_session_is_not_started_twice():
    """A session measures once."""
    session = Session()
    session.start()
    session.stop()
    with pytest.raises(SessionStateError, match="is stopped; make a new one"):
        session.start()


def test_function_without_overloads_has_an_honest_report():
    """A function that was never compiled is no row, and the report can be written."""

    @njit
    def never(value):
        return value

    p = profile(lambda: None)
    p()
    assert calls_of(p.result, never) == 0
    assert "numbaprof" in p.report()


def test_repr_tells_the_state():
    """The repr says of what, and whether it runs."""
    p = profile(increment)
    assert repr(p) == "<numbaprof.profile of increment, ready>"
    with profile() as running:
        text = repr(running)
    assert text == "<numbaprof.profile, running>"


# -- restoring -------------------------------------------------------------------------


def test_state_is_restored_after_an_exception():
    """Nothing stays behind when the measured block raises."""
    before = process_state.read()
    with contextlib.suppress(ZeroDivisionError), profile():
        increment(1)
        1 / 0
    assert process_state.differences(before, process_state.read()) == []


def test_failing_instrument_leaves_nothing(monkeypatch):
    """When compile events cannot start, the overloads are restored."""
    from numbaprof.compile_events import CompileEvents

    def fail(self, origin_ns=None):
        raise MemoryError

    monkeypatch.setattr(CompileEvents, "start", fail)
    before = process_state.read()
    with pytest.raises(MemoryError):
        profile().start()
    assert process_state.differences(before, process_state.read()) == []
    assert active_session() is None


class Interrupter:
    """Raises a signal at one of the steps that our own code takes.

    Parameters
    ----------
    step : int
        Which one.
    number : signal.Signals
        What is raised.
    """

    def __init__(self, step, number=signal.SIGINT):
        self.left = step
        self.number = number
        self.fired_in = ""

    def __enter__(self):
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def trace(self, frame, event, argument):
        """Count steps in the session's own functions."""
        file = frame.f_code.co_filename
        if not file.endswith(("session.py", "dispatch_hook.py", "patches.py")):
            return None
        if "numbaprof" not in file:
            return None
        frame.f_trace_opcodes = file.endswith("session.py")
        self.left -= 1
        if self.left == 0:
            self.fired_in = frame.f_code.co_name
            signal.raise_signal(self.number)
        return self.trace


def steps_of(action):
    """Return how many steps ``action`` takes."""
    counter = Interrupter(10**9)
    with counter:
        action()
    return 10**9 - counter.left


def measure_once():
    """Start and stop once."""
    p = profile()
    p.start()
    p.stop()


def interrupted(step, action, number=signal.SIGINT):
    """Run ``action`` with a signal at one step; return what is left behind."""
    interrupter = Interrupter(step, number)
    before = process_state.read()
    with contextlib.suppress(KeyboardInterrupt, SystemExit), interrupter:
        action()
    left = active_session()
    if left is not None:
        left.abandon()
        return f"{interrupter.fired_in} at step {step}: a running session"
    changed = process_state.differences(before, process_state.read())
    return f"{interrupter.fired_in} at step {step}: {changed}" if changed else ""


def sampled_steps(action, count):
    """Return about ``count`` steps of ``action``, its beginning and end whole."""
    total = steps_of(action)
    step = max(1, total // count)
    return [
        *range(1, min(total, 60)),
        *range(60, max(61, total - 60), step),
        *range(max(60, total - 60), total + 1),
    ]


@pytest.fixture
def few_dispatchers(monkeypatch):
    """Attach to this file's functions only: steps are few then, and the same kinds."""
    from numbaprof.native import numba_api

    monkeypatch.setattr(numba_api, "live_dispatchers", lambda: [increment])
    monkeypatch.setattr(numba_api, "live_ufuncs", lambda: [twice])
    measure_once()


@pytest.mark.usefixtures("few_dispatchers")
def test_interrupt_at_any_step_of_a_measured_call_leaves_nothing():
    """Ctrl-C anywhere in start, call and stop restores everything."""

    def action():
        profile(increment)(1)

    left = [interrupted(step, action) for step in sampled_steps(action, 30)]
    assert [text for text in left if text] == []


@pytest.mark.usefixtures("few_dispatchers")
def test_interrupt_at_any_step_of_start_leaves_all_or_nothing():
    """After Ctrl-C in start(), either nothing runs or the profile can be stopped."""
    total = steps_of(measure_once)
    problems = []
    for step in (*range(1, 120), *range(120, total, max(1, total // 30))):
        p = profile()
        before = process_state.read()
        with contextlib.suppress(KeyboardInterrupt), Interrupter(step) as interrupter:
            p.start()
        if active_session() is not None:
            with contextlib.suppress(SessionStateError):
                p.stop()
        if active_session() is not None:
            active_session().abandon()
            problems.append(f"step {step}, {interrupter.fired_in}: cannot be stopped")
        problems += process_state.differences(before, process_state.read())
    assert problems == []


@pytest.mark.usefixtures("few_dispatchers")
def test_exit_from_a_signal_handler_at_any_step_leaves_nothing():
    """A SIGTERM handler that exits is held back like Ctrl-C."""

    def exit_(number, frame):
        raise SystemExit(9)

    def action():
        with profile():
            increment(1)

    old = signal.signal(signal.SIGTERM, exit_)
    try:
        steps = sampled_steps(action, 15)
        left = [interrupted(step, action, signal.SIGTERM) for step in steps]
    finally:
        signal.signal(signal.SIGTERM, old)
    # Between `return self`, the block and the first line of __exit__ it is Python's own
    # `with` that can be cut off, as for any context manager.
    edges = ("__enter__", "__exit__")
    assert [text for text in left if text and not text.startswith(edges)] == []


@pytest.mark.usefixtures("few_dispatchers")
def test_interrupt_while_stopping_keeps_the_result():
    """Ctrl-C during stop() is raised afterwards; what was measured is there."""
    p = profile()
    p.start()
    increment(1)

    finish = Session._finish

    def finish_interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        return finish(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_finish", finish_interrupted)
        with pytest.raises(KeyboardInterrupt):
            p.stop()
    assert calls_of(p.result, increment) == 1


def test_session_may_be_stopped_by_another_thread():
    """start() and stop() need not be in one thread."""
    p = profile()
    p.start()
    increment(1)
    thread = threading.Thread(target=p.stop)
    thread.start()
    thread.join()
    assert calls_of(p.result, increment) == 1


def test_abandoned_session_has_no_result():
    """abandon() restores and leaves no profile; the next session can start."""
    before = process_state.read()
    session = Session(SessionOptions())
    session.start()
    session.abandon()
    assert (session.result, active_session()) == (None, None)
    assert process_state.differences(before, process_state.read()) == []


def test_abandon_does_nothing_to_a_session_that_ended():
    """abandon() after stop() keeps the result."""
    session = Session()
    session.start()
    result = session.stop()
    session.abandon()
    assert session.result is result


# -- what is said ----------------------------------------------------------------------


def test_no_engine_warns_and_measures_compile_events(monkeypatch):
    """Without an engine a session warns by slug and still records compilations."""
    from numbaprof.native import shared

    none = shared.SharedEngine(None, "no machine code today")
    monkeypatch.setattr(shared, "shared_engine", lambda clock=None: none)

    @njit
    def fresh(value):
        return value + 2

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with profile() as p:
            fresh(1)
    assert [w.message.slug for w in caught] == ["no-engine"]
    assert "no machine code today" in str(caught[0].message)
    assert caught[0].filename == __file__
    (row,) = [o for o in p.result.overloads if "fresh" in o.function.qualname]
    assert (row.calls, row.not_countable_reason) == (None, "no machine code today")
    assert [e.event for e in p.result.compile_events] == ["compile"]
    p.result.check()


# -- stretches of one run --------------------------------------------------------------


def test_without_calls_nothing_stands_in_front_of_compiled_code():
    """Compilations are recorded with their CPU time, entry points stay Numba's own."""
    fresh = njit(lambda value: value + 2)
    entry_points = [cres.entry_point for cres in increment.overloads.values()]
    selves = [entry_point.__self__ for entry_point in entry_points]
    with profile(calls=False) as p:
        fresh(1)
        increment(1)
        now = [cres.entry_point.__self__ for cres in increment.overloads.values()]
        assert list(map(id, now)) == list(map(id, selves))
    (event,) = (e for e in p.result.compile_events if not e.internal)
    assert 0 < event.cpu_ns <= 2 * event.exclusive_ns
    assert {o.calls for o in p.result.overloads} == {None}
    assert p.result.processes[0].environment.backends[0].reason == CALLS_REASON
    p.result.check()


def test_seeing_python_calls_needs_calls():
    """The two options contradict each other."""
    with pytest.raises(OptionError, match="leave calls=False out"):
        SessionOptions(python=True, calls=False)


def test_functions_keep_their_identity_from_one_session_to_the_next():
    """Two closures of one source, met in another order the second time."""

    def make():
        return njit(lambda value: value + 3)

    one, two = make(), make()
    first = Session(SessionOptions(prime=True))
    first.start()
    one(1), two(1)
    first.stop()
    second = Session(after=first)
    second.start()
    two(1), two(1), one(1)
    second.stop()
    total = numbaprof.merge([first.result, second.result])
    calls = {o.function.instance: o.calls for o in total.overloads if o.calls}
    assert calls == {0: 2, 1: 3}


def test_a_session_may_give_way_to_another():
    """It is asked, stops, and the other one starts."""
    background = Session()
    background.gives_way = background.stop
    background.start()
    p = profile(increment)
    assert p(1) == 2
    assert calls_of(p.result, increment) == 1
    assert calls_of(background.result, increment) == 0
    assert active_session() is None


def test_a_session_that_stays_is_in_the_way():
    """Being asked is no order."""
    background = Session()
    background.gives_way = lambda: None
    background.start()
    with pytest.raises(ActiveSessionError):
        profile(increment)(1)
    background.stop()


def test_calls_can_be_read_while_they_are_counted():
    """Finished calls by overload, ufunc loops too; nothing before and after."""
    session = Session()
    session.start()
    increment(1), increment(1), twice(np.ones(3))
    reading = session.counters(inclusive=True)
    increment(1)
    later = session.counters(inclusive=True)
    session.stop()
    found = {
        (function.qualname, signature): calls
        for (function, signature), (calls, _) in reading.items()
    }
    assert found == {("increment", "(int64)"): 2, ("twice", "(float64)"): 1}
    grown = {key: later[key][0] - reading[key][0] for key in later}
    assert sorted(grown.values()) == [0, 1]
    assert session.counters(inclusive=True) == {}


def test_events_are_placed_on_the_clock_of_the_process():
    """Beginning and number of events can be read from outside."""
    before = time.perf_counter_ns()
    session = Session()
    session.start()
    assert session.compile_count == 0
    njit(lambda value: value + 4)(1)
    assert session.compile_count == 1
    (event,) = session.stop().compile_events
    begun = session.origin_ns + event.start_ns
    assert before < begun < begun + event.inclusive_ns < time.perf_counter_ns()


def test_every_error_is_a_numbaprof_error():
    """One except clause catches everything numbaprof raises on purpose."""
    for name in numbaprof.errors.__all__:
        thing = getattr(numbaprof.errors, name)
        assert issubclass(thing, (NumbaprofError, UserWarning))


@pytest.mark.parametrize("kind", ["coroutine", "generator", "async generator"])
def test_function_that_runs_later_is_refused(kind):
    """Calling it would measure nothing and say that nothing was lost."""

    async def coroutine():
        pass

    def generator():
        yield

    async def async_generator():
        yield

    target = locals()[kind.replace(" ", "_")]
    with pytest.raises(TargetError, match="runs after the profile has ended"):
        profile(target)


def test_repr_of_a_result_is_one_line():
    """What is shown at a prompt says what there is, and not all of it."""
    with profile() as p:
        pass
    assert repr(p.result).startswith("<numbaprof.ProfileResult, ")
    assert "\n" not in repr(p.result)


def test_report_takes_the_options_of_the_command_line():
    """Unknown ones are named."""
    with profile() as p:
        pass
    assert p.report(sort="calls", width=80) == p.result.report(sort="calls", width=80)
    with pytest.raises(OptionError, match="cannot sort by 'zzz'"):
        p.report(sort="zzz")


# -- while it runs ---------------------------------------------------------------------


def test_counters_can_be_read_between_rounds():
    """Calls so far, per overload, without stopping; the end result agrees."""
    session = Session()
    session.start()
    try:
        seen = []
        for _ in range(3):
            for _ in range(5):
                increment(1)
            increment(1.0)
            twice(np.ones(2))
            counters = session.counters()
            seen.append({k[1]: v for k, v in counters.items() if k[1] != "(float32)"})
    finally:
        result = session.stop()
    assert [c["(int64)"][0] for c in seen] == [5, 10, 15]
    last = {
        (o.function, o.signature): (o.calls, o.exclusive_ns)
        for o in result.overloads
        if o.calls
    }
    assert {key: calls for key, (calls, _) in counters.items()} == {
        key: calls for key, (calls, _) in last.items()
    }
    for key, (_, ns) in counters.items():
        assert ns == pytest.approx(last[key][1], rel=0.01, abs=5)


def test_compilations_are_counted_while_it_runs():
    """Who waits for the last compilation can see that none happened."""

    @njit
    def fresh(value):
        return value - 1

    session = Session(SessionOptions(compile_clock="cpu"))
    session.start()
    try:
        fresh(1)
        compiled = session.compile_count
        fresh(2)
        assert session.compile_count == compiled >= 1
        assert session.compile_events()[-1].function.qualname.endswith("fresh")
    finally:
        session.stop()


def test_compile_clock_must_be_known():
    """The clocks there are, are named."""
    with pytest.raises(OptionError, match="'wall' or 'cpu'"):
        SessionOptions(compile_clock="sundial")
