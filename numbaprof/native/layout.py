"""Word layouts of the engine's memory: what the emitted code and Python agree on.

Everything is an array of 64-bit words; each enumeration names the words of one
structure, in order.
"""

from __future__ import annotations

import enum

from numbaprof.model import HISTOGRAM_BUCKETS

__all__ = [
    "EDGE_ROWS",
    "EDGE_WORDS",
    "INITIAL_FRAMES",
    "INITIAL_TABLE",
    "LOST_NODE",
    "MAX_DEPTH",
    "MAX_NODES",
    "NEAR_BYTES",
    "NO_NODE",
    "NO_TICKS",
    "NS_SHIFT",
    "RESERVED_NODES",
    "ROW_WORDS",
    "SPLIT_ROWS",
    "SPLIT_WORDS",
    "START_MINIMUM",
    "TABLE_HEAD",
    "WORD_BYTES",
    "Frame",
    "Node",
    "ParallelField",
    "PseudoSlot",
    "SlotField",
    "State",
    "Thread",
    "UfuncField",
]

WORD_BYTES = 8


class State(enum.IntEnum):
    """Words of the engine's one state block."""

    LAST_TSTATE = 0
    LAST_THREAD = 1
    TABLE = 2
    """Thread table: its mask, its use, then (thread state, thread) pairs. One word
    publishes it, so that a reader without the GIL sees table and mask together."""
    DISPATCH_TARGET = 3
    """The ``tp_call`` that ``dispatch`` stands in for."""
    NODES = 5
    N_NODES = 6
    MAX_NODES = 7
    INDEX = 8
    """Open-addressing table of node numbers plus one; 0 is empty."""
    INDEX_MASK = 9
    EPOCH = 10
    """Number of the running session; 0 when none runs."""
    TRUNCATED = 11
    NS_SCALE = 13
    """Nanoseconds per tick, times 2**NS_SHIFT; for histogram buckets only."""
    THREADS_LOST = 14
    """Calls in threads for which no memory could be had."""
    SIZE = 16


class Thread(enum.IntEnum):
    """Words of a thread's block."""

    TSTATE = 0
    DEPTH = 1
    CAPACITY = 2
    FRAMES = 3
    ROOT_NODE = 4
    ROOT_EPOCH = 5
    IDENT = 6
    """``PyThread_get_thread_ident`` when the block was claimed."""
    SIZE = 8


class Frame(enum.IntEnum):
    """Words of a shadow-stack frame."""

    SLOT = 0
    """0 while pending: dispatching has begun, the overload is not known yet."""
    T0 = 1
    T1 = 2
    CHILD = 3
    """Ticks spent in frames pushed above this one."""
    NODE = 4
    """The parent's node while pending."""
    EPOCH = 5
    INTERPRETER_FRAME = 6
    DISPATCHER = 7
    CODE = 8
    DISPATCH = 9
    """Ticks of dispatching, once an overload has taken the frame over."""
    STACK = 10
    """Address of the C frame of ``dispatch``; see ``near`` in trampolines."""
    SIZE = 11


class Node(enum.IntEnum):
    """Words of a node of the calling-context tree."""

    PARENT = 0
    SLOT = 1
    CODE = 2
    """Code object of the Python caller (a reference is held), 0 for none."""
    CALLS = 3
    ERRORS = 4
    INCLUSIVE = 5
    CHILD = 6
    DISPATCH = 7
    IN_FLIGHT = 8
    OVERHEAD = 9
    """Ticks of CHILD that were spent in our own callbacks, and so in no node."""
    SIZE = 10


class SlotField(enum.IntEnum):
    """Words of an overload's slot."""

    ORIG_FN = 0
    ORIG_SELF = 1
    DISPATCHER = 2
    UNMEASURED = 3
    """Calls inside that have no frame on a shadow stack."""
    MIN = 4
    MAX = 5
    CACHE_PARENT = 6
    CACHE_CODE = 7
    CACHE_NODE = 8
    UNDISPATCHED = 9
    """Calls that came past the dispatcher, such as through ``type(f).__call__``."""
    LAST_TICKS = 10
    """Of the call that ended last, which is in no bucket yet; NO_TICKS if none is."""
    HISTOGRAM = 11
    SIZE = 11 + HISTOGRAM_BUCKETS


EDGE_ROWS = 17
"""Callers kept per ufunc loop; the last row takes all further ones."""
EDGE_WORDS = 5
"""Parent node plus one, calls, ticks, child ticks, calls in flight."""


class UfuncField(enum.IntEnum):
    """Words of a ufunc loop's slot. All are updated atomically."""

    ORIG_FN = 0
    ORIG_DATA = 1
    ACTIVE = 2
    ELEMENTS = 3
    MIN = 4
    MAX = 5
    EPOCH = 6
    HISTOGRAM = 7
    EDGES = 7 + HISTOGRAM_BUCKETS
    SIZE = 7 + HISTOGRAM_BUCKETS + EDGE_ROWS * EDGE_WORDS


SPLIT_ROWS = 8
"""Thread counts kept per parallel overload; the last row takes all further ones."""
SPLIT_WORDS = 4
"""Number of threads, calls, ticks, nanoseconds of process CPU time."""


class ParallelField(enum.IntEnum):
    """Words of a parallel overload's second slot; updated under the GIL."""

    ORIG_FN = 0
    ORIG_SELF = 1
    GET_THREADS = 2
    """Address of Numba's ``int get_num_threads(void)``."""
    ROWS = 3
    SIZE = 3 + SPLIT_ROWS * SPLIT_WORDS


class PseudoSlot(enum.IntEnum):
    """Slot values of nodes that are not overloads; no object has such an address."""

    THREAD = 1
    COMPILE = 2
    CACHE_LOAD = 3
    FAILED_DISPATCH = 4
    UNATTACHED = 5
    """A call that returned, but whose overload could not be attached to."""
    DISPATCHING = 6
    """Dispatching was under way when the session stopped."""
    CACHE_MISS = 7
    """A look into the cache that found nothing."""
    UFUNC = 8
    """A ufunc loop's frame, on the shadow stack only."""
    PYTHON = 9
    """A Python function's frame: in Frame.DISPATCHER, its row is in Frame.SLOT."""
    BUILTIN = 10
    """A builtin function's frame, likewise."""


NO_NODE = -1
LOST_NODE = 0
"""Root of calls whose context did not fit; one node per slot below it."""
INITIAL_FRAMES = 32
INITIAL_TABLE = 256
MAX_NODES = 1 << 20
"""Address space for 72 MB of nodes and 16 MB of index; pages are used as they fill."""
RESERVED_NODES = 1 << 16
"""Kept for the nodes below LOST_NODE once all others are used."""
NEAR_BYTES = 4096
"""Two C frames this close are on one thread's stack: between the stacks of two threads
lies at least a guard page. Numba's dispatcher takes a few hundred bytes of it."""
MAX_DEPTH = 1 << 16
"""Frames per thread; deeper calls run unmeasured."""
NS_SHIFT = 20
ROW_WORDS = 4
"""Words at a row's address; what a tracer keeps there is its own business."""
TABLE_HEAD = 2
"""Words before the pairs of a thread table: mask, pairs in use."""
NO_TICKS = -(2**63)
START_MINIMUM = 2**62
