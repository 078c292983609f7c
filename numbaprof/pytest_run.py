"""A run under ``pytest --numbaprof``: what runs is marked, the end is reported.

Under pytest-xdist each worker measures itself and hands its profile to the controller
in ``workeroutput``, as bytes of a saved profile; the controller adds them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from numbaprof import recorder, store
from numbaprof.errors import FormatError, SaveError
from numbaprof.merging import merge
from numbaprof.pytest_compile_report import is_part, render
from numbaprof.pytest_fixture import MARKER
from numbaprof.pytest_recording import Recording
from numbaprof.wording import format_duration, plural

if TYPE_CHECKING:
    from collections.abc import Generator

    from numbaprof.model import CompileEvent, ProfileResult

__all__ = ["RunPlugin", "begin", "register"]

WORKER_VARIABLE = "PYTEST_XDIST_WORKER"
"""Set by pytest-xdist in its workers before they read any option."""
OUTPUT = "numbaprof"
"""Key of ``workeroutput``."""


def begin() -> Recording:
    """Begin to measure this process as soon as it imports Numba.

    Raises
    ------
    pytest.UsageError
        ``numbaprof run`` measures this process already.
    """
    if recorder.current() is not None:
        raise pytest.UsageError(
            "--numbaprof: this process is measured by `numbaprof run` already; use "
            "`python -m pytest --numbaprof` without it, or leave --numbaprof out"
        )
    recording = Recording(
        background=True, label=os.environ.get(WORKER_VARIABLE, "main")
    )
    recording.watch()
    return recording


def register(config: pytest.Config, recording: Recording) -> None:
    """Add the hooks of a measured run."""
    config.pluginmanager.register(RunPlugin(config, recording), "numbaprof-run")
    if config.pluginmanager.hasplugin("benchmark"):
        from numbaprof.pytest_companion import Companion

        config.pluginmanager.register(Companion(recording), "numbaprof-companion")


class RunPlugin:
    """The hooks of a measured run, in a worker, in the controller or without either."""

    def __init__(self, config: pytest.Config, recording: Recording) -> None:
        self._config = config
        self._recording = recording
        self._warmups: set[str] = set()
        self._fails = bool(config.getoption("numbaprof_fail_on_compile"))
        self._unjudged = 0
        self._parts: list[ProfileResult] = []
        self._notes: list[str] = []
        self._missing: list[str] = []
        self._total: ProfileResult | None = None
        self._saved = ""
        """What became of the profile that was to be saved."""

    # -- what runs --------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember which tests warm up."""
        for item in items:
            marks = item.iter_markers(MARKER)
            if any(mark.kwargs.get("warmup") is True for mark in marks):
                self._warmups.add(item.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """Mark the fixtures' part."""
        self._recording.mark(f"{item.nodeid} (setup)")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Mark the test's own part; fail it if it may not compile and does."""
        self._recording.mark(item.nodeid)
        before = self._recording.compile_count
        is_warmup = item.nodeid in self._warmups
        try:
            outcome = yield
        finally:
            self._warmups.discard(item.nodeid)
        if not self._fails or is_warmup or self._recording.compile_count == before:
            return outcome
        if self._warmups:
            self._unjudged += 1
            return outcome
        _fail_on_compile([e for e, _ in self._recording.events_of(item.nodeid)])
        return outcome

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Mark what fixtures do at the end."""
        self._recording.mark(f"{item.nodeid} (teardown)")
        return (yield)

    # -- the end ----------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Stop measuring; hand everything over (a worker), or add it up and save it."""
        result = self._recording.finish()
        self._note_what_happened()
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            profile = b"" if result is None else store.to_bytes(result)
            output[OUTPUT] = {"profile": profile, "notes": self._notes}
            return
        parts = [*filter(None, [result]), *self._parts]
        if parts:
            total = merge(parts)
            missing = (*total.losses.missing_processes, *self._missing)
            losses = replace(total.losses, missing_processes=missing)
            self._total = replace(total, losses=losses)
            self._save(self._total)
        elif self._config.getoption("numbaprof_save") is not None:
            self._saved = "nothing was measured, so no profile was saved"

    def _note_what_happened(self) -> None:
        self._notes += self._recording.problems
        gave_way = self._recording.gave_way
        if gave_way:
            others = f" and {len(gave_way) - 1} more" if len(gave_way) > 1 else ""
            self._notes.append(
                f"{gave_way[0]}{others} started a session of numbaprof: what was "
                "measured there is in that one and not here"
            )
        if self._unjudged:
            self._notes.append(
                f"{plural(self._unjudged, 'test')} compiled before all tests marked "
                "numbaprof(warmup=True) had run in this process, and passed for that; "
                "under xdist, warm up in a session fixture"
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take over what a worker has measured (pytest-xdist)."""
        name = node.gateway.id
        output = getattr(node, "workeroutput", {}).get(OUTPUT)
        if output is None:
            reason = f": {error}" if error else ""
            self._missing.append(f"worker {name} left no profile{reason}")
            return
        self._notes += [f"{name}: {note}" for note in output["notes"]]
        if not output["profile"]:
            return
        try:
            self._parts.append(store.from_bytes(output["profile"], f"worker {name}"))
        except FormatError as problem:
            self._missing.append(str(problem))

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Report."""
        write = terminalreporter.write_line
        terminalreporter.section("numbaprof: what the tests compiled")
        if self._total is None:
            write("no test imported numba")
        else:
            top = max(1, self._config.getoption("numbaprof_top"))
            for line in render(self._total, top=top):
                write(line)
        for note in dict.fromkeys([*self._missing, *self._notes]):
            write(f"note: {note}")
        if self._saved:
            write(self._saved)

    def _save(self, total: ProfileResult) -> None:
        file = self._config.getoption("numbaprof_save")
        if file is None:
            return
        try:
            saved = store.save_or_rescue(
                total, os.path.join(self._config.invocation_params.dir, file)
            )
        except SaveError as error:
            self._saved = str(error)
            return
        if saved.problem:
            self._saved = f"{saved.problem}; it was saved in {saved.path} instead"
        else:
            self._saved = f"profile saved; see it with: numbaprof report {saved.path}"


def _fail_on_compile(events: list[CompileEvent]) -> None:
    """Fail the test that runs for what it compiled, loads from the cache apart."""
    compiled = [event for event in events if event.event != "cache_load"]
    if not compiled:
        return
    own = [e for e in compiled if not e.internal and not is_part(e)] or compiled
    names = [
        f"  {event.function.qualname}{event.signature}, "
        f"{format_duration(event.exclusive_ns)}"
        + (f": failed, {event.error}" if event.event == "failed" else "")
        for event in own
    ]
    took = format_duration(sum(event.exclusive_ns for event in compiled))
    pytest.fail(
        "\n".join(
            [
                f"--numbaprof-fail-on-compile: {plural(len(own), 'compilation')}, "
                f"{took}; warm up in a fixture or in a test marked "
                "numbaprof(warmup=True)",
                *dict.fromkeys(names),
            ]
        ),
        pytrace=False,
    )
