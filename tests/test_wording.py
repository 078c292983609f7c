from __future__ import annotations

import pytest

from numbaprof.wording import format_duration, format_share, plural


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (999.7, "1.00 µs"),
        (12.4, "12.4 ns"),
        (1000, "1.00 µs"),
        (1234, "1.23 µs"),
        (999_960, "1.00 ms"),
        (98_765_432, "98.8 ms"),
        (2_500_000_000, "2.50 s"),
        (1_234_000_000_000, "1,234 s"),
    ],
)
def test_duration_has_three_digits_and_a_unit(duration_ns, text):
    """The unit follows the rounded figure, so 1000 never stands before a unit."""
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (62, 100, "62 %"),
        (1, 1000, "<1 %"),
        (0, 5, "0 %"),
        (5, 0, "0 %"),
        (999, 1000, ">99 %"),
        (5, 5, "100 %"),
    ],
)
def test_share_is_never_rounded_to_nothing_or_all(part, whole, text):
    """0 % and 100 % mean exactly that."""
    assert format_share(part, whole) == text


def test_plural_follows_the_count():
    """One thing, several things, and words with a plural of their own."""
    assert [
        plural(1, "call"),
        plural(2000, "call"),
        plural(3, "process", "processes"),
    ] == [
        "1 call",
        "2,000 calls",
        "3 processes",
    ]
