"""``numbaprof ab``: measure whether the head is slower than the base, by overload.

Sessions of two fresh processes in lock-step, so many as are needed: all tests in the
first stage, then only those with something to confirm. After each session everything is
in the run file, so that an interrupt, a crash or the end of the budget loses no more
than one session, and ``--resume`` goes on.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from numbaprof import environment
from numbaprof.ab_book import Book
from numbaprof.ab_session import Lockstep, SessionData, run_session
from numbaprof.ab_sides import opened
from numbaprof.comparing import compare_sides
from numbaprof.comparison import GateOptions
from numbaprof.errors import ComparisonError, OptionError
from numbaprof.progress import ERASE_LINE
from numbaprof.runfile import RunFile, RunSettings, RunSide, load_run, save_run
from numbaprof.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from numbaprof.ab_sides import Side

__all__ = ["AbOptions", "Interrupted", "run_ab"]

DEFAULT_OUTPUT = "numbaprof-ab.json"


class Interrupted(ComparisonError):
    """Ctrl-C or SIGTERM ended the comparison; what was measured is kept."""


@dataclass(frozen=True, slots=True)
class AbOptions:
    """How to compare."""

    sessions: int = 5
    confirm: int = 5
    """Sessions that measure again what looks slower; 0: judge by the first alone."""
    rounds: int = 30
    round_ns: int = 2_000_000
    min_effect: float = 0.05
    budget_s: float = 600.0
    output: Path = Path(DEFAULT_OUTPUT)
    resume: bool = False
    reuse_cache: bool = False
    """Keep Numba's cache from session to session; compile times are then of one."""
    save_rounds: bool = False
    pytest_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("sessions", 1), ("confirm", 0), ("rounds", 1)):
            value = getattr(self, name)
            if value < least:
                raise OptionError(
                    f"{name} is {value}; at least {least} is needed to measure anything"
                )
        for name in ("round_ns", "budget_s"):
            if not getattr(self, name) > 0:
                raise OptionError(
                    f"{name} is {getattr(self, name)}; it must be above 0"
                )


def run_ab(
    base: str,
    head: str,
    options: AbOptions,
    *,
    gates: GateOptions | None = None,
    stream: TextIO | None = None,
) -> RunFile:
    """Measure both sides and return the run, which is in ``options.output`` as well.

    Parameters
    ----------
    base, head : str
        A directory, a git ref or a Python executable.
    options : AbOptions
        How.
    gates : GateOptions, optional
        What may fail, so that it is confirmed.
    stream : text stream, optional
        Told about progress.

    Raises
    ------
    ComparisonError
        It could not be measured. What was is in the file.
    Interrupted
        The same, by Ctrl-C or SIGTERM.
    OptionError
        A side is nothing that can be compared, or there is nothing to resume.
    """
    with _interruptible(), opened([base, head]) as sides:
        book = Book(_begun(sides, options), sides, save_rounds=options.save_rounds)
        keeper = _Keeper(book, options, _Progress(stream))
        try:
            keeper.measure(sides, gates or GateOptions())
        except KeyboardInterrupt:
            keeper.stop("it was interrupted")
            raise Interrupted(
                f"interrupted: {_so_far(book.run)}; {keeper.whereabouts()}"
            ) from None
        except ComparisonError:
            keeper.stop("a session failed")
            raise
        return book.to_run()


def _so_far(run: RunFile) -> str:
    done = f"{run.sessions} of {run.settings.sessions} sessions made"
    return f"{done}, {run.confirmed} to confirm" if run.confirmed else done


def _begun(sides: Sequence[Side], options: AbOptions) -> RunFile:
    """Return an empty run, or the one to go on with."""
    settings = RunSettings(
        sessions=options.sessions,
        confirm=options.confirm,
        rounds=options.rounds,
        round_ns=options.round_ns,
        min_effect=options.min_effect,
        pytest_args=options.pytest_args,
    )
    fresh = RunFile(
        settings=settings,
        base=RunSide(sides[0].name, sides[0].commit),
        head=RunSide(sides[1].name, sides[1].commit),
        started=environment.now_text(),
    )
    if not options.resume:
        return fresh
    if not options.output.exists():
        raise OptionError(
            f"there is nothing to resume: {options.output} does not exist; leave "
            "--resume out to begin"
        )
    old = load_run(options.output)
    for what, was, now in (
        ("code on the base side", _version(old.base), _version(fresh.base)),
        ("code on the head side", _version(old.head), _version(fresh.head)),
        ("rounds", old.settings.rounds, settings.rounds),
        ("round time, ns", old.settings.round_ns, settings.round_ns),
        ("pytest arguments", old.settings.pytest_args, settings.pytest_args),
    ):  # fmt: skip
        if was != now:
            raise OptionError(
                f"{options.output} cannot be resumed, it has other {what}: "
                f"{_shown(was)} then, {_shown(now)} now; leave --resume out to begin "
                "anew"
            )
    if old.confirmed and options.sessions > old.sessions:
        raise OptionError(
            f"{options.output} cannot be resumed with more sessions: its candidates "
            "were chosen and confirmed; ask for more with --confirm"
        )
    return replace(old, settings=settings, stopped="")


def _version(side: RunSide) -> tuple[str, str]:
    return side.name, side.commit


def _shown(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text.strip() or "none"


class _Keeper:
    """Runs sessions within the budget, and keeps the file up to date."""

    def __init__(self, book: Book, options: AbOptions, progress: _Progress) -> None:
        self._book, self._options, self._progress = book, options, progress
        self._deadline = time.monotonic() + options.budget_s
        self._longest_s = 0.0
        self._data = SessionData()

    def measure(self, sides: Sequence[Side], gates: GateOptions) -> None:
        """Make the sessions of both stages."""
        options, book = self._options, self._book
        with tempfile.TemporaryDirectory(prefix="numbaprof-ab-") as folder:
            plan = Lockstep(
                rounds=options.rounds,
                round_ns=options.round_ns,
                pytest_args=options.pytest_args,
                deadline=self._deadline,
                cache=Path(folder) if options.reuse_cache else None,
            )
            while book.run.sessions < options.sessions:
                if not self._session(sides, plan, confirming=False):
                    return
            candidates = _candidates(book.to_run(), gates)
            if not options.confirm or not candidates:
                self._save()
                return
            if not book.run.confirmed:
                book.run = replace(book.run, candidates=candidates)
            plan = replace(plan, only=book.run.candidates)
            while book.run.confirmed < options.confirm:
                if not self._session(sides, plan, confirming=True):
                    return

    def _session(
        self, sides: Sequence[Side], plan: Lockstep, *, confirming: bool
    ) -> bool:
        """Make one session; return whether to go on."""
        left = self._deadline - time.monotonic()
        if self._longest_s > left:
            self.stop(
                f"the budget of {self._options.budget_s:.0f} s is used up, a session "
                f"takes {self._longest_s:.0f} s; give more with --budget"
            )
            return False
        run, options = self._book.run, self._options
        number, total = (
            (run.confirmed + 1, options.confirm)
            if confirming
            else (run.sessions + 1, options.sessions)
        )
        label = f"{'confirming ' if confirming else ''}session {number} of {total}"
        self._data = SessionData()
        run_session(
            sides, plan, self._data, lambda text: self._progress.show(label, text)
        )
        data, self._data = self._data, SessionData()
        self._book.add(data, confirming=confirming)
        self._longest_s = max(self._longest_s, data.seconds)
        count = plural(len(data.tests), "test")
        self._progress.done(label, f"{count}, {data.seconds:.1f} s")
        if data.cut_off:
            self.stop(data.cut_off)
            return False
        self._save()
        return True

    def stop(self, reason: str) -> None:
        """Keep what there is, also of a session that was cut off."""
        data, self._data = self._data, SessionData()
        if data.tests:
            self._book.add(data, confirming=bool(self._book.run.candidates))
        self._book.run = replace(self._book.run, stopped=reason)
        self._save()

    def _save(self) -> None:
        save_run(self._book.to_run(), self._options.output)

    def whereabouts(self) -> str:
        """Say where everything is, and how to go on."""
        return f"kept in {self._options.output}; go on with --resume"


def _candidates(run: RunFile, gates: GateOptions) -> tuple[str, ...]:
    """Return the tests with a row that looks slower and may fail for it."""
    judged = compare_sides((run.head.name, run), None, replace(gates, min_effect=None))
    rows = [
        row
        for row in judged.entries
        if row.time in ("suspect", "regression")
        and (row.function or "wall" in gates.fail)
    ]
    return tuple(dict.fromkeys(row.test for row in rows))


class _Progress:
    """Signs of life: a line per session, and a changing one on a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._live = stream is not None and stream.isatty()

    def show(self, label: str, text: str) -> None:
        """Say what is going on, on a terminal only."""
        if self._live and self._stream is not None:
            line = f"numbaprof: {label}: {text}"
            self._stream.write(f"{ERASE_LINE}{line[:100]}")
            self._stream.flush()

    def done(self, label: str, text: str) -> None:
        """Say that a session has ended."""
        if self._stream is not None:
            erase = ERASE_LINE if self._live else ""
            self._stream.write(f"{erase}numbaprof: {label}: {text}\n")
            self._stream.flush()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM, which CI systems send, end everything as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
