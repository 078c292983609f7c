"""Whatever calls an overload from compiled code is named, however it gets there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from numba import njit, prange

import numbaprof

if TYPE_CHECKING:
    from numbaprof.model import OverloadStats, ProfileResult


def find(result: ProfileResult, name: str) -> OverloadStats:
    """Return the one overload of a function."""
    (found,) = (
        overload
        for overload in result.overloads
        if overload.function.qualname.endswith(name)
    )
    return found


@pytest.mark.slow
def test_call_from_a_parallel_loop_is_no_missing_call():
    """A function called in the body of ``prange`` is not shown as called 0 times."""

    @njit
    def step(x):
        total = 0.0
        for i in range(10):
            total += np.sin(x * i)
        return total

    @njit(parallel=True)
    def sweep(array):
        out = np.empty(array.size)
        for i in prange(array.size):
            out[i] = step(array[i])
        return out

    with numbaprof.profile() as p:
        sweep(np.arange(5.0))
    found = find(p.result, "step")
    assert not found.countable
    assert found.not_countable_reason.endswith("<locals>.sweep`) cannot be counted")


@pytest.mark.slow
def test_only_the_next_caller_is_named():
    """Of a chain of compiled functions each names the one right before it."""

    @njit
    def third(x):
        return x + 1

    @njit
    def second(x):
        return third(x) * 2

    @njit
    def first(x):
        return second(x) - 1

    with numbaprof.profile() as p:
        first(1)
    assert "second`" in find(p.result, "third").not_countable_reason
    assert "first`" not in find(p.result, "third").not_countable_reason
