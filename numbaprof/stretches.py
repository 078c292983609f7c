"""Several stretches of one process as one: what was measured with breaks in between.

:func:`numbaprof.merging.merge` keeps processes apart. The stretches of one process are
one process: its wall time is their sum, the time between them is in no figure, and
compile events are placed on one time line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from numbaprof.errors import MergeError
from numbaprof.merging import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numbaprof.model import DispatcherInfo, ProcessRun, ProfileResult

__all__ = ["join"]


def join(stretches: Sequence[tuple[int, ProfileResult]]) -> ProfileResult:
    """Add the profiles of one process.

    Parameters
    ----------
    stretches : sequence of (int, ProfileResult)
        When each began, on one clock in nanoseconds, in order. Each has one process,
        the same one.

    Returns
    -------
    ProfileResult
        With one process; ``start_ns`` of compile events counts from the first stretch.

    Raises
    ------
    MergeError
        No stretch, or stretches of several processes.
    """
    if not stretches:
        raise MergeError("there is no stretch to join; give at least one")
    runs = [run for _, result in stretches for run in result.processes]
    if len({run.pid for run in runs}) > 1 or len(runs) != len(stretches):
        raise MergeError(
            f"the {len(stretches)} stretches are of {len(runs)} processes, expected "
            "one; use numbaprof.merge for profiles of several processes"
        )
    first_ns = stretches[0][0]
    total = merge(_delayed(result, begin - first_ns) for begin, result in stretches)
    return replace(
        total,
        processes=(_as_one(runs),),
        dispatchers=_with_last_cache_counts(total.dispatchers, stretches),
        compile_events=tuple(replace(e, process=0) for e in total.compile_events),
        contexts=tuple(replace(node, process=0) for node in total.contexts),
        stacks=tuple(replace(stack, process=0) for stack in total.stacks),
        sampling=tuple(replace(info, process=0) for info in total.sampling),
    )


def _delayed(result: ProfileResult, delay_ns: int) -> ProfileResult:
    if not delay_ns:
        return result
    return replace(
        result,
        compile_events=tuple(
            replace(event, start_ns=event.start_ns + delay_ns)
            for event in result.compile_events
        ),
    )


def _with_last_cache_counts(
    infos: Sequence[DispatcherInfo], stretches: Sequence[tuple[int, ProfileResult]]
) -> tuple[DispatcherInfo, ...]:
    """Return the facts with the last cache counts: Numba's own are never reset."""
    last = {
        (info.function, info.kind): info
        for _, result in stretches
        for info in result.dispatchers
    }
    return tuple(
        replace(info, cache_hits=known.cache_hits, cache_misses=known.cache_misses)
        for info in infos
        for known in (last[info.function, info.kind],)
    )


def _as_one(runs: Sequence[ProcessRun]) -> ProcessRun:
    """Return the process: facts of the last stretch, which knows them best."""
    last = runs[-1]
    backends = [b for run in runs for b in run.environment.backends]
    environment = replace(
        last.environment,
        started=runs[0].environment.started,
        backends=tuple(dict.fromkeys(backends)),
    )
    return replace(
        last,
        environment=environment,
        wall_ns=sum(run.wall_ns for run in runs),
        tracing_ns=sum(run.tracing_ns for run in runs),
        exit=next((run.exit for run in reversed(runs) if run.exit), ""),
    )
