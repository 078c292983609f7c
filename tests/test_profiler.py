"""``numbaprof.Profile``, in the place of cProfile's and Accelerate's profilers."""

from __future__ import annotations

import cProfile
import importlib.util
import io
import pstats
import re
import subprocess
import sys
import threading
from contextlib import redirect_stdout

import numba
import numpy as np
import pandas  # noqa: F401 - importing it changes the process once
import pytest
from row_engine import undisturbed

import numbaprof
from numbaprof.cprofile_bridge import BACKEND_VARIABLE
from numbaprof.errors import (
    ActiveSessionError,
    OptionError,
    SessionStateError,
    UnsupportedError,
)
from numbaprof.native import shared
from numbaprof.profiler import Profile

pytestmark = pytest.mark.usefixtures("no_gc")


@pytest.fixture(params=["python", "native"])
def backend(request, monkeypatch):
    """Force a backend."""
    monkeypatch.setenv(BACKEND_VARIABLE, request.param)
    return request.param


@pytest.fixture
def reference(monkeypatch):
    """Force the backend that hides every call of our own."""
    monkeypatch.setenv(BACKEND_VARIABLE, "python")


def dot(a, b):
    """Be the example of the predecessor's manual."""
    total = 0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


LINE = dot.__code__.co_firstlineno


def fib(n):
    """Recurse."""
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def program():
    """Recurse, call back from C, and call methods."""
    fib(6)
    sorted([3, 1, 2], key=lambda x: -x)
    list(map(fib, [2, 3]))
    [].append(1)


@pytest.fixture(scope="module")
def arrays():
    """Two arrays of 16."""
    return np.arange(16, dtype=np.float32), np.arange(16, dtype=np.float32)


def stats_of(profile):
    """Return the dictionary of pstats without times."""
    return {
        key: (primitive, calls, {c: edge[:2] for c, edge in callers.items()})
        for key, (primitive, calls, _, _, callers) in pstats.Stats(
            profile
        ).stats.items()
    }


def names_of(profile):
    """Return the names of the rows of this file, with their calls."""
    return {
        key[2]: value[1]
        for key, value in stats_of(profile).items()
        if key[0] == __file__
    }


def meet(mine, other):
    """Stay until another thread is here, too."""
    mine.set()
    assert other.wait(timeout=30)


def meet_in_two_threads():
    """Run the same function in two threads at once, neither within the other."""
    first, second = threading.Event(), threading.Event()
    thread = threading.Thread(target=meet, args=(first, second))
    thread.start()
    assert first.wait(timeout=30)
    meet(second, first)
    thread.join()


# -- in the place of cProfile ----------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"builtins": False}])
@pytest.mark.parametrize(
    "run",
    [
        lambda profile: profile.runcall(program),
        lambda profile: profile.runctx("program()", globals(), {}),
    ],
)
def test_statistics_are_those_of_cprofile_without_signatures(backend, options, run):
    """Rows, both halves of ncalls and callers, those of its own methods included."""
    ours = Profile(signatures=False, **options)
    theirs = cProfile.Profile(**options)
    with undisturbed():
        run(ours)
        run(theirs)
    assert stats_of(ours) == stats_of(theirs)


def printed(profile):
    """Return the printed table without its times, which differ."""
    out = io.StringIO()
    with redirect_stdout(out):
        profile.print_stats()
    return re.sub(r"\d+\.\d{3}", "0.000", out.getvalue())


def test_table_is_printed_as_cprofile_does(reference, arrays):
    """The example of the predecessor's manual, to the letter."""
    tables = []
    for profile in (cProfile.Profile(), Profile(signatures=False)):
        with undisturbed():
            profile.enable()
            dot(*arrays)
            profile.disable()
        tables.append(printed(profile))
    assert tables[0] == tables[1]
    assert "3 function calls" in tables[0]


def test_context_manager_measures_its_block(backend):
    """What comes after is not in the table."""
    with Profile(signatures=False) as profile:
        fib(1)
    fib(1)
    assert names_of(profile) == {"fib": 1}
    assert isinstance(profile, cProfile.Profile)


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="cProfile sees one thread before 3.12"
)
def test_two_threads_are_a_recursion_to_cprofile_and_none_to_us(backend):
    """It keeps one stack for all threads: ``2/1`` calls, and the wrong callers."""
    lines = []
    for profile in (cProfile.Profile(), Profile(signatures=False)):
        profile.enable()
        meet_in_two_threads()
        profile.disable()
        (line,) = [v for key, v in stats_of(profile).items() if key[2] == "meet"]
        primitive, calls, callers = line
        lines.append(
            (primitive, calls, {key[2]: edge for key, edge in callers.items()})
        )
    theirs, ours = lines
    assert theirs[:2] == (1, 2)
    assert "meet_in_two_threads" not in theirs[2]
    assert ours == (2, 2, {"run": (1, 1), "meet_in_two_threads": (1, 1)})


def test_runs_add_up_until_cleared(backend):
    """enable() goes on, clear() forgets, also while enabled."""
    profile = Profile(signatures=False, builtins=False)
    for _ in range(2):
        profile.runcall(fib, 1)
    assert names_of(profile) == {"fib": 2}
    profile.enable()
    fib(1)
    profile.clear()
    fib(1)
    profile.disable()
    assert names_of(profile) == {"fib": 1}
    profile.clear()
    assert profile.getstats() == []


def test_enabling_twice_and_disabling_twice_do_nothing(backend):
    """As with cProfile, for the same object."""
    profile = Profile(signatures=False, builtins=False)
    profile.enable()
    profile.enable()
    fib(1)
    profile.disable()
    profile.disable()
    assert names_of(profile) == {"fib": 1}


def test_two_profiles_at_once_are_refused(backend):
    """The second one names the first, which goes on."""
    first, second = Profile(builtins=False), Profile()
    first.enable()
    with pytest.raises(ActiveSessionError):
        second.enable()
    fib(1)
    first.disable()
    assert names_of(first)["fib(n: int)"] == 1


def test_entries_are_those_of_lsprof(backend):
    """Fields, types and the identity of what was called."""
    profile = Profile(signatures=False)
    profile.runcall(fib, 3)
    (entry,) = [
        e for e in profile.getstats() if getattr(e.code, "co_name", "") == "fib"
    ]
    assert (entry.callcount, entry.reccallcount) == (5, 4)
    assert (entry.code.co_filename, entry.code.co_firstlineno) == (
        __file__,
        fib.__code__.co_firstlineno,
    )
    assert isinstance(entry.totaltime, float)
    assert entry.totaltime == pytest.approx(entry.inlinetime)
    (called,) = entry.calls
    assert called.code is entry.code
    assert (called.callcount, called.reccallcount) == (4, 2)


def test_entries_do_not_say_who_called_when_not_asked(backend):
    """subcalls=False leaves them out."""
    profile = Profile(subcalls=False)
    profile.runcall(fib, 3)
    assert {entry.calls for entry in profile.getstats()} == {None}


def test_options_of_enable_replace_those_given_before(backend):
    """As in cProfile."""
    profile = Profile(builtins=True, signatures=False)
    profile.enable(subcalls=False, builtins=False)
    len([])
    profile.disable()
    assert profile.getstats() == []


# -- signatures ------------------------------------------------------------------------


def test_row_per_signature(backend, arrays):
    """One call of each, and len is a function of its own."""
    profile = Profile()
    profile.runcall(dot, *arrays)
    profile.runcall(dot, arrays[0][:4], arrays[1])
    assert names_of(profile) == {
        "dot(a: float32[16], b: float32[16])": 1,
        "dot(a: float32[4], b: float32[16])": 1,
    }
    length = stats_of(profile)["~", 0, "<built-in method builtins.len>"]
    assert length[:2] == (2, 2)


def test_accelerate_style_has_the_old_labels(backend, arrays):
    """What the predecessor's own test expects."""
    profile = Profile(style="accelerate")
    profile.enable()
    dot(*arrays)
    profile.disable()
    stats = pstats.Stats(profile).strip_dirs().stats
    array = "ndarray(dtype=float32, shape=(16,))"
    assert ("test_profiler.py", LINE, f"dot(a:{array}, b:{array})") in stats


def test_compiled_functions_are_rows_per_overload(backend, arrays):
    """With their caller; compiling is one row; py_func is another function."""
    compiled = numba.njit(dot)

    def caller():
        compiled(*arrays)
        compiled(*arrays)
        compiled(np.ones(3), np.ones(3))
        return compiled.py_func(*arrays)

    profile = Profile(builtins=False)
    profile.runcall(caller)
    stats = stats_of(profile)
    name = (__file__, LINE, "dot(float32[::1], float32[::1]) [numba]")
    (caller_key,) = [key for key in stats if key[2] == "caller()"]
    assert stats[name] == (2, 2, {caller_key: (2, 2)})
    assert names_of(profile) == {
        "caller()": 1,
        "dot(a: float32[16], b: float32[16])": 1,
        "dot(float32[::1], float32[::1]) [numba]": 2,
        "dot(float64[::1], float64[::1]) [numba]": 1,
    }
    assert stats["~", 0, "<numba compile>"][1] == 2


def test_compiled_function_is_one_row_without_signatures(backend, arrays):
    """All overloads together, under the function's own name."""
    compiled = numba.njit(fib_of_two)
    compiled(1)
    profile = Profile(signatures=False, builtins=False)
    profile.enable()
    compiled(1)
    compiled.py_func(1)
    profile.disable()
    assert names_of(profile) == {"fib_of_two": 2}


def fib_of_two(n):
    """Be compiled and not."""
    return n + 1


@numba.njit
def decorated(n):
    """Be compiled and not, below a decorator."""
    return n + 1


def test_compiled_function_is_where_cprofile_sees_it_in_python(backend):
    """At its first decorator, so that it is one row with its ``py_func``."""
    decorated(1)
    profile = Profile(signatures=False, builtins=False)
    profile.enable()
    decorated(1)
    decorated.py_func(1)
    profile.disable()
    first = decorated.py_func.__code__.co_firstlineno
    assert stats_of(profile)[__file__, first, "decorated"][:2] == (2, 2)


def test_signatures_of_one_function_add_up_to_the_row_without(backend):
    """Calls and callers, summed over signatures, are those of the whole."""
    split, whole = Profile(), Profile(signatures=False)

    def mixed():
        for value in (1, 1.5, "s", [], ()):
            collect(value)

    split.runcall(mixed)
    whole.runcall(mixed)
    assert sum(n for name, n in names_of(split).items() if "collect" in name) == 5
    assert names_of(whole)["collect"] == 5
    assert profile_total(split) == profile_total(whole) - 1


def collect(value):
    """Take anything."""
    return value


def profile_total(profile):
    """Return the number of calls, which cProfile's table begins with."""
    return sum(value[1] for value in stats_of(profile).values())


# -- files -----------------------------------------------------------------------------


def test_dumped_file_is_read_by_pstats(backend, arrays, tmp_path):
    """Sorted, stripped, with callers and callees, and added to itself."""
    profile = Profile()
    profile.runcall(dot, *arrays)
    path = tmp_path / "p.prof"
    profile.dump_stats(path)
    out = io.StringIO()
    stats = pstats.Stats(str(path), stream=out)
    stats.add(str(path)).strip_dirs().sort_stats("cumulative")
    stats.print_stats().print_callers().print_callees()
    assert "dot(a: float32[16], b: float32[16])" in out.getvalue()
    assert stats.get_stats_profile().total_tt >= 0


@pytest.mark.skipif(
    importlib.util.find_spec("gprof2dot") is None, reason="gprof2dot is not installed"
)
def test_dumped_file_is_read_by_gprof2dot(arrays, tmp_path):
    """It draws the functions by their names."""
    profile = Profile()
    profile.runcall(dot, *arrays)
    path = tmp_path / "p.prof"
    profile.dump_stats(path)
    command = [sys.executable, "-m", "gprof2dot", "-f", "pstats", "-n0", "-e0", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "dot(a: float32[16], b: float32[16])" in done.stdout


# -- what cannot be had ----------------------------------------------------------------


def test_custom_timer_is_honoured_without_signatures():
    """It is cProfile itself that measures then, and the reason says so."""
    ticks = iter(range(1000))
    profile = Profile(lambda: next(ticks), 0.5, signatures=False)
    profile.enable()
    fib(1)
    profile.disable()
    (entry,) = [
        e for e in profile.getstats() if getattr(e.code, "co_name", "") == "fib"
    ]
    assert entry.totaltime == 0.5
    assert (profile.backend, profile.reason) == (
        "cProfile",
        "it was given a custom_timer",
    )
    with pytest.raises(SessionStateError, match="custom_timer"):
        profile.result


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"custom_timer": lambda: 0}, "signatures=False"),
        ({"custom_timer": 3, "signatures": False}, "must be callable"),
        ({"time_unit": 0.1}, "give one"),
        ({"signatures": "none"}, "signatures='none'"),
        ({"style": "old"}, "style='old'"),
    ],
)
def test_option_that_cannot_be_is_refused(options, problem):
    """With the value and what to do."""
    with pytest.raises(OptionError, match=problem):
        Profile(**options)


def test_profile_without_an_engine_is_cprofile_or_refused(monkeypatch):
    """signatures=False works everywhere; signatures are refused with the reason."""
    absent = shared.SharedEngine(None, "no engine today")
    monkeypatch.setattr(shared, "shared_engine", lambda: absent)
    plain = Profile(signatures=False)
    plain.runcall(fib, 1)
    assert names_of(plain) == {"fib": 1}
    assert (plain.backend, plain.reason) == ("cProfile", "no engine today")
    with pytest.raises(UnsupportedError, match="no engine today"):
        Profile().enable()


def test_result_is_a_profile_of_numbaprof(backend):
    """With all its tables; before the first run there is none."""
    profile = numbaprof.Profile()
    with pytest.raises(SessionStateError, match="not enabled"):
        profile.result
    profile.runcall(fib, 3)
    profile.result.check()
    assert "fib" in set(profile.functions.function)
    assert profile.backend.startswith(("native", "sys."))
