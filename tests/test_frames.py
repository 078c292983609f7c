from __future__ import annotations

import math
import re
from pathlib import Path

import pandas as pd
import pytest
from builders import (
    SECOND,
    array,
    make_boxing,
    make_event,
    make_function,
    make_line_site,
    make_node,
    make_overload,
    make_result,
    make_row,
    make_sampling,
    make_site,
    make_stack,
    make_thread,
)

from numbaprof import frames
from numbaprof.model import LineFacts

COLUMNS = Path(__file__).parent.parent / "docs" / "columns.md"

VIEWS = {
    "stats": (frames.stats_frame, frames.STATS_COLUMNS),
    "compiles": (frames.compiles_frame, frames.COMPILES_COLUMNS),
    "findings": (frames.findings_frame, frames.FINDINGS_COLUMNS),
    "callers": (frames.callers_frame, frames.CALLERS_COLUMNS),
    "functions": (frames.functions_frame, frames.FUNCTIONS_COLUMNS),
    "lines": (frames.lines_frame, frames.LINES_COLUMNS),
}

ARCHITECTURE_STATS = """
    function signature module file line ncalls errors total_s self_s mean_s min_s p50_s
    p99_s max_s dispatch_s compile_s compile_self_s origin reason countable
    not_countable_reason kind
"""


def full_result():
    """Make a profile with one row in every view."""
    stack = make_stack(0)
    return make_result(
        make_overload(),
        events=(make_event(),),
        line_sites=(make_line_site(),),
        stacks=(stack,),
        sampling=(make_sampling(stack),),
    )


def traced_result():
    """Make a profile in which Python calls an overload and a builtin."""
    return make_result(
        make_overload("kernel"),
        python_rows=(
            make_row("main", signature="(a: float64[3])", overflow="1 calls"),
            make_row("len", kind="builtin", file="~", line=0),
        ),
        contexts=(
            make_thread(inclusive_ns=100, exclusive_ns=0),
            make_node("python", python_row=0, inclusive_ns=100, exclusive_ns=20),
            make_node(parent=1, inclusive_ns=50, dispatch_ns=10),
            make_node("builtin", parent=1, python_row=1, inclusive_ns=20, calls=2),
        ),
    )


def test_functions_are_in_one_table_that_adds_up():
    """Python, builtin and overload, dearest first, with dispatch in the overload's."""
    frame = frames.functions_frame(traced_result())
    assert list(frame.function) == ["kernel", "main", "len"]
    assert list(frame.kind) == ["function", "python", "builtin"]
    assert list(frame.tottime * 1e9) == pytest.approx([60, 20, 20])
    assert list(frame.cumtime * 1e9) == pytest.approx([60, 100, 20])
    assert list(frame.signature) == ["(int64)", "(a: float64[3])", ""]
    assert frame.line.isna().tolist() == [False, False, True]


def test_caller_that_was_traced_is_named_by_its_function():
    """The signature of the caller is left out: the option changes no other table."""
    (caller,) = frames.callers_frame(traced_result()).itertuples()
    assert (caller.caller, caller.caller_kind) == ("main", "python")


def test_lines_are_estimates_with_an_interval_and_exact_hits():
    """A figure from samples has bounds, one that was counted has none."""
    stacks = (make_stack(0, count=75, callee="sin (libm)"), make_stack(count=25))
    facts = (LineFacts(0, hits=9, remarks=("slow", "why"), source="s += x"),)
    result = make_result(
        line_sites=(make_line_site(12),),
        stacks=stacks,
        sampling=(make_sampling(*stacks),),
        line_facts=facts,
    )
    (line,) = result.lines.itertuples()
    assert (line.function, line.signature, line.line) == ("kernel", "(int64)", 12)
    assert (line.samples, line.time_s, line.share) == (75, 0.3, 1.0)
    assert 0.25 < line.time_low_s < 0.3 < line.time_high_s < 0.34
    assert (line.hits, line.remark, line.source) == (9, "slow; why", "s += x")
    assert line.callees == {"sin (libm)": 75}


def documented(view):
    """Read (column, type) pairs of one view from docs/columns.md."""
    text = COLUMNS.read_text(encoding="utf-8")
    section = text.partition(f"## `p.{view}`")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, flags=re.MULTILINE)


@pytest.mark.parametrize("view", VIEWS)
def test_columns_are_documented_in_order_with_types(view):
    """The documentation lists exactly the columns that there are."""
    assert documented(view) == list(VIEWS[view][1].items())


@pytest.mark.parametrize("view", VIEWS)
def test_columns_of_the_frame_are_those_promised(view):
    """Index and columns together are the documented columns."""
    make, columns = VIEWS[view]
    frame = make(full_result())
    flat = frame.reset_index() if view == "stats" else frame
    assert list(flat.columns) == list(columns)


@pytest.mark.parametrize("view", VIEWS)
def test_types_are_the_same_when_empty(view):
    """An empty frame can be joined to a full one."""
    make, _ = VIEWS[view]
    full, empty = make(full_result()), make(make_result())
    assert len(full) == (2 if view == "functions" else 1)
    assert empty.empty
    assert list(empty.dtypes) == list(full.dtypes)
    assert list(empty.index.names) == list(full.index.names)


@pytest.mark.parametrize("view", VIEWS)
def test_types_are_the_documented_ones(view):
    """``str`` is pandas' default for text, whatever this pandas calls it."""
    make, columns = VIEWS[view]
    frame = make(full_result())
    expected = {
        name: pd.Series([], dtype=dtype).dtype
        for name, dtype in columns.items()
        if name in frame.columns
    }
    assert dict(frame.dtypes) == expected


def test_stats_begin_with_the_fixed_columns():
    """Columns are appended; the first ones never move."""
    fixed = ARCHITECTURE_STATS.split()
    assert list(frames.STATS_COLUMNS)[: len(fixed)] == fixed


def test_stats_have_seconds_and_counts():
    """Nanoseconds of the model are seconds in the frame."""
    overload = make_overload(
        calls=4,
        mean_ns=SECOND,
        dispatch_ns=SECOND // 2,
        compile_ns=3 * SECOND,
        compile_self_ns=2 * SECOND,
        boxing=make_boxing(4, unbox_ns=SECOND),
        errors=1,
    )
    row = frames.stats_frame(make_result(overload)).iloc[0]
    assert (row.ncalls, row.errors, row.payback_calls) == (4, 1, 3)
    assert (row.total_s, row.self_s, row.mean_s) == (4.0, 4.0, 1.0)
    assert (row.dispatch_s, row.compile_s, row.compile_self_s) == (0.5, 3.0, 2.0)
    assert (row.min_s, row.p50_s, row.max_s, row.unbox_s) == (1.0, 1.0, 1.0, 1.0)


def test_stats_are_found_by_function_and_signature():
    """The index is (function, signature)."""
    result = make_result(make_overload("f", args=(array(),)))
    stats = frames.stats_frame(result)
    assert stats.loc[("f", "(float64[::1])"), "ncalls"] == 1


def test_uncountable_calls_are_missing_not_zero():
    """A figure that cannot be had is never 0."""
    row = frames.stats_frame(make_result(make_overload(calls=None))).iloc[0]
    assert row.ncalls is pd.NA
    assert math.isnan(row.total_s)
    assert not row.countable
    assert row.not_countable_reason == "called from compiled code only"


def test_internal_overloads_are_rows_with_their_origin():
    """Helpers stay in the frame, so that nothing is hidden, and can be told apart."""
    stats = frames.stats_frame(make_result(make_overload(internal=True)))
    assert list(stats.origin) == ["internal"]


def test_functions_that_share_a_name_are_numbered():
    """Identity is never the name."""
    result = make_result(
        make_overload(make_function("f")), make_overload(make_function("f", line=99))
    )
    assert list(frames.stats_frame(result).index.get_level_values(0)) == ["f", "f#2"]


def test_compiles_name_the_line_that_caused_them():
    """The trigger is split into columns, and is missing where unknown."""
    result = make_result(
        events=(
            make_event(trigger=make_site(7)),
            make_event(trigger=None, parent=0, event="failed", error="TypingError: x"),
        )
    )
    compiles = frames.compiles_frame(result)
    assert list(compiles.trigger_file) == ["script.py", ""]
    assert compiles.trigger_line[0] == 7
    assert compiles.trigger_line.isna().tolist() == [False, True]
    assert compiles.parent.isna().tolist() == [True, False]
    assert list(compiles.error) == ["", "TypingError: x"]


def test_findings_have_their_evidence_as_a_dict():
    """Numbers behind a message can be used without parsing it."""
    findings = frames.findings_frame(make_result(make_overload()))
    assert findings.evidence[0]["payback_calls"] == 100_000
    assert list(findings.function) == ["kernel"]


def test_finding_about_the_whole_profile_has_no_function():
    """The column is empty, not missing."""
    from builders import make_environment, make_process

    environment = make_environment(jit_disabled=True)
    result = make_result(processes=(make_process(environment=environment),))
    assert list(frames.findings_frame(result).function) == [""]


def nested_result():
    """Make a profile of one overload called by Python, an overload and a thread."""
    return make_result(
        make_overload("outer"),
        make_overload("inner", calls=6),
        contexts=(
            make_thread(),
            make_node(overload=0, via=make_site(3), inclusive_ns=900, exclusive_ns=400),
            make_node(overload=1, parent=1, calls=5, inclusive_ns=500, dispatch_ns=20),
            make_node(overload=1, parent=0, calls=1, inclusive_ns=100, errors=1),
        ),
    )


def test_callers_are_python_functions_overloads_and_threads():
    """Who made the call: ``via`` if there is one, else the parent node."""
    callers = frames.callers_frame(nested_result())
    assert callers[["function", "caller", "caller_kind", "ncalls"]].values.tolist() == [
        ["outer", "main", "python", 1],
        ["inner", "outer(int64)", "overload", 5],
        ["inner", "MainThread", "thread", 1],
    ]


def test_callers_add_up_to_the_overload():
    """Calls by caller are all the calls of the overload."""
    callers = frames.callers_frame(nested_result())
    assert callers[callers.function == "inner"].ncalls.sum() == 6


def test_recursion_counts_each_moment_once():
    """A call inside a call of the same overload adds no inclusive time."""
    result = make_result(
        make_overload("f", calls=2),
        contexts=(
            make_thread(),
            make_node(inclusive_ns=10**9, exclusive_ns=6 * 10**8),
            make_node(parent=1, inclusive_ns=4 * 10**8),
        ),
    )
    callers = frames.callers_frame(result)
    assert callers.total_s.sum() == 1.0
    assert callers.self_s.sum() == 1.0
