"""Doing something before SIGTERM ends the process."""

from __future__ import annotations

import signal
import threading

import pytest
from running import Runner

from numbaprof import sigterm
from numbaprof.sigterm import SigtermHandler

HANDLE = """\
import os, signal, sys
from numbaprof.sigterm import SigtermHandler
def send(): os.kill(os.getpid(), signal.SIGTERM)
"""

pytestmark = pytest.mark.linux


@pytest.fixture
def runner(tmp_path):
    """Run programs in processes of their own."""
    return Runner(tmp_path)


def current_handler():
    """Return what Python knows to be the handler."""
    return signal.getsignal(signal.SIGTERM)


def test_process_ends_by_the_signal_after_the_callback(runner):
    """The exit status is that of a process without a handler."""
    done = runner.python(
        "-c",
        HANDLE
        + "handler = SigtermHandler(lambda: print('called', flush=True) or True)\n"
        "handler.install(); send(); print('not reached')",
    )
    assert (done.stdout, done.exit_code) == ("called\n", -signal.SIGTERM)


def test_process_goes_on_when_the_callback_says_so(runner):
    """Whoever is in the middle of something ends the process afterwards."""
    done = runner.python(
        "-c",
        HANDLE + "handler = SigtermHandler(lambda: False)\n"
        "handler.install(); send(); print('went on', flush=True); handler.end()",
    )
    assert (done.stdout, done.exit_code) == ("went on\n", -signal.SIGTERM)


def test_default_is_back_after_restoring():
    """Nothing is left behind."""
    handler = SigtermHandler(lambda: True)
    handler.install()
    assert current_handler() is not signal.SIG_DFL
    handler.restore()
    assert current_handler() is signal.SIG_DFL


def test_handler_of_the_program_is_left_alone():
    """A program that handles SIGTERM handles it."""

    def mine(number, frame):
        pass

    signal.signal(signal.SIGTERM, mine)
    try:
        handler = SigtermHandler(lambda: True)
        handler.install()
        handler.restore()
        assert current_handler() is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_handler_set_later_is_not_undone():
    """Restoring takes back only what is still ours."""
    handler = SigtermHandler(lambda: True)
    handler.install()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        handler.restore()
        assert current_handler() is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_only_the_main_thread_installs():
    """Python allows no other, and a session may be started by any."""
    handler = SigtermHandler(lambda: True)
    thread = threading.Thread(target=handler.install)
    thread.start()
    thread.join()
    assert current_handler() is signal.SIG_DFL


def test_signal_is_left_alone_where_there_is_no_deadline(monkeypatch):
    """Better lose a profile than make a process that does not end."""
    monkeypatch.setattr("sys.platform", "darwin")
    sigterm.SigtermHandler(lambda: True).install()
    assert current_handler() is signal.SIG_DFL
