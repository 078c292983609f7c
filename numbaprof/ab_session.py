"""One session of ``numbaprof ab``: two fresh pytest processes in lock-step.

Only one of the two works at any time: the other waits for its turn, so both have the
machine to themselves, under the same conditions, milliseconds apart.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.ab_link import (
    ADDRESS,
    SIDE,
    TOKEN,
    Link,
    LinkClosed,
    LinkTimeout,
    Listener,
)
from numbaprof.errors import ComparisonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numbaprof.ab_sides import Side

__all__ = ["Lockstep", "SessionData", "TestData", "run_session"]

SIDES = ("base", "head")
MAX_SEED = 2**32 - 1
"""Of PYTHONHASHSEED."""
START_TIMEOUT_S = 600.0
"""For importing a project and collecting its tests, when there is no budget."""
STOP_GRACE_S = 5.0
TAIL_LINES = 15
Key = tuple[str, str, str, int, int, str]
"""Module, qualified name, file, line, instance, signature."""


@dataclass(frozen=True, slots=True)
class Lockstep:
    """How a session runs."""

    rounds: int
    round_ns: int
    pytest_args: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    """Node ids to measure; () for all."""
    deadline: float = math.inf
    """``time.monotonic()`` at which to stop."""
    cache: Path | None = None
    """Folder for Numba's caches that later sessions use again; None for fresh ones."""


@dataclass(slots=True)
class TestData:
    """Rounds of one test on both sides."""

    __test__ = False  # pytest would collect it for its name

    node: str
    iterations: int = 0
    walls: list[tuple[float, float]] = field(default_factory=list)
    """(base, head) per round, nanoseconds per call of the test."""
    rows: list[tuple[dict[Key, list[float]], dict[Key, list[float]]]] = field(
        default_factory=list
    )
    """Per round and side: calls and nanoseconds by overload."""
    dropped: int = 0
    """Rounds in which something was compiled."""


@dataclass(slots=True)
class SessionData:
    """Everything one session has to say."""

    collected: dict[str, list[str]] = field(default_factory=dict)
    tests: list[TestData] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)
    """By side: node id and error of tests that failed."""
    not_met: list[str] = field(default_factory=list)
    """Tests that passed or were skipped without measuring."""
    final: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By side: overloads, machine, what was compiled when. Empty if it was cut off."""
    cut_off: str = ""
    """Why it ended before its end."""
    seconds: float = 0.0


def run_session(
    sides: Sequence[Side],
    plan: Lockstep,
    data: SessionData,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Run one session; fill ``data`` as it goes, so that an interrupt loses little.

    Parameters
    ----------
    sides : sequence of Side
        Base and head.
    plan : Lockstep
        How.
    data : SessionData
        Filled in.
    tell : callable, optional
        Told what is going on.

    Raises
    ------
    ComparisonError
        A side could not be collected, or ended early.
    """
    started = time.monotonic()
    try:
        with _workers(sides, plan) as workers:
            try:
                _drive(workers, plan, data, tell)
            except LinkClosed as error:
                raise workers.explained(error) from None
            except LinkTimeout:
                if time.monotonic() < plan.deadline - 1.0:
                    raise
                data.cut_off = "the budget was used up"
    finally:
        data.seconds = time.monotonic() - started


# -- processes -------------------------------------------------------------------------


class _Workers:
    """The two processes and the links to them."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self.folder = folder
        self.deadline = deadline
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.links: dict[str, Link] = {}

    def left_s(self) -> float:
        """Return how long an answer may take."""
        return max(0.0, min(START_TIMEOUT_S, self.deadline - time.monotonic()))

    def receive(self, side: str) -> dict[str, Any]:
        """Return the next message of a side."""
        return self.links[side].receive(self.left_s())

    def tail(self, side: str) -> str:
        """Return the end of what a side printed."""
        text = (self.folder / f"{side}.log").read_text(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-TAIL_LINES:])

    def explained(self, error: ComparisonError) -> ComparisonError:
        """Return the error with the exit code and the last words of who ended."""
        for side, process in self.processes.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_GRACE_S)
            if process.returncode is not None and (
                process.returncode or side in str(error)
            ):
                return ComparisonError(
                    f"the {side} side ended early, with exit code "
                    f"{process.returncode}; it said:\n{self.tail(side)}"
                )
        return error

    def stop(self) -> None:
        """End what still runs, with all it started."""
        for link in self.links.values():
            link.close()
        for process in self.processes.values():
            if process.poll() is None:
                _signal_group(process, signal.SIGTERM)
        until = time.monotonic() + STOP_GRACE_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


@contextmanager
def _workers(sides: Sequence[Side], plan: Lockstep) -> Iterator[_Workers]:
    listener = Listener()
    try:
        with tempfile.TemporaryDirectory(prefix="numbaprof-ab-") as folder:
            workers = _Workers(Path(folder), plan.deadline)
            try:
                seed = str(secrets.randbelow(MAX_SEED))
                shim = _import_shim(Path(folder))
                for name, side in zip(SIDES, sides, strict=True):
                    environment = _environment(name, side, listener)
                    environment["PYTHONHASHSEED"] = seed
                    paths = [str(shim), *side.import_paths]
                    if os.environ.get("PYTHONPATH"):
                        paths.append(os.environ["PYTHONPATH"])
                    environment["PYTHONPATH"] = os.pathsep.join(paths)
                    cache = (plan.cache or Path(folder)) / f"cache-{name}"
                    environment["NUMBA_CACHE_DIR"] = str(cache)
                    workers.processes[name] = _started(name, side, plan, environment,
                                                       Path(folder))  # fmt: skip
                _accept(workers, listener)
                yield workers
            finally:
                workers.stop()
    finally:
        listener.close()


def _import_shim(folder: Path) -> Path:
    """Return a folder from which this numbaprof, and nothing else, is imported.

    The other side may be another environment: putting our site-packages on its path
    would give it our NumPy.
    """
    shim = folder / "import"
    shim.mkdir()
    (shim / "numbaprof").symlink_to(Path(__file__).parent, target_is_directory=True)
    return shim


def _environment(name: str, side: Side, listener: Listener) -> dict[str, str]:
    return os.environ | {
        ADDRESS: listener.address,
        TOKEN: listener.token,
        SIDE: name,
        # Checkouts stay as they are.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _started(
    name: str, side: Side, plan: Lockstep, environment: dict[str, str], folder: Path
) -> subprocess.Popen[bytes]:
    command = [
        side.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
        "no:numbaprof", "-p", "numbaprof.ab_worker", "--rootdir=.", *plan.pytest_args,
    ]  # fmt: skip
    with (folder / f"{name}.log").open("wb") as log:
        # In a session of its own: Ctrl-C in a terminal is for us to pass on.
        return subprocess.Popen(
            command, cwd=side.root, env=environment, stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def _accept(workers: _Workers, listener: Listener) -> None:
    """Wait until both sides have introduced themselves."""
    until = time.monotonic() + workers.left_s()
    while len(workers.links) < len(SIDES):
        arrived = listener.accept(0.2)
        if arrived is not None:
            workers.links[arrived[0]] = arrived[1]
            continue
        for side, process in workers.processes.items():
            if process.poll() is not None and side not in workers.links:
                raise ComparisonError(
                    f"the {side} side did not start, exit code {process.returncode}; "
                    f"it said:\n{workers.tail(side)}"
                )
        if time.monotonic() > until:
            raise LinkTimeout("a side did not start in time")


# -- lock-step -------------------------------------------------------------------------


def _drive(
    workers: _Workers, plan: Lockstep, data: SessionData, tell: Callable[[str], None]
) -> None:
    tell("collecting")
    chosen = _agree(workers, plan, data)
    names: dict[str, dict[int, Key]] = {side: {} for side in SIDES}
    for number, node in enumerate(chosen, 1):
        tell(f"test {number} of {len(chosen)}: {node}")
        _run_test(workers, plan, data, (node, names))
    for side in SIDES:
        data.final[side] = workers.receive(side)


def _agree(workers: _Workers, plan: Lockstep, data: SessionData) -> list[str]:
    """Exchange the collected tests; return those to run, in base's order."""
    for side in SIDES:
        hello = workers.receive(side)
        data.collected[side] = hello["collected"]
        if hello["errors"]:
            raise ComparisonError(
                f"the {side} side fails to collect: {'; '.join(hello['errors'][:3])}"
            )
    head = set(data.collected["head"])
    common = [node for node in data.collected["base"] if node in head]
    if not common:
        raise ComparisonError(
            "there is no common test with the fixture `benchmark` or `numbaprof`: "
            f"{_counted(data.collected['base'])} on the base side, "
            f"{_counted(data.collected['head'])} on the head side; tests are paired by "
            "node id"
        )
    chosen = [node for node in common if not plan.only or node in plan.only]
    for side in SIDES:
        workers.links[side].send(run=chosen)
    return chosen


def _counted(nodes: Sequence[str]) -> str:
    return f"{len(nodes)} ({nodes[0]}, ...)" if nodes else "none"


def _run_test(
    workers: _Workers,
    plan: Lockstep,
    data: SessionData,
    what: tuple[str, dict[str, dict[int, Key]]],
) -> None:
    """Let both sides run one test, in rounds if both get that far."""
    node, names = what
    first = {side: workers.receive(side) for side in SIDES}
    ready = [side for side in SIDES if "ready" in first[side]]
    if len(ready) == len(SIDES):
        shortest = min(first[side]["call_ns"] for side in SIDES)
        test = TestData(node, max(1, math.ceil(plan.round_ns / max(shortest, 1.0))))
        for number in range(plan.rounds):
            _run_round(workers, test, number, names)
        data.tests.append(test)
    for side in ready:
        workers.links[side].send(end=True)
    for side in SIDES:
        done = workers.receive(side) if side in ready else first[side]
        if done["outcome"] == "failed":
            data.failed.setdefault(side, []).append(f"{node} ({done['text']})")
        elif side not in ready:
            data.not_met.append(node)


def _run_round(
    workers: _Workers, test: TestData, number: int, names: dict[str, dict[int, Key]]
) -> None:
    """Run one round on each side, in alternating order, with equal numbers of calls."""
    answers = {}
    for side in SIDES if number % 2 == 0 else reversed(SIDES):
        workers.links[side].send(go=test.iterations)
        answer = answers[side] = workers.receive(side)
        for index, *identity in answer["names"]:
            names[side][index] = _key(identity)
    if any(answer["compiled"] for answer in answers.values()):
        test.dropped += 1
        return
    base, head = (
        {
            names[side][index]: [float(calls), ns]
            for index, calls, ns in answers[side]["rows"]
        }
        for side in SIDES
    )
    test.rows.append((base, head))
    walls = [answers[side]["wall_ns"] / test.iterations for side in SIDES]
    test.walls.append((walls[0], walls[1]))


def _key(identity: Sequence[Any]) -> Key:
    module, qualname, file, line, instance, signature = identity
    return module, qualname, file, line, instance, signature
