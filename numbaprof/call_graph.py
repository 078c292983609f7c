"""Who called whom, in the terms of pstats, for all that is in a calling-context tree.

pstats counts a call as *primitive* when no other call of the same function was under
way in the thread; the inclusive time of a function is that of its primitive calls, so
that each moment is counted once. The same goes for the calls of a function by one
caller.

An overload's own time is here with its dispatch time: what Python waits for. So the own
times of everything add up to the time of the threads.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.model import ContextNode, ProfileResult

__all__ = ["Calls", "Entry", "Key", "build_call_graph"]


class Key(NamedTuple):
    """What an entry is about."""

    kind: str
    """``row``, ``overload``, or the kind of a context: ``compile``, ..."""
    number: int = -1
    """Into ``python_rows`` or ``overloads``."""


@dataclass(slots=True)
class Calls:
    """Calls of one function, by anybody or by one caller."""

    calls: int = 0
    primitive_calls: int = 0
    inclusive_ns: int = 0
    exclusive_ns: int = 0

    def add(self, node: ContextNode, *, outermost: bool) -> None:
        """Count the calls of one context."""
        self.calls += node.calls
        self.exclusive_ns += node.exclusive_ns + node.dispatch_ns
        if outermost:
            self.primitive_calls += node.calls
            self.inclusive_ns += node.inclusive_ns + node.dispatch_ns


Name = TypeVar("Name")


@dataclass(slots=True)
class Entry(Calls, Generic[Name]):
    """A function and its callers."""

    callers: dict[Name, Calls] = field(default_factory=lambda: defaultdict(Calls))
    """Empty for what is called by no function that is known."""


def build_call_graph(
    result: ProfileResult, *, group: Callable[[Key], Any] | None = None
) -> dict[Any, Entry[Any]]:
    """Add up the contexts of all threads and processes.

    Parameters
    ----------
    result : ProfileResult
        The profile.
    group : callable, optional
        Maps a :class:`Key` to something hashable; keys with the same become one
        function, also as to what recursion is.

    Returns
    -------
    dict of Key to Entry
        In the order of the tree; by what ``group`` returns if it is given.

    Notes
    -----
    One walk with counters of what is under way; 60,000 contexts take a fraction of a
    second.
    """
    contexts = result.contexts
    below: dict[int, list[int]] = defaultdict(list)
    keys: list[Any] = [_key_of(node) for node in contexts]
    if group is not None:
        keys = [None if key is None else group(key) for key in keys]
    for index, node in enumerate(contexts):
        below[node.parent].append(index)
    entries: dict[Any, Entry[Any]] = {}
    under_way: dict[object, int] = defaultdict(int)
    waiting = below[-1][::-1]
    while waiting:
        index = waiting.pop()
        leaving = index < 0
        node = contexts[~index if leaving else index]
        key = keys[~index if leaving else index]
        if key is None:
            waiting += below[index][::-1]
            continue
        caller = keys[node.parent]
        if leaving:
            under_way[key] -= 1
            under_way[caller, key] -= 1
            continue
        entry = entries.setdefault(key, Entry())
        entry.add(node, outermost=not under_way[key])
        if caller is not None:
            edge = entry.callers[caller]
            edge.add(node, outermost=not under_way[caller, key])
        under_way[key] += 1
        under_way[caller, key] += 1
        waiting.append(~index)
        waiting += below[index][::-1]
    return entries


def _key_of(node: ContextNode) -> Key | None:
    if node.kind == "thread":
        return None
    if node.python_row >= 0:
        return Key("row", node.python_row)
    if node.overload >= 0:
        return Key("overload", node.overload)
    return Key(node.kind)
