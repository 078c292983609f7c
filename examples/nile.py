"""Find when the flow of the Nile changed.

A hundred yearly flows at Aswan, 1871 to 1970, and three answers: the split of the
series in two that fits best, how sure one can be of it, and what a model without any
break makes of the same numbers. The data and what is known about them are described in
the README beside this file.
"""

from __future__ import annotations

from math import log, pi
from pathlib import Path

import numpy as np
from numba import njit

SHUFFLES = 2000
RESAMPLES = 2000
FIRST_YEAR = 1871


@njit
def sum_of_squares(values, mean):
    """Sum of squared distances from ``mean``."""
    total = 0.0
    for value in values:
        total += (value - mean) ** 2
    return total


@njit
def best_split(flow):
    """Cut where two means fit best: (years before the cut, error saved, in 0..1)."""
    n = flow.size
    whole = sum_of_squares(flow, flow.mean())
    best_at, best_error = 0, whole
    for at in range(1, n):
        before, after = flow[:at], flow[at:]
        error = sum_of_squares(before, before.mean())
        error += sum_of_squares(after, after.mean())
        if error < best_error:
            best_at, best_error = at, error
    return best_at, 1.0 - best_error / whole


@njit
def log_likelihood(flow, noise, drift, burn_in=1):
    """Log likelihood of a level that wanders (Kalman filter, exact diffuse start).

    ``noise`` is the variance of one year's flow around the level, ``drift`` that of the
    level's step from year to year. The first ``burn_in`` years only find the level.
    """
    level, variance = float(flow[0]), float(noise + drift)
    total = 0.0
    for year in range(1, flow.size):
        error = flow[year] - level
        spread = variance + noise
        gain = variance / spread
        level += gain * error
        variance = variance * (1.0 - gain) + drift
        if year >= burn_in:
            total -= 0.5 * (log(2.0 * pi * spread) + error * error / spread)
    return total


@njit(["float32[::1](float32[::1], int64)", "float64[::1](float64[::1], int64)"])
def moving_average(flow, width):
    """Mean of ``width`` neighbouring years."""
    smooth = np.empty(flow.size - width + 1, flow.dtype)
    for start in range(smooth.size):
        smooth[start] = flow[start : start + width].mean()
    return smooth


def shuffled_share(flow, saved, rng):
    """Share of shuffled series in which some split does as well as ``saved``."""
    return np.mean(
        [best_split(rng.permutation(flow))[1] >= saved for _ in range(SHUFFLES)]
    )


def resampled_years(flow, at, rng):
    """Years of the best split when each side is drawn again from its own years."""
    before, after = flow[:at].astype(float), flow[at:].astype(float)
    years = np.empty(RESAMPLES)
    for row in range(RESAMPLES):
        drawn = rng.choice(before, before.size), rng.choice(after, after.size)
        years[row] = FIRST_YEAR - 1 + best_split(np.concatenate(drawn))[0]
    return years


def likeliest_variances(flow):
    """Find (noise, drift) of the likeliest local level model: coarse, then fine."""
    _, noise, drift = max(
        (log_likelihood(flow, noise, drift), noise, drift)
        for noise in range(5000, 30001, 2500)
        for drift in range(250, 5001, 250)
    )
    for stride in np.repeat(0.5 ** np.arange(20), 6):
        noises = noise + 2500 * stride * np.array([-1.0, 0.0, 1.0])
        drifts = drift + 249 * stride * np.array([-1.0, 0.0, 1.0])
        _, noise, drift = max(
            (log_likelihood(flow, n, d), n, d) for n in noises for d in drifts
        )
    return noise, drift


def main():
    """Print the three answers."""
    table = np.loadtxt(
        Path(__file__).with_name("nile.csv"), delimiter=",", skiprows=1, dtype=np.int64
    )
    flow = table[:, 1]
    rng = np.random.default_rng(1898)

    at, saved = best_split(flow)
    last = FIRST_YEAR - 1 + at
    before, after = flow[:at].mean(), flow[at:].mean()
    print(f"best split after {last}: mean flow {before:.2f} before, {after:.2f} after")

    share = shuffled_share(flow, saved, rng)
    print(f"as good a split in {share:.2%} of {SHUFFLES} shuffled series")
    low, high = np.quantile(resampled_years(flow, at, rng), [0.05, 0.95])
    print(f"90 % of {RESAMPLES} resampled series split after {low:.0f} to {high:.0f}")

    flow = flow.astype(float)
    noise, drift = likeliest_variances(flow)
    settled = log_likelihood(flow, noise, drift, burn_in=10)
    print(f"a level that wanders instead: noise {noise:.0f}, drift {drift:.1f}")
    print(f"log likelihood of that from 1881 on: {settled:.2f}")

    decades = moving_average(flow, 10)
    driest = FIRST_YEAR + int(decades.argmin())
    print(f"driest ten years: {driest} to {driest + 9}, mean flow {decades.min():.1f}")


if __name__ == "__main__":
    main()
