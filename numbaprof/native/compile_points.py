"""The places where Numba compiles and where it loads compiled code from its cache.

Numba announces what a dispatcher compiles with the event ``numba:compile``, and nothing
else: not what it loads, and not the kinds that have no dispatcher. For those, methods
are hooked. One table, :func:`_points`, says which:

=========================  ==================================================
``numba:compile``          dispatchers, lifted loops, objmode bodies, @overload
``numba:run_pass``         a sign that compiling has begun (below)
``Cache.load_overload``    every load, of every kind
``add_overload``           whose load it was
``_compile_for_argtys``    @vectorize, ``target="cpu"``
``_BaseUFuncBuilder.add``  @vectorize(target="parallel"), @guvectorize
``...Builder.build``       their loop wrappers, compiled when all kernels are there
``CFunc.compile``          @cfunc
``_stencil_wrapper``       @stencil
=========================  ==================================================

Most of these methods first wait for the compiler lock and then may find that there is
nothing to do. So their beginning is only *expected*: time starts with the first pass or
the first look into the cache, both of which happen under the lock, and when neither
comes, nothing has been compiled.

Callbacks run in whatever thread compiles, with the compiler lock held by it, and must
not compile anything themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from numba.core import event as numba_event
from numba.core.caching import Cache
from numba.core.ccallback import CFunc
from numba.core.dispatcher import (
    LiftedCode,
    ObjModeLiftedWith,
    _DispatcherBase,
)
from numba.core.errors import ForceLiteralArg
from numba.core.sigutils import normalize_signature
from numba.np.ufunc.dufunc import DUFunc
from numba.np.ufunc.gufunc import GUFunc
from numba.np.ufunc.parallel import ParallelGUFuncBuilder, ParallelUFuncBuilder
from numba.np.ufunc.ufuncbuilder import (
    GUFuncBuilder,
    UFuncBuilder,
    _BaseUFuncBuilder,
)
from numba.stencils.stencil import StencilFunc

from numbaprof.native import numba_api
from numbaprof.native.hooks import CallHook, HookErrors

__all__ = ["PRIVATE_NAMES", "CompilePoints", "Outcome", "Watcher", "Work"]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba.core.caching:Cache.load_overload",
    "numba.core.ccallback:CFunc._compile_uncached",
    "numba.core.ccallback:CFunc.compile",
    "numba.core.dispatcher:LiftedCode",
    "numba.core.dispatcher:ObjModeLiftedWith",
    "numba.core.dispatcher:_DispatcherBase.add_overload",
    "numba.core.errors:ForceLiteralArg",
    "numba.core.sigutils:normalize_signature",
    "numba.np.ufunc.dufunc:DUFunc._compile_for_argtys",
    "numba.np.ufunc.gufunc:GUFunc._compile_for_argtys",
    "numba.np.ufunc.gufunc:GUFunc.add",
    "numba.np.ufunc.gufunc:GUFunc.build_ufunc",
    "numba.np.ufunc.parallel:ParallelGUFuncBuilder.build",
    "numba.np.ufunc.parallel:ParallelUFuncBuilder.build",
    "numba.np.ufunc.ufuncbuilder:GUFuncBuilder.build",
    "numba.np.ufunc.ufuncbuilder:GUFuncBuilder.build_ufunc",
    "numba.np.ufunc.ufuncbuilder:UFuncBuilder.build",
    "numba.np.ufunc.ufuncbuilder:UFuncBuilder.build_ufunc",
    "numba.np.ufunc.ufuncbuilder:_BaseUFuncBuilder.add",
    "numba.stencils.stencil:StencilFunc._stencil_wrapper",
)
"""What this module touches of Numba, as in :data:`numba_api.PRIVATE_NAMES`."""

COMPILE_EVENT = "numba:compile"
PASS_EVENT = "numba:run_pass"
STENCIL_TYPES_AT = 6
"""``(self, result, sigret, return_type, typemap, calltypes, *types)``."""

Outcome = Literal["compile", "cache_load"]
Lookups = Literal["apart", "decide", "part"]
"""Looks into the cache during some work: events of their own, or a hit makes the whole
work a load, or they are a part of the work whatever they find."""


@dataclass(frozen=True, slots=True)
class Work:
    """What was compiled or loaded: everything that is known only at its end."""

    thing: Any
    """Dispatcher, ufunc, builder of one, cfunc or stencil, for the registry; or the
    Python function, when a load does not yet know for whom it was."""
    args: Any
    """Argument types, a tuple; the signature as text when it could not be read."""
    kind: str
    passes: tuple[tuple[str, int], ...] = ()
    error: str = ""


Describe = Callable[[], Work]
"""Makes a :class:`Work`; called only for what turns out to be an event."""


class Watcher(Protocol):
    """Who wants to know. A token is any object; the same one comes at the end."""

    def begin(
        self, token: object, outcome: Outcome | None, lookups: Lookups = "apart"
    ) -> None:
        """Take note that work begins; with None it is only expected to.

        A look into the cache by work that is only expected decides what it is.
        """

    def end(self, token: object, describe: Describe, failed: bool) -> None:
        """Take note that work ends; if it never really began, nothing happened."""

    def advance(self) -> None:
        """Take note that what this thread expected is now being compiled."""

    def add_passes(self, passes: tuple[tuple[str, int], ...]) -> None:
        """Take the pass times of the innermost work of this thread."""

    def look_up(self, token: object) -> None:
        """Take note that a look into the cache begins."""

    def looked_up(self, token: object, result: Any, describe: Describe) -> None:
        """Take note that the look is over; ``result`` is None for a miss."""

    def lookup_failed(self, token: object, describe: Describe) -> None:
        """Take note that the look ended with an exception."""

    def claim(self, result: Any, dispatcher: Any, kind: str) -> None:
        """Take note that what was just loaded goes into this dispatcher."""

    def same_function(self, thing: Any, known: Any) -> None:
        """Take note that both stand for one function, which ``known`` names."""


class CompilePoints:
    """Listens at every place, and tells one watcher.

    Parameters
    ----------
    watcher : Watcher
        Who is told.
    errors : HookErrors
        Where its errors go; none reaches the program.
    """

    def __init__(self, watcher: Watcher, errors: HookErrors) -> None:
        self._hooks = [
            CallHook(owner, name, before, after, errors=errors)
            for owner, name, before, after in _points(watcher)
        ]
        self._listeners: list[tuple[str, Any]] = [
            (COMPILE_EVENT, _CompileListener(watcher, errors)),
            (PASS_EVENT, _PassListener(watcher, errors)),
        ]
        self._registered: list[tuple[str, Any]] = []

    def install(self) -> None:
        """Start to listen; on any error nothing stays installed.

        Raises
        ------
        AttachError, UnsupportedError
            As in :meth:`CallHook.install`.
        """
        try:
            for hook in self._hooks:
                hook.install()
            for kind, listener in self._listeners:
                numba_event.register(kind, listener)
                self._registered.append((kind, listener))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> tuple[str, ...]:
        """Stop listening; return a reason for each place not exactly restored."""
        reasons = []
        while self._registered:
            kind, listener = self._registered.pop()
            try:
                numba_event.unregister(kind, listener)
            except ValueError:
                reasons.append(f"somebody unregistered our listener of {kind}")
        for hook in reversed(self._hooks):
            reason = hook.restore()
            if reason is not None:
                reasons.append(reason)
        return tuple(reasons)


# --------------------------------------------------------------------------- listeners


class _Listener(numba_event.Listener):
    """A listener whose errors stay with us; Numba would pass them to the program."""

    def __init__(self, watcher: Watcher, errors: HookErrors) -> None:
        self.watcher = watcher
        self.errors = errors

    def notify(self, event: Any) -> None:
        try:
            super().notify(event)  # type: ignore[no-untyped-call]
        except Exception as error:
            self.errors.add(f"listener of {event.kind}", error)


class _CompileListener(_Listener):
    """``numba:compile``: both events of one compilation carry the same ``data``.

    A function that wants arguments as literals (``numba.literally``) says so by failing
    with ForceLiteralArg, and is compiled again with them. That is work, not a failure,
    and Numba repeats it in every call.
    """

    def on_start(self, event: Any) -> None:
        self.watcher.begin(event.data, "compile")

    def on_end(self, event: Any) -> None:
        # Event.is_failed says the opposite of its name (numba/core/event.py).
        details = event._exc_details
        error = (details[1] or details[0]) if details else None
        data = event.data
        asks_for_literals = isinstance(error, ForceLiteralArg)

        def describe() -> Work:
            dispatcher, args = data["dispatcher"], tuple(data["args"])
            cres = dispatcher.overloads.get(args)
            args = numba_api.user_arguments(dispatcher, args)
            if asks_for_literals:
                return Work(dispatcher, args, "literal request")
            if error is not None:
                return Work(
                    dispatcher, args, kind_of(dispatcher), (), error_text(error)
                )
            return Work(dispatcher, args, kind_of(dispatcher), passes_of(cres))

        self.watcher.end(data, describe, not (error is None or asks_for_literals))


class _PassListener(_Listener):
    """``numba:run_pass``, in every path to the compiler, always under its lock."""

    def on_start(self, event: Any) -> None:
        self.watcher.advance()

    def on_end(self, event: Any) -> None:
        pass


# ------------------------------------------------------------------------------- hooks

Point = tuple[type, str, "Callable[..., object] | None", "Callable[..., object] | None"]


def _points(watcher: Watcher) -> list[Point]:
    """Return (class, method, before, after) of every hook."""

    def work(
        owner: type,
        name: str,
        make: Callable[..., Work],
        outcome: Outcome | None = None,
        lookups: Lookups = "apart",
    ) -> Point:
        def before(args: Any, kwargs: Any) -> None:
            watcher.begin(args, outcome, lookups)

        def after(args: Any, kwargs: Any, result: Any, failed: bool) -> None:
            def describe() -> Work:
                if failed:
                    return make(args, kwargs, None, error_text(result))
                return make(args, kwargs, result, "")

            watcher.end(args, describe, failed)

        return owner, name, before, after

    def look_up(args: Any, kwargs: Any) -> None:
        watcher.look_up(args)

    def looked_up(args: Any, kwargs: Any, result: Any, failed: bool) -> None:
        def describe() -> Work:
            cache, requested = args[0], args[1]
            text = error_text(result) if failed else ""
            types = _types(None if failed else result, requested)
            if isinstance(types, tuple):
                types = numba_api.star_arguments(cache._py_func, types)
            return Work(cache._py_func, types, "dispatcher", error=text)

        if failed:
            watcher.lookup_failed(args, describe)
        else:
            watcher.looked_up(args, result, describe)

    def claim(args: Any, kwargs: Any) -> None:
        watcher.claim(args[1], args[0], kind_of(args[0]))

    def note_passes(args: Any, kwargs: Any, result: Any, failed: bool) -> None:
        if not failed:
            watcher.add_passes(passes_of(result))

    def name_builder(args: Any, kwargs: Any) -> None:
        watcher.same_function(args[0].gufunc_builder, args[0])

    def name_ufunc(args: Any, kwargs: Any, result: Any, failed: bool) -> None:
        # A GUFunc keeps its builder's ufunc inside; others hand it to the program.
        is_inside = type(args[0]) is GUFuncBuilder
        if not (failed or is_inside):
            watcher.same_function(result, args[0])

    return [
        (Cache, "load_overload", look_up, looked_up),
        (_DispatcherBase, "add_overload", claim, None),
        work(DUFunc, "_compile_for_argtys", _kernel),
        work(_BaseUFuncBuilder, "add", _kernel),
        work(UFuncBuilder, "build", _wrapper, "compile"),
        work(GUFuncBuilder, "build", _wrapper, "compile", "decide"),
        work(ParallelUFuncBuilder, "build", _wrapper, "compile"),
        # Its outer, parallel half is never cached.
        work(ParallelGUFuncBuilder, "build", _wrapper, "compile", "part"),
        (GUFunc, "add", name_builder, None),
        (GUFunc, "build_ufunc", name_builder, None),
        (GUFunc, "_compile_for_argtys", name_builder, None),
        (UFuncBuilder, "build_ufunc", None, name_ufunc),
        (GUFuncBuilder, "build_ufunc", None, name_ufunc),
        work(CFunc, "compile", _cfunc),
        (CFunc, "_compile_uncached", None, note_passes),
        work(StencilFunc, "_stencil_wrapper", _stencil, "compile"),
    ]


def _kernel(args: Any, kwargs: Any, cres: Any, error: str) -> Work:
    """Describe ``DUFunc._compile_for_argtys`` or ``_BaseUFuncBuilder.add``."""
    builder = args[0]
    requested = args[1] if len(args) > 1 else (kwargs or {}).get("sig")
    kind = "guvectorize" if isinstance(builder, GUFuncBuilder) else "vectorize"
    types = _loop_types(builder, _types(cres, requested))
    return Work(builder, types, kind, passes_of(cres), error)


def _wrapper(args: Any, kwargs: Any, built: Any, error: str) -> Work:
    """Describe ``build(cres, ...)`` of one of the builders."""
    types = _loop_types(args[0], _types(args[1], None))
    return Work(args[0], types, "loop wrapper", (), error)


def _loop_types(builder: Any, kernel_types: Any) -> Any:
    """Return what a loop is chosen by: the element types of its inputs.

    The kernel of a generalized ufunc takes arrays, and its outputs as well.
    """
    if not isinstance(builder, GUFuncBuilder) or isinstance(kernel_types, str):
        return kernel_types
    inputs = kernel_types[: len(builder.sin)]
    return tuple(getattr(given, "dtype", given) for given in inputs)


def _cfunc(args: Any, kwargs: Any, nothing: Any, error: str) -> Work:
    return Work(args[0], tuple(args[0]._sig.args), "cfunc", (), error)


def _stencil(args: Any, kwargs: Any, cres: Any, error: str) -> Work:
    return Work(
        args[0], tuple(args[STENCIL_TYPES_AT:]), "stencil", passes_of(cres), error
    )


# ------------------------------------------------------------------------------- facts


def _types(result: Any, requested: Any) -> Any:
    """Return the argument types of a result, or as they were asked for."""
    signature = getattr(result, "signature", None)
    if signature is not None:
        return tuple(signature.args)
    try:
        return tuple(normalize_signature(requested)[0])
    except Exception:
        # A signature that Numba rejects is the failure being reported.
        return str(requested)


def kind_of(dispatcher: Any) -> str:
    """Return the kind of a dispatcher's compilations.

    ``no_cpython_wrapper`` is what makes an @overload implementation: it can be called
    from compiled code only.
    """
    if isinstance(dispatcher, ObjModeLiftedWith):
        return "objmode body"
    if isinstance(dispatcher, LiftedCode):
        return "lifted loop"
    options = getattr(dispatcher, "targetoptions", None) or {}
    return "overload" if options.get("no_cpython_wrapper") else "dispatcher"


NS_PER_S = 1_000_000_000


def passes_of(cres: Any) -> tuple[tuple[str, int], ...]:
    """Return (pass, ns) of a compile result, in the order they ran.

    Numba numbers the passes ("17_nopython_type_inference") and gives seconds for
    initialization, run and finalization. A result from the cache has none.
    """
    pipelines = (getattr(cres, "metadata", None) or {}).get("pipeline_times") or {}
    return tuple(
        (name.partition("_")[2], round((begin + run + end) * NS_PER_S))
        for passes in pipelines.values()
        for name, (begin, run, end) in passes.items()
    )


_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_PREAMBLE = re.compile(r"Failed in .* pipeline \(step: .*\)$")


def error_text(error: Any) -> str:
    """Return ``TypingError: Unknown attribute ...``: the first line that says a thing.

    Numba's own first line only names the compiler's step; colours are taken out.
    """
    name = error.__name__ if isinstance(error, type) else type(error).__name__
    lines = (line.strip() for line in _ESCAPES.sub("", str(error)).splitlines())
    if not isinstance(error, type):
        for line in lines:
            if line and not _PREAMBLE.match(line):
                return f"{name}: {line}"
    return name
