"""Python and builtin calls on the engine's shadow stack.

:func:`reference_tracer` sees calls in plain Python: with ``sys.setprofile`` on Python
3.10 and 3.11, with ``sys.monitoring`` after that. It is what faster tracers are
compared with, and what there is where none works. Which row of the table a call belongs
to is the business of :class:`numbaprof.rowbook.RowBook`.

What is a call
--------------
As for cProfile: each entry of a Python frame, so every resumption of a generator or
coroutine, and each call of a C function from Python code. Compiled functions are not
seen here but by the engine's trampolines, on the same stack; the frame that Numba makes
up for them while somebody listens is passed over. A resumed generator is labelled by
what its parameters hold by then.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from numbaprof.errors import ActiveSessionError, OptionError, UnsupportedError
from numbaprof.model import BackendInfo
from numbaprof.rowbook import ANY_ARGUMENT, NO_ARGUMENT, Row, RowBook, is_booked
from numbaprof.signatures import (
    TUPLE_ITEMS,
    UNBOUND,
    Level,
    argument_key,
    key_kind,
    parameters_of,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import CodeType, FrameType

__all__ = [
    "BACKEND_VARIABLE",
    "RowEngine",
    "Tracer",
    "backend_request",
    "make_tracer",
    "reference_tracer",
]

KEY_LIMIT = 256
"""Keys that the reference tracer remembers per function."""
BACKEND_VARIABLE = "NUMBAPROF_BACKEND"
BACKENDS = ("native", "python")


class RowEngine(Protocol):
    """The part of the engine that a tracer written in Python needs."""

    def now(self) -> int:
        """Read the clock, in ticks."""

    def enter_row(self, row: int, since: int) -> int:
        """Push a frame; what passed since a callback began is nobody's time."""

    def leave_row(self, token: int, since: int) -> int:
        """Pop the frame of a token and all above it."""

    def is_closed(self) -> bool:
        """Tell whether Numba is at work in this thread; nothing is booked then."""


class Tracer(Protocol):
    """Sees Python calls and books them."""

    backend: BackendInfo
    problems: list[str]

    def start(self) -> None:
        """Begin to see calls."""

    def stop(self) -> None:
        """See no more calls and put everything back."""


TRANSPARENT = -2
"""Token of a frame that is on no stack: what it calls is its caller's."""
_BUILTIN = object()


class _Stack(threading.local):
    """What is open in one thread: (code object or _BUILTIN, token), innermost last."""

    def __init__(self) -> None:
        self.entries: list[tuple[object, int]] = []


class _Reference:
    """What both reference tracers do with an event."""

    def __init__(self, engine: RowEngine, book: RowBook, *, builtins: bool) -> None:
        self.problems: list[str] = []
        self._engine = engine
        self._book = book
        self._builtins = builtins
        self._stack = _Stack()
        self._running = False
        self._keys: dict[int, dict[Hashable, tuple[Row, object]]] = {}

    def _enter(self, code: CodeType, frame: FrameType | None, since: int) -> None:
        """Push a Python frame; ``frame`` is None for one that is to be passed over."""
        if self._engine.is_closed() or not self._running:
            return
        token = TRANSPARENT
        if frame is not None:
            try:
                row = self._row(code, frame)
            except Exception as error:
                # An edge: what goes wrong here must not reach the program.
                self._note(error)
                row = None
            if row is not None:
                token = self._engine.enter_row(row.address, since)
        self._stack.entries.append((code, token))

    def _leave(self, code: CodeType, since: int) -> None:
        """Pop a Python frame; one that was entered before we came is not there."""
        if self._engine.is_closed():
            return
        entries = self._stack.entries
        for depth in range(len(entries) - 1, -1, -1):
            if entries[depth][0] is code:
                token = entries[depth][1]
                del entries[depth:]
                if token != TRANSPARENT:
                    self._engine.leave_row(token, since)
                return

    def _enter_builtin(
        self, caller: CodeType, function: object, argument: object, since: int
    ) -> None:
        if (
            self._engine.is_closed()
            or not self._running
            or self._book.is_hidden(caller)
        ):
            return
        row = self._book.builtin_row(function, argument)
        if row is not None:
            token = self._engine.enter_row(row.address, since)
            self._stack.entries.append((_BUILTIN, token))

    def _leave_builtin(
        self, caller: CodeType, function: object, argument: object, since: int
    ) -> None:
        entries = self._stack.entries
        if not entries or entries[-1][0] is not _BUILTIN or self._engine.is_closed():
            return
        if is_booked(function, argument) and not self._book.is_hidden(caller):
            self._engine.leave_row(entries.pop()[1], since)

    def _row(self, code: CodeType, frame: FrameType) -> Row | None:
        """Find the row by a key of each level, or ask the book."""
        book = self._book
        if book.is_hidden(code):
            return None
        finest, coarsest = book.level, book.level_of(code)
        values = [] if finest is Level.NONE else _values(frame)
        keys = self._keys.setdefault(id(code), {})
        for level in range(finest, coarsest + 1):
            known = keys.get(_key(values, level))
            if known is not None:
                row = known[0]
                break
        else:
            found = book.python_row(code, values)
            if found is None:
                return None
            row = found
            if len(keys) < KEY_LIMIT:
                keys[_key(values, row.level)] = (row, _classes(values, row.level))
        if row.sizes is not None:
            row.sizes.add(size_of(values))
        return row

    def _note(self, error: Exception) -> None:
        text = f"Python calls: {type(error).__name__}: {error}"
        if text not in self.problems:
            self.problems.append(text)


def _key(values: list[object], level: int) -> Hashable:
    if level == Level.NONE:
        return ()
    return (level, *(argument_key(value, Level(level)) for value in values))


def _classes(values: list[object], level: Level) -> tuple[type, ...]:
    """Return the classes that a key names by address, to be kept with it."""
    if level is Level.NONE:
        return ()
    classes = []
    for value in values:
        classes.append(type(value))
        if type(value) is tuple:
            classes += map(type, value[:TUPLE_ITEMS])
    return tuple(classes)


def _values(frame: FrameType) -> list[object]:
    """Read what the parameters of a frame hold, in cells or not."""
    code = frame.f_code
    n_parameters = len(parameters_of(code))
    if not n_parameters:
        return []
    held = frame.f_locals
    values = [held.get(name, UNBOUND) for name in code.co_varnames[:n_parameters]]
    if _LOCALS_STAY and not code.co_flags & _RESUMABLE:
        # Reading made a dictionary that would keep the arguments alive for as long as
        # the frame; before the first instruction nobody else can have it.
        held.clear()
    return values


_LOCALS_STAY = sys.version_info[:2] == (3, 12)
"""Before, the interpreter itself makes the dictionary for every profiling function, and
writes it back; from 3.13 on there is none."""
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class _SetProfile(_Reference):
    """``sys.setprofile``, for Python 3.10 and 3.11.

    One function per thread. Threads that start through ``threading`` from now on are
    seen, those that run already are not.
    """

    def __init__(self, engine: RowEngine, book: RowBook, *, builtins: bool) -> None:
        super().__init__(engine, book, builtins=builtins)
        self.backend = BackendInfo("python", "sys.setprofile", "")
        self._callback = self._on_event
        self._starter = 0
        self._threads_profile: Any = None

    def start(self) -> None:
        """Begin to see calls of this thread and of threads to come.

        Raises
        ------
        ActiveSessionError
            Another profiler has the one place there is.
        """
        found = sys.getprofile()
        if found is not None:
            raise ActiveSessionError(
                "Python calls cannot be seen: another profiler is active, "
                f"{type(found).__name__} in sys.getprofile(); stop it first"
            )
        self._starter = threading.get_ident()
        self._threads_profile = threading.getprofile()
        self._running = True
        threading.setprofile(self._callback)
        sys.setprofile(self._callback)

    def stop(self) -> None:
        """See no more calls; other threads take note at their next call."""
        if not self._running:
            return
        # Asked first: the callback takes itself away once it is told to.
        found = sys.getprofile()
        self._running = False
        if found == self._callback:
            sys.setprofile(None)
        elif threading.get_ident() == self._starter:
            taken = "another profiler took over sys.setprofile"
            if found is None:
                # The interpreter drops a profiling function that could not be called.
                taken = "sys.setprofile was reset, or the recursion limit was reached"
            self.problems.append(
                f"Python calls: {taken}; what was called after that is missing"
            )
        if threading.getprofile() == self._callback:
            threading.setprofile(self._threads_profile)

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        since = self._engine.now()
        if not self._running:
            if sys.getprofile() == self._callback:
                sys.setprofile(None)
            return
        if event == "call":
            code = frame.f_code
            self._enter(code, None if _is_made_up(frame) else frame, since)
        elif event == "return":
            self._leave(frame.f_code, since)
        elif not self._builtins:
            return
        elif event == "c_call":
            self._enter_builtin(frame.f_code, arg, NO_ARGUMENT, since)
        else:
            self._leave_builtin(frame.f_code, arg, NO_ARGUMENT, since)


def _is_made_up(frame: FrameType) -> bool:
    """Tell whether Numba made up a frame for a compiled call (``_dispatcher.cpp``).

    It has the code of the Python function, with CO_OPTIMIZED taken out of its flags for
    good, and globals of its own that hold nothing but ``__builtins__``.
    """
    flags = frame.f_code.co_flags
    return (
        flags & (inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS) == inspect.CO_NEWLOCALS
        and len(frame.f_globals) <= 1
        and "__builtins__" in frame.f_globals
    )


if sys.version_info >= (3, 12):
    _EVENTS = sys.monitoring.events
    _TOOLS = (3, 4, 5)
    """Tool ids without a meaning; 0 to 2 are for debuggers, coverage and profilers, and
    line_profiler and cProfile take the last."""

    class _Monitoring(_Reference):
        """``sys.monitoring``, for Python 3.12 and later: every thread is seen."""

        def __init__(self, engine: RowEngine, book: RowBook, *, builtins: bool) -> None:
            super().__init__(engine, book, builtins=builtins)
            self.backend = BackendInfo("python", "sys.monitoring", "")
            self._tool = -1

        def start(self) -> None:
            """Begin to see calls.

            Raises
            ------
            UnsupportedError
                Other tools have taken all ids.
            """
            self._claim()
            callbacks = {
                _EVENTS.PY_START: self._on_start,
                _EVENTS.PY_RESUME: self._on_start,
                _EVENTS.PY_THROW: self._on_throw,
                _EVENTS.PY_RETURN: self._on_return,
                _EVENTS.PY_YIELD: self._on_return,
                _EVENTS.PY_UNWIND: self._on_return,
            }
            if self._builtins:
                callbacks |= {
                    _EVENTS.CALL: self._on_call,
                    _EVENTS.C_RETURN: self._on_c_return,
                    _EVENTS.C_RAISE: self._on_c_return,
                }
            for event, callback in callbacks.items():
                sys.monitoring.register_callback(self._tool, event, callback)
            self._running = True
            # C_RETURN and C_RAISE come with CALL and cannot be set by themselves.
            chosen = 0
            for event in callbacks:
                if event not in (_EVENTS.C_RETURN, _EVENTS.C_RAISE):
                    chosen |= event
            sys.monitoring.set_events(self._tool, chosen)

        def stop(self) -> None:
            """See no more calls, in no thread."""
            tool = self._tool
            if tool < 0:
                return
            self._running = False
            if sys.monitoring.get_tool(tool) is not None:
                sys.monitoring.set_events(tool, 0)
                for event in _REGISTERED:
                    sys.monitoring.register_callback(tool, event, None)
                sys.monitoring.free_tool_id(tool)
            self._tool = -1

        def _claim(self) -> None:
            for tool in _TOOLS:
                if sys.monitoring.get_tool(tool) is None:
                    # First, so that stop() finds it whatever interrupts.
                    self._tool = tool
                    sys.monitoring.use_tool_id(tool, "numbaprof")
                    return
            names = ", ".join(str(sys.monitoring.get_tool(tool)) for tool in _TOOLS)
            raise UnsupportedError(
                f"Python calls cannot be seen: {names} hold the ids of sys.monitoring "
                "that are for any tool; stop one of them first"
            )

        def _on_start(self, code: CodeType, offset: int) -> None:
            since = self._engine.now()
            # Numba announces a compiled call with the code of its Python function,
            # while the frame that runs is the caller's.
            frame = sys._getframe(1)
            self._enter(code, frame if frame.f_code is code else None, since)

        def _on_throw(self, code: CodeType, offset: int, error: object) -> None:
            since = self._engine.now()
            frame = sys._getframe(1)
            self._enter(code, frame if frame.f_code is code else None, since)

        def _on_return(self, code: CodeType, offset: int, value: object) -> None:
            self._leave(code, self._engine.now())

        def _on_call(
            self, code: CodeType, offset: int, function: object, argument: object
        ) -> None:
            since = self._engine.now()
            if argument is sys.monitoring.MISSING:
                argument = NO_ARGUMENT
            self._enter_builtin(code, function, argument, since)

        def _on_c_return(
            self, code: CodeType, offset: int, function: object, argument: object
        ) -> None:
            since = self._engine.now()
            if argument is sys.monitoring.MISSING:
                argument = NO_ARGUMENT
            self._leave_builtin(code, function, argument, since)

    _REGISTERED = (
        _EVENTS.PY_START,
        _EVENTS.PY_RESUME,
        _EVENTS.PY_THROW,
        _EVENTS.PY_RETURN,
        _EVENTS.PY_YIELD,
        _EVENTS.PY_UNWIND,
        _EVENTS.CALL,
        _EVENTS.C_RETURN,
        _EVENTS.C_RAISE,
    )


def backend_request() -> str:
    """Return the backend that NUMBAPROF_BACKEND forces, "" for the best one.

    Raises
    ------
    OptionError
        It names none.
    """
    asked = os.environ.get(BACKEND_VARIABLE, "")
    if asked and asked not in BACKENDS:
        raise OptionError(
            f"{BACKEND_VARIABLE}={asked!r} must be one of {', '.join(BACKENDS)}"
        )
    return asked


def reference_tracer(
    engine: RowEngine, book: RowBook, *, builtins: bool = True
) -> Tracer:
    """Return the tracer in plain Python for this interpreter.

    Parameters
    ----------
    engine : RowEngine
        Where calls are pushed and popped.
    book : RowBook
        Which rows they belong to.
    builtins : bool
        Book calls of C functions too.
    """
    if sys.version_info >= (3, 12):
        return _Monitoring(engine, book, builtins=builtins)
    return _SetProfile(engine, book, builtins=builtins)


# -- the native tracer -----------------------------------------------------------------


class _NativeBook:
    """Answers the native tracer's questions out of a RowBook.

    Keeps what native keys name by address: classes, and dtypes that are not told by
    their number.
    """

    def __init__(self, book: RowBook) -> None:
        self.finest = int(book.level)
        self._book = book
        self._kept: list[object] = []
        self.sized: list[Row] = []

    def code_level(self, code: CodeType) -> int | None:
        return None if self._book.is_hidden(code) else int(self._book.level_of(code))

    def python_row(self, code: CodeType, frame: FrameType) -> tuple[int, int, bool]:
        values = [] if self.finest == Level.NONE else _values(frame)
        row = self._book.python_row(code, values)
        if row is None:
            return 0, -1, False
        sized = row.sizes is not None
        if row.level < Level.TYPE and any(
            key_kind(type(value)) == "described" for value in values
        ):
            # Its types alone do not tell which row it is: ask again next time.
            if row.sizes is not None:
                row.sizes.add(size_of(values))
            return row.address, -1, sized
        self._kept.append(_classes(values, row.level))
        self._kept += [v.dtype for v in values if type(v) is np.ndarray]
        if sized and row not in self.sized:
            self.sized.append(row)
        return row.address, int(row.level), sized

    def builtin_row(self, function: Any) -> int:
        # The native tracer does not say what a method is called on.
        row = self._book.builtin_row(function, ANY_ARGUMENT)
        return 0 if row is None else row.address


class _Native:
    """The tracer of :mod:`numbaprof.native.tracer` behind the Tracer protocol."""

    def __init__(self, engine: Any, book: RowBook, *, builtins: bool) -> None:
        from numbaprof.native.tracer import NativeTracer

        self.problems: list[str] = []
        self.backend = BackendInfo("python", "native")
        self._known = 0
        self._book = _NativeBook(book)
        self._tracer = NativeTracer(engine, self._book, builtins=builtins)

    def start(self) -> None:
        self._tracer.start()
        self._known = len(self._tracer.problems)

    def stop(self) -> None:
        self._tracer.stop()
        # What it could not see from the start is no error, but the reason of a limit.
        limits = "; ".join(self._tracer.problems[: self._known])
        self.backend = replace(self.backend, reason=limits)
        for row in self._book.sized:
            calls, smallest, largest = self._tracer.sizes(row.address)
            if row.sizes is not None:
                row.sizes.add(smallest, largest, calls)
        self.problems += [
            f"Python calls: {problem}"
            for problem in self._tracer.problems[self._known :]
        ]
        self.problems += [
            f"Python calls: {type(error).__name__}: {error}"
            for error in self._tracer.failures
        ]


def make_tracer(engine: Any, book: RowBook, *, builtins: bool = True) -> Tracer:
    """Return the best tracer there is here, or the one NUMBAPROF_BACKEND asks for.

    Parameters
    ----------
    engine : Engine
        Where calls are pushed and popped; native code reaches into it.
    book : RowBook
        Which rows they belong to.
    builtins : bool
        Book calls of C functions too.

    Raises
    ------
    OptionError
        NUMBAPROF_BACKEND names no backend.
    UnsupportedError
        It asks for the native one, and that cannot be had; the message is the reason.
    """
    asked = backend_request()
    if asked == "python":
        reason = f"{BACKEND_VARIABLE}=python"
    else:
        try:
            return _Native(engine, book, builtins=builtins)
        except UnsupportedError as error:
            if asked:
                raise
            reason = str(error)
    from numbaprof.native.row_stack import RowStack

    tracer = reference_tracer(RowStack(engine), book, builtins=builtins)
    tracer.backend = replace(tracer.backend, reason=reason)
    return tracer
