"""Copies of arguments: equal, of the same Numba type, and apart from the originals."""

from __future__ import annotations

import collections
import enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import typeof

from numbaprof.errors import TargetError
from numbaprof.native.argument_copies import copy_arguments


def copied(*values):
    """Return the copies of positional arguments."""
    return copy_arguments(values, {})[0]


ARRAYS = {
    "C": np.arange(6.0).reshape(2, 3),
    "F": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(12.0)[::2],
    "backwards": np.arange(6)[::-1],
    "broadcast": np.broadcast_to(np.arange(3), (2, 3)),
    "scalar": np.array(3.5),
    "empty": np.empty((0, 3)),
    "record": np.zeros(2, dtype=[("a", "i1"), ("b", "f8")]),
    "unaligned": np.zeros(2, dtype=[("a", "i1"), ("b", "f8")])["b"],
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_copy_of_array_has_its_type_and_content(name):
    """Layout and alignment are part of the type, and so choose the overload."""
    array = ARRAYS[name]
    (made,) = copied(array)
    assert typeof(made) == typeof(array)
    assert np.array_equal(made, array)
    if array.size and array.flags.writeable:
        assert not np.shares_memory(made, array)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(0, 9), st.sampled_from([1, 2, -1, -3])
        ),
        min_size=1,
        max_size=4,
    )
)
def test_arrays_that_overlap_do_so_in_the_copies(slices):
    """Whatever views of one array are passed."""
    base = np.arange(10)
    views = [base[min(a, b) : max(a, b) + 1][::step] for a, b, step in slices]
    made = copied(*views)
    for left, left_made in zip(views, made, strict=True):
        for right, right_made in zip(views, made, strict=True):
            assert np.shares_memory(left, right) == np.shares_memory(
                left_made, right_made
            )
        assert not np.shares_memory(left_made, base)
    made[0][...] = -1
    views_before = [view.copy() for view in views]
    views[0][...] = -1
    for view, copy in zip(views, made, strict=True):
        assert np.array_equal(view, copy)
    assert len(views_before) == len(views)


def test_memory_shared_without_numpy_s_knowledge_is_shared_in_the_copies():
    """Two arrays made of one buffer know nothing of each other."""
    buffer = bytearray(32)
    made = copied(np.frombuffer(buffer, dtype="f8"), np.frombuffer(buffer, dtype="i4"))
    made[0][0] = 1.0
    assert made[1][1] != 0
    assert not any(buffer)


def test_array_that_nobody_can_write_to_is_no_copy():
    """A large read-only input costs nothing."""
    array = np.arange(3)
    array.flags.writeable = False
    assert copied(array)[0] is array


def test_read_only_view_of_what_another_argument_writes_is_copied_with_it():
    """It shows what is written, as the original would."""
    base = np.arange(4)
    view = base[1:]
    view.flags.writeable = False
    made_base, made_view = copied(base, view)
    made_base[1] = 7
    assert made_view[0] == 7
    assert not made_view.flags.writeable


def test_containers_are_copied_with_what_they_hold():
    """One object that is passed twice is one object again."""
    point = collections.namedtuple("point", "x y")
    array = np.arange(3)
    items = [array, array]
    made_items, made_point, made_set = copied(items, point(array, 1), {1, 2})
    assert made_items[0] is made_items[1] is made_point.x
    assert made_items[0] is not array
    assert type(made_point) is point
    assert made_set == {1, 2}


def test_keywords_are_copied():
    """And share with positional arguments what is shared."""
    array = np.arange(3)
    (made,), named = copy_arguments((array,), {"out": array})
    assert named["out"] is made
    assert made is not array


class Colour(enum.Enum):
    """Be immutable."""

    RED = 1


@pytest.mark.parametrize("value", [1, 1.5, "a", b"a", None, True, Colour.RED, 1j])
def test_what_cannot_change_is_passed_on(value):
    """Copying it would be in vain."""
    assert copied(value)[0] is value


def test_random_generator_is_copied():
    """Its state is the user's."""
    generator = np.random.default_rng(3)
    (made,) = copied(generator)
    assert made.random() == np.random.default_rng(3).random()
    assert generator.random() == np.random.default_rng(3).random()


def test_what_cannot_be_copied_is_refused_by_name():
    """With the way out."""
    with pytest.raises(TargetError, match=r"argument 'x' is a object, .* copy=False"):
        copy_arguments((), {"x": object()})
