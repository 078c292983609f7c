"""A signal handler that Python may take its time with, but not for ever.

Each test is a process of its own: most of them end by the signal.
"""

from __future__ import annotations

import signal

import pytest
from running import Runner

PREPARE = """\
import collections, itertools, os, signal, subprocess, sys, time
from numbaprof.native.deadline import Deadline
count = 0
def handler(number, frame):
    global count
    count += 1
def send(pid=os.getpid()):
    os.kill(pid, signal.SIGTERM)
def wait_for(wanted):
    while count < wanted:
        time.sleep(0.001)
deadline = Deadline(signal.SIGTERM, attempts={attempts})
signal.signal(signal.SIGTERM, handler)
deadline.install()
"""

pytestmark = pytest.mark.linux


@pytest.fixture
def run(tmp_path):
    """Return what runs source text after a deadline was installed."""
    runner = Runner(tmp_path)

    def run(source, *, attempts=1_000_000):
        return runner.python("-c", PREPARE.format(attempts=attempts) + source)

    return run


def test_python_handler_is_called(run):
    """The handler that Python knows does its work."""
    done = run(
        "send(); wait_for(1); deadline.lift()\n"
        "print(signal.getsignal(signal.SIGTERM) is handler)"
    )
    assert (done.stdout, done.exit_code) == ("True\n", 0)


def test_signal_is_repeated_until_it_is_handled(run):
    """A main thread that missed the first one is woken by the next."""
    assert run("send(); wait_for(4); deadline.lift()").exit_code == 0


def test_blocking_call_is_interrupted(run):
    """Python's handler runs during a system call, as PEP 475 has it."""
    done = run(
        "reader, writer = os.pipe()\n"
        "def handler(number, frame): raise InterruptedError\n"
        "signal.signal(signal.SIGTERM, handler); deadline.install()\n"
        "subprocess.Popen(['sh', '-c', f'sleep 0.2; kill {os.getpid()}'])\n"
        "try:\n    os.read(reader, 1)\nexcept InterruptedError:\n    print('woken')\n"
    )
    assert done.stdout == "woken\n"


def test_lifted_deadline_ends_nothing(run):
    """Python is at work and takes the time it needs; a later signal starts anew."""
    done = run(
        "def handler(number, frame):\n"
        "    global count\n"
        "    deadline.lift(); count += 1\n"
        "signal.signal(signal.SIGTERM, handler); deadline.install()\n"
        "send(); wait_for(1); time.sleep(0.3); print(count)\n"
        "send(); wait_for(2); time.sleep(0.3); print(count)\n",
        attempts=2,
    )
    assert (done.stdout, done.exit_code) == ("1\n2\n", 0)


def test_process_that_never_returns_to_python_ends_by_the_signal(run):
    """An endless loop in C holds the interpreter and is ended all the same."""
    done = run(
        "subprocess.Popen(['sh', '-c', f'sleep 0.2; kill {os.getpid()}'])\n"
        "collections.deque(itertools.repeat(None), maxlen=0)\n",
        attempts=3,
    )
    assert done.exit_code == -signal.SIGTERM


def test_handler_that_gets_nowhere_ends_by_the_signal(run):
    """The default action comes after the last attempt."""
    assert run("send(); wait_for(1000)", attempts=5).exit_code == -signal.SIGTERM


def test_handler_set_later_replaces_the_deadline(run):
    """A program that handles the signal is on its own, as before."""
    done = run(
        "seen = []\n"
        "signal.signal(signal.SIGTERM, lambda *a: seen.append(a[0]))\n"
        "send(); time.sleep(0.3); print(seen, count)\n",
        attempts=2,
    )
    assert done.stdout == "[15] 0\n"


def test_default_set_later_is_the_default(run):
    """A program that wants to die does."""
    done = run("signal.signal(signal.SIGTERM, signal.SIG_DFL); send()")
    assert done.exit_code == -signal.SIGTERM


def test_forked_child_has_a_timer_of_its_own(run):
    """Timers are not inherited; the child makes one."""
    done = run(
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    deadline.renew_after_fork()\n"
        "    send(os.getpid()); wait_for(3); os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), count)\n"
    )
    assert done.stdout == "7 0\n"
