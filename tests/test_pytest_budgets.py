from __future__ import annotations

from types import SimpleNamespace

import pytest
from builders import (
    array,
    make_dispatcher,
    make_environment,
    make_event,
    make_overload,
    make_process,
    make_result,
)

from numbaprof.errors import OptionError
from numbaprof.model import BackendInfo, Fingerprint
from numbaprof.pytest_budgets import Budgets, judge


def marks(*keywords, args=()):
    """Build markers, the closest first."""
    return [SimpleNamespace(args=args, kwargs=given) for given in keywords]


def code(packed=10, width=256):
    """Build the fingerprint of an overload."""
    return Fingerprint("abc", 100, packed, width)


DOUBLE = make_overload("dot", args=(array("float64", name="a"),))
SINGLE = make_overload("dot", args=(array("float32", name="a"),), index=1)


def broken(budgets, *overloads, **fields):
    """Return what is said of a profile, as one text."""
    return "\n".join(judge(make_result(*overloads, **fields), budgets))


# -- reading the marker ----------------------------------------------------------------


def test_closer_markers_override_farther_ones():
    """A test's own marker goes before that of its class."""
    budgets = Budgets.from_marks(
        marks({"max_overloads": 2}, {"max_overloads": 1, "no_compile": True})
    )
    assert (budgets.max_overloads, budgets.no_compile) == (2, True)


def test_unknown_budget_is_an_error_that_lists_the_known_ones():
    """A typing error is no budget that always holds."""
    with pytest.raises(OptionError) as caught:
        Budgets.from_marks(marks({"max_overload": 1}))
    assert "did you mean max_overloads?" in str(caught.value)
    assert "no_compile, max_compile_s" in str(caught.value)


def test_budgets_without_a_name_are_refused():
    """Markers take keywords only."""
    with pytest.raises(OptionError, match="budgets are keywords, 3 has none"):
        Budgets.from_marks(marks({}, args=(3,)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_overloads": -1}, "max_overloads=-1 must be a number"),
        ({"max_overloads": True}, "max_overloads=True must be a number"),
        ({"no_compile": 1}, "no_compile=1 must be True or False"),
        ({"vectorized": 3}, "vectorized=3 must be True, False or names"),
        ({"vectorized": ()}, "must be True, False or names"),
    ],
)
def test_values_that_cannot_be_are_refused(given, message):
    """The message has the name, the value and what it may be."""
    with pytest.raises(OptionError, match=message):
        Budgets(**given)


def test_a_warm_up_is_no_budget():
    """It says what the test is for, there is nothing to judge."""
    assert not Budgets(warmup=True).sets_any
    assert Budgets(max_overloads=0).sets_any


# -- judging ---------------------------------------------------------------------------


def test_overloads_over_the_budget_are_listed_with_their_reasons():
    """Each that was called from Python, and why it exists."""
    text = broken(Budgets(max_overloads=1), DOUBLE, SINGLE)
    assert text.startswith("max_overloads=1: 2 overloads called")
    assert "dot(float32[::1]): compiled again because of `a`: dtype" in text
    assert not broken(Budgets(max_overloads=2), DOUBLE, SINGLE)


def test_only_calls_count_as_overloads():
    """What was compiled before, or is called from compiled code, costs no budget."""
    helper = make_overload("square", calls=None)
    unused = make_overload("dot", args=SINGLE.args, calls=0)
    assert not broken(Budgets(max_overloads=1), DOUBLE, helper, unused)


def test_calls_that_were_not_counted_are_no_kept_budget():
    """Where calls cannot be counted the test fails with the reason."""
    blind = BackendInfo("dispatch", "none", "no engine here")
    environment = make_environment(backends=(blind,))
    processes = (make_process(environment=environment),)
    text = broken(Budgets(max_overloads=1), processes=processes)
    assert "calls were not counted: no engine here" in text


def test_compilations_are_named_with_time_and_reason():
    """Loads from the cache are not among them."""
    events = (
        make_event("dot", signature=SINGLE.signature, inclusive_ns=2_000_000),
        make_event("load", event="cache_load"),
    )
    text = broken(Budgets(no_compile=True), DOUBLE, SINGLE, events=events)
    assert text.splitlines() == [
        "no_compile: 1 compilation, 2.00 ms",
        "  dot(float32[::1]), 2.00 ms: compiled again because of `a`: dtype float64 to "
        "float32",
    ]
    assert not broken(Budgets(no_compile=True), events=events[1:])


def test_compile_time_includes_numbas_helpers():
    """The sum of exclusive times is held against the budget."""
    events = (
        make_event("dot", inclusive_ns=200_000_000, exclusive_ns=50_000_000),
        make_event("impl", inclusive_ns=150_000_000, internal=True, parent=0),
    )
    assert "max_compile_s=0.1: 1 compilation, 200 ms" in broken(
        Budgets(max_compile_s=0.1), events=events
    )
    assert not broken(Budgets(max_compile_s=0.2), events=events)


def test_a_failed_compilation_is_a_compilation():
    """With its error instead of a reason."""
    events = (make_event("dot", event="failed", error="TypingError: no"),)
    text = broken(Budgets(no_compile=True), events=events)
    assert "failed, TypingError: no" in text


def test_cache_misses_are_told_with_what_is_known_of_the_cause():
    """Only functions that have a cache can miss."""
    events = (make_event("dot"), make_event("plain"))
    info = make_dispatcher("dot", cache_enabled=True, cache_reason="it closes over f")
    text = broken(
        Budgets(no_cache_miss=True), DOUBLE, events=events, dispatchers=(info,)
    )
    assert "1 overload with cache=True compiled" in text
    assert "it closes over f" in text


def test_object_mode_is_named():
    """An overload in object mode is over the budget when it is called."""
    slow = make_overload("slow", kind="object mode")
    assert "1 overload in object mode\n  slow(int64)" in broken(
        Budgets(no_object_mode=True), slow
    )
    unused = make_overload("slow", kind="object mode", calls=0)
    assert not broken(Budgets(no_object_mode=True), unused)


@pytest.mark.parametrize(
    ("budgets", "fields", "message"),
    [
        (Budgets(vectorized=True), {"fingerprint": code()}, ""),
        (
            Budgets(vectorized=True),
            {"fingerprint": code(packed=0, width=0)},
            "dot(float64[::1]) has no packed floating-point instruction",
        ),
        (Budgets(min_vector_bits=256), {"fingerprint": code()}, ""),
        (
            Budgets(min_vector_bits=256),
            {"fingerprint": code(width=128)},
            "has packed instructions of 128 bits only",
        ),
        (
            Budgets(vectorized=True),
            {"fingerprint_reason": "no disassembler"},
            "cannot be judged: no disassembler",
        ),
        (Budgets(vectorized="other"), {}, "none of these functions was called"),
    ],
)
def test_vectorization_is_read_from_the_machine_code(budgets, fields, message):
    """What is not known is no kept budget."""
    text = broken(budgets, make_overload("dot", args=DOUBLE.args, **fields))
    assert message in text
    assert bool(text) == bool(message)


def test_vectorization_can_be_asked_of_some_functions_only():
    """By name or pattern; the scalar helper may stay."""
    dot = make_overload("dot", fingerprint=code())
    scan = make_overload("scan", fingerprint=code(packed=0))
    assert not broken(Budgets(vectorized="dot"), dot, scan)
    assert "scan(int64) has no packed" in broken(Budgets(vectorized=["s*"]), dot, scan)
