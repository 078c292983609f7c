"""Plays one script of events to the native engine and to its reference.

No Numba code is compiled. ``PyObject_Call`` has the C signature of a wrapper as well as
of ``tp_call``, so a Python callable can play the dispatcher, and another the compiled
code, behind the real trampolines; time is a word that the script moves.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from reference_engine import Books, Counts, Distribution, ReferenceEngine

from numbaprof.native import clock as clocks
from numbaprof.native import cpython_api, emit
from numbaprof.native.cpython_api import METH_VARARGS_KEYWORDS, MethodDef, new_method
from numbaprof.native.engine import Engine
from numbaprof.native.layout import (
    NO_NODE,
    START_MINIMUM,
    PseudoSlot,
    SlotField,
    UfuncField,
)

N_DISPATCHERS = 2
N_OVERLOADS = 3
"""Overload ``i`` belongs to dispatcher ``i % N_DISPATCHERS``; the last is a raw one."""
CHAIN = N_OVERLOADS
"""One more, whose compiled code calls overload 0."""
N_LOOPS = 2
N_CODES = 2
THREADS = ("main", "worker 1", "worker 2")
START_OF_TIME = 1000
KINDS = {"compile": PseudoSlot.COMPILE, "cache_load": PseudoSlot.CACHE_LOAD}
_PSEUDO = {
    PseudoSlot.COMPILE: "compile",
    PseudoSlot.CACHE_LOAD: "cache_load",
    PseudoSlot.CACHE_MISS: "cache miss",
    PseudoSlot.FAILED_DISPATCH: "failed dispatch",
    PseudoSlot.UNATTACHED: "unattached",
    PseudoSlot.DISPATCHING: "dispatching",
}


class Boom(Exception):
    """What scripted code raises."""


@dataclass(frozen=True)
class Op:
    """One event, or one call with events inside."""

    name: str
    """tick, call, raw, chain, frame, loop, on, start, stop, fork."""
    number: int = 0
    """Ticks, or which dispatcher, overload, loop or thread."""
    body: tuple[Op, ...] = ()
    before: tuple[Op, ...] = ()
    """call: what happens between the dispatcher and the overload."""
    overload: int = 0
    code: int = 0
    """Which Python function runs the body."""
    fails: str = ""
    """"", "dispatch" or "body"."""
    attached: bool = True
    kind: str = "compile"
    closed: bool = True
    """frame: whether its end is told."""
    renamed: bool = False
    """frame: whether it turns out, at its end, to be a look that found nothing."""


@dataclass
class Observed:
    """What came out of a script."""

    books: list[Books] = field(default_factory=list)
    closings: list[int | bool | None] = field(default_factory=list)
    """Ticks told by each closing of a frame, and whether it could be renamed."""


def dispatcher_of(overload: int) -> int | None:
    """Return the number of an overload's dispatcher, None for a raw entry point."""
    return None if overload >= N_OVERLOADS - 1 else overload % N_DISPATCHERS


# -- the reference ---------------------------------------------------------------------


class ReferencePlayer:
    """Plays a script to :class:`ReferenceEngine`."""

    def __init__(self) -> None:
        self.engine = ReferenceEngine()
        self.engine.now = START_OF_TIME
        self.observed = Observed()
        self._frames = itertools.count()

    def play(self, script: tuple[Op, ...]) -> Observed:
        """Play, end the last session, and return the books."""
        self.engine.start("main")
        with contextlib.suppress(Boom):
            self.run(Op("raw", body=script), "main")
        if self.engine.running:
            self.engine.stop()
        self.observed.books = self.engine.closed
        return self.observed

    def run(self, op: Op, thread: str) -> None:
        """Run the body of ``op`` in a Python function of its own."""
        python = next(self._frames)
        for inner in op.body:
            with contextlib.suppress(Boom):
                self.step(inner, thread, python, op.code)
        if op.fails == "body":
            raise Boom

    def step(self, op: Op, thread: str, python: Any, code: Any) -> None:
        """Do one thing, from a Python frame that runs ``code``."""
        engine = self.engine
        if op.name == "tick":
            engine.now += op.number
        elif op.name == "call":
            frame = engine.enter_dispatch(thread, op.number, python, code)
            failed = True
            try:
                self.dispatch(op, thread)
                failed = False
            finally:
                engine.leave_dispatch(thread, frame, failed)
        elif op.name == "raw":
            self.overload(op, op.overload, thread, (python, code), self.run)
        elif op.name == "chain":

            def inner(op: Op, thread: str) -> None:
                self.overload(op, 0, thread, (python, code), self.run)

            self.overload(op, CHAIN, thread, (python, code), inner)
        elif op.name == "frame":
            token = engine.open_frame(thread, op.kind)
            try:
                self.run(op, thread)
            finally:
                if op.renamed:
                    renamed = engine.rename_frame(thread, token, "cache miss")
                    self.observed.closings.append(renamed)
                if op.closed:
                    self.observed.closings.append(engine.close_frame(thread, token))
        elif op.name == "loop":
            entered = engine.enter_loop(thread, ("loop", op.number))
            with contextlib.suppress(Boom):
                self.run(op, thread)
            engine.leave_loop(thread, entered, op.number + 5)
        elif op.name == "on":
            target = THREADS[op.number]
            self.run(op, target)
        else:
            self.control(op.name, thread)

    def dispatch(self, op: Op, thread: str) -> None:
        """Be the dispatcher: look for an overload, perhaps compile, and call it."""
        python = next(self._frames)
        self.run(Op("raw", body=op.before, code=op.code), thread)
        if op.fails == "dispatch":
            raise Boom
        if op.attached:
            self.overload(op, op.overload, thread, (python, "dispatcher"), self.run)
        else:
            self.run(op, thread)

    def overload(
        self, op: Op, number: int, thread: str, caller: tuple[Any, Any], body: Any
    ) -> None:
        """Be an entry point with a trampoline in front."""
        owner = dispatcher_of(number)
        frame = self.engine.enter_overload(
            thread, number, "nobody" if owner is None else owner, *caller
        )
        failed = True
        try:
            body(op, thread)
            failed = False
        finally:
            self.engine.leave_overload(thread, frame, failed)

    def control(self, name: str, thread: str) -> None:
        """Start, stop or fork."""
        if name == "stop" and self.engine.running:
            self.engine.stop()
        elif name == "start" and not self.engine.running:
            self.engine.start(thread)
        elif name == "fork" and self.engine.running:
            self.engine.fork(thread)


# -- the native engine -----------------------------------------------------------------


def new_engine(step: int = 0) -> tuple[Engine, ctypes.c_int64]:
    """Return an engine of its own, and the word it takes for the time.

    Parameters
    ----------
    step : int
        Ticks that pass at every reading.
    """
    word = ctypes.c_int64(START_OF_TIME)
    clock = clocks.Clock("fake", "", ctypes.addressof(word), step)
    return Engine(cpython_api.discover(), clock), word


_RUNNER = """
def run_{number}(op):
    for inner in op.body:
        try:
            if inner.name == "call":
                player.dispatchers[inner.number](inner)
            elif inner.name == "raw":
                player.entry_points[inner.overload](inner)
            elif inner.name == "chain":
                player.entry_points[-1](inner)
            else:
                player.step(inner)
        except Boom:
            pass
    if op.fails == "body":
        raise Boom
"""


class NativePlayer:
    """Plays a script to the machine code.

    Parameters
    ----------
    engine : Engine
        Made by :func:`new_engine`.
    """

    def __init__(self, engine: Engine, word: ctypes.c_int64) -> None:
        self.engine = engine
        self.word = word
        self.workers = [ThreadPoolExecutor(1) for _ in THREADS[1:]]
        self.idents = {
            worker.submit(threading.get_ident).result(): name
            for worker, name in zip(self.workers, THREADS[1:], strict=True)
        }
        self.call = emit.address_of("PyObject_Call")
        self.runners = [self._make_runner(number) for number in range(N_CODES)]
        self.codes = {r.__code__: n for n, r in enumerate(self.runners)}
        self._targets = [self._make_target(n) for n in range(N_DISPATCHERS)]
        self.codes |= {target.__code__: "dispatcher" for target in self._targets}
        self._kept: list[Any] = []
        self.dispatchers = [
            self._method(self.engine.addresses["dispatch"], target)
            for target in self._targets
        ]
        self._enter = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(
            engine.addresses["native_enter"]
        )
        self._leave = ctypes.PYFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )(engine.addresses["native_leave"])
        self.observed = Observed()

    def close(self) -> None:
        """End the worker threads."""
        for worker in self.workers:
            worker.shutdown()

    def play(self, script: tuple[Op, ...]) -> Observed:
        """Play, end the last session, and return the books."""
        self.observed = Observed()
        self._kept.clear()
        self.word.value = START_OF_TIME
        self.idents[threading.get_ident()] = "main"
        self.engine.set_dispatch_target(self.call)
        self.attach()
        self.engine.restart_after_fork(1.0)
        self.bind()
        with contextlib.suppress(Boom):
            self.runners[0](Op("raw", body=script))
        if self.engine.running:
            self.control("stop")
        return self.observed

    def attach(self) -> None:
        """Put fresh trampolines in front, as every session does."""
        self.slots = []
        self.entry_points: list[Any] = []
        for number in range(N_OVERLOADS + 1):
            body = self._run if number < CHAIN else self.entry_points[0]
            slot = self.engine.new_slot(self.call, body, self._owner(number))
            self.slots.append(slot)
            overload = self.engine.addresses["overload"]
            self.entry_points.append(self._method(overload, slot))
        self.loops = [self.engine.new_ufunc_slot(0, 0) for _ in range(N_LOOPS)]
        self._kept.append((self.slots, self.loops))

    def bind(self) -> None:
        """Let the loops count in the session that has begun."""
        for loop in self.loops:
            self.engine.clear_ufunc_slot(loop)

    def _owner(self, number: int) -> int:
        owner = dispatcher_of(number)
        return 0 if owner is None else id(self._targets[owner])

    def _run(self, op: Op) -> None:
        self.runners[op.code](op)

    def _method(self, code: int, owner: Any) -> Any:
        definition = MethodDef(b"scripted", code, METH_VARARGS_KEYWORDS, None)
        method = new_method(definition, owner)
        self._kept_for_ever.append((definition, owner))
        return method

    _kept_for_ever: list[Any] = []  # noqa: RUF012  # PyMethodDefs outlive everything

    def _make_runner(self, number: int) -> Any:
        space = {"player": self, "Boom": Boom}
        exec(_RUNNER.format(number=number), space)
        return space[f"run_{number}"]

    def _make_target(self, number: int) -> Any:
        def dispatcher(op: Op) -> None:
            self.runners[op.code](Op("raw", body=op.before))
            if op.fails == "dispatch":
                raise Boom
            if op.attached:
                self.entry_points[op.overload](op)
            else:
                self.runners[op.code](op)

        return dispatcher

    def step(self, op: Op) -> None:
        """Do what needs no particular frame."""
        if op.name == "tick":
            self.word.value += op.number
        elif op.name == "frame":
            token = self.engine.open_frame(KINDS[op.kind])
            try:
                self.runners[op.code](op)
            finally:
                if op.renamed:
                    renamed = self.engine.rename_frame(token, PseudoSlot.CACHE_MISS)
                    self.observed.closings.append(renamed)
                if op.closed:
                    ticks = self.engine.close_frame(token)
                    closing = None if ticks == NO_NODE else ticks
                    self.observed.closings.append(closing)
        elif op.name == "loop":
            loop = self.loops[op.number]
            thread = self._enter(loop.address)
            begin = self.engine.now()
            with contextlib.suppress(Boom):
                self.runners[op.code](op)
            self._leave(loop.address, thread, begin, op.number + 5)
        elif op.name == "on":
            self._run_on(op)
        else:
            self.control(op.name)

    def _run_on(self, op: Op) -> None:
        self.workers[op.number - 1].submit(self.runners[op.code], op).result()

    def control(self, name: str) -> None:
        """Start, stop or fork."""
        if name == "stop" and self.engine.running:
            self.engine.stop()
            self.observed.books.append(self._read())
        elif name == "start" and not self.engine.running:
            self.attach()
            self.engine.start(1.0)
            self.bind()
        elif name == "fork" and self.engine.running:
            self.engine.restart_after_fork(1.0)
            for slot in self.slots:
                self.engine.clear_slot(slot)
            self.bind()

    # -- reading ----------------------------------------------------------------------

    def _read(self) -> Books:
        names = {slot.address: number for number, slot in enumerate(self.slots)}
        edges = [self.engine.edges(loop) for loop in self.loops]
        books = Books()
        paths: list[tuple[Any, ...]] = []
        for record in self.engine.records():
            if record.slot == PseudoSlot.THREAD:
                path: tuple[Any, ...] = (self.idents[record.thread_ident],)
            elif record.parent == NO_NODE:
                path = ()
            else:
                pseudo = _PSEUDO.get(record.slot)
                what = names[record.slot] if pseudo is None else pseudo
                code = None if record.code is None else self.codes[record.code]
                path = (*paths[record.parent], (what, code))
            paths.append(path)
            if path:
                counts = Counts(
                    record.calls,
                    record.errors,
                    record.inclusive_ticks,
                    record.child_ticks,
                    record.dispatch_ticks,
                    record.in_flight,
                )
                _add(books.contexts.setdefault(path, Counts()), counts)
        for number, rows in enumerate(edges):
            for parent, calls, ticks, child, in_flight in rows:
                where = () if parent == NO_NODE else paths[parent]
                counts = Counts(calls, 0, ticks, child, 0, in_flight)
                loops = books.edges.setdefault(("loop", number), {})
                _add(loops.setdefault(where, Counts()), counts)
        self._read_slots(books)
        return books

    def _read_slots(self, books: Books) -> None:
        for number, slot in enumerate(self.slots):
            counts = self.engine.histogram(slot)
            _read_distribution(books, number, slot.words, SlotField, counts)
        for number, loop in enumerate(self.loops):
            name = ("loop", number)
            counts = self.engine.histogram(loop)
            _read_distribution(books, name, loop.words, UfuncField, counts)
            if loop.words[UfuncField.ELEMENTS]:
                books.elements[name] = loop.words[UfuncField.ELEMENTS]


def _read_distribution(
    books: Books, name: Any, words: Any, fields: Any, counts: list[int]
) -> None:
    if words[fields.MIN] == START_MINIMUM:
        return
    buckets = {b: count for b, count in enumerate(counts) if count}
    books.distributions[name] = Distribution(
        words[fields.MIN], words[fields.MAX], buckets
    )


def _add(total: Counts, part: Counts) -> None:
    for name, value in vars(part).items():
        setattr(total, name, getattr(total, name) + value)
