"""Stands in for Numba where only running programs is tested: loads at once."""

import os

DISABLE_JIT = os.environ.get("NUMBA_DISABLE_JIT", "0")
"""Read at import, as Numba's configuration is."""

calls = 0


def kernel():
    """Count a call."""
    global calls
    calls += 1
