"""Numba's types as plain data: :class:`numbaprof.model.ArgType` and readable text.

The text is short and in the user's notation: ``float64[:, ::1]`` rather than
``array(float64, 2d, C)``, ``list[int64]`` rather than ``reflected list(int64)``.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from numba.core import types

from numbaprof.model import ArgType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["describe", "describe_arguments", "signature_text", "type_text"]

MAX_TEXT = 120
"""Characters of a type nobody taught us to shorten; the rest becomes an ellipsis."""
MAX_TUPLE_ITEMS = 6
"""Elements of a tuple that are spelled out."""

_LAYOUT_TEXT: dict[str, Callable[[int], list[str]]] = {
    "C": lambda ndim: [":"] * (ndim - 1) + ["::1"],
    "F": lambda ndim: ["::1"] + [":"] * (ndim - 1),
    "A": lambda ndim: [":"] * ndim,
}


def type_text(type_: Any) -> str:
    """Return the readable name of a Numba type."""
    return describe(type_).text


def signature_text(args: Iterable[Any]) -> str:
    """Return ``(float64[:, ::1], int64)`` for a sequence of Numba types."""
    return "(" + ", ".join(type_text(arg) for arg in _unfold(args)) + ")"


def _unfold(args: Iterable[Any]) -> Iterator[Any]:
    """Yield the types of ``args`` with star arguments one by one, as given."""
    for arg in args:
        if isinstance(arg, types.StarArgTuple | types.StarArgUniTuple):
            yield from arg.types
        else:
            yield arg


def describe_arguments(
    args: Iterable[Any], names: tuple[str, ...]
) -> tuple[ArgType, ...]:
    """Describe the arguments of an overload.

    Parameters
    ----------
    args : iterable of numba types
        As in ``CompileResult.signature.args``.
    names : tuple of str
        Parameter names; ``""`` is used where there are more types than names.
    """
    described = []
    for position, arg in enumerate(args):
        name = names[position] if position < len(names) else ""
        if isinstance(arg, types.StarArgTuple | types.StarArgUniTuple):
            star = name or "*args"
            described += [
                describe(item, f"{star}[{i}]") for i, item in enumerate(arg.types)
            ]
        else:
            described.append(describe(arg, name))
    return tuple(described)


def describe(type_: Any, name: str = "") -> ArgType:
    """Describe one Numba type in plain data."""
    cls = type(type_)
    if cls not in _BUILDERS:
        _BUILDERS[cls] = _builder(cls)
    return _BUILDERS[cls](type_, name)


_BUILDERS: dict[type, Callable[[Any, str], ArgType]] = {}


def _builder(cls: type) -> Callable[[Any, str], ArgType]:
    """Return what describes types of class ``cls``; checking 25 ABCs takes a while."""
    for base, build in _DESCRIPTIONS:
        if issubclass(cls, base):
            return build
    return lambda type_, name: ArgType(name, _cut(str(type_)), "other")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _array(type_: Any, name: str) -> ArgType:
    dtype = type_text(type_.dtype)
    inside = ", ".join(_LAYOUT_TEXT[type_.layout](type_.ndim)) if type_.ndim else ""
    readonly = not type_.mutable
    text = f"{dtype}[{inside}]" + (" readonly" if readonly else "")
    if not type_.aligned:
        text += " unaligned"
    return ArgType(
        name,
        text,
        "array",
        dtype=dtype,
        ndim=type_.ndim,
        layout=type_.layout,
        readonly=readonly,
    )


def _scalar(type_: Any, name: str) -> ArgType:
    return ArgType(name, str(type_), "scalar", dtype=str(type_))


def _omitted(type_: Any, name: str) -> ArgType:
    value = _cut(repr(type_.value))
    return ArgType(name, f"omitted({value})", "omitted", value=value)


def _literal(type_: Any, name: str) -> ArgType:
    value = _cut(repr(type_.literal_value))
    return ArgType(name, f"Literal[{value}]", "literal", value=value)


def _function(type_: Any, name: str) -> ArgType:
    try:
        dispatcher = type_.dispatcher
    except ReferenceError:
        # Its type outlives a function, in what Numba compiled for it: `sorted`, say,
        # for a key that was local.
        return ArgType(name, "function (gone)", "function", value=str(type_))
    function = getattr(dispatcher, "py_func", dispatcher)
    qualname = getattr(function, "__qualname__", str(function))
    identity = f"{getattr(function, '__module__', '')}.{qualname}@{id(dispatcher):x}"
    return ArgType(name, f"function {qualname}", "function", value=identity)


def _function_pointer(type_: Any, name: str) -> ArgType:
    return ArgType(name, _cut(str(type_)), "function", value=str(type_))


def _tuple(type_: Any, name: str) -> ArgType:
    items = tuple(describe(item) for item in type_.types)
    texts = [item.text for item in items]
    if len(items) > 1 and len(set(texts)) == 1 and len(items) > MAX_TUPLE_ITEMS:
        text = f"({texts[0]} x {len(items)})"
    elif len(items) > MAX_TUPLE_ITEMS:
        text = f"({', '.join(texts[:MAX_TUPLE_ITEMS])}, … {len(items)})"
    else:
        text = f"({', '.join(texts)}{',' if len(items) == 1 else ''})"
    return ArgType(name, text, "tuple", items=items)


def _namedtuple(type_: Any, name: str) -> ArgType:
    items = tuple(
        describe(item, field)
        for field, item in zip(type_.fields, type_.types, strict=True)
    )
    inside = ", ".join(f"{item.name}={item.text}" for item in items)
    text = _cut(f"{type_.instance_class.__name__}({inside})")
    return ArgType(name, text, "namedtuple", items=items)


def _container(kind: str, word: str) -> Callable[[Any, str], ArgType]:
    def build(type_: Any, name: str) -> ArgType:
        dtype = type_text(type_.dtype)
        return ArgType(name, f"{word}[{dtype}]", kind, dtype=dtype)

    return build


def _typed_dict(type_: Any, name: str) -> ArgType:
    key, value = describe(type_.key_type), describe(type_.value_type)
    text = f"Dict[{key.text}, {value.text}]"
    return ArgType(name, text, "typed dict", dtype=value.text, items=(key, value))


def _optional(type_: Any, name: str) -> ArgType:
    inner = describe(type_.type)
    return ArgType(name, f"Optional[{inner.text}]", "optional", dtype=inner.text)


def _record(type_: Any, name: str) -> ArgType:
    fields = ", ".join(
        f"{field}: {type_text(inner.type)}" for field, inner in type_.fields.items()
    )
    return ArgType(name, _cut(f"record{{{fields}}}"), "record", dtype=fields)


def _jitclass(type_: Any, name: str) -> ArgType:
    text = str(type_.classname)
    return ArgType(name, text, "jitclass", value=str(type_))


class _Nesting(threading.local):
    """Structrefs whose fields are being described in this thread, by id."""

    def __init__(self) -> None:
        self.ids: set[int] = set()


_nesting = _Nesting()


def _structref(type_: Any, name: str) -> ArgType:
    word = type(type_).__name__
    if id(type_) in _nesting.ids:
        # A linked list or a tree: its own type is among its fields, as an optional.
        return ArgType(name, word, "structref")
    _nesting.ids.add(id(type_))
    try:
        texts = [f"{field}: {type_text(inner)}" for field, inner in type_._fields]
    finally:
        _nesting.ids.remove(id(type_))
    fields = ", ".join(texts)
    return ArgType(name, _cut(f"{word}{{{fields}}}"), "structref", dtype=fields)


def _plain(kind: str, text: str) -> Callable[[Any, str], ArgType]:
    return lambda type_, name: ArgType(name, text, kind)


_DESCRIPTIONS: tuple[tuple[type, Callable[[Any, str], ArgType]], ...] = (
    # Order matters: literals are subclasses of what they are literals of.
    (types.Omitted, _omitted),
    (types.Literal, _literal),
    (types.NestedArray, lambda type_, name: ArgType(name, _cut(str(type_)), "other")),
    (types.Array, _array),
    (types.Boolean, _scalar),
    (types.Number, _scalar),
    (types.NPDatetime, _scalar),
    (types.NPTimedelta, _scalar),
    (types.UnicodeType, _plain("string", "str")),
    (types.Bytes, _plain("string", "bytes")),
    (types.NoneType, _plain("none", "None")),
    (types.Optional, _optional),
    (types.BaseNamedTuple, _namedtuple),
    (types.BaseTuple, _tuple),
    (types.Dispatcher, _function),
    (types.FunctionType, _function_pointer),
    (types.List, _container("reflected list", "list")),
    (types.Set, _container("reflected set", "set")),
    (types.ListType, _container("typed list", "List")),
    (types.DictType, _typed_dict),
    (types.Record, _record),
    (types.ClassInstanceType, _jitclass),
    (types.StructRef, _structref),
    (types.PyObject, _plain("object", "object")),
    (type(types.ffi_forced_object), _plain("object", "object")),
)
