"""Exact hits per source line, from a separate build that counts them.

Example
-------
::

    hits = count_hits(kernel, (a, b))
    hits.lines[(kernel.py_func.__code__.co_filename, 12)]

The numbers are those in the ``Hits`` column of line_profiler for the interpreted
function, and of every function it calls. The build that is timed is never this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numbaprof.errors import TargetError, UnsupportedError
from numbaprof.model import FunctionId
from numbaprof.native.argument_copies import copy_arguments
from numbaprof.native.counting_build import (
    Counted,
    CountingBuild,
    is_compiled_generator,
    kept_random_state,
    why_not_countable,
)
from numbaprof.native.numba_api import (
    FunctionRegistry,
    definition_line,
    jit_is_disabled,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["HitCounts", "OverloadHits", "count_hits"]


@dataclass(frozen=True, slots=True)
class OverloadHits:
    """The hits of one overload."""

    function: FunctionId
    signature: str
    """As in ``p.stats``; of a function that was inlined, that of its caller."""
    lines: dict[int, int]
    """Line to hits, also lines that could have been reached and were not."""


@dataclass(frozen=True)
class HitCounts:
    """What one counting run found."""

    overloads: tuple[OverloadHits, ...]
    value: Any = field(repr=False)
    """What the function returned; of a generator the list of all it yielded."""
    error: BaseException | None
    """What it raised; the hits are those up to there."""
    notes: tuple[str, ...] = ()
    """What is not counted, a sentence each."""

    @property
    def lines(self) -> dict[tuple[str, int], int]:
        """(file, line) to hits, over all overloads."""
        found: dict[tuple[str, int], int] = {}
        for overload in self.overloads:
            for line, count in overload.lines.items():
                key = (overload.function.file, line)
                found[key] = found.get(key, 0) + count
        return found


def count_hits(
    dispatcher: Any,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    copy: bool = True,
    registry: FunctionRegistry | None = None,
) -> HitCounts:
    """Run a jitted function once more, in a build that counts its lines.

    Parameters
    ----------
    dispatcher : CPUDispatcher
        What ``@jit`` or ``@njit`` made. It is neither called nor compiled.
    args, kwargs : iterable and mapping, optional
        Arguments of the call. They are copied, so that what the function writes is
        written to the copies.
    copy : bool, default True
        False passes the arguments themselves, for those that cannot be copied.
    registry : FunctionRegistry, optional
        Gives functions their identity; that of a session lets hits and calls meet.

    Returns
    -------
    HitCounts

    Raises
    ------
    TargetError
        Not a jitted function, or arguments that cannot be copied.
    UnsupportedError
        The function runs in object mode, or the JIT is off.
    numba.core.errors.NumbaError
        The function does not compile for these arguments.

    Notes
    -----
    Costs one compilation of the function and of all it calls, and one run that is some
    times slower than the optimized one. Parallel regions run as plain loops, in one
    thread. Output and files are written a second time; Numba's random numbers are put
    back to where they were. A generator is run to its end.

    Not thread-safe towards ``args`` only: compiling holds Numba's own lock.
    """
    if jit_is_disabled():
        raise UnsupportedError(
            "lines cannot be counted while NUMBA_DISABLE_JIT is set: there is no "
            "compiled function; line_profiler counts the lines of Python functions"
        )
    reason = why_not_countable(dispatcher)
    if reason:
        raise TargetError(reason)
    given, named = tuple(args), dict(kwargs or {})
    if copy:
        given, named = copy_arguments(given, named)
    build = CountingBuild(dispatcher)
    value, error = None, None
    try:
        run = build.compile(given, named)
        with kept_random_state():
            try:
                value = _finished(run())
            except Exception as raised:  # the user's function's own: part of the result
                error = raised
    finally:
        build.release()
    found = _by_overload(build.counted, registry or FunctionRegistry())
    return HitCounts(found, value, error, build.notes())


def _finished(value: Any) -> Any:
    """Run a generator to its end; return what it yielded, or any other value as is."""
    return list(value) if is_compiled_generator(value) else value


def _by_overload(
    counted: Iterable[Counted], registry: FunctionRegistry
) -> tuple[OverloadHits, ...]:
    """Add up what was compiled more than once for one overload."""
    found: dict[tuple[FunctionId, str], dict[int, int]] = {}
    for one in counted:
        own = one.code.code is one.dispatcher.py_func.__code__
        function = registry.identify(one.dispatcher, one.args) if own else _inner(one)
        lines = found.setdefault((function, registry.signature_text(one.args)), {})
        for line, count in one.code.hits().items():
            lines[line] = lines.get(line, 0) + count
    return tuple(
        OverloadHits(function, signature, dict(sorted(lines.items())))
        for (function, signature), lines in found.items()
    )


def _inner(one: Counted) -> FunctionId:
    """Return the identity of a function compiled as a part of another one."""
    code, function = one.code.code, one.code.function
    qualname = getattr(code, "co_qualname", None) or function.__qualname__
    line = definition_line(code)
    return FunctionId(function.__module__ or "", qualname, code.co_filename, line)
