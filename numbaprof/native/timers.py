"""What sends the sampler's signals, and what stands in their way.

Three sources. A *CPU timer* is a POSIX timer on the CPU clock of the process; it is
preferred, because the kernel deletes it at ``exec`` and does not hand it to a forked
child. Kernels before 6.4 send its signal to the main thread whoever was running, so
there *ITIMER_PROF* is used, which interrupts the thread that runs, but which an
``exec`` keeps: its next signal then kills the new program ("Profiling timer expired").
So it steps aside when Python replaces the program. Both clocks
stand still while nothing runs, so no blocking call is interrupted; both see time in the
kernel; both are as fine as the kernel's tick. While either is armed, the kernel reads
the CPU clock of the process (``time.process_time``) no finer than that tick, for the
program, too; clocks of threads stay exact. The *perf* source goes beyond that, per
thread, where the kernel lets it see its own time.

References
----------
.. [1] Linux 6.4, ``kernel/signal.c``, ``send_sigqueue``: "prefer to deliver to
   current".
.. [2] POSIX.1-2017, ``exec``: timers of ``timer_create`` are deleted, pending alarms of
   ``setitimer`` are kept; ``fork``: neither is inherited.
.. [3] Linux, ``include/uapi/linux/perf_event.h``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import signal
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numbaprof.errors import AttachError, UnsupportedError
from numbaprof.native.deadline import SignalEvent
from numbaprof.native.signals import MAX_DESCRIPTORS, SignalCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.native.records import Handler

__all__ = [
    "CpuTimer",
    "Disposition",
    "PerfClock",
    "ProfTimer",
    "Source",
    "holder_of_sigprof",
]

NS_PER_S = 1_000_000_000
DIRECTED_SINCE = (6, 4)
"""Linux release from which a process-wide timer signals the thread that runs."""

SA_SIGINFO = 0x4
SA_ONSTACK = 0x08000000
SA_RESTART = 0x10000000
"""``asm-generic/signal-defs.h``."""
SIG_DFL = 0
SIG_IGN = 1


class Source(Protocol):
    """Sends SIGPROF while CPU time passes."""

    name: str
    code: SignalCode
    """What its signals say that they are."""
    problems: tuple[str, ...]

    def arm(self, interval_ns: int) -> None:
        """Begin to send."""

    def disarm(self) -> None:
        """Send no more; one signal may still be under way."""


# -- the signal's disposition ----------------------------------------------------------


class _Action(ctypes.Structure):
    """``struct sigaction`` of glibc on x86-64 (``bits/sigaction.h``)."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_before_us = _Action()
"""What was there before our handler was first installed."""


class Disposition:
    """Who handles SIGPROF: installs our handler, and puts back what it found.

    Parameters
    ----------
    address : int
        Of our handler.
    """

    def __init__(self, address: int) -> None:
        self._address = address
        self._former = _Action()

    def install(self) -> None:
        """Handle the signal from now on.

        Raises
        ------
        AttachError
            Somebody else does already, or has its timer; the message says who.
        """
        holder = holder_of_sigprof(self._address)
        if holder:
            raise AttachError(
                f"SIGPROF is taken: {holder}. Two sampling profilers cannot share it; "
                "stop the other one, or profile without lines"
            )
        # With the alternate stack where a thread has one (faulthandler's), and
        # restarting the system calls that can be.
        ours = _Action(
            handler=self._address, flags=SA_SIGINFO | SA_RESTART | SA_ONSTACK
        )
        _sigaction(ours, self._former)
        global _before_us
        if self._former.handler != self._address:
            _before_us = self._former
        else:  # Inherited from a parent that was sampled.
            self._former = _before_us

    def restore(self) -> str:
        """Put the former action back.

        Returns
        -------
        str
            Why not: somebody has set another handler since, which is left alone. Empty
            if all is as before.
        """
        current = _current_action()
        if (current.handler or 0) != self._address:
            return (
                "while sampling, SIGPROF was given to "
                f"{_describe_handler(current.handler or 0)}, which was left there; "
                "nothing was sampled from then on"
            )
        # Ignoring a signal throws pending ones away (POSIX 2.4.3). The default action
        # would end the process at the first of them.
        _sigaction(_Action(handler=SIG_IGN), None)
        _sigaction(self._former, None)
        return ""


def holder_of_sigprof(ours: int = 0) -> str:
    """Return who uses SIGPROF or its timer in this process; "" for nobody.

    Parameters
    ----------
    ours : int
        Address of a handler that does not count.
    """
    handler = _current_action().handler or 0
    if handler not in (SIG_DFL, SIG_IGN, ours):
        return f"its handler is {_describe_handler(handler)}"
    remaining, interval = signal.getitimer(signal.ITIMER_PROF)
    if remaining or interval:
        return f"ITIMER_PROF is running, every {interval:g} s"
    return ""


def _describe_handler(address: int) -> str:
    if address in (SIG_DFL, SIG_IGN):
        return ("the default action", "nobody (it is ignored)")[address]
    known = signal.getsignal(signal.SIGPROF)
    if callable(known):
        module = getattr(known, "__module__", None) or "?"
        return f"the Python function {module}.{getattr(known, '__qualname__', known)}"
    return describe_address(address)


class _DlInfo(ctypes.Structure):
    """``Dl_info``, ``dlfcn.h``."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def describe_address(address: int) -> str:
    """Return function and library at an address, as far as the linker knows them."""
    info = _DlInfo()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    if not dladdr(address, ctypes.byref(info)) or not info.path:
        return f"code at {address:#x}, in no library"
    library = os.path.basename(os.fsdecode(info.path))
    if info.symbol:
        return f"{info.symbol.decode(errors='replace')} in {library}"
    return f"a function in {library}"


def _current_action() -> _Action:
    current = _Action()
    _sigaction(None, current)
    return current


def _sigaction(new: _Action | None, old: _Action | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    pointers = [ctypes.byref(action) if action else None for action in (new, old)]
    if libc.sigaction(int(signal.SIGPROF), *pointers):
        number = ctypes.get_errno()
        raise UnsupportedError(f"sigaction(SIGPROF) failed: {os.strerror(number)}")


# -- the process's CPU clock -----------------------------------------------------------


class CpuTimer:
    """A POSIX timer on the CPU clock of the process.

    Parameters
    ----------
    value : int
        What its signals carry, so that they are known from others.

    Raises
    ------
    UnsupportedError
        The kernel would send its signals to the main thread.
    """

    name = "CPU timer"
    code = SignalCode.TIMER

    def __init__(self, value: int) -> None:
        self.problems: tuple[str, ...] = ()
        release = _kernel_release()
        if release < DIRECTED_SINCE:
            raise UnsupportedError(
                f"Linux {release[0]}.{release[1]} sends the signals of CPU timers to "
                "the main thread"
            )
        self._libc = _timer_library()
        event = SignalEvent(value=value, signo=int(signal.SIGPROF), notify=0)
        timer = ctypes.c_void_p()
        clock = time.CLOCK_PROCESS_CPUTIME_ID
        if self._libc.timer_create(clock, ctypes.byref(event), ctypes.byref(timer)):
            number = ctypes.get_errno()
            raise UnsupportedError(f"timer_create failed: {os.strerror(number)}")
        self._timer = timer
        self._pid = os.getpid()

    def arm(self, interval_ns: int) -> None:
        """Begin to send, every ``interval_ns`` of CPU time of all threads."""
        parts = divmod(interval_ns, NS_PER_S)
        spec = (ctypes.c_long * 4)(*parts, *parts)
        if self._libc.timer_settime(self._timer, 0, ctypes.byref(spec), None):
            number = ctypes.get_errno()
            raise UnsupportedError(f"timer_settime failed: {os.strerror(number)}")

    def disarm(self) -> None:
        """Delete the timer. In a forked child there is none, or another's."""
        if self._pid == os.getpid():
            self._libc.timer_delete(self._timer)


def _timer_library() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timer_create"):  # In librt before glibc 2.34.
        libc = ctypes.CDLL("librt.so.1", use_errno=True)
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    libc.timer_create.argtypes = (integer, pointer, pointer)
    libc.timer_settime.argtypes = (pointer, integer, pointer, pointer)
    libc.timer_delete.argtypes = (pointer,)
    return libc


def _kernel_release() -> tuple[int, int]:
    numbers = platform.release().split("-", 1)[0].split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        return 0, 0


# -- ITIMER_PROF -----------------------------------------------------------------------


class _ExecGuard:
    """Holds signals back while Python replaces the program.

    All of ``os.exec*`` goes through ``os.execv`` and ``os.execve``.

    Parameters
    ----------
    pause, resume : callable
        Called before the program is replaced, and after that has failed.
    """

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._pid = os.getpid()
        self._originals: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Step in front of the two functions."""
        for name in ("execv", "execve"):
            self._originals[name] = getattr(os, name)
            setattr(os, name, self._guarded(self._originals[name]))

    def remove(self) -> None:
        """Leave ``os`` as it was."""
        for name, original in self._originals.items():
            setattr(os, name, original)
        self._originals.clear()

    def _guarded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def exec_(*arguments: Any, **keywords: Any) -> Any:
            mine = bool(self._originals) and self._pid == os.getpid()
            if mine:
                self._pause()
            try:
                return original(*arguments, **keywords)
            finally:  # Reached only if the program was not replaced.
                if mine:
                    self._resume()

        return exec_


class ProfTimer:
    """The interval timer that every kernel has.

    Notes
    -----
    It stops while ``os.exec*`` replaces the program. An ``exec`` by other means, from
    C, is not seen: the new program would be killed by the next tick.
    """

    name = "ITIMER_PROF"
    code = SignalCode.KERNEL

    def __init__(self) -> None:
        self.problems: tuple[str, ...] = ()
        self._pid = os.getpid()
        self._seconds = 0.0
        self._guard = _ExecGuard(
            pause=lambda: self._set(0), resume=lambda: self._set(self._seconds)
        )

    def arm(self, interval_ns: int) -> None:
        """Begin to send, every ``interval_ns`` of CPU time of all threads."""
        self._seconds = interval_ns / NS_PER_S
        self._guard.install()
        self._set(self._seconds)

    def disarm(self) -> None:
        """Stop the timer; a forked child has none, or its own."""
        if self._pid == os.getpid():
            self._set(0)
        self._guard.remove()

    def _set(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)


# -- perf ------------------------------------------------------------------------------

SYS_PERF_EVENT_OPEN = 298
PERF_TYPE_SOFTWARE = 1
PERF_COUNT_SW_TASK_CLOCK = 1
PERF_ATTRIBUTE_BYTES = 128
PERF_DISABLED = 1 << 0
PERF_EXCLUDE_HYPERVISOR = 1 << 6
PERF_FLAG_FD_CLOEXEC = 8
PERF_SAMPLE_IP = 1
PERF_EVENT_IOC_ENABLE = 0x2400
F_SETSIG = 10
F_SETOWN_EX = 15
F_OWNER_TID = 0
"""``asm-generic/fcntl.h``."""


class PerfClock:
    """The software clock of perf: one event per thread, exact up to 10 kHz.

    Parameters
    ----------
    handler : Handler
        Is told which file descriptors count.

    Raises
    ------
    UnsupportedError
        The kernel does not allow events that see its own time. With less, a line whose
        time goes into page faults would seem to cost nothing (measured: 4 % of 46 %).

    Notes
    -----
    Threads are found when the source is armed and at :meth:`scan`; those that start
    later are not sampled, which the sampler notices and says. It stops while
    ``os.exec*`` replaces the program: the kernel closes the events only after it has
    worked, and that work is time it would signal. An ``exec`` from C is not seen.
    """

    name = "perf task-clock"
    code = SignalCode.POLL_IN

    def __init__(self, handler: Handler) -> None:
        self.problems: tuple[str, ...] = ()
        self._handler = handler
        self._interval_ns = NS_PER_S
        self._descriptors: dict[int, int] = {}
        self._lock = threading.Lock()
        self._guard = _ExecGuard(pause=self._close, resume=self.scan)
        os.close(_open_event(0, NS_PER_S))

    def arm(self, interval_ns: int) -> None:
        """Begin to send for all threads there are."""
        self._interval_ns = interval_ns
        self._guard.install()
        self.scan()

    def scan(self) -> None:
        """Sample the threads that have started since, too."""
        with self._lock:
            for tid in map(int, os.listdir("/proc/self/task")):
                if tid not in self._descriptors:
                    self._add(tid)

    def _add(self, tid: int) -> None:
        try:
            descriptor = _open_event(tid, self._interval_ns)
        except UnsupportedError as error:
            # Ended just now, or out of file descriptors.
            if Path(f"/proc/self/task/{tid}").exists():
                self.problems += (f"thread {tid} is not sampled: {error}",)
            return
        if descriptor >= MAX_DESCRIPTORS:
            os.close(descriptor)
            self.problems += (f"thread {tid} is not sampled: too many open files",)
            return
        self._descriptors[tid] = descriptor
        self._handler.accept(descriptor)
        owner = struct.pack("ii", F_OWNER_TID, tid)
        fcntl.fcntl(descriptor, F_SETSIG, int(signal.SIGPROF))
        fcntl.fcntl(descriptor, F_SETOWN_EX, owner)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
        fcntl.ioctl(descriptor, PERF_EVENT_IOC_ENABLE, 0)

    def disarm(self) -> None:
        """Close all events; in a forked child, the copies of the descriptors."""
        self._guard.remove()
        self._close()

    def _close(self) -> None:
        with self._lock:
            for descriptor in self._descriptors.values():
                # Still accepted by the handler: a signal may be under way.
                os.close(descriptor)
            self._descriptors.clear()


def _open_event(tid: int, period_ns: int) -> int:
    attribute = bytearray(PERF_ATTRIBUTE_BYTES)
    # type, size, config, sample_period, sample_type, read_format, flags; wakeup_events.
    struct.pack_into(
        "<IIQQQQQI",
        attribute,
        0,
        PERF_TYPE_SOFTWARE,
        PERF_ATTRIBUTE_BYTES,
        PERF_COUNT_SW_TASK_CLOCK,
        period_ns,
        PERF_SAMPLE_IP,
        0,
        PERF_DISABLED | PERF_EXCLUDE_HYPERVISOR,
        1,
    )
    descriptor = perf_event_open(attribute, tid)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise UnsupportedError(
            f"perf_event_open failed: {os.strerror(number)}{_advice(number)}"
        )
    return descriptor


def perf_event_open(attribute: bytearray, tid: int) -> int:
    """Make the system call, for one thread on all processors; -1 and ``errno``."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.syscall.argtypes = (ctypes.c_long, ctypes.c_void_p, *(ctypes.c_long,) * 4)
    buffer = (ctypes.c_char * len(attribute)).from_buffer(attribute)
    address = ctypes.addressof(buffer)
    any_processor, no_group = -1, -1
    return int(
        libc.syscall(
            SYS_PERF_EVENT_OPEN,
            address,
            tid,
            any_processor,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    )


def _advice(number: int) -> str:
    if number == errno.EACCES:
        try:
            level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
        except OSError:
            level = "?"
        return (
            f" (kernel.perf_event_paranoid is {level}; to see the kernel's time it has "
            "to be 1 or less)"
        )
    if number == errno.EPERM:
        return " (a container's seccomp filter usually forbids it)"
    return ""
