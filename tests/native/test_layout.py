"""The words that emitted code and Python agree on."""

from __future__ import annotations

import ctypes
import itertools

import pytest

from numbaprof.model import HISTOGRAM_BUCKETS
from numbaprof.native import layout
from numbaprof.native.engine import Slot, UfuncSlot


@pytest.mark.parametrize(
    "fields",
    [layout.State, layout.Thread, layout.Frame, layout.Node, layout.SlotField],
)
def test_words_do_not_overlap(fields):
    """No two names stand for one word, and the size is beyond the last."""
    values = [field.value for name, field in fields.__members__.items()]
    assert len(values) == len(set(values))
    assert values[-1] == max(values) == fields.SIZE


def test_histogram_has_room_in_both_slots():
    """Every bucket is within the slot and before what follows."""
    assert layout.SlotField.SIZE - layout.SlotField.HISTOGRAM >= HISTOGRAM_BUCKETS
    room = layout.UfuncField.EDGES - layout.UfuncField.HISTOGRAM
    assert room == HISTOGRAM_BUCKETS


@pytest.mark.parametrize(
    ("slot", "fields"),
    [(Slot, layout.SlotField), (UfuncSlot, layout.UfuncField)],
)
def test_slots_are_as_large_as_their_fields(slot, fields):
    """Ctypes and emitted code see the same size."""
    assert ctypes.sizeof(slot) == fields.SIZE * layout.WORD_BYTES


def test_pseudo_slots_are_no_addresses():
    """No object lives where a pseudo slot's number points."""
    assert all(0 < value < 4096 for value in layout.PseudoSlot)


def test_tables_are_powers_of_two():
    """Masks stand for sizes."""
    for size in (layout.INITIAL_TABLE, layout.MAX_NODES, layout.INITIAL_FRAMES):
        assert size & (size - 1) == 0


def test_frames_double_up_to_the_limit():
    """Doubling from the initial capacity arrives at the limit exactly."""
    sizes = itertools.accumulate(
        range(32), lambda size, _: size * 2, initial=layout.INITIAL_FRAMES
    )
    assert layout.MAX_DEPTH in list(sizes)
