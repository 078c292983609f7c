"""The native Python tracer: calls and returns of Python and builtin functions.

On 3.10 and 3.11 a ``Py_tracefunc`` installed with ``PyEval_SetProfile``; on 3.12 and
later METH_FASTCALL functions as callbacks of ``sys.monitoring``. Both end in the same
four emitted functions, which push and pop frames on the engine's shadow stack.

Which line of the table (*row*) a call belongs to is found natively: a hash over the
code object and the types, dtypes and shapes of the arguments, looked up in one table.
Only what was not seen before asks Python, once.

What is left out
----------------
While a dispatcher looks for an overload (its frame is *pending*) and while Numba
compiles or loads (a compile frame is on top), nothing is traced: that time has its own
place. This also swallows the frame Numba fakes for profilers, and the monitoring events
it sends.

Locking
-------
Everything happens under the GIL. The slow path runs Python code and may lose it in
between; what it needs afterwards it loads again.
"""

from __future__ import annotations

import _thread
import ctypes
import enum
import inspect
import sys
import threading
import types
from typing import TYPE_CHECKING, Any, Protocol

import llvmlite.ir as ir
import numpy as np

from numbaprof.errors import ActiveSessionError, UnsupportedError
from numbaprof.native import emit
from numbaprof.native.cpython_api import MethodDef, new_method, object_at, read_words
from numbaprof.native.emit import PTR, WORD, const, load_pointer, load_word
from numbaprof.native.frame_layout import discover_array, discover_frame
from numbaprof.native.layout import (
    WORD_BYTES,
    Frame,
    PseudoSlot,
    State,
    Thread,
)
from numbaprof.native.trampolines import HASH_MULTIPLIER, EngineBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.native.engine import Engine
    from numbaprof.native.frame_layout import ArrayLayout, FrameLayout

__all__ = ["CodeField", "NativeTracer", "Tables"]

INT = ir.IntType(32)
BYTE = ir.IntType(8)

TYPE_OFFSET = 8
"""Of ``ob_type`` in every object; checked with the layouts that lie behind it."""
TUPLE_SIZE_OFFSET = 16
TUPLE_ITEMS_OFFSET = 24
"""Of ``ob_size`` and ``ob_item`` in a tuple; verified by :func:`verify_tuple`."""
TUPLE_ITEMS = 4
"""Element types of a tuple that are part of a signature."""
SIMPLE_DTYPES = 17
"""Type numbers below are bool, integers, floats and complex: wholly told by number and
byte order. Others (object, text, records, times) are told by their descriptor."""
FLAG_MASK = 0x0003 | 0x0400
"""C contiguous, F contiguous, writeable; numpy/ndarraytypes.h."""

LEVEL_SHAPE, LEVEL_NDIM, LEVEL_TYPE, LEVEL_NONE = range(4)
INITIAL_SLOTS = 1 << 12
LEVEL_BITS = 7
"""An address of words has these bits free; a level plus one fits in."""
HIDDEN = 0
"""The row of functions that are not shown."""

TRACE_CALL, TRACE_RETURN = 0, 3
TRACE_C_CALL, TRACE_C_EXCEPTION, TRACE_C_RETURN = 4, 5, 6
"""PyTrace_*, Include/cpython/pystate.h."""
METH_FASTCALL = 0x0080
MAX_SEARCH = 8
"""Frames looked through for the one that returns, should one above have been lost."""


class Tables(enum.IntEnum):
    """Words of the tracer's state."""

    CODES = 0
    """Open-addressing table of (code object, code info)."""
    CODES_MASK = 1
    ROWS = 2
    """Open-addressing table of (hash, row)."""
    ROWS_MASK = 3
    MISS_CODE = 4
    """``word (code)``: make a code info; its address, or HIDDEN."""
    MISS_ROW = 5
    """``word (code)``: the row, HIDDEN for none, plus its level and one in the bits
    that are free in an address; no level if the row is not to be remembered."""
    MISS_BUILTIN = 6
    """``word (callable, definition)``: the row or HIDDEN."""
    BUILTINS = 7
    """Whether builtin functions are traced."""
    FINEST = 8
    """The level signatures begin at."""
    PUT = 9
    """``word (hash, row)``: remember the row."""
    ON = 10
    """Whether a tracer is installed; what is left in other threads goes when not."""
    SIZE = 11


class RowField(enum.IntEnum):
    """Words of a row, at the address it is known by."""

    SIZED = 0
    """Whether the sizes of its calls are kept: it holds the other shapes."""
    CALLS = 1
    SMALLEST = 2
    LARGEST = 3


class CodeField(enum.IntEnum):
    """Words of a code info."""

    ROW = 0
    """The one row, when signatures are off."""
    LEVEL = 1
    """Of new rows; rows of finer levels, down to FINEST, stay in use."""
    N_ARGS = 2
    SLOTS = 3
    """From here on: which local each argument is in."""


_FASTCALL = ir.FunctionType(PTR, (PTR, PTR, WORD))
_TRACE = ir.FunctionType(INT, (PTR, PTR, INT, PTR))
_VOID_2 = ir.FunctionType(ir.VoidType(), (WORD, WORD))


class _TracerBuilder(EngineBuilder):
    """Emits the tracer's module against a running engine."""

    def __init__(
        self, engine: Engine, frames: FrameLayout, arrays: ArrayLayout, tables: int
    ) -> None:
        super().__init__(engine.layouts, engine.clock, ctypes.addressof(engine.state))
        self.module.name = "numbaprof.tracer"
        self.link(engine.addresses)
        self.frames = frames
        self.arrays = arrays
        if engine.layouts.caller is None:
            raise UnsupportedError(engine.layouts.caller_reason)
        self.chain = engine.layouts.caller.chain
        self.code_offset = engine.layouts.caller.code
        self.tables = const(tables).inttoptr(PTR)
        self.overload_entry = const(engine.addresses["overload"])

    def build(self) -> ir.Module:
        """Emit every function, callees first."""
        self.look_up = self._emit_look_up()
        self.hash_arguments = self._emit_hash_arguments()
        self.note_sizes = self._emit_note_sizes()
        self.find_row = self._emit_find_row()
        self.python_enter = self._emit_python_enter()
        self.python_leave = self._emit_python_leave()
        self.builtin_enter = self._emit_builtin_enter()
        self.builtin_leave = self._emit_builtin_leave()
        if sys.version_info >= (3, 12):
            self._emit_monitoring()
        else:
            self._emit_trace_function()
        return self.module

    # -- tables -----------------------------------------------------------------------

    def _emit_look_up(self) -> ir.Function:
        """Emit ``word look_up(word *table, word mask, word key)``: the value, or -1."""
        signature = ir.FunctionType(WORD, (PTR, WORD, WORD))
        function, builder = self._function(
            "look_up", signature, "table", "mask", "key", export=False
        )
        table, mask, key = function.args
        mixed = builder.mul(key, const(HASH_MULTIPLIER))
        start = builder.and_(builder.lshr(mixed, const(32)), mask)
        before = builder.block
        loop = builder.append_basic_block("probe")
        builder.branch(loop)
        builder.position_at_end(loop)
        position = builder.phi(WORD, "position")
        position.add_incoming(start, before)
        pair = emit.word_pointer(builder, table, builder.mul(position, const(2)))
        stored = load_word(builder, pair, 0)
        with builder.if_then(builder.icmp_signed("==", stored, key), likely=True):
            builder.ret(load_word(builder, pair, 1))
        with builder.if_then(builder.icmp_signed("==", stored, const(0))):
            builder.ret(const(-1))
        following = builder.and_(builder.add(position, const(1)), mask)
        position.add_incoming(following, builder.block)
        builder.branch(loop)
        return function

    def _mix(self, builder: ir.IRBuilder, hashed: Any, word: ir.Value) -> Any:
        mixed = builder.mul(builder.xor(hashed, word), const(HASH_MULTIPLIER))
        return builder.xor(mixed, builder.lshr(mixed, const(29)))

    def _byte_at(self, builder: ir.IRBuilder, base: ir.Value, offset: int) -> Any:
        return builder.gep(base, [const(offset)], source_etype=BYTE)

    def _int_at(self, builder: ir.IRBuilder, base: ir.Value, offset: int) -> Any:
        loaded = builder.load(self._byte_at(builder, base, offset), typ=INT)
        return builder.zext(loaded, WORD)

    def _word_at(self, builder: ir.IRBuilder, base: ir.Value, offset: int) -> Any:
        return load_word(builder, base, offset // WORD_BYTES)

    def _pointer_at(self, builder: ir.IRBuilder, base: ir.Value, offset: int) -> Any:
        return load_pointer(builder, base, offset // WORD_BYTES)

    # -- signatures -------------------------------------------------------------------

    def _emit_hash_arguments(self) -> ir.Function:
        """Emit ``word hash_arguments(CodeInfo *, char *, word code, word level)``.

        Never 0, which marks an empty place in the table.
        """
        signature = ir.FunctionType(WORD, (PTR, PTR, WORD, WORD))
        function, builder = self._function(
            "hash_arguments", signature, "info", "locals", "code", "level", export=False
        )
        info, locals_, code, level = function.args
        hashed = emit.variable(builder, WORD, "hashed")
        builder.store(self._mix(builder, code, level), hashed)
        told = builder.icmp_signed("<", level, const(LEVEL_NONE))
        count = builder.select(
            told, load_word(builder, info, CodeField.N_ARGS), const(0)
        )
        with emit.count(builder, count) as number:
            at = builder.add(number, const(CodeField.SLOTS))
            place = load_word(builder, info, at)
            argument = load_pointer(builder, locals_, place)
            self._hash_argument(builder, hashed, argument, level)
        value = builder.load(hashed, typ=WORD)
        zero = builder.icmp_signed("==", value, const(0))
        builder.ret(builder.select(zero, const(1), value))
        return function

    def _look_into(self, builder: ir.IRBuilder, argument: ir.Value) -> tuple[Any, Any]:
        """Emit the argument itself and its type, out of the cell it may lie in.

        A parameter that an inner function uses is in a cell; one that holds nothing has
        the type 1.
        """
        thing = emit.variable(builder, PTR, "argument")
        kind = emit.variable(builder, WORD, "kind")
        builder.store(argument, thing)
        builder.store(const(1), kind)
        with emit.likely(builder, builder.not_(emit.is_null(builder, argument))):
            builder.store(self._word_at(builder, argument, TYPE_OFFSET), kind)
            cell = builder.icmp_signed(
                "==", builder.load(kind, typ=WORD), const(id(types.CellType))
            )
            with emit.unlikely(builder, cell):
                inside = self._pointer_at(builder, argument, self.frames.cell_contents)
                with builder.if_then(builder.not_(emit.is_null(builder, inside))):
                    builder.store(inside, thing)
                    builder.store(self._word_at(builder, inside, TYPE_OFFSET), kind)
        return builder.load(thing, typ=PTR), builder.load(kind, typ=WORD)

    def _emit_note_sizes(self) -> ir.Function:
        """Emit ``void note_sizes(word *row, CodeInfo *info, char *locals)``.

        Book how many elements the arrays of a call have, on a row for other shapes.
        """
        signature = ir.FunctionType(ir.VoidType(), (PTR, PTR, PTR))
        function, builder = self._function(
            "note_sizes", signature, "row", "info", "locals", export=False
        )
        row, info, locals_ = function.args
        total = emit.variable(builder, WORD, "total")
        product = emit.variable(builder, WORD, "product")
        builder.store(const(0), total)
        with emit.count(builder, load_word(builder, info, CodeField.N_ARGS)) as number:
            at = builder.add(number, const(CodeField.SLOTS))
            place = load_word(builder, info, at)
            argument = load_pointer(builder, locals_, place)
            thing, kind = self._look_into(builder, argument)
            array = builder.icmp_signed("==", kind, const(id(np.ndarray)))
            with builder.if_then(array):
                builder.store(const(1), product)
                dimensions = self._pointer_at(builder, thing, self.arrays.dimensions)
                ndim = self._int_at(builder, thing, self.arrays.ndim)
                with emit.count(builder, ndim) as axis:
                    length = load_word(builder, dimensions, axis)
                    grown = builder.mul(builder.load(product, typ=WORD), length)
                    builder.store(grown, product)
                more = builder.add(
                    builder.load(total, typ=WORD), builder.load(product, typ=WORD)
                )
                builder.store(more, total)
        size = builder.load(total, typ=WORD)
        first = builder.icmp_signed(
            "==", load_word(builder, row, RowField.CALLS), const(0)
        )
        for field, sign in ((RowField.SMALLEST, "<"), (RowField.LARGEST, ">")):
            old = load_word(builder, row, field)
            better = builder.or_(first, builder.icmp_signed(sign, size, old))
            emit.store_word(builder, row, field, builder.select(better, size, old))
        emit.add_to_word(builder, row, RowField.CALLS, const(1))
        builder.ret_void()
        return self._cold(function)

    def _hash_argument(
        self,
        builder: ir.IRBuilder,
        hashed: ir.Value,
        argument: ir.Value,
        level: ir.Value,
    ) -> None:
        def mix(word: ir.Value) -> None:
            builder.store(
                self._mix(builder, builder.load(hashed, typ=WORD), word), hashed
            )

        found, type_ = self._look_into(builder, argument)
        mix(type_)
        fine = builder.icmp_signed("<", level, const(LEVEL_TYPE))
        array = builder.icmp_signed("==", type_, const(id(np.ndarray)))
        with builder.if_then(builder.and_(fine, array)):
            self._hash_array(builder, found, level, mix)
        tuple_ = builder.icmp_signed("==", type_, const(id(tuple)))
        with builder.if_then(builder.and_(fine, tuple_)):
            size = self._word_at(builder, found, TUPLE_SIZE_OFFSET)
            mix(size)
            short = builder.icmp_signed("<=", size, const(TUPLE_ITEMS))
            with builder.if_then(short), emit.count(builder, size) as number:
                items = self._byte_at(builder, found, TUPLE_ITEMS_OFFSET)
                item = load_pointer(builder, items, number)
                mix(self._word_at(builder, item, TYPE_OFFSET))

    def _hash_array(
        self,
        builder: ir.IRBuilder,
        array: ir.Value,
        level: ir.Value,
        mix: Callable[[ir.Value], None],
    ) -> None:
        layout = self.arrays
        ndim = self._int_at(builder, array, layout.ndim)
        flags = builder.and_(
            self._int_at(builder, array, layout.flags), const(FLAG_MASK)
        )
        mix(builder.or_(builder.shl(ndim, const(32)), flags))
        descriptor = self._pointer_at(builder, array, layout.descriptor)
        number = self._int_at(builder, descriptor, layout.type_number)
        order = builder.zext(
            builder.load(
                self._byte_at(builder, descriptor, layout.byte_order), typ=BYTE
            ),
            WORD,
        )
        told = builder.or_(number, builder.shl(order, const(32)))
        simple = builder.icmp_signed("<", number, const(SIMPLE_DTYPES))
        mix(builder.select(simple, told, builder.ptrtoint(descriptor, WORD)))
        shaped = builder.icmp_signed("==", level, const(LEVEL_SHAPE))
        with builder.if_then(shaped):
            dimensions = self._pointer_at(builder, array, layout.dimensions)
            with emit.count(builder, ndim) as axis:
                mix(load_word(builder, dimensions, axis))

    def _code_info(self, builder: ir.IRBuilder, code: ir.Value) -> Any:
        """Emit the address of a code object's info, asking for it the first time."""
        info_at = emit.variable(builder, WORD, "info")
        codes = load_pointer(builder, self.tables, Tables.CODES)
        mask = load_word(builder, self.tables, Tables.CODES_MASK)
        builder.store(builder.call(self.look_up, (codes, mask, code)), info_at)
        unknown = builder.icmp_signed("==", builder.load(info_at, typ=WORD), const(-1))
        with emit.unlikely(builder, unknown):
            ask = self._callback(builder, Tables.MISS_CODE, (WORD,))
            builder.store(builder.call(ask, (code,)), info_at)
        return builder.load(info_at, typ=WORD)

    def _emit_find_row(self) -> ir.Function:
        """Emit ``word find_row(word code, char *locals)``: the row, or HIDDEN."""
        signature = ir.FunctionType(WORD, (WORD, PTR))
        function, builder = self._function(
            "find_row", signature, "code", "locals", export=False
        )
        code, locals_ = function.args
        number = self._code_info(builder, code)
        hidden = builder.icmp_signed("==", number, const(HIDDEN))
        with emit.unlikely(builder, hidden):
            builder.ret(const(HIDDEN))
        info = builder.inttoptr(number, PTR)
        finest = load_word(builder, self.tables, Tables.FINEST)
        with builder.if_then(builder.icmp_signed("==", finest, const(LEVEL_NONE))):
            only = load_word(builder, info, CodeField.ROW)
            with emit.likely(builder, builder.icmp_signed("!=", only, const(0))):
                builder.ret(only)
        row_at = emit.variable(builder, WORD, "row")
        found = builder.append_basic_block("found")
        coarsest = load_word(builder, info, CodeField.LEVEL)
        span = builder.add(builder.sub(coarsest, finest), const(1))
        with emit.count(builder, span) as step:
            level = builder.add(finest, step)
            hashed = builder.call(self.hash_arguments, (info, locals_, code, level))
            rows = load_pointer(builder, self.tables, Tables.ROWS)
            mask = load_word(builder, self.tables, Tables.ROWS_MASK)
            known = builder.call(self.look_up, (rows, mask, hashed))
            builder.store(known, row_at)
            hit = builder.icmp_signed("!=", known, const(-1))
            with builder.if_then(hit, likely=True):
                builder.branch(found)
        ask = self._callback(builder, Tables.MISS_ROW, (WORD,))
        packed = builder.call(ask, (code,))
        level = builder.sub(builder.and_(packed, const(LEVEL_BITS)), const(1))
        answer = builder.and_(packed, const(~LEVEL_BITS))
        builder.store(answer, row_at)
        forget = builder.or_(
            builder.icmp_signed("<", level, const(0)),
            builder.icmp_signed("==", answer, const(HIDDEN)),
        )
        with builder.if_then(forget):
            builder.ret(answer)
        hashed = builder.call(self.hash_arguments, (info, locals_, code, level))
        put = self._callback(builder, Tables.PUT, (WORD, WORD))
        builder.call(put, (hashed, answer))
        builder.branch(found)
        builder.position_at_end(found)
        row = builder.load(row_at, typ=WORD)
        with emit.unlikely(builder, builder.icmp_signed("==", row, const(HIDDEN))):
            builder.ret(const(HIDDEN))
        pointer = builder.inttoptr(row, PTR)
        sized = builder.icmp_signed(
            "!=", load_word(builder, pointer, RowField.SIZED), const(0)
        )
        with emit.unlikely(builder, sized):
            builder.call(self.note_sizes, (pointer, info, locals_))
        builder.ret(row)
        return function

    def _callback(
        self, builder: ir.IRBuilder, word: Tables, arguments: tuple[ir.Type, ...]
    ) -> Any:
        target = load_pointer(builder, self.tables, word)
        return emit.callee(target, ir.FunctionType(WORD, arguments))

    # -- pushing and popping ----------------------------------------------------------

    def _current(self, builder: ir.IRBuilder) -> tuple[Any, Any, Any]:
        """Emit finding (thread state, thread, epoch); return where there is none."""
        epoch = load_word(builder, self.state, State.EPOCH)
        with emit.unlikely(builder, builder.icmp_signed("==", epoch, const(0))):
            builder.ret_void()
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        thread = self._thread(builder, tstate)
        with emit.unlikely(builder, emit.is_null(builder, thread)):
            builder.ret_void()
        return tstate, thread, epoch

    def _return_if_closed(
        self, builder: ir.IRBuilder, thread: ir.Value, depth: ir.Value, epoch: ir.Value
    ) -> None:
        """Emit leaving when Numba is at work: dispatching, compiling or loading."""
        with builder.if_then(builder.icmp_signed(">", depth, const(0))):
            top = self._frame(builder, thread, builder.sub(depth, const(1)))
            slot = load_word(builder, top, Frame.SLOT)
            last = max(PseudoSlot.COMPILE, PseudoSlot.CACHE_LOAD, PseudoSlot.CACHE_MISS)
            # 0 is pending, the few numbers after it are pseudo slots.
            closed = builder.and_(
                builder.icmp_unsigned("<=", slot, const(last)),
                builder.icmp_signed("==", load_word(builder, top, Frame.EPOCH), epoch),
            )
            with emit.unlikely(builder, closed):
                builder.ret_void()

    def _push_row(
        self,
        builder: ir.IRBuilder,
        thread: ir.Value,
        epoch: ir.Value,
        row: ir.Value,
        what: tuple[PseudoSlot, ir.Value],
        since: ir.Value,
    ) -> None:
        kind, running = what
        depth = load_word(builder, thread, Thread.DEPTH)
        with emit.unlikely(builder, builder.not_(self._room(builder, thread, depth))):
            builder.ret_void()
        parent, _ = self._parent(builder, thread, depth, epoch)
        node = builder.call(self.find_node, (parent, const(0), row))
        frame = self._frame(builder, thread, depth)
        for field, value in (
            (Frame.SLOT, row),
            (Frame.CHILD, const(0)),
            (Frame.NODE, node),
            (Frame.EPOCH, epoch),
            (Frame.INTERPRETER_FRAME, running),
            (Frame.CODE, const(0)),
            (Frame.DISPATCHER, const(kind)),
            (Frame.DISPATCH, const(0)),
        ):
            emit.store_word(builder, frame, field, value)
        emit.store_word(builder, thread, Thread.DEPTH, builder.add(depth, const(1)))
        now = self.clock(builder)
        emit.store_word(builder, frame, Frame.T0, now)
        emit.store_word(builder, frame, Frame.T1, now)
        self._charge(builder, thread, depth, builder.sub(now, since))

    def _pop_row(
        self,
        builder: ir.IRBuilder,
        thread: ir.Value,
        level: ir.Value,
        since: ir.Value,
    ) -> None:
        emit.store_word(builder, thread, Thread.DEPTH, level)
        frame = self._frame(builder, thread, level)
        ticks, _ = self._book_call(builder, frame, since)
        self._credit_parent(builder, thread, level, ticks)
        ours = builder.sub(self.clock(builder), since)
        self._charge(builder, thread, level, ours)

    def _emit_python_enter(self) -> ir.Function:
        """Emit ``void python_enter(word frame, word since)``.

        ``frame`` is what the thread state leads to; ``since`` when the callback began.
        """
        function, builder = self._function(
            "python_enter", _VOID_2, "frame", "since", export=False
        )
        running, since = function.args
        _, thread, epoch = self._current(builder)
        depth = load_word(builder, thread, Thread.DEPTH)
        self._return_if_closed(builder, thread, depth, epoch)
        pointer = builder.inttoptr(running, PTR)
        code = self._word_at(builder, pointer, self.code_offset)
        locals_ = self._byte_at(builder, pointer, self.frames.locals)
        row = builder.call(self.find_row, (code, locals_))
        with emit.unlikely(builder, builder.icmp_signed("==", row, const(HIDDEN))):
            builder.ret_void()
        kind = (PseudoSlot.PYTHON, running)
        self._push_row(builder, thread, epoch, row, kind, since)
        builder.ret_void()
        return function

    def _emit_python_leave(self) -> ir.Function:
        """Emit ``void python_leave(word frame, word since)``.

        Pops the frame that was pushed for this interpreter frame. A function entered
        before the session began has none.
        """
        function, builder = self._function(
            "python_leave", _VOID_2, "frame", "since", export=False
        )
        running, since = function.args
        _, thread, epoch = self._current(builder)
        depth = load_word(builder, thread, Thread.DEPTH)
        with emit.count(builder, const(MAX_SEARCH)) as step:
            level = builder.sub(builder.sub(depth, const(1)), step)
            with builder.if_then(builder.icmp_signed("<", level, const(0))):
                builder.ret_void()
            frame = self._frame(builder, thread, level)
            foreign = builder.icmp_signed(
                "!=", load_word(builder, frame, Frame.EPOCH), epoch
            )
            with builder.if_then(foreign):
                builder.ret_void()
            mine = builder.and_(
                builder.icmp_signed(
                    "==",
                    load_word(builder, frame, Frame.DISPATCHER),
                    const(PseudoSlot.PYTHON),
                ),
                builder.icmp_signed(
                    "==", load_word(builder, frame, Frame.INTERPRETER_FRAME), running
                ),
            )
            with builder.if_then(mine, likely=True):
                self._pop_row(builder, thread, level, since)
                builder.ret_void()
            # Only builtins may have been lost above it; anything else is at work.
            builtin = builder.icmp_signed(
                "==",
                load_word(builder, frame, Frame.DISPATCHER),
                const(PseudoSlot.BUILTIN),
            )
            with builder.if_then(builder.not_(builtin)):
                builder.ret_void()
        builder.ret_void()
        return function

    def _emit_builtin_enter(self) -> ir.Function:
        """Emit ``void builtin_enter(PyObject *callable, word definition, word since)``.

        ``definition`` is its PyMethodDef, by which it is known.
        """
        signature = ir.FunctionType(ir.VoidType(), (PTR, WORD, WORD))
        function, builder = self._function(
            "builtin_enter", signature, "callable", "definition", "since", export=False
        )
        callable_, definition, since = function.args
        tstate, thread, epoch = self._current(builder)
        depth = load_word(builder, thread, Thread.DEPTH)
        self._return_if_closed(builder, thread, depth, epoch)
        running, code = self._caller(builder, tstate)
        info = self._code_info(builder, code)
        # What our own functions call is as hidden as they are.
        with emit.unlikely(builder, builder.icmp_signed("==", info, const(HIDDEN))):
            builder.ret_void()
        pointer = builder.inttoptr(definition, PTR)
        method = load_word(builder, pointer, 1)
        # An overload's entry point books itself.
        overload = builder.icmp_signed("==", method, self.overload_entry)
        with emit.unlikely(builder, overload):
            builder.ret_void()
        rows = load_pointer(builder, self.tables, Tables.ROWS)
        mask = load_word(builder, self.tables, Tables.ROWS_MASK)
        row_at = emit.variable(builder, WORD, "row")
        builder.store(builder.call(self.look_up, (rows, mask, definition)), row_at)
        unknown = builder.icmp_signed("==", builder.load(row_at, typ=WORD), const(-1))
        with emit.unlikely(builder, unknown):
            ask = self._callback(builder, Tables.MISS_BUILTIN, (WORD, WORD))
            what = builder.ptrtoint(callable_, WORD)
            builder.store(builder.call(ask, (what, definition)), row_at)
        row = builder.load(row_at, typ=WORD)
        with emit.unlikely(builder, builder.icmp_signed("==", row, const(HIDDEN))):
            builder.ret_void()
        kind = (PseudoSlot.BUILTIN, running)
        self._push_row(builder, thread, epoch, row, kind, since)
        builder.ret_void()
        return function

    def _emit_builtin_leave(self) -> ir.Function:
        """Emit ``void builtin_leave(word definition, word since)``."""
        function, builder = self._function(
            "builtin_leave", _VOID_2, "definition", "since", export=False
        )
        _, since = function.args
        tstate, thread, epoch = self._current(builder)
        running, _ = self._caller(builder, tstate)
        depth = load_word(builder, thread, Thread.DEPTH)
        level = builder.sub(depth, const(1))
        with builder.if_then(builder.icmp_signed("<", level, const(0))):
            builder.ret_void()
        frame = self._frame(builder, thread, level)
        mine = builder.and_(
            builder.icmp_signed(
                "==",
                load_word(builder, frame, Frame.DISPATCHER),
                const(PseudoSlot.BUILTIN),
            ),
            builder.icmp_signed("==", load_word(builder, frame, Frame.EPOCH), epoch),
        )
        mine = builder.and_(
            mine,
            builder.icmp_signed(
                "==", load_word(builder, frame, Frame.INTERPRETER_FRAME), running
            ),
        )
        with emit.likely(builder, mine):
            self._pop_row(builder, thread, level, since)
        builder.ret_void()
        return function

    # -- 3.10 and 3.11 ----------------------------------------------------------------

    def _emit_trace_function(self) -> None:
        """Emit ``int trace(PyObject *, PyFrameObject *, int what, PyObject *arg)``.

        A ``Py_tracefunc``, Include/cpython/pystate.h.
        """
        function, builder = self._function(
            "trace", _TRACE, "obj", "frame", "what", "arg"
        )
        _, frame_object, what, arg = function.args
        on = load_word(builder, self.tables, Tables.ON)
        with emit.unlikely(builder, builder.icmp_signed("==", on, const(0))):
            # Tracing has ended, from a thread that cannot take this one's hook away.
            null = ir.Constant(PTR, None)
            self._absolute(builder, "PyEval_SetProfile", ir.VoidType(), null, null)
            builder.ret(ir.Constant(INT, 0))
        since = self.clock(builder)
        running = builder.ptrtoint(frame_object, WORD)
        if self.frames.frame_object:
            running = self._word_at(builder, frame_object, self.frames.frame_object)
        end = builder.append_basic_block("end")
        switch = builder.switch(what, end)
        for event, emit_body in (
            (TRACE_CALL, self._trace_python_enter),
            (TRACE_RETURN, self._trace_python_leave),
            (TRACE_C_CALL, self._trace_builtin_enter),
            (TRACE_C_RETURN, self._trace_builtin_leave),
            (TRACE_C_EXCEPTION, self._trace_builtin_leave),
        ):
            block = builder.append_basic_block(f"event.{event}")
            switch.add_case(ir.Constant(INT, event), block)
            builder.position_at_end(block)
            emit_body(builder, running, arg, since)
            builder.branch(end)
        builder.position_at_end(end)
        builder.ret(ir.Constant(INT, 0))

    def _trace_python_enter(
        self, builder: ir.IRBuilder, running: Any, arg: Any, since: Any
    ) -> None:
        builder.call(self.python_enter, (running, since))

    def _trace_python_leave(
        self, builder: ir.IRBuilder, running: Any, arg: Any, since: Any
    ) -> None:
        builder.call(self.python_leave, (running, since))

    def _trace_builtin_enter(
        self, builder: ir.IRBuilder, running: Any, arg: Any, since: Any
    ) -> None:
        with self._if_builtins(builder):
            definition = self._word_at(builder, arg, self.frames.method_definition)
            builder.call(self.builtin_enter, (arg, definition, since))

    def _trace_builtin_leave(
        self, builder: ir.IRBuilder, running: Any, arg: Any, since: Any
    ) -> None:
        with self._if_builtins(builder):
            builder.call(self.builtin_leave, (const(0), since))

    def _if_builtins(self, builder: ir.IRBuilder) -> Any:
        wanted = load_word(builder, self.tables, Tables.BUILTINS)
        return builder.if_then(builder.icmp_signed("!=", wanted, const(0)))

    # -- 3.12 and later ---------------------------------------------------------------

    def _emit_monitoring(self) -> None:
        """Emit the callbacks, ``PyObject *f(PyObject *self, PyObject **args, n)``.

        They return None without a new reference: None is immortal since 3.12.
        """
        self._emit_monitored("on_enter", self._monitor_enter)
        self._emit_monitored("on_leave", self._monitor_leave)
        self._emit_monitored("on_call", self._monitor_call)
        self._emit_monitored("on_builtin_leave", self._monitor_builtin_leave)

    def _emit_monitored(
        self, name: str, body: Callable[[ir.IRBuilder, Any, Any], None]
    ) -> None:
        function, builder = self._function(name, _FASTCALL, "self", "args", "n")
        since = self.clock(builder)
        body(builder, function.args[1], since)
        builder.ret(const(id(None)).inttoptr(PTR))

    def _running(self, builder: ir.IRBuilder) -> Any:
        tstate = self._absolute(builder, "PyThreadState_Get", WORD)
        frame = tstate
        for offset in self.chain:
            frame = self._word_at(builder, builder.inttoptr(frame, PTR), offset)
        return frame

    def _monitor_enter(self, builder: ir.IRBuilder, args: Any, since: Any) -> None:
        builder.call(self.python_enter, (self._running(builder), since))

    def _monitor_leave(self, builder: ir.IRBuilder, args: Any, since: Any) -> None:
        builder.call(self.python_leave, (self._running(builder), since))

    def _monitor_call(self, builder: ir.IRBuilder, args: Any, since: Any) -> None:
        callable_ = load_pointer(builder, args, 2)
        definition = self._definition(builder, callable_)
        known = builder.icmp_signed("!=", definition, const(0))
        with self._if_builtins(builder), builder.if_then(known):
            builder.call(self.builtin_enter, (callable_, definition, since))

    def _monitor_builtin_leave(
        self, builder: ir.IRBuilder, args: Any, since: Any
    ) -> None:
        callable_ = load_pointer(builder, args, 2)
        definition = self._definition(builder, callable_)
        known = builder.icmp_signed("!=", definition, const(0))
        with self._if_builtins(builder), builder.if_then(known):
            builder.call(self.builtin_leave, (definition, since))

    def _definition(self, builder: ir.IRBuilder, callable_: ir.Value) -> Any:
        """Emit the PyMethodDef of a builtin or method descriptor, 0 for others."""
        found = emit.variable(builder, WORD, "definition")
        builder.store(const(0), found)
        type_ = self._word_at(builder, callable_, TYPE_OFFSET)
        for cls, offset in (
            (type(len), self.frames.method_definition),
            (type(list.append), self.frames.descriptor_method),
        ):
            same = builder.icmp_signed("==", type_, const(id(cls)))
            with builder.if_then(same):
                builder.store(self._word_at(builder, callable_, offset), found)
        return builder.load(found, typ=WORD)


def verify_tuple() -> None:
    """Check where a tuple keeps its size and its items.

    Raises
    ------
    UnsupportedError
        Elsewhere than in every CPython so far.
    """
    one, two = object(), object()
    pair = (one, two)
    words = read_words(id(pair), TUPLE_ITEMS_OFFSET // WORD_BYTES + 2)
    first = TUPLE_ITEMS_OFFSET // WORD_BYTES
    if words[TUPLE_SIZE_OFFSET // WORD_BYTES] != 2 or words[first:] != [
        id(one),
        id(two),
    ]:
        raise UnsupportedError("the size and items of a tuple are elsewhere")


class Book(Protocol):
    """Who decides which row a call belongs to; asked once for what is new."""

    finest: int
    """The level signatures begin at, LEVEL_SHAPE to LEVEL_NONE."""

    def code_level(self, code: types.CodeType) -> int | None:
        """Return the level of new rows of a function, None if it is not shown."""

    def python_row(
        self, code: types.CodeType, frame: types.FrameType
    ) -> tuple[int, int, bool]:
        """Return (address, level, sized) of the row of the call in ``frame``.

        ``level`` is the one at which a native key means this row, -1 if none does;
        ``sized`` says that the sizes of its arrays are to be kept.
        """

    def builtin_row(self, function: Any) -> int:
        """Return the row of a builtin function or method, 0 if it is not shown."""


class _Table:
    """An open-addressing table of words that native code reads."""

    def __init__(self) -> None:
        self.mask = INITIAL_SLOTS - 1
        self.words = (ctypes.c_uint64 * (2 * INITIAL_SLOTS))()
        self.used = 0

    def put(self, key: int, value: int) -> None:
        """Add a pair; the table doubles at half load."""
        if 2 * self.used > self.mask:
            pairs = [
                (self.words[at], self.words[at + 1])
                for at in range(0, 2 * (self.mask + 1), 2)
                if self.words[at]
            ]
            self.mask = 2 * self.mask + 1
            self.words = (ctypes.c_uint64 * (2 * (self.mask + 1)))()
            self.used = 0
            for old_key, old_value in pairs:
                self.put(old_key, old_value)
        key %= 2**64
        at = (key * HASH_MULTIPLIER % 2**64 >> 32) & self.mask
        while self.words[2 * at] not in (0, key):
            at = (at + 1) & self.mask
        self.used += self.words[2 * at] == 0
        self.words[2 * at], self.words[2 * at + 1] = key, value % 2**64


class NativeTracer:
    """Traces Python and builtin calls into the engine's tree.

    Parameters
    ----------
    engine : Engine
        Running or about to run.
    book : Book
        Names the rows.
    builtins : bool
        Whether builtin functions are traced.

    Raises
    ------
    UnsupportedError
        A layout it needs could not be found; the message is the reason.
    """

    def __init__(self, engine: Engine, book: Book, *, builtins: bool) -> None:
        if engine.layouts.method_self is None:
            raise UnsupportedError(engine.layouts.method_reason)
        verify_tuple()
        self._book = book
        self._code_table, self._row_table = _Table(), _Table()
        self._infos: dict[int, Any] = {}
        self._kept: list[Any] = []
        self.failures: list[BaseException] = []
        self._machine = _machine(engine)
        word = ctypes.c_int64
        self._callbacks = (
            ctypes.PYFUNCTYPE(word, word)(self._guarded(self._miss_code)),
            ctypes.PYFUNCTYPE(word, word)(self._guarded(self._miss_row)),
            ctypes.PYFUNCTYPE(word, word, word)(self._guarded(self._miss_builtin)),
            ctypes.PYFUNCTYPE(word, word, word)(self._guarded(self._put)),
        )
        tables = self._machine.tables
        for field, callback in zip(
            (Tables.MISS_CODE, Tables.MISS_ROW, Tables.MISS_BUILTIN, Tables.PUT),
            self._callbacks,
            strict=True,
        ):
            tables[field] = ctypes.cast(callback, ctypes.c_void_p).value or 0
        tables[Tables.BUILTINS] = int(builtins)
        tables[Tables.FINEST] = book.finest
        self._publish()
        self._events = _monitoring() if sys.version_info >= (3, 12) else _profiling()

    def start(self) -> None:
        """Install in this interpreter.

        Raises
        ------
        ActiveSessionError
            Another profiler has the place.
        """
        # First: the hook takes itself away where it finds this unset.
        self._machine.tables[Tables.ON] = 1
        try:
            self._events.install(self._machine.addresses)
        except BaseException:
            self._machine.tables[Tables.ON] = 0
            raise

    def stop(self) -> None:
        """Take everything away again."""
        self._events.remove()
        self._machine.tables[Tables.ON] = 0

    @property
    def problems(self) -> list[str]:
        """What was not seen, in words."""
        return self._events.problems

    # -- the slow path ----------------------------------------------------------------

    def _guarded(self, miss: Callable[..., int]) -> Callable[..., int]:
        """Keep an error of ours, or the program's Ctrl-C, out of the callback."""

        def answer(*arguments: int) -> int:
            try:
                return miss(*arguments)
            except KeyboardInterrupt:
                # It was meant for the program, which is about to go on.
                _thread.interrupt_main()
            except Exception as error:
                self.failures.append(error)
            return HIDDEN

        return answer

    def _publish(self) -> None:
        tables = self._machine.tables
        tables[Tables.CODES] = ctypes.addressof(self._code_table.words)
        tables[Tables.CODES_MASK] = self._code_table.mask
        tables[Tables.ROWS] = ctypes.addressof(self._row_table.words)
        tables[Tables.ROWS_MASK] = self._row_table.mask

    def _miss_code(self, address: int) -> int:
        code: types.CodeType = object_at(address)
        self._kept.append(code)
        level = self._book.code_level(code)
        answer = HIDDEN
        if level is not None:
            slots = argument_slots(code)
            info = (ctypes.c_int64 * (CodeField.SLOTS + len(slots)))()
            info[CodeField.LEVEL] = level
            info[CodeField.N_ARGS] = len(slots)
            for at, slot in enumerate(slots):
                info[CodeField.SLOTS + at] = slot
            self._infos[address] = info
            answer = ctypes.addressof(info)
        self._code_table.put(address, answer)
        self._publish()
        return answer

    def _miss_row(self, address: int) -> int:
        # Called from native code, so the frame above ours is the one being traced.
        frame = sys._getframe(2)
        code: types.CodeType = object_at(address)
        row, level, sized = self._book.python_row(code, frame)
        info = self._infos[address]
        coarsest = self._book.code_level(code)
        info[CodeField.LEVEL] = LEVEL_NONE if coarsest is None else coarsest
        if self._book.finest == LEVEL_NONE:
            info[CodeField.ROW] = row
        if row:
            _row_words(row)[RowField.SIZED] = sized and level >= 0
        return row | (level + 1)

    def _put(self, hashed: int, row: int) -> int:
        self._row_table.put(hashed, row)
        self._publish()
        return 0

    def sizes(self, row: int) -> tuple[int, int, int]:
        """Return (calls, smallest, largest) of a row for other shapes."""
        words = _row_words(row)
        return (
            words[RowField.CALLS],
            words[RowField.SMALLEST],
            words[RowField.LARGEST],
        )

    def _miss_builtin(self, address: int, definition: int) -> int:
        row = self._book.builtin_row(object_at(address))
        self._row_table.put(definition, row)
        self._publish()
        return row


def _row_words(row: int) -> Any:
    return (ctypes.c_int64 * len(RowField)).from_address(row)


def argument_slots(code: types.CodeType) -> list[int]:
    """Return which local each argument is in when the function begins.

    On 3.10 an argument that an inner function uses is moved into its cell, behind the
    plain locals, before the call is announced.
    """
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS)
    count += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    slots = list(range(count))
    if sys.version_info < (3, 11):
        for at, name in enumerate(code.co_varnames[:count]):
            if name in code.co_cellvars:
                slots[at] = code.co_nlocals + code.co_cellvars.index(name)
    return slots


class _Machine:
    """The compiled tracer of one engine, and its state."""

    def __init__(self, engine: Engine) -> None:
        definition = (engine.layouts.method_self or WORD_BYTES) - WORD_BYTES
        self.tables = (ctypes.c_int64 * Tables.SIZE)()
        builder = _TracerBuilder(
            engine,
            discover_frame(definition),
            discover_array(),
            ctypes.addressof(self.tables),
        )
        names: tuple[str, ...] = ("on_enter", "on_leave", "on_call", "on_builtin_leave")
        if sys.version_info < (3, 12):
            names = ("trace",)
        self.addresses = emit.compile_module(builder.build(), names)


_MACHINES: dict[int, _Machine] = {}


def _machine(engine: Engine) -> _Machine:
    """Return the engine's tracer, built at the first use and kept like the engine."""
    if id(engine) not in _MACHINES:
        _MACHINES[id(engine)] = _Machine(engine)
    return _MACHINES[id(engine)]


# -- installing ------------------------------------------------------------------------


class _Events(Protocol):
    problems: list[str]

    def install(self, addresses: dict[str, int]) -> None:
        """Let the interpreter call us."""

    def remove(self) -> None:
        """Let it stop."""


class _Monitoring:
    """Callbacks of ``sys.monitoring``, with a tool id of our own."""

    TOOL_IDS = (3, 4, 5)
    """Not 0 to 2: debuggers, coverage and profilers have those, line_profiler too."""

    def __init__(self) -> None:
        self._tool: int | None = None
        self.problems: list[str] = []
        self._kept: list[Any] = []

    def install(self, addresses: dict[str, int]) -> None:
        """Take the first free tool id and register."""
        monitoring = _sys_monitoring()
        for tool in self.TOOL_IDS:
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "numbaprof")
                break
        else:
            raise ActiveSessionError(
                "sys.monitoring has no free tool id among "
                f"{self.TOOL_IDS}: other tools hold them; stop one first"
            )
        self._tool = tool
        events = monitoring.events
        wanted = 0
        for name, mine in (
            ("on_enter", (events.PY_START, events.PY_RESUME, events.PY_THROW)),
            ("on_leave", (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND)),
            ("on_call", (events.CALL,)),
            ("on_builtin_leave", (events.C_RETURN, events.C_RAISE)),
        ):
            definition = MethodDef(name.encode(), addresses[name], METH_FASTCALL, None)
            callback = new_method(definition, None)
            self._kept += [definition, callback]
            for event in mine:
                monitoring.register_callback(tool, event, callback)
                wanted |= event
        # C_RETURN and C_RAISE come with CALL and cannot be asked for.
        wanted &= ~(events.C_RETURN | events.C_RAISE)
        monitoring.set_events(tool, wanted)

    def remove(self) -> None:
        if self._tool is None:
            return
        monitoring, tool = _sys_monitoring(), self._tool
        monitoring.set_events(tool, 0)
        events = monitoring.events
        for event in (
            events.PY_START,
            events.PY_RESUME,
            events.PY_THROW,
            events.PY_RETURN,
            events.PY_YIELD,
            events.PY_UNWIND,
            events.CALL,
            events.C_RETURN,
            events.C_RAISE,
        ):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
        self._tool = None


def _sys_monitoring() -> Any:
    """Return ``sys.monitoring``, which the oldest supported Python does not have."""
    return sys.monitoring  # type: ignore[attr-defined,unused-ignore]


class _Profiling:
    """``PyEval_SetProfile`` in this thread, and in each thread that starts later."""

    def __init__(self) -> None:
        self._trace = 0
        self._home = 0
        self._previous: Any = None
        self.problems: list[str] = []

    def install(self, addresses: dict[str, int]) -> None:
        there: object = sys.getprofile()
        if there is not None and not isinstance(there, _Profiling):
            raise ActiveSessionError(
                "another profiler is active in this thread "
                f"({sys.getprofile()!r}); this Python has one place for a profiler"
            )
        self._trace = addresses["trace"]
        others = threading.active_count() - 1
        if others:
            self.problems.append(
                f"{others} threads that ran already when tracing began are not traced: "
                "before Python 3.12 that takes a hook in each"
            )
        self._home = threading.get_ident()
        self._previous = threading.getprofile()
        threading.setprofile(self._in_new_thread)
        _set_profile(self._trace, self)

    def _in_new_thread(self, frame: Any, event: str, arg: Any) -> None:
        """Take over from the Python hook at the first event of a thread."""
        if self._trace:
            _set_profile(self._trace, self)
        else:
            sys.setprofile(None)

    def remove(self) -> None:
        if self._trace:
            self._trace = 0
            # What PyEval_SetProfile was given, whatever sys.setprofile would take.
            installed: object = sys.getprofile()
            if installed is self:
                # First, and by a C function: others would be traced on the way out.
                sys.setprofile(None)
            elif threading.get_ident() == self._home:
                self.problems.append(
                    "another profiler took our place in this thread while we were "
                    "tracing; the calls after that are missing"
                )
            threading.setprofile(self._previous)


def _set_profile(function: int, owner: Any) -> None:
    install = ctypes.pythonapi.PyEval_SetProfile
    install.argtypes = [ctypes.c_void_p, ctypes.py_object]
    install.restype = None
    install(function, owner)


def _monitoring() -> _Events:
    return _Monitoring()


def _profiling() -> _Events:
    return _Profiling()
