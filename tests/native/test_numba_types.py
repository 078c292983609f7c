"""Every kind of Numba type as plain data with readable text."""

from __future__ import annotations

import gc
from collections import namedtuple

import numpy as np
import pytest
from numba import njit, typeof, types
from numba.experimental import jitclass
from numba.typed import Dict, List

from numbaprof.native import numba_types

Point = namedtuple("Point", "x y")


@jitclass([("x", types.int64)])
class Thing:
    """Be a jitclass."""

    def __init__(self):
        self.x = 1


class PairType(types.StructRef):
    """Be a structref."""


@njit
def function(x):
    """Be passed as an argument."""
    return x


RECORD = np.dtype([("a", np.float64), ("b", np.int32)], align=True)

CASES = [
    (types.int64, "int64", "scalar"),
    (types.boolean, "bool", "scalar"),
    (types.complex128, "complex128", "scalar"),
    (types.NPDatetime("ns"), "datetime64[ns]", "scalar"),
    (types.NPTimedelta("s"), "timedelta64[s]", "scalar"),
    (types.float64[::1], "float64[::1]", "array"),
    (types.float64[:, ::1], "float64[:, ::1]", "array"),
    (types.float64[::1, :], "float64[::1, :]", "array"),
    (types.float32[:, :, :], "float32[:, :, :]", "array"),
    (types.Array(types.int8, 0, "C"), "int8[]", "array"),
    (types.Array(types.int8, 1, "C", readonly=True), "int8[::1] readonly", "array"),
    (types.Array(types.int8, 1, "A", aligned=False), "int8[:] unaligned", "array"),
    (types.unicode_type, "str", "string"),
    (types.none, "None", "none"),
    (types.Optional(types.int64), "Optional[int64]", "optional"),
    (types.Omitted(3), "omitted(3)", "omitted"),
    (types.Omitted(None), "omitted(None)", "omitted"),
    (types.literal(7), "Literal[7]", "literal"),
    (types.literal("key"), "Literal['key']", "literal"),
    (types.UniTuple(types.int64, 2), "(int64, int64)", "tuple"),
    (types.UniTuple(types.int64, 1), "(int64,)", "tuple"),
    (types.UniTuple(types.int64, 9), "(int64 x 9)", "tuple"),
    (types.Tuple(()), "()", "tuple"),
    (types.Tuple((types.int64, types.float64)), "(int64, float64)", "tuple"),
    (typeof(Point(1, 2.0)), "Point(x=int64, y=float64)", "namedtuple"),
    (types.List(types.int64, reflected=True), "list[int64]", "reflected list"),
    (types.Set(types.int64, reflected=True), "set[int64]", "reflected set"),
    (types.ListType(types.float64), "List[float64]", "typed list"),
    (
        types.DictType(types.unicode_type, types.int64),
        "Dict[str, int64]",
        "typed dict",
    ),
    (types.pyobject, "object", "object"),
    (typeof(function), "function function", "function"),
    (types.float64, "float64", "scalar"),
]


@pytest.mark.parametrize(("type_", "text", "kind"), CASES, ids=[c[1] for c in CASES])
def test_type_has_readable_text(type_, text, kind):
    """The text is short and in the user's notation."""
    found = numba_types.describe(type_, "x")
    assert (found.name, found.text, found.kind) == ("x", text, kind)


def test_record_names_its_fields():
    """A structured dtype shows its fields."""
    found = numba_types.describe(typeof(np.zeros(1, RECORD)[0]))
    assert (found.kind, found.text) == ("record", "record{a: float64, b: int32}")


def test_array_of_records_names_its_fields():
    """An array of records has the record for its dtype."""
    found = numba_types.describe(typeof(np.zeros(1, RECORD)))
    assert found.text == "record{a: float64, b: int32}[::1]"


def test_jitclass_has_its_name():
    """A jitclass is named, not spelled out."""
    found = numba_types.describe(Thing.class_type.instance_type)
    assert (found.kind, found.text) == ("jitclass", "Thing")


def test_structref_names_its_fields():
    """A structref shows type and fields."""
    found = numba_types.describe(PairType([("a", types.int64)]))
    assert (found.kind, found.text) == ("structref", "PairType{a: int64}")


def test_structref_that_contains_itself_is_named_inside():
    """A list whose links are structrefs has a type without an end."""

    class LinkType(types.StructRef):
        def preprocess_fields(self, fields):
            # As Numba's tests do it: an optional asks for the name of what it holds.
            self.name = "LinkType"
            return (("value", types.int64), ("next", types.Optional(self)))

    found = numba_types.describe(LinkType([]))
    assert found.text == "LinkType{value: int64, next: Optional[LinkType]}"
    assert numba_types.describe(LinkType([])) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (List([1]), "List[int64]"),
        (Dict.empty(types.int64, types.float64), "Dict[int64, float64]"),
    ],
)
def test_typed_container_has_its_text(value, text):
    """What Numba says of a real container is shortened."""
    assert numba_types.type_text(typeof(value)) == text


def test_array_is_described_in_full():
    """Element type, dimensions, layout and writability are fields of their own."""
    array = np.zeros((2, 3), np.float32, order="F")
    array.flags.writeable = False
    found = numba_types.describe(typeof(array), "a")
    assert (found.dtype, found.ndim, found.layout, found.readonly) == (
        "float32",
        2,
        "F",
        True,
    )


def test_functions_of_one_name_differ_in_value():
    """Two functions with one name are two types, although the text is one."""

    def make():
        @njit
        def inner(x):
            return x

        return inner

    first, second = make(), make()
    a, b = numba_types.describe(typeof(first)), numba_types.describe(typeof(second))
    assert a.text == b.text
    assert a.value != b.value


def test_function_that_is_gone_has_a_type_still():
    """Numba keeps what it compiled for a function longer than the function."""

    def make():
        @njit
        def local(x):
            return x

        return types.Dispatcher(local)

    type_ = make()
    gc.collect()
    assert numba_types.describe(type_).text == "function (gone)"


def test_unknown_type_is_cut():
    """A type nobody taught us to shorten is cut at a length."""
    found = numba_types.describe(types.Dummy("x" * 500))
    assert found.kind == "other"
    assert len(found.text) == numba_types.MAX_TEXT


def test_star_arguments_are_unfolded():
    """*args are shown one by one, as they were given."""
    args = (types.int64, types.StarArgTuple((types.float64, types.int8)))
    assert numba_types.signature_text(args) == "(int64, float64, int8)"
    described = numba_types.describe_arguments(args, ("first", "*rest"))
    assert [arg.name for arg in described] == ["first", "*rest[0]", "*rest[1]"]


def test_more_types_than_names():
    """Types beyond the names have none."""
    described = numba_types.describe_arguments((types.int64, types.int8), ("a",))
    assert [arg.name for arg in described] == ["a", ""]


def test_layout_of_any_type_can_be_described():
    """Every public type of Numba can be turned into text."""
    for name in dir(types):
        thing = getattr(types, name)
        if isinstance(thing, types.Type):
            assert numba_types.type_text(thing)
