"""The first step of profiling: wait until a program imports Numba.

A program may set ``NUMBA_NUM_THREADS``, ``NUMBA_DISABLE_JIT`` and the like before it
imports Numba, which reads them once. So nothing of Numba may be imported before the
program does it, and measuring starts in the moment the program's import is done.

This is also what every Python process runs that a profiled program starts: the file
``numbaprof_children.pth``, in the site folder beside the installed package, holds one
line that looks for the environment variable :data:`SPOOL_VARIABLE` (one look-up in
``os.environ`` at the start of every Python process, when nothing is profiled) and, only
if it is set, calls :func:`begin`. ``sys.path``, ``sys.argv`` and the order of imports
stay the program's own; a child that never imports Numba never imports the rest of
numbaprof.

Imports nothing but what the interpreter has loaded anyway, ``atexit`` and ``os``.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["SPOOL_VARIABLE", "begin", "call_when_numba_is_imported"]

SPOOL_VARIABLE = "NUMBAPROF_SPOOL"
"""Names the folder into which child processes put their profiles."""


def call_when_numba_is_imported(callback: Callable[[], None]) -> None:
    """Call ``callback`` as soon as Numba has been imported, at once if it has been.

    Parameters
    ----------
    callback : callable
        Runs in the importing thread, before its ``import`` statement goes on. It must
        not raise: an error would look like one of Numba's.

    Notes
    -----
    Until then ``sys.meta_path`` has one more finder. It finds nothing itself.
    """
    if "numba" in sys.modules:
        callback()
        return
    _watch.callbacks.append(callback)
    # There can be a second caller: `numbaprof run` in a child of `numbaprof run`.
    if _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)


class _NumbaWatch:
    """A finder that passes on what the others find, to see when Numba is loaded."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of Numba with a loader that tells when it is done."""
        if name != "numba":
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                # A program may only ask whether Numba is installed, so the watch goes
                # on until the module has really been loaded.
                if spec.loader is not None:
                    spec.loader = _WatchedLoader(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None

    def loaded(self) -> None:
        """Leave and call back; Numba is ready for use."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


_watch = _NumbaWatch()


class _WatchedLoader:
    """A loader that is the given one but for telling the watch when it is done."""

    def __init__(self, loader: Any, watch: _NumbaWatch) -> None:
        self._loader = loader
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the real loader decide."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module as the real loader would, then call back."""
        # The module shows the loader that it would have without us.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._watch.loaded()


_at_exit: list[Callable[[], None]] = []


def begin() -> None:
    """Prepare a Python process that a profiled program started.

    Called by ``numbaprof_children.pth`` before anything of the process's own runs.
    """
    # Registered first, so run last: calls made by the program's own atexit handlers
    # are profiled as well.
    atexit.register(_finish)
    call_when_numba_is_imported(_record)


def _record() -> None:
    folder = os.environ.get(SPOOL_VARIABLE)
    if folder:
        from numbaprof import children

        finish = children.record_this_process(folder)
        if finish is not None:
            _at_exit.append(finish)


def _finish() -> None:
    for finish in _at_exit:
        finish()
