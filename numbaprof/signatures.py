"""What the arguments of a Python call were: keys, structured signatures, labels.

Everything here describes objects of the user's program from inside a profiling
callback, so nothing may run the user's code, keep the user's objects alive or take
long. Only exact types that are known to answer from C are asked for anything; of all
others the class is named, read with the descriptors of ``type`` itself. Even
``isinstance`` may run code, through a ``__class__`` property. No package is imported:
classes of pandas, CuPy or Numba can only be met once the program has imported them.

Levels
------
A function gets one row per signature at the finest level asked for. ``shape`` tells
dtype, shape, layout and whether an array may be written; ``ndim`` leaves the shape out,
``type`` names classes only and ``none`` does not look at arguments. A signature can be
made coarser at any time (:func:`coarsen`), never finer.

Labels
------
``float64[3, 4]``, with `` F`` or `` A`` unless it is C-contiguous and `` ro`` when it
may not be written; ``float64[:, :]`` without the shape; ``>f4[10]`` in foreign order;
``record{a: int32, b: float64}[3]``; ``np.float32`` for a NumPy scalar, ``int`` for a
Python one of any size; ``(int, float)`` for a tuple of up to four, else ``tuple[9]``;
``typed.List(int64)``, ``jit(dot)``; anything else by its class.
"""

from __future__ import annotations

import enum
import inspect
import sys
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from numbaprof.errors import OptionError
from numbaprof.model import Argument

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from types import CodeType

__all__ = [
    "UNBOUND",
    "Argument",
    "KeyKind",
    "Level",
    "Sizes",
    "Style",
    "argument_key",
    "class_name",
    "coarsen",
    "describe",
    "key_kind",
    "label",
    "parameters_of",
    "regroup",
    "render",
    "size_of",
]

Style = Literal["numba", "accelerate"]
KeyKind = Literal["type", "array", "tuple", "described"]


class Level(enum.IntEnum):
    """How much of the arguments a signature tells; a larger one tells less."""

    SHAPE = 0
    NDIM = 1
    TYPE = 2
    NONE = 3

    @classmethod
    def of(cls, option: object) -> Level:
        """Return the level that an option asks for.

        Parameters
        ----------
        option : {True, "shape", "ndim", "type", False}
            True is the finest.

        Raises
        ------
        OptionError
            It is none of these.
        """
        if isinstance(option, bool):
            return cls.SHAPE if option else cls.NONE
        if isinstance(option, cls):
            return option
        for level in cls:
            if option == level.name.lower() and level is not cls.NONE:
                return level
        raise OptionError(
            f"signatures={option!r} must be 'shape', 'ndim', 'type' or False"
        )


class _Unbound:
    """Stands for a parameter that holds nothing, because the function deleted it."""

    def __repr__(self) -> str:
        return "<unbound>"


UNBOUND = _Unbound()
"""The value of a parameter that the function has deleted."""

TUPLE_ITEMS = 4
"""Tuples of up to so many elements are labelled by element."""
RECORD_FIELDS = 6
"""Fields of a structured dtype that a label names."""
NAME_LENGTH = 60
"""Characters of a class or dtype in a label."""
LABEL_LENGTH = 160
"""Characters of a signature; wider tables cannot be read."""

C_CONTIGUOUS, F_CONTIGUOUS, WRITEABLE = 0x1, 0x2, 0x400
"""Bits of ``ndarray.flags.num``, numpy/ndarraytypes.h (NPY_ARRAY_*)."""
BUILTIN_DTYPES = 24
"""NumPy's own type numbers, numpy/ndarraytypes.h (NPY_NTYPES_LEGACY)."""
STRING_DTYPE = 2056
"""``numpy.dtypes.StringDType``, numpy/ndarraytypes.h (NPY_VSTRING)."""
FLAG_BITS = C_CONTIGUOUS | F_CONTIGUOUS | WRITEABLE


@dataclass(slots=True)
class Sizes:
    """How large the arguments of the calls of one row were, in array elements."""

    calls: int = 0
    smallest: int = 0
    largest: int = 0

    def add(self, size: int, largest: int | None = None, calls: int = 1) -> None:
        """Count calls.

        Parameters
        ----------
        size : int
            Elements in all array arguments of the call; of the smallest one if there
            are several.
        largest : int, optional
            The same of the largest one.
        calls : int, optional
            How many there were.
        """
        if not calls:
            return
        largest = size if largest is None else largest
        self.smallest = min(self.smallest, size) if self.calls else size
        self.largest = max(self.largest, largest)
        self.calls += calls

    def __str__(self) -> str:
        if not self.calls:
            return ""
        return f"{self.calls} calls, {self.smallest} to {self.largest} array elements"


# -- classes ---------------------------------------------------------------------------

# A metaclass may define these as properties; the descriptors of type itself do not ask.
_QUALNAME: Any = type.__dict__["__qualname__"]
_MODULE: Any = type.__dict__["__module__"]
# A subclass may override these; the descriptors of ndarray do not ask.
_SHAPE: Any = np.ndarray.__dict__["shape"]
_DTYPE: Any = np.ndarray.__dict__["dtype"]
_FLAGS: Any = np.ndarray.__dict__["flags"]
_SIZE: Any = np.ndarray.__dict__["size"]


def _module_of(cls: type) -> str:
    try:
        module = _MODULE.__get__(cls)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def _shape(array: object) -> tuple[int, ...]:
    shape: tuple[int, ...] = _SHAPE.__get__(array)
    return shape


def _dtype(array: object) -> np.dtype[Any]:
    dtype: np.dtype[Any] = _DTYPE.__get__(array)
    return dtype


def _flags(array: object) -> int:
    return int(_FLAGS.__get__(array).num)


def class_name(cls: type) -> str:
    """Name a class for a label, without asking its metaclass.

    Returns
    -------
    str
        Its qualified name without the functions around it, on one line.
    """
    if cls is type(None):
        return "None"
    name = _plain_text(_exact(_QUALNAME.__get__(cls)).rpartition("<locals>.")[2])
    if issubclass(cls, np.generic) and _module_of(cls) == "numpy":
        return f"np.{name}"
    return name


def _exact(name: str) -> str:
    """Return a name as an exact ``str``, of which a subclass may override anything."""
    return str.__str__(name)


def _plain_text(text: str) -> str:
    """Return a name on one line, and not too long."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 3] + "..."


def _dtype_text(dtype: np.dtype[Any]) -> str:
    if dtype.names is not None:
        fields = [
            f"{_plain_text(name)}: {_field_text(dtype, name)}"
            for name in dtype.names[:RECORD_FIELDS]
        ]
        more = ["..."] if len(dtype.names) > RECORD_FIELDS else []
        return f"record{{{', '.join([*fields, *more])}}}"
    if not (0 <= dtype.num < BUILTIN_DTYPES or dtype.num == STRING_DTYPE):
        # Of another package, whose code would do the printing.
        return class_name(type(dtype) if dtype.num < 0 else dtype.type)
    if not dtype.isnative:
        return str(dtype.str)
    return str(dtype.str[1:] if dtype.kind in "SUV" else dtype.name)


def _field_text(dtype: np.dtype[Any], name: str) -> str:
    field = dtype[name]
    if field.subdtype is not None:
        base, shape = field.subdtype
        return f"{_dtype_text(base)}{list(shape)}"
    return _dtype_text(field)


# -- objects that are asked for more than their class ----------------------------------


def _describe_dispatcher(value: object) -> str:
    func = object.__getattribute__(value, "py_func")
    return (
        f"jit({_plain_text(_exact(func.__name__))})"
        if type(func) is FunctionType
        else ""
    )


def _describe_typed_list(value: object) -> str:
    numba_type = object.__getattribute__(value, "_list_type")
    return f"typed.List({_plain_text(str(numba_type.item_type))})"


def _describe_typed_dict(value: object) -> str:
    numba_type = object.__getattribute__(value, "_dict_type")
    types = (str(numba_type.key_type), str(numba_type.value_type))
    return f"typed.Dict({', '.join(map(_plain_text, types))})"


_DETAILS: dict[tuple[str, str], Callable[[object], str]] = {
    ("numba.core.registry", "CPUDispatcher"): _describe_dispatcher,
    ("numba.typed.typedlist", "List"): _describe_typed_list,
    ("numba.typed.typeddict", "Dict"): _describe_typed_dict,
}
"""Numba's own classes by module and name: asking them runs none but Numba's code."""
_DEVICE_ARRAYS = {
    ("cupy", "ndarray"): "cupy.ndarray",
    ("numba.cuda.cudadrv.devicearray", "DeviceNDArray"): "cuda.DeviceNDArray",
    ("numba_cuda.numba.cuda.cudadrv.devicearray", "DeviceNDArray"): (
        "cuda.DeviceNDArray"
    ),
}
"""Arrays on a GPU whose ``dtype`` and ``shape`` are plain attributes. Any other object
with a ``__cuda_array_interface__`` is named by class: reading that may run its code."""


def _origin(cls: type) -> tuple[str, str]:
    """Return module and name of a class if it really is the one of that name."""
    module, name = key = _module_of(cls), _exact(_QUALNAME.__get__(cls))
    if key in _DETAILS or key in _DEVICE_ARRAYS:
        found = vars(sys.modules[module]).get(name) if module in sys.modules else None
        return key if found is cls else ("", "")
    return key


def key_kind(cls: type) -> KeyKind:
    """Say what a key of an object of a class is made of.

    Returns
    -------
    {"type", "array", "tuple", "described"}
        ``type``: the address of the class. ``array``: dtype, shape and flags as well.
        ``tuple``: length and classes of the first four elements as well. ``described``:
        all that :func:`describe` says; there is no shorter way.

    Notes
    -----
    Holds for the life of the class. At level ``type`` all keys are ``type``.
    """
    if cls is np.ndarray:
        return "array"
    if cls is tuple:
        return "tuple"
    if issubclass(cls, np.ndarray):
        return "described"
    origin = _origin(cls)
    return "described" if origin in _DETAILS or origin in _DEVICE_ARRAYS else "type"


# -- keys and descriptions -------------------------------------------------------------


def argument_key(value: object, level: Level = Level.SHAPE) -> Hashable:
    """Return a key under which values have one description at a level.

    Parameters
    ----------
    value : object
        Anything; none of its code is run and no reference to it is kept.
    level : Level
        SHAPE, NDIM or TYPE.

    Returns
    -------
    hashable
        It names classes by address, those of the first elements of a tuple too, so
        whoever keeps a key must keep the classes.

    Notes
    -----
    Dtypes are compared by value: equal structured dtypes, datetime units and string
    widths need not be one object. Cost about 0.1 us, 0.4 us for arrays, and
    microseconds for what :func:`key_kind` calls "described".
    """
    cls = type(value)
    if level is Level.TYPE:
        return id(cls)
    if cls is np.ndarray:
        shape = _shape(value)
        size = shape if level is Level.SHAPE else len(shape)
        return (_dtype(value), size, _flags(value) & FLAG_BITS)
    if cls is tuple:
        items: tuple[object, ...] = value  # type: ignore[assignment]
        return (len(items), *(id(type(item)) for item in items[:TUPLE_ITEMS]))
    if key_kind(cls) == "described":
        return coarsen((describe("", value),), level)
    return id(cls)


def describe(name: str, value: object) -> Argument:
    """Say what an argument is, at the finest level.

    Parameters
    ----------
    name : str
        Of the parameter.
    value : object
        Anything; none of its code is run and no reference to it is kept.
    """
    if value is UNBOUND:
        return Argument(name, "?")
    cls = type(value)
    if cls is np.ndarray:
        return _describe_array(name, "ndarray", value)
    if cls is tuple:
        return Argument(name, "tuple", detail=_tuple_text(value))  # type: ignore[arg-type]
    if issubclass(cls, np.ndarray):
        return _describe_array(name, class_name(cls), value)
    origin = _origin(cls)
    if origin in _DETAILS:
        return Argument(name, class_name(cls), detail=_detail(value, origin))
    if origin in _DEVICE_ARRAYS:
        return _describe_device_array(name, _DEVICE_ARRAYS[origin], value)
    return Argument(name, class_name(cls))


def _describe_array(name: str, cls: str, value: object) -> Argument:
    shape, flags = _shape(value), _flags(value)
    layout = "C" if flags & C_CONTIGUOUS else "F" if flags & F_CONTIGUOUS else "A"
    return Argument(
        name,
        cls,
        dtype=_dtype_text(_dtype(value)),
        ndim=len(shape),
        shape=shape,
        layout=layout,
        readonly=not flags & WRITEABLE,
    )


def _tuple_text(value: tuple[object, ...]) -> str:
    if len(value) > TUPLE_ITEMS:
        return f"tuple[{len(value)}]"
    items = ", ".join(class_name(type(item)) for item in value)
    return f"({items},)" if len(value) == 1 else f"({items})"


def _detail(value: object, origin: tuple[str, str]) -> str:
    try:
        return _DETAILS[origin](value)
    except AttributeError:
        # Not initialised yet, or another version of Numba: the class is still right.
        return ""


def _describe_device_array(name: str, cls: str, value: Any) -> Argument:
    try:
        dtype, shape = value.dtype, value.shape
    except AttributeError:
        return Argument(name, cls)
    if not isinstance(dtype, np.dtype) or type(shape) is not tuple:
        return Argument(name, cls)
    return Argument(
        name, cls, dtype=_dtype_text(dtype), ndim=len(shape), shape=shape, layout="C"
    )


def size_of(values: Sequence[object]) -> int:
    """Count the elements of all NumPy arrays among some arguments."""
    return sum(
        _SIZE.__get__(value) for value in values if issubclass(type(value), np.ndarray)
    )


def parameters_of(code: CodeType) -> tuple[str, ...]:
    """Name the parameters of a code object, which are its first local variables.

    Returns
    -------
    tuple of str
        ``*args`` and ``**kw`` with their stars.
    """
    n_named = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:n_named])
    rest = iter(code.co_varnames[n_named:])
    if code.co_flags & inspect.CO_VARARGS:
        names.append("*" + next(rest))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        names.append("**" + next(rest))
    return tuple(names)


# -- coarser ---------------------------------------------------------------------------


def coarsen(arguments: tuple[Argument, ...], level: Level) -> tuple[Argument, ...]:
    """Leave out of a signature what a level does not tell."""
    if level is Level.SHAPE:
        return arguments
    if level is Level.NDIM:
        return tuple(replace(argument, shape=None) for argument in arguments)
    if level is Level.TYPE:
        return tuple(Argument(argument.name, argument.type) for argument in arguments)
    return ()


class _Signed(Protocol):
    @property
    def function(self) -> Hashable: ...
    @property
    def arguments(self) -> tuple[Argument, ...]: ...
    @property
    def level(self) -> Level: ...


def regroup(rows: Sequence[_Signed], level: Level) -> list[int]:
    """Say which rows are one at a coarser level.

    Parameters
    ----------
    rows : sequence
        Each has ``function`` (what the function is known by), ``arguments`` and the
        ``level`` these were recorded at.
    level : Level
        To look at them from. A row that was recorded coarser stays as it is.

    Returns
    -------
    list of int
        For each row the index of the first one of its group.
    """
    first: dict[Hashable, int] = {}
    groups = []
    for index, row in enumerate(rows):
        seen = max(row.level, level)
        key = (row.function, seen, coarsen(row.arguments, seen))
        groups.append(first.setdefault(key, index))
    return groups


# -- text ------------------------------------------------------------------------------

_OTHERS = {
    Level.NDIM: "(other shapes)",
    Level.TYPE: "(other arrays)",
    Level.NONE: "(other types)",
}


def render(
    arguments: tuple[Argument, ...],
    level: Level,
    *,
    style: Style = "numba",
    others: bool = False,
) -> str:
    """Write a signature.

    Parameters
    ----------
    arguments : tuple of Argument
        At ``level`` or finer.
    level : Level
        How much to tell.
    style : {"numba", "accelerate"}
        ``(a: float32[16])`` or ``(a:ndarray(dtype=float32, shape=(16,)))``, as the
        profiler of Anaconda Accelerate wrote it.
    others : bool
        The row takes the calls that no finer row had room for.

    Returns
    -------
    str
        On one line, at most LABEL_LENGTH characters and the note about others; "" at
        level ``none``.
    """
    if level is Level.NONE:
        return f"(...) {_OTHERS[level]}" if others else ""
    shown = coarsen(arguments, level)
    write = _accelerate_text if style == "accelerate" else _numba_text
    text = f"({', '.join(map(write, shown))})"
    if len(text) > LABEL_LENGTH:
        text = text[: LABEL_LENGTH - 4] + "...)"
    return f"{text} {_OTHERS[level]}" if others else text


def label(
    name: str,
    arguments: tuple[Argument, ...],
    level: Level,
    *,
    style: Style = "numba",
    others: bool = False,
) -> str:
    """Write a function's name with a signature; parameters as of :func:`render`.

    Style ``accelerate`` puts the class of ``self`` before the name of a method, and in
    place of ``__init__``.
    """
    if style == "accelerate" and arguments and arguments[0].name == "self":
        owner = arguments[0].type
        name = owner if name == "__init__" else f"{owner}.{name}"
        arguments = arguments[1:]
    return name + render(arguments, level, style=style, others=others)


def _numba_text(argument: Argument) -> str:
    return f"{argument.name}: {_type_text(argument)}"


def _type_text(argument: Argument) -> str:
    if argument.ndim < 0:
        return argument.detail or argument.type
    if argument.shape is None:
        dims = ", ".join(":" * argument.ndim)
    else:
        dims = ", ".join(map(str, argument.shape))
    prefix = "" if argument.type == "ndarray" else f"{argument.type} "
    layout = "" if argument.layout == "C" else f" {argument.layout}"
    readonly = " ro" if argument.readonly else ""
    return f"{prefix}{argument.dtype}[{dims}]{layout}{readonly}"


def _accelerate_text(argument: Argument) -> str:
    if argument.ndim < 0:
        return f"{argument.name}:{argument.type}"
    if argument.shape is None:
        size = f"ndim={argument.ndim}"
    else:
        size = f"shape={argument.shape}"
    return f"{argument.name}:{argument.type}(dtype={argument.dtype}, {size})"
