"""Calls that Numba replaces by the callee's body before LLVM sees them.

LLVM records what it inlines itself. Numba inlines earlier, in its own representation:
``inline="always"``, closures, and the overloads that parfors are made of. There the
callee's statements keep their own file and line and lose who called them. Two hooks put
that back: every statement that comes out of such an inlining carries a
:class:`CallSite`, as an attribute of its location. Numba compares locations by file,
line and column, so it never notices.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numba.core import inline_closurecall
from numba.core.inline_closurecall import InlineWorker
from numba.core.ir import Loc

from numbaprof.native.hooks import CallHook, HookErrors
from numbaprof.native.numba_api import definition_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PRIVATE_NAMES", "CallSite", "inline_hooks", "site_of", "source_file"]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba.core.inline_closurecall:InlineWorker.inline_ir",
    "numba.core.inline_closurecall:inline_closure_call",
    "numba.core.ir:Loc",
)
"""What this module touches of Numba, as in :data:`numba_api.PRIVATE_NAMES`."""

_ATTRIBUTE = "_numbaprof_call_site"


@dataclass(frozen=True, eq=False)
class CallSite:
    """Where a function was inlined; one object for each inlining.

    Never copied, so that the statements of one inlining stay together when Numba copies
    them, and pickled as None, so that nobody needs numbaprof to read it.
    """

    file: str
    line: int
    function: str
    """Qualified name of what was inlined."""
    function_file: str
    function_line: int
    outer: CallSite | None
    """Where the function that holds the call was itself inlined, if it was."""

    def __deepcopy__(self, memo: object) -> CallSite:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def site_of(location: Any) -> CallSite | None:
    """Return the call site that a statement's location carries."""
    return getattr(location, _ATTRIBUTE, None)


def source_file(name: str | None) -> str:
    """Return a file name as it is written into line tables: absolute if it is a file.

    What was never a file (``<string>``, ``<ipython-input-3>``) keeps its name.
    """
    name = name or "<unknown>"
    return name if os.path.basename(name).startswith("<") else os.path.abspath(name)


def inline_hooks(errors: HookErrors, wanted: Callable[[], bool]) -> list[CallHook]:
    """Return the hooks, not yet installed.

    Parameters
    ----------
    errors : HookErrors
        Where their errors go.
    wanted : callable
        Tells whether what is being compiled gets a line table; else nothing is marked.
    """
    workers = _Marker(lambda args: _ir_names(args[4]), wanted)
    closures = _Marker(lambda args: _code_names(args[4]), wanted)
    return [
        CallHook(
            InlineWorker,
            "inline_ir",
            workers.before,
            lambda args, kwargs, outcome, failed: workers.after(outcome, 1, failed),
            errors=errors,
            mutes=False,
        ),
        CallHook(
            inline_closurecall,
            "inline_closure_call",
            closures.before,
            lambda args, kwargs, outcome, failed: closures.after(outcome, 0, failed),
            errors=errors,
            mutes=False,
        ),
    ]


class _Marker:
    """Marks what one kind of inlining brings in.

    Both functions take (self or caller, caller or globals, block, index, callee, ...)
    and may be nested, so each thread has a stack that pairs ends with beginnings.
    """

    def __init__(
        self,
        names: Callable[[tuple[Any, ...]], tuple[str, str, int]],
        wanted: Callable[[], bool],
    ) -> None:
        self._names = names
        self._wanted = wanted
        self._thread = threading.local()

    @property
    def _open(self) -> list[CallSite | None]:
        stack: list[CallSite | None] = self._thread.__dict__.setdefault("open", [])
        return stack

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Remember where the call is; it is gone afterwards."""
        self._open.append(None)
        if self._wanted():
            call = args[2].body[args[3]].loc
            self._open[-1] = CallSite(
                source_file(call.filename), call.line, *self._names(args), site_of(call)
            )

    def after(self, outcome: Any, blocks_at: int, failed: bool) -> None:
        """Mark the statements of the blocks that were put in."""
        # Empty where the hook was placed during the call; a stencil takes no lock.
        site = self._open.pop() if self._open else None
        if site is not None and not failed:
            _mark(outcome[blocks_at], site)


def _ir_names(callee_ir: Any) -> tuple[str, str, int]:
    identity = callee_ir.func_id
    file, line = source_file(identity.filename), definition_line(identity.code)
    return identity.func_qualname, file, line


def _code_names(callee: Any) -> tuple[str, str, int]:
    """Describe a function, or the expression that would make one."""
    code = callee.code if hasattr(callee, "code") else callee.__code__
    code = getattr(code, "value", code)
    name = getattr(code, "co_qualname", code.co_name)
    return name, source_file(code.co_filename), definition_line(code)


def _mark(blocks: Any, site: CallSite) -> None:
    """Give every statement of ``blocks`` a location of its own that names ``site``."""
    # Keyed by identity; the old location is kept so that no other can get its id.
    marked: dict[int, tuple[Any, Any]] = {}
    rebased: dict[int, CallSite] = {}
    for block in blocks.values():
        for statement in block.body:
            old = getattr(statement, "loc", None)
            if not isinstance(old, Loc):
                continue
            if id(old) not in marked:
                new = Loc(old.filename, old.line, old.col, old.maybe_decorator)
                setattr(new, _ATTRIBUTE, _rebase(site_of(old), site, rebased))
                marked[id(old)] = old, new
            statement.loc = marked[id(old)][1]


def _rebase(
    inner: CallSite | None, site: CallSite, rebased: dict[int, CallSite]
) -> CallSite:
    """Return ``inner``, which was inlined into the callee, as seen from the caller."""
    if inner is None:
        return site
    if id(inner) not in rebased:
        rebased[id(inner)] = replace(inner, outer=_rebase(inner.outer, site, rebased))
    return rebased[id(inner)]
