"""The handler's memory, and platforms it is not for."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading

import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import records
from numbaprof.native.signals import SignalCode


class FakeLibrary:
    """A C library without glibc's functions."""


@pytest.mark.parametrize(
    ("target", "name", "value", "reason"),
    [
        (sys, "platform", "darwin", "its signals are not known to numbaprof on darwin"),
        (sys, "platform", "win32", "its signals are not known to numbaprof on win32"),
        (platform, "machine", lambda: "riscv64", "the registers of riscv64"),
        (ctypes, "CDLL", lambda name: FakeLibrary(), "another C library than glibc"),
        (records, "is_free_threaded", lambda: True, "free-threaded build"),
    ],
)
@pytest.mark.linux
def test_unknown_platform_is_refused_with_the_reason(
    monkeypatch, target, name, value, reason
):
    """Nothing is tried where the layout of a signal frame is not known."""
    monkeypatch.setattr(target, name, value)
    with pytest.raises(UnsupportedError, match=reason):
        records.check_platform()


@pytest.mark.linux
def test_this_platform_is_supported():
    """Where the tests of the handler run."""
    records.check_platform()


@pytest.mark.linux
def test_handler_is_compiled_once():
    """Every sampler of the process has the same."""
    assert records.shared_handler() is records.shared_handler()


@pytest.mark.linux
def test_stack_bounds_are_those_of_the_calling_thread():
    """The address of a local variable of C lies within them."""
    found = []
    thread = threading.Thread(target=lambda: found.append(records.stack_bounds()))
    thread.start()
    thread.join()
    (other,) = found
    low, high = records.stack_bounds()
    assert low < high
    assert other[1] <= low or high <= other[0]


@pytest.mark.linux
def test_kernel_copies_within_the_process():
    """Where the tests run nobody filters it."""
    assert records.can_read_safely()


@pytest.mark.linux
def test_buffer_that_cannot_be_is_refused():
    """The system says why."""
    handler = records.shared_handler()
    with pytest.raises(UnsupportedError, match="make the buffer smaller"):
        handler.prepare(SignalCode.KERNEL, 1 << 60)
