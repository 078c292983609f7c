"""From nodes in ticks to contexts in nanoseconds, with books that agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbaprof import tree
from numbaprof.native.engine import NodeRecord
from numbaprof.native.layout import LOST_NODE, NO_NODE, PseudoSlot

THREAD = 77
SLOTS = {1000: 0, 2000: 1, 3000: 2}
"""Slot address to overload."""


def node(parent, slot, *, own=0, child=0, dispatch=0, calls=1, **more):
    """Return a record whose inclusive time is its own and its children's."""
    return NodeRecord(
        parent=parent,
        slot=slot,
        code=more.pop("code", None),
        calls=calls,
        errors=more.pop("errors", 0),
        inclusive_ticks=own + child,
        child_ticks=child,
        dispatch_ticks=dispatch,
        in_flight=more.pop("in_flight", 0),
        thread_ident=more.pop("thread_ident", 0),
    )


LOST = node(NO_NODE, 0, calls=0)
ROOT = node(NO_NODE, PseudoSlot.THREAD, calls=0, thread_ident=THREAD)


def fold(*records, edges=(), ns_per_tick=1.0):
    """Fold records below LOST and ROOT, which are numbers 0 and 1."""
    everything = [LOST, ROOT, *records]
    names = {THREAD: "MainThread"}
    return tree.fold(everything, list(edges), SLOTS, names, ns_per_tick)


def balance(contexts):
    """Check that every node is its own time and its children's."""
    for index, context in enumerate(contexts):
        below = sum(
            c.inclusive_ns + c.dispatch_ns for c in contexts if c.parent == index
        )
        assert context.inclusive_ns == context.exclusive_ns + below


def test_empty_session_has_no_contexts():
    """A thread in which nothing happened is no context."""
    folded = fold()
    assert (folded.contexts, dict(folded.totals)) == ((), {})


def test_call_hangs_below_its_thread():
    """One call is a thread and an overload."""
    folded = fold(node(1, 1000, own=5, dispatch=2))
    thread, call = folded.contexts
    assert (thread.kind, thread.label, thread.inclusive_ns) == (
        "thread",
        "MainThread",
        7,
    )
    assert (call.parent, call.overload, call.exclusive_ns, call.dispatch_ns) == (
        0,
        0,
        5,
        2,
    )
    assert folded.problems == []


def test_unknown_thread_has_its_number():
    """A thread that nobody has a name for is told by its ident."""
    folded = tree.fold([LOST, ROOT, node(1, 1000, own=1)], [], SLOTS, {}, 1.0)
    assert folded.contexts[0].label == f"thread {THREAD}"


@pytest.mark.parametrize(
    ("slot", "kind"),
    [
        (PseudoSlot.COMPILE, "compile"),
        (PseudoSlot.CACHE_LOAD, "cache_load"),
        (PseudoSlot.FAILED_DISPATCH, "failed dispatch"),
        (PseudoSlot.UNATTACHED, "unattached"),
        (PseudoSlot.DISPATCHING, "dispatching"),
    ],
)
def test_pseudo_slots_have_their_kind(slot, kind):
    """What is no overload is told by kind, and has none."""
    context = fold(node(1, slot, own=3)).contexts[1]
    assert (context.kind, context.overload) == (kind, -1)


def test_caller_is_the_code_of_the_node():
    """A node's code object becomes file, line of the def, and name."""
    code = balance.__code__
    via = fold(node(1, 1000, own=1, code=code)).contexts[1].via
    assert (via.file, via.line, via.function) == (
        __file__,
        code.co_firstlineno,
        "balance",
    )


def test_recursion_counts_time_once():
    """Inclusive time of an overload inside itself is not added again."""
    folded = fold(
        node(1, 1000, own=1, child=16, dispatch=1),
        node(2, 2000, own=2, child=13, dispatch=1),
        node(3, 1000, own=9, dispatch=4),
    )
    totals = folded.totals
    assert (totals[0].calls, totals[0].inclusive_ns, totals[0].exclusive_ns) == (
        2,
        17,
        10,
    )
    assert totals[1].inclusive_ns == 15
    balance(folded.contexts)


def test_rounding_keeps_the_balance():
    """With a rate that divides nothing the sums still agree to the nanosecond."""
    folded = fold(
        node(1, 1000, own=7, child=23, dispatch=5),
        node(2, 2000, own=11, dispatch=5),
        node(2, 3000, own=6, dispatch=1),
        ns_per_tick=0.37,
    )
    balance(folded.contexts)


def test_loop_hangs_below_its_caller():
    """What ran without the GIL joins the tree as a child of its context."""
    edge = tree.UfuncEdge(1, parent=2, calls=3, ticks=8, child_ticks=2, in_flight=0)
    folded = fold(
        node(1, 1000, own=5, child=8),
        node(2, 3000, own=2),
        edges=[edge],
    )
    balance(folded.contexts)
    assert (folded.totals[1].calls, folded.totals[1].exclusive_ns) == (3, 6)
    assert folded.problems == []


def test_loop_of_an_unknown_thread_has_a_root_of_its_own():
    """Calls in threads without Python are kept together."""
    edge = tree.UfuncEdge(1, NO_NODE, calls=3, ticks=8, child_ticks=0, in_flight=0)
    folded = fold(edges=[edge])
    root, loop = folded.contexts
    assert (root.label, root.inclusive_ns, loop.calls) == (tree.UNSEEN_THREADS, 8, 3)


def test_loop_with_more_callers_than_rows_is_placed():
    """Time that a caller misses is taken from the loop whose caller is not known."""
    edge = tree.UfuncEdge(1, NO_NODE, calls=3, ticks=8, child_ticks=0, in_flight=0)
    folded = fold(node(1, 1000, own=5, child=6), edges=[edge])
    balance(folded.contexts)
    assert (folded.totals[1].calls, folded.totals[1].exclusive_ns) == (3, 8)
    assert sum(c.inclusive_ns for c in folded.contexts if c.parent == -1) == 13
    assert folded.problems == []


def test_calls_without_a_context_are_counted_and_not_in_the_tree():
    """What did not fit is in the sums; its time is where it was spent."""
    folded = fold(
        node(1, 1000, own=5, child=9),
        node(LOST_NODE, 2000, own=4, child=5, calls=7),
        node(LOST_NODE, 3000, own=5, calls=2),
    )
    balance(folded.contexts)
    assert [c.kind for c in folded.contexts] == ["thread", "overload", "truncated"]
    assert (folded.totals[1].calls, folded.totals[2].calls, folded.truncated) == (
        7,
        2,
        9,
    )
    assert folded.contexts[2].exclusive_ns == 9
    assert folded.problems == []


def test_missing_time_is_a_problem():
    """Time that no child has is reported, and the books still balance."""
    folded = fold(node(1, 1000, own=5, child=3))
    balance(folded.contexts)
    assert folded.problems == ["the children of context 2 are 3 ticks short"]


def test_unknown_slot_is_a_problem():
    """A slot of nobody is reported."""
    assert fold(node(1, 4444, own=5)).problems == ["context 2 names an unknown slot"]


def test_calls_in_flight_are_summed():
    """Calls that did not finish are counted apart."""
    folded = fold(node(1, 1000, own=5, calls=0, in_flight=2))
    assert (folded.in_flight, folded.totals[0].in_flight) == (2, 2)


@st.composite
def trees(draw):
    """Draw records of a tree that balances in ticks."""
    slots = st.sampled_from([*SLOTS, PseudoSlot.COMPILE, PseudoSlot.FAILED_DISPATCH])
    parents = draw(st.lists(st.integers(0, 30), max_size=25))
    parents = [1 + parent % (number + 1) for number, parent in enumerate(parents)]
    owns = [draw(st.integers(0, 1 << 40)) for _ in parents]
    dispatches = [draw(st.integers(0, 1 << 30)) for _ in parents]
    children = [0] * (len(parents) + 2)
    for number in range(len(parents) + 1, 1, -1):
        index = number - 2
        total = owns[index] + children[number] + dispatches[index]
        children[parents[index]] += total
    return [
        node(
            parents[i],
            draw(slots),
            own=owns[i],
            child=children[i + 2],
            dispatch=dispatches[i],
        )
        for i in range(len(parents))
    ]


@given(records=trees(), ns_per_tick=st.floats(0.01, 100))
def test_any_tree_balances_at_any_rate(records, ns_per_tick):
    """Exclusive and dispatch times sum to the roots, whatever the rate rounds."""
    folded = fold(*records, ns_per_tick=ns_per_tick)
    balance(folded.contexts)
    parts = sum(c.exclusive_ns + c.dispatch_ns for c in folded.contexts)
    assert parts == sum(c.inclusive_ns for c in folded.contexts if c.parent == -1)
    assert folded.problems == []
    calls = sum(totals.calls for totals in folded.totals.values())
    assert calls == sum(record.slot in SLOTS for record in records)


# -- rows of the Python level ----------------------------------------------------------

ROWS = {7000: (0, "python"), 8000: (1, "builtin")}


def fold_rows(*records):
    """Fold records of which some are rows."""
    everything = [LOST, ROOT, *records]
    return tree.fold(everything, [], SLOTS, {THREAD: "MainThread"}, 1.0, rows=ROWS)


def test_rows_and_overloads_share_the_tree():
    """A row calls an overload that calls a builtin."""
    folded = fold_rows(
        node(1, 7000, own=5, child=12),
        node(2, 1000, own=4, child=6, dispatch=2),
        node(3, 8000, own=6),
    )
    kinds = [(c.kind, c.python_row, c.overload) for c in folded.contexts]
    assert kinds == [
        ("thread", -1, -1),
        ("python", 0, -1),
        ("overload", -1, 0),
        ("builtin", 1, -1),
    ]
    balance(folded.contexts)
    assert (folded.rows[0].inclusive_ns, folded.rows[0].exclusive_ns) == (17, 5)
    assert folded.problems == []


def test_recursive_row_counts_each_moment_once():
    """Inner calls are calls, but not primitive ones."""
    folded = fold_rows(
        node(1, 7000, own=5, child=9, calls=2),
        node(2, 7000, own=4, child=5, calls=3),
        node(3, 8000, own=5),
    )
    totals = folded.rows[0]
    assert (totals.calls, totals.primitive_calls) == (5, 2)
    assert (totals.inclusive_ns, totals.exclusive_ns) == (14, 9)


def test_row_under_way_at_the_end_is_a_call():
    """As in cProfile, and it is no loss."""
    folded = fold_rows(node(1, 7000, own=5, calls=0, in_flight=1))
    assert (folded.rows[0].calls, folded.contexts[1].calls) == (1, 1)
    assert folded.in_flight == 0


def test_time_of_the_tracer_is_in_no_context():
    """It is known in sum, and missing from the children without a problem."""
    record = node(1, 7000, own=5, child=9)
    record = replace(record, overhead_ticks=9)
    folded = fold_rows(record)
    assert folded.contexts[1].inclusive_ns == 5
    assert (folded.tracing_ns, folded.problems) == (9, [])


def test_row_whose_context_did_not_fit_keeps_its_calls():
    """Its sums are complete; the calls are counted as without context."""
    folded = fold_rows(node(LOST_NODE, 7000, own=5, calls=4))
    assert (folded.rows[0].calls, folded.truncated) == (4, 4)


def test_deep_recursion_folds_in_linear_time():
    """A path of 20,000 contexts needs no set per context."""
    depth = 20_000
    records = [
        node(n + 1, 7000 if n % 2 else 1000, own=1, child=depth - n - 1)
        for n in range(depth)
    ]
    folded = fold_rows(*records)
    assert folded.rows[0].calls == folded.totals[0].calls == depth // 2
    assert folded.totals[0].inclusive_ns == depth
