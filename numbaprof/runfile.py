"""The file of ``numbaprof ab``: what both sides were measured to do, by session.

One JSON object, a superset of pytest-benchmark's file, so that ``pytest-benchmark
compare`` and what else reads those can read it (one "benchmark" per test and overload,
of the head side)::

    {"machine_info": ..., "commit_info": ..., "benchmarks": [...], "datetime": ...,
     "version": ...,
     "numbaprof": {"schema": "numbaprof-run", "version": 1, "run": {...}}}

``run`` is a :class:`RunFile`, field by field. A row takes less than a kilobyte; the
rounds themselves are kept only when asked for.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.errors import FormatError
from numbaprof.model import Fingerprint  # noqa: TC001  the reader resolves hints
from numbaprof.schema import Mismatch, from_plain, to_plain
from numbaprof.store import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

__all__ = [
    "RUN_SCHEMA",
    "RUN_VERSION",
    "Machine",
    "OverloadSide",
    "RunFile",
    "RunOverload",
    "RunSettings",
    "RunSide",
    "TestTimes",
    "is_run",
    "load_run",
    "log_rounded",
    "read_run",
    "save_run",
    "significant",
]

RUN_SCHEMA = "numbaprof-run"
RUN_VERSION = 1
DIGITS = 4
"""Significant ones of a time: 0.1 % at most."""
LOG_DIGITS = 4
"""Of log(head / base): 0.01 %."""
NS_PER_S = 1e9
PYTEST_BENCHMARK_VERSION = "5.3.1"
"""Release whose files these look like; pytest-benchmark never checks it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where one side ran, and with what."""

    python: str = ""
    numba: str = ""
    llvmlite: str = ""
    numpy: str = ""
    numbaprof: str = ""
    platform: str = ""
    cpu: str = ""
    cpu_count: int = 0
    numba_num_threads: int = 0
    target: str = ""
    """What machine code depends on; see ``Environment.target``."""
    id: str = ""
    """Tells machines of one model apart, until the next boot; "" when unknown."""


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the two things that were compared."""

    name: str
    """As given: a directory, a git ref, a Python executable."""
    commit: str = ""
    machine: Machine = Machine()
    tests: tuple[str, ...] = ()
    """Node ids that were collected and can be measured."""
    failed_tests: tuple[str, ...] = ()
    """Of the common ones, those that failed on this side."""


@dataclass(frozen=True, slots=True)
class OverloadSide:
    """An overload as one side has it."""

    file: str
    line: int
    kind: str = "function"
    fingerprint: Fingerprint | None = None
    fingerprint_reason: str = ""
    compile_cpu_ms: tuple[float, ...] = ()
    """Exclusive process CPU time of its compilations, one sum per session in which
    there were any. Milliseconds, for the file's size: nobody needs less."""
    cache_loads: int = 0
    """Sessions in which it came out of Numba's cache instead."""
    parallel: bool = False
    not_countable_reason: str = ""


@dataclass(frozen=True, slots=True)
class TestTimes:
    """Times of one overload in one test, or of the whole test; one entry per session.

    An entry is NaN in a session whose rounds did not call it on that side.
    """

    __test__ = False  # pytest would collect it for its name

    test: str
    base_ns: tuple[float, ...] = ()
    """Median over rounds of the time per call, exclusive of other overloads."""
    head_ns: tuple[float, ...] = ()
    log_ratio: tuple[float, ...] = ()
    """Median over rounds of log(head / base), taken in lock-step."""
    base_calls: float = 1.0
    """Calls per call of the test."""
    head_calls: float = 1.0
    rounds: tuple[tuple[tuple[float, float], ...], ...] = ()
    """(base, head) of every round, per session, if they were saved."""


@dataclass(frozen=True, slots=True)
class RunOverload:
    """One overload, on either side or both."""

    function: str
    """``module.qualname``, made unique by ``#2`` in order of creation; no line."""
    signature: str
    base: OverloadSide | None
    head: OverloadSide | None
    tests: tuple[TestTimes, ...] = ()
    base_tests: tuple[str, ...] = ()
    """Tests during which it came into being on the base side, unless in ``tests``."""
    head_tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a comparison was asked for."""

    sessions: int
    confirm: int
    rounds: int
    round_ns: int
    min_effect: float
    pytest_args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFile:
    """A finished or interrupted comparison."""

    settings: RunSettings
    base: RunSide
    head: RunSide
    started: str
    sessions: int = 0
    """Finished sessions of the first stage."""
    confirmed: int = 0
    """Finished sessions of the confirming stage."""
    candidates: tuple[str, ...] = ()
    """Tests that the confirming stage measures."""
    overloads: tuple[RunOverload, ...] = ()
    walls: tuple[TestTimes, ...] = ()
    """Wall time of one call of each test's function."""
    iterations: tuple[tuple[str, int], ...] = ()
    """(test, calls per round), the same on both sides; of the last session."""
    compiled_in_rounds: tuple[str, ...] = ()
    """Tests in whose rounds something was compiled; those rounds were dropped."""
    problems: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    """Why the sides were not what was meant to be compared."""
    stopped: str = ""
    """Why fewer sessions than asked for were made: "" when none are missing."""


def significant(values: Iterable[float]) -> tuple[float, ...]:
    """Return times as they are kept: enough digits, no more bytes than needed."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in values)


def log_rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Return log ratios as they are kept."""
    return tuple(round(value, LOG_DIGITS) for value in values)


# -- files -----------------------------------------------------------------------------


def save_run(run: RunFile, path: str | PathLike[str]) -> None:
    """Write a run file, whole or not at all.

    Raises
    ------
    SaveError
        The file could not be written; an older one of that name is untouched.
    """
    document = {
        "machine_info": _machine_info(run.head.machine),
        "commit_info": {"id": run.head.commit},
        "datetime": run.started,
        "version": PYTEST_BENCHMARK_VERSION,
        "benchmarks": _benchmarks(run),
        "numbaprof": {
            "schema": RUN_SCHEMA,
            "version": RUN_VERSION,
            "run": _without_defaults(run),
        },
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"
    write_whole(path, text.encode(), what="run")


def _without_defaults(value: Any) -> Any:
    """Return the plain form without fields at their defaults, which readers fill in."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _without_defaults(getattr(value, field.name))
            for field in fields(value)
            if getattr(value, field.name) != field.default
        }
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return to_plain(value)


def is_run(document: Any) -> bool:
    """Tell whether a JSON document says that it is a run file."""
    part = document.get("numbaprof") if isinstance(document, dict) else None
    return isinstance(part, dict) and part.get("schema") == RUN_SCHEMA


def read_run(name: str, document: Any) -> RunFile:
    """Return the run that a JSON document holds.

    Raises
    ------
    FormatError
        It is damaged, or a newer numbaprof wrote it.
    """
    part = document["numbaprof"]
    version = part.get("version")
    if type(version) is not int or version < 1:
        raise FormatError(
            f"{name}: damaged run file: version is {version!r}, expected an integer "
            f"from 1 to {RUN_VERSION}; measure again with `numbaprof ab`"
        )
    if version > RUN_VERSION:
        raise FormatError(
            f"{name}: written by a newer numbaprof: version {version}, this one reads "
            f"up to {RUN_VERSION}; upgrade numbaprof to read it"
        )
    try:
        run: RunFile = from_plain(RunFile, part.get("run"))
    except Mismatch as mismatch:
        raise FormatError(
            f"{name}: not a run file that this numbaprof can read: "
            f"{mismatch.within('run')}; the file is damaged, was edited, or was "
            "written by a newer numbaprof: measure again or upgrade numbaprof"
        ) from None
    return run


def load_run(path: str | PathLike[str]) -> RunFile:
    """Read a run file.

    Raises
    ------
    OSError
        There is no such file, or it may not be read.
    FormatError
        It is no run file, is damaged, or a newer numbaprof wrote it.
    """
    name = os.fspath(path)
    try:
        document = json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise FormatError(
            f"{name}: not a run file of numbaprof: not JSON ({error}); give a file "
            "made by `numbaprof ab -o`"
        ) from None
    if not is_run(document):
        raise FormatError(
            f"{name}: not a run file of numbaprof: it is JSON, but without "
            f'"schema": "{RUN_SCHEMA}"; give a file made by `numbaprof ab -o`'
        )
    return read_run(name, document)


# -- the part that pytest-benchmark reads ----------------------------------------------


def _machine_info(machine: Machine) -> dict[str, Any]:
    return {
        "node": machine.id,
        "machine": machine.platform,
        "python_version": machine.python.rpartition(" ")[2],
        "cpu": {"brand_raw": machine.cpu, "count": machine.cpu_count},
    }


def _benchmarks(run: RunFile) -> list[dict[str, Any]]:
    found = []
    for overload in run.overloads:
        for times in overload.tests:
            values = [value for value in times.head_ns if math.isfinite(value)]
            if values:
                name = f"{overload.function.rpartition('.')[2]}{overload.signature}"
                found.append(_benchmark(times.test, name, values))
    return found


def _benchmark(test: str, name: str, values_ns: list[float]) -> dict[str, Any]:
    """Return the fields that ``pytest-benchmark compare`` needs, no others."""
    seconds = [value / NS_PER_S for value in values_ns]
    low, middle, high = (
        statistics.quantiles(seconds, n=4) if len(seconds) > 1 else seconds * 3
    )
    figures = {
        "min": min(seconds),
        "max": max(seconds),
        "mean": statistics.fmean(seconds),
        "stddev": statistics.stdev(seconds) if len(seconds) > 1 else 0.0,
        "median": middle,
        "iqr": high - low,
    }
    return {
        "group": None,
        "name": name,
        "fullname": f"{test} {name}",
        "param": None,
        "stats": {key: float(f"{value:.{DIGITS}g}") for key, value in figures.items()}
        | {"rounds": len(seconds), "iterations": 1, "outliers": "0;0"},
    }
