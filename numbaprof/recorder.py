"""The part that one process has in a ``numbaprof run``.

The program's own process has a :class:`Recorder`, and so has every child. It starts a
session when the program imports Numba (or asks for it), stops it at the end, whatever
the end is, and hands the profile to its outlet exactly once.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numbaprof.merging import merge
from numbaprof.sigterm import SigtermHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.model import ProfileResult

__all__ = [
    "Measures",
    "Outlet",
    "Recorder",
    "Session",
    "SessionFactory",
    "current",
    "session_factory",
    "set_current",
    "start",
    "stop",
]


class Session(Protocol):
    """What a recorder needs of :class:`numbaprof.session.Session`."""

    def start(self) -> object:
        """Begin to measure."""

    def stop(self, exit: str = "") -> ProfileResult:
        """End measuring and return the profile."""

    def reset_after_fork(self, label: str) -> None:
        """Forget, in a forked child, what the parent had measured."""


class Outlet(Protocol):
    """Where the profile of a process goes."""

    def opened(self) -> None:
        """Note that a profile will come; called whenever measuring begins."""

    def abandon(self) -> None:
        """Free what it holds, in a forked child that has another outlet."""

    def deliver(self, result: ProfileResult | None, problem: str) -> None:
        """Take the profile; None with a reason when nothing was measured."""


class SessionFactory(Protocol):
    """What makes a session that has not started."""

    def __call__(self, label: str) -> Session:
        """Return a session of the process ``label``."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What the sessions of a run measure, in plain data that a child can be handed."""

    detail: tuple[str, ...] = ()
    """Patterns of functions whose time is split into unboxing, kernel and boxing."""
    signatures: str = ""
    """Level that rows of Python functions are told apart at, "none" for one row each;
    "" leaves Python out."""
    fingerprints: bool = False
    """Whether to hash the machine code of overloads, so that runs can be compared."""
    lines: bool = False
    """Sample source lines of compiled code."""
    interval: float | None = None
    """Seconds of CPU time between two samples; None for the default."""
    perf_map: bool = False
    """Whether to write down the names of compiled code for perf."""

    def session_options(self) -> dict[str, Any]:
        """Return them as fields of :class:`numbaprof.session.SessionOptions`."""
        options: dict[str, Any] = {
            "detail": self.detail,
            "fingerprints": self.fingerprints,
            "lines": self.lines,
            "interval": self.interval,
            "perf_map": self.perf_map,
        }
        if self.signatures:
            options["python"] = True
            options["signatures"] = (
                False if self.signatures == "none" else self.signatures
            )
        return options


def session_factory(measures: Measures) -> SessionFactory:
    """Return what makes the sessions of a run; Numba is imported at the first one."""

    def make(label: str) -> Session:
        from numbaprof.session import Session, SessionOptions

        return Session(SessionOptions(label=label, **measures.session_options()))

    return make


class Recorder:
    """Starts and stops the session of this process and delivers its profile once.

    Parameters
    ----------
    new_session : callable
        Takes a label, returns a session that has not started.
    outlet : Outlet
        Where the profile goes.
    enabled : bool
        Measure from the import of Numba on; otherwise only after :func:`start`.
    label : str
        Label of the process in the profile.

    Attributes
    ----------
    exit : str
        How the program ended, as far as it is known.

    Notes
    -----
    All methods may be called from any thread. The lock can be taken again by its
    owner, because a signal handler may interrupt a method in the same thread.
    """

    def __init__(
        self,
        new_session: SessionFactory,
        outlet: Outlet,
        *,
        enabled: bool = True,
        label: str = "main",
    ) -> None:
        self.exit = ""
        self.finished = False
        self._new_session = new_session
        self._outlet = outlet
        self._enabled = enabled
        self._label = label
        self._session: Session | None = None
        self._parts: list[ProfileResult] = []
        self._problem = (
            "the program did not import numba"
            if enabled
            else "the program did not call numbaprof.start()"
        )
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._busy_thread: int | None = None
        self._end_when_free = False
        self._sigterm = SigtermHandler(self._before_sigterm)

    def numba_imported(self) -> None:
        """Start measuring, unless the program decides about that itself."""
        if self._enabled:
            self.start()

    def start(self) -> None:
        """Start measuring, or go on; nothing happens when it is going on already.

        A session that cannot start is a problem to report, not an error of the
        program.
        """
        with self._exclusively():
            self._enabled = True
            if self._session is not None or self.finished:
                return
            # First: a process that has left its mark will also deliver.
            self._sigterm.install()
            try:
                session = self._new_session(self._label)
                session.start()
            except Exception as error:
                self._problem = f"measuring could not start: {_describe(error)}"
                self._sigterm.restore()
                return
            self._session = session
            self._outlet.opened()

    def stop(self, exit: str = "") -> None:
        """Stop measuring and keep what was measured."""
        with self._exclusively():
            self._enabled = False
            session, self._session = self._session, None
            if session is None:
                return
            try:
                result = session.stop(exit=exit)
            except Exception as error:
                self._problem = f"measuring could not be ended: {_describe(error)}"
                return
            self._parts.append(result)

    def finish(self) -> None:
        """Stop for good and deliver; only the first call does anything."""
        with self._exclusively():
            if self.finished or os.getpid() != self._pid:
                return
            self.finished = True
            self.stop(exit=self.exit)
            result = merge(self._parts) if self._parts else None
            self._outlet.deliver(result, "" if result else self._problem)
            self._sigterm.restore()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Hold the lock; a signal that would end the process waits for its release.

        A pool ends workers that are about to end anyway: the profile that is being
        written is completed. And a session that is being started can be stopped.
        """
        with self._lock:
            outermost = self._busy_thread is None
            if outermost:
                self._busy_thread = threading.get_ident()
            try:
                yield
            finally:
                if outermost:
                    self._busy_thread = None
        if outermost and self._end_when_free:
            self._end_when_free = False
            if self._before_sigterm():
                self._sigterm.end()

    def become_child(self, outlet: Outlet, *, label: str) -> None:
        """Turn the copy of the parent's recorder that a fork made into the child's.

        Parameters
        ----------
        outlet : Outlet
            Where the child's profile goes.
        label : str
            The child's label.
        """
        # Another thread, which does not exist here, may have held the lock.
        self._lock = threading.RLock()
        self._busy_thread = None
        # A pool may end its workers before they have begun: until this is done SIGTERM
        # finds a recorder of another process, which delivers nothing, or a busy one.
        with self._exclusively():
            self._pid = os.getpid()
            self._end_when_free = False
            self._sigterm.renew_after_fork()
            self.exit = ""
            self._label = label
            self._outlet.abandon()
            self._outlet = outlet
            self._parts = []
            if self._session is not None:
                outlet.opened()
                self._reset(self._session)

    def _reset(self, session: Session) -> None:
        try:
            session.reset_after_fork(self._label)
        except Exception:
            # Nothing can be said from here: the mark without a profile will be found.
            self.finished = True

    def _before_sigterm(self) -> bool:
        """Deliver; False while the main thread is in the middle of something."""
        if self._busy_thread == threading.get_ident():
            self._end_when_free = True
            return False
        self.exit = "SIGTERM"
        self.finish()
        return True


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# -- the recorder of this process ------------------------------------------------------

_current: Recorder | None = None


def current() -> Recorder | None:
    """Return the recorder of this process, None outside ``numbaprof run``."""
    return _current


def set_current(recorder: Recorder | None) -> None:
    """Make ``recorder`` the one that :func:`start` and :func:`stop` control."""
    global _current
    _current = recorder


def start() -> bool:
    """Start measuring, or go on, in a program under ``numbaprof run``.

    With ``numbaprof run --start-disabled`` nothing is measured before this call.
    Outside ``numbaprof run`` it does nothing, so it may stay in the program; to measure
    from inside a program use :func:`numbaprof.profile`.

    Returns
    -------
    bool
        True under ``numbaprof run``.
    """
    if _current is None:
        return False
    _current.start()
    return True


def stop() -> bool:
    """Stop measuring in a program under ``numbaprof run``, until :func:`start`.

    Calls between the two are in no figure of the profile; several stretches are added.

    Returns
    -------
    bool
        True under ``numbaprof run``.
    """
    if _current is None:
        return False
    _current.stop()
    return True
