"""The companion of pytest-benchmark: what it measures is warm, and known by overload.

With ``pytest --numbaprof``, around each use of the plain ``benchmark`` fixture:

1. the function is called until a call compiles nothing, so that pytest-benchmark does
   not calibrate on a compilation;
2. pytest-benchmark measures, with nothing of ours in front of compiled code; only
   compilations are noticed, and a round in which one happened is dropped and named;
3. a pass of its own counts and times the overloads that the function calls.

It stays away where pytest-benchmark does not measure: under pytest-xdist, with
``--benchmark-disable``, and where another plugin provides ``benchmark``
(pytest-codspeed).
"""

from __future__ import annotations

import functools
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from numbaprof.pytest_benchmark_rows import Pass, build_rows, render_tables
from numbaprof.pytest_compile_report import is_part

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from numbaprof.pytest_recording import Recording, Stretch

__all__ = ["Companion"]

PRIVATE_NAMES = ("_make_runner", "_make_stats", "_raw", "_raw_pedantic")
"""What we need of ``BenchmarkFixture``; there in pytest-benchmark 4.0 to 5.3."""
MAX_WARMUP_CALLS = 5
"""A function that still compiles then does so at every call."""
PROBED_ROUNDS = 20
PROBED_ROUND_NS = 1_000_000
PROBED_BUDGET_NS = 250_000_000
"""Rounds of the pass that counts, their length, and what all of them may take."""
EVERY_ROUND = "something was compiled in every round; none was dropped"
CALLED_ONCE = "called only once, by pytest-benchmark, so its overloads were not counted"


class Companion:
    """The hooks that join the ``benchmark`` fixture.

    Parameters
    ----------
    recording : Recording
        Measures in the background.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._tables: list[tuple[str, dict[str, Any]]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Join a benchmark that is going to be measured."""
        fixture = yield
        if fixturedef.argname != "benchmark" or not getattr(fixture, "enabled", False):
            return fixture
        # Not by its class: pytest-codspeed's fixture says that it is one of these.
        missing = [name for name in PRIVATE_NAMES if not hasattr(fixture, name)]
        if len(missing) == len(PRIVATE_NAMES):
            return fixture
        if missing:
            problem = f"benchmarks are left alone: no {missing[0]} in this benchmark"
            if problem not in self._recording.problems:
                self._recording.problems.append(problem)
            return fixture
        _Joined(fixture, self._recording, request.node.nodeid, self._tables)
        return fixture

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Show the overloads of each benchmark."""
        if self._tables:
            terminalreporter.section("numbaprof: overloads of the benchmarks")
            for line in render_tables(self._tables):
                terminalreporter.write_line(line)


@dataclass(slots=True)
class _Rounds:
    """What happened while pytest-benchmark measured."""

    stretch: Stretch | None = None
    number: int = 0
    """Rounds so far."""
    last: tuple[int, int] | None = None
    """When the last use of the runner that compiled something began and ended."""
    dropped: list[tuple[int, float, tuple[int, int]]] = field(default_factory=list)
    """Number from 1, duration as pytest-benchmark has it, beginning and end."""

    def watch(self, runner: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the loop that times a round; ours is outside what it times."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            count = self.stretch.compile_count if self.stretch else 0
            begin_ns = time.perf_counter_ns()
            try:
                return runner(*args, **kwargs)
            finally:
                self.last = None
                if self.stretch and self.stretch.compile_count != count:
                    self.last = (begin_ns, time.perf_counter_ns())

        return watched

    def filter(self, update: Callable[[float], None]) -> Callable[[float], None]:
        """Wrap what takes the duration of a round."""

        def take(duration: float) -> None:
            self.number += 1
            if self.last is None:
                update(duration)
            else:
                self.dropped.append((self.number, duration, self.last))

        return take


class _Joined:
    """One use of the ``benchmark`` fixture, with its methods replaced by ours."""

    def __init__(
        self,
        fixture: Any,
        recording: Recording,
        test: str,
        tables: list[tuple[str, dict[str, Any]]],
    ) -> None:
        self._fixture, self._recording = fixture, recording
        self._test, self._tables = test, tables
        self._rounds = _Rounds()
        self._plain_raw, self._plain_pedantic = fixture._raw, fixture._raw_pedantic
        self._make_runner, self._make_stats = fixture._make_runner, fixture._make_stats
        fixture._raw, fixture._raw_pedantic = self._raw, self._raw_pedantic
        fixture._make_runner, fixture._make_stats = self._runner, self._stats

    def _runner(self, *args: Any, **kwargs: Any) -> Any:
        return self._rounds.watch(self._make_runner(*args, **kwargs))

    def _stats(self, *args: Any, **kwargs: Any) -> Any:
        stats = self._make_stats(*args, **kwargs)
        self._update = stats.update
        stats.update = self._rounds.filter(stats.update)
        return stats

    # -- the two ways to use the fixture ----------------------------------------------

    def _raw(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(function, *args, **kwargs)
        warmup_calls = self._warm_up(call)
        with self._measured_by_benchmark():
            value = self._plain_raw(function, *args, **kwargs)
        counted = self._count(lambda: None, lambda _: call(), lambda _: None)
        self._keep(counted, warmup_calls)
        return value

    def _raw_pedantic(
        self,
        target: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        **options: Any,
    ) -> Any:
        given = (tuple(args), dict(kwargs or {}))
        setup, teardown = options.get("setup"), options.get("teardown")

        def prepare() -> Any:
            return (setup() if setup is not None else None) or given

        def call(arguments: Any) -> None:
            target(*arguments[0], **arguments[1])

        def clean_up(arguments: Any) -> None:
            if teardown is not None:
                teardown(*arguments[0], **arguments[1])

        def call_once() -> None:
            call(given)
            clean_up(given)

        rounds, iterations = options.get("rounds", 1), options.get("iterations", 1)
        once = rounds == iterations == 1 and not options.get("warmup_rounds")
        warmup_calls = 0
        if setup is None and not once:
            # With a setup each call may be another one: its rounds are counted as the
            # test counts them, and one that compiles is dropped.
            warmup_calls = self._warm_up(call_once)
        with self._measured_by_benchmark():
            value = self._plain_pedantic(target, args=args, kwargs=kwargs, **options)
        if setup is None and once:
            counted = Pass(note=CALLED_ONCE)
        else:
            counted = self._count(prepare, call, clean_up, single=setup is not None)
        self._keep(counted, warmup_calls)
        return value

    # -- warm, measured, counted ------------------------------------------------------

    def _warm_up(self, call: Callable[[], object]) -> int:
        """Call until a call compiles nothing; return the number of calls."""
        number, count = 0, -1
        while number < MAX_WARMUP_CALLS and self._recording.compile_count != count:
            count = self._recording.compile_count
            call()
            number += 1
        return number

    @contextmanager
    def _measured_by_benchmark(self) -> Iterator[None]:
        """Step aside; notice compilations only."""
        with self._recording.measure(calls=False) as stretch:
            self._rounds.stretch = stretch
            yield
        self._rounds.stretch = None
        rounds = self._rounds
        if rounds.dropped and not self._fixture.stats.stats.data:
            for _, duration, _ in rounds.dropped:
                self._update(duration)

    def _count(
        self,
        prepare: Callable[[], Any],
        call: Callable[[Any], object],
        clean_up: Callable[[Any], object],
        *,
        single: bool = False,
    ) -> Pass:
        """Count and time overloads in calls of our own."""
        counted = Pass()
        with self._recording.measure(fingerprints=True) as stretch:
            until = time.perf_counter_ns() + PROBED_BUDGET_NS
            try:
                for _ in range(PROBED_ROUNDS):
                    arguments = prepare()
                    before = stretch.session.counters(inclusive=True)
                    n_calls, begin = 0, time.perf_counter_ns()
                    while not n_calls or (
                        not single and time.perf_counter_ns() - begin < PROBED_ROUND_NS
                    ):
                        call(arguments)
                        n_calls += 1
                    after = stretch.session.counters(inclusive=True)
                    counted.add(n_calls, before, after)
                    clean_up(arguments)
                    if time.perf_counter_ns() > until:
                        break
            except Exception as error:  # the program's own, raised once more
                # These calls are ours: the benchmark is done and the test passes.
                counted.note = f"counting ended: {type(error).__name__}: {error}"
        counted.result = stretch.result
        return counted

    def _keep(self, counted: Pass, warmup_calls: int) -> None:
        """Attach what is known to the benchmark."""
        charged = self._recording.events_of(self._recording.test)
        dropped: list[dict[str, Any]] = [
            {"round": number, "compiled": self._compiled_between(*span)}
            for number, _, span in self._rounds.dropped
        ]
        info: dict[str, Any] = {
            "schema": 1,
            "warmup_calls": warmup_calls,
            "compiles_in_rounds": sum(len(r["compiled"]) for r in dropped),
            "dropped_rounds": dropped,
            "overloads": build_rows(counted, charged),
            "note": counted.note,
        }
        if len(dropped) == self._rounds.number and dropped:
            info["dropped_rounds"] = []
            info["note"] = "; ".join(filter(None, [EVERY_ROUND, counted.note]))
        self._fixture.extra_info["numbaprof"] = info
        self._tables.append((self._test, info))

    def _compiled_between(self, begin_ns: int, end_ns: int) -> list[str]:
        """Name what was compiled; Numba's helpers only if there was nothing else."""
        events = self._recording.events_between(begin_ns, end_ns)
        own = [e for e in events if not e.internal and not is_part(e)] or events
        return [f"{event.function.qualname}{event.signature}" for event in own]
