"""Where the time of a profile went, in nanoseconds that add up.

Accounting
----------
For the main threads of all profiled processes together::

    wall = compile + cache load + dispatch + kernel + failed dispatch + rest

All but the rest are sums of *exclusive* times over the calling-context tree, so nothing
is counted twice: code compiled while a kernel's objmode block runs is compile time, not
kernel time. The rest is what remains of the wall time: Python, and all that no
instrument saw. Time in the bodies of objmode blocks is Python and belongs to the rest.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from numbaprof.errors import OptionError
from numbaprof.why import compiled_inside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numbaprof.model import (
        CallSite,
        CompileEvent,
        ContextKind,
        ContextNode,
        FunctionId,
        OverloadStats,
        ProfileResult,
    )

__all__ = [
    "CompileTotals",
    "SiteTotals",
    "Summary",
    "TimeSplit",
    "charge_helpers",
    "display_names",
    "is_internal",
    "never_called",
    "payback_calls",
    "percentile",
    "root_of",
    "summarize",
    "uncharged_helpers",
]

MAIN_THREAD = "MainThread"
"""Label of the root node of the thread that Python started in (``threading``)."""


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Exclusive times of some threads by what was going on, nanoseconds."""

    compile_ns: int = 0
    cache_load_ns: int = 0
    cache_miss_ns: int = 0
    """Looks into the cache that found nothing; compiling came after."""
    dispatch_ns: int = 0
    kernel_ns: int = 0
    failed_dispatch_ns: int = 0
    objmode_ns: int = 0
    """Inside objmode blocks, apart from what they call: Python, not kernel."""
    python_ns: int = 0
    """In Python functions, where they were traced."""
    builtin_ns: int = 0
    """In functions written in C, where they were traced."""

    @property
    def measured_ns(self) -> int:
        """All but Python: its functions, builtins and the bodies of objmode blocks."""
        return (
            self.compile_ns
            + self.cache_load_ns
            + self.cache_miss_ns
            + self.dispatch_ns
            + self.kernel_ns
            + self.failed_dispatch_ns
        )


@dataclass(frozen=True, slots=True)
class CompileTotals:
    """Compilations and cache loads of all threads and processes, internal ones too.

    Times are exclusive of nested events, so they can be added.
    """

    compilations: int = 0
    failures: int = 0
    """Of the user's functions."""
    cache_loads: int = 0
    compile_ns: int = 0
    """Including all failures."""
    failed_ns: int = 0
    """Of ``compile_ns``, in ``failures``."""
    cache_load_ns: int = 0
    import_compile_ns: int = 0
    """Of ``compile_ns``, while a module was being imported."""
    import_cache_load_ns: int = 0
    internal_compilations: int = 0
    internal_ns: int = 0
    """Of ``compile_ns``, compiling Numba's own helpers."""

    @property
    def total_ns(self) -> int:
        """Compile and cache load time."""
        return self.compile_ns + self.cache_load_ns

    @property
    def import_ns(self) -> int:
        """Of ``total_ns``, while a module was being imported."""
        return self.import_compile_ns + self.import_cache_load_ns


@dataclass(frozen=True, slots=True)
class SiteTotals:
    """Compilations and cache loads with one cause."""

    module: str
    """The module being imported, or the module of the line that caused it."""
    at_import: bool
    site: CallSite | None
    """The causing line; None in totals by module."""
    events: int
    """Of the user's functions; Numba's helpers add only to the times."""
    compile_ns: int
    cache_load_ns: int

    @property
    def total_ns(self) -> int:
        """Compile and cache load time."""
        return self.compile_ns + self.cache_load_ns


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures on the first page of a report; see the module for how they add up."""

    wall_ns: int
    """Of all processes."""
    compile_ns: int
    cache_load_ns: int
    cache_miss_ns: int
    dispatch_ns: int
    kernel_ns: int
    failed_dispatch_ns: int
    rest_ns: int
    """Python and the rest. Rounding of the clock can make it a few ns negative."""
    objmode_ns: int
    """Of ``rest_ns``, in the bodies of objmode blocks."""
    python_ns: int
    """Of ``rest_ns``, in Python functions; 0 unless they were traced."""
    builtin_ns: int
    """Of ``rest_ns``, in functions written in C; 0 unless they were traced."""
    tracing_ns: int
    """Of ``rest_ns``, seen to be spent on tracing Python calls."""
    unplaced_ns: int
    """In overloads without a calling context (ufunc loops), on whatever thread.

    What ran on a main thread is part of ``rest_ns``.
    """
    other_threads: int
    others: TimeSplit
    """Totals of the threads other than the main ones."""
    compiles: CompileTotals
    by_module: tuple[SiteTotals, ...]
    """Dearest first."""
    by_site: tuple[SiteTotals, ...]
    """Dearest first."""
    never_called: tuple[int, ...]
    """Indices of overloads that cost time to make and were never called from Python."""


def summarize(result: ProfileResult) -> Summary:
    """Add up where the time of a profile went.

    Returns
    -------
    Summary
        ``wall_ns`` is exactly the sum of its seven parts.

    Notes
    -----
    One pass over the contexts and one over the compile events.
    """
    main = _split(result, main=True)
    others = _split(result, main=False)
    roots = [node for node in result.contexts if node.parent < 0]
    return Summary(
        wall_ns=result.wall_ns,
        compile_ns=main.compile_ns,
        cache_load_ns=main.cache_load_ns,
        cache_miss_ns=main.cache_miss_ns,
        dispatch_ns=main.dispatch_ns,
        kernel_ns=main.kernel_ns,
        failed_dispatch_ns=main.failed_dispatch_ns,
        rest_ns=result.wall_ns - main.measured_ns,
        objmode_ns=main.objmode_ns,
        python_ns=main.python_ns,
        builtin_ns=main.builtin_ns,
        tracing_ns=sum(process.tracing_ns for process in result.processes),
        unplaced_ns=_unplaced_ns(result),
        other_threads=sum(node.label != MAIN_THREAD for node in roots),
        others=others,
        compiles=_total_compiles(result.compile_events),
        by_module=_total_sites(result.compile_events, with_line=False),
        by_site=_total_sites(result.compile_events, with_line=True),
        never_called=never_called(result),
    )


def root_of(contexts: Sequence[ContextNode]) -> list[int]:
    """Find for each node of a calling-context tree the index of its thread's root."""
    roots: list[int] = []
    for index, node in enumerate(contexts):
        roots.append(index if node.parent < 0 else roots[node.parent])
    return roots


def never_called(result: ProfileResult) -> tuple[int, ...]:
    """Find overloads that were made in this profile and never called from Python.

    Overloads that may run without a trace are left out: those compiled for another
    function, inlined ones, cfuncs and all that are marked as not countable.

    Returns
    -------
    tuple of int
        Indices into ``result.overloads``.
    """
    inside = compiled_inside(result)
    inlined = {info.function for info in result.dispatchers if info.inline}
    return tuple(
        index
        for index, overload in enumerate(result.overloads)
        if overload.calls == 0
        and overload.in_flight == 0
        and overload.countable
        and not overload.not_countable_reason
        and not is_internal(overload)
        and overload.created_in_session
        and overload.kind not in ("objmode body", "lifted loop", "cfunc")
        and overload.function not in inlined
        and (overload.function, overload.signature) not in inside
        and (overload.compile_ns or 0) + overload.cache_load_ns > 0
    )


def charge_helpers(result: ProfileResult) -> ProfileResult:
    """Add the compile time of Numba's helpers to the overloads they were compiled for.

    Each helper is charged to the nearest enclosing compilation of the user's: the one
    whose source made Numba compile it.

    Returns
    -------
    ProfileResult
        The same but for ``compile_self_ns``, whose sum grows by the helpers' time, see
        :func:`uncharged_helpers` for what is left.
    """
    charges = _helper_charges(result)
    return replace(
        result,
        overloads=tuple(
            replace(overload, compile_self_ns=(overload.compile_self_ns or 0) + cost_ns)
            if (cost_ns := charges.get((overload.function, overload.signature)))
            else overload
            for overload in result.overloads
        ),
    )


def uncharged_helpers(result: ProfileResult) -> tuple[int, int]:
    """Return (number, compile time) of helpers with no overload to be charged to."""
    left = [event for event, key in _helper_owners(result) if key is None]
    compilations = sum(event.event != "failed" for event in left)
    return compilations, sum(event.exclusive_ns for event in left)


def _helper_charges(result: ProfileResult) -> dict[tuple[FunctionId, str], int]:
    """Map overloads of the user's to the time of the helpers compiled for them."""
    charges: dict[tuple[FunctionId, str], int] = defaultdict(int)
    for event, key in _helper_owners(result):
        if key is not None:
            charges[key] += event.exclusive_ns
    return charges


def _helper_owners(
    result: ProfileResult,
) -> Iterator[tuple[CompileEvent, tuple[FunctionId, str] | None]]:
    """Yield every compilation of a helper with the overload it was made for, if any."""
    known = {
        (overload.function, overload.signature)
        for overload in result.overloads
        if not is_internal(overload)
    }
    events = result.compile_events
    for event in events:
        if not event.internal or event.event == "cache_load":
            continue
        outer = event
        while outer.internal and outer.parent >= 0:
            outer = events[outer.parent]
        key = (outer.function, outer.signature)
        yield event, key if not outer.internal and key in known else None


def is_internal(overload: OverloadStats) -> bool:
    """Tell whether an overload is a helper of Numba's own."""
    return overload.internal or overload.origin == "internal"


def payback_calls(overload: OverloadStats) -> int | None:
    """Count the calls after which running takes as long as compiling took.

    The number is ``ceil(compile_ns / mean_ns)``. It compares the overload with itself,
    not with the interpreted function, whose speed the profile does not know: below it,
    compiling dominates; it does not promise a gain above.

    Returns
    -------
    int or None
        None if the overload was not compiled in this profile, has no mean, or runs
        where its time is not seen (a generator) or not its own (an objmode block).
    """
    if overload.kind in ("generator", "objmode body"):
        return None
    if not overload.compile_ns or not overload.calls or not overload.inclusive_ns:
        return None
    return -(-overload.compile_ns * overload.calls // overload.inclusive_ns)


def percentile(
    histogram: Sequence[int], q: float, *, min_ns: int, max_ns: int
) -> int | None:
    """Estimate a percentile from a log2 histogram.

    Parameters
    ----------
    histogram : sequence of int
        Calls by bucket; bucket ``b`` holds ``2**(b-1) <= ns < 2**b``, bucket 0 holds 0.
    q : float
        0.5 for the median, between 0 and 1.
    min_ns, max_ns : int
        Exact extremes; the estimate never leaves them.

    Returns
    -------
    int or None
        Nanoseconds. Bucket-accurate: at most a factor of 2 away from the true
        (nearest-rank) percentile. None for an empty histogram.

    Raises
    ------
    OptionError
        If ``q`` is not between 0 and 1.
    """
    if not 0.0 <= q <= 1.0:
        raise OptionError(f"percentile: q is {q!r}, it must be between 0 and 1")
    total = sum(histogram)
    if total == 0:
        return None
    rank = max(1, math.ceil(q * total))
    bucket = bisect_left(list(accumulate(histogram)), rank)
    # The geometric middle of a bucket halves the worst error on a logarithmic scale.
    estimate = math.isqrt(2 ** (2 * bucket - 1)) if bucket else 0
    return min(max(estimate, min_ns), max_ns)


def display_names(result: ProfileResult) -> dict[FunctionId, str]:
    """Name every function of a profile: its qualname, with ``#2`` where two share it.

    Numbers follow the order of appearance: overloads, dispatchers, compile events.
    """
    functions = dict.fromkeys(
        [
            *(overload.function for overload in result.overloads),
            *(info.function for info in result.dispatchers),
            *(event.function for event in result.compile_events),
        ]
    )
    names: dict[FunctionId, str] = {}
    taken: dict[str, int] = defaultdict(int)
    for function in functions:
        taken[function.qualname] += 1
        count = taken[function.qualname]
        names[function] = function.qualname + (f"#{count}" if count > 1 else "")
    return names


_PARTS: dict[ContextKind, str] = {
    "compile": "compile_ns",
    "cache_load": "cache_load_ns",
    "cache_miss": "cache_miss_ns",
    "failed dispatch": "failed_dispatch_ns",
    # Under way when the profile ended, and not yet at an overload.
    "dispatching": "dispatch_ns",
    "python": "python_ns",
    "builtin": "builtin_ns",
    # Compiled code that ran where it could not be told apart by overload or context.
    "unattached": "kernel_ns",
    "truncated": "kernel_ns",
}
"""Which part the exclusive time of a node belongs to; overloads are told by kind."""


# -- parts -----------------------------------------------------------------------------


def _split(result: ProfileResult, *, main: bool) -> TimeSplit:
    """Add up the nodes under main threads, or under all the others."""
    totals = {part.name: 0 for part in fields(TimeSplit)}
    contexts = result.contexts
    for node, root in zip(contexts, root_of(contexts), strict=True):
        if (contexts[root].label == MAIN_THREAD) is not main:
            continue
        totals["dispatch_ns"] += node.dispatch_ns
        part = _PARTS.get(node.kind)
        if node.kind == "overload":
            kind = result.overloads[node.overload].kind
            part = "objmode_ns" if kind == "objmode body" else "kernel_ns"
        if part is not None:
            totals[part] += node.exclusive_ns
    return TimeSplit(**totals)


def _unplaced_ns(result: ProfileResult) -> int:
    placed = {node.overload for node in result.contexts if node.kind == "overload"}
    return sum(
        overload.exclusive_ns or 0
        for index, overload in enumerate(result.overloads)
        if index not in placed
    )


def _total_compiles(events: Sequence[CompileEvent]) -> CompileTotals:
    totals = {part.name: 0 for part in fields(CompileTotals)}
    for event in events:
        if event.event == "cache_load":
            totals["cache_loads"] += 1
            totals["cache_load_ns"] += event.exclusive_ns
            totals["import_cache_load_ns"] += event.exclusive_ns * event.at_import
            continue
        failed = event.event == "failed"
        totals["compilations"] += not failed
        # Numba tries its own implementations in turn, to find the one that fits.
        totals["failures"] += failed and not event.internal
        totals["failed_ns"] += event.exclusive_ns * (failed and not event.internal)
        totals["compile_ns"] += event.exclusive_ns
        totals["import_compile_ns"] += event.exclusive_ns * event.at_import
        totals["internal_compilations"] += event.internal and not failed
        totals["internal_ns"] += event.exclusive_ns * event.internal
    return CompileTotals(**totals)


def _total_sites(
    events: Sequence[CompileEvent], *, with_line: bool
) -> tuple[SiteTotals, ...]:
    groups: dict[tuple[str, bool, CallSite | None], list[CompileEvent]] = {}
    for event in events:
        trigger = event.trigger
        module = (trigger.module or trigger.file) if trigger is not None else ""
        if event.at_import and event.import_module:
            module = event.import_module
        key = (module, event.at_import, trigger if with_line else None)
        groups.setdefault(key, []).append(event)
    totals = [
        SiteTotals(
            module=module,
            at_import=at_import,
            site=site,
            events=sum(not event.internal for event in group),
            compile_ns=sum(
                event.exclusive_ns for event in group if event.event != "cache_load"
            ),
            cache_load_ns=sum(
                event.exclusive_ns for event in group if event.event == "cache_load"
            ),
        )
        for (module, at_import, site), group in groups.items()
    ]
    return tuple(sorted(totals, key=lambda total: -total.total_ns))
