"""Which row a call belongs to: identity of functions, caps, names of builtins."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest

from numbaprof.rowbook import VISIT_LIMIT, RowBook, is_booked
from numbaprof.signatures import Level, label


def new_book(level=Level.SHAPE, **limits):
    """Return a book whose rows are numbered from 1."""
    return RowBook(itertools.count(1).__next__, level, **limits)


def function(a):
    """Be what is called."""
    return a


CODE = function.__code__


def read(row):
    """Return a row's name with its signature."""
    return row.name + row.signature


def test_row_names_its_function_as_cprofile_does():
    """File, first line and name are those of the code object."""
    row = new_book().python_row(CODE, (np.zeros(3),))
    place = (CODE.co_filename, CODE.co_firstlineno, "function", "python", 1)
    assert (row.file, row.line, row.name, row.kind, row.address) == place
    assert row.signature == "(a: float64[3])"
    assert row.code is CODE


def test_call_gets_the_row_of_its_signature():
    """Equal signatures share a row, others do not."""
    book = new_book()
    rows = [book.python_row(CODE, (value,)) for value in (1, 1.5, 2, np.zeros(2))]
    assert [row.address for row in rows] == [1, 2, 1, 3]
    assert {row.function for row in rows} == {0}


def test_function_has_one_row_when_signatures_are_off():
    """Nothing is read from the arguments then."""
    book = new_book(Level.NONE)
    assert book.python_row(CODE, ()) is book.python_row(CODE, (1,))
    assert read(book.rows[0]) == "function"


def test_equal_code_objects_are_different_functions():
    """Functions are told apart by identity, for equality may change under Numba."""
    book = new_book()
    twin = CODE.replace()
    assert twin == CODE
    assert book.python_row(CODE, (1,)) is not book.python_row(twin, (1,))


def test_own_code_has_no_row():
    """Frames of this package are passed over."""
    assert new_book().python_row(label.__code__, ()) is None


# -- caps ------------------------------------------------------------------------------


def test_further_shapes_share_a_row_when_the_cap_is_reached():
    """The first shapes keep their rows; the others get one that says so."""
    book = new_book(cap=3)
    rows = [book.python_row(CODE, (np.zeros(n),)) for n in range(10)]
    assert [read(row) for row in book.rows] == [
        "function(a: float64[0])",
        "function(a: float64[1])",
        "function(a: float64[2])",
        "function(a: float64[:]) (other shapes)",
    ]
    assert book.python_row(CODE, (np.zeros(1),)) is rows[1]
    assert book.level_of(CODE) is Level.NDIM
    assert (rows[0].sizes, rows[0].level) == (None, Level.SHAPE)
    assert (rows[9].sizes.calls, rows[9].level) == (0, Level.NDIM)


def test_levels_rise_until_arguments_are_not_told_apart():
    """Dimensions run out of rows after shapes, then arrays, then everything."""
    book = new_book(cap=2)
    values = [np.zeros((1,) * n, dtype) for n in range(6) for dtype in ("f4", "f8")]
    for value in values:
        book.python_row(CODE, (value,))
    for cls in "ABC":
        book.python_row(CODE, (type(cls, (), {})(),))
    assert [read(row) for row in book.rows[2:]] == [
        "function(a: float32[:]) (other shapes)",
        "function(a: float64[:]) (other shapes)",
        "function(a: ndarray) (other arrays)",
        "function(a: A) (other arrays)",
        "function(...) (other types)",
    ]


def test_500_classes_get_no_rows_at_levels_that_do_not_tell_less():
    """A class is the same at every level but the last."""
    book = new_book()
    for number in range(500):
        book.python_row(CODE, (type(f"Class{number}", (), {})(),))
    assert len(book.rows) == 33
    assert read(book.rows[-1]) == "function(...) (other types)"


def test_500_equal_dtypes_are_one_row():
    """Equal dtypes need not be one object; they do not use rows up."""
    book = new_book()
    for _ in range(500):
        book.python_row(CODE, (np.zeros(3, [("a", "i4"), ("b", "f8")]),))
    assert [read(row) for row in book.rows] == [
        "function(a: record{a: int32, b: float64}[3])"
    ]
    assert book.level_of(CODE) is Level.SHAPE


def test_look_ups_are_bounded_when_labels_repeat():
    """Classes of one name made for each call end in the row that needs no look."""
    book = new_book()
    for _ in range(VISIT_LIMIT):
        row = book.python_row(CODE, (type("Same", (), {})(),))
    assert (len(book.rows), row.level) == (1, Level.SHAPE)
    last = book.python_row(CODE, (type("Same", (), {})(),))
    assert read(last) == "function(...) (other types)"
    assert book.level_of(CODE) is Level.NONE


def test_every_function_gets_a_row_beyond_the_limit():
    """Then signatures are not told apart any more, but functions are."""
    book = new_book(limit=2)
    codes = [CODE.replace() for _ in range(4)]
    names = [read(book.python_row(code, (value,))) for code in codes for value in "ab"]
    assert names[0] == "function(a: str)"
    assert set(names[4:]) == {"function(...) (other types)"}
    assert len(book.rows) == 4


def test_labels_that_are_cut_alike_stay_different():
    """Two signatures never share a label: pstats would lose one of them."""
    source = f"def wide({', '.join(f'parameter{i}' for i in range(30))}): pass"
    names = {}
    exec(source, names)
    code = names["wide"].__code__
    book = new_book()
    for last in (1, 1.5, "s"):
        book.python_row(code, (*range(29), last))
    texts = [read(row) for row in book.rows]
    assert len(set(texts)) == 3
    assert texts[2] == f"{texts[0]} #3"


def test_book_keeps_no_object_of_the_program():
    """Neither arguments nor the owners of bound methods live longer."""

    class Own(list):
        pass

    book = new_book()
    owner = Own()
    gone = weakref.ref(owner)
    book.python_row(CODE, (owner,))
    book.builtin_row(owner.append)
    del owner
    gc.collect()
    assert gone() is None
    assert len(book.rows) == 2


# -- builtins --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "name"),
    [
        (len, "<built-in method builtins.len>"),
        (gc.collect, "<built-in method gc.collect>"),
        ([].append, "<method 'append' of 'list' objects>"),
        (dict.fromkeys, "<built-in method fromkeys>"),
        (str.maketrans, "<built-in method maketrans>"),
        (None.__dir__, "<method '__dir__' of 'object' objects>"),
        (np.zeros(3).sum, "<method 'sum' of 'numpy.ndarray' objects>"),
    ],
)
def test_builtin_is_named_as_cprofile_does(called, name):
    """The text is that of ``_lsprof``."""
    book = new_book()
    row = book.builtin_row(called)
    assert (row.file, row.line, row.name, row.kind) == ("~", 0, name, "builtin")
    assert book.builtin_row(called) is row


def test_method_called_unbound_is_the_method():
    """``list.append(xs, 1)`` and ``xs.append(1)`` are one row."""
    book = new_book()
    assert book.builtin_row(list.append, []) is book.builtin_row([].append)


def test_overriding_method_does_not_hide_the_one_that_runs():
    """``super().append`` calls the C function, whatever the class has by that name."""

    class Loud(list):
        def append(self, item):
            super().append(item)

    row = new_book().builtin_row(super(Loud, Loud()).append)
    assert row.name == "<method 'append' of 'list' objects>"


@pytest.mark.parametrize(
    ("called", "arguments"),
    [(int, ()), (function, ()), (str.upper, ()), (str.upper, (1,)), (object(), ())],
)
def test_what_cprofile_does_not_book_has_no_row(called, arguments):
    """Classes, Python functions and methods without a fitting ``self`` are left out."""
    assert not is_booked(called, *arguments)
    assert new_book().builtin_row(called, *arguments) is None
