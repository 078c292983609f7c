"""One measurement from start to stop, and the user's handle on it.

:class:`Session` owns the lifetime: one per process at a time, everything restored at
the end whatever the end is, the books closed in one step. :class:`profile` is what
users call.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

from numbaprof import environment
from numbaprof.errors import (
    ActiveSessionError,
    AttachError,
    NumbaprofWarning,
    OptionError,
    SessionStateError,
    TargetError,
    UnsupportedError,
)
from numbaprof.model import (
    BackendInfo,
    ClockInfo,
    CompileEvent,
    Environment,
    FunctionId,
    Losses,
    OverloadStats,
    ProcessRun,
    ProfileResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import FrameType, TracebackType

    import pandas as pd

    from numbaprof.compile_events import CompileEvents
    from numbaprof.dispatch_hook import DispatchHook, Record
    from numbaprof.fingerprinting import Fingerprinting
    from numbaprof.line_level import LineLevel
    from numbaprof.native.clock import ClockPair
    from numbaprof.native.numba_api import FunctionRegistry
    from numbaprof.native.shared import SharedEngine
    from numbaprof.python_level import PythonLevel
    from numbaprof.tree import Folded, UfuncEdge

__all__ = [
    "Session",
    "SessionOptions",
    "active_session",
    "profile",
]


INTERVAL_MIN_S = 5e-5
"""Seconds between two samples: handling one takes about a fifth of it."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What to measure, and how."""

    clock: str | None = None
    """Clock of the exact figures: tsc, cntvct, clock_gettime; None for the best."""
    label: str = "main"
    """Name of this process in a merged profile."""
    detail: tuple[str, ...] = ()
    """Patterns of qualified names whose calls are split into unbox, kernel and box."""
    python: bool = False
    """See every call of Python and builtin functions, too."""
    signatures: bool | str = "shape"
    """What tells rows of one Python function apart: "shape" (dtype and shape of arrays,
    types of the rest), "ndim" (without the lengths), "type" or False."""
    builtins: bool = True
    """With ``python``, see functions written in C, too."""
    calls: bool = True
    """Count and time calls. Without it nothing stands in front of compiled code: only
    compilations and cache loads are recorded."""
    prime: bool = False
    """Compile a small function before measuring, once per process: the first
    compilation pays for starting Numba's compiler, whichever it is."""
    fingerprints: bool = False
    """At the end, hash the machine code of the overloads that were used."""
    lines: bool = False
    """Sample the source lines of compiled code."""
    interval: float | None = None
    """With ``lines``, seconds of CPU time between two samples; None for 4 ms."""
    twin_budget: float = 30.0
    """With ``lines``, seconds that may be spent, once measuring has ended, on finding
    lines of code that was compiled before or loaded from a cache."""
    perf_map: bool = False
    """At the end, append the names of compiled functions to ``/tmp/perf-PID.map``."""
    compile_clock: Literal["wall", "cpu"] = "wall"
    """Clock of the compile events: time of day, or CPU time of the process, which
    depends less on what else the machine does."""

    def __post_init__(self) -> None:
        # What arrives is what a user wrote, whatever the annotations say.
        detail: Any = self.detail
        label: Any = self.label
        if isinstance(detail, str) or not isinstance(detail, Iterable):
            raise OptionError(
                f"detail={detail!r} is a {type(detail).__name__}; give a tuple of "
                f"patterns, such as detail=({str(detail)!r},)"
            )
        object.__setattr__(self, "detail", tuple(detail))
        for pattern in detail:
            if not isinstance(pattern, str) or not pattern:
                raise OptionError(
                    f"detail contains {pattern!r}; each entry is a pattern of "
                    "qualified names such as 'kernel' or 'module.*'"
                )
        if not isinstance(label, str) or not label:
            raise OptionError(f"label={label!r} must be a non-empty string")
        for name in FLAGS:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise OptionError(f"{name}={value!r} must be True or False")
        if self.python and not self.calls:
            raise OptionError("python=True sees calls; leave calls=False out")
        if self.compile_clock not in ("wall", "cpu"):
            raise OptionError(
                f"compile_clock={self.compile_clock!r} must be 'wall' or 'cpu'"
            )
        self._check_signatures()
        self._check_lines()

    def _check_lines(self) -> None:
        interval: Any = self.interval
        budget: Any = self.twin_budget
        if interval is not None and not self.lines:
            raise OptionError(
                f"interval={interval!r} is about source lines, which are not sampled; "
                "add lines=True"
            )
        if interval is not None and not _is_number(interval):
            raise OptionError(
                f"interval={interval!r} must be a number of seconds, such as 0.004"
            )
        if interval is not None and interval < INTERVAL_MIN_S:
            raise OptionError(
                f"interval={interval!r} is too short to sample; use {INTERVAL_MIN_S} "
                "seconds or more"
            )
        if not _is_number(budget) or budget < 0:
            raise OptionError(f"twin_budget={budget!r} must be seconds, 0 or more")

    def _check_signatures(self) -> None:
        from numbaprof.signatures import Level

        level = Level.of(self.signatures)
        if level is not Level.SHAPE and not self.python:
            raise OptionError(
                f"signatures={self.signatures!r} is about Python functions, which are "
                "not measured; add python=True"
            )


FLAGS = ("python", "calls", "prime", "fingerprints", "lines", "perf_map")
"""Options that are True or False."""
CALLS_REASON = "calls were not to be counted"
NO_FINGERPRINTS = "not asked for; see the option `fingerprints`"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_LOCK = threading.RLock()
"""Reentrant, for signal handlers; made anew in a forked child."""
_active: Session | None = None


def active_session() -> Session | None:
    """Return the session that is running in this process, if any."""
    return _active


class Session:
    """One measurement of this process.

    Parameters
    ----------
    options : SessionOptions, optional
        What to measure.
    after : Session, optional
        An earlier session of this process; functions keep the identities they had in
        it, so that the results can be added.

    Attributes
    ----------
    gives_way : callable or None
        Called when another session is about to start while this one runs. It may stop
        this one; otherwise the other one is refused.

    Notes
    -----
    Starting takes about 0.3 s in a process for the first time (the engine is compiled
    and tested) and milliseconds after that, plus about 50 us per overload alive.
    """

    def __init__(
        self, options: SessionOptions | None = None, *, after: Session | None = None
    ) -> None:
        self.options = SessionOptions() if options is None else options
        self.gives_way: Callable[[], None] | None = None
        self._registry: FunctionRegistry | None = (
            None if after is None else after._registry
        )
        self.started_at = ""
        self._shared: SharedEngine | None = None
        self._dispatch: DispatchHook | None = None
        self._compiles: CompileEvents | None = None
        self._prints: Fingerprinting | None = None
        self._first: ClockPair | None = None
        self._started = ""
        self._start_ns = 0
        self._label = self.options.label
        self._threads: dict[int, str] = {}
        self._compile_reason = ""
        self._python: PythonLevel | None = None
        self._python_reason = ""
        self._lines: LineLevel | None = None
        self._state = "new"
        self.result: ProfileResult | None = None
        """What was measured, once the session has stopped."""

    @property
    def registry(self) -> FunctionRegistry:
        """Gives the functions of this session their identities; imports Numba."""
        if self._registry is None:
            from numbaprof.native.numba_api import FunctionRegistry

            self._registry = FunctionRegistry()
        return self._registry

    @property
    def active(self) -> bool:
        """Whether this session is measuring now."""
        return self._state == "running"

    @property
    def origin_ns(self) -> int:
        """Reading of ``time.perf_counter_ns`` that compile events count from."""
        return 0 if self._compiles is None else self._compiles.origin_ns

    @property
    def compile_count(self) -> int:
        """Number of compilations, cache loads and failures that have ended so far."""
        return 0 if self._compiles is None else self._compiles.recorded

    # -- lifetime ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to measure.

        Raises
        ------
        ActiveSessionError
            Another session is running in this process.
        SessionStateError
            This session was started before.
        """
        claimed = False
        try:
            with _uninterrupted():
                self._claim()
                claimed = True
                self._install()
            if self._lines is not None:
                self._lines.start_sampling()
                if self._lines.reason:
                    _warn_no_lines(self._lines.reason)
            # Last, so that nothing of ours is seen.
            if self._python is not None:
                self._python.start()
        except BaseException:
            if claimed:
                self.abandon()
            raise

    def abandon(self) -> None:
        """Put everything back without a result, if this session still runs.

        For a start that an exception cut off, even after all was in place.
        """
        with _uninterrupted():
            if _active is not self:
                return
            try:
                if self._python is not None:
                    self._python.stop()
                if self._lines is not None:
                    self._lines.stop_sampling()
                if self._shared is not None and self._shared.engine is not None:
                    self._shared.engine.stop()
                if self._compiles is not None:
                    self._compiles.stop()
                if self._prints is not None:
                    self._prints.abandon()
                if self._dispatch is not None:
                    self._dispatch.stop()
                if self._lines is not None:
                    self._lines.stop_tables()
            finally:
                self._release("failed")

    def _claim(self) -> None:
        global _active
        other = _active
        if other is not None and other.gives_way is not None and self._state == "new":
            other.gives_way()
        with _LOCK:
            if _active is not None:
                raise ActiveSessionError(
                    "a numbaprof session is already running, started at "
                    f"{_active.started_at}; stop it first"
                )
            if self._state != "new":
                raise SessionStateError(
                    f"this session is {self._state}; make a new one to measure again"
                )
            self.started_at = _call_site()
            self._state = "starting"
            _active = self

    def _release(self, state: str) -> None:
        global _active
        with _LOCK:
            self._state = state
            if _active is self:
                _active = None

    def _install(self) -> None:
        # Numba is imported here, by whoever starts, and not with the package.
        from numbaprof.compile_events import CompileEvents
        from numbaprof.dispatch_hook import DispatchHook
        from numbaprof.native import clock
        from numbaprof.native.shared import SharedEngine, shared_engine

        if self.options.prime:
            from numbaprof.native.priming import prime

            prime()
        shared = (
            shared_engine(self.options.clock)
            if self.options.calls
            else SharedEngine(None, CALLS_REASON)
        )
        if shared.engine is None and self.options.calls:
            _warn_no_engine(shared.reason)
        registry = self.registry
        dispatch = DispatchHook(
            shared.engine,
            registry,
            reason=shared.reason,
            detail=self.options.detail,
        )
        self._python = self._make_python_level(shared)
        tree = None if shared.engine is None else _EngineFrames(shared.engine)
        cpu = self.options.compile_clock == "cpu"
        compile_clock = time.process_time_ns if cpu else time.perf_counter_ns
        compiles = CompileEvents(registry, tree=tree, clock=compile_clock)
        self._shared, self._dispatch, self._compiles = shared, dispatch, compiles
        self._started = environment.now_text()
        self._threads = _thread_names()
        if self.options.fingerprints:
            from numbaprof.fingerprinting import Fingerprinting

            self._prints = Fingerprinting()
            self._prints.start()
        self._lines = self._make_line_level()
        dispatch.start()
        try:
            compiles.start()
        except (AttachError, UnsupportedError) as error:
            self._compile_reason = str(error)
            _warn_no_compile_events(self._compile_reason)
        if shared.engine is not None:
            # Last, so that the time spent attaching is not the program's.
            shared.engine.start(shared.ns_per_tick)
            dispatch.bind_to_epoch()
            self._first = clock.read_pair(shared.engine.now)
        self._start_ns = time.perf_counter_ns()
        self._state = "running"

    def _make_line_level(self) -> LineLevel | None:
        if not self.options.lines:
            return None
        from numbaprof.line_level import LineLevel

        interval = self.options.interval
        level = LineLevel(
            interval_ns=None if interval is None else round(interval * 1e9),
            twin_budget_s=self.options.twin_budget,
        )
        level.start_tables()
        return level

    def _make_python_level(self, shared: SharedEngine) -> PythonLevel | None:
        if not self.options.python:
            return None
        from numbaprof.python_level import PythonLevel
        from numbaprof.signatures import Level

        if shared.engine is None:
            self._python_reason = shared.reason
            _warn_no_python_level(shared.reason)
            return None
        return PythonLevel(
            shared.engine,
            Level.of(self.options.signatures),
            builtins=self.options.builtins,
        )

    def stop(self, exit: str = "") -> ProfileResult:
        """End measuring, put everything back, and return the profile.

        Parameters
        ----------
        exit : str, optional
            How the program ended, for the record.

        Raises
        ------
        SessionStateError
            The session is not running.
        """
        if self._state == "running" and self._python is not None:
            # First, so that nothing of ours is seen.
            self._python.stop()
        with _uninterrupted() as held:
            with _LOCK:
                if self._state != "running":
                    raise SessionStateError(
                        f"this session is {self._state}, not running; start it first"
                    )
                self._state = "stopping"
            state = "failed"
            try:
                self.result = self._finish(exit, lambda: bool(held))
                state = "stopped"
            finally:
                self._release(state)
        return self.result

    def _finish(self, exit: str, is_pressed: Callable[[], bool]) -> ProfileResult:
        from numbaprof.native import clock

        shared, dispatch, compiles = self._parts()
        engine = shared.engine
        wall_ns = time.perf_counter_ns() - self._start_ns
        if self._lines is not None:
            self._lines.stop_sampling()
        last = None
        if engine is not None:
            engine.stop()
            last = clock.read_pair(engine.now)
        try:
            compiles.stop()
        finally:
            dispatch.stop()
            if self._prints is not None:
                self._prints.stop()
            if self._lines is not None:
                self._lines.stop_tables()
        self._threads.update(_thread_names())
        clock_info = _no_clock(shared.reason)
        if engine is not None and self._first is not None and last is not None:
            clock_info = clock.describe(engine.clock, self._first, last)
        result = self._assemble(wall_ns, clock_info, exit)
        return self._with_lines(result, is_pressed)

    def _with_lines(
        self, result: ProfileResult, is_pressed: Callable[[], bool]
    ) -> ProfileResult:
        """Add the lines; all is restored by now, and twins may be compiled."""
        if self._lines is None:
            return result
        _, dispatch, compiles = self._parts()
        parts = self._lines.parts(dispatch, compiles.spans(), is_pressed)
        return replace(
            result,
            line_sites=parts.sites,
            stacks=parts.stacks,
            sampling=parts.sampling,
            line_facts=parts.facts,
        )

    def _parts(self) -> tuple[SharedEngine, DispatchHook, CompileEvents]:
        if self._shared is None or self._dispatch is None or self._compiles is None:
            raise SessionStateError(f"this session is {self._state}; start it first")
        return self._shared, self._dispatch, self._compiles

    # -- while it runs ----------------------------------------------------------------

    def counters(
        self, *, inclusive: bool = False
    ) -> dict[tuple[FunctionId, str], tuple[int, float]]:
        """Return (calls, exclusive nanoseconds) so far, by function and signature.

        Cheap enough to be read between rounds of calls; overloads that were not called
        are left out, and calls under way. Empty once the session has stopped.

        Parameters
        ----------
        inclusive : bool, optional
            Nanoseconds with what was called; recursion counts them twice.

        Raises
        ------
        SessionStateError
            The session was not started.
        """
        shared, dispatch, _ = self._parts()
        if self._state != "running":
            return {}
        return {
            key: (calls, ticks * shared.ns_per_tick)
            for key, (calls, ticks) in dispatch.counters(inclusive=inclusive).items()
        }

    def compile_events(self) -> tuple[CompileEvent, ...]:
        """Return the compilations, cache loads and failures so far."""
        return self._parts()[2].events()

    # -- fork -------------------------------------------------------------------------

    def reset_after_fork(self, label: str) -> None:
        """Start counting from nothing in a forked child.

        Parameters
        ----------
        label : str
            Name of the child's process in a merged profile.
        """
        from numbaprof.native import clock

        global _LOCK
        # Whoever held it in the parent does not exist here.
        _LOCK = threading.RLock()
        shared, dispatch, compiles = self._parts()
        self._label = label
        self._started = environment.now_text()
        compiles.reset_after_fork()
        if shared.engine is not None:
            shared.engine.restart_after_fork(shared.ns_per_tick)
            dispatch.reset_after_fork()
            if self._python is not None:
                self._python.reset_after_fork()
            if self._lines is not None:
                self._lines.reset_after_fork()
            self._first = clock.read_pair(shared.engine.now)
        self._start_ns = time.perf_counter_ns()

    def _write_perf_map(self, records: list[Record]) -> None:
        """Tell perf the names of all compiled functions."""
        from numbaprof.native import objcode, perf_map

        names = {
            record.symbol: f"{record.function.qualname}{record.signature}"
            for record in records
            if record.symbol
        }
        try:
            perf_map.append(objcode.load_objects(), names)
        except UnsupportedError as error:
            _warn_no_perf_map(str(error))

    # -- assembling -------------------------------------------------------------------

    def _assemble(self, wall_ns: int, clock: ClockInfo, exit: str) -> ProfileResult:
        from numbaprof.dispatch_hook import boxing_split

        _, dispatch, compiles = self._parts()
        if self.options.perf_map:
            self._write_perf_map(dispatch.records)
        ns_per_tick = 1e9 / clock.ticks_per_second
        frozen = dispatch.overloads(ns_per_tick)
        events = compiles.events()
        folded = self._fold(frozen, ns_per_tick)
        kept = _kept_overloads(frozen, folded, events)
        overloads = _with_compile_times(
            [
                boxing_split(
                    _with_totals(frozen[i][0], folded, i), frozen[i][1], ns_per_tick
                )
                for i in kept
            ],
            events,
        )
        overloads = [
            _with_fingerprint(overload, frozen[i][1], self._prints)
            for i, overload in zip(kept, overloads, strict=True)
        ]
        position = {old: new for new, old in enumerate(kept)}
        contexts = tuple(
            replace(node, overload=position[node.overload])
            if node.overload >= 0
            else node
            for node in folded.contexts
        )
        losses = Losses(
            in_flight_calls=folded.in_flight,
            truncated_contexts=folded.truncated,
            unattached=_unattached(dispatch.records),
            unfinished_compilations=compiles.unfinished,
            hook_errors=(
                *dispatch.errors.messages(),
                *compiles.hook_errors,
                *folded.problems,
                *(self._python.problems if self._python is not None else ()),
            ),
            unrestored=(
                *dispatch.unrestored,
                *compiles.unrestored,
                *(self._lines.unrestored if self._lines is not None else ()),
            ),
        )
        run = ProcessRun(
            environment=self._environment(clock),
            wall_ns=wall_ns,
            pid=os.getpid(),
            label=self._label,
            exit=exit,
            tracing_ns=folded.tracing_ns,
        )
        return ProfileResult(
            processes=(run,),
            overloads=tuple(overloads),
            dispatchers=dispatch.dispatchers(),
            compile_events=events,
            contexts=contexts,
            losses=losses,
            python_rows=() if self._python is None else self._python.rows(folded),
        )

    def _fold(
        self, frozen: list[tuple[OverloadStats, list[Record]]], ns_per_tick: float
    ) -> Folded:
        from numbaprof import tree
        from numbaprof.native.engine import Slot, UfuncSlot

        engine = self._parts()[0].engine
        if engine is None:
            return tree.Folded()
        addresses: dict[int, int] = {}
        edges: list[UfuncEdge] = []
        for index, (_, records) in enumerate(frozen):
            for record in records:
                if isinstance(record.slot, Slot):
                    addresses[record.slot.address] = index
                elif isinstance(record.slot, UfuncSlot):
                    edges += [
                        tree.UfuncEdge(index, *edge)
                        for edge in engine.edges(record.slot)
                    ]
        return tree.fold(
            engine.records(),
            edges,
            addresses,
            self._threads,
            ns_per_tick,
            rows=None if self._python is None else self._python.addresses(),
        )

    def _environment(self, clock: ClockInfo) -> Environment:
        from numbaprof.native import numba_api
        from numbaprof.version import __version__

        shared, dispatch, _ = self._parts()
        disabled = numba_api.jit_is_disabled()
        source = "none" if self._compile_reason else "numba.core.event"
        backends = [
            dispatch.backend,
            BackendInfo("compile events", source, self._compile_reason),
        ]
        if self._python is not None:
            backends.append(self._python.backend)
        elif self.options.python:
            backends.append(BackendInfo("python", "none", self._python_reason))
        if self._lines is not None:
            backends.append(self._lines.backend)
        return Environment(
            python=environment.python_text(),
            numba=numba_api.version(),
            llvmlite=environment.package_version("llvmlite"),
            numpy=environment.package_version("numpy"),
            numbaprof=__version__,
            platform=environment.platform_text(),
            cpu=environment.cpu_name(),
            cpu_count=environment.cpu_count(),
            numba_num_threads=numba_api.num_threads_setting(),
            threading_layer=numba_api.threading_layer(),
            numba_settings=environment.numba_settings(),
            command_line=environment.command_line(),
            started=self._started,
            clock=clock,
            target=numba_api.target_text(),
            overhead_ns=shared.overhead_ns,
            overhead_reason=shared.reason,
            backends=tuple(backends),
            jit_disabled=disabled,
        )


class _EngineFrames:
    """Lets compile events push frames on the engine's shadow stack."""

    def __init__(self, engine: Any) -> None:
        from numbaprof.native.layout import PseudoSlot

        self._engine = engine
        self._kinds = {
            "compile": PseudoSlot.COMPILE,
            "cache_load": PseudoSlot.CACHE_LOAD,
            "cache_miss": PseudoSlot.CACHE_MISS,
        }

    def open_frame(self, kind: str) -> int:
        return int(self._engine.open_frame(self._kinds[kind]))

    def rename_frame(self, token: int, kind: str) -> None:
        self._engine.rename_frame(token, self._kinds[kind])

    def close_frame(self, token: int) -> None:
        self._engine.close_frame(token)


def _warn_no_engine(reason: str) -> None:
    warnings.warn(
        NumbaprofWarning(
            "no-engine",
            f"calls and times of overloads cannot be measured here: {reason}",
        ),
        stacklevel=_stacklevel(),
    )


def _warn_no_python_level(reason: str) -> None:
    warnings.warn(
        NumbaprofWarning(
            "no-python-level", f"Python functions cannot be measured here: {reason}"
        ),
        stacklevel=_stacklevel(),
    )


def _warn_no_lines(reason: str) -> None:
    warnings.warn(
        NumbaprofWarning("no-lines", f"source lines cannot be sampled here: {reason}"),
        stacklevel=_stacklevel(),
    )


def _warn_no_compile_events(reason: str) -> None:
    warnings.warn(
        NumbaprofWarning(
            "no-compile-events", f"compilations cannot be recorded here: {reason}"
        ),
        stacklevel=_stacklevel(),
    )


def _warn_no_perf_map(reason: str) -> None:
    warnings.warn(
        NumbaprofWarning("no-perf-map", f"perf will not know Numba's names: {reason}"),
        stacklevel=_stacklevel(),
    )


def _no_clock(reason: str) -> ClockInfo:
    return ClockInfo("none", reason, 1e9, 1.0, 0.0)


def _kept_overloads(
    frozen: list[tuple[OverloadStats, list[Record]]],
    folded: Folded,
    events: tuple[CompileEvent, ...],
) -> list[int]:
    """Return the indices of overloads worth a row.

    Numba's own helpers that were there before and were not called are left out.
    """
    return [
        index
        for index, (stats, _) in enumerate(frozen)
        if not stats.internal
        or stats.created_in_session
        or folded.totals[index].calls
        or folded.totals[index].in_flight
    ]


def _with_totals(stats: OverloadStats, folded: Folded, index: int) -> OverloadStats:
    """Fill in what the tree knows of one overload."""
    totals = folded.totals[index]
    if stats.calls is None:
        return stats
    if not stats.countable and totals.calls == 0 and totals.in_flight == 0:
        # Nothing was seen, and not everything can be: that is not zero.
        return replace(stats, calls=None, inclusive_ns=None, exclusive_ns=None)
    return replace(
        stats,
        calls=totals.calls,
        errors=totals.errors,
        in_flight=totals.in_flight,
        inclusive_ns=totals.inclusive_ns,
        exclusive_ns=totals.exclusive_ns,
        dispatch_ns=None if stats.dispatch_ns is None else totals.dispatch_ns,
    )


def _with_fingerprint(
    overload: OverloadStats, records: list[Record], prints: Fingerprinting | None
) -> OverloadStats:
    """Give an overload the fingerprint of its code, or the reason why it has none."""
    if prints is None:
        return replace(overload, fingerprint_reason=NO_FINGERPRINTS)
    from numbaprof import fingerprinting

    used = overload.created_in_session or overload.calls or overload.in_flight
    found, reason = None, ""
    if overload.internal:
        reason = fingerprinting.OF_NUMBA
    elif not used:
        reason = fingerprinting.NOT_USED
    else:
        found, reason = prints.of([record.symbol for record in records])
    return replace(overload, fingerprint=found, fingerprint_reason=reason)


def _with_compile_times(
    overloads: list[OverloadStats], events: tuple[CompileEvent, ...]
) -> list[OverloadStats]:
    """Give each overload the time of its compilations and cache loads.

    Overloads of one function whose signatures read alike (``(f) #2``) get the events in
    the order both were made.
    """
    queues: dict[tuple[object, str], list[CompileEvent]] = {}
    for event in events:
        if _is_part_of_itself(event, events):
            # A jitclass method compiled for its wrapper: its time is in the wrapper's.
            event = replace(event, inclusive_ns=0)
        queues.setdefault((event.function, event.signature), []).append(event)
    twins = Counter((o.function, _base_signature(o)) for o in overloads)
    found = []
    for overload in overloads:
        key = (overload.function, _base_signature(overload))
        queue = queues.get(key, [])
        mine = queue
        if twins[key] > 1:
            take = max(1, len(queue) - twins[key] + 1)
            mine, queues[key] = queue[:take], queue[take:]
            twins[key] -= 1
        found.append(_with_events(overload, mine))
    return found


def _is_part_of_itself(event: CompileEvent, events: tuple[CompileEvent, ...]) -> bool:
    """Tell whether an event happened inside one of the same overload."""
    around = event.parent
    while around >= 0:
        outer = events[around]
        if (outer.function, outer.signature) == (event.function, event.signature):
            return True
        around = outer.parent
    return False


def _base_signature(overload: OverloadStats) -> str:
    return overload.signature.partition(" #")[0]


def _with_events(overload: OverloadStats, events: list[CompileEvent]) -> OverloadStats:
    compiled = [event for event in events if event.event == "compile"]
    loaded = [event for event in events if event.event == "cache_load"]
    if not compiled and not loaded:
        reason = overload.compile_reason or "Numba announced no compilation of it"
        return replace(overload, compile_reason=reason)
    origin = overload.origin
    if origin != "internal":
        if loaded and not compiled:
            origin = "cache"
        elif origin == "cache":
            origin = "compiled"
    return replace(
        overload,
        origin=origin,
        compile_ns=sum(event.inclusive_ns for event in compiled),
        compile_self_ns=sum(event.exclusive_ns for event in compiled),
        cache_load_ns=sum(event.inclusive_ns for event in loaded),
        compile_reason="",
    )


def _unattached(records: list[Record]) -> tuple[tuple[str, int], ...]:
    reasons = Counter(
        record.reason
        for record in records
        if record.slot is None and record.reason and not record.internal
    )
    return tuple(sorted(reasons.items()))


def _thread_names() -> dict[int, str]:
    """Map the idents of known threads to names; the main thread is MainThread."""
    names = {
        thread.ident: thread.name
        for thread in list(threading._active.values())  # type: ignore[attr-defined]
        if thread.ident is not None
    }
    main = threading.main_thread().ident
    if main is not None:
        names[main] = "MainThread"
    return names


def _outer_frame() -> tuple[FrameType | None, int]:
    """Return the innermost frame outside this file, and how far up it is."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    return frame, level


_PACKAGE = os.path.dirname(__file__)


def _call_site() -> str:
    frame, _ = _outer_frame()
    if frame is None:
        return "an unknown place"
    if frame.f_code.co_filename == os.path.join(_PACKAGE, "recorder.py"):
        return "the beginning, by `numbaprof run`"
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _stacklevel() -> int:
    return _outer_frame()[1] - 1


@contextmanager
def _uninterrupted() -> Iterator[list[Any]]:
    """Hold Ctrl-C and other signals back until patches are all in place or all gone.

    Only those with handlers in Python, which may raise, and in the main thread, the
    only one they run in. The handlers found are put back, then told.

    Yields
    ------
    list
        What is held back so far: whoever takes long may look whether to hurry.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    pending: list[tuple[int, FrameType | None]] = []
    found = {int(n): signal.getsignal(n) for n in signal.valid_signals()}
    held = {number: was for number, was in found.items() if callable(was)}

    def hold(number: int, frame: FrameType | None) -> None:
        pending.append((number, frame))

    try:
        # In one call of a C function, here and below: between two steps of Python a
        # handler that is not held may raise, and not every step of a loop is in `try`.
        deque(map(signal.signal, held, repeat(hold)), maxlen=0)
        yield pending
    finally:
        deque(map(signal.signal, held.keys(), held.values()), maxlen=0)
        for told, frame in pending:
            held[told](told, frame)


class profile:  # used like a function, as contextlib.suppress is
    """Profile a function, a block, or everything between two points.

    Parameters
    ----------
    func : callable, optional
        What to call. Without it the object is a context manager, a decorator, or
        started and stopped by hand.
    **options
        Fields of :class:`SessionOptions`.

    Raises
    ------
    TargetError
        ``func`` is not callable.
    OptionError
        An option does not exist or has a value it cannot have.

    Examples
    --------
    >>> value = numbaprof.profile(func)(*args)
    >>> with numbaprof.profile() as p:
    ...     work()
    >>> p.stats

    Notes
    -----
    Several runs of one object add up. A profiled function that calls itself through
    the profiler is measured once, by the outermost call.
    """

    def __init__(self, func: Callable[..., Any] | None = None, **options: Any) -> None:
        if func is not None and not callable(func):
            raise TargetError(
                f"cannot profile {func!r}, of type {type(func).__name__}: it is not "
                "callable; "
                "use `with numbaprof.profile(): ...` around a block"
            )
        if func is not None and _runs_later(func):
            name = getattr(func, "__qualname__", func)
            raise TargetError(
                f"cannot profile {name}: calling it only makes a coroutine or "
                "generator, which runs after the profile has ended; use "
                "`with numbaprof.profile(): ...` where it runs"
            )
        self._func = func
        self._options = _options(options)
        self._session: Session | None = None
        self._result: ProfileResult | None = None
        if func is not None:
            functools.update_wrapper(self, func, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function under the profiler and return its value.

        Without a function: decorate the one given.
        """
        if self._func is None:
            return self._decorate(*args, **kwargs)
        if self._running is not None:
            return self._func(*args, **kwargs)
        session = self._new_session()
        try:
            try:
                self._start(session)
                return self._func(*args, **kwargs)
            finally:
                if session.active:
                    self.stop(exit=_exit_text(sys.exc_info()[1]))
        except BaseException:
            # Interrupted before stopping began.
            if session.active:
                self.stop()
            raise

    @property
    def _running(self) -> Session | None:
        session = self._session
        return session if session is not None and session.active else None

    def _new_session(self) -> Session:
        return Session(self._options)

    def _decorate(self, *args: Any, **kwargs: Any) -> profile:
        if len(args) != 1 or kwargs or not callable(args[0]):
            raise TargetError(
                "this profile has no function; use it as `with profile():`, as a "
                f"decorator, or write profile(func)(*args); got {args!r} {kwargs!r}"
            )
        return self._around(args[0])

    def _around(self, func: Callable[..., Any]) -> profile:
        """Return a profile of a function with the options of this one."""
        return profile(func, **self._given_options())

    def _given_options(self) -> dict[str, Any]:
        return {f.name: getattr(self._options, f.name) for f in fields(self._options)}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind like a function, so that methods can be decorated."""
        return self if instance is None else functools.partial(self, instance)

    def __enter__(self) -> profile:
        """Start measuring."""
        session = self._new_session()
        try:
            self._start(session)
            return self
        except BaseException:
            # Interrupted just after starting: `with` will not call __exit__.
            if session.active:
                self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop measuring; an exception passes on unchanged."""
        try:
            self.stop(exit=_exit_text(error))
        except BaseException:
            if self._running is not None:
                self.stop()
            raise

    def start(self) -> None:
        """Start measuring.

        Raises
        ------
        ActiveSessionError
            Another session is running in this process.
        """
        self._start(self._new_session())

    def _start(self, session: Session) -> None:
        try:
            session.start()
            self._session = session
        except BaseException:
            session.abandon()
            raise

    def stop(self, exit: str = "") -> ProfileResult:
        """Stop measuring and return the profile of all runs so far.

        Raises
        ------
        SessionStateError
            Nothing was started.
        """
        session = self._running
        if session is None:
            raise SessionStateError("this profile is not running; call start() first")
        try:
            session.stop(exit)
        except BaseException:
            # Interrupted before stopping began.
            if session.active:
                session.stop(exit)
            raise
        finally:
            # Ctrl-C is told after stopping; what was measured is not lost for it.
            if not session.active:
                self._session = None
            if session.result is not None:
                self._add(session.result)
        return self.result

    def _add(self, result: ProfileResult) -> None:
        self._result = result if self._result is None else self._result + result

    @property
    def result(self) -> ProfileResult:
        """The finished profile.

        Raises
        ------
        SessionStateError
            Nothing has been measured yet.
        """
        if self._result is None:
            state = "is still running" if self._running else "has not run yet"
            raise SessionStateError(f"this profile {state}; there is no result")
        return self._result

    @property
    def stats(self) -> pd.DataFrame:
        """One row per overload."""
        return self.result.stats

    @property
    def compiles(self) -> pd.DataFrame:
        """One row per compilation, cache load and failure."""
        return self.result.compiles

    @property
    def findings(self) -> pd.DataFrame:
        """One row per piece of advice."""
        return self.result.findings

    @property
    def callers(self) -> pd.DataFrame:
        """One row per overload and caller."""
        return self.result.callers

    @property
    def functions(self) -> pd.DataFrame:
        """Python functions, builtins and overloads in pstats terms."""
        return self.result.functions

    @property
    def lines(self) -> pd.DataFrame:
        """One row per overload and source line, sampled or counted."""
        return self.result.lines

    def report(self, **options: Any) -> str:
        """Return the report as plain text; see :meth:`ProfileResult.report`."""
        return self.result.report(**options)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile as JSON."""
        self.result.save(path)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Render as one HTML document, and write it to ``path`` if given."""
        return self.result.to_html(path)

    def __str__(self) -> str:
        return repr(self) if self._result is None else self.report()

    def __repr__(self) -> str:
        what = getattr(self._func, "__qualname__", repr(self._func))
        target = "" if self._func is None else f" of {what}"
        state = "running" if self._running else "ready"
        if self._result is not None and not self._running:
            state = f"{len(self._result.overloads)} overloads"
        return f"<numbaprof.profile{target}, {state}>"

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> dict[str, str]:
        if self._result is None:
            return {"text/plain": repr(self)}
        return self._result._repr_mimebundle_(include, exclude)

    def _repr_html_(self) -> str | None:
        return None if self._result is None else self._result._repr_html_()


def _runs_later(func: Callable[..., Any]) -> bool:
    """Tell whether calling a function runs none of it yet."""
    return (
        inspect.iscoroutinefunction(func)
        or inspect.isgeneratorfunction(func)
        or inspect.isasyncgenfunction(func)
    )


def _options(given: dict[str, Any]) -> SessionOptions:
    known = [field.name for field in fields(SessionOptions)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise OptionError(
            f"profile() has no option {', '.join(unknown)}; it has {', '.join(known)}"
        )
    return SessionOptions(**given)


def _exit_text(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, SystemExit):
        return f"SystemExit({error.code!r})"
    return type(error).__name__
