"""Calls, primitive calls and times per function and caller, as pstats counts them."""

from __future__ import annotations

from builders import make_node, make_overload, make_result, make_row, make_thread

from numbaprof.call_graph import Key, build_call_graph

MAIN, LEAF = Key("row", 0), Key("row", 1)


def call(row, parent, own, inclusive, **changes):
    """Build the context of one call of a row."""
    return make_node(
        "python",
        parent=parent,
        python_row=row,
        exclusive_ns=own,
        inclusive_ns=inclusive,
        **{"calls": 1, **changes},
    )


def graph(*contexts, overloads=()):
    """Add up contexts of rows ``main`` and ``leaf``."""
    rows = (make_row("main"), make_row("leaf"))
    return build_call_graph(
        make_result(*overloads, contexts=contexts, python_rows=rows)
    )


def figures(calls):
    """Return what pstats shows of an entry or an edge."""
    return (
        calls.calls,
        calls.primitive_calls,
        calls.inclusive_ns,
        calls.exclusive_ns,
    )


def test_calls_of_all_contexts_add_up():
    """One function in two contexts is one entry with two callers."""
    found = graph(
        make_thread(inclusive_ns=19),
        call(0, 0, 5, 12),
        call(1, 1, 7, 7, calls=3),
        call(1, 0, 7, 7),
    )
    assert figures(found[LEAF]) == (4, 4, 14, 14)
    assert figures(found[LEAF].callers[MAIN]) == (3, 3, 7, 7)
    assert list(found[LEAF].callers) == [MAIN]
    assert figures(found[MAIN]) == (1, 1, 12, 5)


def test_recursion_counts_each_moment_once():
    """Inner calls are no primitive calls and add no inclusive time."""
    found = graph(
        make_thread(inclusive_ns=12),
        call(0, 0, 3, 12),
        call(0, 1, 4, 9, calls=2),
        call(0, 2, 5, 5, calls=4),
    )
    assert figures(found[MAIN]) == (7, 1, 12, 12)
    assert figures(found[MAIN].callers[MAIN]) == (6, 2, 9, 9)


def test_mutual_recursion_is_recursion_of_both_and_of_their_edges():
    """The second time the same caller calls inside, the edge is recursive too."""
    found = graph(
        make_thread(inclusive_ns=10),
        call(0, 0, 1, 10),
        call(1, 1, 2, 9),
        call(0, 2, 3, 7),
        call(1, 3, 4, 4),
    )
    assert figures(found[MAIN]) == (2, 1, 10, 4)
    assert figures(found[LEAF]) == (2, 1, 9, 6)
    assert figures(found[LEAF].callers[MAIN]) == (2, 1, 9, 6)
    assert figures(found[MAIN].callers[LEAF]) == (1, 1, 7, 3)


def test_siblings_are_no_recursion():
    """A function that has returned is not under way any more."""
    found = graph(
        make_thread(inclusive_ns=10), call(0, 0, 5, 5), call(0, 0, 5, 5, calls=2)
    )
    assert figures(found[MAIN]) == (3, 3, 10, 10)


def test_threads_do_not_see_each_other():
    """One function in two threads is no recursion."""
    found = graph(
        make_thread(inclusive_ns=5),
        call(0, 0, 5, 5),
        make_thread("worker", inclusive_ns=6),
        call(0, 2, 6, 6),
    )
    assert figures(found[MAIN]) == (2, 2, 11, 11)


def test_own_times_add_up_to_the_threads():
    """Dispatch is in the own time of the overload, compiling is an entry."""
    found = graph(
        make_thread(inclusive_ns=20),
        call(0, 0, 1, 20),
        make_node("overload", parent=1, exclusive_ns=8, inclusive_ns=8, dispatch_ns=4),
        make_node("compile", parent=1, inclusive_ns=7, calls=1),
        overloads=(make_overload(),),
    )
    assert figures(found[Key("overload", 0)]) == (1, 1, 12, 12)
    assert figures(found[Key("compile")]) == (1, 1, 7, 7)
    assert sum(entry.exclusive_ns for entry in found.values()) == 20


def test_deep_recursion_takes_no_longer_per_context():
    """A path of 20,000 contexts is walked without a set per context."""
    depth = 20_000
    contexts = [make_thread(inclusive_ns=depth)]
    contexts += [call(n % 2, n, 1, depth - n) for n in range(depth)]
    found = graph(*contexts)
    assert figures(found[MAIN]) == (depth // 2, 1, depth, depth // 2)
