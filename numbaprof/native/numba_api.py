"""Every private name of Numba that numbaprof touches, and what is asked of it.

:data:`PRIVATE_NAMES` is the whole list; a test resolves each, so a new Numba that moved
one fails there first, by name. Everything else in the package asks the functions below.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import linecache
import os
import re
import sys
import types as python_types
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import config, typeinfer, types
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import (
    Dispatcher,
    LiftedLoop,
    LiftedWith,
    ObjModeLiftedWith,
    _DispatcherBase,
)
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.np.ufunc import parallel
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc
from numba.np.ufunc.ufuncbuilder import GUFuncBuilder, UFuncBuilder
from numba.stencils.stencil import StencilFunc

from numbaprof.model import DispatcherInfo, FunctionId, OverloadKind
from numbaprof.native.numba_types import (
    describe_arguments,
    signature_text,
    type_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "PRIVATE_NAMES",
    "FunctionRegistry",
    "NumbaError",
    "compiler_lock",
    "describe_arguments",
    "dispatcher_types",
    "forget_dispatcher",
    "is_internal",
    "is_loop_body",
    "is_own_file",
    "live_dispatchers",
    "live_property_getters",
    "live_ufuncs",
    "missing_private_names",
    "signature_text",
    "source_range",
    "type_text",
    "underlying_ufunc",
]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba._dispatcher:Dispatcher",
    "numba._dynfunc:_Closure",
    "numba.core.dispatcher:_DispatcherBase.add_overload",
    "numba.core.dispatcher:_DispatcherBase._make_finalizer",
    "numba.core.dispatcher:Dispatcher._compile_for_args",
    "numba.core.dispatcher:Dispatcher.get_compile_result",
    "numba.core.dispatcher:LiftedLoop.get_source_location",
    "numba.core.dispatcher:ObjModeLiftedWith",
    "numba.core.registry:cpu_target.typing_context._globals",
    "numba.core.registry:cpu_target.target_context._defns",
    "numba.core.registry:cpu_target.target_context._internal_codegen._engine._ee",
    "numba.core.registry:cpu_target.target_context._internal_codegen.magic_tuple",
    "numba.core.codegen:JitEngine.is_symbol_defined",
    "numba._dynfunc:_Generator",
    "numba._helperlib:rnd_get_np_state_ptr",
    "numba._helperlib:rnd_get_py_state_ptr",
    "numba._helperlib:rnd_get_state",
    "numba._helperlib:rnd_set_state",
    "numba.core.bytecode:_FIXED_OFFSET",
    "numba.core.caching:NullCache",
    "numba.core.caching:_Cache.load_overload",
    "numba.core.ccallback:CFunc._compile_uncached",
    "numba.core.compiler_lock:global_compiler_lock.is_locked",
    "numba.core.compiler:CompilerBase.compile_extra",
    "numba.core.dispatcher:Dispatcher.disable_compile",
    "numba.core.dispatcher:OmittedArg",
    "numba.core.interpreter:Interpreter._dispatch",
    "numba.core.interpreter:Interpreter.interpret",
    "numba.core.typeinfer:_temporary_dispatcher_map",
    "numba.core.types:Dispatcher.dispatcher",
    "numba.core.types:Dispatcher.get_call_type",
    "numba.core.types:Dispatcher.get_overload",
    "numba.core.types:ClassInstanceType.jit_methods",
    "numba.core.typing.templates:fold_arguments",
    "numba.core.unsafe.eh:exception_check",
    "numba.experimental.jitclass._box:Box",
    "numba.experimental.jitclass.boxing:_cache_specialized_box",
    "numba.np.ufunc.dufunc:DUFunc._compile_for_argtys",
    "numba.np.ufunc.gufunc:GUFunc.build_ufunc",
    "numba.np.ufunc.ufuncbuilder:UFuncBuilder.build_ufunc",
    "numba.np.ufunc.ufuncbuilder:GUFuncBuilder.build_ufunc",
    "numba.stencils.stencil:StencilFunc._stencil_wrapper",
    "llvmlite.binding.ffi:lib._lock._lock",
    "llvmlite.binding.ffi:lib._name",
    "llvmlite.binding:ExecutionEngine._raw_object_cache_notify",
    "llvmlite.binding:ExecutionEngine._raw_object_cache_getbuffer",
)
"""``module:attribute.path`` of what is neither documented nor promised."""

compiler_lock = global_compiler_lock
"""Held while compiling, and by us while dictionaries of the compiler are re-keyed."""

JITCLASS_SELF = "__numba_self_"
JITCLASS_CLASS = "__numba_cls_"
"""Names in the sources that jitclass generates (jitclass/boxing.py, base.py)."""
GENERATED_FILE = "<string>"
TESTS_OF_NUMBA = "numba.tests"

JitclassInstance = importlib.import_module("numba.experimental.jitclass._box").Box
"""Base of all instances of jitclasses (an extension module, so mypy has no idea)."""
helper_library: Any = importlib.import_module("numba._helperlib")
"""Numba's C helpers; here for the state of its random numbers."""
GeneratorObject = importlib.import_module("numba._dynfunc")._Generator
"""What a jitted generator function returns."""

_FINALIZER = "_DispatcherBase._make_finalizer.<locals>.finalizer"


def missing_private_names() -> tuple[str, ...]:
    """Return the names of :data:`PRIVATE_NAMES` that this Numba does not have."""
    return tuple(name for name in PRIVATE_NAMES if not _exists(name))


def _exists(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for attribute in path.split("."):
            target = getattr(target, attribute)
    except (ImportError, AttributeError):
        return False
    return True


def is_internal(module: str | None) -> bool:
    """Tell whether functions of ``module`` are Numba's own helpers.

    Numba's test-suite counts as a user's program.
    """
    if not module or module.startswith(TESTS_OF_NUMBA):
        return False
    return module == "numba" or module.startswith("numba.")


_OWN_FOLDER = os.path.dirname(os.path.abspath(numba.__file__)) + os.sep


def is_own_file(file: str) -> bool:
    """Tell whether a source file is one of Numba's own, its test-suite apart."""
    inside = file.startswith(_OWN_FOLDER)
    return inside and not file.startswith(os.path.join(_OWN_FOLDER, "tests", ""))


@dataclass(frozen=True, slots=True)
class Birthplaces:
    """The (class, method) pairs after whose call something new can be attached to."""

    overloads: tuple[tuple[type, str], ...]
    """``self, cres``: every new overload, compiled or loaded, of every dispatcher."""
    ufunc_loops: tuple[tuple[type, str], ...]
    """``self``, a DUFunc or GUFunc that may have got a loop or a new ufunc object."""
    ufuncs: tuple[tuple[type, str], ...]
    """``self``, a builder; the outcome is a ufunc, for every target."""
    stencils: tuple[tuple[type, str], ...]
    """``self``, a stencil; the outcome is a compile result, or None."""
    cfuncs: tuple[tuple[type, str], ...]
    """``self``, a C callback that has its address now."""
    first_class: tuple[tuple[type, str], ...]
    """The outcome is a compile result whose address is taken, to be called by value."""


BIRTHPLACES = Birthplaces(
    overloads=((_DispatcherBase, "add_overload"),),
    ufunc_loops=((DUFunc, "_compile_for_argtys"), (GUFunc, "build_ufunc")),
    ufuncs=((UFuncBuilder, "build_ufunc"), (GUFuncBuilder, "build_ufunc")),
    stencils=((StencilFunc, "_stencil_wrapper"),),
    cfuncs=((CFunc, "compile"),),
    first_class=((Dispatcher, "get_compile_result"),),
)


# -- what is alive --------------------------------------------------------------------


def _finalized() -> Iterator[tuple[Any, Any]]:
    """Yield (finalizer, dispatcher) of all that are alive, of all kinds.

    Each registers a ``weakref.finalize``; reading that registry takes 0.3 ms where a
    walk over ``gc.get_objects()`` takes 150 ms and sees nothing after ``gc.freeze()``.
    """
    registry: dict[Any, Any] = weakref.finalize._registry  # type: ignore[attr-defined]
    for finalizer, info in list(registry.items()):
        if getattr(info.func, "__qualname__", "") == _FINALIZER:
            dispatcher = info.weakref()
            if dispatcher is not None:
                yield finalizer, dispatcher


def live_dispatchers() -> list[Any]:
    """Return every dispatcher object alive, of all kinds."""
    return [dispatcher for _, dispatcher in _finalized()]


def forget_dispatcher(thing: Any) -> None:
    """Take a dispatcher of our own out of Numba's registries before it is collected.

    What its finalizer would do, now: its overloads leave the target context, and
    :func:`live_dispatchers` does not return it.
    """
    for finalizer, dispatcher in _finalized():
        if dispatcher is thing:
            finalizer()


def inlined_dispatchers() -> Iterator[Any]:
    """Yield the dispatchers alive that are only ever inlined.

    The registry of finalizers is empty when a program is about to end: ``weakref`` has
    run them all. The typing context still knows who is alive.
    """
    for thing in _known_to_typing():
        if isinstance(thing, Dispatcher) and is_always_inlined(thing):
            yield thing


def _known_to_typing() -> Iterator[Any]:
    for key in list(cpu_target.typing_context._globals):
        yield key() if isinstance(key, weakref.ref) else key


def dispatcher_types() -> list[type]:
    """Return the Python classes of dispatchers that exist, bases first."""
    found: list[type] = []
    pending: list[type] = [_DispatcherBase]
    while pending:
        cls = pending.pop(0)
        if cls not in found:
            found.append(cls)
            pending.extend(cls.__subclasses__())
    return found


def live_ufuncs() -> list[Any]:
    """Return DUFunc, GUFunc and Numba-made plain ufunc objects that can be found.

    The first two are known to the typing context. A ``target="parallel"`` ufunc is a
    plain NumPy object nobody keeps a list of; those bound to a module's global name
    are found there, by their loops lying in no loaded library.
    """
    found = [
        thing for thing in _known_to_typing() if isinstance(thing, DUFunc | GUFunc)
    ]
    found.extend(_plain_ufuncs())
    return found


_WITHOUT_JITTED_UFUNCS = sys.stdlib_module_names | {
    "llvmlite",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "torch",
}
"""Top-level packages not worth a look; together they have 100,000 global names."""


def _plain_ufuncs() -> Iterator[Any]:
    seen = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _WITHOUT_JITTED_UFUNCS:
            continue
        if type(module) is not python_types.ModuleType:
            continue
        for thing in list(vars(module).values()):
            if type(thing) is np.ufunc and id(thing) not in seen:
                seen.add(id(thing))
                yield thing


def underlying_ufunc(thing: Any) -> Any:
    """Return the NumPy ufunc object behind a DUFunc or GUFunc, or the thing itself."""
    return thing.ufunc if isinstance(thing, DUFunc | GUFunc) else thing


def live_property_getters() -> Iterator[tuple[Any, str, Any]]:
    """Yield (class instance type, attribute, entry point) of jitclass getters.

    A getter is the bare entry point; its dispatcher is gone by the time one looks.
    """
    boxing = importlib.import_module("numba.experimental.jitclass.boxing")
    for type_, box in list(boxing._cache_specialized_box.items()):
        for name, attribute in list(vars(box).items()):
            if isinstance(attribute, property):
                for accessor in (attribute.fget, attribute.fset):
                    if type(accessor) is python_types.BuiltinFunctionType:
                        yield type_, name, accessor


# -- identity -------------------------------------------------------------------------


class FunctionRegistry:
    """Gives every function-like object of a session its :class:`FunctionId`.

    Objects that agree in module, qualified name, file and line are told apart by the
    order in which they were first seen. Holds no dispatcher alive.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, FunctionId]] = {}
        self._instances: dict[tuple[str, str, str, int], int] = {}

    def identify(self, thing: Any, args: Any = None) -> FunctionId:
        """Return the identity of a dispatcher, ufunc, cfunc or stencil.

        Parameters
        ----------
        thing : object
            Dispatcher of any kind, DUFunc, GUFunc, NumPy ufunc, CFunc, StencilFunc, or
            a ufunc builder.
        args : tuple of numba types, optional
            Argument types of the overload in question. With them a method wrapper that
            jitclass generated is traced back to the user's method.
        """
        thing = _behind_jitclass(thing, args)
        if isinstance(thing, FunctionId):
            return thing
        known = self._known.get(id(thing))
        if known is not None and _is_same(known[0], thing):
            return known[1]
        name = _name(thing)
        instance = self._instances.get(name, 0)
        self._instances[name] = instance + 1
        identity = FunctionId(*name, instance)
        self._known[id(thing)] = (_hold(thing), identity)
        return identity

    def adopt(self, thing: Any, identity: FunctionId) -> None:
        """Say that ``thing`` is the same function as one identified before."""
        self._known[id(thing)] = (_hold(thing), identity)

    @staticmethod
    def signature_text(args: Any) -> str:
        """Return the readable signature of a tuple of Numba types."""
        return signature_text(args)


def _hold(thing: Any) -> Any:
    try:
        return weakref.ref(thing)
    except TypeError:
        # NumPy ufuncs take no weak reference; they are few and live long.
        return lambda: thing


def _is_same(held: Any, thing: Any) -> bool:
    return held() is thing


def _name(thing: Any) -> tuple[str, str, str, int]:
    """Return (module, qualname, file, line) of a function-like object."""
    function = python_function(thing)
    if function is None:
        return "", getattr(thing, "__name__", repr(thing)), "", 0
    code = function.__code__
    module = getattr(function, "__module__", None) or ""
    qualname = getattr(function, "__qualname__", code.co_name)
    file, line = code.co_filename, definition_line(code)
    if isinstance(thing, LiftedLoop):
        line = int(thing.get_source_location())
        qualname = f"{qualname} [loop at line {line}]"
    elif isinstance(thing, LiftedWith):
        line = int(thing.func_ir.loc.line)
        word = "objmode" if isinstance(thing, ObjModeLiftedWith) else "with"
        qualname = f"{qualname} [{word} at line {line}]"
    return module, qualname, file, line


def python_function(thing: Any) -> Any:
    """Return the Python function behind ``thing``, or None."""
    for attribute in ("py_func", "_pyfunc", "__wrapped__"):
        function = getattr(thing, attribute, None)
        if isinstance(function, python_types.FunctionType):
            return function
    if isinstance(thing, StencilFunc):
        return thing.kernel_ir.func_id.func
    builder = getattr(thing, "gufunc_builder", None)
    if builder is not None:
        return python_function(builder)
    dispatcher = getattr(thing, "_dispatcher", None)
    return None if dispatcher is None else python_function(dispatcher)


@functools.lru_cache(maxsize=4096)
def _definition_line(file: str, first: int, name: str) -> int:
    for line in range(first, first + MAX_DECORATOR_LINES):
        text = linecache.getline(file, line)
        if not text:
            break
        found = _DEFINITION.match(text)
        if found is not None and found[1] == name:
            _FIRST_LINES[file, line] = first
            return line
    return first


_DEFINITION = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")
_FIRST_LINES: dict[tuple[str, int], int] = {}
"""(file, line of a ``def``) to ``co_firstlineno``, for those that were asked for."""


MAX_DECORATOR_LINES = 200
"""How far below the first decorator the ``def`` is looked for."""


def definition_line(code: python_types.CodeType) -> int:
    """Return the line of the ``def``; ``co_firstlineno`` is that of a decorator.

    Without source the first line has to do.
    """
    return _definition_line(code.co_filename, code.co_firstlineno, code.co_name)


def first_line(file: str, line: int) -> int:
    """Return ``co_firstlineno`` of a function that :func:`definition_line` placed.

    The line itself where it has seen no such function.
    """
    return _FIRST_LINES.get((file, line), line)


def is_loop_body(symbol: str) -> bool:
    """Tell whether a symbol is of the function Numba makes of a ``prange`` loop."""
    return "__numba_parfor_gufunc" in symbol


def source_range(thing: Any) -> tuple[str, int, int] | None:
    """Return file, first and last line of a function's source, decorators included.

    None for what has no Python function of its own: a loop or block that was lifted out
    of one, a ufunc of NumPy's.
    """
    function = python_function(thing)
    if function is None or isinstance(thing, (LiftedLoop, LiftedWith)):
        return None
    code = function.__code__
    return code.co_filename, code.co_firstlineno, max(_lines_of(code))


def _lines_of(code: python_types.CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for *_, line in code.co_lines() if line)
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            yield from _lines_of(constant)


# -- jitclass -------------------------------------------------------------------------


def _behind_jitclass(thing: Any, args: Any) -> Any:
    """Return the user's own method for a wrapper that jitclass generated.

    Either the dispatcher in ``jit_methods``, or a FunctionId where there is none
    (fields); anything else comes back unchanged.
    """
    if not isinstance(thing, Dispatcher):
        return thing
    function = thing.py_func
    code = function.__code__
    if code.co_filename != GENERATED_FILE:
        return thing
    if JITCLASS_CLASS in function.__globals__:
        return _constructor(function.__globals__[JITCLASS_CLASS].class_type, thing)
    if code.co_varnames[:1] == (JITCLASS_SELF,) and args:
        return jitclass_member(args[0], code.co_names[0], code.co_name) or thing
    return thing


def _constructor(class_type: Any, fallback: Any) -> Any:
    return class_type.jit_methods.get("__init__", fallback)


def jitclass_member(instance_type: Any, name: str, role: str) -> Any:
    """Return the dispatcher of a jitclass member, or a FunctionId for a field.

    Parameters
    ----------
    instance_type : numba ClassInstanceType
        Type of ``self``.
    name : str
        Attribute as written by the user.
    role : str
        Name of the generated function: method, accessor, mutator.
    """
    class_type = getattr(instance_type, "class_type", None)
    if class_type is None:
        return None
    for functions in (class_type.jit_methods, class_type.jit_static_methods):
        if name in functions:
            return functions[name]
    pair = class_type.jit_props.get(name, {})
    found = pair.get("set" if role == "mutator" else "get")
    if found is not None:
        return found
    file, line, module, prefix = _class_place(class_type)
    suffix = " [set]" if role == "mutator" else ""
    return FunctionId(module, f"{prefix}{name}{suffix}", file, line)


def _class_place(class_type: Any) -> tuple[str, int, str, str]:
    """Return (file, line, module, "Class.") by the class's first method."""
    for method in class_type.jit_methods.values():
        function = method.py_func
        prefix, _, _ = function.__qualname__.rpartition(".")
        code = function.__code__
        return code.co_filename, code.co_firstlineno, function.__module__, prefix + "."
    return "", 0, "", f"{class_type.class_name}."


def jitclass_role(
    dispatcher: Any,
) -> Literal["constructor", "method", "property"] | None:
    """Return what a wrapper generated by jitclass is for; None for anything else."""
    if not isinstance(dispatcher, Dispatcher):
        return None
    function = dispatcher.py_func
    code = function.__code__
    if code.co_filename != GENERATED_FILE:
        return None
    if JITCLASS_CLASS in function.__globals__:
        return "constructor"
    if code.co_varnames[:1] != (JITCLASS_SELF,):
        return None
    return "method" if code.co_name == "method" else "property"


def user_arguments(thing: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return argument types as the user's function declares them.

    Parameters
    ----------
    thing : object
        Dispatcher, or whatever else was compiled.
    args : tuple of numba types
        As in ``CompileResult.signature.args``.

    Notes
    -----
    Only the wrappers that jitclass generates differ: that of a constructor does not get
    ``self``, and that of a method gets everything in a star and leaves the defaults to
    the method. Of a static method, called on an instance, ``self`` is kept.
    """
    role = jitclass_role(thing)
    if role == "constructor":
        class_type = python_function(thing).__globals__[JITCLASS_CLASS].class_type
        return (class_type.instance_type, *args)
    args = star_arguments(thing, args)
    if role != "method":
        return args
    given = (*args[:-1], *args[-1].types)
    defaults = getattr(
        python_function(_behind_jitclass(thing, args)), "__defaults__", ()
    )
    n_parameters = len(parameter_names(thing, args))
    missing = min(max(0, n_parameters - len(given)), len(defaults or ()))
    return (*given, *map(types.Omitted, defaults[-missing:] if missing else ()))


def star_arguments(thing: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Mark the tuple that a ``*args`` takes, which reads like any tuple otherwise.

    Numba does so itself for calls from compiled code, but not for those from Python.
    The wrappers that jitclass makes of methods are of this kind.

    Parameters
    ----------
    thing : object
        Dispatcher, or the Python function itself.
    args : tuple of numba types
        As in ``CompileResult.signature.args``.
    """
    is_function = isinstance(thing, python_types.FunctionType)
    function = thing if is_function else python_function(thing)
    if function is None or not function.__code__.co_flags & inspect.CO_VARARGS:
        return args
    star = args[-1] if len(args) > function.__code__.co_argcount else None
    if not isinstance(star, types.Tuple | types.UniTuple):
        return args
    return (*args[:-1], types.StarArgTuple(star.types))


# -- facts about one function ---------------------------------------------------------


def parameter_names(thing: Any, args: Any = None) -> tuple[str, ...]:
    """Return the parameter names in the order of a signature; a star has its star.

    With the argument types, a wrapper that jitclass generated has its method's names.
    """
    thing = _behind_jitclass(thing, args)
    function = python_function(thing)
    if function is None:
        return ()
    code = function.__code__
    positional = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:positional]
    if code.co_flags & inspect.CO_VARARGS:
        return (*names, f"*{code.co_varnames[positional]}")
    return tuple(names)


def dispatcher_info(thing: Any, identity: FunctionId) -> DispatcherInfo:
    """Collect what is known about a function apart from its overloads."""
    options = dict(getattr(thing, "targetoptions", None) or {})
    function = python_function(thing)
    cache = getattr(thing, "_cache", None)
    enabled = cache is not None and type(cache).__name__ != "NullCache"
    stats = getattr(thing, "stats", None)
    closure = tuple(_closure_functions(function))
    overloads = getattr(thing, "overloads", None) or {}
    return DispatcherInfo(
        function=identity,
        kind=_kind(thing),
        options=tuple(
            (name, str(value))
            for name, value in sorted(options.items())
            if name not in ("nopython", "boundscheck") or not value
        ),
        n_overloads=len(overloads),
        eager=isinstance(thing, Dispatcher)
        and not getattr(thing, "_can_compile", True),
        inline=is_always_inlined(thing),
        cache_enabled=enabled,
        cache_hits=sum(stats.cache_hits.values()) if enabled and stats else 0,
        cache_misses=sum(stats.cache_misses.values()) if enabled and stats else 0,
        cache_reason=_cache_reason(overloads, closure) if enabled else "",
        closure_functions=closure,
        defined_in=_enclosing(function),
    )


def _kind(thing: Any) -> str:
    for cls, word in (
        (DUFunc, "vectorize"),
        (GUFunc, "guvectorize"),
        (np.ufunc, "ufunc"),
        (CFunc, "cfunc"),
        (StencilFunc, "stencil"),
    ):
        if isinstance(thing, cls):
            return word
    return "jitclass" if jitclass_role(thing) else "dispatcher"


def _closure_functions(function: Any) -> Iterator[str]:
    for cell, name in zip(
        getattr(function, "__closure__", None) or (),
        function.__code__.co_freevars if function is not None else (),
        strict=False,
    ):
        try:
            value = cell.cell_contents
        except ValueError:  # an empty cell: the name is not bound yet
            continue
        if isinstance(value, _DispatcherBase):
            yield name


def _cache_reason(overloads: Any, closure: tuple[str, ...]) -> str:
    if closure:
        names = ", ".join(f"`{name}`" for name in closure)
        return (
            f"it closes over the compiled function {names}, whose pickled form differs "
            "in every process, so the cache key never matches"
        )
    for cres in list(overloads.values()):
        if any(not lifted.can_cache for lifted in getattr(cres, "lifted", None) or ()):
            return "it contains lifted loops, which Numba does not cache"
        if getattr(cres.library, "has_dynamic_globals", False):
            return "it uses dynamic globals (such as ctypes pointers or large arrays)"
    return ""


def _enclosing(function: Any) -> str:
    qualname = getattr(function, "__qualname__", "")
    outer, locals_, _ = qualname.rpartition(".<locals>.")
    return str(outer) if locals_ else ""


def jit_is_disabled() -> bool:
    """Tell whether NUMBA_DISABLE_JIT is in force."""
    return bool(getattr(config, "DISABLE_JIT", False))


def threading_layer() -> str:
    """Return the threading layer in use, or "not started"."""
    try:
        return str(parallel.threading_layer())
    except ValueError:
        return "not started"


def version() -> str:
    """Return Numba's version."""
    return str(numba.__version__)


def num_threads_setting() -> int:
    """Return how many threads Numba was started with."""
    return int(getattr(config, "NUMBA_NUM_THREADS", 1))


def num_threads_function() -> int:
    """Return the address of the C function that reads the thread count, or 0.

    Numba gives LLVM the symbol when the threading layer is started, which compiling
    parallel code does.
    """
    return int(llvm.address_of_symbol("get_num_threads") or 0)


def is_in_decorator(thing: Any) -> bool:
    """Tell whether the decorator of a dispatcher is compiling the signatures given."""
    name = getattr(python_function(thing), "__name__", "")
    return typeinfer._temporary_dispatcher_map.get(name) is thing


def is_always_inlined(thing: Any) -> bool:
    """Tell whether a dispatcher has ``inline="always"``."""
    options = getattr(thing, "targetoptions", None) or {}
    return bool(options.get("inline") == "always")


def recursive_callees(thing: Any, cres: Any) -> tuple[Any, ...]:
    """Return the dispatchers that an overload calls while they call it.

    Type inference marks such calls. Code from the cache has lost the marks; there the
    function is taken to recurse if it names itself.
    """
    typemap = getattr(getattr(cres, "type_annotation", None), "typemap", None)
    if typemap is None:
        return (thing,) if calls_itself(thing) else ()
    return tuple(
        {
            id(type_): type_.dispatcher_type.dispatcher
            for type_ in typemap.values()
            if isinstance(type_, types.RecursiveCall)
        }.values()
    )


def calls_itself(thing: Any) -> bool:
    """Tell whether a dispatcher's function refers to the dispatcher by name."""
    function = python_function(thing)
    if function is None:
        return False
    code = function.__code__
    if any(function.__globals__.get(name) is thing for name in code.co_names):
        return True
    for cell in function.__closure__ or ():
        try:
            if cell.cell_contents is thing:
                return True
        except ValueError:  # an empty cell: the name is not bound yet
            continue
    return False


def kernel_symbol(cres: Any) -> str:
    """Return the name under which LLVM knows an overload's kernel; "" if there is none.

    Parameters
    ----------
    cres : CompileResult
        Compiled or loaded from cache.
    """
    return str(getattr(getattr(cres, "fndesc", None), "llvm_func_name", ""))


def target_text() -> str:
    """Return all that machine code depends on besides its source, as one line.

    CPU and features as in the key of Numba's own cache (``magic_tuple``), features
    hashed because there are 200 of them; optimization settings; versions.
    """
    triple, cpu, features = cpu_target.target_context._internal_codegen.magic_tuple()
    digest = hashlib.sha256(str(features).encode()).hexdigest()[:12]
    settings = [f"{name.lower()}={_setting(name)}" for name in _CODE_SETTINGS]
    versions = f"numba={numba.__version__} llvmlite={llvmlite.__version__}"
    return f"{triple} {cpu} features={digest} {' '.join(settings)} {versions}"


def _setting(name: str) -> str:
    value = getattr(config, name, None)
    # Levels of optimization are numbers of a class of their own.
    return str(int(value)) if isinstance(value, int) else str(value)


_CODE_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "BOUNDSCHECK")
"""Of numba.core.config: what changes the code of every function."""


def jit_engine() -> Any:
    """Return Numba's wrapper around the one MCJIT engine of the CPU target.

    Ask ``is_symbol_defined`` before ``get_function_address``: LLVM ends the process on
    an unknown name.
    """
    return cpu_target.target_context._internal_codegen._engine


def linked_libraries(library: Any) -> tuple[Any, ...]:
    """Return the code libraries that ``library`` calls into."""
    return tuple(getattr(library, "_linking_libraries", None) or ())


def overload_kind(dispatcher: Any, cres: Any) -> OverloadKind:
    """Return what kind of thing an overload of ``dispatcher`` is."""
    if isinstance(dispatcher, LiftedLoop):
        return "lifted loop"
    if isinstance(dispatcher, ObjModeLiftedWith):
        return "objmode body"
    role = jitclass_role(dispatcher)
    if role:
        return role
    if isinstance(cres.signature.return_type, types.Generator):
        return "generator"
    return "object mode" if cres.objectmode else "function"
