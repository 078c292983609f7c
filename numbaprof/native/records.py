"""What the signal handler writes: its memory, and the records in it.

Everything here is mapped once and never unmapped, because a handler may be at work at
any moment until the process has ended; see :mod:`numbaprof.native.signals`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llvmlite.ir as ir
import numpy as np

from numbaprof.errors import UnsupportedError
from numbaprof.native import emit
from numbaprof.native.cpython_api import is_free_threaded
from numbaprof.native.signals import (
    FIRST_SLICE,
    MAX_DESCRIPTORS,
    SLICE_WORDS,
    SYS_PROCESS_VM_READV,
    WORD_BYTES,
    HandlerEmitter,
    RecordField,
    Register,
    SignalCode,
    StateField,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Handler",
    "Record",
    "check_platform",
    "read_records",
    "read_threads",
    "shared_handler",
]


@dataclass(frozen=True, slots=True)
class Record:
    """One sample as the handler wrote it."""

    thread: int
    """``threading.get_ident()`` of the thread."""
    tid: int
    time_ns: int
    """On the clock of ``time.perf_counter_ns``."""
    registers: tuple[int, ...]
    """By :class:`Register`."""
    slices: tuple[tuple[int, list[int]], ...]
    """(address, words) of the parts of the stack that were copied, ``sp`` first."""


def check_platform() -> None:
    """Raise unless this is a system whose signal frames are known.

    Raises
    ------
    UnsupportedError
        It is not x86-64 Linux with glibc and a CPython that has a GIL.
    """
    machine = platform.machine()
    if not sys.platform.startswith("linux"):
        reason = f"its signals are not known to numbaprof on {sys.platform}"
    elif machine not in ("x86_64", "AMD64"):
        reason = f"the registers of {machine} are not known to numbaprof"
    elif not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        reason = "this Python uses another C library than glibc"
    elif is_free_threaded():
        reason = "this is a free-threaded build of Python, where it was never tried"
    else:
        return
    raise UnsupportedError(
        f"sampling needs x86-64 Linux with glibc: {reason}. Calls and compilations are "
        "measured all the same"
    )


class Handler:
    """The compiled handler with its state and buffer; one per process, never freed.

    Raises
    ------
    UnsupportedError
        The platform is not supported, or LLVM cannot make the handler.

    Notes
    -----
    Nothing here installs it, see :mod:`numbaprof.native.timers`.
    """

    def __init__(self) -> None:
        check_platform()
        libc = ctypes.CDLL(None, use_errno=True)
        self._state = _map_words(StateField.SIZE)
        self._descriptors = _map_words(MAX_DESCRIPTORS)
        self._accepted: list[int] = []
        self._buffer = _map_words(0)
        module = ir.Module("numbaprof.signals")
        descriptors = int(self._descriptors.ctypes.data)
        HandlerEmitter(module, self.state_address, descriptors, libc).emit()
        self.address = emit.compile_module(module, ("on_signal",))["on_signal"]

    @property
    def state_address(self) -> int:
        """What a POSIX timer has to send as ``si_value``."""
        return int(self._state.ctypes.data)

    def prepare(self, code: SignalCode, buffer_bytes: int) -> None:
        """Empty everything and say which signals will count.

        Must be called by a thread of Python, while no timer is armed.

        Parameters
        ----------
        code : SignalCode
            Of the source that will be armed.
        buffer_bytes : int
            Room for records. The kernel provides a page when it is first written to.
        """
        words = buffer_bytes // WORD_BYTES
        _forget_pages(self._buffer)
        if self._buffer.size != words:
            # The former one stays mapped: a handler may still be at work in it.
            self._buffer = _map_words(words)
        low, high = stack_bounds()
        for field in (
            StateField.THINNING,
            StateField.TAKEN,
            StateField.BAD,
            StateField.DROPPED,
            StateField.HEAD,
        ):
            self._state[field] = 0
        self._state[StateField.CAPACITY] = words
        self._state[StateField.BUFFER] = self._buffer.ctypes.data
        self._state[StateField.STACK_LOW] = low
        self._state[StateField.STACK_HIGH] = high
        self._state[StateField.SAFE_READ] = can_read_safely()
        self._state[StateField.CODE] = code

    def close(self) -> None:
        """Let no signal count any more."""
        self._state[StateField.CODE] = 0
        for descriptor in self._accepted:
            self._descriptors[descriptor] = 0
        self._accepted.clear()

    def accept(self, descriptor: int) -> None:
        """Let signals of a file descriptor count, until :meth:`close`."""
        self._descriptors[descriptor] = 1
        self._accepted.append(descriptor)

    @property
    def is_idle(self) -> bool:
        """Whether no thread is inside the handler."""
        left = int(self._state[StateField.LEFT])  # Read first: it never overtakes.
        return left == int(self._state[StateField.ENTERED])

    @property
    def taken(self) -> int:
        """Samples since :meth:`prepare`, dropped ones included."""
        return int(self._state[StateField.TAKEN])

    @property
    def bad(self) -> int:
        """Signals that were not of our timer."""
        return int(self._state[StateField.BAD])

    @property
    def dropped(self) -> int:
        """Samples that did not fit into the buffer."""
        return int(self._state[StateField.DROPPED])

    @property
    def thinning(self) -> int:
        """How many samples one that is kept stands for; 1 while the buffer lasts."""
        return int(self._state[StateField.THINNING]) + 1

    def copy(self) -> Any:
        """Return the records as one array, see :func:`read_records`.

        Where the buffer became too full for all, these are the samples number 0, n,
        2 n and so on, n being :attr:`thinning`.
        """
        used = self._buffer[: min(int(self._state[StateField.HEAD]), self._buffer.size)]
        every = self.thinning
        if every == 1:
            return used.copy()
        kept = [
            used[at : at + size]
            for at, size in _places(used)
            if int(used[at + RecordField.TICK]) % every == 0
        ]
        return np.concatenate([*kept, used[:0]])

    def release(self) -> None:
        """Give the pages of the buffer back to the system; records are gone then."""
        _forget_pages(self._buffer)


_LOCK = threading.Lock()
_HANDLERS: list[Handler] = []


def shared_handler() -> Handler:
    """Return the process's one handler, compiled at the first call (about 10 ms).

    Raises
    ------
    UnsupportedError
        See :class:`Handler`.
    """
    with _LOCK:
        if not _HANDLERS:
            _HANDLERS.append(Handler())
        return _HANDLERS[0]


def read_records(words: Any) -> Iterator[Record]:
    """Yield the records in a copy of the buffer, in the order they were begun.

    Parameters
    ----------
    words : ndarray of int64
        From :meth:`Handler.copy`.
    """
    unsigned = words.view(np.uint64)
    for at, size in _places(words):
        yield _to_record(unsigned[at : at + size].tolist())


def read_threads(words: Any) -> Iterator[tuple[int, int]]:
    """Yield (ident, tid) of each record, as :func:`read_records` would."""
    for at, _ in _places(words):
        yield int(words[at + RecordField.THREAD]), int(words[at + RecordField.TID])


def _places(words: Any) -> Iterator[tuple[int, int]]:
    """Yield index and size of each record that was written to its end."""
    at = 0
    while at + FIRST_SLICE <= words.size and (size := int(words[at])):
        yield at, size
        at += size


def _to_record(words: list[int]) -> Record:
    registers = tuple(words[RecordField.COUNT : FIRST_SLICE])
    slices = []
    at = FIRST_SLICE
    for register, length, room in (
        (Register.RSP, words[RecordField.STACK], words[RecordField.RESERVED]),
        (Register.RBP, words[RecordField.RBP], SLICE_WORDS),
        (Register.RBX, words[RecordField.RBX], SLICE_WORDS),
    ):
        if length == _ABSENT:
            continue
        slices.append((registers[register], words[at : at + length]))
        at += room
    return Record(
        thread=words[RecordField.THREAD],
        tid=words[RecordField.TID],
        time_ns=words[RecordField.TIME_NS],
        registers=registers,
        slices=tuple(slices),
    )


_ABSENT = 2**64 - 1


# -- memory ----------------------------------------------------------------------------


def _map_words(count: int) -> Any:
    """Return ``count`` zeroed words that nobody ever unmaps, as an int64 array."""
    if count == 0:
        return np.zeros(0, np.int64)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    integer = ctypes.c_int
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        integer,
        integer,
        integer,
        ctypes.c_long,
    )
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    size = count * WORD_BYTES
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address in (None, 2**64 - 1):
        raise UnsupportedError(
            f"no room for {size} bytes of samples: {os.strerror(ctypes.get_errno())}; "
            "make the buffer smaller"
        )
    return np.frombuffer((ctypes.c_int64 * count).from_address(address), np.int64)


_MAP_NORESERVE = 0x4000
"""``asm-generic/mman.h``; the ``mmap`` module has it from Python 3.13 on."""
_MADV_DONTNEED = 4


def _forget_pages(words: Any) -> None:
    if words.size:
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        madvise(words.ctypes.data, words.size * WORD_BYTES, _MADV_DONTNEED)


def stack_bounds() -> tuple[int, int]:
    """Return (lowest address, end) of the calling thread's stack; zeros if unknown."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_void_p
    libc.pthread_getattr_np.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    attributes = (ctypes.c_uint64 * 8)()  # pthread_attr_t has 56 bytes.
    low, size = ctypes.c_void_p(), ctypes.c_size_t()
    if libc.pthread_getattr_np(libc.pthread_self(), attributes):
        return 0, 0
    libc.pthread_attr_getstack(attributes, ctypes.byref(low), ctypes.byref(size))
    libc.pthread_attr_destroy(attributes)
    start = low.value or 0
    return start, start + size.value


def can_read_safely() -> bool:
    """Tell whether the kernel copies within this process (it may be filtered)."""
    source, target = ctypes.c_int64(77), ctypes.c_int64()
    vectors = [
        (ctypes.c_uint64 * 2)(ctypes.addressof(word), WORD_BYTES)
        for word in (target, source)
    ]
    addresses = [ctypes.addressof(vector) for vector in vectors]
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    syscall.argtypes = (ctypes.c_long,) * 7
    arguments = (os.getpid(), addresses[0], 1, addresses[1], 1, 0)
    done = syscall(SYS_PROCESS_VM_READV, *arguments)
    return bool(done == WORD_BYTES and target.value == source.value)
