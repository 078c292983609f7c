"""Proof, at the first start, that the engine counts right here, and what it costs.

A C function of our own is called through both trampolines from a Python function we
know. If the books are not exactly right the engine is not used, and the reason says
what was wrong. The same arrangement, with and without the trampolines, gives the
overhead per call that every report shows.
"""

from __future__ import annotations

import ctypes
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any

from numbaprof.errors import UnsupportedError
from numbaprof.native.cpython_api import METH_VARARGS_KEYWORDS, MethodDef, new_method
from numbaprof.native.layout import SlotField, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from numbaprof.native.engine import Engine, Slot

__all__ = ["check", "measure_overhead_ns"]

CALLS = 3
ROUNDS = 25
CALLS_PER_ROUND = 400
"""25 interleaved rounds of 400 calls take about 2 ms; the minimum is kept."""


class _Subject:
    """A function that goes through ``dispatch`` and ``overload`` to ``echo``.

    The slot plays both parts: it is the ``m_self`` the overload trampoline expects, and
    the "dispatcher" whose pending frame it takes over.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.slot: Slot = engine.new_slot(engine.addresses["echo"], object(), 0)
        self.slot.words[SlotField.DISPATCHER] = id(self.slot)
        self.definition = MethodDef(b"subject", None, METH_VARARGS_KEYWORDS, None)
        self.direct()
        self.call = new_method(self.definition, self.slot)
        self._target = engine.state[State.DISPATCH_TARGET]

    def direct(self) -> None:
        """Let calls go straight to ``echo``."""
        self.definition.ml_meth = self._engine.addresses["echo"]

    def measured(self) -> None:
        """Let calls go through both trampolines."""
        self._engine.set_dispatch_target(self._engine.addresses["overload"])
        self.definition.ml_meth = self._engine.addresses["dispatch"]

    def close(self) -> None:
        """Put the engine's dispatch target back."""
        self.direct()
        self._engine.set_dispatch_target(self._target)


def check(engine: Engine) -> None:
    """Run calls through the engine and compare its books with what was done.

    Raises
    ------
    UnsupportedError
        They differ; the message says how.
    """
    subject = _Subject(engine)
    subject.measured()
    engine.start(1.0)
    try:
        results = [subject.call(number) for number in range(CALLS)]
        # In a function of its own, so that the caller's code can be recognised.
        last = _call_once(subject.call)
    finally:
        engine.stop()
        subject.close()
    records = engine.records()
    if results != [(number,) for number in range(CALLS)] or last != ("once",):
        raise UnsupportedError(f"the trampolines changed a result: {results}, {last}")
    mine = [r for r in records if r.slot == ctypes.addressof(subject.slot)]
    calls = sorted(record.calls for record in mine)
    expected = [1, CALLS] if engine.layouts.caller else [CALLS + 1]
    if calls != expected:
        raise UnsupportedError(f"counted {calls} calls where {expected} were made")
    if any(record.inclusive_ticks < 0 for record in mine):
        raise UnsupportedError(f"clock {engine.clock.name} went backwards")
    if engine.layouts.caller:
        codes = {record.code for record in mine}
        wanted = {check.__code__, _call_once.__code__}
        # Before 3.12 a list comprehension is a frame of its own.
        if _call_once.__code__ not in codes or len(codes) != len(wanted):
            raise UnsupportedError(f"the callers read were {codes}")


def _call_once(function: Callable[[str], Any]) -> Any:
    return function("once")


def measure_overhead_ns(engine: Engine, ns_per_tick: float) -> float:
    """Return what one measured call costs more than an unmeasured one, nanoseconds.

    The difference of the minima of interleaved rounds; a loaded machine makes it
    larger, never smaller than the truth by more than the noise of the minimum.
    """
    subject = _Subject(engine)
    best = {False: float("inf"), True: float("inf")}
    engine.start(ns_per_tick)
    try:
        for _ in range(ROUNDS):
            for through in (False, True):
                if through:
                    subject.measured()
                else:
                    subject.direct()
                best[through] = min(best[through], _time_round(subject.call))
    finally:
        engine.stop()
        subject.close()
    engine.records()
    return max(0.0, best[True] - best[False])


def _time_round(call: Callable[[int], Any]) -> float:
    begin = time.perf_counter_ns()
    for number in repeat(0, CALLS_PER_ROUND):
        call(number)
    return (time.perf_counter_ns() - begin) / CALLS_PER_ROUND
