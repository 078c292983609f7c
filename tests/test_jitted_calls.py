"""Jitted calls in the one table: a row per overload, exact counts, the right caller."""

from __future__ import annotations

import contextlib
import gc
import threading
import time

import numba
import numpy as np
import psutil
import pytest

import numbaprof
from numbaprof.cprofile_bridge import BACKEND_VARIABLE

pytestmark = pytest.mark.usefixtures("no_gc")


@pytest.fixture(params=["native", "python"])
def backend(request, monkeypatch):
    """Force a backend."""
    monkeypatch.setenv(BACKEND_VARIABLE, request.param)
    return request.param


@numba.njit
def plain(x):
    """Add one."""
    return x + 1


@numba.njit(nogil=True)
def free(x):
    """Add one without the GIL."""
    return x + 1


@numba.njit
def failing(x):
    """Raise."""
    if x < 0:
        raise ValueError("negative")
    return x


def helper(x):
    """Call compiled code from within compiled code."""
    return plain(x)


@numba.njit
def through_objmode(x):
    """Go through Python."""
    with numba.objmode(y="int64"):
        y = helper(x)
    return y


def call_plainly():
    """Call in a loop."""
    for number in range(10):
        plain(number)


def call_with_star():
    """Call with a star."""
    for number in range(7):
        plain(*(number,))


def call_by_name():
    """Call with a keyword."""
    for number in range(6):
        plain(x=number)


def call_from_map():
    """Call from C."""
    return list(map(plain, [1, 2, 3]))


def call_other_type():
    """Call another overload."""
    for _ in range(4):
        plain(1.5)


def call_free():
    """Call without the GIL."""
    for number in range(9):
        free(number)


def call_failing():
    """Catch what it raises."""
    for number in (-1, 1, -1):
        with contextlib.suppress(ValueError):
            failing(number)


def call_through_objmode():
    """Call through Python."""
    for number in range(5):
        through_objmode(number)


def call_in_thread():
    """Call in another thread."""
    thread = threading.Thread(target=call_free)
    thread.start()
    thread.join()


FORMS = (
    call_plainly,
    call_with_star,
    call_by_name,
    call_from_map,
    call_other_type,
    call_free,
    call_failing,
    call_through_objmode,
    call_in_thread,
)
EXPECTED = {
    ("plain", "(int64)", "call_plainly"): (10, 0),
    ("plain", "(int64)", "call_with_star"): (7, 0),
    ("plain", "(int64)", "call_by_name"): (6, 0),
    ("plain", "(int64)", "call_from_map"): (3, 0),
    ("plain", "(float64)", "call_other_type"): (4, 0),
    ("plain", "(int64)", "helper"): (5, 0),
    ("free", "(int64)", "call_free"): (18, 0),
    ("failing", "(int64)", "call_failing"): (3, 2),
    ("through_objmode", "(int64)", "call_through_objmode"): (5, 0),
}


def all_forms():
    """Call in every form."""
    for form in FORMS:
        form()


def callers_of(result):
    """Return {(function, signature, Python caller): (calls, errors)}."""
    found = {}
    for node in result.contexts:
        if node.kind != "overload":
            continue
        overload = result.overloads[node.overload]
        if overload.function.module != __name__ or overload.kind == "objmode body":
            continue
        caller = result.contexts[node.parent]
        name = result.python_rows[caller.python_row].name
        key = (overload.function.qualname, overload.signature, name)
        calls, errors = found.get(key, (0, 0))
        found[key] = (calls + node.calls, errors + node.errors)
    return found


def test_every_form_of_call_has_its_row_and_caller(backend):
    """The same table on every Python, with Numba's own frames in none of it."""
    all_forms()
    profile = numbaprof.profile(all_forms, python=True)
    profile()
    profile.result.check()
    assert callers_of(profile.result) == EXPECTED


def test_first_call_is_counted_under_its_caller(backend):
    """Compiling comes between a caller and the call, but not in the table."""

    @numba.njit
    def fresh(x):
        return x

    def call_fresh():
        return [fresh(1), fresh(2)]

    profile = numbaprof.profile(call_fresh, python=True)
    profile()
    names = {key[0].rpartition(".")[2]: key[2] for key in callers_of(profile.result)}
    # Before 3.12 a list comprehension is a frame; a list display is not.
    assert names == {"fresh": "call_fresh"}
    assert sum(calls for calls, _ in callers_of(profile.result).values()) == 2
    kinds = {node.kind for node in profile.result.contexts}
    assert "compile" in kinds


def stored(x):
    """Be compiled once and kept on disk."""
    return x + 2


def test_overloads_loaded_from_cache_have_their_rows_and_callers(backend):
    """Two overloads, of a dispatcher that has never compiled anything."""
    on_disk = numba.njit(cache=True)(stored)
    on_disk(1)
    on_disk(1.5)
    loaded = numba.njit(cache=True)(stored)

    def call_loaded():
        for number in range(8):
            loaded(number)
        loaded(x=2.5)

    def call_loaded_again():
        return loaded(*(3,)), tuple(map(loaded, (0.5, 1.5)))

    def both():
        call_loaded()
        call_loaded_again()

    profile = numbaprof.profile(both, python=True)
    profile()
    profile.result.check()
    assert callers_of(profile.result) == {
        ("stored", "(int64)", "call_loaded"): (8, 0),
        ("stored", "(float64)", "call_loaded"): (1, 0),
        ("stored", "(int64)", "call_loaded_again"): (1, 0),
        ("stored", "(float64)", "call_loaded_again"): (2, 0),
    }
    of_stored = [
        overload
        for overload in profile.result.overloads
        if overload.function.qualname == "stored" and overload.calls
    ]
    assert [overload.origin for overload in of_stored] == ["cache", "cache"]
    events = [
        (event.event, event.signature)
        for event in profile.result.compile_events
        if event.function.qualname == "stored"
    ]
    assert sorted(events) == [("cache_load", "(float64)"), ("cache_load", "(int64)")]


@numba.njit
def roots(n):
    """Take a while."""
    total = 0.0
    for number in range(n):
        total += np.sqrt(number)
    return total


def spin(ms):
    """Take a while in Python."""
    until = time.perf_counter() + ms / 1000
    while time.perf_counter() < until:
        pass


def middle(n):
    """Do both."""
    spin(4)
    return int(roots(n))


@numba.njit
def outer(n):
    """Do both from compiled code."""
    total = 0.0
    for number in range(2 * n):
        total += np.sqrt(number) * 0.5
    with numba.objmode(y="int64"):
        y = middle(n)
    return total + y


def nest():
    """Nest Python, compiled code, Python and compiled code."""
    spin(5)
    for _ in range(3):
        outer(300_000)


def test_own_times_of_the_nest_add_up_to_its_time(backend):
    """To the nanosecond: every moment is in one row, none in two."""
    nest()
    profile = numbaprof.profile(nest, python=True)
    profile()
    result = profile.result
    result.check()
    table = profile.functions.reset_index()
    whole = table.loc[table["function"].str.startswith("nest"), "cumtime"].max()
    (root,) = [
        number
        for number, node in enumerate(result.contexts)
        if node.kind == "python" and result.python_rows[node.python_row].name == "nest"
    ]
    inside = {root}
    own_ns = 0
    for number, node in enumerate(result.contexts):
        if number in inside or node.parent in inside:
            inside.add(number)
            own_ns += node.exclusive_ns
            own_ns += node.dispatch_ns if number != root else 0
    assert own_ns == pytest.approx(whole * 1e9, abs=1)
    # What compiled code took is in its own rows and not in its callers' own time.
    own = table.groupby("function")["tottime"].sum()
    assert own.filter(like="roots").sum() > 0
    assert own.filter(like="middle").sum() < own.filter(like="roots").sum()


def take(a):
    """Take anything."""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("what", ["shapes", "classes", "structured dtypes"])
def test_hundred_thousand_kinds_of_arguments_stay_bounded(what):
    """Few rows, little memory, and every call is in one of the rows."""
    base = np.zeros(100_000)
    makers = {
        "shapes": lambda n: base[: n + 1],
        "classes": lambda n: type(f"C{n}", (), {})(),
        "structured dtypes": lambda n: np.zeros(1, [(f"f{n}", "i4")]),
    }
    make = makers[what]

    def many():
        for number in range(100_000):
            take(make(number))

    profile = numbaprof.profile(many, python=True, builtins=False)
    process = psutil.Process()
    take(make(0))
    gc.collect()
    before = process.memory_info().rss
    profile.start()
    for number in range(2_000):
        take(make(number))
    warm = process.memory_info().rss
    many()
    grown = process.memory_info().rss - warm
    profile.stop()
    gc.collect()
    rows = [row for row in profile.result.python_rows if row.name == "take"]
    assert sum(row.calls for row in rows) == 102_000
    assert len(rows) <= 3 * 32 + 1
    # Classes that nobody collects meanwhile are the program's own memory.
    limit = 400_000_000 if what == "classes" else 20_000_000
    assert grown < limit, (before, warm)


def test_compiling_a_ufunc_leaves_the_stack_as_it_was(backend):
    """What runs after it hangs under its own caller, not under Numba's compiler."""

    @numba.vectorize
    def double(x):
        return x * 2

    def after():
        return None

    def compile_and_go_on():
        double(np.ones(2))
        after()

    profile = numbaprof.profile(compile_and_go_on, python=True)
    profile()
    result = profile.result
    result.check()
    (node,) = [
        node
        for node in result.contexts
        if node.python_row >= 0 and result.python_rows[node.python_row].name == "after"
    ]
    parent = result.contexts[node.parent]
    assert result.python_rows[parent.python_row].name == "compile_and_go_on"
