"""The books of a profile: whether its figures agree with each other.

Every nanosecond that the engine measured is in exactly one node of the calling-context
tree, and every call in exactly one overload. What is checked here holds for any
profile, also after merging, to the nanosecond:

* the tree is a tree: a parent comes before its children and in the same process;
* a thread runs nothing itself: its inclusive time is that of its children;
* inclusive = exclusive + (inclusive + dispatch) of the children, at every node, so that
  all exclusive and dispatch times of a thread add up to the thread's inclusive time;
* the calls of an overload are those of its nodes, and those of its histogram;
* the calls of a row of the Python level are those of its nodes;
* minimum and maximum are in order, exclusive time is within inclusive time;
* every sample is counted once: those in the stacks of a process are those it took, and
  one that ended on a line names it;
* every index points to something.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from numbaprof.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numbaprof.model import (
        ContextNode,
        OverloadStats,
        ProfileResult,
        PythonRow,
    )

__all__ = ["check", "misplaced", "violations"]


def check(result: ProfileResult) -> None:
    """Raise if the figures of a profile contradict each other.

    Parameters
    ----------
    result : ProfileResult
        Any profile; merged ones too.

    Raises
    ------
    InvariantError
        With every contradiction, one per line.
    """
    found = violations(result)
    if found:
        raise InvariantError(found)


def misplaced(result: ProfileResult) -> tuple[str, ...]:
    """Return one line per index that points to nothing, or in a circle.

    Whoever follows the indices of a profile without these need not look where to.
    """
    return tuple(_index_violations(result))


def violations(result: ProfileResult) -> tuple[str, ...]:
    """Return one line per contradiction; empty for a sound profile.

    Times are compared only where the indices they are found by are right.
    """
    wrong = misplaced(result)
    if wrong:
        return wrong
    return (
        *_tree_violations(result.contexts),
        *_call_violations(result),
        *(
            line
            for index, overload in enumerate(result.overloads)
            for line in _overload_violations(f"overloads[{index}]", overload)
        ),
        *(
            line
            for index, row in enumerate(result.python_rows)
            for line in _row_violations(f"python_rows[{index}]", row)
        ),
        *_sample_violations(result),
    )


def _index_violations(result: ProfileResult) -> Iterator[str]:
    n_processes = len(result.processes)
    for index, event in enumerate(result.compile_events):
        where = f"compile_events[{index}]"
        if not 0 <= event.process < n_processes:
            yield f"{where}: process {event.process} of {n_processes}"
        if not -1 <= event.parent < index:
            yield f"{where}: parent {event.parent} is not before it"
    for index, node in enumerate(result.contexts):
        where = f"contexts[{index}]"
        if not 0 <= node.process < n_processes:
            yield f"{where}: process {node.process} of {n_processes}"
        if not -1 <= node.parent < index:
            yield f"{where}: parent {node.parent} is not before it"
        elif node.parent != -1:
            parent = result.contexts[node.parent]
            if parent.process != node.process:
                yield f"{where}: parent {node.parent} is in another process"
        if (node.kind == "thread") != (node.parent == -1):
            yield f"{where}: kind {node.kind} with parent {node.parent}"
        if node.kind == "overload":
            if not 0 <= node.overload < len(result.overloads):
                yield f"{where}: overload {node.overload} of {len(result.overloads)}"
        elif node.overload != -1:
            yield f"{where}: kind {node.kind} names overload {node.overload}"
        if node.kind in ("python", "builtin"):
            row = node.python_row
            if not 0 <= row < len(result.python_rows):
                yield f"{where}: python_row {row} of {len(result.python_rows)}"
            elif result.python_rows[row].kind != node.kind:
                yield f"{where}: python_rows[{row}] is no {node.kind}"
        elif node.python_row != -1:
            yield f"{where}: kind {node.kind} names python_row {node.python_row}"
    yield from _line_index_violations(result)


def _line_index_violations(result: ProfileResult) -> Iterator[str]:
    n_processes, n_sites = len(result.processes), len(result.line_sites)
    for index, stack in enumerate(result.stacks):
        where = f"stacks[{index}]"
        if not 0 <= stack.process < n_processes:
            yield f"{where}: process {stack.process} of {n_processes}"
        for frame in stack.frames:
            if not 0 <= frame < n_sites:
                yield f"{where}: line site {frame} of {n_sites}"
    for index, info in enumerate(result.sampling):
        if not 0 <= info.process < n_processes:
            yield f"sampling[{index}]: process {info.process} of {n_processes}"
    for index, fact in enumerate(result.line_facts):
        if not 0 <= fact.site < n_sites:
            yield f"line_facts[{index}]: line site {fact.site} of {n_sites}"


def _sample_violations(result: ProfileResult) -> Iterator[str]:
    counted: Counter[int] = Counter()
    for index, stack in enumerate(result.stacks):
        counted[stack.process] += stack.count
        where = f"stacks[{index}]"
        if stack.count < 1:
            yield f"{where}: {stack.count} samples"
        if (stack.bin in ("line", "function")) != bool(stack.frames):
            yield f"{where}: bin {stack.bin} with {len(stack.frames)} frames"
    taken = Counter({info.process: info.taken for info in result.sampling})
    for process in sorted({*counted, *taken}):
        if counted[process] != taken[process]:
            yield (
                f"process {process}: took {taken[process]} samples, "
                f"{counted[process]} in its stacks"
            )


def _tree_violations(contexts: tuple[ContextNode, ...]) -> Iterator[str]:
    below: dict[int, int] = defaultdict(int)
    for node in contexts:
        below[node.parent] += node.inclusive_ns + node.dispatch_ns
    for index, node in enumerate(contexts):
        where = f"contexts[{index}]"
        if node.inclusive_ns != node.exclusive_ns + below[index]:
            yield (
                f"{where}: inclusive_ns {node.inclusive_ns} is not exclusive_ns "
                f"{node.exclusive_ns} + {below[index]} in its children"
            )
        if node.kind == "thread" and (node.exclusive_ns or node.dispatch_ns):
            yield f"{where}: a thread has time of its own"
        if node.exclusive_ns < 0 or node.dispatch_ns < 0:
            yield f"{where}: negative time"
        if node.errors > node.calls:
            yield f"{where}: {node.errors} errors in {node.calls} calls"


def _call_violations(result: ProfileResult) -> Iterator[str]:
    in_tree: Counter[tuple[str, int]] = Counter()
    for node in result.contexts:
        if node.kind == "overload":
            in_tree["overloads", node.overload] += node.calls
        elif node.python_row >= 0:
            in_tree["python_rows", node.python_row] += node.calls
    # Calls whose context did not fit are in their function, not in the tree.
    unplaced = result.losses.truncated_contexts
    for (name, index), in_nodes in sorted(in_tree.items()):
        calls = getattr(result, name)[index].calls or 0
        if not calls - unplaced <= in_nodes <= calls:
            yield (
                f"{name}[{index}]: {calls} calls, {in_nodes} in its contexts, "
                f"{unplaced} without one in the whole profile"
            )


def _row_violations(where: str, row: PythonRow) -> Iterator[str]:
    if not 0 <= row.primitive_calls <= row.calls:
        yield f"{where}: {row.primitive_calls} primitive calls of {row.calls}"
    if not 0 <= row.exclusive_ns <= row.inclusive_ns:
        yield (
            f"{where}: exclusive_ns {row.exclusive_ns} is not within inclusive_ns "
            f"{row.inclusive_ns}"
        )


def _overload_violations(where: str, overload: OverloadStats) -> Iterator[str]:
    calls = overload.calls or 0
    if overload.calls is None and overload.countable:
        yield f"{where}: countable, but has no number of calls"
    if not (overload.countable or overload.not_countable_reason):
        yield f"{where}: not countable without a reason"
    if overload.errors > calls:
        yield f"{where}: {overload.errors} errors in {calls} calls"
    if overload.histogram and sum(overload.histogram) != calls:
        yield f"{where}: {calls} calls, {sum(overload.histogram)} in its histogram"
    if (
        overload.inclusive_ns is not None
        and overload.exclusive_ns is not None
        and not 0 <= overload.exclusive_ns <= overload.inclusive_ns
    ):
        yield (
            f"{where}: exclusive_ns {overload.exclusive_ns} is not within "
            f"inclusive_ns {overload.inclusive_ns}"
        )
    if (overload.min_ns is None) != (overload.max_ns is None):
        yield f"{where}: only one of min_ns and max_ns is known"
    elif (
        overload.min_ns is not None
        and overload.max_ns is not None
        and overload.min_ns > overload.max_ns
    ):
        yield f"{where}: min_ns {overload.min_ns} above max_ns {overload.max_ns}"
