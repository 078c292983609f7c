"""Child processes of a profiled program: forked, spawned, started in any other way.

Each child writes its profile into a private folder, the *spool*, when it ends; the
program's own process adds them up. How a child comes to do so:

==========================  ============================================================
``os.fork``, and with it    A hook of ``os.register_at_fork`` turns the inherited
multiprocessing "fork",     recorder into the child's and forgets what the parent had
``ProcessPoolExecutor``     counted.
multiprocessing "spawn"     The environment variable ``NUMBAPROF_SPOOL`` and the file
and "forkserver", joblib,   ``numbaprof_children.pth`` beside the installed package; see
any ``python`` command      :mod:`numbaprof.bootstrap`.
==========================  ============================================================

What makes it do so at its end: ``atexit``; a finalizer of :mod:`multiprocessing`, whose
children skip ``atexit``; SIGTERM, by which ``Pool`` ends its workers. A child that ends
by ``os._exit``, ``exec`` or SIGKILL writes nothing. It has left a mark when it began to
measure, and so is counted among the losses.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numbaprof import recorder as recording
from numbaprof import store
from numbaprof.errors import SaveError
from numbaprof.model import CallSite, FunctionId
from numbaprof.recorder import Measures, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.model import ProfileResult

__all__ = [
    "STARTUP_FILE",
    "ChildOptions",
    "Spool",
    "find_startup_file",
    "record_forks",
    "record_this_process",
]

Place = TypeVar("Place", FunctionId, CallSite)

STARTUP_FILE = "numbaprof_children.pth"

SPAWNED_MAIN = "__mp_main__"
"""What multiprocessing calls the program's main module in a spawned child."""

LAST = -1000
"""Exit priority of our finalizer: after the program's own, which may call kernels, and
after grandchildren have been joined; multiprocessing runs the highest first."""


# -- the spool -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What a child must know of the command line."""

    enabled: bool = True
    measures: Measures = field(default_factory=Measures)


@dataclass(frozen=True, slots=True)
class Spool:
    """A private folder with one mark and, later, one profile per child."""

    folder: Path

    @classmethod
    def create(cls, options: ChildOptions) -> Spool:
        """Make a new folder that only this user can read."""
        spool = cls(Path(tempfile.mkdtemp(prefix="numbaprof-")))
        spool._options_file.write_text(json.dumps(asdict(options)))
        return spool

    @property
    def _options_file(self) -> Path:
        return self.folder / "options"

    def read_options(self) -> ChildOptions:
        """Return what :meth:`create` was given."""
        content = json.loads(self._options_file.read_text())
        measures: dict[str, Any] = content["measures"]
        measures["detail"] = tuple(measures["detail"])
        return ChildOptions(content["enabled"], Measures(**measures))

    def new_ticket(self, label: str) -> Ticket:
        """Return the outlet of this process, a child labelled ``label``."""
        return Ticket(self.folder / f"{label}-{os.getpid()}-{secrets.token_hex(4)}")

    def profiles(self) -> list[Path]:
        """Return the files of all profiles that have arrived."""
        return sorted(self.folder.glob("*.json"))

    def missing(self) -> tuple[str, ...]:
        """Return one line per child that began to measure and delivered nothing."""
        lines = []
        for mark in sorted(self.folder.glob("*.started")):
            if not mark.with_suffix(".json").exists():
                label, pid, _ = mark.stem.split("-")
                lines.append(
                    f"process {pid} ({label}) left no profile: ended by os._exit, exec "
                    "or a signal, or still running"
                )
        return tuple(lines)

    def remove(self) -> None:
        """Remove the folder; children that are still running deliver to nobody."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Ticket:
    """The place of one child in the spool; an :class:`~numbaprof.recorder.Outlet`."""

    stem: Path

    def opened(self) -> None:
        """Leave a mark, so that this process is missed if it delivers nothing."""
        with suppress(OSError):  # The program has ended and taken the spool with it.
            self._mark.touch()

    def abandon(self) -> None:
        """Leave the mark to the process that made it."""

    def deliver(self, result: ProfileResult | None, problem: str) -> None:
        """Write the profile; without one, take the mark back."""
        if result is None:
            with suppress(OSError):
                self._mark.unlink()
            return
        with suppress(SaveError):  # As above, or the disk is full: it will be missed.
            store.save(result, self.stem.with_suffix(".json"))

    @property
    def _mark(self) -> Path:
        return self.stem.with_suffix(".started")


# -- in the child ----------------------------------------------------------------------

_hook_installed = False
_spool: Spool | None = None


def record_forks(spool: Spool | None) -> None:
    """Let every process that is forked from here on deliver into ``spool``.

    Parameters
    ----------
    spool : Spool or None
        None: a forked child delivers to nobody.

    Notes
    -----
    A hook of ``os.register_at_fork`` cannot be taken back. It is installed once per
    process and does nothing while no recorder is at work.
    """
    global _hook_installed, _spool
    _spool = spool
    if not _hook_installed:
        os.register_at_fork(after_in_child=_enter_forked_child)
        _hook_installed = True


def _enter_forked_child() -> None:
    recorder = recording.current()
    if recorder is None or recorder.finished or _is_about_to_exec():
        return
    outlet = _spool.new_ticket("fork") if _spool is not None else _Nowhere()
    recorder.become_child(outlet, label="fork")
    # atexit has the parent's `recorder.finish`, which is the child's by now.
    _finish_with_multiprocessing(recorder)


def _is_about_to_exec() -> bool:
    """Tell whether this fork is one that subprocess made to start a program.

    It runs Python between fork and exec when it is given a ``preexec_fn``.
    """
    frame = sys._getframe(2)  # This function, the hook, whoever forked.
    return frame.f_globals.get("__name__") == "subprocess"


@dataclass(frozen=True, slots=True)
class _Nowhere:
    """The outlet of children nobody asked for."""

    def opened(self) -> None:
        """Leave no mark."""

    def abandon(self) -> None:
        """Hold nothing."""

    def deliver(self, result: ProfileResult | None, problem: str) -> None:
        """Drop the profile."""


def record_this_process(folder: str) -> Callable[[], None] | None:
    """Start recording in a process that a profiled program started.

    Called by :mod:`numbaprof.bootstrap` when Numba has been imported.

    Parameters
    ----------
    folder : str
        The spool's folder.

    Returns
    -------
    callable or None
        To be called when the process ends. None if there is nothing to record: the run
        is over, or this process is itself a ``numbaprof run``.
    """
    if recording.current() is not None:
        return None
    spool = Spool(Path(folder))
    try:
        options = spool.read_options()
    except OSError:
        return None
    recorder = Recorder(
        recording.session_factory(options.measures),
        spool.new_ticket("spawn"),
        enabled=options.enabled,
        label="spawn",
    )
    recording.set_current(recorder)
    record_forks(spool)
    _finish_with_multiprocessing(recorder)
    recorder.numba_imported()
    return recorder.finish


def _finish_with_multiprocessing(recorder: Recorder) -> None:
    """Deliver at the end of a child of multiprocessing, which may skip atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:  # Then it has not started this process.
        return

    def register(recorder: Recorder) -> None:
        util.Finalize(None, recorder.finish, exitpriority=LAST)

    # A child drops its finalizers in Process._bootstrap and then calls what was
    # registered for after the fork. If this runs earlier, the second line counts, if
    # Numba was imported by the child's own work, the first. `finish` runs only once.
    register(recorder)
    util.register_after_fork(recorder, register)


# -- in the program's own process ------------------------------------------------------


def find_startup_file() -> Path | None:
    """Return the installed ``numbaprof_children.pth``, None if there is none."""
    for folder in sys.path:
        path = Path(folder, STARTUP_FILE)
        if path.is_file():
            return path
    return None


def count_unseen_starts() -> tuple[str, ...]:
    """Return a line if children were spawned that could not know of this run."""
    spawning = {"popen_spawn_posix", "popen_spawn_win32", "popen_forkserver"}
    used = [name for name in spawning if f"multiprocessing.{name}" in sys.modules]
    if used and find_startup_file() is None:
        return (
            f"spawned children were not profiled: {STARTUP_FILE} is not in a site "
            "folder; install numbaprof (pip install) instead of running its source",
        )
    return ()


def load_child(path: Path, main_file: str) -> ProfileResult:
    """Read the profile of a child, with the main module under the name it has here.

    Parameters
    ----------
    path : Path
        One of :meth:`Spool.profiles`.
    main_file : str
        ``__file__`` of the program's main module, "" if it has none.

    Raises
    ------
    FormatError, OSError
        Somebody damaged the file.
    """
    return _with_one_main(store.load(path), main_file)


def _with_one_main(result: ProfileResult, main_file: str) -> ProfileResult:
    """Rename ``__mp_main__``, so that a function is the same in parent and child."""
    normal_main_file = os.path.normpath(main_file)

    def rename(place: Place) -> Place:
        if place.module != SPAWNED_MAIN:
            return place
        # multiprocessing hands the child a normalised path.
        same_file = os.path.normpath(place.file) == normal_main_file
        return replace(
            place,
            module="__main__",
            file=main_file if main_file and same_file else place.file,
        )

    def rename_site(site: CallSite | None) -> CallSite | None:
        return None if site is None else rename(site)

    return replace(
        result,
        overloads=tuple(
            replace(overload, function=rename(overload.function))
            for overload in result.overloads
        ),
        dispatchers=tuple(
            replace(info, function=rename(info.function)) for info in result.dispatchers
        ),
        compile_events=tuple(
            replace(
                event,
                function=rename(event.function),
                trigger=rename_site(event.trigger),
                import_module=event.import_module.replace(SPAWNED_MAIN, "__main__"),
            )
            for event in result.compile_events
        ),
        contexts=tuple(
            replace(node, via=rename_site(node.via)) for node in result.contexts
        ),
    )
