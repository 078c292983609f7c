"""The engine's part for Python rows, in plain Python: what tracers are tested against.

Its clock ticks once per reading, so times are exact and every run is the same.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.rowbook import Row, RowBook


def foreign_threads() -> frozenset[int]:
    """Return the idents of all other threads: pytest-xdist has one that may wake.

    Tracers see it and are right to; what a test compares is its own threads.
    """
    return frozenset(sys._current_frames()) - {threading.get_ident()}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep other threads from running as long as this one does not wait.

    From Python 3.12 on cProfile has one stack for all of them, so that a thread which
    wakes leaves its callers in the table of whoever runs.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(LONG_S)
    try:
        # Whoever waits to run began with the old interval, so lets them have it now.
        time.sleep(SHORT_S)
        yield
    finally:
        sys.setswitchinterval(interval)


LONG_S = 60
"""Longer than any test runs."""
SHORT_S = 0.01
"""Twice the interval that Python begins with."""


@dataclass
class Node:
    """A context: a row under its caller."""

    parent: int
    row: int
    calls: int = 0
    ticks: int = 0
    child_ticks: int = 0


@dataclass
class Frame:
    """An open call."""

    node: int
    since: int
    child_ticks: int = 0


@dataclass
class RowEngine:
    """One tree for all threads, one stack for each."""

    nodes: list[Node] = field(default_factory=lambda: [Node(-1, 0)])
    ticks: int = 0
    rows: int = 0
    closed: bool = False
    index: dict[tuple[int, int], int] = field(default_factory=dict)
    stacks: dict[int, list[Frame]] = field(default_factory=lambda: defaultdict(list))
    foreign: frozenset[int] = field(default_factory=foreign_threads)

    def now(self) -> int:
        """Let one tick pass and read the clock."""
        self.ticks += 1
        return self.ticks

    def is_closed(self) -> bool:
        """Tell whether a test has Numba be at work."""
        return self.closed

    def new_row(self) -> int:
        """Return a number that no other row has."""
        self.rows += 1
        return self.rows

    def enter_row(self, row: int, since: int) -> int:
        """Push; what passed since ``since`` is in no figure."""
        if threading.get_ident() in self.foreign:
            return -1
        stack = self.stacks[threading.get_ident()]
        parent = stack[-1].node if stack else 0
        node = self.index.get((parent, row))
        if node is None:
            node = self.index[parent, row] = len(self.nodes)
            self.nodes.append(Node(parent, row))
        now = self.now()
        if stack:
            stack[-1].child_ticks += now - since
        stack.append(Frame(node, now))
        return len(stack) - 1

    def leave_row(self, token: int, since: int) -> int:
        """Pop down to a frame; what passed since ``since`` is in no figure."""
        stack = self.stacks[threading.get_ident()]
        if not 0 <= token < len(stack):
            return -1
        frame = stack[token]
        del stack[token:]
        ticks = since - frame.since
        node = self.nodes[frame.node]
        node.calls += 1
        node.ticks += ticks
        node.child_ticks += frame.child_ticks
        if stack:
            stack[-1].child_ticks += ticks + self.now() - since
        return ticks


@dataclass
class Line:
    """A row's figures as pstats has them."""

    calls: int = 0
    primitive: int = 0
    callers: dict[object, list[int]] = field(default_factory=dict)
    """Caller to [calls, primitive calls]."""


def label_of(row: Row) -> tuple[str, int, str]:
    """Return what pstats knows a row by."""
    return (row.file, row.line, row.name + row.signature)


def table(engine: RowEngine, book: RowBook, key=label_of) -> dict[object, Line]:
    """Fold the tree into lines, joined by ``key``, with cProfile's recursion."""
    rows = {row.address: row for row in book.rows}
    lines: dict[object, Line] = {}
    paths: list[list[object]] = [[]]
    for node in engine.nodes[1:]:
        above = paths[node.parent]
        mine = key(rows[node.row])
        paths.append([*above, mine])
        line = lines.setdefault(mine, Line())
        line.calls += node.calls
        line.primitive += node.calls * (mine not in above)
        if above:
            edge = line.callers.setdefault(above[-1], [0, 0])
            edge[0] += node.calls
            known = (above[-1], mine) in pairwise(above)
            edge[1] += node.calls * (not known)
    # What was still open has not been called yet.
    return {mine: line for mine, line in lines.items() if line.calls}
