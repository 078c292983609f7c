"""What every test has around it: a cache of its own, and a process left as it was."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from typing import TYPE_CHECKING

import pandas as pd
import process_state
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# What it imports changes sys.meta_path; here, and not within the first test to use it.
assert pd.__version__

# Numba reads the variable when it is first imported, so it is set before any test
# module is; each worker of pytest-xdist sets its own.
_CACHE_DIR = tempfile.TemporaryDirectory(prefix="numbaprof-tests-")
os.environ["NUMBA_CACHE_DIR"] = _CACHE_DIR.name

# A shell starts what runs in the background with Ctrl-C ignored, and so would every
# program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to be measured: what is compared here is what measuring leaves behind."""
    options = ("numbaprof", "numbaprof_fail_on_compile", "numbaprof_save")
    if any(config.getoption(option, None) for option in options):
        raise pytest.UsageError(
            "numbaprof's own tests compare the process before and after each test, so "
            "they cannot run under --numbaprof; leave it out"
        )


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Keep the garbage collector from calling Python functions, Hypothesis' one too.

    Its calls come at times of its own, and a tracer sees them.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def pristine_process() -> Iterator[None]:
    """Fail a test that leaves a patch, handler, timer, listener or tool behind."""
    before = process_state.read()
    yield
    left = process_state.differences(before, process_state.read())
    assert not left, "the test left the process changed:\n" + "\n".join(left)
