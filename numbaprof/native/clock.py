"""The clock of the exact figures: which one, why, and how many ticks a second has.

Reading the time stamp counter costs 12 ns on the machine of our field notes, against
30 ns for ``clock_gettime``; a call is read three times. The counter is used only where
the kernel itself trusts it, and it is calibrated against ``time.perf_counter_ns`` over
the session's own length, so nobody waits for it.

References
----------
.. [1] Intel SDM vol. 3, 18.17 "Time-Stamp Counter" (invariant TSC).
.. [2] Arm ARM, D12.8 "CNTVCT_EL0"; LLVM lowers ``llvm.readcyclecounter`` to a register
   that traps in user space on some versions, so the register is named here.
"""

from __future__ import annotations

import ctypes
import math
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import llvmlite.ir as ir

from numbaprof.errors import OptionError, UnsupportedError
from numbaprof.model import ClockInfo
from numbaprof.native import emit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CLOCK_NAMES",
    "Clock",
    "ClockPair",
    "choose_clock",
    "emit_read",
    "read_pair",
]

ClockName = Literal["tsc", "cntvct", "clock_gettime", "fake"]
CLOCK_NAMES: tuple[ClockName, ...] = ("tsc", "cntvct", "clock_gettime", "fake")

NS_PER_S = 1_000_000_000
PAIR_ATTEMPTS = 50
"""Bracketed reads per pair; the tightest bracket wins. 50 take about 20 us."""
FIRST_CALIBRATION_NS = 2_000_000
"""Length of the calibration at first start, good to about 20 ppm (field notes)."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock that native code can read."""

    name: ClockName
    reason: str
    """Why this one: "" for the best the platform has."""
    address: int = 0
    """Of ``clock_gettime``, or of the word a fake clock counts in."""
    identifier: int = 0
    """The ``clockid_t`` for ``clock_gettime``; the step of a fake clock, in ticks."""


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One moment, read on the engine's clock and on ``time.perf_counter_ns``."""

    ticks: int
    ns: int
    error_ns: int
    """Half the width of the bracket around the reading."""


def choose_clock(requested: str | None = None) -> Clock:
    """Choose the cheapest clock this machine can be trusted with.

    Parameters
    ----------
    requested : str, optional
        One of :data:`CLOCK_NAMES` except ``"fake"``, to overrule the choice.

    Raises
    ------
    OptionError
        The requested clock does not exist.
    UnsupportedError
        The requested clock is not to be had on this machine.
    """
    if requested is not None and requested not in CLOCK_NAMES[:3]:
        raise OptionError(
            f"clock={requested!r} is not a clock; choose from {CLOCK_NAMES[:3]}"
        )
    native, distrust = _native_counter()
    if requested in (None, native) and native is not None and not distrust:
        return Clock(native, "")
    if requested in ("tsc", "cntvct"):
        raise UnsupportedError(f"clock {requested!r} cannot be used: {distrust}")
    reason = "requested" if requested else distrust
    return Clock("clock_gettime", reason, clock_gettime_address(), _monotonic_id())


def _native_counter() -> tuple[ClockName | None, str]:
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "tsc", _why_not_tsc()
    if machine in ("aarch64", "arm64"):
        return "cntvct", ""
    return None, f"no counter register known for {machine}"


def _why_not_tsc() -> str:
    """Return why the kernel does not trust the TSC, "" if it does."""
    if not sys.platform.startswith("linux"):
        # macOS and Windows run only on invariant-TSC machines, and say nothing.
        return ""
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    try:
        current = source.read_text().strip()
        flags = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError as error:
        return f"cannot tell whether the TSC is invariant ({error})"
    if "constant_tsc" not in flags or "nonstop_tsc" not in flags:
        return "the processor does not promise a constant, non-stop TSC"
    if current not in ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page"):
        return f"the kernel keeps time by {current}, not by the TSC"
    return ""


def has_cpu_clock() -> bool:
    """Tell whether native code can read the CPU time of this process."""
    return hasattr(time, "CLOCK_PROCESS_CPUTIME_ID") and sys.platform != "win32"


def clock_gettime_address() -> int:
    """Return the address of ``clock_gettime``.

    Raises
    ------
    UnsupportedError
        This platform has none.
    """
    if sys.platform == "win32":
        raise UnsupportedError("no clock_gettime on Windows, and no trusted counter")
    function = ctypes.CDLL(None).clock_gettime
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _monotonic_id() -> int:
    return int(getattr(time, "CLOCK_MONOTONIC", 1))


def emit_read(module: ir.Module, clock: Clock) -> Callable[[ir.IRBuilder], Any]:
    """Return a function that emits one reading of ``clock``.

    ``uint64_t read(void)``, inlined where it is used.

    Parameters
    ----------
    module : llvmlite.ir.Module
        Module that gets the declarations needed.
    clock : Clock
        What to read.

    Returns
    -------
    callable
        Takes a builder, emits the reading there, returns the value in ticks.
    """
    if clock.name == "tsc":
        counter = module.declare_intrinsic(
            "llvm.readcyclecounter", (), ir.FunctionType(emit.WORD, ())
        )
        return lambda builder: builder.call(counter, ())
    if clock.name == "cntvct":
        return _emit_cntvct(module)
    if clock.name == "fake":
        return _emit_fake(clock)
    return _emit_clock_gettime(module, clock)


def _emit_cntvct(module: ir.Module) -> Callable[[ir.IRBuilder], Any]:
    signature = ir.FunctionType(emit.WORD, (ir.MetaDataType(),))
    read = ir.Function(module, signature, "llvm.read_volatile_register.i64")
    register = module.add_metadata(["CNTVCT_EL0"])
    return lambda builder: builder.call(read, (register,))


def _emit_fake(clock: Clock) -> Callable[[ir.IRBuilder], Any]:
    def read(builder: ir.IRBuilder) -> Any:
        word = emit.const(clock.address).inttoptr(emit.PTR)
        now = builder.load(word, typ=emit.WORD)
        builder.store(builder.add(now, emit.const(clock.identifier)), word)
        return now

    return read


def _emit_clock_gettime(
    module: ir.Module, clock: Clock
) -> Callable[[ir.IRBuilder], Any]:
    """Emit ``uint64_t now_ns(void)`` around ``clock_gettime``; return its caller."""
    function, builder = emit.new_function(
        module, "now_ns", ir.FunctionType(emit.WORD, ()), (), linkage="internal"
    )
    timespec = builder.alloca(ir.ArrayType(emit.WORD, 2))
    signature = ir.FunctionType(ir.IntType(32), (ir.IntType(32), emit.PTR))
    which = ir.Constant(ir.IntType(32), clock.identifier)
    emit.call_absolute(builder, clock.address, signature, [which, timespec])
    seconds = emit.load_word(builder, timespec, 0)
    nanoseconds = emit.load_word(builder, timespec, 1)
    builder.ret(builder.add(builder.mul(seconds, emit.const(NS_PER_S)), nanoseconds))
    return lambda builder: builder.call(function, ())


def read_pair(now_ticks: Callable[[], int]) -> ClockPair:
    """Read both clocks at one moment, as tightly as Python allows.

    Parameters
    ----------
    now_ticks : callable
        Reads the engine's clock.

    Returns
    -------
    ClockPair
        The tightest of :data:`PAIR_ATTEMPTS` bracketed readings.
    """
    best: ClockPair | None = None
    for _ in range(PAIR_ATTEMPTS):
        before = time.perf_counter_ns()
        ticks = now_ticks()
        after = time.perf_counter_ns()
        width = after - before
        if best is None or width < 2 * best.error_ns:
            best = ClockPair(ticks, (before + after) // 2, (width + 1) // 2)
    if best is None:  # PAIR_ATTEMPTS is positive; this is for the type checker
        raise UnsupportedError("no reading of the clock was made")
    return best


def describe(clock: Clock, first: ClockPair, last: ClockPair) -> ClockInfo:
    """Calibrate ``clock`` between two moments.

    Returns
    -------
    ClockInfo
        ``error_ppm`` bounds the error of the rate by the width of both brackets over
        the time between them.

    Raises
    ------
    UnsupportedError
        The clock did not advance between the two moments.
    """
    ticks, ns = last.ticks - first.ticks, last.ns - first.ns
    if clock.name == "fake":
        return ClockInfo("fake", clock.reason, float(NS_PER_S), 1.0, 0.0)
    if ticks <= 0 or ns <= 0:
        raise UnsupportedError(
            f"clock {clock.name!r} went from {first.ticks} to {last.ticks} ticks in "
            f"{ns} ns: it does not run; ask for clock='clock_gettime'"
        )
    rate = float(NS_PER_S) if clock.name == "clock_gettime" else ticks * NS_PER_S / ns
    error = 0.0 if clock.name == "clock_gettime" else _bound_ppm(first, last)
    return ClockInfo(clock.name, clock.reason, rate, NS_PER_S / rate, error)


def _bound_ppm(first: ClockPair, last: ClockPair) -> float:
    elapsed = last.ns - first.ns
    return (first.error_ns + last.error_ns) / elapsed * 1e6 if elapsed else math.inf
