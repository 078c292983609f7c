"""Layouts of the running interpreter: found, verified, or given up with a reason."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from numbaprof.errors import UnsupportedError
from numbaprof.native import cpython_api
from numbaprof.native.cpython_api import CallerLayout, SafeReader

KNOWN_CHAINS = {
    (3, 10): ((24,), 32),
    (3, 11): ((56, 8), 32),
    (3, 12): ((56, 0), 0),
    (3, 13): ((72,), 0),
}
"""What the headers of released versions say; discovery does not know them."""


def test_everything_is_found_here():
    """On a supported interpreter nothing falls back."""
    layouts = cpython_api.discover()
    assert (layouts.method_reason, layouts.type_reason, layouts.caller_reason) == (
        "",
        "",
        "",
    )


def test_m_self_is_where_the_headers_say():
    """PyCFunctionObject is head, m_ml, m_self."""
    assert cpython_api.find_method_self() == cpython_api.HEADER_BYTES + 8


def test_tp_call_is_where_the_headers_say():
    """PyTypeObject has tp_call as its 17th word."""
    assert cpython_api.find_type_call() == 16 * 8


@pytest.mark.skipif(
    sys.version_info[:2] not in KNOWN_CHAINS, reason="offsets not written down"
)
def test_caller_is_where_the_headers_say():
    """The chain found is the one of this version's headers."""
    found = cpython_api.find_caller()
    assert (found.chain, found.code) == KNOWN_CHAINS[sys.version_info[:2]]


def test_caller_is_found_in_another_thread():
    """Discovery works wherever the first session starts."""
    found = []
    thread = threading.Thread(target=lambda: found.append(cpython_api.find_caller()))
    thread.start()
    thread.join()
    assert found == [cpython_api.find_caller()]


def test_caller_is_found_while_tracing():
    """A trace function, such as a debugger's or coverage's, does not confuse it."""
    old = sys.gettrace()
    sys.settrace(lambda frame, event, argument: None)
    try:
        found = cpython_api.discover()
    finally:
        sys.settrace(old)
    assert found.caller == cpython_api.find_caller()


def test_reader_reads_words():
    """A readable word comes back as it is."""
    word = ctypes.c_uint64(0xFEEDFACECAFEBEEF)
    with SafeReader() as reader:
        assert reader.word(ctypes.addressof(word)) == 0xFEEDFACECAFEBEEF


@pytest.mark.parametrize("address", [0, -8, 8, 12345, 1 << 60])
def test_reader_survives_any_address(address):
    """What cannot be read is None, and the process lives."""
    with SafeReader() as reader:
        assert reader.word(address) is None


def test_reader_refuses_windows(monkeypatch):
    """Without POSIX there is no safe reading."""
    monkeypatch.setattr(cpython_api.sys, "platform", "win32")
    with pytest.raises(UnsupportedError, match="POSIX"):
        SafeReader()


@pytest.mark.parametrize(
    "wrong",
    [
        CallerLayout((0,), 0),
        CallerLayout((8, 8), 0),
        CallerLayout((16, 0, 0), 8),
    ],
)
def test_wrong_chain_is_refused(wrong):
    """Verification follows a wrong chain safely and says where it failed."""
    with SafeReader() as reader, pytest.raises(UnsupportedError, match="a function"):
        cpython_api._verify_chain(wrong, reader)


def test_free_threaded_build_has_no_layouts(monkeypatch):
    """Without a GIL everything is refused for one reason."""
    monkeypatch.setattr(cpython_api, "is_free_threaded", lambda: True)
    layouts = cpython_api.discover()
    assert (layouts.method_self, layouts.type_call, layouts.caller) == (None,) * 3
    assert "free-threaded" in layouts.method_reason


def test_one_failure_does_not_spoil_the_rest(monkeypatch):
    """Each layout is found or given up by itself."""

    def fail():
        raise UnsupportedError("not today")

    monkeypatch.setattr(cpython_api, "find_type_call", fail)
    layouts = cpython_api.discover()
    assert (layouts.type_call, layouts.type_reason) == (None, "not today")
    assert layouts.method_self is not None


def test_object_at_has_its_own_reference():
    """An object read from its address is held."""
    thing = object()
    before = sys.getrefcount(thing)
    again = cpython_api.object_at(id(thing))
    assert again is thing
    assert sys.getrefcount(thing) == before + 1
