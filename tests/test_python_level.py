"""Python functions, builtins and overloads in one profile, for each backend."""

from __future__ import annotations

import os
import sys

import numba
import numpy as np
import pandas  # noqa: F401 - importing it changes the process once
import pytest

import numbaprof
from numbaprof.cprofile_bridge import BACKEND_VARIABLE
from numbaprof.errors import ActiveSessionError, NumbaprofWarning, OptionError
from numbaprof.native import shared
from numbaprof.session import active_session

pytestmark = pytest.mark.usefixtures("no_gc")


@numba.njit
def total(array):
    """Be compiled."""
    result = 0.0
    for x in array:
        result += x
    return result


def measure(array):
    """Call an overload and a builtin."""
    return total(array) + len(array)


def program():
    """Call from Python and from C."""
    for n in (3, 3, 4):
        measure(np.empty(n))
    return list(map(total, [np.empty(2), np.empty(2)]))


@pytest.fixture(params=["python", "native"])
def backend(request, monkeypatch):
    """Force a backend."""
    monkeypatch.setenv(BACKEND_VARIABLE, request.param)
    return request.param


def rows_of(result):
    """Return (calls, primitive calls) of the rows of this file, by label."""
    return {
        f"{row.name}{row.signature}": (row.calls, row.primitive_calls)
        for row in result.python_rows
        if row.file == __file__
    }


def test_python_and_compiled_calls_are_in_one_tree(backend):
    """Rows per signature, overloads below them, and books that agree."""
    profiled = numbaprof.profile(program, python=True)
    profiled()
    result = profiled.result
    result.check()
    assert rows_of(result) == {
        "program()": (1, 1),
        "measure(array: float64[3])": (2, 2),
        "measure(array: float64[4])": (1, 1),
    }
    (overload,) = [
        o
        for o in result.overloads
        if o.function.qualname == "total" and o.function.module == __name__
    ]
    assert overload.calls == 5
    callers = {
        result.python_rows[result.contexts[node.parent].python_row].name
        for node in result.contexts
        if node.kind == "overload"
    }
    assert callers == {"measure", "program"}
    (length,) = [row for row in result.python_rows if row.name.endswith(".len>")]
    assert (length.calls, length.kind) == (3, "builtin")
    assert result.processes[0].environment.backends[-1].instrument == "python"
    assert result.losses.hook_errors == ()


def test_compiling_is_one_context_without_its_python_calls(backend):
    """Numba's own functions are in no row: their time is compile time."""

    @numba.njit
    def fresh(x):
        return x + 1

    profiled = numbaprof.profile(fresh, python=True)
    assert profiled(1) == 2
    files = {row.file for row in profiled.result.python_rows}
    assert [file for file in files if "numba" in file] == []
    assert "compile" in {node.kind for node in profiled.result.contexts}


def test_own_times_add_up_to_the_threads(backend):
    """Nothing is counted twice, whatever the kind."""
    profiled = numbaprof.profile(program, python=True)
    profiled()
    threads = [node for node in profiled.result.contexts if node.kind == "thread"]
    seconds = sum(node.inclusive_ns for node in threads) / 1e9
    assert profiled.functions.tottime.sum() == pytest.approx(seconds)
    assert profiled.result.processes[0].tracing_ns > 0


@pytest.mark.parametrize(
    ("signatures", "labels"),
    [
        ("ndim", {"program()", "measure(array: float64[:])"}),
        ("type", {"program()", "measure(array: ndarray)"}),
        (False, {"program", "measure"}),
    ],
)
def test_signatures_are_as_fine_as_asked(backend, signatures, labels):
    """The option sets the finest level."""
    with numbaprof.profile(python=True, signatures=signatures) as profiled:
        program()
    assert rows_of(profiled.result).keys() == labels


def test_runs_of_one_profile_add_up(backend):
    """Rows of several runs are the same rows."""
    profiled = numbaprof.profile(program, python=True)
    profiled()
    profiled()
    assert rows_of(profiled.result)["measure(array: float64[3])"] == (4, 4)
    profiled.result.check()


def test_overloads_are_unchanged_by_the_option(backend):
    """The tables of overloads and their callers say the same."""
    total(np.empty(1))
    frames = []
    for python in (False, True):
        profiled = numbaprof.profile(program, python=python)
        profiled()
        frames.append((profiled.stats.ncalls, profiled.callers))
    (plain, plain_callers), (traced, callers) = frames
    assert plain.to_dict() == traced.to_dict()
    names = ["caller", "caller_kind", "caller_line", "ncalls"]
    assert (
        plain_callers[names].sort_values("caller").values.tolist()
        == callers[names].sort_values("caller").values.tolist()
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"python": 1}, "python=1 must be"),
        ({"python": True, "signatures": "all"}, "signatures='all'"),
        ({"signatures": "type"}, "add python=True"),
    ],
)
def test_option_that_cannot_be_is_refused(options, problem):
    """Before anything is measured."""
    with pytest.raises(OptionError, match=problem):
        numbaprof.profile(**options)


def test_session_without_an_engine_says_why_there_are_no_rows(monkeypatch):
    """The program runs on, and the profile records the reason."""
    absent = shared.SharedEngine(None, "no engine today")
    monkeypatch.setattr(shared, "shared_engine", lambda clock: absent)
    profiled = numbaprof.profile(program, python=True)
    with (
        pytest.warns(NumbaprofWarning, match="no-python-level"),
        pytest.warns(NumbaprofWarning, match="no-engine"),
    ):
        profiled()
    backends = profiled.result.processes[0].environment.backends
    (info,) = [info for info in backends if info.instrument == "python"]
    assert (info.backend, info.reason) == ("none", "no engine today")
    assert profiled.result.python_rows == ()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="several profilers may listen")
def test_session_does_not_start_beside_another_profiler(backend):
    """The error names it, everything is put back, and later a session can start."""
    sys.setprofile(print_nothing)
    try:
        with pytest.raises(ActiveSessionError, match="another profiler"):
            numbaprof.profile(program, python=True)()
        assert sys.getprofile() is print_nothing
    finally:
        sys.setprofile(None)
    assert active_session() is None
    numbaprof.profile(program, python=True)()


def print_nothing(*_):
    """Be a profiling function."""


@pytest.mark.linux
def test_forked_child_starts_from_nothing(backend):
    """Calls of the parent, and frames it had open, are not in the child's books."""
    profiled = numbaprof.profile(python=True)
    read, write = os.pipe()

    def fork():
        pid = os.fork()
        if pid == 0:
            active_session().reset_after_fork("fork")
            measure(np.empty(7))
        return pid

    with profiled:
        measure(np.empty(3))
        pid = fork()
        if pid == 0:
            try:
                profiled.stop()
                profiled.result.check()
                calls = {k: v for k, v in rows_of(profiled.result).items() if v[0]}
                os.write(write, repr(calls).encode())
            finally:
                os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert eval(pipe.read()) == {"measure(array: float64[7])": (1, 1)}
    parent = rows_of(profiled.result)
    assert "measure(array: float64[7])" not in parent
    assert parent["measure(array: float64[3])"] == (1, 1)
