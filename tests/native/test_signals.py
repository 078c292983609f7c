"""The handler that takes samples, called like any function with made-up signals."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.native import records
from numbaprof.native.records import read_records
from numbaprof.native.signals import (
    CONTEXT_REGISTERS,
    FIRST_SLICE,
    N_REGISTERS,
    REACH_BYTES,
    SLICE_WORDS,
    THINNING_LEVELS,
    Register,
    SignalCode,
)

pytestmark = pytest.mark.linux

PAGE = mmap.PAGESIZE
BUFFER = 1 << 20
STACK_WORDS = 4096
EBADF = 9


@pytest.fixture
def handler(monkeypatch):
    """The handler, counting signals of the interval timer; no timer is armed."""
    handler = records.shared_handler()
    handler.prepare(SignalCode.KERNEL, BUFFER)
    yield handler
    handler.close()
    handler.release()


@pytest.fixture
def stack(handler, monkeypatch):
    """Return the words of an array that the handler takes for the known stack."""
    words = (ctypes.c_uint64 * STACK_WORDS)(*range(1, STACK_WORDS + 1))
    low = ctypes.addressof(words)
    monkeypatch.setattr(records, "stack_bounds", lambda: (low, low + 8 * STACK_WORDS))
    handler.prepare(SignalCode.KERNEL, BUFFER)
    return words


def send(handler, *, code=SignalCode.KERNEL, value=0, **registers):
    """Call the handler as the kernel would; errno is 9 before and after."""
    info = (ctypes.c_uint8 * 128)()
    ctypes.c_int32.from_buffer(info, 8).value = code
    ctypes.c_uint64.from_buffer(info, 24).value = value
    context = (ctypes.c_uint8 * 1024)()
    words = (ctypes.c_uint64 * N_REGISTERS).from_buffer(context, CONTEXT_REGISTERS)
    for name, word in registers.items():
        words[Register[name.upper()]] = word
    function = ctypes.CFUNCTYPE(
        None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, use_errno=True
    )(handler.address)
    ctypes.set_errno(EBADF)
    function(27, ctypes.addressof(info), ctypes.addressof(context))
    assert ctypes.get_errno() == EBADF


def taken(handler):
    """Return the records there are."""
    return list(read_records(handler.copy()))


def at(words, index):
    """Return the address of a word."""
    return ctypes.addressof(words) + 8 * index


def test_record_has_all_registers(handler, stack):
    """Every register of the context is in the record under its name."""
    values = {register.name: 1000 + register for register in Register}
    values["RSP"] = at(stack, 0)
    send(handler, **values)
    (record,) = taken(handler)
    assert {r.name: record.registers[r] for r in Register} == values


def test_record_says_who_and_when(handler, stack):
    """Thread and time are those of other instruments."""
    before = time.perf_counter_ns()
    send(handler, rsp=at(stack, 0))
    after = time.perf_counter_ns()
    (record,) = taken(handler)
    assert record.thread == threading.get_ident()
    assert record.tid == threading.get_native_id()
    assert before <= record.time_ns <= after


def test_stack_is_copied_from_sp_on(handler, stack):
    """The slice begins at sp and has its full length where the stack goes on."""
    send(handler, rsp=at(stack, 10))
    (record,) = taken(handler)
    assert record.slices == ((at(stack, 10), stack[10 : 10 + SLICE_WORDS]),)


@pytest.mark.parametrize("left", [0, 1, 7, SLICE_WORDS - 1])
def test_copy_ends_with_the_stack(handler, stack, left):
    """Nothing beyond the end of a known stack is read."""
    begin = STACK_WORDS - left
    if not left:  # sp itself is beyond: an unknown stack, on the page of sp.
        begin -= 1
        left = 1
    send(handler, rsp=at(stack, begin))
    (record,) = taken(handler)
    assert record.slices == ((at(stack, begin), stack[begin : begin + left]),)


@pytest.mark.parametrize("name", ["rbx", "rbp"])
def test_frame_above_the_slice_is_copied(handler, stack, name):
    """A register that points into the stack beyond the slice adds its own."""
    send(handler, **{"rsp": at(stack, 0), name: at(stack, 1000)})
    (record,) = taken(handler)
    assert record.slices[1:] == ((at(stack, 1000), stack[1000 : 1000 + SLICE_WORDS]),)


def test_both_frames_are_copied(handler, stack):
    """They are told apart by their addresses."""
    send(handler, rsp=at(stack, 0), rbp=at(stack, 700), rbx=at(stack, 2000))
    (record,) = taken(handler)
    assert [address for address, _ in record.slices] == [
        at(stack, index) for index in (0, 700, 2000)
    ]
    assert record.slices[2][1] == stack[2000 : 2000 + SLICE_WORDS]


@pytest.mark.parametrize(
    "offset",
    [
        -8,  # below sp
        8 * SLICE_WORDS - 8,  # within the slice
        8 * 1000 + 4,  # not a word
        8 * (STACK_WORDS - SLICE_WORDS + 1),  # too near to the end
        8 * SLICE_WORDS + REACH_BYTES,  # far away
    ],
)
def test_register_that_holds_no_frame_is_not_followed(handler, stack, offset):
    """Only an aligned address on this stack is."""
    send(handler, rsp=at(stack, 0), rbx=at(stack, 0) + offset, rbp=12345)
    (record,) = taken(handler)
    assert len(record.slices) == 1


@pytest.fixture
def edge():
    """Return (address, memory) of a page whose next one cannot be read."""
    memory = mmap.mmap(-1, 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    mprotect = ctypes.CDLL(None).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert mprotect(address + PAGE, PAGE, 0) == 0
    yield address
    assert mprotect(address + PAGE, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_unknown_stack_is_read_as_far_as_it_is_mapped(handler, edge):
    """Past its end there is an error from the kernel and no fault."""
    send(handler, rsp=edge + PAGE - 24)
    (record,) = taken(handler)
    assert record.slices == ((edge + PAGE - 24, [0, 0, 0]),)


def test_unknown_stack_is_copied_over_pages(handler):
    """It need not end with the page of sp."""
    words = (ctypes.c_uint64 * (3 * PAGE // 8))(*range(3 * PAGE // 8))
    index = (PAGE - ctypes.addressof(words) % PAGE) // 8 + PAGE // 8 - 2
    send(handler, rsp=at(words, index))
    (record,) = taken(handler)
    assert record.slices == ((at(words, index), words[index : index + SLICE_WORDS]),)


@pytest.mark.parametrize("sp", [0, 8, 2**47 - 8, 2**63, 2**64 - 8])
def test_stack_pointer_that_points_nowhere_costs_only_the_slice(handler, sp):
    """The sample counts, its registers are there."""
    send(handler, rsp=sp, rip=77)
    (record,) = taken(handler)
    assert record.registers[Register.RIP] == 77
    assert record.slices == ((sp, []),)


def test_without_the_kernels_help_an_unknown_stack_is_read_to_the_page(
    handler, edge, monkeypatch
):
    """A filter may forbid process_vm_readv; the page of sp is mapped all the same."""
    monkeypatch.setattr(records, "can_read_safely", lambda: False)
    handler.prepare(SignalCode.KERNEL, BUFFER)
    send(handler, rsp=edge + PAGE - 16, rbx=edge + PAGE)
    (record,) = taken(handler)
    assert record.slices == ((edge + PAGE - 16, [0, 0]),)


@pytest.mark.parametrize("code", [0, -1, -6, 2, SignalCode.TIMER, SignalCode.POLL_IN])
def test_signal_from_elsewhere_is_counted_as_bad(handler, code):
    """``kill -PROF``, ``sigqueue`` and timers of others are no samples."""
    send(handler, code=code, value=2**64 - 1)
    assert (handler.bad, handler.taken, taken(handler)) == (1, 0, [])


def test_nothing_counts_when_closed(handler):
    """Also ``kill`` does not, whose code is 0 like that of no source."""
    handler.close()
    send(handler)
    send(handler, code=0)
    assert (handler.bad, handler.taken) == (2, 0)


def test_posix_timer_is_known_by_its_value(handler, stack):
    """The value is compared, never followed."""
    handler.prepare(SignalCode.TIMER, BUFFER)
    send(handler, code=SignalCode.TIMER, value=0xDEAD0000, rsp=at(stack, 0))
    send(handler, code=SignalCode.TIMER, value=handler.state_address)
    assert (handler.bad, handler.taken) == (1, 1)


@pytest.mark.parametrize("descriptor", [8, 65_536, 2**31, 2**32 - 1])
def test_descriptor_counts_when_accepted(handler, descriptor):
    """Until the end; an index out of range is no index."""
    handler.prepare(SignalCode.POLL_IN, BUFFER)
    handler.accept(7)
    send(handler, code=SignalCode.POLL_IN, value=7)
    send(handler, code=SignalCode.POLL_IN, value=descriptor)
    assert (handler.bad, handler.taken) == (1, 1)
    handler.close()
    handler.prepare(SignalCode.POLL_IN, BUFFER)
    send(handler, code=SignalCode.POLL_IN, value=7)
    assert (handler.bad, handler.taken) == (1, 0)


def reference(lengths, capacity):
    """Return what is kept of stacks of these lengths, in plain Python.

    Returns
    -------
    kept : list of int
        Lengths, of the samples that the last thinning lets pass.
    dropped, thinning : int
    """
    head = mask = dropped = 0
    written = []
    for tick, length in enumerate(lengths):
        filled = capacity // (capacity - head if head < capacity else 1)
        level = min(filled.bit_length() - 1, THINNING_LEVELS)
        now = 4**level - 1
        mask |= now
        if tick & now:
            continue
        head += FIRST_SLICE + length
        if head > capacity:
            dropped += 1
        else:
            written.append((tick, length))
    return [n for tick, n in written if not tick & mask], dropped, mask + 1


@given(
    st.lists(st.integers(1, SLICE_WORDS), max_size=300), st.sampled_from([4000, 40000])
)
def test_full_buffer_is_thinned_and_then_drops(lengths, capacity):
    """What is kept is whole, in order, and evenly spread."""
    handler = records.shared_handler()
    words = (ctypes.c_uint64 * SLICE_WORDS)(*range(SLICE_WORDS))
    high = at(words, SLICE_WORDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "stack_bounds", lambda: (at(words, 0), high))
        handler.prepare(SignalCode.KERNEL, 8 * capacity)
    for length in lengths:
        send(handler, rsp=high - 8 * length)
    slices = [record.slices[0][1] for record in taken(handler)]
    found = [len(words) for words in slices], handler.dropped, handler.thinning
    handler.close()
    assert found == reference(lengths, capacity)
    assert all(copied == words[-len(copied) :] for copied in slices)


def test_half_full_buffer_keeps_every_fourth(handler, stack):
    """The samples from before are thinned as well when they are read."""
    handler.prepare(SignalCode.KERNEL, 8 * 4 * (FIRST_SLICE + SLICE_WORDS))
    for number in range(5):
        send(handler, rsp=at(stack, 0), rip=number)
    assert [record.registers[Register.RIP] for record in taken(handler)] == [0, 4]
    assert (handler.taken, handler.thinning, handler.dropped) == (5, 4, 0)


def test_handler_is_idle_when_it_has_returned(handler):
    """Stop waits for this."""
    send(handler)
    assert handler.is_idle
