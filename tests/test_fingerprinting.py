"""Fingerprints in a profile: who has one, and why others have none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numba import njit, vectorize

import numbaprof
from numbaprof import fingerprinting, session
from numbaprof.errors import OptionError, UnsupportedError
from numbaprof.fingerprinting import Fingerprinting
from numbaprof.native import numba_api, objcode

pytestmark = pytest.mark.linux


@pytest.fixture
def kernel():
    """Return a dispatcher with an overload that was called before."""

    @njit
    def halve(x):
        return x / 2

    halve(1.0)
    return halve


def row(profile, name):
    """Return the only row of a function."""
    (found,) = (
        overload
        for overload in profile.result.overloads
        if overload.function.qualname.endswith(name)
        and overload.function.file == __file__
    )
    return found


def test_called_overload_has_a_fingerprint(kernel):
    """Compiled before the profile, called in it."""
    with numbaprof.profile(fingerprints=True) as p:
        kernel(2.0)
    found = row(p, "halve")
    assert found.fingerprint.code.startswith("sha256:")
    assert found.fingerprint.instructions > 0
    assert found.fingerprint_reason == ""


def test_compiled_overload_has_a_fingerprint():
    """Compiled in the profile, called by compiled code only."""

    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x) * 2

    with numbaprof.profile(fingerprints=True) as p:
        outer(1)
    assert row(p, "inner").fingerprint is not None


def test_two_profiles_of_one_overload_agree(kernel):
    """The figures are of the code and not of the run."""
    with numbaprof.profile(fingerprints=True) as first:
        kernel(2.0)
    with numbaprof.profile(fingerprints=True) as second:
        kernel(3.0)
    assert row(first, "halve").fingerprint == row(second, "halve").fingerprint


def test_unused_overload_has_a_reason(kernel):
    """Neither called nor compiled: not worth the time."""
    with numbaprof.profile(fingerprints=True) as p:
        pass
    found = row(p, "halve")
    assert found.fingerprint is None
    assert found.fingerprint_reason == fingerprinting.NOT_USED


def test_option_that_is_off_is_the_reason(kernel):
    """Nothing is hashed unless it is asked for."""
    with numbaprof.profile() as p:
        kernel(2.0)
    found = row(p, "halve")
    assert found.fingerprint is None
    assert found.fingerprint_reason == session.NO_FINGERPRINTS


def test_ufunc_loop_has_a_reason():
    """Numba keeps no name of the loop's code."""

    @vectorize(["float64(float64)"])
    def plus(x):
        return x + 1

    with numbaprof.profile(fingerprints=True) as p:
        plus(np.ones(3))
    reasons = {
        overload.fingerprint_reason
        for overload in p.result.overloads
        if overload.kind == "ufunc loop" and overload.calls
    }
    assert reasons == {fingerprinting.NO_SYMBOL}


def test_columns_say_the_same(kernel):
    """p.stats has the figures; what is not there is missing and not zero."""

    @njit
    def idle(x):
        return x

    idle(1)
    with numbaprof.profile(fingerprints=True) as p:
        kernel(2.0)
    stats = p.stats.reset_index(level="signature")
    name = next(name for name in stats.index if name.endswith("halve"))
    expected = row(p, "halve").fingerprint
    assert stats.loc[name, "fingerprint"] == expected.code
    assert stats.loc[name, "instructions"] == expected.instructions
    assert stats.loc[name, "packed_fp"] == 0
    assert stats.loc[name, "vector_bits"] == 0
    other = next(name for name in stats.index if name.endswith("idle"))
    assert stats.loc[other, "fingerprint"] == ""
    assert pd.isna(stats.loc[other, "instructions"])
    assert stats.loc[other, "fingerprint_reason"] == fingerprinting.NOT_USED


def test_target_is_part_of_the_environment(kernel):
    """What machine code depends on besides its source."""
    with numbaprof.profile() as p:
        kernel(2.0)
    (process,) = p.result.processes
    assert process.environment.target == numba_api.target_text()
    assert "numba=" in process.environment.target
    assert "features=" in process.environment.target


def test_value_that_is_no_flag_is_refused():
    """As with the other options."""
    with pytest.raises(OptionError, match="fingerprints='yes'"):
        numbaprof.profile(fingerprints="yes")


@pytest.fixture
def no_list(monkeypatch):
    """Hide LLVM's list, as a stripped library does."""

    def hidden():
        raise UnsupportedError("no symbol __jit_debug_descriptor")

    monkeypatch.setattr(objcode, "_jit_list", hidden)


def test_without_llvms_list_new_code_is_watched(no_list, kernel):
    """What is compiled in the profile has a fingerprint, the rest a reason."""

    @njit
    def late(x):
        return x * 3

    with numbaprof.profile(fingerprints=True) as p:
        kernel(2.0)
        late(1)
    assert row(p, "late").fingerprint is not None
    assert row(p, "halve").fingerprint is None
    assert "no symbol __jit_debug_descriptor" in row(p, "halve").fingerprint_reason


def test_code_that_was_never_looked_at_has_a_reason():
    """Nothing is claimed before stop."""
    assert Fingerprinting().of(["symbol"]) == (
        None,
        "the machine code was not looked at",
    )


def test_compilations_to_different_code_have_a_reason(kernel):
    """One row, two codes: neither is the fingerprint."""
    kernel(1)
    symbols = [numba_api.kernel_symbol(cres) for cres in kernel.overloads.values()]
    prints = Fingerprinting()
    prints.start()
    prints.stop()
    found, reason = prints.of(symbols)
    assert found is None
    assert reason == "it was compiled 2 times, to different code"
    assert prints.of(symbols[:1] * 2)[0] is not None


def test_abandoned_start_leaves_nothing(no_list):
    """The watch is taken away again; the fixture around tests would notice."""
    prints = Fingerprinting()
    prints.start()
    assert objcode.object_watch.active() is not None
    prints.abandon()
    assert objcode.object_watch.active() is None
