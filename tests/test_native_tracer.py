"""The native tracer makes the table of the reference tracer, and of cProfile."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
import row_engine
import test_cprofile_bridge as reference
from row_engine import label_of

from numbaprof import cprofile_bridge
from numbaprof.errors import ActiveSessionError, UnsupportedError
from numbaprof.native import frame_layout, tracer
from numbaprof.native.shared import shared_engine
from numbaprof.rowbook import RowBook
from numbaprof.signatures import Level

pytestmark = pytest.mark.usefixtures("no_gc")

MONITORING = sys.version_info >= (3, 12)


class Traced:
    """A run under the native tracer, and the table that came of it."""

    def __init__(self, level=Level.NONE, *, builtins=True, cap=32):
        self.shared = shared_engine()
        self.engine = self.shared.engine
        self.book = RowBook(self.engine.new_row, level, cap=cap)
        self.tracer = cprofile_bridge.make_tracer(
            self.engine, self.book, builtins=builtins
        )

    def __enter__(self):
        self.foreign = row_engine.foreign_threads()
        self.engine.start(self.shared.ns_per_tick)
        self.tracer.start()
        return self

    def __exit__(self, *_):
        self.tracer.stop()
        self.engine.stop()
        self.records = self.engine.records()

    def table(self, key=label_of):
        """Fold the calls of the test's threads; see :func:`row_engine.table`."""
        rows = {row.address for row in self.book.rows}
        tree = row_engine.RowEngine(nodes=[])
        numbers = {}
        tree.nodes.append(row_engine.Node(-1, 0))
        left_out = set()
        for number, record in enumerate(self.records):
            if record.thread_ident in self.foreign or record.parent in left_out:
                left_out.add(number)
                continue
            if record.slot not in rows:
                numbers[number] = 0
                continue
            numbers[number] = len(tree.nodes)
            tree.nodes.append(
                row_engine.Node(numbers[record.parent], record.slot, record.calls)
            )
        return row_engine.table(tree, self.book, key)


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """Let caches of the standard library fill before calls are compared."""
    reference.program()
    reference.round_trip()


def test_backend_is_native():
    """Nothing fell back on the machine that the tests run on."""
    assert Traced().tracer.backend.backend == "native"
    assert Traced().tracer.backend.reason == ""


@pytest.mark.parametrize("level", [Level.NONE, Level.NDIM, Level.SHAPE])
@pytest.mark.parametrize("run", [reference.program, reference.round_trip])
def test_rows_and_counts_are_those_of_cprofile(run, level):
    """Functions, both halves of ncalls and every caller's counts are equal."""
    with Traced(level) as traced:
        run()
    counts = reference.counts(traced.table(reference.unsplit))
    assert counts == reference.counts_of_cprofile(run)
    assert traced.tracer.problems == []


@pytest.mark.parametrize("level", [Level.SHAPE, Level.NDIM, Level.TYPE])
def test_signatures_are_those_of_the_reference(level):
    """The same calls have the same labels, split the same way."""

    def call(a, b=None, *rest, **more):
        return lambda: a

    def calls():
        for a in (1, 1.5, "s", None, True, 2**70, (1, 2.0), (1,) * 9, [1], {}, b"x"):
            call(a)
        for dtype in (np.float32, np.float64, ">f8", "datetime64[s]", "U3", "i4,f8"):
            for shape in ((), (3,), (3, 2), (2, 3)):
                call(np.zeros(shape, dtype))
                call(1, np.zeros(shape, dtype, order="F"))
        call(np.zeros((4, 4))[::2], 1, 2, 3, key=4)
        frozen = np.zeros(3)
        frozen.flags.writeable = False
        call(frozen)
        call(np.ma.masked_array([1.0]))
        call(np.float32(1))

    def labels(traced):
        return {
            label: line.calls
            for label, line in traced.table().items()
            if label[2].startswith("call(")
        }

    with Traced(level, builtins=False) as native:
        calls()
    with reference.Traced(level, builtins=False) as python:
        calls()
    assert labels(native) == labels(python)
    assert len(labels(native)) > 12


def test_many_shapes_have_few_rows_that_add_up():
    """Past the cap calls go to rows for the others, which know their sizes."""

    def take(a):
        pass

    arrays = [np.zeros(n + 1) for n in range(500)]
    with Traced(Level.SHAPE, builtins=False) as traced:
        for _ in range(2):
            for array in arrays:
                take(array)
    lines = {
        label[2]: line.calls
        for label, line in traced.table().items()
        if label[2].startswith("take")
    }
    (others,) = [row for row in traced.book.rows if row.sizes is not None]
    assert sum(lines.values()) == 1000
    assert len(lines) == 33
    assert lines[others.name + others.signature] == others.sizes.calls == 2 * 468
    assert (others.sizes.smallest, others.sizes.largest) == (33, 500)


def test_threads_have_stacks_of_their_own():
    """Functions that run in several threads at once are no recursion."""
    barrier = threading.Barrier(3)

    def burn():
        barrier.wait()
        return reference.fib(12)

    with Traced(builtins=False) as traced:
        threads = [threading.Thread(target=burn) for _ in range(2)]
        for thread in threads:
            thread.start()
        burn()
        for thread in threads:
            thread.join()
    lines = {label[2]: line for label, line in traced.table().items()}
    assert (lines["burn"].calls, lines["burn"].primitive) == (3, 3)
    assert lines["fib"].calls == 3 * 465
    assert lines["fib"].primitive == 3


def test_function_entered_before_is_left_without_trace():
    """A return without a call pops nothing."""
    traced = Traced(builtins=False)

    def inside():
        traced.__enter__()
        reference.fib(3)

    inside()
    reference.fib(2)
    traced.__exit__()
    lines = {label[2]: line.calls for label, line in traced.table().items()}
    assert lines["fib"] == 5 + 3
    assert "inside" not in lines


def test_second_profiler_is_an_error_that_says_so():
    """Two tracers cannot share what the interpreter has one of."""
    if MONITORING:
        with Traced():
            other = Traced()
            other.tracer.start()
            other.tracer.stop()
        return
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(ActiveSessionError, match="another profiler"):
            Traced().tracer.start()
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("place", ["discover_frame", "discover_array"])
def test_wrong_layout_falls_back_with_its_reason(monkeypatch, place):
    """Where a layout is not found, the reference tracer works instead."""

    def nowhere(*_):
        raise UnsupportedError(f"{place} found nothing")

    monkeypatch.setattr(tracer, place, nowhere)
    monkeypatch.setattr(tracer, "_MACHINES", {})
    with Traced(builtins=False) as traced:
        reference.fib(4)
    lines = {label[2]: line.calls for label, line in traced.table().items()}
    assert lines["fib"] == 9
    assert traced.tracer.backend.backend != "native"
    assert traced.tracer.backend.reason == f"{place} found nothing"


def test_backend_that_was_asked_for_is_used(monkeypatch):
    """NUMBAPROF_BACKEND=python uses the reference; the reason says who wanted it."""
    monkeypatch.setenv("NUMBAPROF_BACKEND", "python")
    backend = Traced().tracer.backend
    assert backend.backend in ("sys.setprofile", "sys.monitoring")
    assert backend.reason == "NUMBAPROF_BACKEND=python"


def test_layouts_are_those_of_known_objects():
    """What was found leads to values that Python says itself."""
    arrays = frame_layout.discover_array()
    assert arrays.descriptor != arrays.dimensions
    assert frame_layout.discover_frame(16).cell_contents == 16


def test_tracing_ended_in_another_thread_leaves_no_hook():
    """A hook that only its own thread can take away does so at the next event."""
    traced = Traced(builtins=False)
    traced.__enter__()
    thread = threading.Thread(target=traced.__exit__)
    thread.start()
    thread.join()
    reference.fib(1)
    assert sys.getprofile() is None
    with Traced(builtins=False) as again:
        reference.fib(2)
    assert {label[2] for label in again.table()} >= {"fib"}


@pytest.mark.skipif(MONITORING, reason="threads that run already are seen")
def test_threads_that_ran_before_are_said_not_to_be_seen():
    """What cannot be traced is a problem with words, not an empty table."""
    go, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), done.set()))
    thread.start()
    try:
        with Traced(builtins=False) as traced:
            go.set()
            done.wait()
    finally:
        thread.join()
    assert "ran already" in traced.tracer.backend.reason
    assert traced.tracer.problems == []
