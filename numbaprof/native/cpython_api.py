"""Struct layouts of CPython, found in the running interpreter and then verified.

Nothing here is believed because a table says so. Each layout is *discovered* by looking
for values we put there ourselves (our own ``PyMethodDef``, our own frame), and a
candidate pointer is followed only through :class:`SafeReader`, which asks the kernel to
read and so cannot crash. What cannot be found is ``None`` with a ``reason``, and the
instrument that wanted it falls back.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from numbaprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

__all__ = [
    "HEADER_BYTES",
    "CallerLayout",
    "Layouts",
    "MethodDef",
    "SafeReader",
    "discover",
    "is_free_threaded",
    "object_at",
    "thread_state",
]

WORD_BYTES = 8
HEADER_BYTES = object.__basicsize__
"""Size of PyObject_HEAD; 16 on every build with a GIL."""

METH_VARARGS_KEYWORDS = 0x0001 | 0x0002
"""METH_VARARGS | METH_KEYWORDS, Include/methodobject.h."""

THREAD_STATE_WORDS = 32
"""Words of PyThreadState searched for the current frame; it is at word 7 or 9 today."""
FRAME_WORDS = 16
"""Words of a frame searched for its code; at word 0 or 4 today."""
CFRAME_WORDS = 4
"""Words of a _PyCFrame (3.11, 3.12) searched for the frame; at word 0 or 1 today."""


class MethodDef(ctypes.Structure):
    """``PyMethodDef``, Include/methodobject.h."""

    _fields_ = [
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    ]


@dataclass(frozen=True, slots=True)
class CallerLayout:
    """How to get from a thread state to the frame and code of the Python caller."""

    chain: tuple[int, ...]
    """Byte offsets to load in turn, from the thread state to the current frame."""
    code: int
    """Byte offset of the code object in that frame."""
    back: int | None = None
    """3.10 only: byte offset of ``f_back``, to step over the frame Numba fakes."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """What was found, and for what was not, why."""

    method_self: int | None
    """Byte offset of ``m_self`` in a PyCFunction; ``m_ml`` is the word before."""
    method_reason: str
    type_call: int | None
    """Byte offset of ``tp_call`` in a type object."""
    type_reason: str
    caller: CallerLayout | None
    caller_reason: str


class SafeReader:
    """Read memory that may not be there.

    ``write(2)`` to a pipe copies from the address in the kernel and answers EFAULT for
    a bad one, on every POSIX system, without a signal.
    """

    def __init__(self) -> None:
        if sys.platform == "win32":
            raise UnsupportedError("layout discovery needs POSIX; Windows is untested")
        self.read_end, self.write_end = os.pipe()
        self.write = ctypes.CDLL(None).write
        self.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        self.write.restype = ctypes.c_ssize_t

    def __enter__(self) -> SafeReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self.read_end)
        os.close(self.write_end)

    def word(self, address: int) -> int | None:
        """Return the word at ``address``, or None when it cannot be read."""
        if address <= 0 or address % WORD_BYTES:
            return None
        if self.write(self.write_end, address, WORD_BYTES) != WORD_BYTES:
            return None
        return int.from_bytes(os.read(self.read_end, WORD_BYTES), sys.byteorder)


def is_free_threaded() -> bool:
    """Tell whether this build may run without a GIL (then nothing native is used)."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def thread_state() -> int:
    """Return the address of the calling thread's PyThreadState."""
    get = ctypes.pythonapi.PyThreadState_Get
    get.restype = ctypes.c_void_p
    return int(get() or 0)


def object_at(address: int) -> Any:
    """Return the live Python object at ``address``, with a new reference."""
    return ctypes.cast(address, ctypes.py_object).value


def discover() -> Layouts:
    """Find every layout, each verified; never raises for one that is not found."""
    if is_free_threaded():
        reason = "free-threaded build: counters would need atomics, not supported yet"
        return Layouts(None, reason, None, reason, None, reason)
    method_self, method_reason = _guarded(find_method_self)
    type_call, type_reason = _guarded(find_type_call)
    caller, caller_reason = _guarded(find_caller)
    return Layouts(
        method_self, method_reason, type_call, type_reason, caller, caller_reason
    )


def _guarded(find: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return find(), ""
    except UnsupportedError as error:
        return None, str(error)


# -- PyCFunction ----------------------------------------------------------------------


def find_method_self() -> int:
    """Return the byte offset of ``m_self`` in a PyCFunction object.

    A PyCFunction is made around our own MethodDef and our own object; both addresses
    must stand side by side in it.
    """
    definition = MethodDef(b"probe", address_of_noop(), METH_VARARGS_KEYWORDS, None)
    owner = object()
    function = new_method(definition, owner)
    words = read_words(id(function), type(function).__basicsize__ // WORD_BYTES)
    expected = [ctypes.addressof(definition), id(owner)]
    for index in range(HEADER_BYTES // WORD_BYTES, len(words) - 1):
        if words[index : index + 2] == expected:
            return (index + 1) * WORD_BYTES
    raise UnsupportedError(
        "m_ml and m_self were not found side by side in a PyCFunction of this "
        f"interpreter ({sys.version.split()[0]})"
    )


def address_of_noop() -> int:
    """Return the address of some C function; it is stored, never called."""
    noop = ctypes.pythonapi.Py_IncRef
    return ctypes.cast(noop, ctypes.c_void_p).value or 0


def new_method(definition: MethodDef, owner: Any) -> Any:
    """Return ``PyCFunction_NewEx(&definition, owner, NULL)``.

    The caller keeps ``definition`` alive for as long as the function lives.
    """
    new = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )(("PyCFunction_NewEx", ctypes.pythonapi))
    return new(ctypes.addressof(definition), owner, None)


def read_words(address: int, count: int) -> list[int]:
    """Return ``count`` words at ``address``, which the caller knows to be readable."""
    return list((ctypes.c_uint64 * count).from_address(address))


# -- tp_call --------------------------------------------------------------------------


def find_type_call() -> int:
    """Return the byte offset of ``tp_call`` in a type object.

    Four classes differ in nothing but what they define or inherit, so the one word
    that is NULL in a class without ``__call__``, equal in two classes with it, and
    equal in a class that inherits it, is ``tp_call``.
    """
    plain = type("Plain", (), {"__slots__": ()})
    one = type("One", (), {"__slots__": (), "__call__": lambda self: None})
    two = type("Two", (), {"__slots__": (), "__call__": lambda self: None})
    heir = type("Heir", (one,), {"__slots__": ()})
    other = type("Other", (), {"__slots__": (), "__repr__": lambda self: ""})
    # On the class `type` itself, which the stubs take for an unbound property.
    count = cast("int", type.__basicsize__) // WORD_BYTES
    tables = [read_words(id(cls), count) for cls in (plain, one, two, heir, other)]
    found = [
        index
        for index, (no, yes, also, inherited, unrelated) in enumerate(
            zip(*tables, strict=True)
        )
        if no == 0 == unrelated and yes and yes == also == inherited
    ]
    if len(found) != 1:
        raise UnsupportedError(
            f"tp_call was not found in a type object ({len(found)} candidate words)"
        )
    return found[0] * WORD_BYTES


# -- the Python caller ----------------------------------------------------------------


def find_caller() -> CallerLayout:
    """Return how to read the caller's frame and code from the thread state.

    Notes
    -----
    Found in one frame, then verified in others. The engine's own self-test checks it
    once more from native code.
    """
    with SafeReader() as reader:
        layout = _find_chain(reader)
        _verify_chain(layout, reader)
    return layout


def _find_chain(reader: SafeReader) -> CallerLayout:
    """Look for this very frame from this thread's state.

    Between reading the state and following it no Python-level call may happen: the
    frame of a helper would be the current one. So everything below is inline C calls.
    """
    frame = sys._getframe()
    frame_address = id(frame)
    code = id(frame.f_code)
    if sys.version_info >= (3, 11):
        frame_address = internal_frame(id(frame), code, reader)
    code_offset = _offset_of(code, frame_address, reader)
    back = _back_offset(frame)
    write, read, decode = reader.write, os.read, int.from_bytes
    pipe_in, pipe_out, order = reader.write_end, reader.read_end, sys.byteorder
    state = thread_state()
    # ``string_at`` would do, were it not a Python function with a frame of its own.
    image = (ctypes.c_char * (THREAD_STATE_WORDS * WORD_BYTES)).from_address(state).raw
    for at in range(0, len(image), WORD_BYTES):
        word = decode(image[at : at + WORD_BYTES], order)
        if word == frame_address:
            return CallerLayout((at,), code_offset, back)
    for at in range(0, len(image), WORD_BYTES):
        word = decode(image[at : at + WORD_BYTES], order)
        if word == 0 or word % WORD_BYTES:
            continue
        for step in range(0, CFRAME_WORDS * WORD_BYTES, WORD_BYTES):
            if write(pipe_in, word + step, WORD_BYTES) != WORD_BYTES:
                break
            if decode(read(pipe_out, WORD_BYTES), order) == frame_address:
                return CallerLayout((at, step), code_offset, back)
    raise UnsupportedError("the current frame was not found from the thread state")


def internal_frame(frame: int, code: int, reader: SafeReader) -> int:
    """Return the ``_PyInterpreterFrame`` behind a PyFrameObject (3.11 and later)."""
    for at in range(HEADER_BYTES, FRAME_WORDS * WORD_BYTES, WORD_BYTES):
        candidate = reader.word(frame + at)
        if candidate is None:
            break
        for step in range(0, FRAME_WORDS * WORD_BYTES, WORD_BYTES):
            if reader.word(candidate + step) == code:
                return candidate
    raise UnsupportedError("the interpreter frame was not found in a frame object")


def _offset_of(value: int, base: int, reader: SafeReader) -> int:
    for at in range(0, FRAME_WORDS * WORD_BYTES, WORD_BYTES):
        if reader.word(base + at) == value:
            return at
    raise UnsupportedError("the code object was not found in a frame")


def _back_offset(frame: FrameType) -> int | None:
    """Return the offset of ``f_back`` of a frame object on 3.10, None later."""
    if sys.version_info >= (3, 11):
        return None
    words = read_words(id(frame), FRAME_WORDS)
    back = id(frame.f_back)
    return words.index(back) * WORD_BYTES if back in words else None


def _verify_chain(layout: CallerLayout, reader: SafeReader) -> None:
    """Check ``layout`` in a plain, a deeper, a C-called and a generator frame.

    Raises
    ------
    UnsupportedError
        The code read through the layout is not the running function's.
    """
    write, read, decode = reader.write, os.read, int.from_bytes
    pipe_in, pipe_out, order = reader.write_end, reader.read_end, sys.byteorder
    state = thread_state()
    offsets = (*layout.chain, layout.code)

    # Both bodies are the same on purpose: a shared helper would be its own frame.
    def leads_here(_: object = None) -> bool:
        word = state
        for offset in offsets:
            if word == 0 or word % WORD_BYTES:
                return False
            if write(pipe_in, word + offset, WORD_BYTES) != WORD_BYTES:
                return False
            word = decode(read(pipe_out, WORD_BYTES), order)
        return word == id(sys._getframe().f_code)

    def leads_into_generator() -> Iterator[bool]:
        word = state
        for offset in offsets:
            if word == 0 or word % WORD_BYTES:
                yield False
            if write(pipe_in, word + offset, WORD_BYTES) != WORD_BYTES:
                yield False
            word = decode(read(pipe_out, WORD_BYTES), order)
        yield word == id(sys._getframe().f_code)

    def deeper(depth: int) -> bool:
        return leads_here() if depth == 0 else deeper(depth - 1)

    checks = {
        "a function": leads_here(),
        "a deeper function": deeper(3),
        "a function called from C": all(map(leads_here, (1, 2))),
        "a generator": next(leads_into_generator()),
    }
    failed = [place for place, right in checks.items() if not right]
    if failed:
        raise UnsupportedError(
            "the code read from the thread state is wrong in " + " and ".join(failed)
        )
