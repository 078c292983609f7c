"""Emitters of the engine's machine code: shadow stack, context tree, trampolines.

:mod:`numbaprof.native.engine` says what the parts do together and who may touch what
under which lock; here each function says what the function it emits does.
"""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import llvmlite.ir as ir

from numbaprof.model import HISTOGRAM_BUCKETS
from numbaprof.native import clock as clocks
from numbaprof.native import emit
from numbaprof.native.cpython_api import HEADER_BYTES, Layouts
from numbaprof.native.emit import PTR, VOID, WORD, const, load_pointer, load_word
from numbaprof.native.layout import (
    EDGE_ROWS,
    EDGE_WORDS,
    INITIAL_FRAMES,
    LOST_NODE,
    MAX_DEPTH,
    NEAR_BYTES,
    NO_NODE,
    NO_TICKS,
    NS_SHIFT,
    RESERVED_NODES,
    SPLIT_ROWS,
    SPLIT_WORDS,
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

__all__ = ["EXPORTED", "EngineBuilder", "build_module", "hash_pointer"]

HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 / golden ratio, Knuth TAOCP 6.4."""

QUIET = "preserve_mostcc"
"""LLVM's calling convention for cold callees: they save nearly all registers."""

_CALL = ir.FunctionType(PTR, (PTR, PTR, PTR))
_LOOP = ir.FunctionType(VOID, (PTR, PTR, PTR, PTR))
EXPORTED = (
    "overload",
    *(("parallel_call",) if clocks.has_cpu_clock() else ()),
    "dispatch",
    "ufunc_loop",
    "open_frame",
    "close_frame",
    "rename_frame",
    "charge_overhead",
    "enter_row",
    "leave_row",
    "stop",
    "register_thread",
    "now",
    "native_enter",
    "native_leave",
    "echo",
    # For other modules of ours, which build on the same stacks and tree.
    "grow_frames",
    "claim_thread",
    "find_node",
    "root_node",
)
RARE = (
    "new_node",
    "open_frame",
    "close_frame",
    "rename_frame",
    "charge_overhead",
    "stop",
    "register_thread",
)
"""Called from Python, once per compilation or less, or once per context."""


def build_module(layouts: Layouts, clock: clocks.Clock, state: int) -> ir.Module:
    """Return the engine's module.

    Parameters
    ----------
    layouts : Layouts
        Where CPython keeps things.
    clock : Clock
        What to read.
    state : int
        Address of the state block.
    """
    return EngineBuilder(layouts, clock, state).build()


class EngineBuilder:
    """Emits the engine's module, one method per emitted function."""

    def __init__(self, layouts: Layouts, clock: clocks.Clock, state: int) -> None:
        self.module = ir.Module("numbaprof.engine")
        self.caller = layouts.caller
        self.state = const(state).inttoptr(PTR)
        self.clock = clocks.emit_read(self.module, clock)
        self.frame_address = self.module.declare_intrinsic(
            "llvm.frameaddress", (PTR,), ir.FunctionType(PTR, (ir.IntType(32),))
        )
        self.leading_zeros = self.module.declare_intrinsic(
            "llvm.ctlz", (WORD,), ir.FunctionType(WORD, (WORD, emit.BIT))
        )

    def link(self, addresses: dict[str, int]) -> None:
        """Let what is emitted call an engine that is built already."""
        for name, signature in (
            ("grow_frames", ir.FunctionType(emit.BIT, (PTR,))),
            ("claim_thread", ir.FunctionType(PTR, (WORD,))),
            ("find_node", ir.FunctionType(WORD, (WORD, WORD, WORD))),
            ("root_node", ir.FunctionType(WORD, (PTR,))),
        ):
            target = const(addresses[name]).inttoptr(PTR)
            setattr(self, name, emit.callee(target, signature))

    def build(self) -> ir.Module:
        """Emit every function, callees first."""
        self.grow_frames = self._quiet(self._emit_grow_frames())
        self.find_thread = self._emit_find_thread()
        self.claim_thread = self._quiet(self._emit_claim_thread())
        self.new_node = self._emit_new_node()
        self.find_node = self._emit_find_node()
        self.root_node = self._quiet(self._emit_root_node())
        self.close_dispatch = self._emit_close_dispatch()
        self.move_node = self._emit_move_node()
        self.enter_slow = self._emit_enter_slow()
        self.unmeasured = self._emit_unmeasured()
        self._emit_dispatch()
        self._emit_overload()
        if clocks.has_cpu_clock():
            self._emit_parallel_call()
        self._emit_open_frame()
        self._emit_close_frame()
        self._emit_rename_frame()
        self._emit_charge_overhead()
        self._emit_enter_row()
        self._emit_leave_row()
        self.native_enter = self._emit_native_enter()
        self.native_leave = self._emit_native_leave()
        self._emit_ufunc_loop()
        self._emit_stop()
        self._emit_register_thread()
        self._emit_now()
        self._emit_echo()
        for name in RARE:
            self._rare(self.module.get_global(name))
        return self.module

    # -- pieces that are inlined ------------------------------------------------------

    def _function(
        self,
        name: str,
        signature: ir.FunctionType,
        *arguments: str,
        export: bool = True,
    ) -> tuple[ir.Function, ir.IRBuilder]:
        return emit.new_function(
            self.module,
            name,
            signature,
            arguments,
            linkage="" if export else "internal",
        )

    def _cold(self, function: ir.Function) -> ir.Function:
        # Kept out of line: inlined, their register pressure would cost every call.
        function.attributes.add("noinline")
        function.attributes.add("cold")
        return function

    def _rare(self, function: ir.Function) -> ir.Function:
        # What runs seldom need not be fast, and LLVM takes six times as long to
        # optimise as to translate: time that each first start would take.
        function.attributes.add("optnone")
        return self._cold(function)

    def _quiet(self, function: ir.Function) -> ir.Function:
        """Emit a way to call a cold function that changes no register but the result's.

        So what the hot path keeps in registers stays there, and is saved only if the
        cold one is taken.
        """
        signature = function.function_type
        outer, builder = self._function(
            f"{function.name}.quiet",
            signature,
            *(argument.name for argument in function.args),
            export=False,
        )
        outer.calling_convention = QUIET
        result = builder.call(function, outer.args)
        if signature.return_type == VOID:
            builder.ret_void()
        else:
            builder.ret(result)
        return self._cold(outer)

    def _thread(self, builder: ir.IRBuilder, tstate: ir.Value) -> Any:
        """Emit finding this thread's block; NULL when there is no memory for one."""
        found = emit.variable(builder, PTR, "thread.found")
        builder.store(load_pointer(builder, self.state, State.LAST_THREAD), found)
        last = load_word(builder, self.state, State.LAST_TSTATE)
        with emit.unlikely(builder, builder.icmp_unsigned("!=", last, tstate)):
            builder.store(builder.call(self.claim_thread, (tstate,)), found)
        return builder.load(found, typ=PTR, name="thread")

    def _frame(self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value) -> Any:
        """Emit the address of frame number ``depth``; valid until the next call."""
        frames = load_pointer(builder, thread, Thread.FRAMES)
        offset = builder.mul(depth, const(Frame.SIZE))
        return emit.word_pointer(builder, frames, offset)

    def _node(self, builder: ir.IRBuilder, number: ir.Value) -> Any:
        """Emit the address of node ``number``; valid until a node is added."""
        nodes = load_pointer(builder, self.state, State.NODES)
        return emit.word_pointer(builder, nodes, builder.mul(number, const(Node.SIZE)))

    def _room(self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value) -> Any:
        """Emit making room for one more frame; false when there is none to be had."""
        room = emit.variable(builder, emit.BIT, "room")
        builder.store(ir.Constant(emit.BIT, 1), room)
        capacity = load_word(builder, thread, Thread.CAPACITY)
        with emit.unlikely(builder, builder.icmp_signed(">=", depth, capacity)):
            builder.store(builder.call(self.grow_frames, (thread,)), room)
        return builder.load(room, typ=emit.BIT)

    def _caller(self, builder: ir.IRBuilder, tstate: ir.Value) -> tuple[Any, Any]:
        """Emit reading the running Python frame and its code, 0 where there is none."""
        if self.caller is None:
            return const(0), const(0)
        frame = tstate
        for offset in self.caller.chain:
            frame = load_word(builder, builder.inttoptr(frame, PTR), _word(offset))
        code = emit.variable(builder, WORD, "code")
        builder.store(const(0), code)
        with emit.likely(builder, builder.icmp_unsigned("!=", frame, const(0))):
            pointer = builder.inttoptr(frame, PTR)
            builder.store(load_word(builder, pointer, _word(self.caller.code)), code)
        return frame, builder.load(code, typ=WORD)

    def _parent(
        self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value, epoch: ir.Value
    ) -> tuple[Any, Any]:
        """Emit finding the parent's node and the interpreter frame it was entered in.

        The thread's root where nothing is open, or only frames of an earlier session.
        """
        node = emit.variable(builder, WORD, "parent.node")
        inside = emit.variable(builder, WORD, "parent.frame")
        builder.store(const(NO_NODE), node)
        builder.store(const(0), inside)
        self._read_top(builder, thread, depth, epoch, (node, inside))
        orphan = builder.icmp_signed("==", builder.load(node, typ=WORD), const(NO_NODE))
        with builder.if_then(orphan):
            builder.store(load_word(builder, thread, Thread.ROOT_NODE), node)
            known = load_word(builder, thread, Thread.ROOT_EPOCH)
            with emit.unlikely(builder, builder.icmp_signed("!=", known, epoch)):
                builder.store(builder.call(self.root_node, (thread,)), node)
        return builder.load(node, typ=WORD), builder.load(inside, typ=WORD)

    def _read_top(
        self,
        builder: ir.IRBuilder,
        thread: ir.Value,
        depth: ir.Value,
        epoch: ir.Value,
        into: tuple[ir.Value, ir.Value],
    ) -> None:
        """Emit storing the node and interpreter frame of what is open in this epoch.

        Both variables stay as they are where nothing is.
        """
        node, inside = into
        with builder.if_then(builder.icmp_signed(">", depth, const(0))):
            top = self._frame(builder, thread, builder.sub(depth, const(1)))
            same = builder.icmp_signed(
                "==", load_word(builder, top, Frame.EPOCH), epoch
            )
            with emit.likely(builder, same):
                builder.store(load_word(builder, top, Frame.NODE), node)
                builder.store(load_word(builder, top, Frame.INTERPRETER_FRAME), inside)

    def _push(
        self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value, tstate: ir.Value
    ) -> Any:
        """Emit pushing a frame at ``depth`` without times and return its address.

        Slot 0, no children, the parent's node, and the Python caller unless the parent
        was entered in the very same interpreter frame: then compiled code is calling.
        The caller of this sets DISPATCHER and T0.
        """
        epoch = load_word(builder, self.state, State.EPOCH)
        parent, inside = self._parent(builder, thread, depth, epoch)
        running, code = self._caller(builder, tstate)
        compiled = builder.icmp_unsigned("==", running, inside)
        frame = self._frame(builder, thread, depth)
        for field, value in (
            (Frame.SLOT, const(0)),
            (Frame.CHILD, const(0)),
            (Frame.NODE, parent),
            (Frame.EPOCH, epoch),
            (Frame.INTERPRETER_FRAME, running),
            (Frame.CODE, builder.select(compiled, const(0), code)),
        ):
            emit.store_word(builder, frame, field, value)
        emit.store_word(builder, thread, Thread.DEPTH, builder.add(depth, const(1)))
        return frame

    def _own_thread(self, builder: ir.IRBuilder) -> tuple[Any, Any]:
        """Emit finding (thread state, thread); NO_NODE is returned if there is none."""
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        thread = self._thread(builder, tstate)
        with emit.unlikely(builder, emit.is_null(builder, thread)):
            builder.ret(const(NO_NODE))
        return tstate, thread

    def _next_level(self, builder: ir.IRBuilder) -> tuple[Any, Any, Any, Any]:
        """Emit finding (epoch, thread state, thread, depth) of a frame to be pushed.

        NO_NODE is returned when no session runs or there is no room.
        """
        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            builder.ret(const(NO_NODE))
        tstate, thread = self._own_thread(builder)
        depth = load_word(builder, thread, Thread.DEPTH)
        with emit.unlikely(builder, builder.not_(self._room(builder, thread, depth))):
            builder.ret(const(NO_NODE))
        return epoch, tstate, thread, depth

    def _pop_to(self, builder: ir.IRBuilder, depth: ir.Value) -> tuple[Any, Any]:
        """Emit popping down to (thread, frame at ``depth``).

        Frames above it are dropped. NO_NODE is returned when it was not there any more.
        """
        _, thread = self._own_thread(builder)
        height = load_word(builder, thread, Thread.DEPTH)
        gone = builder.or_(
            builder.icmp_signed("<=", height, depth),
            builder.icmp_signed("<", depth, const(0)),
        )
        with emit.unlikely(builder, gone):
            builder.ret(const(NO_NODE))
        emit.store_word(builder, thread, Thread.DEPTH, depth)
        frame = self._frame(builder, thread, depth)
        epoch = load_word(builder, self.state, State.EPOCH)
        stale = builder.icmp_signed("!=", load_word(builder, frame, Frame.EPOCH), epoch)
        with emit.unlikely(builder, stale):
            builder.ret(const(NO_NODE))
        return thread, frame

    def _book_call(
        self, builder: ir.IRBuilder, frame: ir.Value, end: ir.Value
    ) -> tuple[Any, Any]:
        """Emit booking a call that ended on its node; (ticks, node)."""
        ticks = builder.sub(end, load_word(builder, frame, Frame.T1))
        node = self._node(builder, load_word(builder, frame, Frame.NODE))
        emit.add_to_word(builder, node, Node.CALLS, const(1))
        emit.add_to_word(builder, node, Node.INCLUSIVE, ticks)
        child = load_word(builder, frame, Frame.CHILD)
        emit.add_to_word(builder, node, Node.CHILD, child)
        return ticks, node

    def _credit_parent(
        self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value, ticks: ir.Value
    ) -> None:
        """Emit adding ``ticks`` to the children of the frame below ``depth``."""
        with builder.if_then(builder.icmp_signed(">", depth, const(0))):
            below = self._frame(builder, thread, builder.sub(depth, const(1)))
            emit.add_to_word(builder, below, Frame.CHILD, ticks)

    def _extremes(
        self,
        builder: ir.IRBuilder,
        slot: ir.Value,
        fields: tuple[int, int],
        ticks: ir.Value,
    ) -> None:
        """Emit updating a slot's minimum and maximum, under the GIL."""
        for field, sign in zip(fields, ("<", ">"), strict=True):
            old = load_word(builder, slot, field)
            with emit.unlikely(builder, builder.icmp_signed(sign, ticks, old)):
                emit.store_word(builder, slot, field, ticks)

    def _bucket(self, builder: ir.IRBuilder, first: int, ticks: ir.Value) -> Any:
        """Emit the word index of the histogram bucket for ``ticks``."""
        wide = ir.IntType(128)
        scale = load_word(builder, self.state, State.NS_SCALE)
        product = builder.mul(builder.zext(ticks, wide), builder.zext(scale, wide))
        shifted = builder.lshr(product, ir.Constant(wide, NS_SHIFT))
        nanoseconds = builder.trunc(shifted, WORD)
        zeros = builder.call(
            self.leading_zeros, (nanoseconds, ir.Constant(emit.BIT, 0))
        )
        bucket = builder.sub(const(64), zeros)
        last = const(HISTOGRAM_BUCKETS - 1)
        bucket = builder.select(builder.icmp_signed(">", bucket, last), last, bucket)
        return builder.add(bucket, const(first))

    def _absolute(
        self,
        builder: ir.IRBuilder,
        name: str,
        result: ir.Type,
        *arguments: ir.Value,
    ) -> Any:
        signature = ir.FunctionType(result, tuple(a.type for a in arguments))
        address = emit.address_of(name)
        return emit.call_absolute(builder, address, signature, list(arguments))

    # -- threads ----------------------------------------------------------------------

    def _emit_grow_frames(self) -> ir.Function:
        """Emit ``bool grow_frames(Thread *thread)``: double the frames, or false."""
        function, builder = self._function(
            "grow_frames", ir.FunctionType(emit.BIT, (PTR,)), "thread"
        )
        (thread,) = function.args
        capacity = load_word(builder, thread, Thread.CAPACITY)
        doubled = builder.mul(capacity, const(2))
        with emit.unlikely(
            builder, builder.icmp_signed(">", doubled, const(MAX_DEPTH))
        ):
            builder.ret(ir.Constant(emit.BIT, 0))
        size = builder.mul(doubled, const(Frame.SIZE * WORD_BYTES))
        old = load_pointer(builder, thread, Thread.FRAMES)
        new = self._absolute(builder, "PyMem_RawRealloc", PTR, old, size)
        with emit.unlikely(builder, emit.is_null(builder, new)):
            builder.ret(ir.Constant(emit.BIT, 0))
        emit.store_word(builder, thread, Thread.FRAMES, new)
        emit.store_word(builder, thread, Thread.CAPACITY, doubled)
        builder.ret(ir.Constant(emit.BIT, 1))
        return self._rare(function)

    def _emit_find_thread(self) -> ir.Function:
        """Emit ``Thread *find_thread(word tstate)``: look up, insert nothing.

        Safe without the GIL: the table is published whole by one word and never freed,
        a pair's thread is written before its key.
        """
        function, builder = self._function(
            "find_thread", ir.FunctionType(PTR, (WORD,)), "tstate", export=False
        )
        (tstate,) = function.args
        table = load_pointer(builder, self.state, State.TABLE)
        mask = load_word(builder, table, 0)
        start = builder.and_(_hash_pointer(builder, tstate), mask)
        with _probe(builder, start, mask) as position:
            pair = _pair(builder, table, position)
            key = load_word(builder, pair, 0)
            with builder.if_then(builder.icmp_unsigned("==", key, tstate)):
                builder.ret(load_pointer(builder, pair, 1))
            with builder.if_then(builder.icmp_unsigned("==", key, const(0))):
                builder.ret(ir.Constant(PTR, None))
        return self._rare(function)

    def _emit_claim_thread(self) -> ir.Function:
        """Emit ``Thread *claim_thread(word tstate)``: find or make, and remember.

        Called with the GIL. Doubles the table at half load; the old one stays, for
        readers without the GIL.
        """
        function, builder = self._function(
            "claim_thread", ir.FunctionType(PTR, (WORD,)), "tstate"
        )
        (tstate,) = function.args
        known = builder.call(self.find_thread, (tstate,))
        with builder.if_then(builder.not_(emit.is_null(builder, known))):
            self._remember(builder, tstate, known)
            builder.ret(known)
        with emit.unlikely(builder, builder.not_(self._table_has_room(builder))):
            builder.ret(ir.Constant(PTR, None))
        thread = self._absolute(
            builder, "PyMem_RawCalloc", PTR, const(Thread.SIZE), const(WORD_BYTES)
        )
        frames = self._absolute(
            builder,
            "PyMem_RawCalloc",
            PTR,
            const(INITIAL_FRAMES * Frame.SIZE),
            const(WORD_BYTES),
        )
        nothing = builder.or_(
            emit.is_null(builder, thread), emit.is_null(builder, frames)
        )
        with emit.unlikely(builder, nothing):
            emit.add_to_word(builder, self.state, State.THREADS_LOST, const(1))
            builder.ret(ir.Constant(PTR, None))
        emit.store_word(builder, thread, Thread.TSTATE, tstate)
        emit.store_word(builder, thread, Thread.FRAMES, frames)
        emit.store_word(builder, thread, Thread.CAPACITY, const(INITIAL_FRAMES))
        ident = self._absolute(builder, "PyThread_get_thread_ident", WORD)
        emit.store_word(builder, thread, Thread.IDENT, ident)
        table = load_pointer(builder, self.state, State.TABLE)
        _insert_pair(builder, table, tstate, thread)
        emit.add_to_word(builder, table, 1, const(1))
        self._remember(builder, tstate, thread)
        builder.ret(thread)
        return self._rare(function)

    def _remember(
        self, builder: ir.IRBuilder, tstate: ir.Value, thread: ir.Value
    ) -> None:
        emit.store_word(builder, self.state, State.LAST_TSTATE, tstate)
        emit.store_word(builder, self.state, State.LAST_THREAD, thread)

    def _table_has_room(self, builder: ir.IRBuilder) -> Any:
        room = emit.variable(builder, emit.BIT, "table.room")
        builder.store(ir.Constant(emit.BIT, 1), room)
        table = load_pointer(builder, self.state, State.TABLE)
        mask = load_word(builder, table, 0)
        twice = builder.mul(load_word(builder, table, 1), const(2))
        with emit.unlikely(builder, builder.icmp_unsigned(">", twice, mask)):
            size = builder.mul(builder.add(mask, const(1)), const(2))
            words = builder.add(builder.mul(size, const(2)), const(TABLE_HEAD))
            new = self._absolute(
                builder, "PyMem_RawCalloc", PTR, words, const(WORD_BYTES)
            )
            with builder.if_else(emit.is_null(builder, new), likely=False) as (no, yes):
                with no:
                    builder.store(ir.Constant(emit.BIT, 0), room)
                with yes:
                    emit.store_word(builder, new, 0, builder.sub(size, const(1)))
                    emit.store_word(builder, new, 1, load_word(builder, table, 1))
                    with emit.count(builder, builder.add(mask, const(1))) as position:
                        pair = _pair(builder, table, position)
                        key = load_word(builder, pair, 0)
                        used = builder.icmp_unsigned("!=", key, const(0))
                        with builder.if_then(used):
                            value = load_pointer(builder, pair, 1)
                            _insert_pair(builder, new, key, value)
                    pointer = emit.word_pointer(builder, self.state, State.TABLE)
                    _publish(builder, pointer, builder.ptrtoint(new, WORD))
        return builder.load(room, typ=emit.BIT)

    # -- nodes ------------------------------------------------------------------------

    def _emit_new_node(self) -> ir.Function:
        """Emit ``word new_node(word parent, word code, word slot)``.

        Append a node, or return NO_NODE when there is no room. Holds a reference to the
        code object, so that its address cannot come to mean another one.
        """
        signature = ir.FunctionType(WORD, (WORD, WORD, WORD))
        function, builder = self._function(
            "new_node", signature, "parent", "code", "slot", export=False
        )
        parent, code, slot = function.args
        number = load_word(builder, self.state, State.N_NODES)
        limit = load_word(builder, self.state, State.MAX_NODES)
        below_lost = builder.icmp_signed("==", parent, const(LOST_NODE))
        reserve = builder.select(below_lost, const(0), const(RESERVED_NODES))
        full = builder.icmp_signed(">=", number, builder.sub(limit, reserve))
        with emit.unlikely(builder, full):
            builder.ret(const(NO_NODE))
        node = self._node(builder, number)
        values = {Node.PARENT: parent, Node.SLOT: slot, Node.CODE: code}
        for field in range(Node.SIZE):
            emit.store_word(builder, node, field, values.get(Node(field), const(0)))
        with builder.if_then(builder.icmp_unsigned("!=", code, const(0))):
            self._absolute(builder, "Py_IncRef", VOID, builder.inttoptr(code, PTR))
        emit.store_word(
            builder, self.state, State.N_NODES, builder.add(number, const(1))
        )
        builder.ret(number)
        return self._cold(function)

    def _emit_find_node(self) -> ir.Function:
        """Emit ``word find_node(word parent, word code, word slot)``.

        Find the node or add it. Without room, count that and answer with the slot's
        node below LOST_NODE, or with LOST_NODE itself.
        """
        signature = ir.FunctionType(WORD, (WORD, WORD, WORD))
        function, builder = self._function(
            "find_node", signature, "parent", "code", "slot"
        )
        parent, code, slot = function.args
        index = load_pointer(builder, self.state, State.INDEX)
        mask = load_word(builder, self.state, State.INDEX_MASK)
        start = builder.and_(_hash_key(builder, parent, code, slot), mask)
        with _probe(builder, start, mask) as position:
            entry = load_word(builder, index, position)
            number = builder.sub(entry, const(1))
            with builder.if_then(builder.icmp_signed("==", entry, const(0))):
                fresh = builder.call(self.new_node, (parent, code, slot))
                full = builder.icmp_signed("==", fresh, const(NO_NODE))
                with emit.unlikely(builder, full):
                    lost = builder.icmp_signed("==", parent, const(LOST_NODE))
                    with builder.if_then(lost):
                        builder.ret(const(LOST_NODE))
                    emit.add_to_word(builder, self.state, State.TRUNCATED, const(1))
                    builder.ret(
                        builder.call(function, (const(LOST_NODE), const(0), slot))
                    )
                emit.store_word(builder, index, position, builder.add(fresh, const(1)))
                builder.ret(fresh)
            node = self._node(builder, number)
            same = ir.Constant(emit.BIT, 1)
            for field, value in (
                (Node.PARENT, parent),
                (Node.SLOT, slot),
                (Node.CODE, code),
            ):
                stored = load_word(builder, node, field)
                same = builder.and_(same, builder.icmp_signed("==", stored, value))
            with builder.if_then(same):
                builder.ret(number)
        return self._cold(function)

    def _emit_root_node(self) -> ir.Function:
        """Emit ``word root_node(Thread *thread)``: its root in this session."""
        function, builder = self._function(
            "root_node", ir.FunctionType(WORD, (PTR,)), "thread"
        )
        (thread,) = function.args
        epoch = load_word(builder, self.state, State.EPOCH)
        known = load_word(builder, thread, Thread.ROOT_EPOCH)
        with emit.likely(builder, builder.icmp_signed("==", known, epoch)):
            builder.ret(load_word(builder, thread, Thread.ROOT_NODE))
        fresh = builder.call(
            self.new_node, (const(NO_NODE), const(0), const(PseudoSlot.THREAD))
        )
        full = builder.icmp_signed("==", fresh, const(NO_NODE))
        root = builder.select(full, const(LOST_NODE), fresh)
        emit.store_word(builder, thread, Thread.ROOT_NODE, root)
        emit.store_word(builder, thread, Thread.ROOT_EPOCH, epoch)
        # The block may be that of a thread that ended: its state's address came back.
        ident = self._absolute(builder, "PyThread_get_thread_ident", WORD)
        emit.store_word(builder, thread, Thread.IDENT, ident)
        builder.ret(root)
        return self._rare(function)

    # -- calls ------------------------------------------------------------------------

    def _emit_dispatch(self) -> None:
        """Emit ``PyObject *dispatch(PyObject *self, PyObject *args, PyObject *kws)``.

        Stands in for ``tp_call`` of the dispatcher types.
        """
        function, builder = self._function("dispatch", _CALL, "self", "args", "kws")
        dispatcher, args, kws = function.args
        target = load_pointer(builder, self.state, State.DISPATCH_TARGET)
        original = emit.callee(target, _CALL)
        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            builder.ret(builder.call(original, (dispatcher, args, kws), tail=True))
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        thread = self._thread(builder, tstate)
        with emit.unlikely(builder, emit.is_null(builder, thread)):
            builder.ret(builder.call(original, (dispatcher, args, kws), tail=True))
        depth = load_word(builder, thread, Thread.DEPTH)
        with emit.unlikely(builder, builder.not_(self._room(builder, thread, depth))):
            builder.ret(builder.call(original, (dispatcher, args, kws), tail=True))
        frame = self._push(builder, thread, depth, tstate)
        owner = builder.ptrtoint(dispatcher, WORD)
        emit.store_word(builder, frame, Frame.DISPATCHER, owner)
        emit.store_word(builder, frame, Frame.STACK, self._stack(builder))
        emit.store_word(builder, frame, Frame.T0, self.clock(builder))
        result = builder.call(original, (dispatcher, args, kws))
        left = load_word(builder, thread, Thread.DEPTH)
        with emit.unlikely(builder, builder.icmp_signed(">", left, depth)):
            failed = builder.zext(emit.is_null(builder, result), WORD)
            builder.call(self.close_dispatch, (thread, depth, failed))
        builder.ret(result)

    def _emit_close_dispatch(self) -> ir.Function:
        """Emit ``void close_dispatch(Thread *thread, word depth, word failed)``.

        Pop a frame that no overload took over: nothing matched, compiling failed, or
        the overload that ran could not be attached to.
        """
        signature = ir.FunctionType(VOID, (PTR, WORD, WORD))
        function, builder = self._function(
            "close_dispatch", signature, "thread", "depth", "failed", export=False
        )
        thread, depth, failed = function.args
        now = self.clock(builder)
        emit.store_word(builder, thread, Thread.DEPTH, depth)
        frame = self._frame(builder, thread, depth)
        epoch = load_word(builder, self.state, State.EPOCH)
        # Another frame can be here only if the end of a compilation was lost above.
        current = builder.and_(
            builder.icmp_signed("==", load_word(builder, frame, Frame.EPOCH), epoch),
            builder.icmp_signed("==", load_word(builder, frame, Frame.SLOT), const(0)),
        )
        with builder.if_then(current):
            error = builder.icmp_signed("!=", failed, const(0))
            kind = builder.select(
                error, const(PseudoSlot.FAILED_DISPATCH), const(PseudoSlot.UNATTACHED)
            )
            parent = load_word(builder, frame, Frame.NODE)
            code = load_word(builder, frame, Frame.CODE)
            number = builder.call(self.find_node, (parent, code, kind))
            spent = builder.sub(now, load_word(builder, frame, Frame.T0))
            node = self._node(builder, number)
            emit.add_to_word(builder, node, Node.CALLS, const(1))
            emit.add_to_word(builder, node, Node.ERRORS, failed)
            # What happened while dispatching (compiling) hangs beside this node, as it
            # does when dispatching succeeds; so only the rest is this node's.
            child = load_word(builder, frame, Frame.CHILD)
            own = builder.sub(spent, child)
            emit.add_to_word(builder, node, Node.INCLUSIVE, own)
            self._credit_parent(builder, thread, depth, spent)
        builder.ret_void()
        return self._rare(function)

    def _emit_unmeasured(self) -> ir.Function:
        """Emit ``PyObject *unmeasured(Slot *slot, PyObject *args, PyObject *kws)``.

        A call that has no frame.
        """
        function, builder = self._function(
            "unmeasured", _CALL, "slot", "args", "kws", export=False
        )
        slot, args, kws = function.args
        original = emit.callee(load_pointer(builder, slot, SlotField.ORIG_FN), _CALL)
        owner = load_pointer(builder, slot, SlotField.ORIG_SELF)
        emit.add_to_word(builder, slot, SlotField.UNMEASURED, const(1))
        result = builder.call(original, (owner, args, kws))
        emit.add_to_word(builder, slot, SlotField.UNMEASURED, const(-1))
        builder.ret(result)
        return self._rare(function)

    def _emit_enter_slow(self) -> ir.Function:
        """Emit ``Thread *enter_slow(Slot *slot)``: see to it that a frame is pending.

        It is the thread's top one: of the dispatcher's trampoline, or a new one where
        that did not run. NULL when there is no room.
        """
        function, builder = self._function(
            "enter_slow", ir.FunctionType(PTR, (PTR,)), "slot", export=False
        )
        function.calling_convention = QUIET
        (slot,) = function.args
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        thread = self._thread(builder, tstate)
        with emit.unlikely(builder, emit.is_null(builder, thread)):
            builder.ret(thread)
        level_at = emit.variable(builder, WORD, "level.at")
        builder.store(const(NO_NODE), level_at)
        self._emit_take_over(builder, thread, level_at, slot, None)
        fresh = builder.icmp_signed("<", builder.load(level_at, typ=WORD), const(0))
        with builder.if_then(fresh):
            depth = load_word(builder, thread, Thread.DEPTH)
            room = self._room(builder, thread, depth)
            with emit.unlikely(builder, builder.not_(room)):
                builder.ret(ir.Constant(PTR, None))
            pushed = self._push(builder, thread, depth, tstate)
            emit.store_word(builder, pushed, Frame.DISPATCHER, const(0))
            emit.store_word(builder, pushed, Frame.T0, const(0))
            emit.add_to_word(builder, slot, SlotField.UNDISPATCHED, const(1))
        builder.ret(thread)
        return self._rare(function)

    def _emit_overload(self) -> None:
        """Emit ``PyObject *overload(PyObject *self, PyObject *args, PyObject *kws)``.

        Stands in for the ``ml_meth`` of an entry point whose ``m_self`` is a Slot.
        """
        function, builder = self._function("overload", _CALL, "self", "args", "kws")
        self_, args, kws = function.args
        slot = load_pointer(builder, self_, HEADER_BYTES // WORD_BYTES, "slot")

        def unmeasured() -> None:
            builder.ret(builder.call(self.unmeasured, (slot, args, kws), tail=True))

        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            unmeasured()
        thread_at = emit.variable(builder, PTR, "thread.at")
        level_at = emit.variable(builder, WORD, "level.at")
        last = load_pointer(builder, self.state, State.LAST_THREAD)
        builder.store(last, thread_at)
        builder.store(const(NO_NODE), level_at)
        with emit.likely(builder, builder.not_(emit.is_null(builder, last))):
            self._emit_take_over(builder, last, level_at, slot, self._stack(builder))
        missed = builder.icmp_signed("<", builder.load(level_at, typ=WORD), const(0))
        with emit.unlikely(builder, missed):
            thread = builder.call(self.enter_slow, (slot,))
            with emit.unlikely(builder, emit.is_null(builder, thread)):
                unmeasured()
            builder.store(thread, thread_at)
            depth = load_word(builder, thread, Thread.DEPTH)
            builder.store(builder.sub(depth, const(1)), level_at)
        thread = builder.load(thread_at, typ=PTR)
        level = builder.load(level_at, typ=WORD)
        frame = self._frame(builder, thread, level)
        self._emit_enter_node(builder, frame, slot)
        original = emit.callee(load_pointer(builder, slot, SlotField.ORIG_FN), _CALL)
        owner = load_pointer(builder, slot, SlotField.ORIG_SELF)
        self._emit_begin(builder, frame)
        result = builder.call(original, (owner, args, kws))
        end = self.clock(builder)
        emit.store_word(builder, thread, Thread.DEPTH, level)
        frame = self._frame(builder, thread, level)
        epoch = load_word(builder, self.state, State.EPOCH)
        current = builder.icmp_signed(
            "==", load_word(builder, frame, Frame.EPOCH), epoch
        )
        with emit.likely(builder, current):
            self._emit_leave_node(builder, frame, slot, result, end)
            total = builder.sub(end, load_word(builder, frame, Frame.T0))
            self._credit_parent(builder, thread, level, total)
        builder.ret(result)

    def _emit_begin(self, builder: ir.IRBuilder, frame: ir.Value) -> None:
        """Emit reading the clock, and what was dispatching until then."""
        compiling = load_word(builder, frame, Frame.CHILD)
        emit.store_word(builder, frame, Frame.CHILD, const(0))
        begin = self.clock(builder)
        emit.store_word(builder, frame, Frame.T1, begin)
        # A frame nobody dispatched begins now; 0 is no reading of a clock that runs.
        first = load_word(builder, frame, Frame.T0)
        raw = builder.icmp_signed("==", first, const(0))
        with emit.unlikely(builder, raw):
            emit.store_word(builder, frame, Frame.T0, begin)
        first = load_word(builder, frame, Frame.T0)
        waited = builder.sub(builder.sub(begin, first), compiling)
        emit.store_word(builder, frame, Frame.DISPATCH, waited)

    def _stack(self, builder: ir.IRBuilder) -> Any:
        """Emit the address of this C frame."""
        zero = ir.Constant(ir.IntType(32), 0)
        return builder.ptrtoint(builder.call(self.frame_address, (zero,)), WORD)

    def _emit_take_over(
        self,
        builder: ir.IRBuilder,
        thread: ir.Value,
        level_at: ir.Value,
        slot: ir.Value,
        stack: ir.Value | None,
    ) -> None:
        """Emit storing the number of ``thread``'s top frame, if it is for this call.

        That is, if it is pending for this slot's dispatcher. With ``stack``, it is not
        known yet whether ``thread`` is the one we are running in: it is, if the frame
        was pushed from a C frame just above ours. This saves asking the interpreter.
        """
        depth = load_word(builder, thread, Thread.DEPTH)
        level = builder.sub(depth, const(1))
        with emit.likely(builder, builder.icmp_signed(">=", level, const(0))):
            top = self._frame(builder, thread, level)
            conditions = [
                builder.icmp_signed("==", load_word(builder, top, field), value)
                for field, value in (
                    (Frame.SLOT, const(0)),
                    (
                        Frame.DISPATCHER,
                        load_word(builder, slot, SlotField.DISPATCHER),
                    ),
                    (Frame.EPOCH, load_word(builder, self.state, State.EPOCH)),
                )
            ]
            if stack is not None:
                distance = builder.sub(load_word(builder, top, Frame.STACK), stack)
                conditions.append(
                    builder.icmp_unsigned("<", distance, const(NEAR_BYTES))
                )
            mine = functools.reduce(builder.and_, conditions)
            with emit.likely(builder, mine):
                builder.store(level, level_at)

    def _emit_enter_node(
        self, builder: ir.IRBuilder, frame: ir.Value, slot: ir.Value
    ) -> None:
        """Emit turning the frame's node from the parent's into this call's own.

        A call usually comes from where the last one came from, so each slot remembers
        its last node.
        """
        parent = load_word(builder, frame, Frame.NODE)
        code = load_word(builder, frame, Frame.CODE)
        number = builder.ptrtoint(slot, WORD)
        emit.store_word(builder, frame, Frame.SLOT, number)
        same = builder.and_(
            builder.icmp_signed(
                "==", load_word(builder, slot, SlotField.CACHE_PARENT), parent
            ),
            builder.icmp_signed(
                "==", load_word(builder, slot, SlotField.CACHE_CODE), code
            ),
        )
        with emit.unlikely(builder, builder.not_(same)):
            builder.call(self.move_node, (parent, code, number))
        cached = load_word(builder, slot, SlotField.CACHE_NODE)
        emit.store_word(builder, frame, Frame.NODE, cached)

    def _emit_move_node(self) -> ir.Function:
        """Emit ``void move_node(word parent, word code, word slot)``.

        Have the slot remember the node of calls from there.
        """
        function, builder = self._function(
            "move_node",
            ir.FunctionType(VOID, (WORD, WORD, WORD)),
            "parent",
            "code",
            "number",
            export=False,
        )
        function.calling_convention = QUIET
        parent, code, number = function.args
        slot = builder.inttoptr(number, PTR)
        node = builder.call(self.find_node, (parent, code, number))
        emit.store_word(builder, slot, SlotField.CACHE_PARENT, parent)
        emit.store_word(builder, slot, SlotField.CACHE_CODE, code)
        emit.store_word(builder, slot, SlotField.CACHE_NODE, node)
        builder.ret_void()
        return self._cold(function)

    def _emit_leave_node(
        self,
        builder: ir.IRBuilder,
        frame: ir.Value,
        slot: ir.Value,
        result: ir.Value,
        end: ir.Value,
    ) -> None:
        """Emit booking a finished call on its node and its slot."""
        ticks, node = self._book_call(builder, frame, end)
        waited = load_word(builder, frame, Frame.DISPATCH)
        emit.add_to_word(builder, node, Node.DISPATCH, waited)
        with emit.unlikely(builder, emit.is_null(builder, result)):
            emit.add_to_word(builder, node, Node.ERRORS, const(1))
        self._extremes(builder, slot, (SlotField.MIN, SlotField.MAX), ticks)
        self._emit_count_last(builder, slot)
        emit.store_word(builder, slot, SlotField.LAST_TICKS, ticks)

    def _emit_count_last(self, builder: ir.IRBuilder, slot: ir.Value) -> None:
        """Emit counting the slot's previous call in its bucket.

        Not the one that just ended: the address of its bucket is known only once the
        clock has answered, and until then the processor holds back all loads behind
        the store, 10 ns of them. :meth:`Engine.histogram` adds the last call.
        """
        last = load_word(builder, slot, SlotField.LAST_TICKS)
        with emit.likely(builder, builder.icmp_signed("!=", last, const(NO_TICKS))):
            bucket = self._bucket(builder, SlotField.HISTOGRAM, last)
            emit.add_to_word(builder, slot, bucket, const(1))

    # -- parallel overloads ------------------------------------------------------------

    def _emit_parallel_call(self) -> None:
        """Emit ``PyObject *parallel_call(ParallelSlot *self, PyObject *, PyObject *)``.

        Stands between ``overload`` and the wrapper of a ``parallel=True`` function, and
        books the call under the number of threads it ran with, with the CPU time of the
        process. Reading that clock takes half a microsecond; the call's frame is moved
        by what our own readings took, so that it shows in no time.
        """
        function, builder = self._function(
            "parallel_call", _CALL, "self", "args", "kws"
        )
        slot, args, kws = function.args
        original = emit.callee(
            load_pointer(builder, slot, ParallelField.ORIG_FN), _CALL
        )
        owner = load_pointer(builder, slot, ParallelField.ORIG_SELF)
        arguments = (owner, args, kws)
        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            builder.ret(builder.call(original, arguments))
        first = self.clock(builder)
        count = emit.callee(
            load_pointer(builder, slot, ParallelField.GET_THREADS),
            ir.FunctionType(ir.IntType(32), ()),
        )
        threads = builder.sext(builder.call(count, ()), WORD)
        cpu_before = self._cpu_time(builder)
        begin = self.clock(builder)
        result = builder.call(original, arguments)
        end = self.clock(builder)
        cpu = builder.sub(self._cpu_time(builder), cpu_before)
        row = self._split_row(builder, slot, threads)
        for offset, value in ((1, const(1)), (2, builder.sub(end, begin)), (3, cpu)):
            emit.add_to_word(builder, slot, builder.add(row, const(offset)), value)
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        thread = self._thread(builder, tstate)
        last = self.clock(builder)
        ours = builder.add(builder.sub(begin, first), builder.sub(last, end))
        with emit.likely(builder, builder.not_(emit.is_null(builder, thread))):
            depth = load_word(builder, thread, Thread.DEPTH)
            with emit.likely(builder, builder.icmp_signed(">", depth, const(0))):
                top = self._frame(builder, thread, builder.sub(depth, const(1)))
                for field in (Frame.T0, Frame.T1):
                    emit.add_to_word(builder, top, field, ours)
        builder.ret(result)

    def _cpu_time(self, builder: ir.IRBuilder) -> Any:
        """Emit reading the CPU time of the process, in nanoseconds."""
        timespec = emit.variable(builder, ir.ArrayType(WORD, 2), "timespec")
        signature = ir.FunctionType(ir.IntType(32), (ir.IntType(32), PTR))
        which = ir.Constant(ir.IntType(32), time.CLOCK_PROCESS_CPUTIME_ID)
        address = clocks.clock_gettime_address()
        emit.call_absolute(builder, address, signature, [which, timespec])
        seconds = builder.mul(load_word(builder, timespec, 0), const(clocks.NS_PER_S))
        return builder.add(seconds, load_word(builder, timespec, 1))

    def _split_row(
        self, builder: ir.IRBuilder, slot: ir.Value, threads: ir.Value
    ) -> Any:
        """Emit finding the row for a number of threads; its first word's index."""
        row = emit.variable(builder, WORD, "row")
        builder.store(const(ParallelField.ROWS + (SPLIT_ROWS - 1) * SPLIT_WORDS), row)
        done = builder.append_basic_block("row.found")
        with emit.count(builder, const(SPLIT_ROWS - 1)) as number:
            here = builder.add(
                builder.mul(number, const(SPLIT_WORDS)), const(ParallelField.ROWS)
            )
            key = load_word(builder, slot, here)
            free = builder.icmp_signed("==", key, const(0))
            mine = builder.or_(free, builder.icmp_signed("==", key, threads))
            with builder.if_then(mine):
                emit.store_word(builder, slot, here, threads)
                builder.store(here, row)
                builder.branch(done)
        builder.branch(done)
        builder.position_at_end(done)
        return builder.load(row, typ=WORD)

    # -- frames opened from Python ----------------------------------------------------

    def _emit_open_frame(self) -> None:
        """Emit ``word open_frame(word slot, word code)``: push a pseudo frame.

        Returns its depth, or NO_NODE when no session runs or there is no room.
        """
        function, builder = self._function(
            "open_frame", ir.FunctionType(WORD, (WORD, WORD)), "slot", "code"
        )
        slot, code = function.args
        _, tstate, thread, depth = self._next_level(builder)
        frame = self._push(builder, thread, depth, tstate)
        parent = load_word(builder, frame, Frame.NODE)
        node = builder.call(self.find_node, (parent, code, slot))
        now = self.clock(builder)
        for field, value in (
            (Frame.SLOT, slot),
            (Frame.CODE, code),
            (Frame.NODE, node),
            (Frame.INTERPRETER_FRAME, const(0)),
            (Frame.DISPATCHER, const(0)),
            (Frame.DISPATCH, const(0)),
            (Frame.T0, now),
            (Frame.T1, now),
        ):
            emit.store_word(builder, frame, field, value)
        builder.ret(depth)

    def _emit_close_frame(self) -> None:
        """Emit ``word close_frame(word depth)``: pop down to a pseudo frame.

        Frames left above it (an exception passed) are dropped; their time stays in it.
        Returns the ticks it was open, NO_NODE when it was not there any more.
        """
        function, builder = self._function(
            "close_frame", ir.FunctionType(WORD, (WORD,)), "depth"
        )
        (depth,) = function.args
        now = self.clock(builder)
        thread, frame = self._pop_to(builder, depth)
        ticks, _ = self._book_call(builder, frame, now)
        self._credit_parent(builder, thread, depth, ticks)
        builder.ret(ticks)

    def _emit_rename_frame(self) -> None:
        """Emit ``word rename_frame(word depth, word slot)``.

        Say of the open pseudo frame at ``depth`` what it turned out to be. Returns 0,
        or NO_NODE when it is not there, or already has something inside.
        """
        function, builder = self._function(
            "rename_frame", ir.FunctionType(WORD, (WORD, WORD)), "depth", "slot"
        )
        depth, slot = function.args
        _, thread = self._own_thread(builder)
        height = load_word(builder, thread, Thread.DEPTH)
        gone = builder.or_(
            builder.icmp_signed("!=", height, builder.add(depth, const(1))),
            builder.icmp_signed("<", depth, const(0)),
        )
        with emit.unlikely(builder, gone):
            builder.ret(const(NO_NODE))
        frame = self._frame(builder, thread, depth)
        epoch = load_word(builder, self.state, State.EPOCH)
        unfit = builder.or_(
            builder.icmp_signed("!=", load_word(builder, frame, Frame.EPOCH), epoch),
            builder.icmp_signed("!=", load_word(builder, frame, Frame.CHILD), const(0)),
        )
        with emit.unlikely(builder, unfit):
            builder.ret(const(NO_NODE))
        node = self._node(builder, load_word(builder, frame, Frame.NODE))
        parent = load_word(builder, node, Node.PARENT)
        code = load_word(builder, node, Node.CODE)
        renamed = builder.call(self.find_node, (parent, code, slot))
        emit.store_word(builder, frame, Frame.NODE, renamed)
        emit.store_word(builder, frame, Frame.SLOT, slot)
        builder.ret(const(0))

    def _charge(
        self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value, ticks: ir.Value
    ) -> None:
        """Emit keeping ``ticks`` of our own out of the frame below ``depth``.

        They count as its children's time, and are noted on its node as being in none.
        """
        with builder.if_then(builder.icmp_signed(">", depth, const(0))):
            below = self._frame(builder, thread, builder.sub(depth, const(1)))
            emit.add_to_word(builder, below, Frame.CHILD, ticks)
            epoch = load_word(builder, self.state, State.EPOCH)
            number = load_word(builder, below, Frame.NODE)
            known = builder.and_(
                builder.icmp_signed(">=", number, const(0)),
                builder.icmp_signed(
                    "==", load_word(builder, below, Frame.EPOCH), epoch
                ),
            )
            with emit.likely(builder, known):
                node = self._node(builder, number)
                emit.add_to_word(builder, node, Node.OVERHEAD, ticks)

    def _emit_charge_overhead(self) -> None:
        """Emit ``void charge_overhead(word since)``.

        Keep the time since then out of all figures: our own Python code took it.
        """
        function, builder = self._function(
            "charge_overhead", ir.FunctionType(VOID, (WORD,)), "since"
        )
        (since,) = function.args
        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            builder.ret_void()
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        thread = self._thread(builder, tstate)
        with emit.likely(builder, builder.not_(emit.is_null(builder, thread))):
            depth = load_word(builder, thread, Thread.DEPTH)
            spent = builder.sub(self.clock(builder), since)
            self._charge(builder, thread, depth, spent)
        builder.ret_void()

    def _emit_enter_row(self) -> None:
        """Emit ``word enter_row(word row, word frame, word since)``.

        Push a frame for a Python or builtin function. ``frame`` is the interpreter
        frame it runs in, 0 for none; ``since`` is when our callback began: from there
        to now is charged as overhead. Returns the depth, or NO_NODE.
        """
        signature = ir.FunctionType(WORD, (WORD, WORD, WORD))
        function, builder = self._function(
            "enter_row", signature, "row", "frame", "since"
        )
        row, running, since = function.args
        epoch, _, thread, depth = self._next_level(builder)
        parent, _ = self._parent(builder, thread, depth, epoch)
        node = builder.call(self.find_node, (parent, const(0), row))
        frame = self._frame(builder, thread, depth)
        now = self.clock(builder)
        for field, value in (
            (Frame.SLOT, row),
            (Frame.CHILD, const(0)),
            (Frame.NODE, node),
            (Frame.EPOCH, epoch),
            (Frame.INTERPRETER_FRAME, running),
            (Frame.CODE, const(0)),
            (Frame.DISPATCHER, const(0)),
            (Frame.DISPATCH, const(0)),
            (Frame.T0, now),
            (Frame.T1, now),
        ):
            emit.store_word(builder, frame, field, value)
        emit.store_word(builder, thread, Thread.DEPTH, builder.add(depth, const(1)))
        self._charge(builder, thread, depth, builder.sub(now, since))
        builder.ret(depth)

    def _emit_leave_row(self) -> None:
        """Emit ``word leave_row(word depth, word since)``.

        Pop down to the frame at ``depth``, which ended at ``since``; from there to now
        is overhead. Returns its ticks, NO_NODE when it was not there any more.
        """
        function, builder = self._function(
            "leave_row", ir.FunctionType(WORD, (WORD, WORD)), "depth", "since"
        )
        depth, since = function.args
        thread, frame = self._pop_to(builder, depth)
        ticks, _ = self._book_call(builder, frame, since)
        self._credit_parent(builder, thread, depth, ticks)
        self._charge(builder, thread, depth, builder.sub(self.clock(builder), since))
        builder.ret(ticks)

    # -- code that may run without the GIL --------------------------------------------

    def _emit_native_enter(self) -> ir.Function:
        """Emit ``Thread *native_enter(UfuncSlot *slot)``.

        Push a frame for a ufunc loop or a C callback, or return NULL: no session, a
        thread without Python, or no room (growing would race with ``stop``). Only this
        thread writes the frame; the GIL is not needed.
        """
        function, builder = self._function(
            "native_enter", ir.FunctionType(PTR, (PTR,)), "slot"
        )
        (slot,) = function.args
        emit.add_to_word(
            builder, slot, UfuncField.ACTIVE, const(1), ordering="monotonic"
        )
        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            builder.ret(ir.Constant(PTR, None))
        tstate = self._absolute(builder, "PyGILState_GetThisThreadState", WORD)
        with builder.if_then(builder.icmp_unsigned("==", tstate, const(0))):
            builder.ret(ir.Constant(PTR, None))
        thread = builder.call(self.find_thread, (tstate,))
        with builder.if_then(emit.is_null(builder, thread)):
            builder.ret(ir.Constant(PTR, None))
        depth = load_word(builder, thread, Thread.DEPTH)
        capacity = load_word(builder, thread, Thread.CAPACITY)
        with emit.unlikely(builder, builder.icmp_signed(">=", depth, capacity)):
            builder.ret(ir.Constant(PTR, None))
        parent, inside = self._parent_without_gil(builder, thread, depth, epoch)
        frame = self._frame(builder, thread, depth)
        for field, value in (
            (Frame.SLOT, builder.ptrtoint(slot, WORD)),
            (Frame.CHILD, const(0)),
            (Frame.DISPATCH, const(0)),
            (Frame.NODE, parent),
            (Frame.EPOCH, epoch),
            (Frame.INTERPRETER_FRAME, inside),
            (Frame.CODE, const(0)),
            (Frame.DISPATCHER, const(PseudoSlot.UFUNC)),
        ):
            emit.store_word(builder, frame, field, value)
        now = self.clock(builder)
        emit.store_word(builder, frame, Frame.T0, now)
        emit.store_word(builder, frame, Frame.T1, now)
        emit.store_word(builder, thread, Thread.DEPTH, builder.add(depth, const(1)))
        builder.ret(thread)
        return function

    def _parent_without_gil(
        self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value, epoch: ir.Value
    ) -> tuple[Any, Any]:
        """Emit finding the parent's node; NO_NODE where a root would be made."""
        node = emit.variable(builder, WORD, "parent.node")
        inside = emit.variable(builder, WORD, "parent.frame")
        known = load_word(builder, thread, Thread.ROOT_EPOCH)
        rooted = builder.icmp_signed("==", known, epoch)
        root = load_word(builder, thread, Thread.ROOT_NODE)
        builder.store(builder.select(rooted, root, const(NO_NODE)), node)
        builder.store(const(0), inside)
        self._read_top(builder, thread, depth, epoch, (node, inside))
        return builder.load(node, typ=WORD), builder.load(inside, typ=WORD)

    def _emit_native_leave(self) -> ir.Function:
        """Emit ``void native_leave(UfuncSlot *, Thread *, word begin, word elements)``.

        Pop the frame and book the call on the slot, atomically: other threads may be in
        the same loop. Without a thread block it is booked without a caller.
        """
        signature = ir.FunctionType(VOID, (PTR, PTR, WORD, WORD))
        function, builder = self._function(
            "native_leave", signature, "slot", "thread", "begin", "elements"
        )
        slot, thread, begin, elements = function.args
        end = self.clock(builder)
        ticks = builder.sub(end, begin)

        def add(field: int | ir.Value, value: ir.Value) -> None:
            emit.add_to_word(builder, slot, field, value, ordering="monotonic")

        add(UfuncField.ACTIVE, const(-1))
        epoch = load_word(builder, self.state, State.EPOCH)
        parent = emit.variable(builder, WORD, "parent")
        child = emit.variable(builder, WORD, "child")
        builder.store(const(NO_NODE), parent)
        builder.store(const(0), child)
        with builder.if_then(builder.not_(emit.is_null(builder, thread))):
            depth = self._own_level(builder, thread, slot)
            emit.store_word(builder, thread, Thread.DEPTH, depth)
            frame = self._frame(builder, thread, depth)
            stale = builder.icmp_signed(
                "!=", load_word(builder, frame, Frame.EPOCH), epoch
            )
            with emit.unlikely(builder, stale):
                builder.ret_void()
            builder.store(load_word(builder, frame, Frame.NODE), parent)
            builder.store(load_word(builder, frame, Frame.CHILD), child)
            self._credit_parent(builder, thread, depth, ticks)
        foreign = builder.icmp_signed(
            "!=", load_word(builder, slot, UfuncField.EPOCH), epoch
        )
        with emit.unlikely(builder, foreign):
            builder.ret_void()
        add(UfuncField.ELEMENTS, elements)
        builder.atomic_rmw(
            "min", emit.word_pointer(builder, slot, UfuncField.MIN), ticks, "monotonic"
        )
        builder.atomic_rmw(
            "max", emit.word_pointer(builder, slot, UfuncField.MAX), ticks, "monotonic"
        )
        add(self._bucket(builder, UfuncField.HISTOGRAM, ticks), const(1))
        row = self._edge(builder, slot, builder.load(parent, typ=WORD))
        for offset, value in (
            (1, const(1)),
            (2, ticks),
            (3, builder.load(child, typ=WORD)),
        ):
            add(builder.add(row, const(offset)), value)
        builder.ret_void()
        return function

    def _own_level(
        self, builder: ir.IRBuilder, thread: ir.Value, slot: ir.Value
    ) -> Any:
        """Emit finding the top frame of ``slot``: frames above it never ended."""
        number = builder.ptrtoint(slot, WORD)
        top = builder.sub(load_word(builder, thread, Thread.DEPTH), const(1))
        before = builder.block
        look = builder.append_basic_block("own.look")
        lower = builder.append_basic_block("own.lower")
        found = builder.append_basic_block("own.found")
        builder.branch(look)
        builder.position_at_end(look)
        level = builder.phi(WORD, "own.level")
        level.add_incoming(top, before)
        there = load_word(builder, self._frame(builder, thread, level), Frame.SLOT)
        other = builder.icmp_signed("!=", there, number)
        more = builder.and_(other, builder.icmp_signed(">", level, const(0)))
        builder.cbranch(more, lower, found)
        builder.position_at_end(lower)
        level.add_incoming(builder.sub(level, const(1)), lower)
        builder.branch(look)
        builder.position_at_end(found)
        return level

    def _edge(self, builder: ir.IRBuilder, slot: ir.Value, parent: ir.Value) -> Any:
        """Emit finding or claiming the slot's row for ``parent``; its word index.

        Rows are claimed by compare-and-swap and never given up, so no lock is needed.
        The last row takes every parent beyond the others, and unknown ones.
        """
        key = builder.add(parent, const(1))
        row = emit.variable(builder, WORD, "row")
        last = UfuncField.EDGES + (EDGE_ROWS - 1) * EDGE_WORDS
        builder.store(const(last), row)
        done = builder.append_basic_block("edge.found")
        with builder.if_then(builder.icmp_signed("==", key, const(0))):
            builder.branch(done)
        with emit.count(builder, const(EDGE_ROWS - 1)) as number:
            here = builder.add(
                builder.mul(number, const(EDGE_WORDS)), const(UfuncField.EDGES)
            )
            pointer = emit.word_pointer(builder, slot, here)
            swapped = builder.cmpxchg(pointer, const(0), key, "monotonic", "monotonic")
            before = builder.extract_value(swapped, 0)
            free = builder.icmp_signed("==", before, const(0))
            mine = builder.or_(free, builder.icmp_signed("==", before, key))
            with builder.if_then(mine):
                builder.store(here, row)
                builder.branch(done)
        builder.branch(done)
        builder.position_at_end(done)
        return builder.load(row, typ=WORD)

    def _emit_ufunc_loop(self) -> None:
        """Emit ``void ufunc_loop(char **, npy_intp *dims, npy_intp *, void *data)``.

        Stands in for a loop of a ufunc; ``data`` is its UfuncSlot. The first dimension
        is the number of elements, or of outer iterations for a generalized ufunc.
        """
        function, builder = self._function(
            "ufunc_loop", _LOOP, "args", "dims", "steps", "slot"
        )
        args, dims, steps, slot = function.args
        original = emit.callee(load_pointer(builder, slot, UfuncField.ORIG_FN), _LOOP)
        data = load_pointer(builder, slot, UfuncField.ORIG_DATA)
        elements = load_word(builder, dims, 0)
        thread = builder.call(self.native_enter, (slot,))
        begin = self.clock(builder)
        builder.call(original, (args, dims, steps, data))
        builder.call(self.native_leave, (slot, thread, begin, elements))
        builder.ret_void()

    # -- the end of a session ---------------------------------------------------------

    def _emit_stop(self) -> None:
        """Emit ``word stop(void)``: close the books in one step, under the GIL.

        Ends the epoch and books the time of every open frame, top down, without
        counting the call: it is "in flight". Returns the time.
        """
        _, builder = self._function("stop", ir.FunctionType(WORD, ()))
        now = self.clock(builder)
        epoch = load_word(builder, self.state, State.EPOCH)
        table = load_pointer(builder, self.state, State.TABLE)
        size = builder.add(load_word(builder, table, 0), const(1))
        with emit.count(builder, size) as position:
            pair = _pair(builder, table, position)
            used = builder.icmp_unsigned("!=", load_word(builder, pair, 0), const(0))
            with builder.if_then(used):
                thread = load_pointer(builder, pair, 1)
                depth = load_word(builder, thread, Thread.DEPTH)
                with emit.count(builder, depth) as step:
                    level = builder.sub(builder.sub(depth, const(1)), step)
                    frame = self._frame(builder, thread, level)
                    current = builder.icmp_signed(
                        "==", load_word(builder, frame, Frame.EPOCH), epoch
                    )
                    with builder.if_then(current):
                        self._emit_close_open_frame(builder, thread, level, now)
        emit.store_word(builder, self.state, State.EPOCH, const(0))
        builder.ret(now)

    def _emit_close_open_frame(
        self, builder: ir.IRBuilder, thread: ir.Value, level: ir.Value, now: ir.Value
    ) -> None:
        """Emit booking the time of a frame that is still open at the end."""
        frame = self._frame(builder, thread, level)
        slot = load_word(builder, frame, Frame.SLOT)
        child = load_word(builder, frame, Frame.CHILD)
        total = builder.sub(now, load_word(builder, frame, Frame.T0))
        native = builder.icmp_signed(
            "==",
            load_word(builder, frame, Frame.DISPATCHER),
            const(PseudoSlot.UFUNC),
        )
        with builder.if_else(native) as (yes, no):
            with yes:
                pointer = builder.inttoptr(slot, PTR)
                row = self._edge(
                    builder, pointer, load_word(builder, frame, Frame.NODE)
                )
                for offset, value in ((2, total), (3, child), (4, const(1))):
                    emit.add_to_word(
                        builder,
                        pointer,
                        builder.add(row, const(offset)),
                        value,
                        ordering="monotonic",
                    )
            with no:
                pending = builder.icmp_signed("==", slot, const(0))
                with builder.if_then(pending):
                    code = load_word(builder, frame, Frame.CODE)
                    parent = load_word(builder, frame, Frame.NODE)
                    waiting = const(PseudoSlot.DISPATCHING)
                    fresh = builder.call(self.find_node, (parent, code, waiting))
                    emit.store_word(builder, frame, Frame.NODE, fresh)
                    # Its children hang beside it, see close_dispatch.
                    begin = builder.add(load_word(builder, frame, Frame.T0), child)
                    emit.store_word(builder, frame, Frame.T1, begin)
                    emit.store_word(builder, frame, Frame.CHILD, const(0))
                    emit.store_word(builder, frame, Frame.DISPATCH, const(0))
                node = self._node(builder, load_word(builder, frame, Frame.NODE))
                inside = builder.sub(now, load_word(builder, frame, Frame.T1))
                waited = load_word(builder, frame, Frame.DISPATCH)
                emit.add_to_word(builder, node, Node.INCLUSIVE, inside)
                left = load_word(builder, frame, Frame.CHILD)
                emit.add_to_word(builder, node, Node.CHILD, left)
                emit.add_to_word(builder, node, Node.DISPATCH, waited)
                emit.add_to_word(builder, node, Node.IN_FLIGHT, const(1))
        self._credit_parent(builder, thread, level, total)

    # -- small exports ----------------------------------------------------------------

    def _emit_register_thread(self) -> None:
        """Emit ``word register_thread(void)``: this thread's root, made if needed."""
        _, builder = self._function("register_thread", ir.FunctionType(WORD, ()))
        _, thread = self._own_thread(builder)
        builder.ret(builder.call(self.root_node, (thread,)))

    def _emit_now(self) -> None:
        """Emit ``word now(void)``: one reading of the clock."""
        _, builder = self._function("now", ir.FunctionType(WORD, ()))
        builder.ret(self.clock(builder))

    def _emit_echo(self) -> None:
        """Emit ``PyObject *echo(PyObject *self, PyObject *args, PyObject *kws)``.

        Returns its arguments; the self-test attaches to it.
        """
        function, builder = self._function("echo", _CALL, "self", "args", "kws")
        args = function.args[1]
        self._absolute(builder, "Py_IncRef", VOID, args)
        builder.ret(args)


def _word(offset_bytes: int) -> int:
    return offset_bytes // WORD_BYTES


def hash_pointer(pointer: int) -> int:
    """Return what the emitted :func:`_hash_pointer` returns."""
    return (pointer * HASH_MULTIPLIER % 2**64) >> 32


def _hash_pointer(builder: ir.IRBuilder, pointer: ir.Value) -> Any:
    mixed = builder.mul(pointer, const(HASH_MULTIPLIER))
    return builder.lshr(mixed, const(32))


def _hash_key(
    builder: ir.IRBuilder, parent: ir.Value, code: ir.Value, slot: ir.Value
) -> Any:
    mixed = builder.mul(parent, const(HASH_MULTIPLIER))
    for word in (code, slot):
        mixed = builder.mul(builder.xor(mixed, word), const(HASH_MULTIPLIER))
        mixed = builder.xor(mixed, builder.lshr(mixed, const(32)))
    return mixed


def _publish(builder: ir.IRBuilder, pointer: ir.Value, word: ir.Value) -> None:
    """Emit a release store: whoever reads ``word`` sees what was written before."""
    # llvmlite's store_atomic does not know opaque pointers; an exchange does as well.
    builder.atomic_rmw("xchg", pointer, word, "release")


def _pair(builder: ir.IRBuilder, table: ir.Value, position: ir.Value) -> Any:
    offset = builder.add(builder.mul(position, const(2)), const(TABLE_HEAD))
    return emit.word_pointer(builder, table, offset)


def _insert_pair(
    builder: ir.IRBuilder, table: ir.Value, key: ir.Value, value: ir.Value
) -> None:
    """Emit putting a new pair into a table that has room; value first, then key."""
    mask = load_word(builder, table, 0)
    start = builder.and_(_hash_pointer(builder, key), mask)
    inserted = builder.append_basic_block("pair.inserted")
    with _probe(builder, start, mask) as position:
        pair = _pair(builder, table, position)
        free = builder.icmp_unsigned("==", load_word(builder, pair, 0), const(0))
        with builder.if_then(free):
            emit.store_word(builder, pair, 1, value)
            _publish(builder, emit.word_pointer(builder, pair, 0), key)
            builder.branch(inserted)
    builder.position_at_end(inserted)


@contextmanager
def _probe(
    builder: ir.IRBuilder, start: ir.Value, mask: ir.Value
) -> Iterator[ir.Value]:
    """Emit an endless linear probe; the body leaves by returning or branching."""
    before = builder.block
    loop = builder.append_basic_block("probe")
    builder.branch(loop)
    builder.position_at_end(loop)
    position = builder.phi(WORD, "position")
    position.add_incoming(start, before)
    yield position
    following = builder.and_(builder.add(position, const(1)), mask)
    position.add_incoming(following, builder.block)
    builder.branch(loop)
    # Nothing follows an endless loop, but builders want a block to stand in.
    builder.position_at_end(builder.append_basic_block("probe.never"))
    builder.unreachable()
