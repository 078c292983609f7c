"""Intervals of what was sampled: how far a share may be from the figure shown."""

from __future__ import annotations

import math

__all__ = ["Z_95", "samples_for", "wilson"]

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


def wilson(part: int, whole: int, z: float = Z_95) -> tuple[float, float]:
    """Return the Wilson score interval of a share.

    Parameters
    ----------
    part, whole : int
        Samples that count, and all of them.
    z : float, optional
        Quantile of the normal distribution; 95 % unless given.

    Returns
    -------
    low, high : float
        Within 0 and 1; ``(0, 1)`` without samples.

    References
    ----------
    E. B. Wilson, "Probable inference, the law of succession, and statistical
    inference", J. Am. Stat. Assoc. 22 (1927). It stays within 0 and 1 and holds for
    shares near them, where the usual ``p ± z s`` does not.

    Examples
    --------
    >>> [round(bound, 3) for bound in wilson(50, 100)]
    [0.404, 0.596]
    """
    if whole <= 0:
        return 0.0, 1.0
    share = part / whole
    scale = 1 + z * z / whole
    centre = (share + z * z / (2 * whole)) / scale
    spread = math.sqrt(share * (1 - share) / whole + (z / (2 * whole)) ** 2)
    half = z * spread / scale
    # At the ends the bound is the share itself; rounding must not say otherwise.
    low = 0.0 if part <= 0 else max(0.0, centre - half)
    high = 1.0 if part >= whole else min(1.0, centre + half)
    return low, high


def samples_for(half_width: float, z: float = Z_95) -> int:
    """Return how many samples make any share certain to ``± half_width``.

    Examples
    --------
    >>> samples_for(0.05)
    385
    """
    return math.ceil((z / (2 * half_width)) ** 2)
