"""What a profiler could leave behind in a process, read so that it can be compared.

:func:`read` returns one dictionary, name to object; :func:`differences` compares two of
them by identity for objects and by value for plain data. The objects themselves are
kept, not their ids, so that an id cannot be reused between two readings.

What cannot be read is not here: callbacks of ``os.register_at_fork``, and handlers that
native code installed with ``sigaction``, except that of SIGPROF.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import importlib
import os
import signal
import sys
import threading
import weakref
from types import FunctionType
from typing import Any

PATCHABLE_CLASSES = (
    "numba.core.dispatcher._DispatcherBase",
    "numba.core.dispatcher.Dispatcher",
    "numba.core.dispatcher.LiftedCode",
    "numba.core.dispatcher.LiftedLoop",
    "numba.core.dispatcher.LiftedWith",
    "numba.core.dispatcher.ObjModeLiftedWith",
    "numba.core.dispatcher._FunctionCompiler",
    "numba.core.registry.CPUDispatcher",
    "numba.core.caching._Cache",
    "numba.core.caching.Cache",
    "numba.core.caching.FunctionCache",
    "numba.core.caching.NullCache",
    "numba.core.ccallback.CFunc",
    "numba.core.types.functions.Dispatcher",
    "numba.core.codegen.JITCodeLibrary",
    "numba.core.codegen.CPUCodeLibrary",
    "numba.core.compiler.CompilerBase",
    "numba.core.compiler_machinery.PassManager",
    "numba.core.cpu.CPUContext",
    "numba.core.inline_closurecall.InlineWorker",
    "numba.core.lowering.BaseLower",
    "numba.core.pylowering.PyLower",
    "numba.core.types.Dispatcher",
    "numba.experimental.jitclass.base.JitClassType",
    "numba.np.ufunc.dufunc.DUFunc",
    "numba.np.ufunc.gufunc.GUFunc",
    "numba.np.ufunc.ufuncbuilder.UFuncDispatcher",
    "numba.np.ufunc.ufuncbuilder.UFuncBuilder",
    "numba.np.ufunc.ufuncbuilder.GUFuncBuilder",
    "numba.stencils.stencil.StencilFunc",
)
PATCHABLE_MODULES = (
    "numba.core.ccallback",
    "numba.core.compiler",
    "numba.core.decorators",
    "numba.core.event",
    "numba.core.inline_closurecall",
    "numba.experimental.jitclass.boxing",
    "numba.np.ufunc.decorators",
    "numba.np.ufunc.parallel",
    "numba.np.ufunc.ufuncbuilder",
    "numba.stencils.stencil",
)
SLOTTED_TYPES = (
    "numba._dispatcher.Dispatcher",
    "numba.core.registry.CPUDispatcher",
    "numba.core.dispatcher.LiftedLoop",
    "numba._dynfunc._Closure",
    "numba._dynfunc._Generator",
    "numba.np.ufunc._internal._DUFunc",
)

WORD = ctypes.sizeof(ctypes.c_void_p)
UFUNC_FUNCTIONS = object.__basicsize__ + 4 * ctypes.sizeof(ctypes.c_int)
# Words of PyTypeObject before the slot (Include/cpython/object.h, the same from 3.10 to
# 3.13): PyVarObject is 3, then tp_name is the first.
TYPE_SLOTS = {"tp_call": 16, "tp_getattro": 18, "tp_iternext": 28}


def _named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _slot(cls: type, words: int) -> int | None:
    return ctypes.c_void_p.from_address(id(cls) + words * WORD).value


def _patched_entry_points() -> list[str]:
    """Names of overloads whose entry point is not bound to Numba's own closure."""
    from numba import _dynfunc
    from numba.core.dispatcher import _DispatcherBase

    # Numba registers one finalizer per dispatcher; its arguments do not lead back to
    # the object, the weak reference that keys the registry does.
    dispatchers = [
        found
        for info in list(weakref.finalize._registry.values())  # type: ignore[attr-defined]
        if isinstance(found := info.weakref(), _DispatcherBase)
    ]
    return [
        f"{dispatcher.py_func.__qualname__}{signature}"
        for dispatcher in dispatchers
        for signature, overload in dispatcher.overloads.items()
        if isinstance(overload.entry_point, type(len))
        and type(overload.entry_point.__self__) is not _dynfunc._Closure
    ]


def _gc_callbacks() -> list[int]:
    """Ids of the callbacks of the collector, but for the one hypothesis installs."""
    return [
        id(callback)
        for callback in gc.callbacks
        if not str(getattr(callback, "__module__", "")).startswith("hypothesis.")
    ]


def _native_handler(number: int) -> int:
    """Return the address of a signal's handler; 0 by default and where not known."""
    if not sys.platform.startswith("linux"):
        return 0
    # struct sigaction of glibc: the handler comes first, and all is below 256 bytes.
    action = (ctypes.c_uint64 * 32)()
    ctypes.CDLL(None).sigaction(int(number), None, action)
    return action[0]


def _read_interpreter() -> dict[str, Any]:
    state: dict[str, Any] = {
        f"signal {number!r}": signal.getsignal(number)
        for number in signal.valid_signals()
    }
    for timer in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"):
        running, interval = signal.getitimer(getattr(signal, timer))
        state[timer] = (running > 0, interval)
    state["SIGPROF in C"] = _native_handler(signal.SIGPROF)
    state["os.execv"], state["os.execve"] = os.execv, os.execve
    state["sys.getprofile()"] = sys.getprofile()
    state["sys.gettrace()"] = sys.gettrace()
    state["threading.getprofile()"] = threading.getprofile()
    state["threading.gettrace()"] = threading.gettrace()
    if sys.version_info >= (3, 12):
        for tool in range(6):
            state[f"sys.monitoring tool {tool}"] = sys.monitoring.get_tool(tool)
    state["sys.excepthook"] = sys.excepthook
    state["sys.unraisablehook"] = sys.unraisablehook
    state["sys.argv"] = list(sys.argv)
    state["sys.path"] = list(sys.path)
    state["sys.meta_path"] = list(map(id, sys.meta_path))
    state["__main__"] = sys.modules.get("__main__")
    state["builtins.__import__"] = builtins.__import__
    state["gc"] = (gc.isenabled(), gc.get_threshold(), _gc_callbacks())
    state["threads"] = sorted(thread.name for thread in threading.enumerate())
    for key, value in os.environ.items():
        if key.startswith(("NUMBA", "PYTHON")):
            state[f"environ {key}"] = value
    return state


def _patched_loops() -> list[str]:
    """Names of ufuncs one of whose loops is the same code as another's.

    Numba compiles every loop by itself; a trampoline in front of several is what they
    have in common. NumPy's own ufuncs share loops and are left out.
    """
    from numba.core.registry import cpu_target
    from numba.np.ufunc.dufunc import DUFunc
    from numba.np.ufunc.gufunc import GUFunc

    keys = list(cpu_target.typing_context._globals)
    things = [key() if isinstance(key, weakref.ref) else key for key in keys]
    ufuncs = {id(t): t.ufunc for t in things if isinstance(t, (DUFunc, GUFunc))}
    owners: dict[int, list[str]] = {}
    for ufunc in ufuncs.values():
        # PyUFuncObject: head, four ints, then the array of functions.
        array = ctypes.c_void_p.from_address(id(ufunc) + UFUNC_FUNCTIONS).value
        for index in range(ufunc.ntypes if array else 0):
            code = ctypes.c_void_p.from_address(array + index * WORD).value
            owners.setdefault(code or 0, []).append(ufunc.__name__)
    return sorted(
        name for names in owners.values() if len(set(names)) > 1 for name in names
    )


def _active_session() -> Any:
    """Return the session that is running, without importing what would run one."""
    module = sys.modules.get("numbaprof.session")
    return None if module is None else module.active_session()


def _read_numba() -> dict[str, Any]:
    event = importlib.import_module("numba.core.event")
    state: dict[str, Any] = {
        f"listeners of {kind}": list(listeners)
        for kind, listeners in event._registered.items()
        if listeners
    }
    for path in PATCHABLE_CLASSES:
        for name, value in vars(_named(path)).items():
            if callable(value) or isinstance(
                value, (property, classmethod, staticmethod)
            ):
                state[f"{path}.{name}"] = value
    for path in PATCHABLE_MODULES:
        for name, value in vars(importlib.import_module(path)).items():
            if isinstance(value, (FunctionType, type)):
                state[f"{path}.{name}"] = value
    for path in SLOTTED_TYPES:
        for slot, words in TYPE_SLOTS.items():
            state[f"{path} {slot}"] = _slot(_named(path), words)
    state["patched entry points"] = _patched_entry_points()
    state["jitted loops of ufuncs"] = _patched_loops()
    state["active session"] = _active_session()
    return state


def read() -> dict[str, Any]:
    """Return the state of this process; imports Numba."""
    return _read_numba() | _read_interpreter()


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return one line per name whose value is not what it was.

    Parameters
    ----------
    before, after : dict
        From :func:`read`.
    """
    missing = "nothing"
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, missing), after.get(name, missing)
        plain = isinstance(old, (bool, int, str, list, tuple))
        if not (old is new or (plain and old == new)):
            lines.append(f"{name}: was {old!r}, is {new!r}")
    return lines
