"""Hooks on methods: called around every call, invisible, and gone without a trace."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import traceback
import types
import warnings
import weakref

import pytest

from numbaprof.errors import AttachError
from numbaprof.native.hooks import MAX_HOOK_ERRORS, CallHook, HookErrors, muted


def make_class():
    """Return a fresh class with one method of each sort."""

    class Machine:
        limit = 10

        def run(self, value, *, scale=1):
            if value < 0:
                raise ValueError(f"negative: {value}")
            return [value * scale]

        def nested(self, depth):
            return depth and self.nested(depth - 1)

        def chained(self):
            try:
                raise KeyError("first")
            except KeyError as error:
                raise TypeError("second") from error

        def unnormalized(self):
            return int("not a number")

        def warn(self):
            warnings.warn("from the caller", UserWarning, stacklevel=2)

        @staticmethod
        def static():
            return None

    Machine.__qualname__ = "Machine"
    return Machine


class Recorder:
    """Keeps what the two callbacks were given."""

    def __init__(self):
        self.calls = []

    def before(self, args, kwargs):
        """Keep a beginning."""
        self.calls.append(("before", args, kwargs))

    def after(self, args, kwargs, outcome, failed):
        """Keep an end."""
        self.calls.append(("after", args, kwargs, outcome, failed))


@pytest.fixture
def recorder():
    """Return an empty recorder."""
    return Recorder()


def hooked(cls, attribute, recorder):
    """Return an installed hook that tells ``recorder``."""
    hook = CallHook(cls, attribute, recorder.before, recorder.after)
    hook.install()
    return hook


def test_callbacks_see_arguments_and_result(recorder):
    """`before` and `after` get the call's arguments, `after` its result as well."""
    cls = make_class()
    hooked(cls, "run", recorder)
    machine = cls()
    result = machine.run(2, scale=3)
    assert recorder.calls == [
        ("before", (machine, 2), {"scale": 3}),
        ("after", (machine, 2), {"scale": 3}, [6], False),
    ]
    assert recorder.calls[1][3] is result


def test_both_callbacks_get_the_same_tuple(recorder):
    """The argument tuple is one object, so that it can pair the two calls."""
    cls = make_class()
    hooked(cls, "run", recorder)
    cls().run(1)
    assert recorder.calls[0][1] is recorder.calls[1][1]


def test_keywords_are_none_when_there_are_none(recorder):
    """A call without keywords shows None, not an empty dict."""
    cls = make_class()
    hooked(cls, "run", recorder)
    cls().run(1)
    assert recorder.calls[0][2] is None


def test_after_gets_the_exception_when_the_method_raised(recorder):
    """A failing call reports the very exception that the program sees."""
    cls = make_class()
    hooked(cls, "run", recorder)
    with pytest.raises(ValueError, match="negative: -1") as caught:
        cls().run(-1)
    assert recorder.calls[1][3:] == (caught.value, True)


def formatted(method, *arguments):
    """Return the traceback of a failing call as text, without this frame's line."""
    try:
        method(*arguments)
    except Exception:
        return traceback.format_exc()
    raise AssertionError("the call did not fail")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("run", (-1,)), ("chained", ()), ("unnormalized", ()), ("run", ())],
)
def test_traceback_is_identical_under_a_hook(name, arguments):
    """No frame is added; cause, context and message are what they were."""
    cls = make_class()
    plain = formatted(getattr(cls(), name), *arguments)
    recorder = Recorder()
    hooked(cls, name, recorder)
    assert formatted(getattr(cls(), name), *arguments) == plain
    assert recorder.calls[-1][-1] is True


def test_handled_exception_stays_the_context():
    """An error raised while another is handled keeps that one as its context."""
    cls = make_class()
    hooked(cls, "run", Recorder())
    caught = None
    try:
        raise LookupError("outer")
    except LookupError:
        with pytest.raises(ValueError, match="negative") as caught:
            cls().run(-1)
    assert isinstance(caught.value.__context__, LookupError)


def test_warning_points_to_the_same_line(recorder):
    """`stacklevel` counts Python frames, and a hook adds none."""
    cls = make_class()
    hooked(cls, "warn", recorder)
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(UserWarning, match="from the caller") as caught:
        cls().warn()
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_subclasses_and_super_go_through_the_hook(recorder):
    """A subclass that calls `super()` reaches the hooked method once."""
    cls = make_class()

    class Special(cls):
        def run(self, value, *, scale=1):
            return super().run(value, scale=scale)

    hooked(cls, "run", recorder)
    assert Special().run(4) == [4]
    assert [call[0] for call in recorder.calls] == ["before", "after"]


def test_recursive_calls_nest(recorder):
    """Every level of a recursion is seen, innermost first to finish."""
    cls = make_class()
    hooked(cls, "nested", recorder)
    cls().nested(2)
    assert [(call[0], call[1][1]) for call in recorder.calls] == [
        ("before", 2),
        ("before", 1),
        ("before", 0),
        ("after", 0),
        ("after", 1),
        ("after", 2),
    ]


def test_restore_puts_the_same_object_back(recorder):
    """The class's own function returns, by identity."""
    cls = make_class()
    original = cls.__dict__["run"]
    hook = hooked(cls, "run", recorder)
    assert cls.__dict__["run"] is not original
    assert hook.restore() is None
    assert cls.__dict__["run"] is original


def test_restore_deletes_what_was_inherited(recorder):
    """A hook on a subclass leaves no entry behind where there was none."""
    base = make_class()
    derived = type("Derived", (base,), {})
    hook = hooked(derived, "run", recorder)
    assert derived().run(1) == [1]
    assert base().run(1) == [1]
    assert len(recorder.calls) == 2
    assert hook.restore() is None
    assert "run" not in derived.__dict__


def test_nothing_is_called_after_restore(recorder):
    """A restored hook is out of the way."""
    cls = make_class()
    hooked(cls, "run", recorder).restore()
    cls().run(1)
    assert recorder.calls == []


def test_second_restore_changes_nothing(recorder):
    """Restoring twice is allowed and does not touch what came afterwards."""
    cls = make_class()
    hook = hooked(cls, "run", recorder)
    hook.restore()
    cls.run = replacement = lambda self: "theirs"
    assert hook.restore() is None
    assert cls.__dict__["run"] is replacement


def test_hook_can_be_installed_again(recorder):
    """A restored hook is as good as new."""
    cls = make_class()
    hook = hooked(cls, "run", recorder)
    hook.restore()
    hook.install()
    cls().run(1)
    assert len(recorder.calls) == 2
    assert hook.restore() is None


def test_patch_on_top_is_left_alone(recorder):
    """Somebody's later wrapper stays, our part goes silent, and the reason is given."""
    cls = make_class()
    hook = hooked(cls, "run", recorder)
    ours = cls.run

    def theirs(self, value):
        return ["theirs", *ours(self, value)]

    cls.run = theirs
    reason = hook.restore()
    assert "Machine.run was replaced by" in reason
    assert cls.__dict__["run"] is theirs
    assert cls().run(5) == ["theirs", 5]
    assert recorder.calls == []


def test_deleted_method_is_reported(recorder):
    """A method that was deleted under the hook is not brought back."""
    base = make_class()
    derived = type("Derived", (base,), {})
    hook = hooked(derived, "run", recorder)
    del derived.run
    assert "was deleted" in hook.restore()
    assert "run" not in derived.__dict__


def test_two_hooks_nest_and_restore_in_reverse():
    """Hooks of two instruments on one method both work and both go."""
    cls = make_class()
    original = cls.__dict__["run"]
    order = []
    hooks = [
        CallHook(
            cls,
            "run",
            lambda *_, name=name: order.append(f"{name} in"),
            lambda *_, name=name: order.append(f"{name} out"),
        )
        for name in ("first", "second")
    ]
    for hook in hooks:
        hook.install()
    assert cls().run(1) == [1]
    assert order == ["second in", "first in", "first out", "second out"]
    assert [hook.restore() for hook in reversed(hooks)] == [None, None]
    assert cls.__dict__["run"] is original


def test_restoring_out_of_order_leaves_the_upper_hook_working(recorder):
    """The lower hook goes silent and says so; the upper one still sees calls."""
    cls = make_class()
    lower = hooked(cls, "run", Recorder())
    hooked(cls, "run", recorder)
    assert "replaced" in lower.restore()
    assert cls().run(1) == [1]
    assert len(recorder.calls) == 2


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("static", "is a staticmethod, not a plain method"),
        ("limit", "is a int, not a plain method"),
        ("absent", "does not exist"),
    ],
)
def test_only_plain_methods_can_be_hooked(attribute, message):
    """What does not bind like a function is refused and left as it is."""
    cls = make_class()
    state = dict(cls.__dict__)
    with pytest.raises(AttachError, match=message):
        CallHook(cls, attribute).install()
    assert dict(cls.__dict__) == state


def test_installing_twice_is_refused(recorder):
    """One hook sits in one place."""
    cls = make_class()
    hook = hooked(cls, "run", recorder)
    with pytest.raises(AttachError, match=r"Machine\.run is hooked already"):
        hook.install()


def test_hook_without_callbacks_changes_nothing():
    """Both callbacks may be left out."""
    cls = make_class()
    CallHook(cls, "run").install()
    assert cls().run(3, scale=2) == [6]


def fail(*_):
    """Fail as a callback would."""
    raise ZeroDivisionError("in a callback")


def test_errors_in_callbacks_do_not_reach_the_program():
    """The call returns its result; the errors wait in the hook's list."""
    cls = make_class()
    hook = CallHook(cls, "run", fail, fail)
    hook.install()
    assert cls().run(1) == [1]
    assert hook.errors.messages() == (
        "before Machine.run: ZeroDivisionError: in a callback",
        "after Machine.run: ZeroDivisionError: in a callback",
    )


def test_error_in_after_keeps_the_programs_own_error():
    """A failing method still raises its own error when `after` fails as well."""
    cls = make_class()
    CallHook(cls, "run", None, fail).install()
    with pytest.raises(ValueError, match="negative: -1") as caught:
        cls().run(-1)
    assert caught.value.__context__ is None


def test_errors_of_several_hooks_can_share_a_list():
    """A list that was handed in collects from every hook that got it."""
    cls = make_class()
    errors = HookErrors()
    for attribute in ("run", "nested"):
        CallHook(cls, attribute, fail, errors=errors).install()
    cls().run(1)
    cls().nested(0)
    assert [message.split(":")[0] for message in errors.messages()] == [
        "before Machine.run",
        "before Machine.nested",
    ]


def test_list_of_errors_is_bounded():
    """Messages beyond the limit are counted, not kept."""
    errors = HookErrors()
    for number in range(MAX_HOOK_ERRORS + 3):
        errors.add("here", ValueError(str(number)))
    messages = errors.messages()
    assert len(messages) == MAX_HOOK_ERRORS + 1
    assert messages[0] == "here: ValueError: 0"
    assert messages[-1] == "and 3 more errors in hooks"


def test_list_of_errors_can_be_cleared():
    """A cleared list is as good as new."""
    errors = HookErrors(limit=1)
    errors.add("here", ValueError("one"))
    errors.add("here", ValueError("two"))
    errors.clear()
    assert errors.messages() == ()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_before_stops_the_call(kind):
    """An interrupt is the program's: the method does not run, `after` still does."""
    cls = make_class()
    ends = []

    def interrupt(*_):
        raise kind

    CallHook(cls, "run", interrupt, lambda *end: ends.append(end[2:])).install()
    with pytest.raises(kind):
        cls().run(1)
    assert [(type(outcome), failed) for outcome, failed in ends] == [(kind, True)]


@pytest.mark.parametrize("value", [1, -1])
def test_interrupt_in_after_reaches_the_program(value):
    """An interrupt takes the place of the result or of the error."""

    def interrupt(*_):
        raise KeyboardInterrupt

    cls = make_class()
    CallHook(cls, "run", None, interrupt).install()
    with pytest.raises(KeyboardInterrupt):
        cls().run(value)


def test_callbacks_without_stack_left_are_harmless():
    """Just below the recursion limit the callbacks fail, the hooked call does not.

    (Named arguments, because CPython 3.13.0 does not check the limit in functions that
    take ``*args``.)
    """
    cls = make_class()
    completed = []

    def deep(levels):
        return levels and deep(levels - 1)

    def before(args, kwargs):
        completed.append(deep(30))

    def after(args, kwargs, outcome, failed):
        completed.append(deep(30))

    def dive(machine):
        try:
            return dive(machine)
        except RecursionError:
            # As deep as the call itself just succeeds; one level up, otherwise.
            return machine.nested(0)

    CallHook(cls, "nested", before, after).install()
    assert dive(cls()) == 0
    assert completed == []


def test_hook_removed_during_a_call_lets_it_finish():
    """A call under way keeps its own references; it ends as it began."""
    cls = make_class()
    calls = []
    hook = CallHook(
        cls,
        "run",
        lambda *_: calls.append(hook.restore()),
        lambda *_: calls.append("after"),
    )
    hook.install()
    assert cls().run(1) == [1]
    assert calls == [None, "after"]


def churn(cls, count):
    """Make calls of every outcome."""
    machine = cls()
    for _ in range(count):
        machine.run(1, scale=2)
        with pytest.raises(ValueError, match="negative"):
            machine.run(-1)
        with pytest.raises(TypeError):
            machine.run()


def test_calls_balance_every_reference():
    """Thousands of calls leave the reference counts of all parties where they were."""
    cls = make_class()
    function = cls.__dict__["run"]

    def before(args, kwargs):
        pass

    def after(args, kwargs, outcome, failed):
        pass

    parties = (function, before, after, None, True, False, cls, ValueError)
    hook = CallHook(cls, "run", before, after)
    hook.install()
    churn(cls, 20)
    gc.collect()
    counts = [sys.getrefcount(party) for party in parties]
    churn(cls, 2000)
    gc.collect()
    growth = [
        sys.getrefcount(party) - count
        for party, count in zip(parties, counts, strict=True)
    ]
    hook.restore()
    assert max(map(abs, growth)) < 50


def test_results_and_exceptions_are_freed():
    """Neither a result nor an exception outlives the program's own references."""

    class Result:
        pass

    class Failure(Exception):
        pass

    class Maker:
        def make(self, fails):
            if fails:
                raise Failure
            return Result()

    CallHook(Maker, "make", lambda *_: None, lambda *_: None).install()
    result = weakref.ref(Maker().make(False))
    with pytest.raises(Failure) as caught:
        Maker().make(True)
    failure = weakref.ref(caught.value)
    del caught
    gc.collect()
    assert (result(), failure()) == (None, None)


def test_restored_hook_frees_its_callbacks():
    """Nothing in the class or the process keeps a restored hook's owner alive."""
    cls = make_class()
    recorder = Recorder()
    hook = hooked(cls, "run", recorder)
    cls().run(1)
    hook.restore()
    alive = weakref.ref(recorder)
    del recorder, hook
    gc.collect()
    assert alive() is None


def test_threads_can_call_while_the_hook_comes_and_goes():
    """No call is lost or altered in threads that do not know of the hook."""
    cls = make_class()
    wrong = []
    done = threading.Event()

    def work():
        machine = cls()
        for number in range(3000):
            if machine.run(number) != [number]:
                wrong.append(number)
        done.set()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    before_and_after = []
    hook = CallHook(
        cls,
        "run",
        lambda *_: before_and_after.append(1),
        lambda *_: before_and_after.append(-1),
    )
    while not done.is_set():
        hook.install()
        assert hook.restore() is None
    for thread in threads:
        thread.join()
    assert (wrong, sum(before_and_after)) == ([], 0)


# ------------------------------------------------------------- modules and being silent


def test_function_of_a_module_is_hooked_and_restored():
    """Whoever looks the function up in its module goes through the hook."""
    module = types.ModuleType("somewhere")
    exec(
        "def double(x):\n    return x * 2\ndef run(x):\n    return double(x)",
        vars(module),
    )
    original = module.double
    seen = []
    hook = CallHook(module, "double", lambda args, kwargs: seen.append(args))
    hook.install()
    assert module.run(3) == 6
    assert seen == [(3,)]
    assert hook.name == "somewhere.double"
    assert hook.restore() is None
    assert module.double is original


def test_muted_hooks_do_not_call_back_in_this_thread():
    """What runs within ``muted`` is not seen, but by hooks that never mute."""
    Machine, quiet, loud = make_class(), Recorder(), Recorder()
    hooks = (
        CallHook(Machine, "run", quiet.before),
        CallHook(Machine, "run", loud.before, mutes=False),
    )
    for hook in hooks:
        hook.install()
    with muted():
        assert Machine().run(1) == [1]
        thread = threading.Thread(target=Machine().run, args=(2,))
        thread.start()
        thread.join()
    Machine().run(3)
    for hook in reversed(hooks):
        assert hook.restore() is None
    assert len(quiet.calls) == 2
    assert len(loud.calls) == 3
