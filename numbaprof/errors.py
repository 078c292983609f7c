"""Everything numbaprof raises or warns about, in one place.

::

    NumbaprofError
    +-- ActiveSessionError (RuntimeError)     a session is already running
    +-- SessionStateError  (RuntimeError)     stop before start, result before stop, ...
    +-- UnsupportedError   (RuntimeError)     this interpreter or machine cannot do it
    +-- AttachError        (RuntimeError)     one overload cannot be measured
    +-- OptionError        (ValueError)       an option has a value it cannot have
    +-- TargetError        (TypeError)        the thing to profile cannot be profiled
    +-- FormatError        (ValueError)       a file is not a profile we can read
    +-- MergeError         (ValueError)       two profiles that cannot be added
    +-- ComparisonError    (ValueError)       two measurements that cannot be compared
    +-- SaveError          (OSError)          a profile could not be written
    +-- ProgramError       (RuntimeError)     the program to run cannot be found
    +-- InvariantError     (AssertionError)   a profile does not add up: our mistake

    NumbaprofWarning (UserWarning)            carries a slug, see docs/messages.md
"""

from __future__ import annotations

__all__ = [
    "ActiveSessionError",
    "AttachError",
    "ComparisonError",
    "FormatError",
    "InvariantError",
    "MergeError",
    "NumbaprofError",
    "NumbaprofWarning",
    "OptionError",
    "ProgramError",
    "SaveError",
    "SessionStateError",
    "TargetError",
    "UnsupportedError",
]


class NumbaprofError(Exception):
    """Base of every error numbaprof raises on purpose."""


class ActiveSessionError(NumbaprofError, RuntimeError):
    """A session was started while another one was running."""


class SessionStateError(NumbaprofError, RuntimeError):
    """A session was asked for something it cannot do in its present state."""


class UnsupportedError(NumbaprofError, RuntimeError):
    """The interpreter, platform or Numba cannot do what was asked."""


class AttachError(NumbaprofError, RuntimeError):
    """One overload could not be attached to; the message is its ``reason``."""


class OptionError(NumbaprofError, ValueError):
    """An option was given a value it cannot have."""


class TargetError(NumbaprofError, TypeError):
    """The object to be profiled is of a kind that cannot be profiled."""


class FormatError(NumbaprofError, ValueError):
    """A file is not a profile, or one written by a newer numbaprof."""


class MergeError(NumbaprofError, ValueError):
    """Two profiles cannot be added without lying about one of them."""


class ComparisonError(NumbaprofError, ValueError):
    """Two measurements cannot be compared, or could not be made; exit code 2."""


class SaveError(NumbaprofError, OSError):
    """A profile could not be written; ``errno`` and ``filename`` say why and where."""


class ProgramError(NumbaprofError, RuntimeError):
    """The program that ``numbaprof run`` was given cannot be found.

    Parameters
    ----------
    message : str
        As Python itself would say it.
    exit_code : int
        The exit code Python itself would have had.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class InvariantError(NumbaprofError, AssertionError):
    """The figures of a profile contradict each other; a defect of numbaprof.

    Parameters
    ----------
    violations : tuple of str
        One line per contradiction.
    """

    def __init__(self, violations: tuple[str, ...]) -> None:
        listed = "".join(f"\n  {violation}" for violation in violations)
        super().__init__(
            f"the profile contradicts itself in {len(violations)} places; please "
            f"report it with the saved profile:{listed}"
        )
        self.violations = violations


class NumbaprofWarning(UserWarning):
    """A warning with a slug that ``docs/messages.md`` explains.

    Parameters
    ----------
    slug : str
        Stable short name, for example ``"caller-layout"``.
    message : str
        What happened, on which object, and what to do.
    """

    def __init__(self, slug: str, message: str) -> None:
        super().__init__(f"{message} [{slug}]")
        self.slug = slug
