"""Adding profiles."""

from __future__ import annotations

import itertools
import types
from dataclasses import fields, is_dataclass, replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from builders import (
    histogram_of,
    make_boxing,
    make_dispatcher,
    make_event,
    make_function,
    make_losses,
    make_node,
    make_overload,
    make_process,
    make_result,
    make_row,
    make_thread,
    scalar,
)
from hypothesis import given
from hypothesis import strategies as st

from numbaprof import merging
from numbaprof.errors import MergeError
from numbaprof.merging import OTHER_CODE, merge
from numbaprof.model import (
    ArgType,
    CompileEvent,
    ContextNode,
    DispatcherInfo,
    Fingerprint,
    Losses,
    OverloadStats,
    ProfileResult,
    PythonRow,
    ThreadSplit,
)

FUNCTIONS = [
    make_function("kernel"),
    make_function("kernel", instance=1),
    make_function("helper", line=30),
]
REASONS = st.sampled_from(["", "inlined", "called from compiled code", "a; b"])


@st.composite
def overloads(draw):
    """Draw an overload whose own figures agree."""
    calls = draw(st.none() | st.integers(0, 5))
    overload = make_overload(
        draw(st.sampled_from(FUNCTIONS)),
        calls=calls,
        mean_ns=draw(st.integers(0, 2**40)),
        args=(scalar(draw(st.sampled_from(["int64", "float64"]))),),
        kind=draw(st.sampled_from(["function", "lifted loop"])),
        origin=draw(st.sampled_from(merging.ORIGINS_BY_COST)),
        compile_ns=draw(st.none() | st.integers(0, 10**9)),
        compile_reason=draw(REASONS),
        elements=draw(st.none() | st.integers(0, 9)),
        boxing=draw(st.none() | st.builds(make_boxing, st.integers(1, 3))),
        threads=tuple(
            ThreadSplit(n_threads=n, calls=1, inclusive_ns=n, cpu_ns=2 * n)
            for n in draw(st.lists(st.integers(1, 3), unique=True))
        ),
    )
    if calls is not None:
        overload = replace(overload, not_countable_reason=draw(REASONS))
        if draw(st.booleans()):
            overload = replace(overload, histogram=())
    return overload


@st.composite
def results(draw):
    """Draw a profile; every one is of another process."""
    functions = st.sampled_from(FUNCTIONS)
    pid = draw(st.uuids()).int
    return make_result(
        *draw(st.lists(overloads(), max_size=5)),
        events=tuple(
            make_event(function, parent=index - 1)
            for index, function in enumerate(draw(st.lists(functions, max_size=3)))
        ),
        dispatchers=tuple(
            make_dispatcher(function, cache_hits=1, cache_reason=draw(REASONS))
            for function in draw(st.lists(functions, max_size=3))
        ),
        processes=(make_process(pid=pid),),
        losses=make_losses(
            in_flight_calls=draw(st.integers(0, 3)),
            unattached=tuple(
                draw(st.lists(st.tuples(REASONS, st.integers(1, 3)), max_size=3))
            ),
            hook_errors=tuple(draw(st.lists(st.text(max_size=3), max_size=2))),
        ),
    )


@given(results(), results(), results())
def test_merging_is_associative(a, b, c):
    """How profiles are grouped does not change the sum."""
    together = merge([a, b, c])
    assert merge([merge([a, b]), c]) == together
    assert merge([a, merge([b, c])]) == together


@given(results())
def test_merging_one_profile_gives_that_profile(result):
    """A sum of one is that one."""
    assert merge([result]) is result


@given(st.lists(results(), min_size=1, max_size=4))
def test_totals_of_a_merged_profile_are_sums(parts):
    """No call and no nanosecond appears or disappears."""

    def totals(profile):
        return [
            sum(getattr(overload, field) or 0 for overload in profile.overloads)
            for field in (
                "calls",
                "errors",
                "inclusive_ns",
                "exclusive_ns",
                "dispatch_ns",
                "compile_ns",
                "elements",
            )
        ] + [
            profile.wall_ns,
            len(profile.compile_events),
            sum(node.inclusive_ns for node in profile.contexts if node.parent == -1),
            sum(info.cache_hits for info in profile.dispatchers),
            profile.losses.in_flight_calls,
            sum(number for _, number in profile.losses.unattached),
            len(profile.losses.hook_errors),
        ]

    expected = [sum(column) for column in zip(*map(totals, parts), strict=True)]
    assert totals(merge(parts)) == expected


@given(st.lists(results(), min_size=1, max_size=4))
def test_books_of_a_merged_profile_balance(parts):
    """What holds for every profile holds for a sum of profiles."""
    merge(parts).check()


@given(st.lists(results(), min_size=1, max_size=4))
def test_every_context_keeps_its_overload_and_its_process(parts):
    """Indices are renumbered so that each node tells the same as before."""

    def facts(profile):
        return [
            (
                node.calls,
                profile.processes[node.process],
                None
                if node.overload < 0
                else merging.overload_keys(profile)[node.overload],
            )
            for node in profile.contexts
        ]

    assert facts(merge(parts)) == [fact for part in parts for fact in facts(part)]


def fill(hint, default=None):
    """Return a value for a type hint that is no default of any field."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        return fill(args[0])
    if origin is Literal:
        return next(choice for choice in args if choice != default)
    if origin is tuple:
        return tuple(fill(arg) for arg in args if arg is not Ellipsis)
    if hint is ArgType:  # Holds ArgTypes.
        return scalar()
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{f.name: fill(hints[f.name], f.default) for f in fields(hint)})
    return {str: "text", bool: default is not True, int: 3, float: 3.0}[hint]


@pytest.mark.parametrize(
    ("cls", "container"),
    [
        (OverloadStats, "overloads"),
        (DispatcherInfo, "dispatchers"),
        (CompileEvent, "compile_events"),
        (ContextNode, "contexts"),
        (Losses, "losses"),
        (PythonRow, "python_rows"),
    ],
)
def test_no_field_is_forgotten(cls, container):
    """A field that the model gets later must be added here too, not lost."""
    item = fill(cls)
    if cls is ContextNode:
        item = replace(item, overload=0, python_row=0)
    content = {"overloads": (make_overload(),), "python_rows": (make_row(),)}
    content[container] = item if cls is Losses else (item,)
    merged = getattr(
        merge(ProfileResult((process,), **content) for process in two_processes()),
        container,
    )
    found = merged if cls is Losses else merged[-1]
    # What explains an absent figure is gone when another process has the figure.
    settled = {"compile_reason", "boxing_reason", "fingerprint_reason"}
    lost = {f.name for f in fields(cls) if getattr(found, f.name) == f.default}
    assert lost <= settled


CODE = Fingerprint("sha256:1", 10, 2, 256)
UNCOUNTED = Fingerprint("sha256:1", reason="no Capstone")
OTHER = Fingerprint("sha256:2", 11, 2, 256)


@pytest.mark.parametrize(
    ("prints", "expected"),
    [
        ([CODE, CODE], (CODE, "")),
        ([None, CODE], (CODE, "")),
        ([UNCOUNTED, CODE], (CODE, "")),
        ([CODE, OTHER], (None, OTHER_CODE)),
        ([CODE, OTHER, CODE], (None, OTHER_CODE)),
        ([None, None], (None, "not asked for")),
    ],
)
def test_fingerprints_of_different_code_are_not_merged(prints, expected):
    """One row cannot have two codes, in whatever order profiles come."""
    for order in itertools.permutations(prints):
        profiles = [
            ProfileResult(
                (replace(two_processes()[0], pid=number),),
                overloads=(
                    make_overload(
                        fingerprint=one,
                        fingerprint_reason="" if one else "not asked for",
                    ),
                ),
            )
            for number, one in enumerate(order)
        ]
        (found,) = merge(profiles).overloads
        assert (found.fingerprint, found.fingerprint_reason) == expected


def test_rows_of_the_python_level_are_added_by_identity():
    """Equal rows become one, and the contexts follow."""
    rows = [
        (make_row("f", calls=2, inclusive_ns=9, exclusive_ns=4, overflow="3 calls"),),
        (make_row("g"), make_row("f", calls=3, primitive_calls=1, inclusive_ns=1)),
    ]
    first, second = two_processes()
    merged = merge(
        [
            ProfileResult((first,), python_rows=rows[0], contexts=python_contexts(0)),
            ProfileResult((second,), python_rows=rows[1], contexts=python_contexts(1)),
        ]
    )
    assert [row.name for row in merged.python_rows] == ["f", "g"]
    total = merged.python_rows[0]
    assert (total.calls, total.primitive_calls, total.overflow) == (5, 3, "3 calls")
    assert (total.inclusive_ns, total.exclusive_ns) == (10, 4)
    assert [node.python_row for node in merged.contexts] == [-1, 0, -1, 0]


def python_contexts(row):
    """Return a thread with one call of a row."""
    return (make_thread(), make_node("python", python_row=row))


def test_lambdas_on_one_line_stay_apart():
    """Rows that agree in everything are matched by their order."""
    twins = (make_row("<lambda>", calls=1), make_row("<lambda>", calls=2))
    first, second = two_processes()
    merged = merge([ProfileResult((p,), python_rows=twins) for p in (first, second)])
    assert [row.calls for row in merged.python_rows] == [2, 4]


def two_processes():
    """Return two processes that are not the same."""
    return make_process(pid=1), make_process(pid=2)


def merge_overloads(*parts):
    """Return the overloads of a sum of profiles with one overload each."""
    return merge(
        make_result(part, processes=(make_process(pid=pid),))
        for pid, part in enumerate(parts)
    ).overloads


def test_same_function_and_signature_become_one_overload():
    """Calls of one overload in two processes are added."""
    (overload,) = merge_overloads(make_overload(calls=2), make_overload(calls=3))
    assert overload.calls == 5


@pytest.mark.parametrize(
    "other",
    [
        make_overload(make_function(instance=1)),
        make_overload(args=(scalar("float64"),)),
        make_overload(kind="lifted loop"),
    ],
    ids=["identity", "signature", "kind"],
)
def test_different_overloads_stay_apart(other):
    """A name alone is no identity."""
    assert len(merge_overloads(make_overload(), other)) == 2


def test_overloads_with_one_label_stay_apart_within_a_profile():
    """Two signatures that read alike are matched by their order."""
    a, b = (
        make_result(
            make_overload(calls=1), make_overload(calls=2), processes=(process,)
        )
        for process in two_processes()
    )
    assert [overload.calls for overload in merge([a, b]).overloads] == [2, 4]


def test_extremes_ignore_a_process_without_calls():
    """A minimum of nothing is not zero."""
    (overload,) = merge_overloads(
        make_overload(calls=0), make_overload(mean_ns=7), make_overload(mean_ns=5)
    )
    assert (overload.min_ns, overload.max_ns) == (5, 7)


def test_histograms_are_added_bucket_by_bucket():
    """Percentiles of a sum come from all calls."""
    (overload,) = merge_overloads(make_overload(mean_ns=3), make_overload(mean_ns=900))
    assert overload.histogram == histogram_of(3, 900)


def test_sum_has_no_histogram_when_a_part_with_calls_has_none():
    """A histogram of some of the calls would give wrong percentiles."""
    (overload,) = merge_overloads(make_overload(), make_overload(histogram=()))
    assert overload.histogram == ()


def test_histograms_with_different_buckets_are_refused():
    """Buckets that mean different things are not added."""
    with pytest.raises(MergeError, match="1 and 64 buckets"):
        merge_overloads(make_overload(histogram=(1,)), make_overload())


def test_not_countable_overload_keeps_its_reason_beside_counted_calls():
    """One process that cannot see calls makes the sum incomplete."""
    (overload,) = merge_overloads(make_overload(calls=None), make_overload(calls=3))
    assert overload.calls == 3
    assert not overload.countable
    assert overload.not_countable_reason == "called from compiled code only"


def test_overload_that_nobody_could_count_is_not_zero():
    """Not countable plus not countable is not countable."""
    (overload,) = merge_overloads(make_overload(calls=None), make_overload(calls=None))
    assert overload.calls is None


def test_compile_time_of_the_parent_stands_for_forked_children():
    """Code that was inherited cost nothing there and lacks nothing."""
    child = make_overload(
        compile_ns=None, compile_reason="compiled before the session", origin="none"
    )
    (overload,) = merge_overloads(make_overload(compile_ns=70), child)
    assert (overload.compile_ns, overload.compile_reason) == (70, "")
    assert overload.origin == "compiled"


def test_reasons_are_kept_once_each():
    """The same reason from many workers is said once."""
    (overload,) = merge_overloads(
        make_overload(dispatch_ns=None, dispatch_reason="no hook"),
        make_overload(dispatch_ns=None, dispatch_reason="ufunc"),
        make_overload(dispatch_ns=None, dispatch_reason="no hook"),
    )
    assert overload.dispatch_reason == "no hook; ufunc"


def test_thread_splits_are_added_by_thread_count():
    """Calls with the same number of threads are one row."""
    one = ThreadSplit(n_threads=1, calls=1, inclusive_ns=5, cpu_ns=5)
    two = ThreadSplit(n_threads=2, calls=2, inclusive_ns=6, cpu_ns=11)
    (overload,) = merge_overloads(
        make_overload(threads=(one, two)), make_overload(threads=(two,))
    )
    assert overload.threads == (
        one,
        ThreadSplit(n_threads=2, calls=4, inclusive_ns=12, cpu_ns=22),
    )


def test_event_parents_and_processes_are_renumbered():
    """A nested compilation stays nested in its own process's event."""
    a, b = (
        make_result(events=(make_event(), make_event(parent=0)), processes=(process,))
        for process in two_processes()
    )
    events = merge([a, b]).compile_events
    assert [event.parent for event in events] == [-1, 0, -1, 2]
    assert [event.process for event in events] == [0, 0, 1, 1]


def test_context_parents_are_renumbered():
    """Each process keeps a tree of its own."""
    contexts = (make_thread(inclusive_ns=4), make_node(inclusive_ns=4))
    a, b = (
        make_result(make_overload(), contexts=contexts, processes=(process,))
        for process in two_processes()
    )
    assert [node.parent for node in merge([a, b]).contexts] == [-1, 0, -1, 2]


def test_functions_are_merged_with_their_cache_figures():
    """Hits and misses of all processes are added, options are kept."""
    a, b = (
        make_result(
            processes=(process,),
            dispatchers=(make_dispatcher(n_overloads=hits, cache_hits=hits),),
        )
        for hits, process in enumerate(two_processes(), start=1)
    )
    (info,) = merge([a, b]).dispatchers
    assert (info.cache_hits, info.n_overloads) == (3, 2)


def test_merging_nothing_is_refused():
    """There is no empty profile to return."""
    with pytest.raises(MergeError, match="at least one"):
        merge([])


def test_merging_a_file_name_is_refused_with_the_next_step():
    """A path is not a profile."""
    with pytest.raises(MergeError, match=r"item 1 is a str.*numbaprof\.load"):
        merge([make_result(), "profile.json"])


def test_merging_a_process_with_itself_is_refused():
    """The same file twice would count every call double."""
    with pytest.raises(MergeError, match=r"process 100.*count double"):
        merge([make_result(make_overload()), make_result(make_overload())])
