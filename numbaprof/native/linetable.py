"""Line tables for everything that Numba compiles, without a change to the code.

``debug=True`` also gives line tables, and turns off inlining and more: it profiles
another program. Here no flag changes. Lowering asks its context whether debug
information is on and who builds it; both are class attributes that nothing else reads,
and they are set to a builder that writes lines only (:mod:`line_builder`).

What is patched while line tables are on, and restored exactly:

=======================================  ============================================
``CPUContext.enable_debuginfo``          on
``CPUContext.DIBuilder``                 chooses the builder for one function
``BaseLower._compute_def_location``      Numba's own parses the whole source file for
                                         each function: half of all compile time
``InlineWorker.inline_ir``,              hooks that keep who called what Numba inlines
``inline_closure_call``                  (:mod:`inline_sites`)
``CPUCodeLibrary.add_ir_module``         a hook that gives wrappers their lines
``PyLower.lower_inst``                   a hook: object mode does not say on which line
                                         it is
=======================================  ============================================

Functions that the user compiles with ``debug=True`` get Numba's own debug information,
as ever. What will be saved in the user's cache is compiled plainly: the tables would
make the files some 40 % larger.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import llvmlite.ir as ir
from numba.core import debuginfo
from numba.core.codegen import CPUCodeLibrary
from numba.core.cpu import CPUContext
from numba.core.lowering import BaseLower
from numba.core.pylowering import PyLower

from numbaprof.errors import SessionStateError
from numbaprof.native import compiling, inline_sites, numba_api
from numbaprof.native.hooks import CallHook, HookErrors
from numbaprof.native.line_builder import LineBuilder, Place, mark_wrappers

__all__ = ["PRIVATE_NAMES", "LineTables", "is_active"]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba.core.codegen:CPUCodeLibrary.add_ir_module",
    "numba.core.cpu:CPUContext.DIBuilder",
    "numba.core.cpu:CPUContext.enable_debuginfo",
    "numba.core.debuginfo:DIBuilder",
    "numba.core.debuginfo:DummyDIBuilder",
    "numba.core.lowering:BaseLower._compute_def_location",
    "numba.core.pylowering:PyLower.lower_inst",
)
"""What this module touches of Numba, as in :data:`numba_api.PRIVATE_NAMES`."""

_active: list[LineTables] = []
"""Who has line tables on, in the order of starting; the compiler lock guards it."""


def is_active() -> bool:
    """Tell whether what is compiled now gets a line table."""
    return bool(_active)


class LineTables:
    """Gives line tables to what is compiled between :meth:`start` and :meth:`stop`.

    Parameters
    ----------
    cached : bool, optional
        Also to what is saved in the user's cache on disk.

    Notes
    -----
    Holds for the whole process; compilations of other threads get tables too. Several
    may be on at once, and are stopped in any order: the first one patches, the last one
    restores. Both take the compiler lock, so they wait for a compilation under way.
    Compiling takes 5 to 20 % longer meanwhile.
    """

    def __init__(self, *, cached: bool = False) -> None:
        self.cached = cached

    def start(self) -> None:
        """Turn line tables on.

        Raises
        ------
        SessionStateError
            These are on already.
        AttachError, UnsupportedError
            Numba is not as expected; nothing stays patched.
        """
        with numba_api.compiler_lock:
            if self in _active:
                raise SessionStateError(
                    "line tables were started twice; stop them before"
                )
            if not _active:
                _patches.install()
            _active.append(self)

    def stop(self) -> tuple[str, ...]:
        """Turn line tables off, unless somebody else has them on as well.

        Returns
        -------
        tuple of str
            A reason for each place that could not be restored exactly because somebody
            replaced it after us; empty as a rule, also when these were not on.
        """
        with numba_api.compiler_lock:
            if self not in _active:
                return ()
            _active.remove(self)
            return () if _active else _patches.remove()

    @property
    def problems(self) -> tuple[str, ...]:
        """Errors within our own hooks; the lines of some inlined calls are missing."""
        return _patches.errors.messages()

    def __enter__(self) -> LineTables:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


# ------------------------------------------------------------------------------ patches

_MISSING = object()
_thread = threading.local()


class _Patches:
    """All that is changed in Numba, installed and removed together."""

    def __init__(self) -> None:
        self.errors = HookErrors()
        self.kernels: set[str] = set()
        """Symbols of functions that have a line table, for the wrappers around them."""
        self._hooks: list[CallHook] = []
        self._set: list[tuple[type, str, Any, Any]] = []

    def install(self) -> None:
        """Patch; on any error nothing stays patched."""
        self.errors.clear()
        try:
            self._replace(
                BaseLower,
                "_compute_def_location",
                _def_location(BaseLower._compute_def_location),
            )
            self._replace(CPUContext, "DIBuilder", _builder(CPUContext.DIBuilder))
            self._replace(CPUContext, "enable_debuginfo", True)
            for hook in (
                *inline_sites.inline_hooks(self.errors, _is_wanted),
                self._hook(CPUCodeLibrary, "add_ir_module", _mark_wrappers),
                self._hook(PyLower, "lower_inst", _mark_object_mode),
            ):
                hook.install()
                self._hooks.append(hook)
        except BaseException:
            self.remove()
            raise

    def _hook(self, owner: type, name: str, before: Any) -> CallHook:
        return CallHook(owner, name, before, errors=self.errors, mutes=False)

    def _replace(self, owner: type, name: str, value: Any) -> None:
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)
        self._set.append((owner, name, before, value))

    def remove(self) -> tuple[str, ...]:
        """Restore; return a reason for each place that somebody else changed."""
        reasons = []
        while self._hooks:
            reason = self._hooks.pop().restore()
            if reason is not None:
                reasons.append(reason)
        while self._set:
            owner, name, before, value = self._set.pop()
            if vars(owner).get(name, _MISSING) is not value:
                reasons.append(
                    f"{owner.__qualname__}.{name} was replaced after numbaprof had "
                    "set it"
                )
            elif before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self.kernels.clear()
        return tuple(reasons)


_patches = _Patches()


def _is_wanted() -> bool:
    """Tell whether what this thread compiles is to get a table."""
    return any(tables.cached for tables in _active) or not compiling.is_for_cache()


def _is_debug_build(context: Any) -> bool:
    """Tell whether the user asked for debug information: Numba sets it per context."""
    return bool(vars(context).get("enable_debuginfo"))


def _def_location(original: Any) -> Any:
    """Return the method that finds the def line of what a lowerer lowers."""

    def _compute_def_location(self: Any) -> Any:
        _thread.lowerer = weakref.ref(self)
        location = self.func_ir.loc
        identity = self.func_ir.func_id
        if _is_debug_build(self.context):
            return original(self)
        if location.line != identity.firstlineno:
            # A lifted loop begins at its own line.
            return location
        return location.with_lineno(numba_api.definition_line(identity.code))

    return _compute_def_location


def _builder(original: Any) -> Any:
    """Return the method of contexts that stands in for the class of builders."""

    def _new_builder(
        context: Any, module: Any, filepath: str, cgctx: Any, directives_only: bool
    ) -> Any:
        lowerer = _thread.__dict__.pop("lowerer", lambda: None)
        if _is_debug_build(context):
            return original(
                module=module,
                filepath=filepath,
                cgctx=cgctx,
                directives_only=directives_only,
            )
        at_work = lowerer()
        if at_work is None or not _is_wanted():
            return debuginfo.DummyDIBuilder(module, filepath, cgctx, directives_only)
        _patches.kernels.update(_symbols(at_work.fndesc))
        return LineBuilder(
            module,
            filepath,
            name=at_work.func_ir.func_id.func_name,
            place=_asked_for_by(),
            lowerer=lowerer,
        )

    return _new_builder


def _symbols(descriptor: Any) -> set[str]:
    return {descriptor.llvm_func_name, descriptor.mangled_name}


def _asked_for_by() -> Place | None:
    """Return where the user wrote what asks for a generated function.

    A parfor within an inlined function of Numba's own counts as the call of that.
    """
    lowerer = compiling.enclosing_lowerer()
    if lowerer is None:
        return compiling.enclosing_stencil()
    builder = lowerer.debuginfo
    if not isinstance(builder, LineBuilder) or not hasattr(lowerer.loc, "line"):
        return None
    place, site = builder.place_of(lowerer.loc)
    while site is not None and numba_api.is_own_file(place[0]):
        place, site = (site.file, site.line), site.outer
    return place


def _mark_wrappers(args: tuple[Any, ...], kwargs: object) -> None:
    """Give lines to the functions of a module that call one with a line table."""
    module = args[1]
    functions = [thing for thing in module.functions if isinstance(thing, ir.Function)]
    if any("dbg" in function.metadata for function in functions):
        return
    kernels = {f.name for f in functions if not f.blocks} & _patches.kernels
    if not kernels:
        return
    # Others are destructors, say, of the containers that a wrapper converts.
    wrappers = [function for function in functions if _calls(function) & kernels]
    mark_wrappers(module, wrappers, f"wrapper of {min(kernels)}")
    # Parallel ufuncs wrap the wrapper once more.
    _patches.kernels.update(function.name for function in wrappers)


def _calls(function: ir.Function) -> set[str]:
    """Return the names of the functions that one calls directly."""
    return {
        getattr(instruction.callee, "name", "")
        for block in function.blocks
        for instruction in block.instructions
        if isinstance(instruction, ir.CallInstr)
    }


def _mark_object_mode(args: tuple[Any, ...], kwargs: object) -> None:
    """Say where the instructions come from that object mode lowers next."""
    lowerer = args[0]
    if isinstance(lowerer.debuginfo, LineBuilder):
        lowerer.debuginfo.mark_location(lowerer.builder, lowerer.loc.line)
