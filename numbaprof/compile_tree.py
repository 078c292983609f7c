"""Which compile events a profile's contexts of compiling stand for.

The calling-context tree knows how long compiling took and where, but not of what; the
compile events know of what and when, but not from which context. Where both can only
mean the same, the events can stand in for the contexts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numbaprof.model import CompileEvent, ContextKind, ProfileResult

__all__ = ["CONTEXT_KINDS", "MatchedEvents", "match_events", "nest_events"]

CONTEXT_KINDS: dict[str, ContextKind] = {
    "compile": "compile",
    "failed": "compile",
    "cache_load": "cache_load",
}
"""Kind of the context that a compile event was timed in, by its outcome."""

_TOLERANCE_NS, _TOLERANCE_SHARE = 10_000_000, 0.1
"""How far events and contexts may be apart on the same compilations. An event begins a
little earlier and ends later; on a machine with more to do than cores, a time slice."""

_Path = tuple[int | str, ...]
"""A thread's root and the kinds below it: (3, "compile", "cache_load")."""


@dataclass(frozen=True, slots=True)
class MatchedEvents:
    """Contexts that are told apart by compile events."""

    contexts: frozenset[int]
    """Indices of contexts that the events replace."""
    outermost: dict[int, list[int]]
    """Index of a thread's root to the indices of its events that are in no other."""


def nest_events(events: Sequence[CompileEvent]) -> dict[int, list[int]]:
    """Map each event, and -1 for none, to the events directly in it."""
    nested: dict[int, list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        nested[event.parent].append(index)
    return nested


def match_events(result: ProfileResult) -> MatchedEvents:
    """Find the contexts of compiling that compile events can replace.

    Returns
    -------
    MatchedEvents
        Empty where nothing could be proved.

    Notes
    -----
    All contexts of a thread are matched or none is. They are where each is right below
    its thread or another one of them, as many events as calls were found on every
    level, and their times agree within 10 % or 10 ms. A look into the cache in vain
    that happened inside a compilation becomes part of it.
    """
    paths = _find_paths(result)
    times: dict[int, dict[_Path, tuple[int, int]]] = defaultdict(dict)
    members: dict[int, set[int]] = defaultdict(set)
    failed: set[int] = set()
    for index, (root, path) in enumerate(paths):
        node = result.contexts[index]
        if path is None:
            failed.add(root)
        elif len(path) > 1:
            members[root].add(index)
            if node.kind != "cache_miss":
                calls, time_ns = times[root].get(path, (0, 0))
                times[root][path] = calls + node.calls, time_ns + node.inclusive_ns
    by_thread = _group_by_thread(result.compile_events)
    nested = nest_events(result.compile_events)
    matched: set[int] = set()
    outermost: dict[int, list[int]] = {}
    for root, expected in times.items():
        thread = result.contexts[root]
        events = by_thread.get((thread.process, thread.label), [])
        found = _sum_by_path(result.compile_events, events, nested, root)
        if root not in failed and _agree(expected, found):
            matched |= members[root]
            outermost[root] = events
    return MatchedEvents(frozenset(matched), outermost)


def _find_paths(result: ProfileResult) -> list[tuple[int, _Path | None]]:
    """Give each context its thread's root, and its path if events might replace it.

    The path is ``(root,)`` for what has nothing to do with compiling, None for what
    stands in the way.
    """
    found: list[tuple[int, _Path | None]] = []
    for index, node in enumerate(result.contexts):
        if node.parent < 0:
            found.append((index, (index,)))
            continue
        root, above = found[node.parent]
        beside_calls = result.contexts[node.parent].kind in ("thread", "compile")
        inside = above is not None and len(above) > 1
        path: _Path | None = (root,)
        if node.kind in ("compile", "cache_load"):
            path = (*above, node.kind) if above and beside_calls else None
        elif inside:
            path = above if node.kind == "cache_miss" else None
        found.append((root, path))
    return found


def _group_by_thread(
    events: Sequence[CompileEvent],
) -> dict[tuple[int, str], list[int]]:
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        if event.parent < 0:
            groups[event.process, event.thread].append(index)
    return groups


def _sum_by_path(
    events: Sequence[CompileEvent],
    outermost: list[int],
    nested: dict[int, list[int]],
    root: int,
) -> dict[_Path, tuple[int, int]]:
    """Count events and add their times by the path their contexts would have."""
    found: dict[_Path, tuple[int, int]] = {}
    waiting: list[tuple[int, _Path]] = [(index, (root,)) for index in outermost]
    while waiting:
        index, above = waiting.pop()
        event = events[index]
        path = (*above, CONTEXT_KINDS[event.event])
        calls, time_ns = found.get(path, (0, 0))
        found[path] = calls + 1, time_ns + event.inclusive_ns
        waiting += [(child, path) for child in nested.get(index, [])]
    return found


def _agree(
    expected: dict[_Path, tuple[int, int]], found: dict[_Path, tuple[int, int]]
) -> bool:
    if expected.keys() != found.keys():
        return False
    for path, (calls, time_ns) in expected.items():
        n_events, events_ns = found[path]
        allowed = max(_TOLERANCE_NS, _TOLERANCE_SHARE * time_ns)
        if n_events != calls or abs(events_ns - time_ns) > allowed:
            return False
    return True
