"""The compile report of a pytest run: which test compiled what, why, and for how long.

Pure functions of a profile whose compile events know their test. Times are exclusive
and add up to the total; the helpers of Numba's own are charged to the compilation that
needed them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numbaprof.analysis import display_names, explain_overloads, find, never_called
from numbaprof.wording import format_duration, format_share, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numbaprof.model import CompileEvent, FunctionId, ProfileResult

__all__ = ["is_part", "owner_of", "render"]

ADVICE = frozenset(
    {
        "cache-never-hits",
        "compile-failed",
        "duplicate-compile",
        "never-called",
        "overload-explosion",
        "recompiles-every-call",
        "same-source-compiled",
        "tuple-length-explosion",
    }
)
"""Findings about compiling that a test-suite can act on."""
ADVICE_SHOWN = 5
OVERLOADS_PER_TEST = 4
WORTH_A_LINE = 0.01
"""Of the time spent on compiling."""
HELPERS = "Numba's own helpers"
REPEATED = "compiled before in this process"


@dataclass(slots=True)
class _Line:
    """One overload in one test."""

    name: str
    why: str
    event: str
    cost_ns: int = 0
    times: int = 0


@dataclass(slots=True)
class _Test:
    """What one test (or fixture, or the collection) compiled, in one process."""

    lines: dict[tuple[object, ...], _Line] = field(default_factory=dict)

    @property
    def cost_ns(self) -> int:
        """All of it."""
        return sum(line.cost_ns for line in self.lines.values())

    @property
    def compilations(self) -> int:
        """Without cache loads and helpers."""
        return sum(
            line.times
            for line in self.lines.values()
            if line.event == "compile" and line.name != HELPERS
        )


def render(result: ProfileResult, *, top: int) -> list[str]:
    """Write the report.

    Parameters
    ----------
    result : ProfileResult
        Of a whole run; its processes are labelled by worker.
    top : int
        Tests listed; the others are summed.
    """
    if any(run.environment.jit_disabled for run in result.processes):
        return ["jit is disabled: nothing was compiled"]
    tests = _group(result)
    lines = [_state_total(result, tests), *_state_cache(result)]
    if tests:
        lines += ["", *_list_tests(result, tests, top)]
    advice = list(_advise(result))
    if advice:
        lines += ["", *advice]
    return lines


def _group(result: ProfileResult) -> dict[tuple[str, int], _Test]:
    """Sum events by test and process, dearest first."""
    names = display_names(result)
    why = _reasons(result)
    tests: dict[tuple[str, int], _Test] = defaultdict(_Test)
    seen: set[tuple[int, FunctionId, str]] = set()
    for event in result.compile_events:
        owner = owner_of(event, result.compile_events)
        lines = tests[event.test, event.process].lines
        key: tuple[object, ...] = (HELPERS,)
        name, reason, outcome = HELPERS, "", "compile"
        if not owner.internal:
            key = (owner.function, owner.signature, owner.event)
            name, outcome = names[owner.function] + owner.signature, owner.event
            reason = _say_why(owner, why)
        line = lines.setdefault(key, _Line(name, reason, outcome))
        line.cost_ns += event.exclusive_ns
        if event is owner and not owner.internal and not is_part(event):
            line.times += 1
            identity = (event.process, event.function, event.signature)
            if event.event == "compile" and identity in seen:
                line.why = REPEATED
            seen.add(identity)
    ranked = sorted(tests.items(), key=lambda item: -item[1].cost_ns)
    return dict(ranked)


def owner_of(event: CompileEvent, events: Sequence[CompileEvent]) -> CompileEvent:
    """Return what an event is charged to: the innermost compilation of the user's.

    Parameters
    ----------
    events : sequence of CompileEvent
        All of them: the event's parent is an index into it.
    """
    outer = event
    while outer.internal and outer.parent >= 0:
        outer = events[outer.parent]
    return event if outer.internal else outer


def is_part(event: CompileEvent) -> bool:
    """Tell whether an event is a second one of an overload that has one already.

    Numba compiles the loop around a gufunc's kernel apart.
    """
    return event.kind == "loop wrapper"


def _reasons(result: ProfileResult) -> dict[tuple[FunctionId, str], str]:
    reasons = explain_overloads(result)
    found: dict[tuple[FunctionId, str], str] = {}
    for overload, reason in zip(result.overloads, reasons, strict=True):
        key = (overload.function, overload.signature.partition(" #")[0])
        found.setdefault(key, reason)
    return found


def _say_why(event: CompileEvent, reasons: dict[tuple[FunctionId, str], str]) -> str:
    if event.event == "cache_load":
        return "loaded from cache"
    if event.event == "failed":
        return f"failed: {event.error}" if event.error else "failed"
    return reasons.get((event.function, event.signature), event.kind)


# -- sentences -------------------------------------------------------------------------


def _state_total(result: ProfileResult, tests: dict[tuple[str, int], _Test]) -> str:
    if not result.compile_events:
        return "nothing was compiled, and nothing loaded from the cache"
    compiled = sum(test.compilations for test in tests.values())
    cost_ns = sum(
        event.exclusive_ns
        for event in result.compile_events
        if event.event != "cache_load"
    )
    share = format_share(cost_ns, result.wall_ns)
    where = plural(len({name for name, _ in tests}), "place")
    workers = len(result.processes)
    among = f" of {workers} processes" if workers > 1 else ""
    return (
        f"{plural(compiled, 'compilation')} took {format_duration(cost_ns)}, {share} "
        f"of the measured {format_duration(result.wall_ns)}{among}, in {where}"
    )


def _state_cache(result: ProfileResult) -> Iterator[str]:
    loads = [event for event in result.compile_events if event.event == "cache_load"]
    hits = [event for event in loads if not event.internal]
    cached = {info.function for info in result.dispatchers if info.cache_enabled}
    misses = [
        event
        for event in result.compile_events
        if event.event == "compile" and event.function in cached
    ]
    if hits or misses:
        loading = format_duration(sum(event.exclusive_ns for event in loads))
        missed = format_duration(sum(event.exclusive_ns for event in misses))
        yield (
            f"cache: {plural(len(hits), 'hit')} ({loading}), "
            f"{plural(len(misses), 'miss', 'misses')} ({missed})"
        )


def _list_tests(
    result: ProfileResult, tests: dict[tuple[str, int], _Test], top: int
) -> Iterator[str]:
    several = len(result.processes) > 1
    ranked = list(tests.items())
    for (name, process), test in ranked[:top]:
        worker = f"  [{result.processes[process].label}]" if several else ""
        yield f"{format_duration(test.cost_ns):>8}  {name or '(no test)'}{worker}"
        yield from _list_overloads(test)
    rest = ranked[top:]
    if rest:
        cost_ns = sum(test.cost_ns for _, test in rest)
        yield f"{format_duration(cost_ns):>8}  … and {plural(len(rest), 'more place')}"


def _list_overloads(test: _Test) -> Iterator[str]:
    lines = sorted(test.lines.values(), key=lambda line: -line.cost_ns)
    for line in lines[:OVERLOADS_PER_TEST]:
        times = f"{line.times} times, " if line.times > 1 else ""
        why = f": {times}{line.why}" if times or line.why else ""
        yield f"{'':8}  {format_duration(line.cost_ns):>8}  {line.name}{why}"
    rest = lines[OVERLOADS_PER_TEST:]
    if rest:
        cost = format_duration(sum(line.cost_ns for line in rest))
        yield f"{'':8}  {cost:>8}  … and {len(rest)} more"


def _advise(result: ProfileResult) -> Iterator[str]:
    yield from filter(None, [_repeated_by_workers(result), _never_called(result)])
    findings = [finding for finding in find(result) if finding.slug in ADVICE]
    for finding in findings[:ADVICE_SHOWN]:
        suggestion = f"; try: {finding.try_}" if finding.try_ else ""
        yield f"{finding.message}{suggestion} [{finding.slug}]"
    if len(findings) > ADVICE_SHOWN:
        yield f"… and {plural(len(findings) - ADVICE_SHOWN, 'more finding')}"


def _never_called(result: ProfileResult) -> str:
    """Say what compiling cost that no test made use of."""
    unused = [result.overloads[index] for index in never_called(result)]
    cost_ns = sum(overload.compile_self_ns or 0 for overload in unused)
    total_ns = sum(event.exclusive_ns for event in result.compile_events)
    if cost_ns <= WORTH_A_LINE * total_ns:
        return ""
    return (
        f"{plural(len(unused), 'overload')} that no test called, "
        f"{format_duration(cost_ns)}; try: fewer signatures in the decorators"
    )


def _repeated_by_workers(result: ProfileResult) -> str:
    """Say how much was compiled by more than one worker."""
    first: dict[tuple[FunctionId, str], int] = {}
    again_ns = again = 0
    for event in result.compile_events:
        if event.internal or event.event != "compile":
            continue
        process = first.setdefault((event.function, event.signature), event.process)
        if process != event.process:
            again += not is_part(event)
            again_ns += event.exclusive_ns
    if not again:
        return ""
    return (
        f"{plural(again, 'compilation')}, {format_duration(again_ns)}, repeated what "
        "another worker had compiled; try: cache=True, fewer workers, or "
        "--dist loadfile"
    )
