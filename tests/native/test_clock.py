"""Which clock is used, why, and what its ticks are worth."""

from __future__ import annotations

import math
import platform
import time

import pytest
from scripted_engine import new_engine

from numbaprof.errors import OptionError, UnsupportedError
from numbaprof.native import clock as clocks
from numbaprof.native import cpython_api
from numbaprof.native.clock import Clock, ClockPair
from numbaprof.native.engine import Engine

SECOND = 1_000_000_000


def test_best_clock_has_no_reason(monkeypatch):
    """A counter that the kernel trusts is taken without excuse."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(clocks, "_why_not_tsc", lambda: "")
    assert clocks.choose_clock() == Clock("tsc", "")


def test_arm_reads_its_virtual_counter(monkeypatch):
    """On aarch64 the counter register is taken."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert clocks.choose_clock() == Clock("cntvct", "")


def test_untrusted_counter_falls_back_with_the_reason(monkeypatch):
    """Where the kernel does not trust the counter, its own clock is read."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(clocks, "_why_not_tsc", lambda: "it stops in C3")
    chosen = clocks.choose_clock()
    assert (chosen.name, chosen.reason) == ("clock_gettime", "it stops in C3")
    assert chosen.address


def test_unknown_machine_falls_back(monkeypatch):
    """A machine without a known counter has the system's clock."""
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    chosen = clocks.choose_clock()
    assert chosen.name == "clock_gettime"
    assert chosen.reason == "no counter register known for s390x"


def test_requested_clock_is_given():
    """The system's clock can be asked for."""
    chosen = clocks.choose_clock("clock_gettime")
    assert (chosen.name, chosen.reason) == ("clock_gettime", "requested")


@pytest.mark.parametrize("name", ["sundial", "fake", ""])
def test_clock_that_does_not_exist_is_refused(name):
    """An unknown name is refused with those there are; the fake one is for tests."""
    with pytest.raises(OptionError, match="'tsc', 'cntvct', 'clock_gettime'"):
        clocks.choose_clock(name)


def test_counter_that_cannot_be_used_is_refused(monkeypatch):
    """Asking for an untrusted counter is an error, with the reason."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(clocks, "_why_not_tsc", lambda: "it stops in C3")
    with pytest.raises(UnsupportedError, match="'tsc' cannot be used: it stops in C3"):
        clocks.choose_clock("tsc")


@pytest.mark.parametrize(
    ("flags", "source", "reason"),
    [
        ("constant_tsc nonstop_tsc", "tsc", ""),
        ("constant_tsc nonstop_tsc", "kvm-clock", ""),
        ("constant_tsc", "tsc", "does not promise"),
        ("nonstop_tsc", "tsc", "does not promise"),
        ("constant_tsc nonstop_tsc", "hpet", "keeps time by hpet"),
        ("constant_tsc nonstop_tsc", "acpi_pm", "keeps time by acpi_pm"),
    ],
)
def test_kernel_is_asked_about_the_counter(monkeypatch, flags, source, reason):
    """Processor flags and the kernel's clock source decide."""
    texts = {"current_clocksource": source, "cpuinfo": f"flags: {flags}\n\n"}
    monkeypatch.setattr(clocks.sys, "platform", "linux")
    monkeypatch.setattr(
        clocks.Path, "read_text", lambda self, **options: texts[self.name]
    )
    found = clocks._why_not_tsc()
    assert reason in found
    assert bool(reason) == bool(found)


def test_unreadable_kernel_files_are_distrust(monkeypatch):
    """Without the files nothing is promised."""

    def fail(self, **options):
        raise OSError("no such file")

    monkeypatch.setattr(clocks.sys, "platform", "linux")
    monkeypatch.setattr(clocks.Path, "read_text", fail)
    assert "cannot tell" in clocks._why_not_tsc()


def test_fake_clock_steps_at_every_reading():
    """Each reading gives the word and moves it on by the step."""
    engine, word = new_engine(step=7)
    word.value = 100
    assert [engine.now() for _ in range(3)] == [100, 107, 114]


@pytest.mark.parametrize("name", [None, "clock_gettime"])
def test_clock_advances(name):
    """Readings of a real clock never go back, and do go on."""
    chosen = clocks.choose_clock(name)
    engine = Engine(cpython_api.discover(), chosen)
    readings = [engine.now() for _ in range(1000)]
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]


def test_system_clock_is_read_in_nanoseconds():
    """clock_gettime gives what time.monotonic_ns does."""
    engine = Engine(cpython_api.discover(), clocks.choose_clock("clock_gettime"))
    before = time.monotonic_ns()
    now = engine.now()
    assert before <= now <= time.monotonic_ns()


def test_pair_is_the_tightest(monkeypatch):
    """Of all bracketed readings the one with the smallest bracket is kept."""
    times = iter([0, 100, 200, 210, 300, 390] + [1000, 2000] * clocks.PAIR_ATTEMPTS)
    monkeypatch.setattr(clocks.time, "perf_counter_ns", lambda: next(times))
    ticks = iter(range(clocks.PAIR_ATTEMPTS))
    assert clocks.read_pair(lambda: next(ticks)) == ClockPair(1, 205, 5)


def test_rate_comes_from_both_ends():
    """Ticks over nanoseconds is the rate; the brackets bound its error."""
    info = clocks.describe(
        Clock("tsc", ""),
        ClockPair(1000, 5000, 10),
        ClockPair(1000 + 3 * SECOND, 5000 + SECOND, 30),
    )
    assert info.ticks_per_second == 3 * SECOND
    assert info.resolution_ns == pytest.approx(1 / 3)
    assert info.error_ppm == pytest.approx(40 / SECOND * 1e6)


def test_system_clock_has_a_known_rate():
    """Nanoseconds need no calibration."""
    info = clocks.describe(
        Clock("clock_gettime", "why"), ClockPair(0, 0, 1), ClockPair(99, 100, 1)
    )
    assert (info.ticks_per_second, info.error_ppm, info.reason) == (SECOND, 0, "why")


@pytest.mark.parametrize("ticks", [0, -5])
def test_clock_that_stands_still_is_refused(ticks):
    """A counter that does not advance is an error that names the way out."""
    with pytest.raises(UnsupportedError, match="does not run; ask for clock="):
        clocks.describe(
            Clock("tsc", ""), ClockPair(10, 0, 1), ClockPair(10 + ticks, 1000, 1)
        )


def test_error_of_no_time_at_all_is_infinite():
    """Two readings at one moment calibrate nothing."""
    pair = ClockPair(1, 1, 1)
    assert clocks._bound_ppm(pair, pair) == math.inf
