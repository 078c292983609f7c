"""Who has SIGPROF, and the timers that send it."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import threading
import time

import pytest

from numbaprof.errors import AttachError, UnsupportedError
from numbaprof.native import records, timers
from numbaprof.native.signals import SignalCode
from numbaprof.native.timers import CpuTimer, Disposition, PerfClock, ProfTimer

pytestmark = pytest.mark.linux

MILLISECOND = 1_000_000
BUFFER = 1 << 22
SA_RESTORER = 0x04000000
"""Added by glibc to whatever is set."""


@pytest.fixture
def handler():
    """The process's handler, closed again afterwards."""
    handler = records.shared_handler()
    yield handler
    handler.close()
    handler.release()


def action():
    """Return (handler, flags) of SIGPROF as C sees it."""
    current = timers._current_action()
    return current.handler or 0, current.flags & ~SA_RESTORER


def burn(until):
    """Use CPU time until ``until()``."""
    while not until():
        sum(range(1000))


def sample(handler, source, *, samples=5):
    """Run one source until it has taken some samples; return what is left to say."""
    disposition = Disposition(handler.address)
    disposition.install()
    handler.prepare(source.code, BUFFER)
    source.arm(MILLISECOND)
    burn(lambda: handler.taken >= samples)
    source.disarm()
    return disposition.restore()


def make_source(name, handler):
    """Return a source, skip where the kernel does not allow it."""
    try:
        if name == "perf":
            return PerfClock(handler)
        return ProfTimer() if name == "itimer" else CpuTimer(handler.state_address)
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["cpu", "itimer", "perf"])
def test_source_sends_what_the_handler_accepts(handler, name):
    """All signals are known as ours, and after the end there are none."""
    before = action()
    assert sample(handler, make_source(name, handler)) == ""
    assert handler.bad == 0
    assert action() == before
    until = time.process_time() + 0.02
    burn(lambda: time.process_time() > until)  # A signal would end the process now.


@pytest.mark.parametrize("name", ["cpu", "itimer", "perf"])
def test_source_can_be_used_again(handler, name):
    """Nothing of the first time is in the way."""
    for _ in range(3):
        sample(handler, make_source(name, handler), samples=1)


def test_handler_of_python_is_named():
    """A profiler written in Python is called by its function."""

    def on_signal(number, frame):
        pass

    signal.signal(signal.SIGPROF, on_signal)
    try:
        holder = timers.holder_of_sigprof()
        with pytest.raises(AttachError, match=r"SIGPROF is taken: .*on_signal"):
            Disposition(0).install()
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    assert holder.startswith(f"its handler is the Python function {__name__}.")


def test_handler_of_a_library_is_named():
    """A profiler written in C is called by its function and library."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(signal.SIGPROF, ctypes.cast(libc.abs, ctypes.c_void_p))
    try:
        holder = timers.holder_of_sigprof()
    finally:
        libc.signal(signal.SIGPROF, None)
    assert holder == "its handler is abs in libc.so.6"


def test_running_timer_is_named():
    """A timer without a handler is somebody's, too."""
    signal.setitimer(signal.ITIMER_PROF, 1000, 2.5)
    try:
        holder = timers.holder_of_sigprof()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    assert holder == "ITIMER_PROF is running, every 2.5 s"


def test_ignored_signal_is_free(handler):
    """Who ignores it does not use it; it is ignored again afterwards."""
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    try:
        assert sample(handler, ProfTimer(), samples=1) == ""
        assert action()[0] == timers.SIG_IGN
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


def test_handler_set_meanwhile_is_left_alone(handler):
    """Its owner is named."""
    disposition = Disposition(handler.address)
    disposition.install()

    def newcomer(number, frame):
        pass

    signal.signal(signal.SIGPROF, newcomer)
    try:
        said = disposition.restore()
        assert signal.getsignal(signal.SIGPROF) is newcomer
        assert action()[0] != handler.address
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    assert "SIGPROF was given to the Python function" in said
    assert "newcomer, which was left there" in said


def test_pending_signal_is_thrown_away(handler):
    """One that was blocked meanwhile does not end the process afterwards."""
    disposition = Disposition(handler.address)
    disposition.install()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    try:
        os.kill(os.getpid(), signal.SIGPROF)
        disposition.restore()
        assert signal.SIGPROF not in signal.sigpending()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])


def test_our_handler_may_be_inherited(handler):
    """In a forked child it is not somebody else's; restoring gives the default."""
    first, second = Disposition(handler.address), Disposition(handler.address)
    first.install()
    second.install()
    assert second.restore() == ""
    assert action()[0] == timers.SIG_DFL


@pytest.mark.parametrize("release", ["5.15.0-91-generic", "6.3.13", "4.4.0", "strange"])
def test_cpu_timer_needs_a_kernel_that_directs_it(monkeypatch, release):
    """Older ones signal the main thread, whoever ran."""
    monkeypatch.setattr(platform, "release", lambda: release)
    with pytest.raises(UnsupportedError, match="to the main thread"):
        CpuTimer(0)


@pytest.mark.parametrize("release", ["6.4.0", "6.18.44-fc", "7.0-rc1"])
def test_cpu_timer_is_taken_where_it_works(monkeypatch, release):
    """From 6.4 on."""
    monkeypatch.setattr(platform, "release", lambda: release)
    CpuTimer(0).disarm()


def test_failed_exec_goes_on_sampling(handler):
    """The timer steps aside for an exec and comes back when that fails."""
    original = os.execv, os.execve
    source = ProfTimer()
    disposition = Disposition(handler.address)
    disposition.install()
    handler.prepare(source.code, BUFFER)
    source.arm(MILLISECOND)
    with pytest.raises(FileNotFoundError):
        os.execl("/nonexistent/program", "program")
    assert signal.getitimer(signal.ITIMER_PROF)[1] == pytest.approx(0.001, rel=0.5)
    source.disarm()
    disposition.restore()
    assert (os.execv, os.execve) == original


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EACCES, "perf_event_paranoid"), (errno.EPERM, "seccomp"), (22, "Invalid")],
)
def test_refusal_of_perf_has_its_reason(monkeypatch, handler, number, advice):
    """What the kernel answers is explained."""

    def refuse(*arguments):
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(timers, "perf_event_open", refuse)
    with pytest.raises(UnsupportedError, match=advice):
        PerfClock(handler)


def test_perf_samples_a_thread_found_by_a_scan(handler):
    """Those that start later are found when looked for."""
    source = make_source("perf", handler)
    disposition = Disposition(handler.address)
    disposition.install()
    handler.prepare(source.code, BUFFER)
    source.arm(MILLISECOND)
    done = threading.Event()
    thread = threading.Thread(target=burn, args=(done.is_set,))
    thread.start()
    source.scan()

    def tids():
        return {record.tid for record in records.read_records(handler.copy())}

    while thread.native_id not in tids():
        time.sleep(0.01)
    done.set()
    thread.join()
    source.disarm()
    assert disposition.restore() == ""
    assert source.code is SignalCode.POLL_IN
