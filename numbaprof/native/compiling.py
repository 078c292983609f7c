"""What the compiler is doing at this moment, read off the Python stack.

Numba's passes are not told for whom they work. The frames below them know, need no hook
that could be left behind, and are right also when a compilation fails.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from numba.core.caching import NullCache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["PRIVATE_NAMES", "enclosing_lowerer", "enclosing_stencil", "is_for_cache"]

PRIVATE_NAMES: tuple[str, ...] = (
    "numba.core.caching:NullCache",
    "numba.core.ccallback:CFunc.compile",
    "numba.core.dispatcher:Dispatcher.compile",
    "numba.core.lowering:BaseLower.lower_block",
    "numba.np.ufunc.ufuncbuilder:UFuncDispatcher._compile_core",
    "numba.stencils.stencil:StencilFunc._stencil_wrapper",
)
"""Whose frames are looked for, as in :data:`numba_api.PRIVATE_NAMES`."""

_CACHES = {
    ("numba.core.ccallback", "compile"): "_cache",
    ("numba.core.dispatcher", "compile"): "_cache",
    ("numba.np.ufunc.ufuncbuilder", "_compile_core"): "cache",
}
"""(module, function) that compiles and saves: attribute of ``self`` with its cache."""
_LOWERER = ("numba.core.lowering", "lower_block")
_STENCIL = ("numba.stencils.stencil", "_stencil_wrapper")


def is_for_cache() -> bool:
    """Tell whether what this thread compiles will be saved in a cache on disk.

    Callees are linked into the code that is saved, so they count as well.
    """
    for key, frame in _frames():
        attribute = _CACHES.get(key)
        if attribute is not None:
            cache = getattr(frame.f_locals.get("self"), attribute, None)
            if cache is not None and not isinstance(cache, NullCache):
                return True
    return False


def enclosing_lowerer() -> Any:
    """Return the lowerer that asked for what this thread compiles now, or None."""
    for key, frame in _frames():
        if key == _LOWERER:
            return frame.f_locals.get("self")
    return None


def enclosing_stencil() -> tuple[str, int] | None:
    """Return file and line of the stencil kernel that this thread compiles, or None."""
    for key, frame in _frames():
        if key == _STENCIL:
            location = frame.f_locals["self"].kernel_ir.loc
            return location.filename, location.line
    return None


def _frames() -> Iterator[tuple[tuple[Any, str], FrameType]]:
    frame = sys._getframe(2)
    while frame is not None:
        yield (frame.f_globals.get("__name__"), frame.f_code.co_name), frame
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
