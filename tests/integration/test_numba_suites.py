"""Numba's own tests end alike with and without numbaprof.

Some suites are compared here; ``compare_numba_suites.py`` does it for all that concern
us, see ``docs/numba_suites.md``.
"""

from __future__ import annotations

import pytest
from compare_numba_suites import SUBTESTS, UNKNOWN, compare_suite, read_outcomes

VERBOSE = """\
test_plain (numba.tests.test_a.TestA.test_plain) ... ok
test_documented (numba.tests.test_a.TestA.test_documented)
What it is about, in words. ... ok
test_loud (numba.tests.test_a.TestA.test_loud) ... a warning from a subprocess
that has two lines
ok
test_bad (numba.tests.test_a.TestA.test_bad) ... FAIL
test_parts (numba.tests.test_a.TestA.test_parts) ...\x20
  test_parts (numba.tests.test_a.TestA.test_parts) (i=3) ... ERROR
test_left_out (numba.tests.test_a.TestA.test_left_out) ... skipped 'needs a (GPU)'
test_known (numba.tests.test_a.TestA.test_known) ... expected failure
test_crashed (numba.tests.test_a.TestA.test_crashed) ...\x20
"""


def test_outcomes_are_read_test_by_test():
    """Descriptions and noise in between do not matter, the reason for a skip does."""
    outcomes = read_outcomes(VERBOSE)
    parts = "test_parts (numba.tests.test_a.TestA.test_parts)"
    assert outcomes.pop(parts) == SUBTESTS
    assert outcomes.pop(f"{parts} (i=3)") == "ERROR"
    assert {test.partition(" ")[0]: end for test, end in outcomes.items()} == {
        "test_plain": "ok",
        "test_documented": "ok",
        "test_loud": "ok",
        "test_bad": "FAIL",
        "test_left_out": "skipped 'needs a (GPU)'",
        "test_known": "expected failure",
        "test_crashed": UNKNOWN,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "suite",
    [
        "test_recursion",
        "test_cfunc",
        "npyufunc.test_errors",
        "npyufunc.test_update_inplace",
    ],
)
def test_suite_ends_alike(suite, tmp_path):
    """Every test of Numba's suite ends the same way, and the profile is sound."""
    comparison = compare_suite(suite, tmp_path)
    assert comparison.differences == ()
    assert comparison.profiled.outcomes
    assert comparison.profiled.calls > 0
