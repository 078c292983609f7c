"""``numbaprof run``: one program, its children, one profile.

The order of things at the end of the program is the interpreter's: a traceback is
printed, threads are joined, ``atexit`` handlers run. Ours was registered before the
program began and so runs last: kernels that the program's handlers call are profiled.
Then the profiles of the children are added, and the sum is saved or reported.

``os._exit`` and SIGKILL end a process before anything can be saved.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

from numbaprof import bootstrap, children, recorder, report, store
from numbaprof.children import ChildOptions, Spool
from numbaprof.errors import FormatError, SaveError
from numbaprof.merging import merge
from numbaprof.progress import show_progress
from numbaprof.recorder import Measures, Recorder
from numbaprof.report import ReportOptions

if TYPE_CHECKING:
    from numbaprof.model import ProfileResult
    from numbaprof.program import Program

__all__ = ["RunOptions", "run"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``numbaprof run`` was told."""

    output: str | None = None
    """File for the profile; None prints the report instead."""
    quiet: bool = False
    """Print nothing but problems."""
    start_disabled: bool = False
    """Measure only after :func:`numbaprof.start`."""
    children: bool = True
    measures: Measures = field(default_factory=Measures)
    report: ReportOptions = field(default_factory=ReportOptions)


def run(program: Program, options: RunOptions) -> None:
    """Run a program under the profiler; the profile is made when the process exits.

    Parameters
    ----------
    program : Program
        What to run.
    options : RunOptions
        How, and what to do with the profile.

    Raises
    ------
    ProgramError
        There is nothing to run.
    BaseException
        Whatever ended the program, see :meth:`Program.run`.
    """
    program.check()
    enabled = not options.start_disabled
    spool = None
    if options.children:
        spool = Spool.create(ChildOptions(enabled, options.measures))
        os.environ[bootstrap.SPOOL_VARIABLE] = str(spool.folder)
    recording = Recorder(
        recorder.session_factory(options.measures),
        _MainOutlet(options, spool),
        enabled=enabled,
    )
    recorder.set_current(recording)
    children.record_forks(spool)
    # First registered, last run.
    atexit.register(_finish, recording)
    bootstrap.call_when_numba_is_imported(recording.numba_imported)
    try:
        program.run()
    except BaseException as error:
        recording.exit = _describe_exit(error)
        raise


def _finish(recording: Recorder) -> None:
    recording.finish()
    if recording.exit == KeyboardInterrupt.__name__:
        _end_by_interrupt()


def _end_by_interrupt() -> None:
    """Let the process die of SIGINT, as one does that Ctrl-C has ended.

    CPython notes that a KeyboardInterrupt was not handled, and forgets it whenever
    source text is run (``run_eval_code_obj`` in Python/pythonrun.c): importing a module
    with a data class or a named tuple does that, and so do we at the end.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _describe_exit(error: BaseException) -> str:
    name = type(error).__name__
    return f"{name}({error.code!r})" if isinstance(error, SystemExit) else name


class _PrivateStderr:
    """Where stderr went when the run began, whatever the program does to it."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._identity: tuple[int, ...] = ()
        self._encoding = "utf-8"
        # No file: a console-less Windows program, a test that captures.
        with suppress(AttributeError, OSError, ValueError):
            self._encoding = sys.stderr.encoding
            self._descriptor = os.dup(sys.stderr.fileno())
            self._identity = _identity_of(self._descriptor)

    def _is_ours(self) -> bool:
        """Tell whether the number still means the file that we opened under it.

        A program may close every descriptor, as daemons do, and get it for its own.
        """
        if self._descriptor is None:
            return False
        try:
            return _identity_of(self._descriptor) == self._identity
        except OSError:
            return False

    def open(self) -> TextIO | None:
        """Return the stream; to be called once."""
        if self._descriptor is None or not self._is_ours():
            self._descriptor = None
            return sys.stderr
        descriptor, self._descriptor = self._descriptor, None
        return os.fdopen(
            descriptor, "w", encoding=self._encoding, errors="backslashreplace"
        )

    def close(self) -> None:
        """Give the stream up unused."""
        if self._descriptor is not None and self._is_ours():
            os.close(self._descriptor)
        self._descriptor = None


def _identity_of(descriptor: int) -> tuple[int, ...]:
    """Return what tells one open file from another."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_rdev


class _MainOutlet:
    """The end of a run: adds the children's profiles, saves or reports the sum.

    Problems are said, never raised: the program has ended and its exit code stands.
    """

    def __init__(self, options: RunOptions, spool: Spool | None) -> None:
        self._options = options
        self._spool = spool
        self._private_stderr = _PrivateStderr()
        self._stderr: TextIO | None = None
        # Before the program's folder joins it.
        self._own_path = list(sys.path)

    def opened(self) -> None:
        """Leave no mark: this process waits for itself."""

    def abandon(self) -> None:
        """Close our stderr in a forked child, which may outlive whoever reads it."""
        self._private_stderr.close()

    def deliver(self, result: ProfileResult | None, problem: str) -> None:
        """Save or report."""
        # What is imported from here on is ours: a `rich.py` beside the script is not.
        sys.path[:] = self._own_path
        self._stderr = self._private_stderr.open()
        if self._spool is not None:
            try:
                result = self._with_children(result, self._spool)
            finally:
                self._spool.remove()
        if result is None:
            self._say(f"nothing was measured: {problem}")
            return
        if self._options.output is not None:
            self._save(result, self._options.output)
        elif not self._options.quiet:
            self._report(result)
        if problem:
            self._say(f"the program's own process was not measured: {problem}")

    def _with_children(
        self, result: ProfileResult | None, spool: Spool
    ) -> ProfileResult | None:
        main_file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        parts = [] if result is None else [result]
        missing = [*spool.missing(), *children.count_unseen_starts()]
        files = spool.profiles()
        for path in show_progress(files, "reading child profiles", self._stderr):
            try:
                parts.append(children.load_child(path, main_file))
            except (OSError, FormatError) as error:
                missing.append(f"a child's profile cannot be read: {error}")
        if not parts:
            return None
        total = merge(parts)
        losses = replace(
            total.losses,
            missing_processes=(*total.losses.missing_processes, *missing),
        )
        return replace(total, losses=losses)

    def _save(self, result: ProfileResult, output: str) -> None:
        try:
            saved = store.save_or_rescue(result, output)
        except SaveError as error:
            self._say(f"{error}; this is all that can be done with it:")
            self._report(result)
            return
        if saved.problem:
            self._say(f"{saved.problem}; it was saved in {saved.path} instead")
        elif not self._options.quiet:
            self._say(f"profile saved; see it with: numbaprof report {saved.path}")

    def _report(self, result: ProfileResult) -> None:
        if self._stderr is None:
            return
        try:
            report.write(result, self._stderr, self._options.report)
            self._stderr.flush()
        except Exception as error:
            # An edge: an hour's run is not lost because of a mistake in its report.
            saved = store.save_or_rescue(result, "numbaprof-rescued.json")
            self._say(
                f"the report failed, please report it ({type(error).__name__}: "
                f"{error}); the profile was saved in {saved.path}"
            )

    def _say(self, text: str) -> None:
        if self._stderr is not None:
            print(f"numbaprof: {text}", file=self._stderr, flush=True)
