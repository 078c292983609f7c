"""Adding profiles: processes, workers, parts of one run, runs on several machines.

:func:`merge` is associative and keeps what it cannot add side by side: processes,
compile events and calling-context trees. Overloads and functions that are the same in
several profiles become one; what "the same" means is in :func:`overload_keys`.

How one figure of two profiles becomes one:

==========================  ============================================================
calls, times, histogram     added; None ("cannot be had") adds nothing
min_ns, max_ns              the smaller, the larger; None is ignored
countable                   only if it was in every profile
reasons of what is missing  kept, each once, as long as something is missing
origin                      the costliest: compiled, then eager, cache, internal, none
descriptions                the first that is not empty
==========================  ============================================================
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from numbaprof import line_merging
from numbaprof.errors import MergeError
from numbaprof.model import (
    BoxingSplit,
    CompileEvent,
    ContextNode,
    DispatcherInfo,
    Fingerprint,
    FunctionId,
    Losses,
    Origin,
    OverloadStats,
    ProcessRun,
    ProfileResult,
    PythonRow,
    ThreadSplit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

__all__ = ["merge", "overload_keys"]

OverloadKey = tuple[FunctionId, str, str, int]
RowKey = tuple[tuple[str, str, int, str, str, str], int]

ORIGINS_BY_COST: tuple[Origin, ...] = ("none", "internal", "cache", "eager", "compiled")

REASON_SEPARATOR = "; "

Item = TypeVar("Item")
Key = TypeVar("Key", bound="Hashable")


def merge(results: Iterable[ProfileResult]) -> ProfileResult:
    """Add profiles.

    Parameters
    ----------
    results : iterable of ProfileResult
        At least one. Their order is that of the processes in the sum.

    Returns
    -------
    ProfileResult
        ``merge([a])`` is ``a``; ``merge([merge([a, b]), c]) == merge([a, b, c])``.

    Raises
    ------
    MergeError
        Nothing to add, something that is no profile, the same process twice (its
        calls would count double), or histograms with different buckets.
    """
    parts = tuple(results)
    _refuse_what_cannot_be_added(parts)
    if len(parts) == 1:
        return parts[0]
    overloads = _union(
        ((overload_keys(part), part.overloads) for part in parts), _add_overloads
    )
    positions = {key: index for index, key in enumerate(overloads)}
    rows = _union(((_row_keys(part), part.python_rows) for part in parts), _add_rows)
    row_positions = {key: index for index, key in enumerate(rows)}
    dispatchers = _union(
        (
            (
                _numbered((info.function, info.kind) for info in part.dispatchers),
                part.dispatchers,
            )
            for part in parts
        ),
        _add_dispatchers,
    )
    return ProfileResult(
        processes=tuple(process for part in parts for process in part.processes),
        overloads=tuple(overloads.values()),
        dispatchers=tuple(dispatchers.values()),
        compile_events=tuple(_shifted_events(parts)),
        contexts=tuple(_shifted_contexts(parts, positions, row_positions)),
        losses=_add_losses([part.losses for part in parts]),
        python_rows=tuple(rows.values()),
        **line_merging.merged_lines(parts),
    )


def _refuse_what_cannot_be_added(parts: tuple[ProfileResult, ...]) -> None:
    if not parts:
        raise MergeError("there is no profile to merge; give at least one")
    for position, part in enumerate(parts):
        if not isinstance(part, ProfileResult):
            raise MergeError(
                f"item {position} is a {type(part).__name__}, not a ProfileResult; "
                "use numbaprof.load for a file and `.result` for a profile object"
            )
    seen: list[ProcessRun] = []
    for process in (process for part in parts for process in part.processes):
        if process in seen:
            raise MergeError(
                f"process {process.pid}, started {process.environment.started}, is in "
                "two of the profiles; its calls would count double: leave one out"
            )
        seen.append(process)


# -- what is the same ----------------------------------------------------------------


def overload_keys(result: ProfileResult) -> tuple[OverloadKey, ...]:
    """Return the identity of each overload of a profile.

    Function identity, signature, kind and a number. The number tells apart overloads
    that agree in all the rest, in order of creation: two argument types may have one
    readable label (two jitclasses of the same name).
    """
    return tuple(
        (*key, number)
        for key, number in _numbered(
            (overload.function, overload.signature, str(overload.kind))
            for overload in result.overloads
        )
    )


def _row_keys(result: ProfileResult) -> tuple[RowKey, ...]:
    """Return the identity of each row of the Python level.

    Two lambdas on one line are told apart by the order they were first called in.
    """
    return _numbered(
        (row.kind, row.file, row.line, row.name, row.qualname, row.signature)
        for row in result.python_rows
    )


def _numbered(keys: Iterable[Key]) -> tuple[tuple[Key, int], ...]:
    """Pair each key with how often it was there before."""
    seen: Counter[Key] = Counter()
    pairs = []
    for key in keys:
        pairs.append((key, seen[key]))
        seen[key] += 1
    return tuple(pairs)


def _union(
    parts: Iterable[tuple[Iterable[Key], Iterable[Item]]],
    add: Callable[[Item, Item], Item],
) -> dict[Key, Item]:
    """Return every item by key, in order of first appearance, equal keys added."""
    union: dict[Key, Item] = {}
    for keys, items in parts:
        for key, item in zip(keys, items, strict=True):
            union[key] = add(union[key], item) if key in union else item
    return union


# -- adding one thing to another -----------------------------------------------------


def _add_overloads(a: OverloadStats, b: OverloadStats) -> OverloadStats:
    compile_ns = _sum(a.compile_ns, b.compile_ns)
    boxing = _add_boxing(a.boxing, b.boxing)
    fingerprint, fingerprint_reason = _add_fingerprints(a, b)
    return OverloadStats(
        function=a.function,
        signature=a.signature,
        kind=a.kind,
        origin=max(a.origin, b.origin, key=ORIGINS_BY_COST.index),
        index=min(a.index, b.index),
        args=a.args or b.args,
        return_type=a.return_type or b.return_type,
        internal=a.internal or b.internal,
        countable=a.countable and b.countable,
        not_countable_reason=_both(a.not_countable_reason, b.not_countable_reason),
        calls=_sum(a.calls, b.calls),
        errors=a.errors + b.errors,
        in_flight=a.in_flight + b.in_flight,
        inclusive_ns=_sum(a.inclusive_ns, b.inclusive_ns),
        exclusive_ns=_sum(a.exclusive_ns, b.exclusive_ns),
        min_ns=_extreme(min, a.min_ns, b.min_ns),
        max_ns=_extreme(max, a.max_ns, b.max_ns),
        histogram=_add_histograms(a, b),
        dispatch_ns=_sum(a.dispatch_ns, b.dispatch_ns),
        # Stays beside a sum that lacks one part. The two reasons below do not: a
        # process that inherited the code, or ran it without the detail, lacks nothing.
        dispatch_reason=_both(a.dispatch_reason, b.dispatch_reason),
        elements=_sum(a.elements, b.elements),
        compile_ns=compile_ns,
        compile_self_ns=_sum(a.compile_self_ns, b.compile_self_ns),
        cache_load_ns=a.cache_load_ns + b.cache_load_ns,
        compile_reason=(
            _both(a.compile_reason, b.compile_reason) if compile_ns is None else ""
        ),
        created_in_session=a.created_in_session or b.created_in_session,
        boxing=boxing,
        boxing_reason=(
            _both(a.boxing_reason, b.boxing_reason) if boxing is None else ""
        ),
        threads=_add_threads(a.threads, b.threads),
        fingerprint=fingerprint,
        fingerprint_reason=fingerprint_reason,
    )


OTHER_CODE = "processes or runs had different code"
"""Stays once it is there: a third profile does not settle what two disagree on."""


def _add_fingerprints(
    a: OverloadStats, b: OverloadStats
) -> tuple[Fingerprint | None, str]:
    """Return the fingerprint of both, or None and the reason."""
    one, other = a.fingerprint, b.fingerprint
    differ = one is not None and other is not None and one.code != other.code
    if differ or OTHER_CODE in (a.fingerprint_reason, b.fingerprint_reason):
        return None, OTHER_CODE
    if one is None or (other is not None and one.instructions is None):
        one = other
    if one is not None:
        return one, ""
    return None, _both(a.fingerprint_reason, b.fingerprint_reason)


def _add_rows(a: PythonRow, b: PythonRow) -> PythonRow:
    return replace(
        a,
        calls=a.calls + b.calls,
        primitive_calls=a.primitive_calls + b.primitive_calls,
        inclusive_ns=a.inclusive_ns + b.inclusive_ns,
        exclusive_ns=a.exclusive_ns + b.exclusive_ns,
        overflow=_both(a.overflow, b.overflow),
    )


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _extreme(
    choose: Callable[[int, int], int], a: int | None, b: int | None
) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return choose(a, b)


def _both(a: str, b: str) -> str:
    """Join two lists of reasons, each reason once."""
    reasons = [*a.split(REASON_SEPARATOR), *b.split(REASON_SEPARATOR)]
    return REASON_SEPARATOR.join(dict.fromkeys(filter(None, reasons)))


def _add_histograms(a: OverloadStats, b: OverloadStats) -> tuple[int, ...]:
    for part, other in ((a, b), (b, a)):
        if not part.histogram:
            # Calls without a histogram: one of the sum would cover only some calls.
            return () if part.calls else other.histogram
    if len(a.histogram) != len(b.histogram):
        raise MergeError(
            f"{a.function.qualname}{a.signature}: histograms of {len(a.histogram)} and "
            f"{len(b.histogram)} buckets cannot be added; profile again with one "
            "version of numbaprof"
        )
    return tuple(x + y for x, y in zip(a.histogram, b.histogram, strict=True))


def _add_boxing(a: BoxingSplit | None, b: BoxingSplit | None) -> BoxingSplit | None:
    if a is None or b is None:
        return b if a is None else a
    return BoxingSplit(
        calls=a.calls + b.calls,
        unbox_ns=a.unbox_ns + b.unbox_ns,
        kernel_ns=a.kernel_ns + b.kernel_ns,
        box_ns=a.box_ns + b.box_ns,
    )


def _add_threads(
    a: tuple[ThreadSplit, ...], b: tuple[ThreadSplit, ...]
) -> tuple[ThreadSplit, ...]:
    def add(x: ThreadSplit, y: ThreadSplit) -> ThreadSplit:
        return ThreadSplit(
            n_threads=x.n_threads,
            calls=x.calls + y.calls,
            inclusive_ns=x.inclusive_ns + y.inclusive_ns,
            cpu_ns=x.cpu_ns + y.cpu_ns,
        )

    parts = (([split.n_threads for split in part], part) for part in (a, b))
    return tuple(_union(parts, add).values())


def _add_dispatchers(a: DispatcherInfo, b: DispatcherInfo) -> DispatcherInfo:
    return DispatcherInfo(
        function=a.function,
        kind=a.kind,
        options=a.options or b.options,
        # Processes that share a fork share overloads: not a sum.
        n_overloads=max(a.n_overloads, b.n_overloads),
        eager=a.eager or b.eager,
        inline=a.inline or b.inline,
        cache_enabled=a.cache_enabled or b.cache_enabled,
        cache_hits=a.cache_hits + b.cache_hits,
        cache_misses=a.cache_misses + b.cache_misses,
        cache_reason=_both(a.cache_reason, b.cache_reason),
        closure_functions=tuple(
            dict.fromkeys((*a.closure_functions, *b.closure_functions))
        ),
        defined_in=a.defined_in or b.defined_in,
    )


def _add_losses(losses: list[Losses]) -> Losses:
    unattached: Counter[str] = Counter()
    for loss in losses:
        for reason, number in loss.unattached:
            unattached[reason] += number
    return Losses(
        in_flight_calls=sum(loss.in_flight_calls for loss in losses),
        truncated_contexts=sum(loss.truncated_contexts for loss in losses),
        unattached=tuple(unattached.items()),
        unfinished_compilations=sum(loss.unfinished_compilations for loss in losses),
        hook_errors=tuple(error for loss in losses for error in loss.hook_errors),
        unrestored=tuple(place for loss in losses for place in loss.unrestored),
        missing_processes=tuple(
            process for loss in losses for process in loss.missing_processes
        ),
    )


# -- side by side --------------------------------------------------------------------


def _shifted(index: int, offset: int) -> int:
    return index if index < 0 else index + offset


def _shifted_events(parts: tuple[ProfileResult, ...]) -> Iterator[CompileEvent]:
    n_events = n_processes = 0
    for part in parts:
        for event in part.compile_events:
            yield replace(
                event,
                parent=_shifted(event.parent, n_events),
                process=event.process + n_processes,
            )
        n_events += len(part.compile_events)
        n_processes += len(part.processes)


def _shifted_contexts(
    parts: tuple[ProfileResult, ...],
    positions: dict[OverloadKey, int],
    row_positions: dict[RowKey, int],
) -> Iterator[ContextNode]:
    n_nodes = n_processes = 0
    for part in parts:
        keys, row_keys = overload_keys(part), _row_keys(part)
        for node in part.contexts:
            overload = -1 if node.overload < 0 else positions[keys[node.overload]]
            row = node.python_row
            yield replace(
                node,
                parent=_shifted(node.parent, n_nodes),
                process=node.process + n_processes,
                overload=overload,
                python_row=-1 if row < 0 else row_positions[row_keys[row]],
            )
        n_nodes += len(part.contexts)
        n_processes += len(part.processes)
