"""Overloads of one side of a comparison, whatever kind of file they came from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numbaprof.summary import is_internal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numbaprof.model import Fingerprint, FunctionId, OverloadStats, ProfileResult
    from numbaprof.runfile import OverloadSide, RunFile

__all__ = [
    "Half",
    "Key",
    "finite",
    "function_names",
    "profile_halves",
    "run_half",
    "stored_halves",
    "timed",
]

Key = tuple[str, str]
"""Function and signature."""
NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Half:
    """One overload as one side has it, whatever kind of file it came from."""

    file: str
    line: int
    kind: str
    fingerprint: Fingerprint | None
    fingerprint_reason: str
    parallel: bool = False
    compile_ns: tuple[int, ...] = ()
    cached: bool = False
    times_ns: tuple[float, ...] = ()
    """One median per process; of a profile (minimum, mean)."""
    calls: float | None = None


def function_names(functions: Iterable[FunctionId]) -> dict[FunctionId, str]:
    """Return names without lines, unique by ``#2`` in order of line and creation."""
    groups: dict[str, set[FunctionId]] = {}
    for function in functions:
        name = ".".join(filter(None, [function.module, function.qualname]))
        groups.setdefault(name, set()).add(function)
    return {
        function: name if number == 1 else f"{name}#{number}"
        for name, members in groups.items()
        for number, function in enumerate(
            sorted(members, key=lambda f: (f.line, f.instance)), 1
        )
    }


def profile_halves(result: ProfileResult) -> dict[Key, Half]:
    """Return the overloads of a profile, without Numba's own helpers."""
    shown = [
        overload
        for overload in result.overloads
        if not is_internal(overload) and overload.origin != "none"
    ]
    names = function_names(overload.function for overload in shown)
    parallel = {
        info.function
        for info in result.dispatchers
        if ("parallel", "True") in info.options
    }
    return {
        (names[overload.function], overload.signature): _profile_half(
            overload, overload.function in parallel
        )
        for overload in shown
    }


def _profile_half(overload: OverloadStats, parallel: bool) -> Half:
    times: tuple[float, ...] = ()
    if overload.calls and overload.inclusive_ns and overload.min_ns:
        times = (float(overload.min_ns), overload.inclusive_ns / overload.calls)
    return Half(
        file=overload.function.file,
        line=overload.function.line,
        kind=overload.kind,
        fingerprint=overload.fingerprint,
        fingerprint_reason=overload.fingerprint_reason,
        parallel=parallel,
        compile_ns=(overload.compile_self_ns,) if overload.compile_self_ns else (),
        cached=overload.origin == "cache",
        times_ns=times,
        calls=overload.calls,
    )


def run_half(side: OverloadSide | None, times_ns: Sequence[float]) -> Half | None:
    """Return one side of an overload of a run file."""
    if side is None:
        return None
    return Half(
        file=side.file,
        line=side.line,
        kind=side.kind,
        fingerprint=side.fingerprint,
        fingerprint_reason=side.fingerprint_reason,
        parallel=side.parallel,
        compile_ns=tuple(round(ms * NS_PER_MS) for ms in side.compile_cpu_ms),
        cached=side.cache_loads > 0,
        times_ns=finite(times_ns),
    )


def timed(half: Half | None, times_ns: Sequence[float], calls: float) -> Half | None:
    """Return the same overload with its times in one test."""
    if half is None:
        return None
    return replace(half, times_ns=finite(times_ns), calls=calls)


def stored_halves(run: RunFile) -> dict[tuple[str, str, str], Half]:
    """Return the head side of a run file, by test, function and signature."""
    found = {}
    for overload in run.overloads:
        half = run_half(overload.head, ())
        if half is None:
            continue
        called = [times for times in overload.tests if times.head_calls]
        for times in called:
            key = (times.test, overload.function, overload.signature)
            called_half = timed(half, times.head_ns, times.head_calls)
            if called_half is not None:
                found[key] = called_half
        if not called:
            test = next(iter(overload.head_tests), "")
            found[test, overload.function, overload.signature] = half
    return found


def finite(values: Iterable[float]) -> tuple[float, ...]:
    """Return the values that are there."""
    return tuple(value for value in values if math.isfinite(value))
