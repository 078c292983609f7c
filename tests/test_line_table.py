"""From sampled stacks to source lines."""

from __future__ import annotations

from collections import Counter

import pytest
from builders import (
    MILLISECOND,
    make_function,
    make_line_site,
    make_process,
    make_result,
    make_sampling,
    make_stack,
)
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.line_table import OWN_CODE, account_samples, build_line_tables
from numbaprof.model import LineFacts

HELPER = make_function("helper", line=30)
NUMBA = make_function("array_sum_impl", file="numba/np/arraymath.py")
KERNEL_LINE = make_line_site(12)
OTHER_LINE = make_line_site(13)
HELPER_LINE = make_line_site(31, function=HELPER, inlined=True)
NUMBA_LINE = make_line_site(170, function=NUMBA, internal=True)
SITES = (KERNEL_LINE, OTHER_LINE, HELPER_LINE, NUMBA_LINE)
KERNEL, OTHER, IN_HELPER, IN_NUMBA = range(4)


def sampled(*stacks, **changes):
    """Build a profile of one process with these stacks."""
    fields = {
        "line_sites": SITES,
        "stacks": stacks,
        "sampling": (make_sampling(*stacks),),
    }
    return make_result(**(fields | changes))


def table_of(result, qualname="kernel", **options):
    """Return the one table of a function."""
    tables = build_line_tables(result, **options)
    (found,) = [t for t in tables if t.function.qualname == qualname]
    return found


def row_of(result, line, qualname="kernel", **options):
    """Return the row of a line."""
    table = table_of(result, qualname, **options)
    (found,) = [row for row in table.rows if row.line == line]
    return found


def test_time_of_a_line_is_its_samples_times_the_interval():
    """Each sample stands for the achieved interval, not for the one asked for."""
    stack = make_stack(KERNEL, count=30)
    result = sampled(stack, sampling=(make_sampling(stack, achieved_ns=5_000_000),))
    assert row_of(result, 12).time_ns == 150 * MILLISECOND


def test_line_includes_what_it_calls_and_keeps_its_own_apart():
    """As in line_profiler; the helper has a table of its own."""
    result = sampled(
        make_stack(KERNEL, count=10), make_stack(KERNEL, IN_HELPER, count=30)
    )
    row = row_of(result, 12)
    assert (row.samples, row.self_samples) == (40, 10)
    assert row.callees == (("helper", 30), (OWN_CODE, 10))
    assert row_of(result, 31, "helper").self_samples == 30


def test_native_callee_is_charged_to_the_line_and_named():
    """Time in libm is the line's, and says so."""
    result = sampled(make_stack(KERNEL, count=7, callee="sin (libm)"))
    row = row_of(result, 12)
    assert (row.self_samples, row.callees) == (7, (("sin (libm)", 7),))


def test_frames_of_numba_collapse_into_the_line_that_called_them():
    """Nobody's program has a line in arraymath.py."""
    result = sampled(make_stack(KERNEL, IN_NUMBA, count=5))
    assert [t.function for t in build_line_tables(result)] == [KERNEL_LINE.function]
    row = row_of(result, 12)
    assert (row.self_samples, row.callees) == (5, (("array_sum_impl", 5),))


def test_frames_of_numba_can_be_shown():
    """Expanded, the innermost line is Numba's."""
    result = sampled(make_stack(KERNEL, IN_NUMBA, count=5))
    assert row_of(result, 12, internal=True).self_samples == 0
    assert row_of(result, 170, "array_sum_impl", internal=True).self_samples == 5


def test_recursion_counts_a_sample_once():
    """A share above 100 % would be no share."""
    result = sampled(make_stack(KERNEL, KERNEL, OTHER, count=4))
    assert row_of(result, 12).samples == 4
    assert row_of(result, 12).share == 1.0
    assert table_of(result).samples == 4


def test_share_is_of_the_function_and_interval_of_everything():
    """The share reads as in line_profiler; what is uncertain is the absolute time."""
    result = sampled(
        make_stack(KERNEL, count=30), make_stack(OTHER, count=10), make_stack(count=60)
    )
    row = row_of(result, 12)
    assert row.share == 0.75
    assert row.low_ns < row.time_ns < row.high_ns
    # Wilson's interval of 30 in 100, times 400 ms.
    assert row.low_ns == pytest.approx(0.2189 * 400 * MILLISECOND, rel=1e-3)
    assert row.high_ns == pytest.approx(0.3958 * 400 * MILLISECOND, rel=1e-3)


def test_line_with_hits_but_no_sample_is_in_the_table():
    """A line that takes no time was run all the same."""
    facts = (LineFacts(OTHER, hits=8, source="y = 1"), LineFacts(KERNEL, source="def"))
    result = sampled(make_stack(KERNEL), line_facts=facts)
    row = row_of(result, 13)
    assert (row.samples, row.hits, row.source) == (0, 8, "y = 1")
    assert row_of(result, 12).source == "def"


def test_function_without_samples_is_shown_for_its_hits():
    """Too quick to be sampled is no reason to lose exact figures."""
    result = sampled(line_facts=(LineFacts(IN_HELPER, hits=3),))
    assert table_of(result, "helper").samples == 0


def test_function_without_samples_and_hits_is_not_shown():
    """Source text alone is no measurement."""
    result = sampled(line_facts=(LineFacts(IN_HELPER, source="return x"),))
    assert build_line_tables(result) == ()


def test_processes_keep_the_interval_they_were_sampled_with():
    """A sample of a process that was sampled half as often counts double."""
    stacks = (make_stack(KERNEL, count=2), make_stack(KERNEL, count=2, process=1))
    sampling = (
        make_sampling(stacks[0]),
        make_sampling(stacks[1], process=1, achieved_ns=8 * MILLISECOND),
    )
    processes = (make_process(pid=1), make_process(pid=2))
    result = sampled(*stacks, sampling=sampling, processes=processes)
    assert row_of(result, 12).time_ns == 24 * MILLISECOND


def test_dearest_function_comes_first():
    """Whoever reads from the top reads what matters."""
    result = sampled(make_stack(KERNEL, count=2), make_stack(IN_HELPER, count=3))
    names = [table.function.qualname for table in build_line_tables(result)]
    assert names == ["helper", "kernel"]


def test_profile_without_samples_has_no_tables():
    """Nothing measured, nothing shown."""
    assert build_line_tables(make_result()) == ()
    assert account_samples(make_result()).taken == 0


stacks = st.lists(
    st.one_of(
        st.builds(
            lambda frames, **rest: make_stack(*frames, **rest),
            st.lists(st.integers(0, 3), min_size=1, max_size=4),
            count=st.integers(1, 9),
            bin=st.sampled_from(["line", "function"]),
            callee=st.sampled_from(["", "sin (libm)"]),
        ),
        st.builds(
            make_stack,
            count=st.integers(1, 9),
            bin=st.sampled_from(["python", "compile", "native", "unresolved"]),
        ),
    ),
    max_size=8,
)


@given(stacks)
def test_every_sample_ends_in_exactly_one_bin(stacks):
    """Bins add up to what was taken, own samples to those in compiled code."""
    result = sampled(*stacks)
    result.check()
    account = account_samples(result)
    assert account.taken == sum(n for _, n in account.bins)
    assert account.taken == sum(stack.count for stack in stacks)
    tables = build_line_tables(result, internal=True)
    own = sum(row.self_samples for table in tables for row in table.rows)
    assert own == account.compiled
    assert sum(n for _, n in account.threads) == account.compiled


@given(stacks)
def test_collapsing_loses_no_sample_that_has_a_line_of_the_user(stacks):
    """Only stacks of nothing but Numba's own frames have no row."""
    result = sampled(*stacks)
    own = sum(
        row.self_samples for table in build_line_tables(result) for row in table.rows
    )
    nowhere = sum(
        stack.count
        for stack in stacks
        if stack.frames and set(stack.frames) == {IN_NUMBA}
    )
    assert own == account_samples(result).compiled - nowhere


@given(stacks)
def test_what_a_line_was_doing_adds_up_to_its_samples(stacks):
    """The breakdown of a line leaves nothing out and counts nothing twice."""
    for table in build_line_tables(sampled(*stacks)):
        for row in table.rows:
            assert Counter(dict(row.callees)).total() == row.samples
            assert 0 <= row.self_samples <= row.samples <= table.samples
