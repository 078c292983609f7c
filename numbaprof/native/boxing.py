"""Opt-in detail: how much of a call is unboxing, the kernel itself, and boxing.

The wrapper Numba compiles around a function unboxes the arguments, calls the native
function, and boxes the result. For chosen overloads the wrapper is emitted once more by
Numba's own emitter, with three clock readings in it, and put in front of the same
native function, which stays untouched::

    entry ---- unbox ---- k0 ==== kernel ==== k1 ---- box, clean up ---- return

The third interval is what remains of the call's inclusive time, so the parts add up.
"""

from __future__ import annotations

import copy
import ctypes
import enum
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import callwrapper, types

from numbaprof.errors import AttachError
from numbaprof.native import clock as clocks
from numbaprof.native import emit
from numbaprof.native.emit import PTR, const

__all__ = ["BoxingField", "BoxingSlot", "TimedWrapper"]


class BoxingField(enum.IntEnum):
    """Words of a BoxingSlot; updated atomically, the kernel may run without the GIL."""

    CALLS = 0
    """Calls whose arguments could be unboxed."""
    UNBOX = 1
    KERNEL = 2


class BoxingSlot(ctypes.Structure):
    """Sums over the split calls of one overload, in ticks."""

    _fields_ = [("words", ctypes.c_int64 * len(BoxingField))]

    def clear(self) -> None:
        """Empty the sums."""
        for field in BoxingField:
            self.words[field] = 0


class TimedWrapper:
    """A wrapper with clock readings around an overload's native function.

    Parameters
    ----------
    cres : CompileResult
        The overload; also one loaded from the cache.
    clock : Clock
        The engine's.
    nogil : bool
        Whether the function was compiled with ``nogil=True``, which a compile result
        does not say.

    Raises
    ------
    AttachError
        The overload has no native function to wrap; the message is the reason.

    Notes
    -----
    Takes 60 to 130 ms per overload. The caller holds the compiler lock and keeps this
    object for as long as the wrapper can be called.
    """

    def __init__(self, cres: Any, clock: clocks.Clock, *, nogil: bool) -> None:
        if cres.objectmode:
            raise AttachError("object mode: there is no native kernel to split off")
        if isinstance(cres.signature.return_type, types.Generator):
            raise AttachError("generator: the call only creates it")
        target = cres.library.get_pointer_to_function(cres.fndesc.llvm_func_name)
        if not target:
            raise AttachError("its native function has no address")
        self.slot = BoxingSlot()
        self._cres = cres
        name = f"numbaprof.split.{id(self):x}"
        context = cres.target_context
        self._library = context.codegen().create_library(name)
        module = context.create_module(name)
        _emit(module, cres, clock, self.slot, name, nogil=nogil, target=target)
        self._library.add_ir_module(module)
        self._library.finalize()
        self.address = int(self._library.get_pointer_to_function(name))
        _KEPT.append(self)


_KEPT: list[TimedWrapper] = []
"""For ever, like all code of ours that a thread may be inside of."""


def _emit(
    module: ir.Module,
    cres: Any,
    clock: clocks.Clock,
    slot: BoxingSlot,
    name: str,
    *,
    nogil: bool,
    target: int,
) -> None:
    """Emit ``PyObject *split(PyObject *self, PyObject *args, PyObject *kws)``."""
    context = cres.target_context
    signature = context.call_conv.get_function_type(
        cres.fndesc.restype, cres.fndesc.argtypes
    )
    symbol = f"numbaprof.native.{target:x}"
    llvm.add_symbol(symbol, target)
    native = ir.Function(module, signature, symbol)
    description = copy.copy(cres.fndesc)
    description.__class__ = _renamed(type(description), name)
    probe = _Probe(module, clock, slot)
    wrapper = _Wrapper(
        context, module, native, description, cres.environment, None, nogil
    )
    wrapper.probe = probe
    wrapper.real_context = context
    wrapper.context = _ContextProxy(context, _TimedCalls(context.call_conv, probe))
    wrapper.build()


def _renamed(cls: type, name: str) -> type:
    """Return a class whose instances ask for a wrapper called ``name``."""
    return type("Renamed", (cls,), {"__slots__": (), "llvm_cpython_wrapper_name": name})


class _Probe:
    """Emits the readings and the sums."""

    def __init__(
        self, module: ir.Module, clock: clocks.Clock, slot: BoxingSlot
    ) -> None:
        self.read = clocks.emit_read(module, clock)
        self._slot = const(ctypes.addressof(slot)).inttoptr(PTR)
        self._entry: Any = None

    def enter(self, builder: ir.IRBuilder) -> None:
        self._entry = self.read(builder)

    def add(self, builder: ir.IRBuilder, field: BoxingField, value: Any) -> None:
        emit.add_to_word(builder, self._slot, field, value, ordering="monotonic")

    def unboxed(self, builder: ir.IRBuilder) -> Any:
        begin = self.read(builder)
        self.add(builder, BoxingField.UNBOX, builder.sub(begin, self._entry))
        self.add(builder, BoxingField.CALLS, const(1))
        return begin

    def returned(self, builder: ir.IRBuilder, begin: Any) -> None:
        spent = builder.sub(self.read(builder), begin)
        self.add(builder, BoxingField.KERNEL, spent)


class _TimedCalls:
    """A calling convention that reads the clock around the one call it emits."""

    def __init__(self, inner: Any, probe: _Probe) -> None:
        self._inner = inner
        self._probe = probe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def call_function(self, builder: ir.IRBuilder, *args: Any, **kwargs: Any) -> Any:
        begin = self._probe.unboxed(builder)
        outcome = self._inner.call_function(builder, *args, **kwargs)
        self._probe.returned(builder, begin)
        return outcome


class _ContextProxy:
    """A target context with another calling convention."""

    def __init__(self, context: Any, call_conv: _TimedCalls) -> None:
        self._context = context
        self.call_conv = call_conv

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _Wrapper(callwrapper.PyCallWrapper):
    """Numba's wrapper with a reading at entry, and the environment by address.

    The environment's global variable lives in the overload's own library; a library
    loaded from the cache does not export it.
    """

    probe: _Probe
    real_context: Any

    def build_wrapper(
        self, api: Any, builder: ir.IRBuilder, closure: Any, args: Any, kws: Any
    ) -> None:
        self.probe.enter(builder)
        super().build_wrapper(api, builder, closure, args, kws)

    def get_env(self, api: Any, builder: ir.IRBuilder) -> Any:
        pyobject = self.real_context.get_argument_type(types.pyobject)
        pointer = builder.inttoptr(const(id(self.env)), pyobject)
        body = self.real_context.get_env_body(builder, pointer)
        return api.get_env_manager(self.env, body, pointer)
