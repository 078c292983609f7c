"""How numbers are written for people: durations, counts, shares, plurals."""

from __future__ import annotations

__all__ = ["format_count", "format_duration", "format_share", "plural"]

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def format_duration(duration_ns: float) -> str:
    """Write a duration with three significant digits and its unit.

    Examples
    --------
    >>> [format_duration(ns) for ns in (0, 25, 1234, 98_765_432, 2_500_000_000)]
    ['0 ns', '25 ns', '1.23 µs', '98.8 ms', '2.50 s']
    >>> format_duration(999_960)
    '1.00 ms'
    """
    if duration_ns == int(duration_ns) and abs(duration_ns) < 1000:
        return f"{int(duration_ns)} ns"
    # The unit is chosen by the rounded figure: 999,960 ns is written 1.00 ms.
    rounded = abs(float(f"{duration_ns:.3g}"))
    for size, unit in _UNITS:
        if rounded >= size:
            return f"{_three_digits(duration_ns / size)} {unit}"
    return f"{duration_ns:.2f} ns"


def _three_digits(value: float) -> str:
    magnitude = abs(float(f"{value:.3g}"))
    if magnitude >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"


def format_count(count: int) -> str:
    """Write a count exactly: ``1,234,567``."""
    return f"{count:,}"


def format_share(part: float, whole: float) -> str:
    """Write a part of a whole in per cent; ``<1 %`` is not written as 0.

    Examples
    --------
    >>> format_share(62, 100), format_share(1, 1000), format_share(0, 5)
    ('62 %', '<1 %', '0 %')
    """
    if whole <= 0 or part <= 0:
        return "0 %"
    share = 100 * part / whole
    if share < 0.5:
        return "<1 %"
    return ">99 %" if 99.5 <= share < 100 else f"{share:.0f} %"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Join a count and its noun: ``1 call``, ``2 calls``, ``3 processes``."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"
