"""The process's one engine per clock: built and proved at first start, then kept."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from numbaprof.errors import UnsupportedError
from numbaprof.native import clock as clocks
from numbaprof.native import cpython_api, selftest
from numbaprof.native.engine import Engine

__all__ = ["SharedEngine", "shared_engine"]


@dataclass(frozen=True, slots=True)
class SharedEngine:
    """An engine that passed its self-test, or why there is none."""

    engine: Engine | None
    reason: str
    ns_per_tick: float = 1.0
    """First calibration; a session's own length gives a better one."""
    overhead_ns: float = math.nan
    """What one call costs more, measured on this machine."""


_LOCK = threading.Lock()
_ENGINES: dict[str | None, SharedEngine] = {}


def shared_engine(clock: str | None = None) -> SharedEngine:
    """Return the process's engine, built and tested at the first call.

    Parameters
    ----------
    clock : str, optional
        Name of the clock to use, None for the best.

    Raises
    ------
    OptionError
        There is no clock of that name.
    """
    with _LOCK:
        if clock not in _ENGINES:
            _ENGINES[clock] = _build(clock)
        return _ENGINES[clock]


def _build(clock: str | None) -> SharedEngine:
    try:
        chosen = clocks.choose_clock(clock)
        layouts = cpython_api.discover()
        if layouts.method_self is None:
            return SharedEngine(None, layouts.method_reason)
        engine = Engine(layouts, chosen)
        selftest.check(engine)
        ns_per_tick = _first_calibration(engine)
        overhead = selftest.measure_overhead_ns(engine, ns_per_tick)
    except UnsupportedError as error:
        return SharedEngine(None, str(error))
    return SharedEngine(engine, "", ns_per_tick, overhead)


def _first_calibration(engine: Engine) -> float:
    first = clocks.read_pair(engine.now)
    until = time.perf_counter_ns() + clocks.FIRST_CALIBRATION_NS
    while time.perf_counter_ns() < until:
        pass
    last = clocks.read_pair(engine.now)
    return clocks.NS_PER_S / clocks.describe(engine.clock, first, last).ticks_per_second
