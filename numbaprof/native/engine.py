"""The engine: shadow stacks, the calling-context tree and the trampolines, as LLVM IR.

One instance per process. It is built at the first start and never freed, because a
thread may be inside a trampoline when a session stops.

What a call does
----------------
``dispatch`` stands in for ``tp_call`` of the dispatcher types. It pushes a *pending*
frame: which dispatcher, which Python code called it, the time ``t0``. Numba then finds
(or compiles) an overload and calls its entry point, where ``overload`` stands in for
the wrapper Numba compiled: it takes the pending frame over, reads ``t1``, calls the
wrapper, reads ``t2``, adds to the node of the calling-context tree and pops. Entry
points that compiled code calls by themselves (objmode bodies, property getters) find no
pending frame of their own dispatcher and push one.

Locking
-------
Every structure here is read and written under the GIL, which all trampolines hold at
entry and at exit, so plain loads and stores are exact. The one exception are ufunc
loops, which NumPy runs without the GIL: they use atomic adds on their own slot, and a
shadow stack that only its own thread touches.

Memory
------
Frames are addressed by index, since they move when they grow; nodes have their address
space reserved and do not. Hash tables that are read without the GIL are never freed. A
slot stays alive while a call is inside, see :mod:`numbaprof.dispatch_hook`.
A frame carries the epoch (session number) it was pushed in; one of an earlier epoch is
popped without a trace.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from numbaprof.errors import UnsupportedError
from numbaprof.model import HISTOGRAM_BUCKETS
from numbaprof.native import clock as clocks
from numbaprof.native import emit, trampolines
from numbaprof.native.cpython_api import (
    HEADER_BYTES,
    Layouts,
    object_at,
    thread_state,
)
from numbaprof.native.layout import (
    EDGE_ROWS,
    EDGE_WORDS,
    INITIAL_TABLE,
    MAX_NODES,
    NO_NODE,
    NO_TICKS,
    NS_SHIFT,
    ROW_WORDS,
    SPLIT_ROWS,
    SPLIT_WORDS,
    START_MINIMUM,
    TABLE_HEAD,
    WORD_BYTES,
    Frame,
    Node,
    ParallelField,
    PseudoSlot,
    SlotField,
    State,
    Thread,
    UfuncField,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Engine", "NodeRecord", "ParallelSlot", "Slot", "UfuncSlot"]


class Slot(ctypes.Structure):
    """Counters of one overload, and the object an entry point has as ``m_self``.

    A ctypes instance keeps the address of its memory in the first word after the object
    header, so the trampoline needs one load to come from ``m_self`` to the counters;
    :meth:`Engine.new_slot` checks that.
    """

    _fields_ = [("words", ctypes.c_int64 * SlotField.SIZE)]

    split: ParallelSlot | None = None
    """Between the trampoline and the wrapper, for parallel overloads."""
    owner: Any
    """The entry point's original ``m_self``; kept alive, it owns the PyMethodDef."""

    @property
    def address(self) -> int:
        """What the engine knows this slot by."""
        return ctypes.addressof(self)


class UfuncSlot(ctypes.Structure):
    """Counters of one ufunc loop, passed to it as its ``data``."""

    _fields_ = [("words", ctypes.c_int64 * UfuncField.SIZE)]

    @property
    def address(self) -> int:
        """What the loop gets as its ``data``."""
        return ctypes.addressof(self)


class ParallelSlot(ctypes.Structure):
    """Calls of one parallel overload by number of threads."""

    _fields_ = [("words", ctypes.c_int64 * ParallelField.SIZE)]

    @property
    def rows(self) -> list[tuple[int, int, int, int]]:
        """(threads, calls, ticks, CPU nanoseconds) per number of threads seen."""
        found = []
        for row in range(SPLIT_ROWS):
            first = ParallelField.ROWS + row * SPLIT_WORDS
            threads, calls, ticks, cpu = self.words[first : first + SPLIT_WORDS]
            if calls:
                found.append((threads, calls, ticks, cpu))
        return found

    def clear(self) -> None:
        """Empty the rows."""
        for word in range(ParallelField.ROWS, ParallelField.SIZE):
            self.words[word] = 0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node as read after a session."""

    parent: int
    slot: int
    code: Any
    """Code object of the Python caller, or None."""
    calls: int
    errors: int
    inclusive_ticks: int
    child_ticks: int
    dispatch_ticks: int
    in_flight: int
    overhead_ticks: int = 0
    """Part of ``child_ticks`` spent in our own callbacks."""
    thread_ident: int = 0
    """For thread roots."""


class Engine:
    """The compiled engine and its memory.

    Parameters
    ----------
    layouts : Layouts
        Verified struct layouts; without ``caller`` callers are not recorded.
    clock : Clock
        What to read.

    Raises
    ------
    UnsupportedError
        LLVM cannot build for this machine.
    """

    def __init__(self, layouts: Layouts, clock: clocks.Clock) -> None:
        self.layouts = layouts
        self.clock = clock
        self.state = (ctypes.c_int64 * State.SIZE)()
        self._epochs = 0
        self._rows: list[Any] = []
        self._nodes: int = 0
        self._index: int = 0
        self._ufunc_slots: list[UfuncSlot] = []
        self._retired_slots: dict[tuple[int, int], list[UfuncSlot]] = {}
        self.state[State.TABLE] = self._new_thread_table()
        module = trampolines.build_module(layouts, clock, ctypes.addressof(self.state))
        self.addresses = emit.compile_module(module, trampolines.EXPORTED)
        word = ctypes.c_int64
        self._open = ctypes.PYFUNCTYPE(word, word, word)(self.addresses["open_frame"])
        self._rename = ctypes.PYFUNCTYPE(word, word, word)(
            self.addresses["rename_frame"]
        )
        self._close = ctypes.PYFUNCTYPE(word, word)(self.addresses["close_frame"])
        self._charge = ctypes.PYFUNCTYPE(None, word)(self.addresses["charge_overhead"])
        self._enter_row = ctypes.PYFUNCTYPE(word, word, word, word)(
            self.addresses["enter_row"]
        )
        self._leave_row = ctypes.PYFUNCTYPE(word, word, word)(
            self.addresses["leave_row"]
        )
        self._stop = ctypes.PYFUNCTYPE(word)(self.addresses["stop"])
        self._register = ctypes.PYFUNCTYPE(word)(self.addresses["register_thread"])
        self.now = ctypes.PYFUNCTYPE(word)(self.addresses["now"])
        """Read the clock, in ticks."""

    # -- sessions ---------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether calls are being booked."""
        return bool(self.state[State.EPOCH])

    def start(self, ns_per_tick: float) -> int:
        """Begin a session with an empty tree; return the node of this thread's root.

        Parameters
        ----------
        ns_per_tick : float
            Rate of the clock, for the buckets of histograms.
        """
        self._new_tree()
        self.state[State.TRUNCATED] = 0
        self.state[State.THREADS_LOST] = 0
        self.state[State.NS_SCALE] = round(ns_per_tick * (1 << NS_SHIFT))
        self._epochs += 1
        self.state[State.EPOCH] = self._epochs
        return int(self._register())

    def stop(self) -> int:
        """End the session, book what is still open, and return the time in ticks."""
        return int(self._stop())

    def restart_after_fork(self, ns_per_tick: float) -> int:
        """Forget everything the parent counted; return this thread's new root.

        Only the forking thread exists in the child, so all other stacks go. Its own
        open frames are of an earlier epoch from here on and vanish as they return.
        """
        # A tracer may be listening to this very code: nothing is booked meanwhile.
        self.state[State.EPOCH] = 0
        mine = thread_state()
        block = self.thread_block(mine)
        table = self._new_thread_table()
        if block:
            # Its stack stays, so that what is open in it finds its own frame again.
            size = TABLE_HEAD + 2 * INITIAL_TABLE
            words = (ctypes.c_uint64 * size).from_address(table)
            position = trampolines.hash_pointer(mine) & (INITIAL_TABLE - 1)
            pair = TABLE_HEAD + 2 * position
            words[pair], words[pair + 1], words[1] = mine, block, 1
        self.state[State.TABLE] = table
        self.state[State.LAST_TSTATE] = 0
        self.state[State.LAST_THREAD] = 0
        return self.start(ns_per_tick)

    @property
    def epoch(self) -> int:
        """Number of the running session, 0 when none runs."""
        return int(self.state[State.EPOCH])

    @property
    def truncated(self) -> int:
        """Calls of this session whose context did not fit."""
        return int(self.state[State.TRUNCATED])

    @property
    def threads_lost(self) -> int:
        """Threads of this session that no memory could be had for."""
        return int(self.state[State.THREADS_LOST])

    def open_frame(self, kind: PseudoSlot) -> int:
        """Push a frame for work that is not an overload; return its token."""
        return int(self._open(int(kind), 0))

    def rename_frame(self, token: int, kind: PseudoSlot) -> bool:
        """Say what an open frame turned out to be; False when it is too late."""
        return not self._rename(token, int(kind))

    def close_frame(self, token: int) -> int:
        """Pop the frame of ``token`` and all above it; return its ticks, or -1."""
        return int(self._close(token))

    # -- rows of the Python level -----------------------------------------------------

    def new_row(self) -> int:
        """Return the address that one line of the Python table is known by.

        It stays taken for the life of the process, so it cannot come to mean another.
        """
        row = (ctypes.c_int64 * ROW_WORDS)()
        self._rows.append(row)
        return ctypes.addressof(row)

    def enter_row(self, row: int, since: int, frame: int = 0) -> int:
        """Push a frame for a Python or builtin function; return its token.

        Parameters
        ----------
        row : int
            From :meth:`new_row`.
        since : int
            Clock reading at which our callback began; the time from there on is kept
            out of every figure.
        frame : int, optional
            Address of the interpreter frame that runs, so that what it calls is known
            to be called by it.
        """
        return int(self._enter_row(row, frame, since))

    def leave_row(self, token: int, since: int) -> int:
        """Pop the frame of ``token``, which ended at ``since``; return its ticks."""
        return int(self._leave_row(token, since))

    def charge_overhead(self, since: int) -> None:
        """Keep the time since a clock reading out of every figure of this thread."""
        self._charge(since)

    def thread_block(self, tstate: int) -> int:
        """Return the address of a thread's block, 0 if it has none; it never moves."""
        for thread in self._threads():
            if thread[Thread.TSTATE] == tstate:
                return ctypes.addressof(thread)
        return 0

    def set_dispatch_target(self, address: int) -> None:
        """Say which ``tp_call`` the trampoline ``dispatch`` stands in for."""
        self.state[State.DISPATCH_TARGET] = address

    # -- slots ------------------------------------------------------------------------

    def new_slot(self, original: int, owner: Any, dispatcher: int) -> Slot:
        """Return a fresh slot for an entry point.

        Parameters
        ----------
        original : int
            Address of the wrapper Numba compiled.
        owner : object
            The entry point's ``m_self``.
        dispatcher : int
            Address of the dispatcher object, 0 when there is none.

        Raises
        ------
        UnsupportedError
            This ctypes keeps a structure's memory elsewhere than we rely on.
        """
        slot = Slot()
        words = slot.words
        pointer = ctypes.c_void_p.from_address(id(slot) + HEADER_BYTES).value
        if pointer != ctypes.addressof(slot):
            raise UnsupportedError(
                "a ctypes structure does not begin with the address of its memory"
            )
        slot.owner = owner
        words[SlotField.ORIG_FN] = original
        words[SlotField.ORIG_SELF] = id(owner)
        words[SlotField.DISPATCHER] = dispatcher
        self.clear_slot(slot)
        return slot

    def clear_slot(self, slot: Slot) -> None:
        """Empty a slot's counters and its memory of the last node."""
        words = slot.words
        words[SlotField.MIN] = START_MINIMUM
        words[SlotField.MAX] = 0
        words[SlotField.UNDISPATCHED] = 0
        words[SlotField.LAST_TICKS] = NO_TICKS
        words[SlotField.CACHE_PARENT] = NO_NODE - 1
        for bucket in range(HISTOGRAM_BUCKETS):
            words[SlotField.HISTOGRAM + bucket] = 0

    def histogram(self, slot: Slot | UfuncSlot) -> list[int]:
        """Return the calls per bucket of a slot; bucket b holds 2**(b-1) <= ns < 2**b.

        Valid until the next session starts.
        """
        words = slot.words
        ufunc = isinstance(slot, UfuncSlot)
        first = int(UfuncField.HISTOGRAM if ufunc else SlotField.HISTOGRAM)
        counts = list(words[first : first + HISTOGRAM_BUCKETS])
        if ufunc:
            return counts
        last = words[SlotField.LAST_TICKS]
        if last != NO_TICKS:
            # As the trampoline would have, had another call come.
            ns = (last % 2**64 * self.state[State.NS_SCALE] >> NS_SHIFT) % 2**64
            counts[min(ns.bit_length(), HISTOGRAM_BUCKETS - 1)] += 1
        return counts

    def split_by_threads(self, slot: Slot, get_num_threads: int) -> ParallelSlot | None:
        """Book the calls of a slot by number of threads as well.

        Parameters
        ----------
        slot : Slot
            Of a ``parallel=True`` overload; nobody calls it yet.
        get_num_threads : int
            Address of Numba's C function of that name.

        Returns
        -------
        ParallelSlot or None
            None where this platform has no clock of CPU time.
        """
        address = self.addresses.get("parallel_call")
        if address is None or not get_num_threads:
            return None
        split = ParallelSlot()
        split.words[ParallelField.ORIG_FN] = slot.words[SlotField.ORIG_FN]
        split.words[ParallelField.ORIG_SELF] = slot.words[SlotField.ORIG_SELF]
        split.words[ParallelField.GET_THREADS] = get_num_threads
        slot.split = split
        slot.words[SlotField.ORIG_SELF] = ctypes.addressof(split)
        slot.words[SlotField.ORIG_FN] = address
        return split

    def new_ufunc_slot(self, original: int, data: int) -> UfuncSlot:
        """Return an empty slot for a ufunc loop with its original ``data``.

        It lives as long as the process: NumPy takes loop and data once and calls them,
        without the GIL, row by row for a whole array, whoever restores the ufunc
        meanwhile. One that was retired serves again for the same loop.
        """
        retired = self._retired_slots.get((original, data), [])
        for slot in retired:
            if not slot.words[UfuncField.ACTIVE]:
                retired.remove(slot)
                break
        else:
            slot = UfuncSlot()
            slot.words[UfuncField.ORIG_FN] = original
            slot.words[UfuncField.ORIG_DATA] = data
            self._ufunc_slots.append(slot)
        self.clear_ufunc_slot(slot)
        return slot

    def retire_ufunc_slot(self, slot: UfuncSlot) -> None:
        """Say that a slot stands in front of no loop any more."""
        key = (slot.words[UfuncField.ORIG_FN], slot.words[UfuncField.ORIG_DATA])
        self._retired_slots.setdefault(key, []).append(slot)

    def clear_ufunc_slot(self, slot: UfuncSlot) -> None:
        """Empty a ufunc slot's counters and bind it to the running session."""
        words = slot.words
        for field in range(UfuncField.ELEMENTS, UfuncField.SIZE):
            words[field] = 0
        words[UfuncField.MIN] = START_MINIMUM
        words[UfuncField.EPOCH] = self.epoch

    # -- reading ----------------------------------------------------------------------

    def records(self) -> list[NodeRecord]:
        """Read the tree of the session that has ended; parents come before children.

        Ends the hold on code objects, so it is called once per session.
        """
        idents = self._thread_idents()
        count = self.state[State.N_NODES]
        image = (ctypes.c_int64 * (count * Node.SIZE)).from_address(self._nodes)
        found = []
        for number in range(count):
            row = image[number * Node.SIZE : (number + 1) * Node.SIZE]
            code = row[Node.CODE]
            found.append(
                NodeRecord(
                    parent=row[Node.PARENT],
                    slot=row[Node.SLOT],
                    code=object_at(code) if code else None,
                    calls=row[Node.CALLS],
                    errors=row[Node.ERRORS],
                    inclusive_ticks=row[Node.INCLUSIVE],
                    child_ticks=row[Node.CHILD],
                    dispatch_ticks=row[Node.DISPATCH],
                    in_flight=row[Node.IN_FLIGHT],
                    overhead_ticks=row[Node.OVERHEAD],
                    thread_ident=idents.get(number, 0),
                )
            )
        self._free_tree()
        return found

    def totals(self, *, inclusive: bool = False) -> dict[int, tuple[int, int]]:
        """Read calls and exclusive ticks so far, by address of the slot.

        With ``inclusive`` what was called counts, too; a call inside another one of the
        same overload then counts its time twice.

        For reading while a session runs, between calls: what is open is not in it.
        Takes some microseconds and 0.1 us per node; :meth:`records` stays untouched.
        Ufunc loops are not in the tree, see :meth:`edges`.
        """
        count = self.state[State.N_NODES]
        image = (ctypes.c_int64 * (count * Node.SIZE)).from_address(self._nodes)
        nodes = np.frombuffer(image, np.int64).reshape(count, Node.SIZE)
        found: dict[int, tuple[int, int]] = {}
        spent = nodes[:, Node.INCLUSIVE]
        if not inclusive:
            spent = spent - nodes[:, Node.CHILD]
        rows = zip(nodes[:, Node.SLOT].tolist(), nodes[:, Node.CALLS].tolist(),
                   spent.tolist(), strict=True)  # fmt: skip
        for slot, calls, ticks in rows:
            if calls:
                before = found.get(slot, (0, 0))
                found[slot] = (before[0] + calls, before[1] + ticks)
        return found

    def edges(self, slot: UfuncSlot) -> list[tuple[int, int, int, int, int]]:
        """Read a ufunc slot's callers.

        Returns
        -------
        list of (parent, calls, ticks, child ticks, in flight)
            ``parent`` is a node, or NO_NODE where it is not known.
        """
        found = []
        for row in range(EDGE_ROWS):
            first = UfuncField.EDGES + row * EDGE_WORDS
            key, calls, ticks, child, open_ = slot.words[first : first + EDGE_WORDS]
            if calls or open_:
                found.append((key - 1, calls, ticks, child, open_))
        return found

    def slots_in_use(self) -> set[int]:
        """Return the addresses of slots that some call will still write to.

        Any call that has a frame, of this session or an earlier one, in any thread.
        """
        found = set()
        for thread in self._threads():
            depth = thread[Thread.DEPTH]
            if depth > 0:
                size = depth * Frame.SIZE
                frames = (ctypes.c_int64 * size).from_address(thread[Thread.FRAMES])
                found.update(frames[Frame.SLOT :: Frame.SIZE])
        return found

    # -- memory -----------------------------------------------------------------------

    def _new_thread_table(self) -> int:
        table = _calloc(TABLE_HEAD + 2 * INITIAL_TABLE)
        ctypes.c_int64.from_address(table).value = INITIAL_TABLE - 1
        return table

    def _new_tree(self) -> None:
        self._free_tree()
        self._nodes = _calloc(MAX_NODES * Node.SIZE)
        self._index = _calloc(2 * MAX_NODES)
        self.state[State.NODES] = self._nodes
        self.state[State.INDEX] = self._index
        self.state[State.INDEX_MASK] = 2 * MAX_NODES - 1
        self.state[State.MAX_NODES] = MAX_NODES
        lost = (ctypes.c_int64 * Node.SIZE).from_address(self._nodes)
        lost[Node.PARENT] = NO_NODE
        self.state[State.N_NODES] = 1

    def _free_tree(self) -> None:
        """Give the tree back, and with it the references to code objects."""
        if not self._nodes:
            return
        count = self.state[State.N_NODES]
        image = (ctypes.c_int64 * (count * Node.SIZE)).from_address(self._nodes)
        codes = [code for code in image[Node.CODE :: Node.SIZE] if code]
        self.state[State.N_NODES] = 0
        nodes, index = self._nodes, self._index
        self._nodes = self._index = 0
        _free(nodes)
        _free(index)
        for code in codes:
            ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(code))

    def _threads(self) -> Iterator[Any]:
        """Yield the words of every thread's block."""
        table = self.state[State.TABLE]
        size = ctypes.c_int64.from_address(table).value + 1
        pairs = (ctypes.c_int64 * (TABLE_HEAD + 2 * size)).from_address(table)
        for address in pairs[TABLE_HEAD + 1 :: 2]:
            if address:
                yield (ctypes.c_int64 * Thread.SIZE).from_address(address)

    def _thread_idents(self) -> dict[int, int]:
        """Map root nodes of this session to the ident of their thread."""
        return {
            thread[Thread.ROOT_NODE]: thread[Thread.IDENT]
            for thread in self._threads()
            if thread[Thread.ROOT_EPOCH] == self._epochs
        }


def _calloc(words: int) -> int:
    allocate = ctypes.pythonapi.PyMem_RawCalloc
    allocate.restype = ctypes.c_void_p
    address = allocate(ctypes.c_size_t(words), ctypes.c_size_t(WORD_BYTES))
    if not address:
        raise MemoryError(f"no room for {words * WORD_BYTES} bytes of profile")
    return int(address)


def _free(address: int) -> None:
    ctypes.pythonapi.PyMem_RawFree(ctypes.c_void_p(address))
