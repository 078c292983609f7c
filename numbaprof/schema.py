"""The data model as plain data, and back; its JSON schema.

Everything here follows from the fields and type hints of the frozen dataclasses, so a
field added to :mod:`numbaprof.model` is written, read, checked and published without a
line changed here. Of Python's types only those that the model uses are known: ``str``,
``bool``, ``int``, ``float``, ``X | None``, ``Literal``, ``tuple`` and dataclasses.

JSON has no NaN. A float that is not finite means "unknown" in the model, is written as
``null`` and read back as NaN.
"""

from __future__ import annotations

import math
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin
from typing import get_type_hints as type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Mismatch", "from_plain", "json_schema", "to_plain"]


class Mismatch(ValueError):
    """Plain data that does not have the shape of the model.

    Parameters
    ----------
    problem : str
        What was expected and what was found.

    Attributes
    ----------
    place : str
        Where, in the notation of JavaScript: ``overloads[3].calls``.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.place = ""

    def within(self, step: str) -> Mismatch:
        """Return the same mismatch, seen from one level further out."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        self.place = f"{step}{joint}{self.place}"
        return self

    def __str__(self) -> str:
        return f"{self.place or 'the top level'}: {self.problem}"


# -- writing -------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """Return ``value`` in dictionaries, lists, strings, numbers and None.

    Parameters
    ----------
    value : dataclass instance or what one may hold
        A part of the data model.

    Returns
    -------
    dict, list, str, int, float, bool or None
        What ``json.dumps(..., allow_nan=False)`` accepts.

    Raises
    ------
    TypeError
        For an object that is no part of a data model.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: to_plain(getattr(value, name)) for name in _field_names(type(value))
        }
    raise TypeError(f"a {type(value).__name__} is no part of the data model: {value!r}")


@cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


# -- reading -------------------------------------------------------------------------


def from_plain(hint: Any, data: Any) -> Any:
    """Build what ``hint`` says from plain data.

    A field that has a default may be missing: an older numbaprof did not know it. A
    field that is not in the model is a mismatch, for dropping it would lose a figure
    without a word.

    Parameters
    ----------
    hint : type
        A dataclass of the model, or any type hint that its fields use.
    data : object
        As :func:`to_plain` made it.

    Raises
    ------
    Mismatch
        With the place and what was expected there.
    """
    return _reader(hint)(data)


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that reads a ``hint``; made once per type, used per value."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional_reader(hint)
    if origin is Literal:
        return _literal_reader(get_args(hint))
    if origin is tuple:
        return _tuple_reader(get_args(hint))
    if is_dataclass(hint):
        return _dataclass_reader(hint)
    if hint is float:
        return _read_float
    if hint in (str, bool, int):
        return _exact_reader(hint)
    raise TypeError(f"the data model may not use this type: {hint!r}")


def _exact_reader(expected: type) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        # Not isinstance: True is an int to Python, but not a number in a profile.
        if type(data) is not expected:
            raise _unexpected(_JSON_WORDS[expected], data)
        if isinstance(data, int) and not -(2**63) <= data < 2**63:
            raise _unexpected("an integer of 64 bits", data)
        return data

    return read


def _read_float(data: Any) -> float:
    if data is None:
        return math.nan
    if type(data) not in (int, float):
        raise _unexpected("a number or null", data)
    return float(data)


def _optional_reader(hint: Any) -> Callable[[Any], Any]:
    (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
    read_inner = _reader(inner)
    return lambda data: None if data is None else read_inner(data)


def _literal_reader(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if data not in choices:
            raise _unexpected("one of " + ", ".join(map(repr, choices)), data)
        return data

    return read


def _tuple_reader(items: tuple[Any, ...]) -> Callable[[Any], Any]:
    repeated = items[-1] is Ellipsis
    readers = [_reader(item) for item in items if item is not Ellipsis]

    def read(data: Any) -> Any:
        if type(data) is not list:
            raise _unexpected("a list", data)
        if not repeated and len(data) != len(readers):
            raise _unexpected(f"a list of {len(readers)}", data)
        each = readers * len(data) if repeated else readers
        values: list[Any] = []
        try:
            for read_item, item in zip(each, data, strict=True):
                values.append(read_item(item))
        except Mismatch as mismatch:
            raise mismatch.within(f"[{len(values)}]") from None
        return tuple(values)

    return read


def _dataclass_reader(cls: Any) -> Callable[[Any], Any]:
    # The readers of the fields are made at first use: ArgType holds ArgTypes.
    hints = type_hints(cls)
    known = {field.name: field for field in fields(cls)}
    required = {name for name, field in known.items() if _is_required(field)}

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise _unexpected(f"an object ({cls.__name__})", data)
        if not data.keys() <= known.keys():
            extra = ", ".join(sorted(data.keys() - known.keys()))
            raise Mismatch(f"{cls.__name__} has no field {extra}")
        if not required <= data.keys():
            absent = ", ".join(sorted(required - data.keys()))
            raise Mismatch(f"{cls.__name__} lacks the field {absent}")
        name = ""
        try:
            values = {}
            for name, value in data.items():
                values[name] = _reader(hints[name])(value)
        except Mismatch as mismatch:
            raise mismatch.within(name) from None
        return cls(**values)

    return read


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


_JSON_WORDS = {str: "a string", bool: "true or false", int: "an integer"}


def _unexpected(expected: str, data: Any) -> Mismatch:
    found = repr(data)
    return Mismatch(
        f"expected {expected}, found {found if len(found) < 40 else found[:37] + '...'}"
    )


# -- the schema ----------------------------------------------------------------------


def json_schema(cls: Any) -> dict[str, Any]:
    """Describe the plain form of a dataclass as a JSON schema (2020-12).

    The schema is that of what :func:`to_plain` writes, so every field is required.

    Parameters
    ----------
    cls : type
        A dataclass of the model.

    Returns
    -------
    dict
        With ``$ref`` to ``cls`` and ``$defs``, one per dataclass, sorted by name.
    """
    definitions: dict[str, Any] = {}
    reference = _schema_of(cls, definitions)
    return {**reference, "$defs": dict(sorted(definitions.items()))}


def _schema_of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return {"anyOf": [_schema_of(inner, definitions), {"type": "null"}]}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return _array_schema(get_args(hint), definitions)
    if is_dataclass(hint):
        return _object_schema(hint, definitions)
    return dict(_SCALAR_SCHEMAS[hint])


def _array_schema(
    items: tuple[Any, ...], definitions: dict[str, Any]
) -> dict[str, Any]:
    if items[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(items[0], definitions)}
    return {
        "type": "array",
        "prefixItems": [_schema_of(item, definitions) for item in items],
        "minItems": len(items),
        "items": False,
    }


def _object_schema(cls: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definition: dict[str, Any] = {
            "type": "object",
            "description": (cls.__doc__ or "").partition("\n")[0],
        }
        # Entered before its fields are looked at: ArgType holds ArgTypes.
        definitions[cls.__name__] = definition
        hints = type_hints(cls)
        names = _field_names(cls)
        definition["properties"] = {
            name: _schema_of(hints[name], definitions) for name in names
        }
        definition["required"] = list(names)
        definition["additionalProperties"] = False
    return {"$ref": f"#/$defs/{cls.__name__}"}


_SCALAR_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    # null stands for a float that is not finite: unknown.
    float: {"type": ["number", "null"]},
}
