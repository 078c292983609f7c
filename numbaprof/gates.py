"""Which differences fail a row, and the evidence for each.

Exact gates (new overload, lost vectorisation, object mode, missing) hold with any
baseline, as nothing in them is measured with a clock. Compile time is judged from
process CPU time over several sessions only: its wall time varies by half on a busy
machine. Run time is judged in :mod:`numbaprof.comparing`, by :mod:`numbaprof.rule`.
"""

from __future__ import annotations

import statistics
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from numbaprof.comparison import Failure
from numbaprof.wording import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numbaprof.model import Fingerprint

__all__ = [
    "COMPILE_FACTOR",
    "COMPILE_MIN_NS",
    "COMPILE_SESSIONS",
    "is_allowed",
    "judge_compile",
    "lost_simd",
    "object_mode",
]

COMPILE_FACTOR = 1.5
"""With medians of 5 sessions 0.3 % of identical compilations exceed it, on a busy
machine; 1.25 would be exceeded by 4.4 %."""
COMPILE_MIN_NS = 100_000_000
"""Smaller growth is nobody's wait."""
COMPILE_SESSIONS = 5
OBJECT_KINDS = ("object mode", "objmode body")


def is_allowed(function: str, signature: str, patterns: Sequence[str]) -> bool:
    """Tell whether a new overload is expected.

    Patterns are tried as names, then as wildcards: ``(float64[::1])`` has brackets.
    """
    bare = function.rpartition(".")[2]
    names = (function, bare, f"{function}{signature}", f"{bare}{signature}")
    return any(
        name == pattern or fnmatchcase(name, pattern)
        for pattern in patterns
        for name in names
    )


def lost_simd(base: Fingerprint | None, head: Fingerprint | None) -> Failure | None:
    """Return the failure if code lost its packed instructions, or half their width.

    Only for fingerprints of one target: other targets have other widths.
    """
    if base is None or head is None or not base.packed_fp or head.packed_fp is None:
        return None
    before = f"{base.packed_fp} packed floating-point instructions"
    if base.width_bits:
        before += f", {base.width_bits} bits"
    if head.packed_fp == 0:
        return Failure("simd", f"vectorisation lost (had {before}; has none)")
    if base.width_bits and head.width_bits and head.width_bits * 2 <= base.width_bits:
        after = f"{head.packed_fp}, {head.width_bits} bits"
        return Failure("simd", f"vectors narrowed (had {before}; has {after})")
    return None


def object_mode(base_kind: str, head_kind: str) -> Failure | None:
    """Return the failure if an overload fell back to the interpreter.

    Parameters
    ----------
    base_kind : str
        Kind of the overload, or "" for one that is new.
    head_kind : str
        The same of the other side.
    """
    if head_kind not in OBJECT_KINDS or base_kind in OBJECT_KINDS:
        return None
    return Failure("objmode", f"object mode (was {base_kind or 'not there'})")


def judge_compile(
    base_ns: Sequence[int], head_ns: Sequence[int], *, cached: bool, same_code: bool
) -> tuple[Failure | None, str]:
    """Return (failure, why it could not be judged) of compile CPU times.

    Parameters
    ----------
    base_ns, head_ns : sequence of int
        Exclusive process CPU time, one per session.
    cached : bool
        The overload came from Numba's cache in a session of either side.
    same_code : bool
        Machine code is the same, so what was compiled is.
    """
    if not base_ns or not head_ns:
        return None, "not compiled on both sides"
    if cached:
        return None, "a cache hit is not compared with a compilation"
    if same_code:
        return None, ""
    fewest = min(len(base_ns), len(head_ns))
    before, after = statistics.median(base_ns), statistics.median(head_ns)
    grown = after > COMPILE_FACTOR * before and after - before > COMPILE_MIN_NS
    if not grown:
        return None, ""
    if fewest < COMPILE_SESSIONS:
        return None, f"{fewest} sessions compiled it, {COMPILE_SESSIONS} are needed"
    evidence = f"compile CPU {format_duration(before)} -> {format_duration(after)}"
    return Failure("compile", f"{evidence} ({after / before - 1:+.0%})"), ""
