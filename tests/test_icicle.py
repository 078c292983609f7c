"""The picture's tree: what is put where, what is opened, what is left out."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    make_event,
    make_function,
    make_node,
    make_overload,
    make_process,
    make_result,
    make_site,
    make_thread,
)

from numbaprof.compile_tree import match_events
from numbaprof.icicle import KINDS, Box, build
from numbaprof.model import PythonRow
from numbaprof.pruning import prune

MILLISECOND = 1_000_000


def shape(boxes):
    """Return (parent's name, kind, name, inclusive) of every box."""
    return [
        (
            boxes[box.parent].name if box.parent >= 0 else "",
            box.kind,
            box.name,
            box.inclusive_ns,
        )
        for box in boxes
    ]


def compiled_run(*, events=None, node_ms=300, nested_ms=100):
    """Build a profile in which f was compiled, and g for it, before f was called."""
    f, g = make_function("f"), make_function("g")
    if events is None:
        events = (
            make_event(
                f, inclusive_ns=300 * MILLISECOND, exclusive_ns=200 * MILLISECOND
            ),
            make_event(g, inclusive_ns=100 * MILLISECOND, parent=0),
        )
    total = node_ms * MILLISECOND + 50
    contexts = (
        make_thread(inclusive_ns=total, exclusive_ns=0),
        make_node(
            "compile",
            parent=0,
            calls=1,
            inclusive_ns=node_ms * MILLISECOND,
            exclusive_ns=(node_ms - nested_ms) * MILLISECOND,
        ),
        make_node("compile", parent=1, calls=1, inclusive_ns=nested_ms * MILLISECOND),
        make_node(
            parent=0,
            via=make_site(line=30),
            calls=5,
            inclusive_ns=40,
            dispatch_ns=10,
        ),
    )
    return make_result(
        make_overload(f, calls=5, mean_ns=8),
        events=events,
        contexts=contexts,
        wall_ns=total + 1000,
    )


def test_compilations_and_calls_are_under_the_function_that_caused_them():
    """Contexts of compiling become one box per signature, beside the calls."""
    boxes = build(compiled_run())
    ms = MILLISECOND
    assert shape(boxes) == [
        ("", "thread", "MainThread", 300 * ms + 1050),
        ("MainThread", "caller", "main", 300 * ms + 50),
        ("main", "overload", "f(int64)", 40),
        ("main", "compile", "compile f(int64)", 300 * ms),
        ("compile f(int64)", "compile", "compile g(int64)", 100 * ms),
        ("MainThread", "rest", "Python and the rest", 1000),
    ]


def test_children_fill_no_more_than_their_parent():
    """What is inside a box, dispatch included, adds up to at most its time."""
    boxes = build(compiled_run())
    for index, box in enumerate(boxes):
        inside = sum(child.width_ns for child in boxes if child.parent == index)
        assert inside + (box.self_ns or 0) == box.inclusive_ns


def test_compiling_stays_closed_when_counts_disagree():
    """Events that are not as many as the contexts counted replace nothing."""
    result = compiled_run()
    result = replace(result, compile_events=result.compile_events[:1])
    assert match_events(result).contexts == frozenset()
    assert [box.name for box in build(result) if box.kind == "compile"] == [
        "compiling",
        "compiling",
    ]


def test_compiling_stays_closed_when_times_disagree():
    """Events that took another time than the contexts replace nothing."""
    assert match_events(compiled_run(node_ms=400)).contexts == frozenset()


def test_compiling_stays_closed_below_a_call():
    """Which event happened inside a call cannot be known from the events."""
    contexts = (
        make_thread(inclusive_ns=100 * MILLISECOND, exclusive_ns=0),
        make_node(parent=0, inclusive_ns=100 * MILLISECOND, exclusive_ns=0, overload=0),
        make_node("compile", parent=1, calls=1, inclusive_ns=100 * MILLISECOND),
    )
    result = make_result(make_overload(), events=(make_event(),), contexts=contexts)
    assert match_events(result).outermost == {}


def test_threads_are_matched_one_by_one():
    """A thread that does not agree leaves another one's compilations open."""
    ns = 100 * MILLISECOND
    contexts = (
        make_thread(inclusive_ns=ns, exclusive_ns=0),
        make_node("compile", parent=0, calls=1, inclusive_ns=ns),
        make_thread("worker", inclusive_ns=ns, exclusive_ns=0),
        make_node("compile", parent=2, calls=2, inclusive_ns=ns),
    )
    events = (make_event(), make_event("other", thread="worker"))
    result = make_result(make_overload(), events=events, contexts=contexts)
    assert match_events(result).contexts == {1}


def traced_run(*, contexts_of_main=1):
    """Build a traced profile: main calls work, both compile something."""
    ns = 100 * MILLISECOND
    compiles = 1 + contexts_of_main
    contexts = [
        make_thread(inclusive_ns=compiles * ns, exclusive_ns=0),
        make_node("python", python_row=0, calls=1, inclusive_ns=2 * ns, exclusive_ns=0),
        make_node(
            "python", parent=1, python_row=1, calls=1, inclusive_ns=ns, exclusive_ns=0
        ),
        make_node("compile", parent=2, calls=1, inclusive_ns=ns),
        make_node("compile", parent=1, calls=1, inclusive_ns=ns),
    ]
    if contexts_of_main > 1:
        contexts += [
            make_node("builtin", python_row=2, inclusive_ns=ns, exclusive_ns=0),
            make_node(
                "python", parent=5, python_row=0, inclusive_ns=ns, exclusive_ns=0
            ),
            make_node("compile", parent=6, calls=1, inclusive_ns=ns),
        ]
    events = tuple(
        make_event(name, trigger=make_site(function=trigger))
        for name, trigger in [("f", "work"), ("g", "main"), ("h", "main")][:compiles]
    )
    rows = (
        PythonRow("script.py", 3, "main", "main", "python"),
        PythonRow("script.py", 9, "work", "work", "python"),
        PythonRow("~", 0, "map", "map", "builtin"),
    )
    return make_result(
        make_overload(), events=events, contexts=tuple(contexts), python_rows=rows
    )


def test_compilations_are_in_the_traced_function_that_caused_them():
    """Where Python was traced an event belongs to the function of its trigger."""
    boxes = build(traced_run())
    pairs = [
        (parent, name) for parent, kind, name, _ in shape(boxes) if kind == "compile"
    ]
    assert pairs == [("work", "compile f(int64)"), ("main", "compile g(int64)")]


def test_function_that_compiles_in_two_contexts_stays_closed():
    """An event knows the function that caused it, not from where that was called."""
    boxes = build(traced_run(contexts_of_main=2))
    names = sorted(box.name for box in boxes if box.kind == "compile")
    assert names == ["compile f(int64)", "compiling", "compiling"]


def test_cache_miss_inside_a_compilation_is_part_of_it():
    """A look into the cache has no event; its time stays in the compilation around."""
    ns = 100 * MILLISECOND
    contexts = (
        make_thread(inclusive_ns=ns, exclusive_ns=0),
        make_node("compile", parent=0, calls=1, inclusive_ns=ns, exclusive_ns=ns - 7),
        make_node("cache_miss", parent=1, calls=1, inclusive_ns=7),
    )
    result = make_result(make_overload(), events=(make_event(),), contexts=contexts)
    assert match_events(result).contexts == {1, 2}


def test_threads_of_several_processes_are_told_apart():
    """The name of a thread has its process in front when there are several."""
    contexts = (make_thread(), make_thread(process=1))
    runs = (make_process(), make_process(pid=7, label="fork"))
    boxes = build(make_result(processes=runs, contexts=contexts))
    names = [box.name for box in boxes if box.parent == 0]
    assert names[:2] == ["main 100: MainThread", "fork 7: MainThread"]


def test_unknown_kind_of_context_is_drawn_as_other():
    """A kind that a later version invents is drawn rather than refused."""
    contexts = (make_thread(), make_node("from the future", calls=1, inclusive_ns=3))
    assert build(make_result(contexts=contexts))[1].kind == "other"


def test_python_contexts_stand_for_themselves():
    """A context of a Python function is one box, with its own time."""
    contexts = (
        make_thread(inclusive_ns=9, exclusive_ns=0),
        make_node("python", python_row=0, calls=2, inclusive_ns=9, exclusive_ns=4),
        make_node(parent=1, via=make_site(), inclusive_ns=3),
        make_node("builtin", parent=1, python_row=1, calls=1, inclusive_ns=2),
    )
    python_rows = (
        PythonRow("src/app.py", 3, "run", "App.run", "python", "(n: int)"),
        PythonRow("~", 0, "<built-in method builtins.len>", "", "builtin"),
    )
    result = make_result(
        make_overload(), contexts=contexts, python_rows=python_rows, wall_ns=9
    )
    boxes = build(result)
    assert shape(boxes)[1:] == [
        ("MainThread", "python", "App.run(n: int)", 9),
        ("App.run(n: int)", "overload", "kernel(int64)", 3),
        ("App.run(n: int)", "builtin", "<built-in method builtins.len>", 2),
    ]
    assert (boxes[1].self_ns, boxes[1].place) == (4, "app.py:3")


def test_profile_of_nothing_is_one_box():
    """Without contexts there is the whole, and it is empty."""
    assert [box.inclusive_ns for box in build(make_result(contexts=()))] == [0]


def test_every_kind_of_context_has_a_colour():
    """All kinds of the model are in the table of kinds."""
    from typing import get_args

    from numbaprof.model import ContextKind

    names = {kind.replace(" ", "_") for kind in get_args(ContextKind)}
    assert names <= set(KINDS)


def family():
    """Build a root with one large and three small children, one of them a parent."""
    return [
        Box("thread", -1, inclusive_ns=100),
        Box("overload", 0, "big", calls=1, inclusive_ns=90),
        Box("overload", 0, "s1", calls=2, inclusive_ns=4),
        Box("overload", 2, "s2", calls=3, inclusive_ns=3),
        Box("overload", 0, "s3", calls=4, errors=1, inclusive_ns=5, dispatch_ns=1),
    ]


def test_largest_boxes_are_kept_and_the_others_summed():
    """What is left out is one box whose time counts nothing twice."""
    kept, pruned = prune(family(), 2)
    assert [box.name for box in kept] == ["", "big", "3 small contexts"]
    small = kept[2]
    assert (small.parent, small.inclusive_ns, small.calls, small.errors) == (
        0,
        10,
        9,
        1,
    )
    assert pruned is not None
    assert (pruned.contexts, pruned.calls, pruned.time_ns, pruned.limit_ns) == (
        3,
        9,
        10,
        6,
    )


def test_nothing_is_left_out_below_the_limit():
    """A tree that is small enough stays as it is."""
    kept, pruned = prune(family(), 5)
    assert (kept, pruned) == (family(), None)


def test_parent_is_kept_where_clocks_differ():
    """A child that seems longer than its parent does not lose it."""
    boxes = [
        Box("thread", -1, inclusive_ns=10),
        Box("overload", 0, "parent", inclusive_ns=5),
        Box("overload", 1, "child", inclusive_ns=6),
    ]
    kept, _ = prune(boxes, 2)
    assert [box.name for box in kept] == ["", "parent", "1 small context"]


def test_pruning_keeps_every_call_and_context():
    """Calls of a large tree are all in it afterwards, however few boxes there are."""
    boxes = [Box("thread", -1, inclusive_ns=1 << 40)]
    for index in range(1, 3000):
        parent = (index - 1) // 3
        boxes.append(
            Box(
                "overload",
                parent,
                calls=index,
                inclusive_ns=boxes[parent].inclusive_ns // 3,
            )
        )
    kept, pruned = prune(boxes, 100)
    assert pruned is not None
    assert pruned.contexts == 2900
    assert sum(box.calls or 0 for box in kept) == sum(box.calls or 0 for box in boxes)
    assert all(box.parent < index for index, box in enumerate(kept))
