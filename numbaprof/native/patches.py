"""In-place changes of other people's objects, each with its exact undoing.

Three kinds: a Numba entry point (``m_self`` and ``ml_meth``), the ``tp_call`` of the
dispatcher classes, and the loops of a NumPy ufunc. Each writes the data before the code
that will use it, and undoes in reverse, so that a call at any moment finds a matching
pair. All of it happens under the GIL, in plain stores.
"""

from __future__ import annotations

import ctypes
import functools
import types
import weakref
from typing import TYPE_CHECKING, Any

from numbaprof.errors import AttachError, UnsupportedError
from numbaprof.native import numba_api
from numbaprof.native.cpython_api import (
    HEADER_BYTES,
    METH_VARARGS_KEYWORDS,
    WORD_BYTES,
    MethodDef,
)
from numbaprof.native.engine import Engine, Slot, UfuncSlot
from numbaprof.native.layout import UfuncField

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["EntryPointPatch", "TypeCallPatch", "UfuncPatch", "is_patched"]


class EntryPointPatch:
    """The trampoline in front of one compiled entry point.

    Numba's dispatcher reads ``entry_point->m_ml->ml_meth`` on every call and passes
    ``m_self``, which the wrapper Numba compiled does not look at. So both can be ours.

    Parameters
    ----------
    engine : Engine
        Owner of the trampoline.
    entry_point : builtin function
        ``cres.entry_point``.
    dispatcher : int
        Address of the dispatcher that calls it, 0 for none.
    definitions : dict or None
        ``target_context._defns``, which has entry points as keys.
    prepare : callable, optional
        Gets the slot before anybody calls it, and may put more in front of the wrapper.

    Raises
    ------
    AttachError
        The entry point is not one we understand; the message is the reason.

    Notes
    -----
    The hash of a PyCFunction is made from the two words we change, and entry points are
    keys of ``definitions``; the entry is taken out before and put back after, or code
    compiled later could not call the function any more. The caller holds
    ``numba_api.compiler_lock`` around making and restoring.
    """

    def __init__(
        self,
        engine: Engine,
        entry_point: Any,
        dispatcher: int,
        definitions: dict[Any, Any] | None,
        prepare: Callable[[Slot], None] | None = None,
    ) -> None:
        offset = engine.layouts.method_self
        if offset is None:
            raise AttachError(engine.layouts.method_reason)
        self._offset = offset
        definition, owner = self._words(entry_point)
        if definition.ml_flags != METH_VARARGS_KEYWORDS:
            raise AttachError(
                f"its entry point has calling convention {definition.ml_flags:#x}"
            )
        if not definition.ml_meth:
            raise AttachError("compiled without a Python wrapper (no_cpython_wrapper)")
        if isinstance(entry_point.__self__, Slot):
            raise AttachError("already attached")
        self._entry_point = weakref.ref(entry_point)
        self._definitions = definitions
        self._original = int(definition.ml_meth)
        self.slot = engine.new_slot(self._original, entry_point.__self__, dispatcher)
        if prepare is not None:
            prepare(self.slot)
        trampoline = engine.addresses["overload"]
        with _Rekeyed(definitions, entry_point):
            _swap_reference(owner, self.slot, old=self.slot.owner)
            definition.ml_meth = trampoline

    def _words(self, entry_point: Any) -> tuple[MethodDef, ctypes.c_void_p]:
        address = id(entry_point) + self._offset
        definition = ctypes.c_void_p.from_address(address - WORD_BYTES).value
        if not definition:
            raise AttachError("its entry point has no method definition")
        return MethodDef.from_address(definition), ctypes.c_void_p.from_address(address)

    @property
    def is_alive(self) -> bool:
        """Whether the entry point still exists."""
        return self._entry_point() is not None

    def restore(self) -> str:
        """Put the entry point back exactly; return "" or why that was not possible.

        An entry point that died meanwhile needs nothing: it took our pointer with it.
        """
        entry_point = self._entry_point()
        if entry_point is None:
            return ""
        definition, owner = self._words(entry_point)
        if entry_point.__self__ is not self.slot:
            return "somebody else changed the entry point after us"
        with _Rekeyed(self._definitions, entry_point):
            definition.ml_meth = self._original
            _swap_reference(owner, self.slot.owner, old=self.slot)
        return ""


class _Rekeyed:
    """Takes a key out of a dictionary while its hash changes."""

    def __init__(self, table: dict[Any, Any] | None, key: Any) -> None:
        self._table = table
        self._key = key
        self._value: Any = None
        self._present = False

    def __enter__(self) -> None:
        if self._table is not None and self._key in self._table:
            self._value = self._table.pop(self._key)
            self._present = True

    def __exit__(self, *_: object) -> None:
        if self._present and self._table is not None:
            self._table[self._key] = self._value


def _swap_reference(word: ctypes.c_void_p, new: Any, *, old: Any) -> None:
    """Make an owned pointer point to ``new`` and give up its hold on ``old``."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(new))
    word.value = id(new)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(old))


def is_patched(entry_point: Any) -> bool:
    """Tell whether an entry point has one of our slots."""
    return isinstance(getattr(entry_point, "__self__", None), Slot)


class TypeCallPatch:
    """The trampoline in front of ``tp_call`` of the dispatcher classes.

    Classes that define ``__call__`` themselves are left alone: their dispatch time is
    not measured.

    Parameters
    ----------
    engine : Engine
        Owner of the trampoline.

    Raises
    ------
    UnsupportedError
        ``tp_call`` was not found, or is not what the base class has.
    """

    def __init__(self, engine: Engine) -> None:
        offset = engine.layouts.type_call
        if offset is None:
            raise UnsupportedError(engine.layouts.type_reason)
        self._trampoline = engine.addresses["dispatch"]
        base, *derived = numba_api.dispatcher_types()
        native = base.__mro__[1]
        self.original = _type_word(native, offset).value or 0
        if not self.original or _type_word(object, offset).value:
            raise UnsupportedError("tp_call of Numba's dispatcher was not found")
        engine.set_dispatch_target(self.original)
        self._patched: list[tuple[type, ctypes.c_void_p]] = []
        for cls in (base, *derived):
            word = _type_word(cls, offset)
            if word.value == self.original:
                word.value = self._trampoline
                self._patched.append((cls, word))
        self._modified()

    def _modified(self) -> None:
        for cls, _ in self._patched:
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))

    def restore(self) -> str:
        """Put every class back; return "" or which ones somebody else changed."""
        foreign = []
        for cls, word in self._patched:
            if word.value == self._trampoline:
                word.value = self.original
            else:
                foreign.append(cls.__name__)
        self._modified()
        if foreign:
            return f"somebody else changed tp_call of {', '.join(foreign)} after us"
        return ""


def _type_word(cls: type, offset: int) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(id(cls) + offset)


class _UfuncObject(ctypes.Structure):
    """``PyUFuncObject`` up to ``types``, numpy/core/include/numpy/ufuncobject.h."""

    _fields_ = [
        ("head", ctypes.c_char * HEADER_BYTES),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved1", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_byte)),
    ]


class UfuncPatch:
    """Trampolines in front of the loops of one NumPy ufunc object.

    Parameters
    ----------
    engine : Engine
        Owner of the trampoline.
    ufunc : numpy.ufunc
        Keeps its loops in arrays that may move when loops are added; each loop is found
        again by its index.

    Raises
    ------
    AttachError
        The struct read does not agree with the ufunc's own attributes.
    """

    def __init__(self, engine: Engine, ufunc: np.ufunc) -> None:
        self._engine = engine
        self.ufunc = ufunc
        self.loops: dict[int, UfuncSlot] = {}
        self._trampoline = engine.addresses["ufunc_loop"]
        self._view()

    def _view(self) -> _UfuncObject:
        view = _UfuncObject.from_address(id(self.ufunc))
        seen = (view.nin, view.nout, view.nargs, view.ntypes)
        true = (self.ufunc.nin, self.ufunc.nout, self.ufunc.nargs, self.ufunc.ntypes)
        # Before its first loop is compiled a DUFunc has no arrays at all.
        missing = bool(view.ntypes) and not (view.functions and view.data)
        if seen != true or missing:
            raise AttachError(
                f"its PyUFuncObject reads {seen} where NumPy says {true}: other layout"
            )
        return view

    def attach_new(self) -> list[int]:
        """Attach to the loops not attached to yet; return their indices."""
        view = self._view()
        fresh = []
        for index in range(view.ntypes):
            function = view.functions[index]
            if index in self.loops or not function or function == self._trampoline:
                continue
            slot = self._engine.new_ufunc_slot(function, view.data[index] or 0)
            # Numba's loops do not look at their data, so a call between these two
            # stores runs as before.
            view.data[index] = ctypes.addressof(slot)
            view.functions[index] = self._trampoline
            self.loops[index] = slot
            fresh.append(index)
        return fresh

    def restore(self) -> str:
        """Put every loop back; return "" or which ones somebody else changed."""
        view = self._view()
        foreign = []
        for index, slot in self.loops.items():
            mine = view.functions[index] == self._trampoline and view.data[
                index
            ] == ctypes.addressof(slot)
            if not mine:
                foreign.append(str(index))
                continue
            view.functions[index] = slot.words[UfuncField.ORIG_FN]
            view.data[index] = slot.words[UfuncField.ORIG_DATA] or None
            self._engine.retire_ufunc_slot(slot)
        if foreign:
            return f"somebody else changed loop {', '.join(foreign)} after us"
        return ""


def is_jitted_loop(ufunc: np.ufunc) -> bool:
    """Tell whether a plain ufunc's loops were made at run time.

    The address of a compiled-in loop lies in a shared library; that of a JIT does not.
    """
    if not ufunc.ntypes:
        return False
    try:
        view = UfuncPatch.__new__(UfuncPatch)
        view.ufunc = ufunc
        function = view._view().functions[0]
    except AttachError:
        return False
    return bool(function) and not _in_library(function)


class _DlInfo(ctypes.Structure):
    """``Dl_info``, dlfcn.h."""

    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


@functools.cache
def _dladdr() -> Any:
    """Return the C function ``dladdr``, None where there is none."""
    found = getattr(ctypes.CDLL(None), "dladdr", None)
    if found is not None:
        found.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    return found


def _in_library(address: int) -> bool:
    dladdr = _dladdr()
    return dladdr is None or bool(dladdr(address, ctypes.byref(_DlInfo())))


def entry_point_types() -> tuple[type, ...]:
    """Return the types entry points have."""
    return (types.BuiltinFunctionType,)
