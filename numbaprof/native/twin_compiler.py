"""Compiles a function once more, with a line table, and nobody notices.

A twin is made by a fresh dispatcher of the same Python function with the same options.
While it compiles, the compiler meets twins in the place of all other dispatchers of the
user as well: typing and lowering both ask the property ``types.Dispatcher.dispatcher``,
which is replaced for this thread. So callees get line tables too, recursion included,
and no dispatcher of the user gets an overload. Numba's own functions, compiled long
ago, are linked as they are: LLVM gives instructions without a line that it inlines the
line of the call, which is the user's.

What is kept from noticing: sessions (their hooks are muted in this thread), listeners
of Numba's events, warnings, and the registries that a new dispatcher enters.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba.core import event, types
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher, LiftedCode
from numba.core.registry import CPUDispatcher
from numba.np.ufunc import ufuncbuilder
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc
from numba.np.ufunc.ufuncbuilder import GUFuncBuilder, UFuncDispatcher

from numbaprof.errors import UnsupportedError
from numbaprof.native import hooks, numba_api
from numbaprof.native.linetable import LineTables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "PRIVATE_NAMES",
    "Overload",
    "TwinCompiler",
    "events_unheard",
    "overloads_by_symbol",
]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba.core.dispatcher:LiftedCode",
    "numba.core.event:broadcast",
    "numba.core.registry:CPUDispatcher",
    "numba.core.types:Dispatcher.dispatcher",
    "numba.np.ufunc.ufuncbuilder:GUFuncBuilder.build",
    "numba.np.ufunc.ufuncbuilder:UFuncDispatcher.compile",
    "numba.np.ufunc.ufuncbuilder:_build_element_wise_ufunc_wrapper",
)
"""What this module touches of Numba, as in :data:`numba_api.PRIVATE_NAMES`. Attributes
of objects (``Dispatcher._compiler``, ``CFunc._wrapper_name``, ``DUFunc._dispatcher``,
``GUFunc.gufunc_builder._cres``) are tested by the twins of each kind."""

UFUNC_PREFIX = "__ufunc__."
GUFUNC_PREFIX = "__gufunc__."
"""Before a kernel's symbol, that of the loop around it (``wrappers.py``)."""


@dataclass(frozen=True, eq=False)
class Overload:
    """Compiled code, and what it was compiled from."""

    thing: Any
    """Dispatcher, ufunc or C callback."""
    args: tuple[Any, ...]
    cres: Any
    """Compile result; None for a C callback, which does not keep it."""
    symbol: str
    """Of the kernel."""

    @property
    def function(self) -> Any:
        """The Python function."""
        return numba_api.python_function(self.thing)

    @property
    def is_users(self) -> bool:
        """Whether it is no function of Numba's own."""
        return _is_users(self.function)


def overloads_by_symbol(things: Iterable[Any]) -> dict[str, Overload]:
    """Return every compiled overload by the symbols that are its own.

    Parameters
    ----------
    things : iterable
        Dispatchers of any kind, DUFuncs, GUFuncs, C callbacks; others are passed over.
    """
    found: dict[str, Overload] = {}
    for thing in things:
        for overload in _overloads(thing):
            for symbol in _own_symbols(thing, overload.symbol):
                found[symbol] = overload
    return found


def _overloads(thing: Any) -> Iterator[Overload]:
    is_callback, is_gufunc = isinstance(thing, CFunc), isinstance(thing, GUFunc)
    is_ufunc = isinstance(thing, DUFunc)
    if is_callback:
        name = str(thing._wrapper_name or "")
        if name:
            yield Overload(thing, thing._sig.args, None, name.removeprefix("cfunc."))
        return
    if is_gufunc:
        results = thing.gufunc_builder._cres.values()
    elif is_ufunc:
        results = thing._dispatcher.overloads.values()
    elif isinstance(thing, Dispatcher | LiftedCode):
        results = thing.overloads.values()
    else:
        return
    for cres in list(results):
        symbol = cres.fndesc.llvm_func_name
        yield Overload(thing, tuple(cres.signature.args), cres, symbol)


def _own_symbols(thing: Any, kernel: str) -> tuple[str, ...]:
    if isinstance(thing, DUFunc):
        return kernel, UFUNC_PREFIX + kernel
    if isinstance(thing, GUFunc):
        return kernel, GUFUNC_PREFIX + kernel
    return (kernel,)


def _is_exactly(thing: Any, cls: type) -> bool:
    """Tell whether it is of this class; a subclass may compile in ways of its own."""
    return type(thing) is cls


def _is_users(function: Any) -> bool:
    if function is None:
        return False
    own = numba_api.is_own_file(function.__code__.co_filename)
    return not (own or numba_api.is_internal(function.__module__))


class TwinCompiler:
    """Makes twins within a ``with`` block.

    Attributes
    ----------
    symbols : dict
        Symbol of each kernel or wrapper compiled before, to that of its twin.

    Notes
    -----
    Holds the compiler lock for the whole block. Other threads are not affected but by
    waiting for it.
    """

    def __init__(self) -> None:
        self.symbols: dict[str, str] = {}
        self._twins: dict[int, tuple[Any, Any]] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> TwinCompiler:
        with contextlib.ExitStack() as stack:
            stack.enter_context(numba_api.compiler_lock)
            stack.enter_context(hooks.muted())
            stack.enter_context(events_unheard())
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            stack.enter_context(LineTables(cached=True))
            stack.enter_context(_twins_in_place(self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._collect_symbols()
        finally:
            self._stack.close()
            for _, twin in self._twins.values():
                for cres in twin.overloads.values():
                    # Pickled into the code, so Numba keeps the most recent ones alive.
                    for lifted in getattr(cres, "lifted", None) or ():
                        numba_api.forget_dispatcher(lifted)
                numba_api.forget_dispatcher(twin)
            self._twins.clear()

    def libraries(self) -> set[Any]:
        """Return the code libraries of all twins compiled so far."""
        return {
            cres.library
            for _, twin in self._twins.values()
            for cres in twin.overloads.values()
        }

    def compile(self, overload: Overload) -> None:
        """Compile the twin of an overload; its symbols are known after the block.

        Raises
        ------
        UnsupportedError
            It is of a kind that cannot be compiled by itself.
        Exception
            Whatever compiling raises.
        """
        thing = overload.thing
        if isinstance(thing, DUFunc):
            self._compile_ufunc(overload)
        elif isinstance(thing, GUFunc):
            self._compile_gufunc(overload)
        elif isinstance(thing, CFunc):
            self._compile_callback(overload)
        elif _is_exactly(thing, CPUDispatcher):
            self.twin(thing).compile(overload.args)
        elif isinstance(thing, LiftedCode):
            raise UnsupportedError("a lifted loop or objmode block, made by its caller")
        else:
            raise UnsupportedError(f"a {type(thing).__name__} has no twin")

    def twin(self, dispatcher: Any) -> Any:
        """Return the dispatcher to use in the place of another one."""
        if not _is_exactly(dispatcher, CPUDispatcher):
            return dispatcher
        known = self._twins.get(id(dispatcher))
        if known is not None:
            return known[1]
        if not _is_users(dispatcher.py_func):
            return dispatcher
        made: Any = CPUDispatcher(
            dispatcher.py_func,
            locals=dispatcher.locals,
            targetoptions=dispatcher.targetoptions,
            pipeline_class=dispatcher._compiler.pipeline_class,
        )
        self._twins[id(dispatcher)] = dispatcher, made
        self._twins[id(made)] = made, made
        return made

    def _compile_ufunc(self, overload: Overload) -> None:
        original = overload.thing._dispatcher
        dispatcher = UFuncDispatcher(
            original.py_func, dict(original.locals), dict(original.targetoptions)
        )
        signature = overload.cres.signature
        cres = dispatcher.compile(signature, **original.targetoptions)
        ufuncbuilder._build_element_wise_ufunc_wrapper(cres, signature)
        self._pair(overload, cres.fndesc.llvm_func_name)

    def _compile_gufunc(self, overload: Overload) -> None:
        original = overload.thing.gufunc_builder
        builder = GUFuncBuilder(
            original.py_func,
            original.signature,
            targetoptions=dict(original.targetoptions),
        )
        cres = builder.add(overload.cres.signature)
        builder.build(cres)
        self._pair(overload, cres.fndesc.llvm_func_name)

    def _compile_callback(self, overload: Overload) -> None:
        original = overload.thing
        compiler = original._compiler
        made: Any = CFunc(
            original._pyfunc,
            (original._sig.args, original._sig.return_type),
            compiler.locals,
            compiler.targetoptions,
            pipeline_class=compiler.pipeline_class,
        )
        made.compile()
        self._pair(overload, made._wrapper_name.removeprefix("cfunc."))

    def _pair(self, overload: Overload, symbol: str) -> None:
        own = _own_symbols(overload.thing, overload.symbol)
        twins = _own_symbols(overload.thing, symbol)
        self.symbols.update(zip(own, twins, strict=True))

    def _collect_symbols(self) -> None:
        """Pair the overloads of all twins, those of callees too, with the originals."""
        for original, twin in self._twins.values():
            if original is twin:
                continue
            for args, cres in list(twin.overloads.items()):
                known = original.overloads.get(args)
                if known is not None:
                    before = known.fndesc.llvm_func_name
                    self.symbols[before] = cres.fndesc.llvm_func_name


@contextlib.contextmanager
def _twins_in_place(compiler: TwinCompiler) -> Iterator[None]:
    """Let the compiler meet twins in this thread."""
    owner: Any = types.Dispatcher
    original = vars(owner)["dispatcher"]
    here = threading.get_ident()

    def dispatcher(type_: Any) -> Any:
        found = original.__get__(type_)
        return compiler.twin(found) if threading.get_ident() == here else found

    owner.dispatcher = property(dispatcher)
    try:
        yield
    finally:
        owner.dispatcher = original


@contextlib.contextmanager
def events_unheard() -> Iterator[None]:
    """Keep Numba from telling listeners what happens in this thread."""
    original: Any = event.broadcast
    here = threading.get_ident()

    def broadcast(happened: Any) -> None:
        if threading.get_ident() != here:
            original(happened)

    event.broadcast = broadcast
    try:
        yield
    finally:
        event.broadcast = original
