"""The overloads of one benchmark as rows: for ``extra_info`` and for the terminal."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numbaprof.analysis import is_internal
from numbaprof.wording import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numbaprof.model import CompileEvent, FunctionId, OverloadStats, ProfileResult

__all__ = ["Pass", "build_rows", "render_tables"]

Key = tuple["FunctionId", str]
NS_PER_SECOND = 1e9


@dataclass(slots=True)
class Pass:
    """The pass that counted: rounds of calls of the benchmarked function."""

    n_calls: int = 0
    """Of the benchmarked function."""
    calls: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    times_ns: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Per call, one value per round in which the overload was called."""
    result: ProfileResult | None = None
    note: str = ""
    """Why there is less than there should be, else ""."""

    def add(
        self,
        n_calls: int,
        before: Mapping[Key, tuple[int, float]],
        after: Mapping[Key, tuple[int, float]],
    ) -> None:
        """Add a round: what was read (calls, nanoseconds) before and after it."""
        self.n_calls += n_calls
        for key, (calls, time_ns) in after.items():
            calls_before, time_before_ns = before.get(key, (0, 0))
            if calls > calls_before:
                n_new = calls - calls_before
                self.calls[key] += n_new
                self.times_ns[key].append((time_ns - time_before_ns) / n_new)


def build_rows(
    counted: Pass, charged: Sequence[tuple[CompileEvent, CompileEvent]]
) -> list[dict[str, Any]]:
    """Return one row per overload that was called or came into being, dearest first.

    Parameters
    ----------
    counted : Pass
        The pass that counted.
    charged : sequence of (CompileEvent, CompileEvent)
        Events of the whole test, each with the one it is charged to.
    """
    compile_ns: dict[Key, int] = defaultdict(int)
    born: dict[Key, str] = {}
    for event, owner in charged:
        if owner.internal or owner.event == "failed":
            continue
        key = (owner.function, owner.signature)
        born[key] = owner.event
        compile_ns[key] += event.exclusive_ns * (event.event != "cache_load")
    overloads = {} if counted.result is None else _by_key(counted.result)
    keys = [
        key
        for key in dict.fromkeys([*counted.times_ns, *born])
        if key not in overloads or not is_internal(overloads[key])
    ]
    rows = [
        _row(key, counted, overloads.get(key), born.get(key, ""), compile_ns[key])
        for key in keys
    ]
    return sorted(rows, key=lambda row: -(row["median_ns"] or 0) * (row["calls"] or 0))


def _by_key(result: ProfileResult) -> dict[Key, OverloadStats]:
    return {
        (overload.function, overload.signature): overload
        for overload in result.overloads
    }


def _row(
    key: Key,
    counted: Pass,
    overload: OverloadStats | None,
    event: str,
    compile_ns: int,
) -> dict[str, Any]:
    function, signature = key
    times_ns = counted.times_ns.get(key, [])
    calls = counted.calls.get(key)
    code = overload.fingerprint if overload is not None else None
    return {
        "function": f"{function.module}.{function.qualname}",
        "signature": signature,
        "instance": function.instance,
        "file": function.file,
        "line": function.line,
        "calls": calls,
        "calls_per_call": calls / counted.n_calls
        if calls and counted.n_calls
        else None,
        "median_ns": round(statistics.median(times_ns), 2) if times_ns else None,
        "min_ns": round(min(times_ns), 2) if times_ns else None,
        "rounds": len(times_ns),
        "compile_s": compile_ns / NS_PER_SECOND,
        "new": event == "compile",
        "cached": event == "cache_load",
        "code": code.code if code is not None else None,
        "instructions": code.instructions if code is not None else None,
        "packed_fp": code.packed_fp if code is not None else None,
        "vector_bits": code.width_bits if code is not None else None,
    }


# -- the terminal ----------------------------------------------------------------------

COLUMNS = ("test", "calls", "time/call", "compile", "new", "vector", "overload")


def render_tables(tables: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Write the overloads of all benchmarks as one table, and the notes below it."""
    lines = [COLUMNS]
    notes = []
    for test, info in tables:
        name = test.rpartition("::")[2]
        for row in info["overloads"]:
            lines.append((name, *_cells(row)))
            name = ""
        for dropped in info["dropped_rounds"]:
            compiled = ", ".join(dropped["compiled"])
            notes.append(
                f"{test}: round {dropped['round']} dropped, compiled {compiled}"
            )
        if info["note"]:
            notes.append(f"{test}: {info['note']}")
    widths = [max(len(line[index]) for line in lines) for index in range(len(COLUMNS))]
    for line in lines:
        first, *numbers, last = line
        cells = [
            text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)
        ]
        yield "  ".join([first.ljust(widths[0]), *cells, last]).rstrip()
    for note in notes:
        yield f"note: {note}"


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str, str, str]:
    vector = "-"
    if row["packed_fp"] is not None:
        vector = f"{row['vector_bits']}b" if row["packed_fp"] else "scalar"
    origin = "yes" if row["new"] else "cache" if row["cached"] else ""
    return (
        "-" if row["calls"] is None else format_count(row["calls"]),
        "-" if row["median_ns"] is None else format_duration(row["median_ns"]),
        format_duration(round(row["compile_s"] * NS_PER_SECOND)) if row["new"] else "",
        origin,
        vector,
        row["function"].rpartition(".")[2] + row["signature"],
    )
