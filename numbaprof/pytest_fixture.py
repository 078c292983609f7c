"""The fixture ``numbaprof`` and the judging of tests that have budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from numbaprof.errors import ActiveSessionError, OptionError, SessionStateError
from numbaprof.pytest_budgets import Budgets, judge
from numbaprof.stretches import join

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from types import TracebackType

    import pandas as pd

    from numbaprof.model import ProfileResult
    from numbaprof.pytest_recording import Recording, Stretch

__all__ = ["BudgetPlugin", "Measured"]

FIXTURE = MARKER = "numbaprof"
INTERRUPTED = (
    "the test started a session of numbaprof itself, so that not all of it was "
    "measured; leave the budgets or that session out"
)


class Measured:
    """What the fixture ``numbaprof`` is: it measures what is called through it.

    ``numbaprof(func, *args)`` calls the function and returns its value; ``with
    numbaprof:`` measures a block. Several measurements of one test add up.
    """

    def __init__(self, recording: Recording, *, fingerprints: bool) -> None:
        self._recording = recording
        self._options = {"fingerprints": True} if fingerprints else {}
        self._stretches: list[tuple[int, ProfileResult]] = []
        self._open: tuple[AbstractContextManager[Stretch], Stretch] | None = None
        self.was_interrupted = False

    def __call__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, measured, and return its value."""
        with self:
            return func(*args, **kwargs)

    def __enter__(self) -> Measured:
        """Begin to measure."""
        if self._open is not None:
            raise SessionStateError(
                "the fixture numbaprof is measuring already; do not nest its blocks"
            )
        manager = self._recording.measure(**self._options)
        self._open = (manager, manager.__enter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End; an exception passes on."""
        if self._open is None:
            return
        (manager, stretch), self._open = self._open, None
        manager.__exit__(None, None, None)
        self.was_interrupted |= stretch.gave_way
        if stretch.result is not None:
            self._stretches.append((stretch.session.origin_ns, stretch.result))

    @property
    def was_used(self) -> bool:
        """Whether anything was measured."""
        return bool(self._stretches)

    @property
    def result(self) -> ProfileResult:
        """The profile of all that was measured in this test so far.

        Raises
        ------
        SessionStateError
            Nothing was measured yet.
        """
        if not self._stretches:
            raise SessionStateError(
                "the fixture numbaprof has measured nothing yet; call "
                "numbaprof(func, *args), or use `with numbaprof:`"
            )
        return join(self._stretches)

    @property
    def stats(self) -> pd.DataFrame:
        """One row per overload."""
        return self.result.stats

    @property
    def compiles(self) -> pd.DataFrame:
        """One row per compilation, cache load and failure."""
        return self.result.compiles

    @property
    def findings(self) -> pd.DataFrame:
        """One row per piece of advice."""
        return self.result.findings

    def report(self, **options: Any) -> str:
        """Return the report as plain text; see :meth:`ProfileResult.report`."""
        return self.result.report(**options)


class BudgetPlugin:
    """The hooks around tests that have the marker or the fixture."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._handles: dict[str, Measured] = {}

    def handle(self, item: pytest.Item) -> Measured:
        """Return what the fixture is in this test."""
        budgets = Budgets.from_marks(item.iter_markers(MARKER))
        measured = Measured(self._recording, fingerprints=budgets.needs_machine_code)
        self._handles[item.nodeid] = measured
        return measured

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse a marker that asks for what there is not."""
        problem = ""
        try:
            Budgets.from_marks(item.iter_markers(MARKER))
        except OptionError as error:
            problem = str(error)
        if problem:
            pytest.fail(f"marker numbaprof: {problem}", pytrace=False)

    # Last of the wrappers, and so directly around the test: in its call, because what
    # is raised in a fixture's teardown is an ERROR and not a FAILED.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Measure the test if the marker is all it has, and judge it."""
        budgets = Budgets.from_marks(item.iter_markers(MARKER))
        measured = self._handles.pop(item.nodeid, None)
        if not budgets.sets_any:
            return (yield)
        if measured is not None:
            outcome = yield
            if not measured.was_used:
                pytest.fail(
                    "the fixture numbaprof was not used, so there is nothing to hold "
                    "the budgets against: call numbaprof(func, *args), or leave the "
                    "fixture out to watch the whole test",
                    pytrace=False,
                )
            _hold(budgets, measured.result, interrupted=measured.was_interrupted)
            return outcome
        options = {"fingerprints": True} if budgets.needs_machine_code else {}
        try:
            stretch_manager = self._recording.measure(**options)
            stretch = stretch_manager.__enter__()
        except ActiveSessionError as error:
            pytest.fail(f"the budgets cannot be judged: {error}", pytrace=False)
        try:
            outcome = yield
        finally:
            stretch_manager.__exit__(None, None, None)
        if stretch.result is not None:
            _hold(budgets, stretch.result, interrupted=stretch.gave_way)
        return outcome


def _hold(budgets: Budgets, result: ProfileResult, *, interrupted: bool) -> None:
    """Fail the test that runs if it is over its budgets."""
    broken = [INTERRUPTED] if interrupted else judge(result, budgets)
    if broken:
        pytest.fail("numbaprof budget: " + "\n".join(broken), pytrace=False)
