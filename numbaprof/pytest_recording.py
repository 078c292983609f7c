"""The measuring of one pytest process: one profile, made of several stretches.

Under ``pytest --numbaprof`` a session runs in the background from the import of Numba
to the end. It is interrupted where something else is to be measured (a test with
budgets, the rounds of a benchmark) and where a test starts a session of its own: ours
steps aside and goes on with the next test. All stretches are joined at the end, and
each compile event gets the name of the test that was running.
"""

from __future__ import annotations

import sys
import time
import warnings
from bisect import bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numbaprof.bootstrap import call_when_numba_is_imported
from numbaprof.errors import ActiveSessionError, NumbaprofError, NumbaprofWarning
from numbaprof.pytest_compile_report import owner_of
from numbaprof.stretches import join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.model import CompileEvent, ProfileResult
    from numbaprof.session import Session

__all__ = ["COLLECTION", "Recording", "Stretch"]

COLLECTION = "(collection)"
"""What runs before the first test: conftest files and the import of test modules."""


@dataclass(slots=True)
class Stretch:
    """A part of the run that was measured on its own."""

    session: Session
    result: ProfileResult | None = None
    """None while it runs."""
    gave_way: bool = False
    """It ended early, because the test started a session of its own."""

    @property
    def compile_count(self) -> int:
        """Compilations, cache loads and failures that have ended in it so far."""
        return self.session.compile_count


class Recording:
    """Measures this process, in stretches.

    Parameters
    ----------
    background : bool
        Measure all the time, and keep everything for :meth:`finish`. Without it only
        :meth:`measure` measures.
    label : str
        Name of this process in the profile.

    Attributes
    ----------
    problems : list of str
        What stood in the way of measuring, for the report.
    gave_way : list of str
        Tests that started a session of their own.
    """

    def __init__(self, *, background: bool, label: str = "main") -> None:
        self.problems: list[str] = []
        self.gave_way: list[str] = []
        self._background = background
        self._label = label
        self._parts: list[tuple[int, ProfileResult]] = []
        self._marks: list[tuple[int, str]] = [(0, COLLECTION)]
        self._current: Stretch | None = None
        self._last: Session | None = None
        self._ended = 0
        """Compile events of the stretches that have ended."""

    # -- the background ---------------------------------------------------------------

    def watch(self) -> None:
        """Begin to measure in the background, as soon as Numba is imported."""
        call_when_numba_is_imported(self._resume)

    def mark(self, test: str) -> None:
        """Say what runs from now on; costs about a microsecond."""
        self._marks.append((time.perf_counter_ns(), test))
        if self._current is None and self._background and "numba" in sys.modules:
            self._resume()

    def _resume(self) -> None:
        if not self._background or self._current is not None:
            return
        try:
            self._begin({})
        except ActiveSessionError:
            # A test's own session that outlives the test, such as a fixture's.
            self._note_gave_way()
        except NumbaprofError as error:
            self._background = False
            self.problems.append(f"measuring could not go on: {error}")

    def finish(self) -> ProfileResult | None:
        """Stop for good; return the profile, None when nothing was measured.

        To be called once: the profile is not kept.
        """
        self._end()
        self._background = False
        parts, self._parts = self._parts, []
        return join(parts) if parts else None

    def close(self) -> None:
        """Stop, if nobody has; what was measured is dropped."""
        self._background = False
        self._end()

    # -- stretches --------------------------------------------------------------------

    @contextmanager
    def measure(self, **options: Any) -> Iterator[Stretch]:
        """Measure a stretch on its own.

        Parameters
        ----------
        **options
            Of :class:`numbaprof.session.SessionOptions`.

        Raises
        ------
        ActiveSessionError
            Somebody else's session is running.
        """
        self._end()
        try:
            stretch = self._begin(options)
            try:
                yield stretch
            finally:
                if self._current is stretch:
                    self._end()
        finally:
            if "numba" in sys.modules:
                self._resume()

    @property
    def compile_count(self) -> int:
        """Compile events of the whole run so far."""
        return self._ended + (self._current.compile_count if self._current else 0)

    @property
    def test(self) -> str:
        """What runs now, as it was last marked."""
        return self._marks[-1][1]

    def events_of(self, test: str) -> list[tuple[CompileEvent, CompileEvent]]:
        """Return what happened under a mark, each with the event it is charged to.

        Ends the stretch that is running, if anything was compiled in it, and goes on
        with another. To be called in the background only.
        """
        if self._current is not None and self._current.compile_count:
            self._end()
            self._resume()
        found: list[tuple[CompileEvent, CompileEvent]] = []
        for _, result in reversed(self._parts):
            events = result.compile_events
            found[:0] = [(e, owner_of(e, events)) for e in events if e.test == test]
            if events and events[0].test != test:
                # Tests come one after another: what is earlier is of earlier ones.
                break
        return found

    def events_between(self, begin_ns: int, end_ns: int) -> list[CompileEvent]:
        """Return what began between two readings of ``time.perf_counter_ns``."""
        return [
            event
            for origin_ns, result in self._parts
            for event in result.compile_events
            if begin_ns <= origin_ns + event.start_ns <= end_ns
        ]

    def _begin(self, options: dict[str, Any]) -> Stretch:
        from numbaprof.session import Session, SessionOptions

        given = {"label": self._label, "prime": True, **options}
        session = Session(SessionOptions(**given), after=self._last)
        session.gives_way = self._give_way
        # A test's filter may make errors of warnings; these are not the test's.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NumbaprofWarning)
            session.start()
        for warning in caught:
            text = str(warning.message)
            if text not in self.problems:
                self.problems.append(text)
        self._last = session
        self._current = Stretch(session)
        return self._current

    def _end(self) -> None:
        stretch, self._current = self._current, None
        if stretch is None or not stretch.session.active:
            return
        result = self._with_tests(stretch.session.stop(), stretch.session.origin_ns)
        stretch.result = result
        self._ended += len(result.compile_events)
        if self._background:
            self._parts.append((stretch.session.origin_ns, result))

    def _give_way(self) -> None:
        """Step aside for a session that is about to start."""
        stretch = self._current
        self._end()
        if stretch is not None:
            stretch.gave_way = True
        self._note_gave_way()

    def _note_gave_way(self) -> None:
        if self.test not in self.gave_way:
            self.gave_way.append(self.test)

    def _with_tests(self, result: ProfileResult, origin_ns: int) -> ProfileResult:
        starts = [since for since, _ in self._marks]

        def test_at(start_ns: int) -> str:
            return self._marks[bisect_right(starts, origin_ns + start_ns) - 1][1]

        return replace(
            result,
            compile_events=tuple(
                replace(event, test=test_at(event.start_ns))
                for event in result.compile_events
            ),
        )
