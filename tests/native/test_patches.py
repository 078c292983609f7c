"""In-place changes and their exact undoing, one at a time."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from numba import njit, vectorize
from numba.core.registry import CPUDispatcher, cpu_target

from numbaprof.errors import AttachError, UnsupportedError
from numbaprof.native import cpython_api, numba_api, patches
from numbaprof.native.cpython_api import MethodDef, new_method
from numbaprof.native.shared import shared_engine


@njit
def function(value):
    """Be patched."""
    return value + 1


@vectorize(["float64(float64)", "float32(float32)"])
def loop(value):
    """Be patched."""
    return value + 1


@vectorize
def lazy(value):
    """Have no loops yet."""
    return value


@pytest.fixture(scope="module")
def engine():
    """Return the process's engine, with no session running."""
    return shared_engine().engine


@pytest.fixture
def entry_point():
    """Return a compiled entry point."""
    function(1)
    return function.overloads[function.signatures[0]].entry_point


def attach(engine, entry_point, definitions=None):
    """Patch an entry point."""
    return patches.EntryPointPatch(engine, entry_point, id(function), definitions)


def words(entry_point):
    """Return the two words that are changed, and the method's address."""
    offset = cpython_api.find_method_self()
    found = cpython_api.read_words(id(entry_point) + offset - 8, 2)
    return (*found, MethodDef.from_address(found[0]).ml_meth)


def test_entry_point_is_changed_and_restored(engine, entry_point):
    """m_self and ml_meth change, m_ml does not, and all come back."""
    before = words(entry_point)
    patch = attach(engine, entry_point)
    during = words(entry_point)
    assert patches.is_patched(entry_point)
    assert patch.restore() == ""
    assert during[0] == before[0]
    assert during[1] != before[1]
    assert during[2] == engine.addresses["overload"]
    assert words(entry_point) == before


def test_patched_entry_point_works_without_a_session(engine, entry_point):
    """The trampoline passes calls on when nothing is measured."""
    patch = attach(engine, entry_point)
    try:
        assert (function(41), entry_point(1)) == (42, 2)
    finally:
        patch.restore()


def test_definition_is_found_under_the_new_hash(engine, entry_point):
    """The compiler's table finds the entry point patched and restored."""
    definitions = cpu_target.target_context._defns
    found = definitions[entry_point]
    hashes = [hash(entry_point)]
    with numba_api.compiler_lock:
        patch = attach(engine, entry_point, definitions)
        hashes.append(hash(entry_point))
        assert definitions[entry_point] is found
        patch.restore()
    assert definitions[entry_point] is found
    assert hashes[0] != hashes[1]


def test_second_patch_is_refused(engine, entry_point):
    """An entry point has one trampoline."""
    patch = attach(engine, entry_point)
    try:
        with pytest.raises(AttachError, match="already attached"):
            attach(engine, entry_point)
    finally:
        patch.restore()


def test_other_calling_convention_is_refused(engine):
    """A method that takes one object is not an entry point."""
    with pytest.raises(AttachError, match="calling convention 0x8"):
        attach(engine, [].append)


def test_entry_point_without_code_is_refused(engine):
    """What was compiled without a wrapper cannot be called from Python."""
    definition = MethodDef(b"empty", None, cpython_api.METH_VARARGS_KEYWORDS, None)
    with pytest.raises(AttachError, match="no_cpython_wrapper"):
        attach(engine, new_method(definition, object()))


def test_unknown_layout_is_refused(engine, entry_point, monkeypatch):
    """Without the offset nothing is touched."""
    layouts = type("Layouts", (), {"method_self": None, "method_reason": "lost"})
    monkeypatch.setattr(engine, "layouts", layouts)
    with pytest.raises(AttachError, match="lost"):
        attach(engine, entry_point)


def test_dead_entry_point_needs_no_restoring(engine):
    """A function that is gone took our pointer with it."""
    gone = njit(lambda value: value)
    gone(1)
    patch = attach(engine, gone.overloads[gone.signatures[0]].entry_point)
    del gone
    gc.collect()
    assert patch.restore() == ""


def test_entry_point_that_somebody_else_changed_is_left(engine, entry_point):
    """What is not ours any more is not touched."""
    patch = attach(engine, entry_point)
    other = engine.new_slot(0, object(), 0)
    owner = ctypes.c_void_p.from_address(
        id(entry_point) + cpython_api.find_method_self()
    )
    owner.value = id(other)
    try:
        assert "somebody else changed" in patch.restore()
        assert owner.value == id(other)
    finally:
        owner.value = id(patch.slot)
        assert patch.restore() == ""


def call_word(cls):
    """Return tp_call of a class."""
    return ctypes.c_void_p.from_address(id(cls) + cpython_api.find_type_call()).value


def test_type_call_is_changed_and_restored(engine):
    """tp_call of every dispatcher class comes back."""
    classes = numba_api.dispatcher_types()
    before = [call_word(cls) for cls in classes]
    patch = patches.TypeCallPatch(engine)
    during = {call_word(cls) for cls in classes}
    assert patch.restore() == ""
    assert during == {engine.addresses["dispatch"]}
    assert [call_word(cls) for cls in classes] == before


def test_class_with_its_own_call_is_left_alone(engine):
    """A dispatcher class that defines __call__ keeps it."""

    class Own(CPUDispatcher):
        def __call__(self, *args):
            return "own"

    before = call_word(Own)
    patch = patches.TypeCallPatch(engine)
    try:
        assert call_word(Own) == before
    finally:
        patch.restore()
    gc.collect()


def test_class_derived_while_patched_has_no_trampoline_afterwards(engine):
    """A class made during a session is like one made before."""
    patch = patches.TypeCallPatch(engine)
    derived = type("Derived", (CPUDispatcher,), {})
    patch.restore()
    assert call_word(derived) == call_word(CPUDispatcher)


def test_tp_call_that_somebody_else_changed_is_left(engine):
    """A class whose tp_call is not ours any more is named."""
    patch = patches.TypeCallPatch(engine)
    word = ctypes.c_void_p.from_address(
        id(CPUDispatcher) + cpython_api.find_type_call()
    )
    ours, word.value = word.value, patch.original
    try:
        assert "tp_call of CPUDispatcher" in patch.restore()
    finally:
        assert word.value == patch.original
    assert ours == engine.addresses["dispatch"]


def test_wrong_offset_of_tp_call_is_refused(engine, monkeypatch):
    """A word that plain objects have as well is not tp_call."""
    wrong = type(
        "Layouts",
        (),
        {"type_call": cpython_api.find_type_call() + 8, "type_reason": ""},
    )
    before = call_word(CPUDispatcher)
    monkeypatch.setattr(engine, "layouts", wrong)
    with pytest.raises(UnsupportedError, match="was not found"):
        patches.TypeCallPatch(engine)
    assert call_word(CPUDispatcher) == before


def loops(ufunc):
    """Return functions and data of a ufunc."""
    view = patches._UfuncObject.from_address(id(ufunc))
    return [(view.functions[i], view.data[i]) for i in range(view.ntypes)]


def test_loops_are_changed_and_restored(engine):
    """Every loop gets a trampoline and a slot, and comes back."""
    before = loops(loop.ufunc)
    patch = patches.UfuncPatch(engine, loop.ufunc)
    assert patch.attach_new() == [0, 1]
    during = loops(loop.ufunc)
    assert patch.attach_new() == []
    assert loop(1.0) == 2.0
    assert patch.restore() == ""
    assert {code for code, _ in during} == {engine.addresses["ufunc_loop"]}
    assert len({data for _, data in during}) == 2
    assert loops(loop.ufunc) == before


def test_ufunc_without_loops_has_nothing_to_change(engine):
    """A ufunc that has not compiled anything is no error."""
    patch = patches.UfuncPatch(engine, lazy.ufunc)
    assert (patch.attach_new(), patch.restore()) == ([], "")


def test_other_layout_of_a_ufunc_is_refused(engine, monkeypatch):
    """A struct that disagrees with the ufunc's own attributes is not written to."""
    fake = type("Fake", (), {"nin": 7, "nout": 1, "nargs": 8, "ntypes": 1})()
    with pytest.raises(AttachError, match="other layout"):
        patches.UfuncPatch(engine, fake)


@pytest.mark.parametrize("ufunc", [np.add, np.sin, np.matmul])
def test_loops_of_numpy_are_not_jitted(ufunc):
    """NumPy's own loops lie in its libraries."""
    assert not patches.is_jitted_loop(ufunc)


def test_loops_of_numba_are_jitted():
    """Compiled loops lie in no library; a ufunc without loops has none."""
    assert patches.is_jitted_loop(loop.ufunc)
    assert not patches.is_jitted_loop(lazy.ufunc)
