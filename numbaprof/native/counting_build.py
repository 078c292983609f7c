"""A second build of a dispatcher and all it calls, which counts the lines it runs.

The build goes through Numba's own pipeline with two changes, both in force only inside
:class:`CountingBuild` and while the compiler lock is held:

- ``types.Dispatcher`` leads to a *counting twin* in place of every dispatcher of the
  user's that the compiler meets. All of typing and lowering goes through it, so callees
  and recursion are counted as well, and no overload, library or cache of the user's is
  written to or read. Numba's own functions are twinned only where they take a function
  as an argument; else what they compiled for it would call counted code ever after.
- ``Interpreter`` is :class:`~numbaprof.native.line_counters.CountingInterpreter`.

A twin has the options of its dispatcher, but for ``cache`` and ``parallel``: a parallel
region becomes a plain loop, so that counting needs no atomic operations. The counts are
the same.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba.core import interpreter, types
from numba.core.compiler import CompilerBase
from numba.core.dispatcher import OmittedArg
from numba.core.registry import CPUDispatcher
from numba.core.typing.templates import fold_arguments

from numbaprof.native import hooks
from numbaprof.native.line_counters import CountedCode, CountingInterpreter
from numbaprof.native.numba_api import (
    GeneratorObject,
    compiler_lock,
    forget_dispatcher,
    helper_library,
    is_internal,
    jitclass_role,
)
from numbaprof.native.twin_compiler import events_unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Counted",
    "CountingBuild",
    "is_compiled_generator",
    "kept_random_state",
    "why_not_countable",
]

UNCOUNTED_CODE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""Code objects that no line profiler takes for part of the function around them."""

_kept: list[Any] = []
"""Cells that machine code writes into, which Numba does not free either."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of one function within one overload."""

    dispatcher: Any
    """The user's dispatcher whose build this belongs to."""
    args: tuple[Any, ...]
    """Argument types of the overload (numba types)."""
    code: CountedCode


class CountingBuild:
    """The counting twins of one dispatcher and of those it calls.

    Parameters
    ----------
    dispatcher : CPUDispatcher
        The user's; nothing of it is changed.
    """

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher
        self.counted: list[Counted] = []
        self._twins: dict[int, Any] = {}
        self._originals: dict[int, Any] = {}
        # One entry per compilation under way; None for what is not a twin's.
        self._compiling: list[tuple[Any, tuple[Any, ...]] | None] = []

    def compile(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any]:
        """Compile for arguments; return what runs the build on them.

        Raises
        ------
        numba.core.errors.NumbaError
            What compiling the function itself would raise.
        UnsupportedError
            Some function enters object mode.
        """
        with self._redirected():
            twin = self._twin(self.dispatcher)
            if not twin._can_compile:
                return lambda: twin(*args, **kwargs)
            folded = _fold(twin, args, kwargs)
            entry_point = twin._compile_for_args(*folded)
        return lambda: entry_point(*folded)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each kind of code that runs uncounted."""
        by_address = sorted(
            {
                original.py_func.__qualname__
                for original, cres in self._compiled()
                if any(map(_is_pointer, cres.type_annotation.typemap.values()))
            }
        )
        if not by_address:
            return ()
        return (
            f"{', '.join(by_address)} calls functions by their address, as they came "
            "in a list, a tuple or a typed argument; what they run is not counted",
        )

    def release(self) -> None:
        """Take the twins out of Numba's registries, where sessions would see them."""
        for twin in self._twins.values():
            forget_dispatcher(twin)

    def _compiled(self) -> Iterator[tuple[Any, Any]]:
        for twin in self._twins.values():
            for cres in twin.overloads.values():
                yield self._originals[id(twin)], cres

    # -- twins

    def _choose(self, dispatcher: Any, args: tuple[Any, ...] = ()) -> Any:
        """Return what stands in for a dispatcher when it is called with ``args``."""
        if type(dispatcher) is not CPUDispatcher or id(dispatcher) in self._originals:
            return dispatcher
        if is_internal(dispatcher.py_func.__module__) and not any(
            _is_function(arg) for arg in args
        ):
            return dispatcher
        return self._twin(dispatcher)

    def _twin(self, dispatcher: Any) -> Any:
        twin = self._twins.get(id(dispatcher))
        if twin is None:
            pipeline = dispatcher._compiler.pipeline_class
            options = {
                name: value
                for name, value in dispatcher.targetoptions.items()
                if name != "parallel"
            }
            twin = CPUDispatcher(
                dispatcher.py_func,
                locals=dispatcher.locals,
                targetoptions=options,
                pipeline_class=type(
                    pipeline.__name__,
                    (pipeline,),
                    # In a tuple: found on an instance, a dispatcher would be bound to
                    # it as a method is.
                    {"numbaprof_twin_of": (dispatcher,)},
                ),
            )
            self._twins[id(dispatcher)] = twin
            self._originals[id(twin)] = dispatcher
            if not dispatcher._can_compile:
                # Eager: calls are cast to the signatures there are.
                for signature in dispatcher.nopython_signatures:
                    twin.compile(signature)
                twin.disable_compile()
        return twin

    def _wanted(self, func_id: Any) -> CountedCode | None:
        """Return counters for a function about to be translated, or None."""
        if not self._compiling or self._compiling[-1] is None:
            return None
        dispatcher, args = self._compiling[-1]
        function, code = func_id.func, func_id.code
        is_its_own = code is dispatcher.py_func.__code__
        if is_internal(function.__module__) or jitclass_role(dispatcher):
            return None
        if code.co_name in UNCOUNTED_CODE or (
            code.co_name == "<lambda>" and not is_its_own
        ):
            return None
        counted = CountedCode(function, code)
        _kept.append(counted.cells)
        self.counted.append(Counted(dispatcher, args, counted))
        return counted

    # -- what is redirected meanwhile

    @contextmanager
    def _redirected(self) -> Iterator[None]:
        cls = types.Dispatcher
        lookup = vars(cls)["dispatcher"]
        compile_extra = CompilerBase.compile_extra

        def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
            given = (*args, *dict(kws).values())
            dispatcher = choose(lookup.fget(self), given)
            template, pysig, args, kws = dispatcher.get_call_template(args, kws)
            signature = template(context).apply(args, kws)
            return signature and signature.replace(pysig=pysig)

        def get_overload(self: Any, signature: Any) -> Any:
            dispatcher = choose(lookup.fget(self), signature.args)
            return dispatcher.get_overload(signature.args)

        def watched(pipeline: Any, function: Any) -> Any:
            twin_of = getattr(pipeline, "numbaprof_twin_of", None)
            args = tuple(pipeline.state.args)
            self._compiling.append(None if twin_of is None else (twin_of[0], args))
            try:
                return compile_extra(pipeline, function)
            finally:
                self._compiling.pop()

        choose = self._choose
        counting = type(
            "Interpreter",
            (CountingInterpreter,),
            {"wanted": staticmethod(self._wanted)},
        )
        # Whoever compiles holds this lock, so no other thread gets to see any of it.
        # Nor do sessions and listeners: this is no compilation of the program's.
        with (
            compiler_lock,
            hooks.muted(),
            events_unheard(),
            _replaced(cls, "dispatcher", property(lambda t: choose(lookup.fget(t)))),
            _replaced(cls, "get_call_type", get_call_type),
            _replaced(cls, "get_overload", get_overload),
            _replaced(CompilerBase, "compile_extra", watched),
            _replaced(interpreter, "Interpreter", counting),
        ):
            yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _is_function(type_: Any) -> bool:
    """Tell whether an argument of this type can be called."""
    if isinstance(type_, types.BaseTuple):
        return any(map(_is_function, getattr(type_, "types", ())))
    return isinstance(type_, types.Dispatcher)


def _fold(
    dispatcher: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments by position, as Numba's dispatcher passes them."""
    folded = fold_arguments(
        dispatcher._compiler.pysig,
        args,
        kwargs,
        lambda index, parameter, value: value,
        lambda index, parameter, default: OmittedArg(default),
        lambda index, parameter, values: tuple(values),
    )
    return tuple(folded)


def _is_pointer(type_: Any) -> bool:
    return isinstance(type_, types.FunctionType)


def is_compiled_generator(value: Any) -> bool:
    """Tell whether a value is what a jitted generator function returns."""
    return isinstance(value, GeneratorObject)


def why_not_countable(thing: Any) -> str:
    """Return why the lines of ``thing`` cannot be counted, or "" if they can."""
    name = getattr(thing, "__qualname__", None) or repr(thing)
    if not isinstance(thing, CPUDispatcher):
        function = getattr(thing, "py_func", None) or getattr(thing, "_pyfunc", None)
        if function is None and inspect.isfunction(thing):
            return (
                f"{name} is a Python function; count_hits() counts jitted functions, "
                "line_profiler those of Python"
            )
        return (
            f"{name} is a {type(thing).__name__}; only functions made by @jit and "
            "@njit can be built again with counters; jit the function itself"
        )
    if thing.targetoptions.get("forceobj"):
        return (
            f"{name} is compiled with forceobj=True: Python runs it, object by object; "
            "line_profiler counts the lines of its py_func"
        )
    if jitclass_role(thing):
        return f"{name} is made by @jitclass; count a function that calls it"
    return ""


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Leave the random numbers of compiled code, in this thread, where they were."""
    library = helper_library
    pointers = (library.rnd_get_np_state_ptr(), library.rnd_get_py_state_ptr())
    states = [library.rnd_get_state(pointer) for pointer in pointers]
    try:
        yield
    finally:
        for pointer, state in zip(pointers, states, strict=True):
            library.rnd_set_state(pointer, state)
