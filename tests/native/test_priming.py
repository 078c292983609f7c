from __future__ import annotations

from numba import njit

from numbaprof.native import numba_api, priming


def test_priming_leaves_no_function_behind(monkeypatch):
    """Numba has loaded its implementations; the function that made it is gone."""
    monkeypatch.setattr(priming, "_primed", False)
    priming.prime()
    names = {
        dispatcher.py_func.__module__ for dispatcher in numba_api.live_dispatchers()
    }
    assert priming.__name__ not in names


def test_priming_happens_once(monkeypatch):
    """The second time there is nothing to start."""
    monkeypatch.setattr(priming, "_primed", True)
    monkeypatch.setattr(priming.numba, "njit", None)
    priming.prime()
    assert njit is not None


def test_nothing_is_compiled_while_jit_is_disabled(monkeypatch):
    """The program would not have started the compiler either."""
    monkeypatch.setattr(priming, "_primed", False)
    monkeypatch.setattr(numba_api, "jit_is_disabled", lambda: True)
    priming.prime()
    assert priming._primed is False
