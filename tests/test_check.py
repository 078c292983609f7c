"""The books of a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    make_event,
    make_line_site,
    make_losses,
    make_node,
    make_overload,
    make_result,
    make_row,
    make_sampling,
    make_stack,
    make_thread,
)

from numbaprof.check import check, violations
from numbaprof.errors import InvariantError
from numbaprof.model import LineFacts


def nested_result(**changes):
    """Build a thread of 100 ns: 10 dispatch, 90 in a call, 30 of these in another."""
    outer = {"inclusive_ns": 90, "exclusive_ns": 55, "dispatch_ns": 10}
    inner = {"inclusive_ns": 30, "dispatch_ns": 5, "overload": 1}
    return make_result(
        make_overload("outer", mean_ns=90, exclusive_ns=55),
        make_overload("inner", mean_ns=30),
        contexts=(
            make_thread(inclusive_ns=100, exclusive_ns=0),
            make_node(parent=0, **(outer | changes)),
            make_node(parent=1, **inner),
        ),
    )


def test_sound_profile_passes():
    """Times that add up to the nanosecond are no violation."""
    check(nested_result())


@pytest.mark.parametrize("field", ["inclusive_ns", "exclusive_ns", "dispatch_ns"])
def test_one_nanosecond_too_many_is_found(field):
    """Books balance exactly or not at all."""
    sound = nested_result().contexts[1]
    with pytest.raises(InvariantError, match=r"contexts\[.\]: inclusive_ns"):
        check(nested_result(**{field: getattr(sound, field) + 1}))


def test_every_violation_is_listed():
    """One run of the check shows all there is to repair."""
    result = make_result(
        make_overload(errors=2),
        make_overload("other", min_ns=5, max_ns=4),
        contexts=(),
    )
    with pytest.raises(InvariantError) as caught:
        result.check()
    assert len(caught.value.violations) == 2
    assert all(line in str(caught.value) for line in caught.value.violations)


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (make_node(parent=1), "parent 1 is not before it"),
        (make_node(parent=-2), "parent -2 is not before it"),
        (make_node(parent=-1), "kind overload with parent -1"),
        (make_node(parent=0, process=1), "process 1 of 1"),
        (make_node(parent=0, overload=1), "overload 1 of 1"),
        (make_node(parent=0, overload=-1), "overload -1 of 1"),
        (make_node("compile", parent=0, overload=0), "kind compile names overload 0"),
        (make_node("python", python_row=2), "python_row 2 of 2"),
        (make_node("python"), "python_row -1 of 2"),
        (make_node("builtin", python_row=0), "python_rows[0] is no builtin"),
        (make_node("compile", python_row=0), "kind compile names python_row 0"),
    ],
)
def test_misplaced_node_is_found(node, problem):
    """An index that points to nothing is named, not followed."""
    rows = (make_row(), make_row("len", kind="builtin"))
    result = make_result(
        make_overload(), contexts=(make_thread(), node), python_rows=rows
    )
    assert problem in violations(result)[0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"calls": 2, "primitive_calls": 2}, "2 calls, 1 in its contexts"),
        ({"primitive_calls": 2}, "2 primitive calls of 1"),
        ({"exclusive_ns": 5, "inclusive_ns": 4}, "exclusive_ns 5 is not within"),
    ],
)
def test_wrong_row_is_found(changes, problem):
    """A row of the Python level says what its contexts say."""
    contexts = (make_thread(), make_node("python", python_row=0, calls=1))
    rows = (make_row(**changes),)
    (line,) = violations(make_result(contexts=contexts, python_rows=rows))
    assert problem in line


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (make_event(parent=1), "parent 1 is not before it"),
        (make_event(parent=0), "parent 0 is not before it"),
        (make_event(process=1), "process 1 of 1"),
    ],
)
def test_misplaced_event_is_found(event, problem):
    """Compile events are nested in events that exist."""
    (line,) = violations(make_result(events=(event,), contexts=()))
    assert problem in line


def test_thread_with_time_of_its_own_is_found():
    """A thread only holds what ran in it."""
    thread = make_thread(inclusive_ns=5, exclusive_ns=5)
    (line,) = violations(make_result(contexts=(thread,)))
    assert "a thread has time of its own" in line


def test_calls_that_are_in_no_context_are_found():
    """An overload's calls are those of its nodes."""
    result = nested_result()
    more = replace(result.overloads[1], calls=2, histogram=())
    (line,) = violations(replace(result, overloads=(result.overloads[0], more)))
    assert line.startswith("overloads[1]: 2 calls, 1 in its contexts")


def test_calls_whose_context_did_not_fit_are_excused():
    """A full tree loses contexts, not calls, and says how many."""
    result = nested_result()
    more = replace(result.overloads[1], calls=2, histogram=())
    result = replace(
        result,
        overloads=(result.overloads[0], more),
        losses=make_losses(truncated_contexts=1),
    )
    assert violations(result) == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"histogram": (0, 2)}, "1 calls, 2 in its histogram"),
        ({"exclusive_ns": 1001}, "exclusive_ns 1001 is not within inclusive_ns 1000"),
        ({"exclusive_ns": -1}, "exclusive_ns -1 is not within"),
        ({"min_ns": None}, "only one of min_ns and max_ns"),
        ({"calls": None, "histogram": ()}, "countable, but has no number of calls"),
        ({"countable": False}, "not countable without a reason"),
    ],
)
def test_contradiction_within_an_overload_is_found(changes, problem):
    """The figures of one overload agree with each other."""
    overload = replace(make_overload(), **changes)
    found = violations(make_result(overload, contexts=()))
    assert [problem in line for line in found] == [True]


def sampled_result(*stacks, **changes):
    """Build a profile with samples on one line."""
    fields = {
        "line_sites": (make_line_site(),),
        "stacks": stacks,
        "sampling": (make_sampling(*stacks),),
    }
    return make_result(**(fields | changes))


def test_sampled_profile_passes():
    """As many samples in the stacks as were taken, each on a line that is there."""
    check(sampled_result(make_stack(0, count=3), make_stack()))


@pytest.mark.parametrize(
    ("stack", "changes", "message"),
    [
        (make_stack(0), {"sampling": (make_sampling(taken=2),)}, "took 2 samples, 1"),
        (make_stack(0), {"sampling": ()}, "took 0 samples, 1"),
        (make_stack(0, count=0), {}, "0 samples"),
        (make_stack(0, bin="python"), {}, "bin python with 1 frames"),
        (make_stack(bin="line"), {}, "bin line with 0 frames"),
        (make_stack(1), {}, "line site 1 of 1"),
        (make_stack(0, process=1), {}, "process 1 of 1"),
        (make_stack(0), {"sampling": (make_sampling(process=2),)}, "process 2 of 1"),
        (make_stack(0), {"line_facts": (LineFacts(4),)}, "line site 4 of 1"),
    ],
)
def test_samples_that_do_not_add_up_are_found(stack, changes, message):
    """Every sample is counted in exactly one stack, of a process and line there is."""
    with pytest.raises(InvariantError, match=message):
        check(sampled_result(stack, **changes))
