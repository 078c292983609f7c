"""Run files with defaults, so that a test states only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numbaprof.model import Fingerprint
from numbaprof.runfile import (
    Machine,
    OverloadSide,
    RunFile,
    RunOverload,
    RunSettings,
    RunSide,
    TestTimes,
)

__all__ = ["fingerprint", "make_machine", "make_run", "make_run_overload", "make_times"]

TEST = "tests/test_k.py::test_dot"


def fingerprint(code: str = "a", **changes: Any) -> Fingerprint:
    """Build a fingerprint of vectorised code."""
    fields: dict[str, Any] = {"instructions": 179, "packed_fp": 10, "width_bits": 256}
    return Fingerprint(code=f"sha256:{code}", **(fields | changes))


def make_machine(**changes: Any) -> Machine:
    """Build a machine."""
    fields: dict[str, Any] = {
        "python": "CPython 3.12.1",
        "numba": "0.68.1",
        "llvmlite": "0.50.0",
        "numpy": "2.5.5",
        "numbaprof": "0.1.0",
        "platform": "Linux-6.1 x86_64",
        "cpu": "Test CPU",
        "cpu_count": 2,
        "numba_num_threads": 2,
        "target": "test-cpu, numba 0.68.1, O3",
        "id": "boot-1",
    }
    return Machine(**(fields | changes))


def make_times(
    *log_ratios: float, test: str = TEST, base_ns: float = 1000.0, **changes: Any
) -> TestTimes:
    """Build the times of one overload in one test from its ratios."""
    ratios = log_ratios or (0.0,) * 5
    fields: dict[str, Any] = {
        "base_ns": (base_ns,) * len(ratios),
        "head_ns": tuple(base_ns * (1 + ratio) for ratio in ratios),
        "log_ratio": tuple(ratios),
    }
    return TestTimes(test=test, **(fields | changes))


def make_side(code: str = "a", **changes: Any) -> OverloadSide:
    """Build one side of an overload."""
    fields: dict[str, Any] = {
        "file": "pkg/kern.py",
        "line": 12,
        "kind": "function",
        "fingerprint": fingerprint(code),
        "compile_cpu_ms": (200.0,) * 5,
    }
    return OverloadSide(**(fields | changes))


def make_run_overload(
    function: str = "pkg.kern.dot",
    signature: str = "(float64[::1], float64[::1])",
    *,
    times: tuple[TestTimes, ...] | None = None,
    base: OverloadSide | None = None,
    head: OverloadSide | None = None,
    **changes: Any,
) -> RunOverload:
    """Build an overload that is on both sides, with the code changed."""
    fields: dict[str, Any] = {"base_tests": (TEST,), "head_tests": (TEST,)}
    return RunOverload(
        function=function,
        signature=signature,
        base=make_side("a") if base is None else base,
        head=make_side("b") if head is None else head,
        tests=(make_times(),) if times is None else times,
        **(fields | changes),
    )


def make_run(*overloads: RunOverload, **changes: Any) -> RunFile:
    """Build a run of five sessions, and five to confirm."""
    side = RunSide(name="base", machine=make_machine(), tests=(TEST,))
    fields: dict[str, Any] = {
        "settings": RunSettings(5, 5, 30, 2_000_000, 0.05),
        "base": side,
        "head": replace(side, name="head"),
        "started": "2026-01-02T03:04:05+00:00",
        "sessions": 5,
        "confirmed": 5,
        "overloads": overloads,
    }
    return RunFile(**(fields | changes))
