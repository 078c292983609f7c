from __future__ import annotations

import pytest
from builders import (
    histogram_of,
    make_dispatcher,
    make_event,
    make_function,
    make_node,
    make_overload,
    make_process,
    make_result,
    make_site,
    make_thread,
)
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.errors import OptionError
from numbaprof.summary import (
    display_names,
    never_called,
    payback_calls,
    percentile,
    summarize,
)


def parts_of(summary):
    """Add up the six parts of the wall time."""
    return (
        summary.compile_ns
        + summary.cache_load_ns
        + summary.dispatch_ns
        + summary.kernel_ns
        + summary.failed_dispatch_ns
        + summary.rest_ns
    )


def test_wall_time_is_the_sum_of_its_parts():
    """Each kind of node goes to its part, and the rest is what is left."""
    result = make_result(
        make_overload(),
        wall_ns=1000,
        contexts=(
            make_thread(inclusive_ns=100, exclusive_ns=0),
            make_node("overload", inclusive_ns=60, exclusive_ns=40, dispatch_ns=3),
            make_node("compile", parent=1, inclusive_ns=20, exclusive_ns=15),
            make_node("cache_load", parent=2, inclusive_ns=5),
            make_node("failed dispatch", inclusive_ns=7),
        ),
    )
    summary = summarize(result)
    assert (
        summary.kernel_ns,
        summary.dispatch_ns,
        summary.compile_ns,
        summary.cache_load_ns,
        summary.failed_dispatch_ns,
        summary.rest_ns,
    ) == (40, 3, 15, 5, 7, 930)


kinds = st.sampled_from(["overload", "compile", "cache_load", "failed dispatch"])
trees = st.lists(
    st.tuples(
        kinds,
        st.integers(0, 10**6),
        st.integers(0, 10**9),
        st.integers(0, 10**6),
        st.sampled_from(["MainThread", "worker"]),
    )
)


@given(nodes=trees, wall_ns=st.integers(0, 10**15))
def test_parts_add_up_for_any_tree(nodes, wall_ns):
    """Not a nanosecond is lost or counted twice, whatever the tree looks like."""
    contexts = [make_thread("MainThread"), make_thread("worker")]
    places = {"MainThread": [0], "worker": [1]}
    for kind, choice, exclusive_ns, dispatch_ns, thread in nodes:
        above = places[thread]
        contexts.append(
            make_node(
                kind,
                parent=above[choice % len(above)],
                exclusive_ns=exclusive_ns,
                dispatch_ns=dispatch_ns if kind == "overload" else 0,
            )
        )
        above.append(len(contexts) - 1)
    result = make_result(make_overload(), wall_ns=wall_ns, contexts=tuple(contexts))
    summary = summarize(result)
    everything = sum(node.exclusive_ns + node.dispatch_ns for node in contexts[2:])
    main_ns = summary.wall_ns - summary.rest_ns
    assert parts_of(summary) == wall_ns
    assert main_ns + summary.others.measured_ns == everything


def test_objmode_block_is_python_not_kernel():
    """The time of an objmode body belongs to the rest."""
    result = make_result(
        make_overload(),
        make_overload(make_function("block"), kind="objmode body"),
        wall_ns=100,
        contexts=(
            make_thread(),
            make_node(overload=0, inclusive_ns=50, exclusive_ns=20),
            make_node(overload=1, parent=1, inclusive_ns=30),
        ),
    )
    summary = summarize(result)
    assert (summary.kernel_ns, summary.objmode_ns, summary.rest_ns) == (20, 30, 80)


def test_unfinished_and_unplaced_time_has_a_part():
    """What was dispatching at the end, or ran without a context, is not Python."""
    result = make_result(
        wall_ns=100,
        contexts=(
            make_thread(),
            make_node("dispatching", inclusive_ns=1),
            make_node("unattached", inclusive_ns=20, dispatch_ns=3),
            make_node("truncated", inclusive_ns=40),
        ),
    )
    summary = summarize(result)
    assert (summary.dispatch_ns, summary.kernel_ns, summary.rest_ns) == (4, 60, 36)


def test_every_kind_of_context_is_accounted_for():
    """A new kind of node must not fall into the rest unnoticed."""
    from typing import get_args

    from numbaprof.model import ContextKind

    python = {"python", "builtin"}
    for kind in set(get_args(ContextKind)) - {"thread", "overload", *python}:
        contexts = (make_thread(), make_node(kind, inclusive_ns=7))
        summary = summarize(make_result(wall_ns=10, contexts=contexts))
        assert summary.rest_ns == 3, kind
    for kind in python:
        contexts = (make_thread(), make_node(kind, inclusive_ns=7))
        summary = summarize(make_result(wall_ns=10, contexts=contexts))
        assert (summary.rest_ns, summary.python_ns + summary.builtin_ns) == (10, 7)


def test_other_threads_do_not_shorten_the_rest():
    """Work in another thread happens beside the main thread's wall time."""
    result = make_result(
        make_overload(),
        wall_ns=100,
        contexts=(
            make_thread(),
            make_thread("worker"),
            make_node(parent=1, inclusive_ns=70, dispatch_ns=2),
        ),
    )
    summary = summarize(result)
    assert (summary.rest_ns, summary.other_threads) == (100, 1)
    assert (summary.others.kernel_ns, summary.others.dispatch_ns) == (70, 2)


def test_processes_are_added():
    """Each process has a main thread of its own."""
    result = make_result(
        make_overload(),
        processes=(make_process(100), make_process(50, pid=2, label="fork")),
        contexts=(
            make_thread(),
            make_thread(process=1),
            make_node(parent=0, inclusive_ns=10),
            make_node(parent=1, inclusive_ns=20, process=1),
        ),
    )
    summary = summarize(result)
    assert (summary.wall_ns, summary.kernel_ns, summary.rest_ns) == (150, 30, 120)


def test_overload_without_context_is_named():
    """Ufunc loops have no place in the tree; their time is not hidden."""
    result = make_result(
        make_overload(kind="ufunc loop", calls=2, mean_ns=50), contexts=(make_thread(),)
    )
    assert summarize(result).unplaced_ns == 100


def test_compile_totals_tell_import_cache_and_failure_apart():
    """Exclusive times are added, by outcome and by time."""
    result = make_result(
        events=(
            make_event("a", inclusive_ns=100, exclusive_ns=60, at_import=True),
            make_event("b", inclusive_ns=40, parent=0, at_import=True, internal=True),
            make_event("c", inclusive_ns=7, event="cache_load"),
            make_event("d", inclusive_ns=5, event="failed"),
        )
    )
    totals = summarize(result).compiles
    assert (totals.compilations, totals.cache_loads, totals.failures) == (2, 1, 1)
    assert (totals.compile_ns, totals.cache_load_ns, totals.failed_ns) == (105, 7, 5)
    assert (totals.import_ns, totals.internal_ns, totals.total_ns) == (100, 40, 112)


def test_failures_inside_numba_are_no_failed_attempts_of_the_user():
    """Numba tries its implementations in turn; the time is compile time nonetheless."""
    result = make_result(
        events=(
            make_event("a", inclusive_ns=100, exclusive_ns=95),
            make_event("b", inclusive_ns=5, parent=0, event="failed", internal=True),
        )
    )
    totals = summarize(result).compiles
    assert (totals.compilations, totals.failures, totals.failed_ns) == (1, 0, 0)
    assert (totals.compile_ns, totals.internal_ns) == (100, 5)
    assert totals.internal_compilations == 0


def test_sites_are_grouped_by_importing_module_and_by_line():
    """Import time goes to the imported module, the rest to the caller's."""
    line = make_site(7)
    result = make_result(
        events=(
            make_event("a", inclusive_ns=10, at_import=True, import_module="lib"),
            make_event("b", inclusive_ns=20, trigger=line),
            make_event("c", inclusive_ns=5, trigger=line),
            make_event("d", inclusive_ns=1, trigger=None),
        )
    )
    summary = summarize(result)
    assert [(total.module, total.total_ns) for total in summary.by_module] == [
        ("__main__", 25),
        ("lib", 10),
        ("", 1),
    ]
    assert (summary.by_site[0].site, summary.by_site[0].events) == (line, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"calls": 1},
        {"calls": None},
        {"created_in_session": False},
        {"compile_ns": None},
        {"internal": True},
        {"kind": "objmode body"},
        {"kind": "cfunc"},
        {"in_flight": 1},
        {"not_countable_reason": "some calls are made by compiled code"},
    ],
)
def test_overload_that_may_have_run_is_not_never_called(changes):
    """Only what surely had no call from Python and cost something is listed."""
    overload = make_overload(**({"calls": 0} | changes))
    assert never_called(make_result(overload)) == ()


def test_never_called_overload_is_found():
    """An overload that was made in the profile and has no call is listed."""
    assert never_called(make_result(make_overload(), make_overload(calls=0))) == (1,)


def test_overload_compiled_for_another_is_not_never_called():
    """A callee is called from compiled code, whatever Python did."""
    result = make_result(
        make_overload("outer"),
        make_overload("inner", calls=0),
        events=(make_event("outer"), make_event("inner", parent=0)),
    )
    assert never_called(result) == ()


def test_inlined_function_is_not_never_called():
    """With ``inline="always"`` the code runs inside its callers."""
    result = make_result(
        make_overload("helper", calls=0),
        dispatchers=(make_dispatcher("helper", inline=True),),
    )
    assert never_called(result) == ()


def test_payback_is_compile_time_over_mean_rounded_up():
    """1001 ns of compiling at 100 ns per call take eleven calls."""
    assert payback_calls(make_overload(calls=3, mean_ns=100, compile_ns=1001)) == 11


@pytest.mark.parametrize(
    "changes",
    [
        {"calls": 0},
        {"calls": None},
        {"compile_ns": None},
        {"mean_ns": 0},
        {"kind": "generator"},
        {"kind": "objmode body"},
    ],
)
def test_payback_is_unknown_without_a_rate(changes):
    """Without calls, time or compilation there is nothing to divide."""
    assert payback_calls(make_overload(**changes)) is None


@given(
    durations=st.lists(st.integers(0, 2**40), min_size=1),
    q=st.floats(0, 1, allow_nan=False),
)
def test_percentile_is_within_a_factor_of_two(durations, q):
    """The estimate and the true nearest-rank percentile are in one bucket."""
    import math

    true_ns = sorted(durations)[max(1, math.ceil(q * len(durations))) - 1]
    estimate = percentile(
        histogram_of(*durations), q, min_ns=min(durations), max_ns=max(durations)
    )
    assert true_ns / 2 <= estimate <= 2 * true_ns
    assert min(durations) <= estimate <= max(durations)


def test_percentile_of_nothing_is_unknown():
    """An empty histogram has no percentile."""
    assert percentile((), 0.5, min_ns=0, max_ns=0) is None


@pytest.mark.parametrize("q", [-0.1, 1.1, 50])
def test_percentile_refuses_shares_outside_zero_and_one(q):
    """50 is a likely mistake for 0.5."""
    with pytest.raises(OptionError, match="between 0 and 1"):
        percentile((1,), q, min_ns=0, max_ns=1)


def test_display_names_are_unique_only_where_needed():
    """Different identities that share a qualname are numbered, others are not."""
    first, second = make_function("f"), make_function("f", line=99)
    other = make_function("g")
    result = make_result(
        make_overload(first),
        make_overload(first),
        make_overload(other),
        make_overload(second),
    )
    assert display_names(result) == {first: "f", other: "g", second: "f#2"}


def test_display_names_cover_functions_without_overloads():
    """Functions known only from a dispatcher or an event have names as well."""
    result = make_result(
        dispatchers=(make_dispatcher("inlined"),), events=(make_event("failed"),)
    )
    assert sorted(display_names(result).values()) == ["failed", "inlined"]
