"""The engine in plain Python: what its books must be, whatever the machine code does.

Written from the accounting in :mod:`numbaprof.model`, not from the emitters. Time is a
number that the driver moves; interpreter frames and code are whatever tokens the driver
passes. :mod:`scripted_engine` plays the same script to this and to the native engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Books", "ReferenceEngine"]

Path = tuple[Any, ...]
"""From a thread's name down: then ``(what, code)`` pairs."""


@dataclass
class Counts:
    """What a context holds."""

    calls: int = 0
    errors: int = 0
    inclusive: int = 0
    child: int = 0
    dispatch: int = 0
    in_flight: int = 0


@dataclass
class Distribution:
    """What is kept per overload or loop, beside its contexts."""

    low: int | None = None
    high: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, ticks: int) -> None:
        """Add a finished call."""
        self.low = ticks if self.low is None else min(self.low, ticks)
        self.high = max(self.high, ticks)
        bucket = ticks.bit_length()
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1


@dataclass
class Books:
    """One session."""

    contexts: dict[Path, Counts] = field(default_factory=dict)
    distributions: dict[Any, Distribution] = field(default_factory=dict)
    elements: dict[Any, int] = field(default_factory=dict)
    edges: dict[Any, dict[Path, Counts]] = field(default_factory=dict)
    """Per loop: the context that called it."""


@dataclass
class Frame:
    """Something that is going on in one thread."""

    session: int
    path: Path
    """The parent's context while nothing is known but the dispatcher."""
    python: Any
    code: Any
    begin: int
    what: Any = None
    dispatcher: Any = None
    inside: int = 0
    child: int = 0
    dispatch: int = 0
    is_loop: bool = False


@dataclass
class Loop:
    """A loop that was entered."""

    loop: Any
    generation: int
    """Which trampoline it was entered through."""
    begin: int
    frame: Frame | None = None


class ReferenceEngine:
    """Books calls as the native engine must."""

    def __init__(self) -> None:
        self.now = 0
        self._session = 0
        self._sessions = 0
        self._generation = 0
        self._books = Books()
        self._stacks: dict[Any, list[Frame]] = {}
        self.closed: list[Books] = []

    # -- sessions ---------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether calls are booked."""
        return bool(self._session)

    def start(self, thread: Any) -> None:
        """Begin a session in ``thread``; trampolines are put in front of everything."""
        self._generation += 1
        self._begin(thread)

    def _begin(self, thread: Any) -> None:
        self._sessions += 1
        self._session = self._sessions
        self._books = Books()
        self._root(thread)

    def stop(self) -> None:
        """End the session; what is open gives its time but is not counted."""
        for stack in self._stacks.values():
            for level in range(len(stack) - 1, -1, -1):
                if stack[level].session == self._session:
                    self._cut(stack, level)
        self._session = 0
        self.closed.append(self._books)

    def fork(self, thread: Any) -> None:
        """Go on as a child process does: nothing was counted.

        Only the forking thread goes on, and what is open in it is of a session that
        has ended here.
        """
        self._stacks = {thread: self._stacks.get(thread, [])}
        self._begin(thread)

    def _cut(self, stack: list[Frame], level: int) -> None:
        frame = stack[level]
        total = self.now - frame.begin
        if frame.is_loop:
            edge = self._edge(frame.what, frame)
            edge.inclusive += total
            edge.child += frame.child
            edge.in_flight += 1
        elif frame.what is None:
            counts = self._context((*frame.path, ("dispatching", frame.code)))
            counts.inclusive += total - frame.child
            counts.in_flight += 1
        else:
            counts = self._context(frame.path)
            counts.inclusive += self.now - frame.inside
            counts.child += frame.child
            counts.dispatch += frame.dispatch
            counts.in_flight += 1
        self._credit(stack, level, total)

    # -- calls ------------------------------------------------------------------------

    def enter_dispatch(
        self, thread: Any, dispatcher: Any, python: Any, code: Any
    ) -> Frame | None:
        """Enter a dispatcher from the Python frame ``python``, which runs ``code``."""
        if not self._session:
            return None
        frame = self._push(thread, python, code)
        frame.dispatcher = dispatcher
        return frame

    def leave_dispatch(self, thread: Any, frame: Frame | None, failed: bool) -> None:
        """Leave it; if no overload took the frame over, there was none to be had."""
        stack = self._stacks.get(thread, [])
        if frame is None or not self._drop(stack, frame):
            return
        if frame.session != self._session:
            return
        what = "failed dispatch" if failed else "unattached"
        counts = self._context((*frame.path, (what, frame.code)))
        counts.calls += 1
        counts.errors += failed
        total = self.now - frame.begin
        counts.inclusive += total - frame.child
        self._credit(stack, len(stack), total)

    def enter_overload(
        self, thread: Any, slot: Any, dispatcher: Any, python: Any, code: Any
    ) -> Frame | None:
        """Enter an overload, from its dispatcher or from anywhere else."""
        if not self._session:
            return None
        stack = self._stacks.setdefault(thread, [])
        top = stack[-1] if stack else None
        if (
            top is None
            or top.what is not None
            or top.dispatcher != dispatcher
            or top.session != self._session
        ):
            top = self._push(thread, python, code)
        top.inside = self.now
        top.dispatch = self.now - top.begin - top.child
        top.child = 0
        top.what = slot
        top.path = (*top.path, (slot, top.code))
        self._context(top.path)
        return top

    def leave_overload(self, thread: Any, frame: Frame | None, failed: bool) -> None:
        """Leave it."""
        if frame is None:
            return
        stack = self._stacks.get(thread, [])
        self._drop(stack, frame)
        if frame.session != self._session:
            return
        ticks = self.now - frame.inside
        counts = self._context(frame.path)
        counts.calls += 1
        counts.errors += failed
        counts.inclusive += ticks
        counts.child += frame.child
        counts.dispatch += frame.dispatch
        self._distribution(frame.what).add(ticks)
        self._credit(stack, len(stack), self.now - frame.begin)

    def open_frame(self, thread: Any, kind: Any) -> Frame | None:
        """Begin to compile or to load."""
        if not self._session:
            return None
        frame = self._push(thread, python=None, code=None)
        frame.what = kind
        frame.inside = self.now
        frame.path = (*frame.path, (kind, None))
        self._context(frame.path)
        return frame

    def rename_frame(self, thread: Any, frame: Frame | None, kind: Any) -> bool:
        """Say what an open frame turned out to be, while nothing is inside."""
        stack = self._stacks.setdefault(thread, [])
        if frame is None or not stack or stack[-1] is not frame:
            return False
        if frame.session != self._session or frame.child:
            return False
        frame.what = kind
        frame.path = (*frame.path[:-1], (kind, None))
        return True

    def close_frame(self, thread: Any, frame: Frame | None) -> int | None:
        """End it, and all that was begun inside and never ended."""
        stack = self._stacks.setdefault(thread, [])
        if frame is None or not self._drop(stack, frame):
            return None
        if frame.session != self._session:
            return None
        ticks = self.now - frame.inside
        counts = self._context(frame.path)
        counts.calls += 1
        counts.inclusive += ticks
        counts.child += frame.child
        self._credit(stack, len(stack), ticks)
        return ticks

    def enter_loop(self, thread: Any, loop: Any) -> Loop:
        """Enter a ufunc loop; children hang beside it, under its caller."""
        entered = Loop(loop, self._generation, self.now)
        if not self._session or thread not in self._stacks:
            return entered
        stack = self._stacks[thread]
        top = stack[-1] if stack else None
        frame = Frame(self._session, (thread,), None, None, self.now, what=loop)
        if top is not None and top.session == self._session:
            frame.path, frame.python = top.path, top.python
        elif (thread,) not in self._books.contexts:
            frame.path = ()
        frame.is_loop = True
        stack.append(frame)
        entered.frame = frame
        return entered

    def leave_loop(self, thread: Any, entered: Loop, elements: int) -> None:
        """Leave it.

        In a thread nobody knew of there is no frame, and so nothing that would tell a
        call from before a fork.
        """
        frame = entered.frame
        ticks = self.now - entered.begin
        if frame is not None:
            stack = self._stacks.get(thread, [])
            self._drop(stack, frame)
            if frame.session != self._session:
                return
            self._credit(stack, len(stack), ticks)
        if not self._session or entered.generation != self._generation:
            return
        edge = self._edge(entered.loop, frame)
        edge.calls += 1
        edge.inclusive += ticks
        edge.child += 0 if frame is None else frame.child
        self._distribution(entered.loop).add(ticks)
        self._books.elements.setdefault(entered.loop, 0)
        self._books.elements[entered.loop] += elements

    # -- pieces -----------------------------------------------------------------------

    def _root(self, thread: Any) -> Path:
        self._stacks.setdefault(thread, [])
        self._context((thread,))
        return (thread,)

    def _push(self, thread: Any, python: Any, code: Any) -> Frame:
        stack = self._stacks.setdefault(thread, [])
        top = stack[-1] if stack else None
        if top is not None and top.session != self._session:
            top = None
        path = self._root(thread) if top is None or not top.path else top.path
        # Called from the very frame its parent was called from: compiled code calls.
        compiled = top is not None and python is not None and top.python == python
        frame = Frame(self._session, path, python, None if compiled else code, self.now)
        stack.append(frame)
        return frame

    def _drop(self, stack: list[Frame], frame: Frame) -> bool:
        """Take ``frame`` off, with what was left above it; False if it is gone."""
        if not any(frame is other for other in stack):
            return False
        while stack.pop() is not frame:
            pass
        return True

    def _credit(self, stack: list[Frame], level: int, ticks: int) -> None:
        if level > 0:
            stack[level - 1].child += ticks

    def _context(self, path: Path) -> Counts:
        for length in range(1, len(path)):
            self._books.contexts.setdefault(path[:length], Counts())
        return self._books.contexts.setdefault(path, Counts())

    def _edge(self, loop: Any, frame: Frame | None) -> Counts:
        path = () if frame is None else frame.path
        return self._books.edges.setdefault(loop, {}).setdefault(path, Counts())

    def _distribution(self, what: Any) -> Distribution:
        return self._books.distributions.setdefault(what, Distribution())
