"""numbaprof: exact time per compiled overload, for Numba.

Importing this package installs nothing, compiles nothing and does not import Numba.

pytest, whose plugin is in here, warns about packages that were imported before it could
rewrite their assertions, as this one is under ``numbaprof run``. The word
PYTEST_DONT_REWRITE tells it not to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numbaprof.errors import (
    ActiveSessionError,
    ComparisonError,
    FormatError,
    MergeError,
    NumbaprofError,
    NumbaprofWarning,
    OptionError,
    SessionStateError,
    TargetError,
    UnsupportedError,
)
from numbaprof.version import __version__

if TYPE_CHECKING:
    from numbaprof.comparing import compare
    from numbaprof.explanation import explain
    from numbaprof.html import plot
    from numbaprof.line_profile import lines
    from numbaprof.merging import merge
    from numbaprof.model import ProfileResult
    from numbaprof.profiler import Profile
    from numbaprof.recorder import start, stop
    from numbaprof.session import profile
    from numbaprof.store import load

__all__ = [
    "ActiveSessionError",
    "ComparisonError",
    "FormatError",
    "MergeError",
    "NumbaprofError",
    "NumbaprofWarning",
    "OptionError",
    "Profile",
    "ProfileResult",
    "SessionStateError",
    "TargetError",
    "UnsupportedError",
    "__version__",
    "compare",
    "explain",
    "lines",
    "load",
    "merge",
    "plot",
    "profile",
    "start",
    "stop",
]

_HOMES = {
    "Profile": "numbaprof.profiler",
    "ProfileResult": "numbaprof.model",
    "compare": "numbaprof.comparing",
    "explain": "numbaprof.explanation",
    "lines": "numbaprof.line_profile",
    "load": "numbaprof.store",
    "merge": "numbaprof.merging",
    "plot": "numbaprof.html",
    "profile": "numbaprof.session",
    "start": "numbaprof.recorder",
    "stop": "numbaprof.recorder",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that importing the package is cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'numbaprof' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Provide ``%numbaprof``; called by ``%load_ext numbaprof``."""
    from numbaprof import ipython_ext

    ipython_ext.load(shell)
