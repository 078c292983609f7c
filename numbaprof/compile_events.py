"""Compile events: every compilation, cache load and failure, nested and timed.

One stack per thread. What begins is pushed, what ends is popped, and what ended inside
something else is taken out of that one's exclusive time::

    compile f   |--------------------------------------|   inclusive
    compile g        |-----------|                         its own event, parent f
    load h                           |--|                  its own event, parent f
    exclusive f |----|           |---|  |--------------|

Time starts under the compiler lock, so threads that wait for it are not counted as
compiling. An event costs 20 to 50 us, a third of it the pass times; next to none of it
is in the event's own times, it goes to the exclusive time of what is around it.
"""

from __future__ import annotations

import itertools
import threading
import time
import types
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from numbaprof.errors import SessionStateError
from numbaprof.model import CompileEvent, FunctionId
from numbaprof.native import numba_api
from numbaprof.native.compile_points import CompilePoints
from numbaprof.native.hooks import HookErrors
from numbaprof.native.triggers import find_trigger, thread_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.native.compile_points import Describe, Lookups, Outcome

__all__ = ["CompileEvents", "ContextTree", "Registry"]

NO_PARENT = -1


class Registry(Protocol):
    """Who knows what functions are called; see ``numba_api.FunctionRegistry``."""

    def identify(self, thing: Any, args: Any = None) -> FunctionId:
        """Return the identity of a function-like object."""

    def adopt(self, thing: Any, identity: FunctionId) -> None:
        """Say that ``thing`` is a function identified before."""

    def signature_text(self, args: Any) -> str:
        """Return the readable signature of a tuple of argument types."""


class ContextTree(Protocol):
    """The calling-context tree, in which compiling is a node like any other.

    Frames are opened and closed in the thread that compiles, properly nested. A frame
    still open when the session stops is never closed, and one whose end was lost is
    closed after those above it.
    """

    def open_frame(self, kind: str) -> int:
        """Push a frame, "compile" or "cache_load"; return its token."""

    def rename_frame(self, token: int, kind: str) -> object:
        """Say what an open frame turned out to be: "cache_miss" or "cache_load"."""

    def close_frame(self, token: int) -> object:
        """Pop a frame."""


@dataclass(slots=True)
class _Open:
    """Something that has begun in one thread."""

    token: object
    number: int
    """Position among everything that ever began; parents before children."""
    lookups: Lookups
    outcome: Outcome | None = None
    """None while it is only expected; its time has not started then."""
    start_ns: int = 0
    nested_ns: int = 0
    """Inclusive time of the events inside."""
    start_cpu_ns: int = 0
    nested_cpu_ns: int = 0
    node: int = 0
    """Token of its frame in the context tree."""
    is_placed: bool = False
    """Whether the frame was opened before its time began."""
    lookup: object = None
    """Token of a look into the cache that is going on as a part of it."""
    passes: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True)
class _Thread:
    """The state of one thread that has compiled."""

    stack: list[_Open] = field(default_factory=list)
    """What is open, outermost first."""
    loaded: tuple[Any, int] | None = None
    """The last cache load and the number of its event, until somebody claims it."""
    unmatched: int = 0
    """Ends without a beginning, and beginnings whose end never came."""
    ident: int = field(default_factory=threading.get_ident)
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of what was in nothing else, on the clock of the events."""


class _Local(threading.local):
    """Gives each thread its state; the list of all is for the one that stops."""

    def __init__(self, threads: list[_Thread]) -> None:
        self.state = _Thread()
        threads.append(self.state)


class CompileEvents:
    """The instrument that records compile events, between ``start`` and ``stop``.

    Parameters
    ----------
    registry : Registry
        Gives functions their identity, shared with the other instruments.
    tree : ContextTree, optional
        Gets a frame around every event.
    clock : callable, optional
        Returns nanoseconds; ``time.perf_counter_ns`` by default.
    cpu_clock : callable, optional
        Returns nanoseconds of CPU time of the calling thread.

    Notes
    -----
    An instance measures one session. It keeps identities, not objects: no dispatcher
    lives longer for having been seen. Start and stop are not thread-safe against each
    other; compiling may go on in any thread meanwhile.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        tree: ContextTree | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._registry = registry
        self._tree = tree
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._errors = HookErrors()
        self._points = CompilePoints(self, self._errors)
        self._active = False
        self._origin_ns: int | None = None
        self._threads: list[_Thread] = []
        self._local = _Local(self._threads)
        self._numbers = itertools.count()
        self._parents: dict[int, int] = {}
        self._events: dict[int, CompileEvent] = {}
        self._left_open = 0
        self._unrestored: tuple[str, ...] = ()

    # -- lifetime ---------------------------------------------------------------------

    def start(self, origin_ns: int | None = None) -> None:
        """Begin to record.

        Parameters
        ----------
        origin_ns : int, optional
            Reading of the clock that ``start_ns`` of the events counts from; now, by
            default.

        Raises
        ------
        SessionStateError
            This instance was started before.
        AttachError, UnsupportedError
            A place cannot be listened to; nothing is left installed.
        """
        if self._origin_ns is not None:
            raise SessionStateError(
                "these compile events were started before; make a new CompileEvents"
            )
        self._origin_ns = self._clock() if origin_ns is None else origin_ns
        self._active = True
        try:
            self._points.install()
        except BaseException:
            self._active = False
            raise

    def stop(self) -> None:
        """End recording and restore what was installed.

        What is still compiling in other threads is left out and counted in
        :attr:`unfinished`. Stopping twice, or before start, does nothing.
        """
        if not self._active:
            return
        self._active = False
        self._unrestored = self._points.remove()
        for thread in self._threads:
            self._left_open += sum(open_.outcome is not None for open_ in thread.stack)
            thread.loaded = None

    def reset_after_fork(self) -> None:
        """Forget, in a forked child, what the parent has recorded.

        What the forking thread was compiling is the parent's; its end, if it comes in
        the child as well, counts as :attr:`unfinished`. Nothing happens when not
        started.
        """
        if not self._active:
            return
        self._origin_ns = self._clock()
        self._threads = []
        self._local = _Local(self._threads)
        self._parents, self._events = {}, {}
        self._errors.clear()

    def events(self, process: int = 0) -> tuple[CompileEvent, ...]:
        """Return the events in the order they began.

        Parameters
        ----------
        process : int, optional
            Index of the process for :attr:`CompileEvent.process`.
        """
        recorded = dict(self._events)
        index = {number: position for position, number in enumerate(sorted(recorded))}
        return tuple(
            replace(
                recorded[number],
                parent=index.get(self._recorded_parent(number, recorded), NO_PARENT),
                process=process,
            )
            for number in index
        )

    @property
    def origin_ns(self) -> int:
        """Reading of the clock that ``start_ns`` of the events counts from."""
        return self._origin_ns or 0

    @property
    def recorded(self) -> int:
        """Number of events that have ended so far, in all threads."""
        return len(self._events)

    @property
    def hook_errors(self) -> tuple[str, ...]:
        """Errors inside this instrument, for :attr:`Losses.hook_errors`."""
        return self._errors.messages()

    @property
    def unrestored(self) -> tuple[str, ...]:
        """Places that somebody else changed, for :attr:`Losses.unrestored`."""
        return self._unrestored

    @property
    def unfinished(self) -> int:
        """Events that began before ``start`` or had not ended at ``stop``."""
        return self._left_open + sum(thread.unmatched for thread in self._threads)

    # -- what the compile points tell (Watcher) ---------------------------------------

    def begin(
        self, token: object, outcome: Outcome | None, lookups: Lookups = "apart"
    ) -> None:
        """Push what begins; an outcome of None waits for a sign of work."""
        if self._active:
            begun = self._push(token, lookups)
            if outcome is not None:
                self._start(begun, outcome)
            elif self._tree is not None:
                # Its time has not begun, but its place in the tree is here and not
                # wherever the first sign of work will come from.
                begun.node = self._tree.open_frame("compile")
                begun.is_placed = True

    def advance(self) -> None:
        """Start the time of what was expected."""
        stack = self._local.state.stack
        if stack and stack[-1].outcome is None and self._active:
            self._start(stack[-1], "compile")

    def add_passes(self, passes: tuple[tuple[str, int], ...]) -> None:
        """Keep pass times that are not known where the work is described."""
        stack = self._local.state.stack
        if stack:
            stack[-1].passes = passes

    def end(self, token: object, describe: Describe, failed: bool) -> None:
        """Pop what ends, and record it if it began."""
        now = self._clock()
        if self._reach(token):
            ended = self._local.state.stack.pop()
            if ended.outcome is None:
                self._displace(ended)
                self._hand_up(ended)
            else:
                self._record(ended, now, describe, failed)

    def look_up(self, token: object) -> None:
        """Begin a look into the cache: a part of the work, or an event of its own."""
        if not self._active:
            return
        thread = self._local.state
        thread.loaded = None
        top = thread.stack[-1] if thread.stack else None
        if top is None or (top.outcome is not None and top.lookups == "apart"):
            self._start(self._push(token, "apart"), "cache_load")
            return
        top.lookup = token
        if top.outcome is None:
            self._start(top, "cache_load")

    def looked_up(self, token: object, result: Any, describe: Describe) -> None:
        """End a look: a hit is an event or a part of one, a miss has not happened."""
        now = self._clock()
        if not self._reach(token):
            return
        thread = self._local.state
        top = thread.stack[-1]
        if top.lookup is token:
            top.lookup = None
            if top.lookups == "apart" and result is None:
                self._unstart(top)
            elif top.lookups == "decide" and result is not None:
                top.outcome = "cache_load"
                if self._tree is not None:
                    self._tree.rename_frame(top.node, "cache_load")
            return
        thread.stack.pop()
        if result is None:
            self._unstart(top)
            self._hand_up(top)
        else:
            self._record(top, now, describe, failed=False)
            thread.loaded = (result, top.number)

    def lookup_failed(self, token: object, describe: Describe) -> None:
        """End a look that raised; work that it was a part of is going to fail too."""
        stack = self._local.state.stack
        if stack and stack[-1].lookup is token:
            stack[-1].lookup = None
        else:
            self.end(token, describe, failed=True)

    def claim(self, result: Any, dispatcher: Any, kind: str) -> None:
        """Name the owner of what this thread has just loaded."""
        thread = self._local.state
        if thread.loaded is None or thread.loaded[0] is not result:
            return
        _, number = thread.loaded
        thread.loaded = None
        function = self._registry.identify(dispatcher, result.signature.args)
        self._events[number] = replace(
            self._events[number],
            function=function,
            kind=kind,
            internal=numba_api.is_internal(function.module),
        )

    def same_function(self, thing: Any, known: Any) -> None:
        """Let ``thing`` be recorded under the identity of ``known``."""
        if self._active:
            self._registry.adopt(thing, self._registry.identify(known))

    # -- the stack --------------------------------------------------------------------

    def _push(self, token: object, lookups: Lookups) -> _Open:
        stack = self._local.state.stack
        begun = _Open(token, next(self._numbers), lookups)
        self._parents[begun.number] = stack[-1].number if stack else NO_PARENT
        stack.append(begun)
        return begun

    def _start(self, begun: _Open, outcome: Outcome) -> None:
        begun.outcome = outcome
        if self._tree is not None:
            if not begun.is_placed:
                begun.node = self._tree.open_frame(outcome)
            elif outcome == "cache_load":
                self._tree.rename_frame(begun.node, outcome)
        begun.start_cpu_ns = self._cpu_clock()
        begun.start_ns = self._clock()

    def _unstart(self, begun: _Open) -> None:
        """Put something back to being expected only."""
        if begun.outcome is not None and self._tree is not None:
            if begun.outcome == "cache_load":
                self._tree.rename_frame(begun.node, "cache_miss")
            self._tree.close_frame(begun.node)
            if begun.is_placed:
                begun.node = self._tree.open_frame("compile")
        begun.outcome = None

    def _reach(self, token: object) -> bool:
        """Bring to the top what has this token, losing what never ended above it.

        False when there is nothing: it began before ``start``, or ``stop`` has counted
        it as left open.
        """
        if not self._active:
            return False
        thread = self._local.state
        stack = thread.stack
        if not any(begun.token is token or begun.lookup is token for begun in stack):
            thread.unmatched += 1
            return False
        while stack[-1].token is not token and stack[-1].lookup is not token:
            lost = stack.pop()
            thread.unmatched += 1
            self._unstart(lost)
            self._displace(lost)
            self._hand_up(lost)
        return True

    def _displace(self, ended: _Open) -> None:
        """Close the frame of what had its place and never began."""
        if ended.is_placed and self._tree is not None:
            self._tree.close_frame(ended.node)

    def _hand_up(self, ended: _Open) -> None:
        """Credit the children of what is no event to what is around it."""
        stack = self._local.state.stack
        if stack:
            stack[-1].nested_ns += ended.nested_ns
            stack[-1].nested_cpu_ns += ended.nested_cpu_ns

    def _record(
        self, ended: _Open, now_ns: int, describe: Describe, failed: bool
    ) -> None:
        """Make an event of what has just been popped."""
        if self._tree is not None:
            self._tree.close_frame(ended.node)
        inclusive_ns = now_ns - ended.start_ns
        cpu_ns = self._cpu_clock() - ended.start_cpu_ns
        stack = self._local.state.stack
        if stack:
            stack[-1].nested_ns += inclusive_ns
            stack[-1].nested_cpu_ns += cpu_ns
        else:
            self._local.state.spans.append((ended.start_ns, now_ns))
        work = describe()
        function, signature = self._name(work.thing, work.args)
        trigger, import_module = find_trigger()
        self._events[ended.number] = CompileEvent(
            function=function,
            signature=signature,
            event="failed" if failed else ended.outcome or "compile",
            kind="nested stencil" if stack and work.kind == "stencil" else work.kind,
            start_ns=ended.start_ns - (self._origin_ns or 0),
            inclusive_ns=inclusive_ns,
            exclusive_ns=inclusive_ns - ended.nested_ns,
            thread=thread_name(),
            trigger=trigger,
            at_import=bool(import_module),
            import_module=import_module,
            passes=work.passes or ended.passes,
            internal=numba_api.is_internal(function.module),
            error=work.error,
            cpu_ns=cpu_ns - ended.nested_cpu_ns,
        )

    def _name(self, thing: Any, args: Any) -> tuple[FunctionId, str]:
        if isinstance(args, str):
            return self._registry.identify(thing), args
        signature = self._registry.signature_text(args)
        if not isinstance(thing, types.FunctionType):
            return self._registry.identify(thing, args), signature
        # A load nobody has claimed yet: not for the registry, which knows objects of
        # Numba's, and would count this as one more of the same name.
        code = thing.__code__
        line = numba_api.definition_line(code)
        module, qualname = thing.__module__ or "", thing.__qualname__
        return FunctionId(module, qualname, code.co_filename, line), signature

    def spans(self) -> dict[int, list[tuple[int, int]]]:
        """Return when each thread compiled or loaded: by ident, (begin, end) in order.

        Nanoseconds on the clock that the events are timed with.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for thread in self._threads:
            found.setdefault(thread.ident, []).extend(thread.spans)
        return {ident: sorted(spans) for ident, spans in found.items() if spans}

    def _recorded_parent(self, number: int, recorded: dict[int, CompileEvent]) -> int:
        """Return the nearest enclosing beginning that became an event."""
        parent = self._parents[number]
        while parent != NO_PARENT and parent not in recorded:
            parent = self._parents[parent]
        return parent
