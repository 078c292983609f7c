"""A signal handler that Python may take its time with, but not for ever.

Python runs a signal's handler when its main thread next runs bytecode. That may be
never: the thread is in a compiled loop, or it entered a blocking system call in the
instant after the signal had been noted. A process that dies of the signal by default
must not become one that hangs. So the handler here stands before Python's own: it
starts a timer that sends the signal again and again, each time waking Python up, and
when that has been in vain it lets the default action end the process.

Signal safety
-------------
The handler is machine code made from LLVM IR. It reads one block of memory that is
never freed, counts in it with an atomic operation, and calls ``timer_settime``,
``signal`` and ``raise``, which POSIX lists as async-signal-safe (2.4.3), and the C
handler of CPython, which is. It allocates nothing, takes no lock and needs no GIL.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

import llvmlite.ir as ir

from numbaprof.errors import UnsupportedError
from numbaprof.native import emit

__all__ = ["Deadline", "SignalEvent"]

PERIOD_NS = 50_000_000
"""Between two of the signals; a pool that ends its workers may wait this long."""

ATTEMPTS = 40
"""Signals until the default action, two seconds; supervisors wait ten and more."""

NS_PER_S = 1_000_000_000

SIGEV_SIGNAL = 0
"""``bits/sigevent-consts.h`` of glibc."""

INT = ir.IntType(32)


class SignalEvent(ctypes.Structure):
    """``struct sigevent`` of 64-bit Linux (``asm-generic/siginfo.h``), 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_uint64),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("unused", ctypes.c_uint8 * 48),
    )


class _State(ctypes.Structure):
    """What the handler works with: 64-bit words, in the order of these constants."""

    _fields_ = (
        ("arrived", ctypes.c_int64),
        ("timer", ctypes.c_void_p),
        ("next_handler", ctypes.c_void_p),
        # struct itimerspec: seconds and nanoseconds of the period, then of the start.
        ("spec", ctypes.c_int64 * 4),
    )


ARRIVED, TIMER, NEXT_HANDLER, SPEC = range(4)


class Deadline:
    """Puts a time limit on Python's handling of a signal.

    Parameters
    ----------
    number : int
        The signal, one whose default action ends the process.
    attempts : int
        How often it is sent again, every 50 ms, before the default action.

    Raises
    ------
    UnsupportedError
        There are no POSIX timers here (macOS), or LLVM cannot make the handler.

    Notes
    -----
    Whoever sets another handler of the signal, from Python or C, simply replaces this
    one. A timer does not survive ``fork``; see :meth:`renew_after_fork`.
    """

    def __init__(self, number: int, *, attempts: int = ATTEMPTS) -> None:
        if not sys.platform.startswith("linux"):
            raise UnsupportedError(
                f"no POSIX timers on {sys.platform}: {signal.Signals(number).name} "
                "cannot be handled without the risk of a process that does not end"
            )
        self._number = number
        self._libc = _load_libc()
        # Owned for the life of the process: the handler has its address.
        self._state = _State(spec=(0, PERIOD_NS, 0, PERIOD_NS))
        _STATES.append(self._state)
        self._handler = self._compile(attempts)

    def _compile(self, attempts: int) -> int:
        module = ir.Module("numbaprof.deadline")
        _emit_handler(module, ctypes.addressof(self._state), self._libc, attempts)
        return emit.compile_module(module, ("on_signal",))["on_signal"]

    def install(self) -> None:
        """Step before the handler that Python has just installed.

        Must be called in the main thread, after ``signal.signal``.
        """
        self._state.arrived = 0
        self._create_timer()
        previous = self._libc.signal(self._number, self._handler)
        self._state.next_handler = previous
        # Blocking calls are to be interrupted, as with Python's own handlers: PEP 475.
        signal.siginterrupt(self._number, True)

    def renew_after_fork(self) -> None:
        """Make a timer for this process, a child; timers are not inherited."""
        self._state.arrived = 0
        self._create_timer()

    def lift(self) -> None:
        """Stop the timer: Python is handling the signal. One that follows starts it."""
        self._libc.timer_settime(self._state.timer, 0, ctypes.byref(_STOPPED), None)
        self._state.arrived = 0

    def remove(self) -> None:
        """Delete the timer; the handler must have been replaced before."""
        self._libc.timer_delete(self._state.timer)

    def _create_timer(self) -> None:
        event = SignalEvent(signo=self._number, notify=SIGEV_SIGNAL)
        timer = ctypes.c_void_p()
        failed = self._libc.timer_create(
            time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)
        )
        if failed:
            error = ctypes.get_errno()
            raise UnsupportedError(f"timer_create failed: {os.strerror(error)}")
        self._state.timer = timer


_STATES: list[_State] = []
_STOPPED = (ctypes.c_int64 * 4)()


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timer_create"):  # In librt before glibc 2.34.
        libc = ctypes.CDLL("librt.so.1", use_errno=True)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    libc.timer_create.argtypes = (integer, pointer, pointer)
    libc.timer_settime.argtypes = (pointer, integer, pointer, pointer)
    libc.timer_delete.argtypes = (pointer,)
    return libc


def _emit_handler(
    module: ir.Module, state_address: int, libc: ctypes.CDLL, attempts: int
) -> None:
    """Emit the handler.

    ::

        void on_signal(int number)
        {
            int64_t before = state->arrived++;              // atomic
            if (before == attempts) {
                signal(number, SIG_DFL);
                raise(number);      // blocked in here, ends the process at return
                return;
            }
            if (before == 0)
                timer_settime(state->timer, 0, &state->spec, NULL);
            state->next_handler(number);
        }
    """
    handler_type = ir.FunctionType(emit.VOID, [INT])
    function, builder = emit.new_function(
        module, "on_signal", handler_type, ("number",)
    )
    (number,) = function.args
    null = ir.Constant(emit.PTR, None)
    state = emit.const(state_address).inttoptr(emit.PTR)

    def call(name: str, *arguments: ir.Value) -> None:
        address = ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0
        types = [argument.type for argument in arguments]
        emit.call_absolute(builder, address, ir.FunctionType(INT, types), [*arguments])

    before: Any = builder.atomic_rmw(
        "add", emit.word_pointer(builder, state, ARRIVED), emit.const(1), "monotonic"
    )
    with emit.unlikely(
        builder, builder.icmp_signed(">=", before, emit.const(attempts))
    ):
        call("signal", number, null)
        call("raise", number)
        builder.ret_void()
    with builder.if_then(builder.icmp_signed("==", before, emit.const(0))):
        timer = emit.load_pointer(builder, state, TIMER)
        spec = emit.word_pointer(builder, state, SPEC)
        call("timer_settime", timer, ir.Constant(INT, 0), spec, null)
    next_handler = emit.load_pointer(builder, state, NEXT_HANDLER)
    builder.call(emit.callee(next_handler, handler_type), [number])
    builder.ret_void()
