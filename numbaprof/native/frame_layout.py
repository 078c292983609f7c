"""Where arguments lie in a running frame, and an array's shape in the array.

Found and verified in the running interpreter, like everything in
:mod:`numbaprof.native.cpython_api`; what cannot be found is an UnsupportedError with
the reason, and the Python tracer then works without native code.
"""

from __future__ import annotations

import ctypes
import sys
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from numbaprof.errors import UnsupportedError
from numbaprof.native.cpython_api import (
    HEADER_BYTES,
    WORD_BYTES,
    SafeReader,
    internal_frame,
    read_words,
)

__all__ = ["ArrayLayout", "FrameLayout", "discover_array", "discover_frame"]

FRAME_WORDS = 64
"""Words of a frame searched for its arguments; they begin at word 9 or 44 today."""
DESCRIPTOR_WORDS = 8
SAMPLE_SHAPE = (3, 5, 7)


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Byte offsets in the frame the thread state leads to, and in small objects."""

    locals: int
    """First of the arguments, cells and other locals."""
    frame_object: int
    """Of that frame in a PyFrameObject; 0 where they are the same (3.10)."""
    cell_contents: int
    """In a cell object."""
    method_definition: int
    """``m_ml`` in a PyCFunction."""
    descriptor_method: int
    """``d_method`` in a method descriptor."""


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Byte offsets in a NumPy array object and its descriptor."""

    ndim: int
    """A C int."""
    dimensions: int
    descriptor: int
    flags: int
    """A C int."""
    type_number: int
    """A C int, in the descriptor."""
    byte_order: int
    """A char, in the descriptor."""


class _Sentinel:
    """An object whose address is looked for."""


def discover_frame(method_definition: int) -> FrameLayout:
    """Find where a frame keeps its arguments.

    Parameters
    ----------
    method_definition : int
        Byte offset of ``m_ml`` in a PyCFunction, known already.

    Raises
    ------
    UnsupportedError
        Something was not where two different functions both have it.
    """
    with SafeReader() as reader:
        first = _locals_of_two(reader, _Sentinel(), _Sentinel())
        second = _locals_of_three(reader, _Sentinel(), _Sentinel(), _Sentinel())
    if first != second:
        raise UnsupportedError(
            f"arguments were found at {first} in one frame and at {second} in another"
        )
    offset, inside = first
    return FrameLayout(
        locals=offset,
        frame_object=inside,
        cell_contents=_cell_contents(),
        method_definition=method_definition,
        descriptor_method=_descriptor_method(method_definition),
    )


def _locals_of_two(reader: SafeReader, one: Any, two: Any) -> tuple[int, int]:
    return _find_locals(reader, sys._getframe(), [id(one), id(two)])


def _locals_of_three(
    reader: SafeReader, one: Any, two: Any, three: Any
) -> tuple[int, int]:
    return _find_locals(reader, sys._getframe(), [id(one), id(two), id(three)])


def _find_locals(
    reader: SafeReader, frame: types.FrameType, wanted: list[int]
) -> tuple[int, int]:
    """Return (offset of the first local, offset of the frame in the frame object)."""
    base, inside = id(frame), 0
    if sys.version_info >= (3, 11):
        base = internal_frame(id(frame), id(frame.f_code), reader)
        words = read_words(id(frame), type(frame).__basicsize__ // WORD_BYTES)
        inside = words.index(base) * WORD_BYTES
    # The reader itself is the first argument.
    expected = [id(reader), *wanted]
    image = [reader.word(base + at * WORD_BYTES) for at in range(FRAME_WORDS)]
    for at in range(FRAME_WORDS - len(expected)):
        if image[at : at + len(expected)] == expected:
            return at * WORD_BYTES, inside
    raise UnsupportedError("the arguments were not found in a frame")


def _cell_contents() -> int:
    inside = _Sentinel()
    cell = types.CellType(inside)
    words = read_words(id(cell), type(cell).__basicsize__ // WORD_BYTES)
    if id(inside) not in words:
        raise UnsupportedError("the contents of a cell were not found in it")
    return words.index(id(inside)) * WORD_BYTES


def _descriptor_method(method: int) -> int:
    """Find the word that a descriptor shares with the builtin it makes."""
    some_list: list[object] = []
    bound, descriptor = some_list.append, list.append
    definition = read_words(id(bound), 8)[method // WORD_BYTES]
    words = read_words(id(descriptor), type(descriptor).__basicsize__ // WORD_BYTES)
    if definition not in words:
        raise UnsupportedError("d_method was not found in a method descriptor")
    return words.index(definition) * WORD_BYTES


def discover_array() -> ArrayLayout:
    """Find where an array keeps its shape and element type.

    Raises
    ------
    UnsupportedError
        This NumPy keeps them elsewhere than can be found.
    """
    samples = [
        np.zeros(SAMPLE_SHAPE),
        np.zeros(SAMPLE_SHAPE[:2], dtype=np.int16, order="F"),
        np.zeros(4, dtype=">f4")[::2],
    ]
    size = np.ndarray.__basicsize__ // WORD_BYTES
    descriptor = _common(
        [
            [at for at, word in enumerate(read_words(id(a), size)) if word == here]
            for a, here in ((a, id(a.dtype)) for a in samples)
        ],
        "the descriptor",
    )
    dimensions = _common([_dimension_words(a, size) for a in samples], "the shape")
    ndim = _common([_int_positions(id(a), size, a.ndim) for a in samples], "ndim")
    flags = _common(
        [_int_positions(id(a), size, a.flags.num) for a in samples], "the flags"
    )
    number = _common(
        [_int_positions(id(a.dtype), DESCRIPTOR_WORDS, a.dtype.num) for a in samples],
        "the type number",
    )
    order = _common([_order_positions(a.dtype) for a in samples], "the byte order")
    return ArrayLayout(
        ndim=ndim * 4,
        dimensions=dimensions * WORD_BYTES,
        descriptor=descriptor * WORD_BYTES,
        flags=flags * 4,
        type_number=number * 4,
        byte_order=order,
    )


def _common(candidates: list[list[int]], what: str) -> int:
    """Return the smallest position all samples agree on."""
    shared = set(candidates[0]).intersection(*candidates[1:])
    if not shared:
        raise UnsupportedError(f"{what} of a NumPy array was not found")
    return min(shared)


def _dimension_words(array: Any, size: int) -> list[int]:
    """Return words that point to the shape, followed by the strides."""
    wanted = [*array.shape, *array.strides]
    found = []
    with SafeReader() as reader:
        for at, word in enumerate(read_words(id(array), size)):
            seen = [
                _signed(reader.word(word + index * WORD_BYTES))
                for index in range(len(wanted))
            ]
            if seen == wanted:
                found.append(at)
    return found


def _signed(word: int | None) -> int | None:
    return word - 2**64 if word is not None and word >= 2**63 else word


def _int_positions(address: int, words: int, wanted: int) -> list[int]:
    image = (ctypes.c_int32 * (words * 2)).from_address(address)
    first = HEADER_BYTES // 4
    return [at for at in range(first, len(image)) if image[at] == wanted]


def _order_positions(dtype: Any) -> list[int]:
    size = DESCRIPTOR_WORDS * WORD_BYTES
    image = (ctypes.c_char * size).from_address(id(dtype)).raw
    # Beside it stand the kind and the type character, in which the samples differ.
    wanted = (dtype.kind + dtype.char + dtype.byteorder).encode()
    at = image.find(wanted)
    return [] if at < 0 else [at + 2]
