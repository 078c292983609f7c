"""LLVM's words turned into what to change."""

from __future__ import annotations

import pytest

from numbaprof.loop_advice import advise

REASON = "loop not vectorized: "


@pytest.mark.parametrize(
    ("remark", "advice"),
    [
        ("cannot prove it is safe to reorder floating-point operations", "fastmath="),
        ("cannot identify array bounds", "an index is computed"),
        ("Cannot vectorize early exit loop", "break, return, or an error"),
        ("Cannot vectorize potentially faulting early exit loop", "break, return"),
        ("could not determine number of loop iterations", "for i in range(n)"),
        ("call instruction cannot be vectorized", "icc_rt"),
        ("instruction cannot be vectorized", "operation without a vector form"),
        ("unsafe dependent memory operations in loop", "another array"),
    ],
)
def test_known_remark_has_advice(remark, advice):
    """The most specific one that fits."""
    assert advice in advise(REASON + remark)


def test_unknown_remark_has_none():
    """A guess would mislead."""
    assert advise("loop not vectorized: the moon is full") == ""
    assert advise("vectorized loop (vectorization width: 4)") == ""
