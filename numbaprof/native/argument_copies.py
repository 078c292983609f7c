"""Copies of arguments for a run that the user's own data must not notice.

A copy has the Numba type of what it was made of (layout, alignment, writeability), and
arrays that share memory share it in the copies, too. What cannot be copied is
refused by name: silently running on the user's own objects would change them.
"""

from __future__ import annotations

import copy
import ctypes
import enum
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.experimental.structref import StructRefProxy
from numba.typed import Dict as TypedDict
from numba.typed import List as TypedList

from numbaprof.errors import TargetError
from numbaprof.native.numba_api import JitclassInstance

__all__ = ["copy_arguments"]

IMMUTABLE = (
    type(None),
    bool,
    str,
    bytes,
    numbers.Number,
    np.generic,
    np.dtype,
    enum.Enum,
    type,
    slice,
    range,
    Dispatcher,
    types.Type,
)
"""Passed on as they are: compiled code cannot change them."""

ALIGNMENT_BYTES = 64
"""A copy is placed like its original modulo this: a cache line, the widest vector."""

BY_VALUE = (types.Number, types.Boolean, types.UnicodeType, types.NPDatetime)
"""Items that a typed container holds itself, so that its own copy is enough."""


def copy_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return copies of positional and keyword arguments.

    Raises
    ------
    TargetError
        An argument is of a kind that cannot be copied; the message names it.
    """
    copies = _Copies(_Memory([*args, *kwargs.values()]))
    copied = tuple(
        copies.of(value, f"argument {position}") for position, value in enumerate(args)
    )
    named = {
        name: copies.of(value, f"argument {name!r}") for name, value in kwargs.items()
    }
    return copied, named


class _Copies:
    """Copies of the arguments of one call; one object has one copy."""

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        # The originals are kept, too: an id is only good for a living object.
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, name: str) -> Any:
        if isinstance(value, IMMUTABLE):
            return value
        if id(value) not in self._known:
            self._known[id(value)] = (value, self._make(value, name))
        return self._known[id(value)][1]

    def _make(self, value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray):
            return self._memory.array(value)
        if isinstance(value, tuple):
            items = [self.of(item, name) for item in value]
            # Named tuples take their fields one by one.
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, list):
            return [self.of(item, name) for item in value]
        if isinstance(value, TypedList):
            return self._typed_list(value, name)
        if isinstance(value, TypedDict):
            return self._typed_dict(value, name)
        if isinstance(value, set | bytearray | np.random.Generator):
            return copy.deepcopy(value)
        if isinstance(value, JitclassInstance | StructRefProxy) or not callable(value):
            raise TargetError(
                f"{name} is a {type(value).__name__}, of which no copy can be made, "
                "and counting runs the function a second time: what it writes there "
                "would be written twice; pass copy=False if that does no harm"
            )
        return value

    def _typed_list(self, value: Any, name: str) -> Any:
        if not value._typed:
            return TypedList()
        item_type = value._list_type.item_type
        if isinstance(item_type, BY_VALUE):
            return value.copy()
        made = TypedList.empty_list(item_type)
        for item in value:
            made.append(self.of(item, name))
        return made

    def _typed_dict(self, value: Any, name: str) -> Any:
        if not value._typed:
            return TypedDict()
        kept = value._dict_type
        if isinstance(kept.value_type, BY_VALUE):
            return value.copy()
        made = TypedDict.empty(kept.key_type, kept.value_type)
        for key, item in value.items():
            made[self.of(key, name)] = self.of(item, name)
        return made


@dataclass(slots=True)
class _Region:
    """Memory that arrays lie in, from ``low`` up to ``high``."""

    low: int
    high: int
    writeable: bool
    copy: Any = None

    def copied(self) -> Any:
        """Return a writeable copy of the bytes, made once."""
        if self.copy is None:
            size = self.high - self.low
            room = np.empty(size + ALIGNMENT_BYTES, dtype=np.uint8)
            start = (self.low - room.ctypes.data) % ALIGNMENT_BYTES
            self.copy = room[start : start + size]
            ctypes.memmove(self.copy.ctypes.data, self.low, size)
        return self.copy


class _Memory:
    """The memory of all arrays in a call's arguments.

    What overlaps is copied as one piece, however the arrays came to share it.
    """

    def __init__(self, values: list[Any]) -> None:
        self._regions: list[_Region] = []
        spans = sorted(
            (*_bounds(array), array.flags.writeable)
            for array in _arrays(values, set())
            if array.size
        )
        for low, high, writeable in spans:
            last = self._regions[-1] if self._regions else None
            if last is not None and low < last.high:
                last.high = max(high, last.high)
                last.writeable |= writeable
            else:
                self._regions.append(_Region(low, high, writeable))

    def array(self, array: Any) -> Any:
        """Return a copy of an array, or the array if nobody can write to it."""
        if not array.size or array.dtype.hasobject:
            return array
        low, high = _bounds(array)
        for region in self._regions:
            if region.low <= low and high <= region.high:
                break
        else:
            # Items of typed containers are views made anew each time one asks.
            region = _Region(low, high, writeable=True)
        if not region.writeable:
            return array
        made = np.ndarray(
            array.shape,
            array.dtype,
            buffer=region.copied(),
            offset=array.ctypes.data - region.low,
            strides=array.strides,
        )
        made.flags.writeable = array.flags.writeable
        return made


def _arrays(values: Any, seen: set[int]) -> list[Any]:
    """Return the arrays among ``values``, also those within lists and tuples."""
    found = []
    for value in values:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, tuple | list | TypedList) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, TypedList) and not _holds_arrays(value):
                continue
            found.extend(_arrays(value, seen))
        elif isinstance(value, TypedDict) and _holds_arrays(value):
            found.extend(_arrays(list(value.values()), seen))
    return found


def _holds_arrays(container: Any) -> bool:
    if not container._typed:
        return False
    if isinstance(container, TypedList):
        return not isinstance(container._list_type.item_type, BY_VALUE)
    return not isinstance(container._dict_type.value_type, BY_VALUE)


def _bounds(array: Any) -> tuple[int, int]:
    """Return the address of an array's first byte, and the one after its last."""
    low = high = int(array.ctypes.data)
    for length, stride in zip(array.shape, array.strides, strict=True):
        reach = (length - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + int(array.itemsize)
