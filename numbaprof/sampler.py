"""Samples of where CPU time goes: an instrument that interrupts, writes down, sorts.

A signal arrives every few milliseconds of CPU time, in whichever thread runs; its
handler copies registers and a slice of the stack (:mod:`numbaprof.native.signals`).
When the sampler stops, each sample becomes a stack of addresses, equal ones are
counted, and every one ends in exactly one bin. What a stack says about source lines is
left to those who have line tables.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numbaprof.errors import (
    ActiveSessionError,
    OptionError,
    SessionStateError,
    UnsupportedError,
)
from numbaprof.native import records, timers
from numbaprof.native.records import read_records, read_threads
from numbaprof.native.unwind import AddressSpace, unwind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numbaprof.model import SampleBin
    from numbaprof.native.objcode import JitObject
    from numbaprof.native.timers import Source
    from numbaprof.native.unwind import Ending

__all__ = [
    "RawSamples",
    "RawStack",
    "ResolvedStack",
    "Sampler",
    "SamplerOptions",
    "ThreadSamples",
]

INTERVAL_NS = 4_000_000
"""Default: a tick of most kernels (CONFIG_HZ=250), beyond which timers do not go."""
INTERVAL_NS_MIN = 50_000
"""20 kHz; the handler takes about 10 us."""
BUFFER_BYTES = 1 << 28
"""Default: a sample takes 2.2 to 6.5 kB, so all are kept for 1.5 to 4 minutes of CPU
time; after that fewer are."""
BUFFER_BYTES_MIN = 1 << 16
IDLE_ATTEMPTS = 200
IDLE_WAIT_S = 0.001
"""A thread may have been interrupted inside the handler; it needs microseconds."""

SourceName = Literal["auto", "cpu-timer", "itimer", "perf"]
SOURCE_NAMES: tuple[SourceName, ...] = ("auto", "cpu-timer", "itimer", "perf")


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How to sample.

    Parameters
    ----------
    interval_ns : int
        CPU time of the process between two samples. The CPU timers cannot be finer than
        the kernel's tick, 1 to 10 ms; what was achieved is in the result.
    source : str
        "cpu-timer", "itimer", "perf" (finer, per thread), or "auto": the first of the
        first two that can be trusted here.
    buffer_bytes : int
        Room for samples. When it fills, fewer are kept, evenly over the whole run; what
        does not fit at last is counted as dropped. Memory is taken when it is filled.

    Raises
    ------
    OptionError
        A value is out of range.
    """

    interval_ns: int = INTERVAL_NS
    source: SourceName = "auto"
    buffer_bytes: int = BUFFER_BYTES

    def __post_init__(self) -> None:
        if self.interval_ns < INTERVAL_NS_MIN:
            raise OptionError(
                f"interval_ns={self.interval_ns} is too short to sample; use "
                f"{INTERVAL_NS_MIN} or more"
            )
        if self.source not in SOURCE_NAMES:
            raise OptionError(
                f"source={self.source!r} is not one of {', '.join(SOURCE_NAMES)}"
            )
        if self.buffer_bytes < BUFFER_BYTES_MIN:
            raise OptionError(
                f"buffer_bytes={self.buffer_bytes} holds no samples; use "
                f"{BUFFER_BYTES_MIN} or more"
            )


@dataclass(frozen=True, slots=True)
class RawStack:
    """Equal samples of one thread, counted."""

    count: int
    thread: int
    """``threading.get_ident()``."""
    tid: int
    """The kernel's number; an ident may be used again when its thread has ended."""
    pcs: tuple[int, ...]
    """Innermost first, see :class:`numbaprof.native.unwind.Walk`."""
    ending: Ending
    guessed: bool
    compiling: bool
    """Whether the thread was compiling at the time."""


@dataclass(frozen=True, slots=True)
class ResolvedStack:
    """A counted stack with what its addresses mean."""

    count: int
    thread: str
    bin: SampleBin
    """"function" where there is compiled code, to be refined to "line" by whoever has
    its line table; else the bin that counts."""
    jit: tuple[tuple[JitObject, int], ...]
    """Compiled frames, innermost first, each with the address to look up."""
    callee: str
    """What runs: ``sin (libm)``; "" for compiled code of its own."""
    is_cut: bool
    """Whether callers are missing: not in the slice, or without unwind information."""
    guessed: bool


@dataclass(frozen=True, slots=True)
class ThreadSamples:
    """How often one thread was sampled."""

    thread: int
    tid: int
    name: str
    samples: int


@dataclass(frozen=True)
class RawSamples:
    """What was sampled, as written by the handler.

    Notes
    -----
    Unwinding needs the code of the process, so it is done in the process that was
    sampled, and not after code was freed.
    """

    process: int
    source: str
    reason: str
    """Why this source; "" for the one preferred."""
    requested_ns: int
    achieved_ns: int
    """CPU time per sample that was due, dropped ones included; 0 if none was."""
    cpu_ns: int
    """CPU time of the process while it was sampled."""
    taken: int
    losses: tuple[tuple[str, int], ...]
    problems: tuple[str, ...]
    names: Mapping[tuple[int, int], str]
    """Of threads, by (ident, tid)."""
    _words: Any = field(repr=False)

    def stacks(
        self,
        space: AddressSpace,
        *,
        compiling: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    ) -> tuple[RawStack, ...]:
        """Unwind all samples and count equal ones, the most frequent first.

        Parameters
        ----------
        space : AddressSpace
            The code of the process.
        compiling : mapping of int to sequence of (int, int), optional
            For each thread's ident, when it was compiling: begin and end on
            ``time.perf_counter_ns``, in order, not overlapping.
        """
        spans = {
            thread: ([begin for begin, _ in times], [end for _, end in times])
            for thread, times in (compiling or {}).items()
        }
        counts: Counter[tuple[Any, ...]] = Counter()
        for record in read_records(self._words):
            walk = unwind(space, record)
            begins, ends = spans.get(record.thread, ([], []))
            index = bisect_right(begins, record.time_ns) - 1
            is_compiling = index >= 0 and record.time_ns < ends[index]
            key = (
                record.thread,
                record.tid,
                walk.pcs,
                walk.ending,
                walk.guessed,
                is_compiling,
            )
            counts[key] += 1
        return tuple(RawStack(count, *key) for key, count in counts.most_common())

    def resolve(
        self, space: AddressSpace, stacks: tuple[RawStack, ...]
    ) -> tuple[ResolvedStack, ...]:
        """Say what each stack means; the counts add up to :attr:`taken`.

        Parameters
        ----------
        space, stacks : AddressSpace, tuple of RawStack
            As given to and returned by :meth:`stacks`.
        """
        return tuple(
            _resolve(space, stack, self.names[stack.thread, stack.tid])
            for stack in stacks
        )

    def threads(self) -> tuple[ThreadSamples, ...]:
        """Return the samples of each thread, the most first."""
        counts = Counter(read_threads(self._words))
        return tuple(
            ThreadSamples(thread, tid, self.names[thread, tid], count)
            for (thread, tid), count in counts.most_common()
        )


_LOCK = threading.Lock()
_ACTIVE: list[tuple[int, Sampler]] = []
"""(process, sampler) of the one at work."""


class Sampler:
    """Samples this process, all its threads, between start and stop.

    Parameters
    ----------
    options : SamplerOptions, optional
        How.

    Notes
    -----
    The process may fork, exec, exit or be killed at any time; see
    :mod:`numbaprof.native.signals` and :mod:`numbaprof.native.timers`. A forked child
    is not sampled unless :meth:`reset_after_fork` is called in it.
    """

    def __init__(self, options: SamplerOptions | None = None) -> None:
        self._options = SamplerOptions() if options is None else options
        self._source: Source | None = None
        self._disposition: timers.Disposition | None = None
        self._reason = ""
        self._begin_cpu_ns = 0
        self._pid = 0

    def start(self) -> None:
        """Begin to sample.

        Raises
        ------
        UnsupportedError
            Not on this platform.
        AttachError
            Another profiler has the signal; the message says which.
        ActiveSessionError
            Another sampler of ours is at work in this process.
        """
        if self._source is not None:
            raise SessionStateError("this sampler was started already")
        handler = records.shared_handler()
        with _LOCK:
            if any(pid == os.getpid() for pid, _ in _ACTIVE):
                raise ActiveSessionError(
                    "this process is being sampled already; stop that sampler first"
                )
            self._begin(handler)
            _ACTIVE[:] = [(os.getpid(), self)]

    def _begin(self, handler: records.Handler) -> None:
        disposition = timers.Disposition(handler.address)
        disposition.install()
        try:
            source, self._reason = _choose(self._options.source, handler)
            handler.prepare(source.code, self._options.buffer_bytes)
            self._begin_cpu_ns = time.process_time_ns()
            self._pid = os.getpid()
            try:
                source.arm(self._options.interval_ns)
            except BaseException:
                source.disarm()
                raise
        except BaseException:
            handler.close()
            disposition.restore()
            raise
        self._source, self._disposition = source, disposition

    def stop(self) -> RawSamples:
        """Stop, put everything back, and return what was sampled.

        Raises
        ------
        SessionStateError
            It was not started.

        Notes
        -----
        In a forked child that did not call :meth:`reset_after_fork`, the samples are
        the parent's, and not returned.
        """
        source, disposition = self._source, self._disposition
        if source is None or disposition is None:
            raise SessionStateError("this sampler was not started")
        handler = records.shared_handler()
        source.disarm()
        cpu_ns = time.process_time_ns() - self._begin_cpu_ns
        not_restored = disposition.restore()
        for _ in range(IDLE_ATTEMPTS):
            if handler.is_idle:
                break
            time.sleep(IDLE_WAIT_S)
        handler.close()
        self._source = self._disposition = None
        with _LOCK:
            _ACTIVE.clear()
        problems = [*source.problems, *filter(None, [not_restored])]
        return self._collect(handler, source.name, cpu_ns, problems)

    def reset_after_fork(self) -> None:
        """Begin anew in a forked child, where no timer runs."""
        source = self._source
        if source is None or self._disposition is None:
            return
        source.disarm()
        self._source = self._disposition = None
        with _LOCK:
            self._begin(records.shared_handler())
            _ACTIVE[:] = [(os.getpid(), self)]

    def _collect(
        self,
        handler: records.Handler,
        source: str,
        cpu_ns: int,
        problems: list[str],
    ) -> RawSamples:
        own = self._pid == os.getpid()
        words = handler.copy() if own else handler.copy()[:0]
        counts = Counter(read_threads(words))
        every, dropped, bad = handler.thinning, handler.dropped, handler.bad
        kept = counts.total()
        # Those that the handler was to keep, the first of each `every`.
        wanted = -(-handler.taken // every) if own else 0
        handler.release()
        losses = {
            "dropped": dropped,
            "bad": bad,
            "unfinished": max(0, wanted - dropped - kept),
        }
        due = kept + dropped
        achieved_ns = cpu_ns // due if own and due else 0
        if not own:
            problems.append("a forked child that was not sampled")
        elif source == timers.PerfClock.name:
            expected_ns = every * self._options.interval_ns
            problems.extend(_missed_threads(achieved_ns, expected_ns))
        if own and every > 1:
            problems.append(
                f"only one sample of {every} was kept, because the buffer of "
                f"{self._options.buffer_bytes} bytes filled; all stand for their time"
            )
        return RawSamples(
            process=os.getpid(),
            source=source,
            reason=self._reason,
            requested_ns=self._options.interval_ns,
            achieved_ns=achieved_ns,
            cpu_ns=cpu_ns if own else 0,
            taken=kept,
            losses=tuple((kind, n) for kind, n in losses.items() if n and own),
            problems=tuple(problems),
            names=_thread_names(counts),
            _words=words,
        )


def _choose(wanted: SourceName, handler: records.Handler) -> tuple[Source, str]:
    """Return the source to use, and why not the one wanted or preferred."""
    reason = ""
    if wanted == "perf":
        try:
            return timers.PerfClock(handler), ""
        except UnsupportedError as error:
            reason = f"not perf: {error}"
    if wanted != "itimer":
        try:
            return timers.CpuTimer(handler.state_address), reason
        except UnsupportedError as error:
            reason = "; ".join(filter(None, [reason, f"not a CPU timer: {error}"]))
    return timers.ProfTimer(), reason


MISSED_SHARE = 1.25
"""From how much more CPU time per sample than asked for threads have been missed."""


def _missed_threads(achieved_ns: int, requested_ns: int) -> list[str]:
    if achieved_ns <= MISSED_SHARE * requested_ns:
        return []
    missed = 1 - requested_ns / achieved_ns
    return [
        f"{missed:.0%} of the CPU time was spent in threads that perf did not sample: "
        'they started later, or block the signal; source="auto" sees all threads'
    ]


def _thread_names(keys: Counter[tuple[int, int]]) -> dict[tuple[int, int], str]:
    # threading keeps track of threads that have ended for as long as somebody does.
    ended = list(getattr(threading, "_dangling", ()))
    known = {
        (thread.ident, thread.native_id): thread.name
        for thread in [*ended, *threading.enumerate()]
    }
    return {
        key: known.get(key) or _kernel_name(key[1]) or f"thread {key[1]}"
        for key in keys
    }


def _kernel_name(tid: int) -> str:
    try:
        name = Path(f"/proc/self/task/{tid}/comm").read_text().strip()
    except OSError:
        return ""  # It has ended.
    return f"{name} {tid}" if name else ""


# -- meaning ---------------------------------------------------------------------------

_CUT: frozenset[Ending] = frozenset({"no rule", "slice", "lost", "limit"})


def _resolve(space: AddressSpace, stack: RawStack, name: str) -> ResolvedStack:
    found = [(space.jit_object(pc), pc) for pc in stack.pcs]
    jit = tuple((code, pc) for code, pc in found if code is not None)
    leaf_is_jit = found[0][0] is not None
    bin_: SampleBin = "function" if jit else _bin_outside(space, stack)
    callee = "" if leaf_is_jit or bin_ == "unresolved" else _callee(space, stack)
    return ResolvedStack(
        count=stack.count,
        thread=name,
        bin=bin_,
        jit=jit,
        callee=callee,
        is_cut=stack.ending in _CUT,
        guessed=stack.guessed,
    )


def _bin_outside(space: AddressSpace, stack: RawStack) -> SampleBin:
    """Return the bin of a stack without compiled code.

    What everybody calls (libc) says nothing; whoever called it does.
    """
    kinds = [space.kind(pc) for pc in stack.pcs]
    if "compiler" in kinds or stack.compiling:
        return "compile"
    if not kinds[0]:
        return "unresolved"
    for kind in kinds:
        if kind in ("python", "native"):
            return kind
    return "native"


def _callee(space: AddressSpace, stack: RawStack) -> str:
    """Return the innermost function with a name, within the innermost library."""
    first = space.native_frame(stack.pcs[0])
    if first is None:
        return ""
    for pc in stack.pcs:
        frame = space.native_frame(pc)
        if frame is None or frame.library != first.library:
            break
        if frame.function:
            return str(frame)
    return str(first)
