"""Intervals of sampled shares."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.intervals import Z_95, samples_for, wilson


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    # R: binom::binom.wilson; the same in Brown, Cai, DasGupta (2001), table of CIs.
    [
        (0, 10, (0.0, 0.2775)),
        (1, 10, (0.0179, 0.4042)),
        (5, 10, (0.2366, 0.7634)),
        (10, 10, (0.7225, 1.0)),
    ],
)
def test_known_intervals(part, whole, expected):
    """The bounds are those of published tables."""
    assert wilson(part, whole) == pytest.approx(expected, abs=5e-5)


@given(
    st.integers(1, 10**9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
)
def test_interval_holds_the_share_and_solves_its_equation(counts):
    """A bound is where the share is z standard errors away."""
    part, whole = counts
    share = part / whole
    low, high = wilson(part, whole)
    assert 0 <= low <= share <= high <= 1
    for bound in (low, high):
        if 0 < bound < 1:
            error = Z_95 * math.sqrt(bound * (1 - bound) / whole)
            assert abs(share - bound) == pytest.approx(error, rel=1e-4, abs=1e-12)


def test_nothing_is_known_without_samples():
    """No sample says nothing about a share."""
    assert wilson(0, 0) == (0.0, 1.0)


def test_samples_for_a_width_reach_it():
    """The worst share, one half, is within the width asked for."""
    n = samples_for(0.05)
    low, high = wilson(n // 2, n)
    assert (high - low) / 2 <= 0.0501
