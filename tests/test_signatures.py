"""Labels, keys and levels of the arguments of Python calls."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from numbaprof.errors import OptionError
from numbaprof.signatures import (
    LABEL_LENGTH,
    UNBOUND,
    Argument,
    Level,
    Sizes,
    argument_key,
    class_name,
    coarsen,
    describe,
    key_kind,
    label,
    parameters_of,
    regroup,
    render,
    size_of,
)


def text_of(value, level=Level.SHAPE):
    """Label one value, without the name of its parameter."""
    written = render((describe("x", value),), level)
    return written.removeprefix("(x: ").removesuffix(")")


def read_only(array):
    """Return the array, which may not be written any more."""
    array.setflags(write=False)
    return array


class Plain:
    """A class of the program."""


class Matrix(np.ndarray):
    """A kind of array."""


class Point(tuple):
    """A kind of tuple."""

    __slots__ = ()


RECORD = np.dtype([("a", "i4"), ("b", "f8", (2, 3))])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros((3, 4)), "float64[3, 4]"),
        (np.zeros((3, 4), order="F"), "float64[3, 4] F"),
        (np.zeros((3, 4))[:, ::2], "float64[3, 2] A"),
        (read_only(np.zeros(3, np.float32)), "float32[3] ro"),
        (np.zeros(()), "float64[]"),
        (np.zeros(0, bool), "bool[0]"),
        (np.zeros(10, ">f4"), ">f4[10]"),
        (np.zeros(2, "M8[ms]"), "datetime64[ms][2]"),
        (np.zeros(2, "U7"), "U7[2]"),
        (np.zeros(2, "S7"), "S7[2]"),
        (np.zeros(2, object), "object[2]"),
        (np.zeros(3, RECORD), "record{a: int32, b: float64[2, 3]}[3]"),
        (np.zeros(3).view(Matrix), "Matrix float64[3]"),
        (np.ma.zeros(3), "MaskedArray float64[3]"),
        (1, "int"),
        (10**40, "int"),
        (1.5, "float"),
        (True, "bool"),
        (1j, "complex"),
        ("text", "str"),
        (b"bytes", "bytes"),
        (None, "None"),
        (np.float32(1), "np.float32"),
        (np.datetime64("2020"), "np.datetime64"),
        ((1, 2.0), "(int, float)"),
        ((1,), "(int,)"),
        ((), "()"),
        ((np.zeros(3), (1, 2)), "(ndarray, tuple)"),
        (tuple(range(9)), "tuple[9]"),
        (Point((1, 2)), "Point"),
        ([1, "a"], "list"),
        ({}, "dict"),
        ({1}, "set"),
        (range(3), "range"),
        (Plain(), "Plain"),
        (Plain, "type"),
        (len, "builtin_function_or_method"),
        (UNBOUND, "?"),
    ],
)
def test_label_tells_what_the_argument_is(value, expected):
    """Each kind of object has its documented label."""
    assert text_of(value) == expected


def test_label_names_pandas_objects_by_class():
    """A data frame is a DataFrame; its shape would need its code."""
    assert text_of(pd.DataFrame({"a": [1]})) == "DataFrame"
    assert text_of(pd.Series([1])) == "Series"


def test_label_names_jitted_functions_and_typed_containers():
    """Numba's own objects tell their function or their element types."""
    import numba

    @numba.njit
    def double(x):
        return 2 * x

    ints = numba.typed.List.empty_list(numba.int64)
    table = numba.typed.Dict.empty(numba.int64, numba.float64)
    assert text_of(double) == "jit(double)"
    assert text_of(ints) == "typed.List(int64)"
    assert text_of(table) == "typed.Dict(int64, float64)"
    assert text_of(numba.typed.List()) == "List"
    assert argument_key(double) == argument_key(double)
    assert argument_key(ints) != argument_key(
        numba.typed.List.empty_list(numba.float64)
    )


def test_levels_tell_less_and_less():
    """The shape goes first, then all but the class, then everything."""
    array = np.zeros((3, 4), order="F")
    assert [text_of(array, level) for level in Level] == [
        "float64[3, 4] F",
        "float64[:, :] F",
        "ndarray",
        "",
    ]
    assert text_of((1, 2), Level.TYPE) == "tuple"


def test_coarsening_a_signature_equals_describing_it_coarser():
    """A signature can be made coarser without its objects."""
    arguments = (describe("a", np.zeros(3)), describe("b", (1, 2)))
    for level in (Level.NDIM, Level.TYPE):
        assert coarsen(coarsen(arguments, level), level) == coarsen(arguments, level)
        assert coarsen(coarsen(arguments, Level.NDIM), level) == coarsen(
            arguments, level
        )


@pytest.mark.parametrize(
    ("option", "level"),
    [
        (True, Level.SHAPE),
        ("shape", Level.SHAPE),
        ("ndim", Level.NDIM),
        ("type", Level.TYPE),
        (False, Level.NONE),
    ],
)
def test_level_of_an_option(option, level):
    """The option of the public functions maps to a level."""
    assert Level.of(option) is level


@pytest.mark.parametrize("option", ["none", "Shape", 1, None, []])
def test_level_is_refused_when_the_option_is_none(option):
    """Anything else is refused by value."""
    with pytest.raises(OptionError, match="signatures="):
        Level.of(option)


# -- no user code, no objects kept -----------------------------------------------------


armed: list[bool] = []


def touchy(*_args):
    """Fail, because nothing may call it while a profiler looks."""
    if armed:
        raise AssertionError("the profiler ran the program's code")


def touchy_attribute(self, name):
    """Fail when anything is looked up while a profiler looks."""
    touchy()
    owner = type if issubclass(type(self), type) else object
    return owner.__getattribute__(self, name)


class TouchyMeta(type):
    """A metaclass that cannot bear to be asked."""

    __module__ = property(touchy)
    __name__ = property(touchy)
    __hash__ = touchy
    __eq__ = touchy
    __instancecheck__ = touchy
    __subclasscheck__ = touchy
    __getattribute__ = touchy_attribute


def make_touchy(*bases):
    """Return an instance of a class that fails when asked for anything."""
    methods = dict.fromkeys(
        ["__hash__", "__eq__", "__len__", "__repr__", "__iter__"],
        touchy,
    )
    members = {
        **methods,
        "__getattribute__": touchy_attribute,
        "__class__": property(touchy),
        "__cuda_array_interface__": property(touchy),
        "__array_interface__": property(touchy),
        "shape": property(touchy),
        "dtype": property(touchy),
    }
    cls = type.__call__(TouchyMeta, "Touchy", bases, members)
    if bases:
        return bases[0].__new__(cls, *((3,) if bases[0] is np.ndarray else ()))
    return object.__new__(cls)


@pytest.mark.parametrize(
    ("bases", "expected"),
    [
        ((), "Touchy"),
        ((np.ndarray,), "Touchy float64[3]"),
        ((tuple,), "Touchy"),
        ((str,), "Touchy"),
        ((dict,), "Touchy"),
    ],
)
def test_labels_and_keys_run_no_code_of_the_program(bases, expected):
    """Not even a property of a metaclass or ``__class__`` is asked."""
    value = make_touchy(*bases)
    armed.append(True)
    try:
        assert text_of(value) == expected
        assert argument_key(value) == argument_key(value)
        assert size_of([value]) == (3 if bases == (np.ndarray,) else 0)
    finally:
        armed.clear()


def test_device_array_is_asked_only_when_its_class_is_known(monkeypatch):
    """A CuPy array tells dtype and shape; a class of the same name is named only."""
    members = {"dtype": np.dtype("f4"), "shape": (3, 4), "__module__": "cupy"}
    real = type("ndarray", (), members)
    fake = type("ndarray", (), {**members, "dtype": property(touchy)})
    module = types.ModuleType("cupy")
    module.ndarray = real
    monkeypatch.setitem(sys.modules, "cupy", module)
    assert text_of(real()) == "cupy.ndarray float32[3, 4]"
    assert text_of(fake()) == "ndarray"


def test_class_without_a_module_is_named():
    """A class may have no ``__module__``, or have another object there."""
    names = {}
    exec("Lost = type('Lost', (), {})", names)
    odd = type("Odd", (), {"__module__": property(touchy)})
    assert (text_of(names["Lost"]()), text_of(odd())) == ("Lost", "Odd")


def test_names_stay_on_one_short_line():
    """A class may be called anything; a label is one line all the same."""
    assert class_name(type("a\nb\x07", (), {})) == "a?b?"
    assert len(class_name(type("c" * 500, (), {}))) < 100
    many = tuple(Argument(f"name{i}", "int") for i in range(100))
    assert len(render(many, Level.SHAPE)) <= LABEL_LENGTH


def test_no_reference_to_the_value_is_kept():
    """Neither key nor description holds the program's object."""
    value = np.zeros(3).view(Matrix)
    gone = weakref.ref(value)
    kept = (argument_key(value), describe("x", value))
    del value
    gc.collect()
    assert gone() is None
    assert kept[1].shape == (3,)


# -- keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [[("a", "i4"), ("b", "f8")], "M8[ns]", "U12", "S3", ">i2"],
)
def test_key_is_one_for_equal_dtypes_that_are_several_objects(dtype):
    """Fresh but equal dtypes make no new key."""
    arrays = [np.zeros(3, np.dtype(dtype).newbyteorder("=")) for _ in range(500)]
    if isinstance(dtype, list):
        arrays = [np.zeros(3, np.dtype(list(dtype))) for _ in range(500)]
    assert len({argument_key(array) for array in arrays}) == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros(3), np.zeros(4)),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(3), np.zeros(3, "f4")),
        (np.zeros((3, 4)), np.zeros((3, 4), order="F")),
        (np.zeros(3), read_only(np.zeros(3))),
        (np.zeros(2, "M8[ns]"), np.zeros(2, "M8[ms]")),
        (1, 1.0),
        (1, True),
        ((1, 2), (1, 2.0)),
        ((1,) * 5, (1,) * 6),
        (np.zeros(3), np.zeros(3).view(Matrix)),
    ],
)
def test_key_differs_where_the_label_does(a, b):
    """What a label tells apart has different keys."""
    for level in (Level.SHAPE, Level.NDIM, Level.TYPE):
        told_apart = text_of(a, level) != text_of(b, level)
        assert (argument_key(a, level) != argument_key(b, level)) is told_apart
    assert text_of(a) != text_of(b)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros(3), "array"),
        ((1, 2), "tuple"),
        (Point((1,)), "type"),
        (np.zeros(3).view(Matrix), "described"),
        (1, "type"),
        (Plain(), "type"),
    ],
)
def test_kind_of_key(value, kind):
    """A native key knows which words of an object it has to read."""
    assert key_kind(type(value)) == kind


def test_size_counts_the_elements_of_all_arrays():
    """Only NumPy arrays have a size."""
    assert size_of([np.zeros((3, 4)), 7, [1, 2], np.ma.zeros(5)]) == 17


def test_sizes_keep_the_extremes():
    """Counts of single calls and of many together add up."""
    sizes = Sizes()
    sizes.add(7)
    sizes.add(3)
    sizes.add(2, 90, calls=10)
    sizes.add(1, calls=0)
    assert (sizes.calls, sizes.smallest, sizes.largest) == (12, 2, 90)
    assert str(sizes) == "12 calls, 2 to 90 array elements"


# -- functions -------------------------------------------------------------------------


def test_parameters_are_named_with_their_stars():
    """Every kind of parameter is there, in the order of the local variables."""

    def f(a, /, b, *args, c=1, **kw):
        local = a
        return local, b, args, c, kw

    assert parameters_of(f.__code__) == ("a", "b", "c", "*args", "**kw")
    assert parameters_of((lambda: 0).__code__) == ()


def test_accelerate_style_reads_as_the_old_profiler_wrote_it():
    """Array arguments and methods read as Anaconda Accelerate's did."""
    a = describe("a", np.zeros(16, np.float32))
    n = describe("n", 3)
    self = describe("self", Plain())
    array = "a:ndarray(dtype=float32, shape=(16,))"
    shape, accelerate = Level.SHAPE, {"style": "accelerate"}
    assert label("dot", (a, n), shape, **accelerate) == f"dot({array}, n:int)"
    assert label("dot", (self, a), shape, **accelerate) == f"Plain.dot({array})"
    assert label("__init__", (self, n), shape, **accelerate) == "Plain(n:int)"
    assert label("dot", (a,), shape) == "dot(a: float32[16])"


@pytest.mark.parametrize(
    ("level", "written"),
    [
        (Level.NDIM, "f(a: float64[:]) (other shapes)"),
        (Level.TYPE, "f(a: ndarray) (other arrays)"),
        (Level.NONE, "f(...) (other types)"),
    ],
)
def test_row_of_the_others_says_so(level, written):
    """A row that took the calls without room names what it mixes."""
    arguments = coarsen((describe("a", np.zeros(3)),), level)
    assert label("f", arguments, level, others=True) == written


@dataclass
class Signed:
    """The part of a row that regrouping needs."""

    function: int
    arguments: tuple[Argument, ...]
    level: Level = Level.SHAPE


def test_regrouping_joins_rows_that_are_one_at_a_coarser_level():
    """Rows of one function join, and with them the row of the other shapes."""
    shapes = [(describe("a", np.zeros(n)),) for n in (3, 4)]
    float32 = (describe("a", np.zeros(3, "f4")),)
    others = coarsen(shapes[0], Level.NDIM)
    rows = [
        Signed(0, shapes[0]),
        Signed(0, shapes[1]),
        Signed(0, float32),
        Signed(1, shapes[0]),
        Signed(0, others, Level.NDIM),
        Signed(0, (), Level.NONE),
    ]
    assert regroup(rows, Level.SHAPE) == [0, 1, 2, 3, 4, 5]
    assert regroup(rows, Level.NDIM) == [0, 0, 2, 3, 0, 5]
    assert regroup(rows, Level.TYPE) == [0, 0, 0, 3, 0, 5]
    assert regroup(rows, Level.NONE) == [0, 0, 0, 3, 0, 0]
