"""The signal handler that takes samples, as LLVM IR, and the memory it writes to.

Signal safety
-------------
The handler runs between any two instructions of any thread, also of one that holds a
lock of the C library, of Python or of LLVM, and also while the interpreter is being
taken down. So it

- calls three functions, each without locks or lazily made state: ``clock_gettime`` (on
  the list of POSIX, 2.4.3), and glibc's ``syscall`` and ``__errno_location``, which are
  a bare system call and the address of a variable of the thread. ``errno`` is as before
  when it returns;
- never calls Python, allocates nothing, takes no lock, and does not wait: the system
  calls it makes (``gettid``, ``process_vm_readv``) do not block;
- touches memory that nobody frees: its code belongs to an engine that was detached, see
  :func:`numbaprof.native.emit.compile_module`, and state and buffer are mapped and
  never unmapped. Ending the interpreter with a timer running is therefore harmless;
- follows no pointer out of the signal. ``si_value`` is compared, ``si_fd`` is an index
  that is checked, and a signal that is not of our timer (``kill -PROF``) is counted;
- reads a foreign stack only where it is known to be mapped, between ``sp`` and the
  bounds of the stack of the thread that started the sampler. Of any other thread it
  asks the kernel to copy (``process_vm_readv`` of its own process), which answers with
  an error where a load would fault. Where the kernel does not do that, it stays within
  the page that ``sp`` points to;
- writes only to the record it has reserved with one atomic addition. A record that does
  not fit is counted as dropped.

Everything that needs more than this happens at report time.

References
----------
.. [1] Linux, ``arch/x86/include/uapi/asm/sigcontext.h`` and ``ucontext.h``: layout of
   the context; glibc names the same words ``gregs`` in ``sys/ucontext.h``.
.. [2] Linux, ``include/uapi/asm-generic/siginfo.h``: ``si_code`` and what follows it.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

import llvmlite.ir as ir

from numbaprof.native import emit

__all__ = [
    "FIRST_SLICE",
    "MAX_DESCRIPTORS",
    "N_REGISTERS",
    "SLICE_WORDS",
    "SYS_PROCESS_VM_READV",
    "THINNING_LEVELS",
    "WORD_BYTES",
    "HandlerEmitter",
    "RecordField",
    "Register",
    "SignalCode",
    "StateField",
]

SLICE_WORDS = 256
"""Words copied of a stack. The first return address into compiled code was at word 142
at most, below OpenBLAS (field notes, section 4)."""
REACH_BYTES = 1 << 18
"""How far above ``sp`` a frame that ``rbx`` or ``rbp`` holds may be. OpenBLAS puts its
buffer of 29 kB between the two."""
THINNING_LEVELS = 4
"""How often the rate is divided by four before samples are dropped: the default buffer
then lasts for hours of CPU time, and some thousand samples are left."""
PAGE_BYTES = 4096
WORD_BYTES = 8
MAX_DESCRIPTORS = 65_536
"""File descriptors that perf's signals are told apart by."""

CONTEXT_REGISTERS = 40
"""Offset of ``uc_mcontext.gregs``: flags, link and the alternate stack come first."""
INFO_CODE = 8
INFO_DESCRIPTOR = 24
"""``si_fd`` follows ``si_band``."""
INFO_VALUE = 24
"""``si_value`` follows ``si_tid`` and ``si_overrun``."""
CLOCK_MONOTONIC = 1
"""What ``time.perf_counter_ns`` reads, so that samples compare with other events."""
SYS_GETTID = 186
SYS_PROCESS_VM_READV = 310

INT = ir.IntType(32)


class SignalCode(IntEnum):
    """``si_code`` of the signals that timers send."""

    KERNEL = 128
    """``SI_KERNEL``: an interval timer."""
    TIMER = -2
    """``SI_TIMER``: a POSIX timer, with our state as ``si_value``."""
    POLL_IN = 1
    """A file descriptor with ``F_SETSIG``: perf."""


class Register(IntEnum):
    """Index in ``gregs`` (``sys/ucontext.h``)."""

    R8 = 0
    R9 = 1
    R10 = 2
    R11 = 3
    R12 = 4
    R13 = 5
    R14 = 6
    R15 = 7
    RDI = 8
    RSI = 9
    RBP = 10
    RBX = 11
    RDX = 12
    RAX = 13
    RCX = 14
    RSP = 15
    RIP = 16


N_REGISTERS = len(Register)


class StateField(IntEnum):
    """Words of the handler's state."""

    CODE = 0  # The si_code that counts, 0 while nothing is armed.
    ENTERED = 1
    LEFT = 2
    TAKEN = 3
    BAD = 4
    DROPPED = 5
    HEAD = 6  # Words reserved in the buffer.
    CAPACITY = 7
    BUFFER = 8
    STACK_LOW = 9
    STACK_HIGH = 10
    SAFE_READ = 11  # Whether process_vm_readv works.
    THINNING = 12  # One less than how many samples one of those kept stands for.
    SIZE = 13


class RecordField(IntEnum):
    """Words before the registers of a record."""

    SIZE = 0  # In words; written last.
    THREAD = 1
    TID = 2
    TIME_NS = 3
    RESERVED = 4  # Words of the stack slice.
    STACK = 5  # Those of them that could be read.
    RBP = 6  # Words of the slice at rbp, -1 without one.
    RBX = 7
    TICK = 8  # Which sample it is, counted from 0.
    COUNT = 9


FIRST_SLICE = RecordField.COUNT + N_REGISTERS


class HandlerEmitter:
    """Emits the handler and its helper functions into one module."""

    def __init__(
        self, module: ir.Module, state: int, descriptors: int, libc: ctypes.CDLL
    ) -> None:
        self._module = module
        self._state = emit.const(state).inttoptr(emit.PTR)
        self._descriptors = emit.const(descriptors).inttoptr(emit.PTR)
        self._addresses = {
            name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0
            for name in ("syscall", "__errno_location", "clock_gettime")
        }

    def emit(self) -> None:
        """Emit everything; ``on_signal`` is the handler."""
        self._is_ours = self._emit_is_ours()
        self._copy = self._emit_copy()
        self._is_near = self._emit_is_near()
        self._thinning = self._emit_thinning()
        self._record = self._emit_record()
        self._emit_on_signal()

    def _emit_on_signal(self) -> None:
        """Emit the handler.

        ::

            void on_signal(int number, siginfo_t *info, ucontext_t *context)
            {
                int before = errno;
                state->entered++;                               // atomic, all of them
                if (is_ours(info))
                    record(context->uc_mcontext.gregs);
                else
                    state->bad++;
                state->left++;
                errno = before;
            }
        """
        signature = ir.FunctionType(emit.VOID, [INT, emit.PTR, emit.PTR])
        function, builder = emit.new_function(
            self._module, "on_signal", signature, ("number", "info", "context")
        )
        _, info, context = function.args
        location_type = ir.FunctionType(emit.PTR, [])
        address = self._addresses["__errno_location"]
        errno = emit.call_absolute(builder, address, location_type, [], "errno")
        before = builder.load(errno, typ=INT)
        self._increment(builder, StateField.ENTERED)
        with builder.if_else(builder.call(self._is_ours, [info])) as (ours, foreign):
            with ours:
                registers = builder.gep(
                    context, [emit.const(CONTEXT_REGISTERS)], source_etype=_BYTE
                )
                builder.call(self._record, [registers])
            with foreign:
                self._increment(builder, StateField.BAD)
        self._increment(builder, StateField.LEFT)
        builder.store(before, errno)
        builder.ret_void()

    def _emit_is_ours(self) -> ir.Function:
        """Emit the test where a signal is from; nothing in it is followed.

        ::

            bool is_ours(siginfo_t *info)
            {
                if (info->si_code == 0 || info->si_code != state->code)
                    return false;
                switch (info->si_code) {
                case SI_TIMER: return info->si_value == state;
                case POLL_IN:  return info->si_fd < MAX && descriptors[info->si_fd];
                default:       return true;
                }
            }
        """
        function, builder = emit.new_function(
            self._module,
            "is_ours",
            ir.FunctionType(emit.BIT, [emit.PTR]),
            ("info",),
            linkage="internal",
        )
        (info,) = function.args

        def at(offset: int, type_: ir.Type) -> Any:
            place = builder.gep(info, [emit.const(offset)], source_etype=_BYTE)
            return builder.load(place, typ=type_)

        code = at(INFO_CODE, INT)
        wanted = builder.trunc(self._load(builder, StateField.CODE), INT)
        zero = ir.Constant(INT, 0)
        other = builder.or_(
            builder.icmp_signed("==", code, zero),
            builder.icmp_signed("!=", code, wanted),
        )
        with emit.unlikely(builder, other):
            builder.ret(emit.BIT(0))
        with builder.if_then(_is_code(builder, code, SignalCode.TIMER)):
            value = at(INFO_VALUE, emit.PTR)
            builder.ret(builder.icmp_unsigned("==", value, self._state))
        with builder.if_then(_is_code(builder, code, SignalCode.POLL_IN)):
            number = builder.zext(at(INFO_DESCRIPTOR, INT), emit.WORD)
            outside = builder.icmp_unsigned(">=", number, emit.const(MAX_DESCRIPTORS))
            with emit.unlikely(builder, outside):
                builder.ret(emit.BIT(0))
            known = emit.load_word(builder, self._descriptors, number)
            builder.ret(builder.icmp_signed("!=", known, emit.const(0)))
        builder.ret(emit.BIT(1))
        return function

    def _emit_record(self) -> ir.Function:
        """Emit what writes one record.

        ::

            void record(uint64_t *registers)
            {
                uint64_t tick = state->taken++;                     // atomic
                if (tick & thinning())
                    return;
                uint64_t sp = registers[RSP], tid = syscall(SYS_gettid);
                bool known = state->stack_low <= sp && sp < state->stack_high;
                uint64_t room = known ? (state->stack_high - sp) / 8
                    : state->safe_read ? SLICE_WORDS : (PAGE - sp % PAGE) / 8;
                uint64_t n = min(room, SLICE_WORDS);
                bool rbp = is_near(registers[RBP], sp + 8 * n, known);
                bool rbx = is_near(registers[RBX], sp + 8 * n, known);
                uint64_t size = HEAD + REGISTERS + n + (rbp + rbx) * SLICE_WORDS;
                uint64_t at = (state->head += size) - size;         // atomic
                if (at + size > state->capacity) {
                    state->dropped++;
                    return;
                }
                ... fill state->buffer[at], its size last
            }
        """
        function, builder = emit.new_function(
            self._module,
            "record",
            ir.FunctionType(emit.VOID, [emit.PTR]),
            ("registers",),
            linkage="internal",
        )
        (registers,) = function.args
        place = emit.word_pointer(builder, self._state, StateField.TAKEN)
        tick = builder.atomic_rmw("add", place, emit.const(1), "monotonic")
        skipped = builder.and_(tick, builder.call(self._thinning, []))
        with builder.if_then(builder.icmp_signed("!=", skipped, emit.const(0))):
            builder.ret_void()
        sp = emit.load_word(builder, registers, Register.RSP, "sp")
        known = self._is_known(builder, sp)
        reserved = self._room(builder, sp, known)
        end = builder.add(sp, builder.shl(reserved, emit.const(3)))
        near = {
            register: builder.call(
                self._is_near,
                [emit.load_word(builder, registers, register), end, known],
            )
            for register in (Register.RBP, Register.RBX)
        }
        size = builder.add(reserved, emit.const(FIRST_SLICE))
        for is_near in near.values():
            extra = builder.select(is_near, emit.const(SLICE_WORDS), emit.const(0))
            size = builder.add(size, extra)
        record = self._reserve(builder, size)
        emit.store_word(builder, record, RecordField.TICK, tick)
        self._fill(builder, record, registers, reserved, (known, near))
        # Released: whoever sees the size sees the record.
        place = emit.word_pointer(builder, record, RecordField.SIZE)
        builder.atomic_rmw("xchg", place, size, "release")
        builder.ret_void()
        return function

    def _emit_thinning(self) -> ir.Function:
        """Emit what says which samples are kept: the fuller the buffer, the fewer.

        ::

            uint64_t thinning(void)
            {
                uint64_t left = state->head < state->capacity
                    ? state->capacity - state->head : 1;
                uint64_t filled = state->capacity / left;
                uint64_t mask = 0;
                if (filled >= 2) mask = 3;      // half full: every 4th
                if (filled >= 4) mask = 15;     // three quarters: every 16th
                ...
                state->thinning |= mask;
                return mask;
            }

        Masks only ever grow, and contain each other. So at the end those samples whose
        number the last mask lets pass were all kept, evenly over the whole run.
        """
        function, builder = emit.new_function(
            self._module,
            "thinning",
            ir.FunctionType(emit.WORD, []),
            (),
            linkage="internal",
        )
        head = self._load(builder, StateField.HEAD)
        capacity = self._load(builder, StateField.CAPACITY)
        left = builder.select(
            builder.icmp_unsigned("<", head, capacity),
            builder.sub(capacity, head),
            emit.const(1),
        )
        filled = builder.udiv(capacity, left)
        mask = emit.const(0)
        for level in range(1, THINNING_LEVELS + 1):
            reached = builder.icmp_unsigned(">=", filled, emit.const(1 << level))
            mask = builder.select(reached, emit.const((1 << 2 * level) - 1), mask)
        place = emit.word_pointer(builder, self._state, StateField.THINNING)
        builder.atomic_rmw("or", place, mask, "monotonic")
        builder.ret(mask)
        return function

    def _is_known(self, builder: ir.IRBuilder, address: Any) -> Any:
        low = self._load(builder, StateField.STACK_LOW)
        high = self._load(builder, StateField.STACK_HIGH)
        return builder.and_(
            builder.icmp_unsigned(">=", address, low),
            builder.icmp_unsigned("<", address, high),
        )

    def _room(self, builder: ir.IRBuilder, sp: Any, known: Any) -> Any:
        three = emit.const(3)
        high = self._load(builder, StateField.STACK_HIGH)
        in_stack = builder.lshr(builder.sub(high, sp), three)
        in_page = builder.lshr(
            builder.sub(
                emit.const(PAGE_BYTES), builder.and_(sp, emit.const(PAGE_BYTES - 1))
            ),
            three,
        )
        most = emit.const(SLICE_WORDS)
        safe = builder.icmp_signed(
            "!=", self._load(builder, StateField.SAFE_READ), emit.const(0)
        )
        elsewhere = builder.select(safe, most, in_page)
        room = builder.select(known, in_stack, elsewhere)
        return builder.select(builder.icmp_unsigned("<", room, most), room, most)

    def _reserve(self, builder: ir.IRBuilder, size: Any) -> Any:
        head = emit.word_pointer(builder, self._state, StateField.HEAD)
        at = builder.atomic_rmw("add", head, size, "monotonic")
        end = builder.add(at, size)
        full = builder.icmp_unsigned(">", end, self._load(builder, StateField.CAPACITY))
        with emit.unlikely(builder, full):
            self._increment(builder, StateField.DROPPED)
            builder.ret_void()
        buffer = emit.load_pointer(builder, self._state, StateField.BUFFER)
        return emit.word_pointer(builder, buffer, at)

    def _fill(
        self,
        builder: ir.IRBuilder,
        record: Any,
        registers: Any,
        reserved: Any,
        where: tuple[Any, dict[Register, Any]],
    ) -> None:
        known, near = where
        thread_pointer = self._module.declare_intrinsic(
            "llvm.thread.pointer.p0", (), ir.FunctionType(emit.PTR, ())
        )
        tid = self._system_call(builder, SYS_GETTID, ())
        emit.store_word(builder, record, RecordField.TID, tid)
        thread = builder.ptrtoint(builder.call(thread_pointer, ()), emit.WORD)
        emit.store_word(builder, record, RecordField.THREAD, thread)
        emit.store_word(builder, record, RecordField.TIME_NS, self._now(builder))
        emit.store_word(builder, record, RecordField.RESERVED, reserved)
        for index in range(N_REGISTERS):
            value = emit.load_word(builder, registers, index)
            emit.store_word(builder, record, RecordField.COUNT + index, value)
        slice_ = emit.word_pointer(builder, record, FIRST_SLICE)
        sp = emit.load_word(builder, registers, Register.RSP)
        copied = builder.call(self._copy, [slice_, sp, reserved, known, tid])
        emit.store_word(builder, record, RecordField.STACK, copied)
        slice_ = emit.word_pointer(builder, slice_, reserved)
        most = emit.const(SLICE_WORDS)
        for register, field in (
            (Register.RBP, RecordField.RBP),
            (Register.RBX, RecordField.RBX),
        ):
            emit.store_word(builder, record, field, emit.const(-1))
            with builder.if_then(near[register]):
                source = emit.load_word(builder, registers, register)
                copied = builder.call(self._copy, [slice_, source, most, known, tid])
                emit.store_word(builder, record, field, copied)
            step = builder.select(near[register], most, emit.const(0))
            slice_ = emit.word_pointer(builder, slice_, step)

    def _emit_is_near(self) -> ir.Function:
        """Emit the test whether a register may hold a frame above the stack slice.

        ::

            bool is_near(uint64_t value, uint64_t end, bool known)
            {
                uint64_t last = value + 8 * SLICE_WORDS;
                return value % 8 == 0 && value - end < REACH
                    && (known ? last <= state->stack_high : state->safe_read);
            }
        """
        function, builder = emit.new_function(
            self._module,
            "is_near",
            ir.FunctionType(emit.BIT, [emit.WORD, emit.WORD, emit.BIT]),
            ("value", "end", "known"),
            linkage="internal",
        )
        value, end, known = function.args
        aligned = builder.icmp_unsigned(
            "==", builder.and_(value, emit.const(WORD_BYTES - 1)), emit.const(0)
        )
        above = builder.icmp_unsigned(
            "<", builder.sub(value, end), emit.const(REACH_BYTES)
        )
        last = builder.add(value, emit.const(WORD_BYTES * SLICE_WORDS))
        high = self._load(builder, StateField.STACK_HIGH)
        inside = builder.icmp_unsigned("<=", last, high)
        safe = builder.icmp_signed(
            "!=", self._load(builder, StateField.SAFE_READ), emit.const(0)
        )
        readable = builder.select(known, inside, safe)
        builder.ret(builder.and_(builder.and_(aligned, above), readable))
        return function

    def _emit_copy(self) -> ir.Function:
        """Emit what copies words of a stack, as far as that is possible.

        ::

            int64_t copy(int64_t *to, uint64_t from, int64_t words, bool known,
                         int64_t tid)
            {
                if (!known && state->safe_read) {
                    struct iovec local = {to, 8 * words}, remote = {from, 8 * words};
                    int64_t done = syscall(SYS_process_vm_readv, tid, &local, 1,
                                           &remote, 1, 0);
                    return max(done, 0) / 8;
                }
                for (int64_t i = 0; i < words; i++)
                    to[i] = ((int64_t *)from)[i];
                return words;
            }
        """
        word = emit.WORD
        function, builder = emit.new_function(
            self._module,
            "copy",
            ir.FunctionType(word, [emit.PTR, word, word, emit.BIT, word]),
            ("to", "from", "words", "known", "tid"),
            linkage="internal",
        )
        to, from_, words, known, tid = function.args
        safe = builder.icmp_signed(
            "!=", self._load(builder, StateField.SAFE_READ), emit.const(0)
        )
        vectors = self._local(builder, 4, "vectors")
        with builder.if_then(builder.and_(builder.not_(known), safe)):
            size = builder.shl(words, emit.const(3))
            for index, value in enumerate((to, size, from_, size)):
                emit.store_word(builder, vectors, index, value)
            remote = emit.word_pointer(builder, vectors, 2)
            one, zero = emit.const(1), emit.const(0)
            done = self._system_call(
                builder, SYS_PROCESS_VM_READV, (tid, vectors, one, remote, one, zero)
            )
            failed = builder.icmp_signed("<", done, zero)
            read = builder.select(failed, zero, done)
            builder.ret(builder.lshr(read, emit.const(3)))
        source = builder.inttoptr(from_, emit.PTR)
        with emit.count(builder, words) as index:
            value = emit.load_word(builder, source, index)
            emit.store_word(builder, to, index, value)
        builder.ret(words)
        return function

    def _now(self, builder: ir.IRBuilder) -> Any:
        spec = self._local(builder, 2, "now")
        signature = ir.FunctionType(INT, [INT, emit.PTR])
        address = self._addresses["clock_gettime"]
        clock = ir.Constant(INT, CLOCK_MONOTONIC)
        emit.call_absolute(builder, address, signature, [clock, spec])
        seconds = emit.load_word(builder, spec, 0)
        nanoseconds = emit.load_word(builder, spec, 1)
        return builder.add(builder.mul(seconds, emit.const(1_000_000_000)), nanoseconds)

    def _local(self, builder: ir.IRBuilder, words: int, name: str) -> Any:
        room = emit.variable(builder, ir.ArrayType(emit.WORD, words), name)
        # llvmlite keeps the type of a local variable in its pointer; this takes it off.
        return builder.inttoptr(builder.ptrtoint(room, emit.WORD), emit.PTR)

    def _system_call(
        self, builder: ir.IRBuilder, number: int, arguments: tuple[Any, ...]
    ) -> Any:
        values = [emit.const(number), *arguments]
        signature = ir.FunctionType(emit.WORD, [value.type for value in values])
        return emit.call_absolute(
            builder, self._addresses["syscall"], signature, values
        )

    def _load(self, builder: ir.IRBuilder, field: StateField) -> Any:
        return emit.load_word(builder, self._state, field)

    def _increment(self, builder: ir.IRBuilder, field: StateField) -> None:
        emit.add_to_word(
            builder, self._state, field, emit.const(1), ordering="monotonic"
        )


_BYTE = ir.IntType(8)


def _is_code(builder: ir.IRBuilder, code: Any, wanted: SignalCode) -> Any:
    return builder.icmp_signed("==", code, ir.Constant(INT, int(wanted)))
