"""Twins: lines for code compiled without, only where it is the same code."""

from __future__ import annotations

import gc
import math
import warnings

import numpy as np
import pytest
from numba import (
    cfunc,
    guvectorize,
    njit,
    objmode,
    prange,
    types,
    vectorize,
)
from numba.core import config, event
from numba.core.errors import NumbaPerformanceWarning
from numba.experimental import jitclass

import numbaprof
from numbaprof.native import linetable, numba_api, objcode, twin_compiler, twins
from numbaprof.native.twin_store import TwinStore

HERE = __file__
DATA = np.linspace(0.0, 1.0, 50)
MEMORY_ONLY = TwinStore(None)
PLENTY_S = 1e6


def line_of(mark):
    """Return the line of this file that ends with ``# mark``."""
    with open(HERE) as file:
        for number, text in enumerate(file, 1):
            if text.rstrip().endswith(f"# {mark}"):
                return number
    raise AssertionError(f"no line is marked {mark}")


def build(*things, **options):
    """Make twins that are kept nowhere."""
    options = {"store": MEMORY_ONLY, "budget_s": PLENTY_S} | options
    return twins.build(things, **options)


def code_of(dispatcher):
    """Return the running code of the one overload."""
    (cres,) = dispatcher.overloads.values()
    return objcode.load_objects().with_symbol(cres.fndesc.llvm_func_name)


def lines_of(twin, file=HERE):
    """Return the lines of a file in a twin's table."""
    return {line for name, line in twin.rows().lines() if name == file}


@njit
def helper(x):
    """Be called."""
    y = math.sin(x) * x  # in helper
    return y + 1.0


@njit
def caller(a):
    """Call another function."""
    total = 0.0
    for x in a:
        total += helper(x)  # call of helper
    return total


@njit
def factorial(n):
    """Recurse."""
    if n < 2:
        return 1
    return n * factorial(n - 1)  # recursion


@njit(parallel=True)
def in_parallel(a):
    """Have a parfor."""
    total = 0.0
    for i in prange(len(a)):
        total += math.exp(a[i])  # in parfor
    return total


@vectorize(["float64(float64)"])
def universal(x):
    """Be a ufunc."""
    return x * 3.0 + math.sqrt(x)  # in ufunc


@guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")
def rows(a, out):
    """Be a generalized ufunc."""
    for i in range(a.shape[0]):
        out[i] = a[i] * 2.0 - 1.0  # in gufunc


@jitclass([("x", types.float64)])
class Box:
    """Have a method."""

    def __init__(self, x):
        self.x = x

    def scaled(self, c):
        """Be a method."""
        return self.x * c + math.cos(c)  # in method


@njit
def uses_box(c):
    """Call a method."""
    return Box(2.0).scaled(c)


@njit
def leaves(a):
    """Have an objmode block."""
    with objmode(n="intp"):
        n = len(a)
    return a[0] * n  # after objmode


def test_twin_has_the_same_code_and_the_lines():
    """The table of the twin is that of the running code, callees included."""
    assert caller(DATA) == caller.py_func(DATA)
    original = code_of(caller)
    assert not original.has_lines
    result = build(caller, helper)
    twin = result.by_address[original.start]
    assert twin.text == original.text
    assert twin is result.tables[original.text_sha256]
    assert lines_of(twin) >= {line_of("in helper"), line_of("call of helper")}
    assert result.different_bytes == {}
    assert result.refused == {}


def test_callee_gets_its_twin_from_its_callers():
    """One compilation serves both."""
    caller(DATA)
    result = build(caller, helper)
    assert code_of(helper).start in result.by_address
    assert result.compiled <= 2


def test_function_that_recurses_has_a_twin():
    """The twin calls itself."""
    assert factorial(5) == 120
    twin = build(factorial).by_address[code_of(factorial).start]
    assert line_of("recursion") in lines_of(twin)


def test_parfor_has_a_twin_of_each_of_its_objects():
    """The kernel of a parfor and its wrappers belong to the function they are for."""
    in_parallel(DATA)
    result = build(in_parallel)
    assert result.refused == {}
    objects = objcode.load_objects()
    symbols = [
        {symbol.name for symbol in objects.find(address).symbols()}
        for address in result.by_address
    ]
    kinds = ("__gufunc__.", ".kernel.", "_ZN13_3cdynamic")
    for kind in kinds:
        assert any(name.startswith(kind) for names in symbols for name in names), kind
    assert all(
        objects.find(address).text == twin.text
        for address, twin in result.by_address.items()
    )
    found = set().union(*map(lines_of, result.by_address.values()))
    assert line_of("in parfor") in found


@pytest.mark.parametrize(
    ("thing", "mark", "prefix"),
    [(universal, "in ufunc", "__ufunc__."), (rows, "in gufunc", "__gufunc__.")],
)
def test_ufunc_has_twins_of_kernel_and_loop(thing, mark, prefix):
    """The loop into which the kernel is inlined has the kernel's lines."""
    thing(DATA)
    result = build(thing)
    objects = objcode.load_objects()
    loops = [
        twin
        for address, twin in result.by_address.items()
        if any(s.name.startswith(prefix) for s in objects.find(address).symbols())
    ]
    assert len(loops) == 1
    assert line_of(mark) in lines_of(loops[0])
    assert result.refused == {}


def test_c_callback_has_a_twin():
    """A callback is compiled by itself."""

    @cfunc("float64(float64)")
    def callback(x):
        return x * math.tan(x)  # in callback

    (twin,) = build(callback).by_address.values()
    assert line_of("in callback") in lines_of(twin)


def test_method_is_inlined_in_the_twin():
    """Methods of jitclasses are twinned with their callers."""
    uses_box(3.0)
    twin = build(uses_box).by_address[code_of(uses_box).start]
    assert line_of("in method") in lines_of(twin)


def test_objmode_block_is_refused_and_its_caller_has_a_twin():
    """Code within the block belongs to its caller and has no twin of its own."""
    leaves(DATA)
    (cres,) = leaves.overloads.values()
    result = build(leaves, *cres.lifted)
    assert line_of("after objmode") in lines_of(
        result.by_address[code_of(leaves).start]
    )
    (reason,) = result.refused.values()
    assert "objmode" in reason


# ----------------------------------------------------------------------- what is wanted


def test_only_what_is_wanted_is_made_in_that_order():
    """Addresses come hottest first; of those without budget, it is said."""
    first = njit(lambda x: x * 3 + 7)
    second = njit(lambda x: x * 5 + 9)
    third = njit(lambda x: x * 7 + 11)
    for function in (first, second, third):
        function(1)
    one, two, three = map(code_of, (first, second, third))
    ticks = iter([0.0, 0.0, 2.0, 3.0])
    result = build(
        first,
        second,
        third,
        wanted=[two.start + 1, one.start, two.start],
        budget_s=1.0,
        clock=lambda: next(ticks),
    )
    assert set(result.by_address) == {two.start}
    assert three.start not in result.refused
    assert "1 s" in result.refused[one.start]
    assert result.seconds == 3.0


def test_numbas_own_code_is_refused():
    """Its time belongs to the user's line that calls it."""
    # One that no other test compiles, perhaps with lines.
    unwrapped = njit(lambda a: np.unwrap(a))
    unwrapped(DATA)
    objects = objcode.load_objects()
    own = [o for o in objects if any("unwrap" in s.name for s in o.symbols())]
    result = twins.build(
        wanted=[found.start for found in own], store=MEMORY_ONLY, budget_s=PLENTY_S
    )
    reasons = {result.refused.get(o.start, "") for o in own if not o.has_lines}
    assert any("Numba's own" in reason for reason in reasons)


def test_code_that_nobody_owns_is_refused():
    """Where the function is gone or unknown, it is said."""
    lost = njit(lambda x: x * 13 + 1)
    lost(1)
    code = code_of(lost)
    result = build(wanted=[code.start])
    assert "no function" in result.refused[code.start]


def test_code_compiled_with_lines_needs_no_twin():
    """It has its own table already."""
    with linetable.LineTables():
        known = njit(lambda x: x * 17 + 1)
        known(1)
    result = build(known)
    assert (result.by_address, result.refused, result.compiled) == ({}, {}, 0)


# ----------------------------------------------------------------- what is not the same


def test_other_code_is_refused(tmp_path, monkeypatch):
    """Numba's cache ignores options: what it loads may be other code than it says."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def division(a):
        total = 0.0
        for x in a:
            total += x
        return total

    njit(cache=True)(division)(DATA)
    loaded = njit(cache=True, fastmath=True)(division)
    loaded(DATA)
    assert sum(loaded.stats.cache_hits.values()) == 1
    result = build(loaded)
    assert code_of(loaded).start in result.refused
    assert "other code" in result.refused[code_of(loaded).start]
    assert result.by_address == {}


def test_code_from_the_cache_has_a_twin(tmp_path, monkeypatch):
    """Loaded code is the same code; the twin goes into no cache."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def product(a):
        return a[0] * a[1] - 2.0  # cached

    njit(cache=True)(product)(DATA)
    loaded = njit(cache=True)(product)
    loaded(DATA)
    assert sum(loaded.stats.cache_hits.values()) == 1
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.nb*")}
    twin = build(loaded).by_address[code_of(loaded).start]
    assert line_of("cached") in lines_of(twin)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.nb*")} == files


def test_failing_compilation_is_a_reason(monkeypatch):
    """A global has become something that cannot be compiled."""
    space = {}
    exec("c = 3\ndef broken(x):\n    return x + c", space)
    broken = njit(space["broken"])
    broken(1)
    space["c"] = object()
    (reason,) = build(broken).refused.values()
    assert reason.startswith("compiling it again failed: TypingError")


def test_equal_code_of_two_functions_stays_apart():
    """Each has its own lines; the code alone does not say whose it is."""
    one = njit(lambda x: x * 23 + 5)  # twin one
    two = njit(lambda x: x * 23 + 5)  # twin two
    one(1), two(1)
    first, second = code_of(one), code_of(two)
    result = build(one, two)
    assert first.text_sha256 == second.text_sha256
    assert lines_of(result.by_address[first.start]) == {line_of("twin one")}
    assert lines_of(result.by_address[second.start]) == {line_of("twin two")}
    assert result.tables == {}


class Code:
    """Code as the comparison sees it."""

    def __init__(self, text, names=("f",)):
        self.text, self.size, self.start = text, len(text), 100
        self.names = names

    def symbols(self):
        """Return functions one after the other."""
        return [
            objcode.Symbol(name, 100 + i, 1, 1) for i, name in enumerate(self.names)
        ]


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (Code(b"same"), Code(b"same"), 0),
        (Code(bytes(20)), Code(b"12345678" + bytes(12)), 8),
        (Code(bytes(20)), Code(b"123456789" + bytes(11)), None),
        (Code(bytes(20)), Code(bytes(21)), None),
        (Code(b"same"), Code(b"same", ("g",)), None),
        (Code(b"a", ("_ZN1fB2v1B",)), Code(b"a", ("_ZN1fB2v9B",)), 0),
        (Code(b"a", ("f_0x7f00",)), Code(b"a", ("f_0x7abc",)), 0),
        (Code(b"a", (".kernel.1___g",)), Code(b"a", (".kernel.22___g",)), 0),
    ],
)
def test_code_is_the_same_up_to_eight_bytes(one, other, difference):
    """Length and functions must agree; few bytes may be immediates of pickles."""
    assert twins.different_bytes(one, other) == difference


# ---------------------------------------------------------------- nothing of the user's


def dispatchers():
    """Return what is known of every dispatcher alive."""
    gc.collect()
    return {
        id(found): [id(cres) for cres in found.overloads.values()]
        for found in numba_api.live_dispatchers()
    }


def test_dispatchers_and_results_are_unchanged():
    """No overload comes or goes; the next compilation is plain and right."""
    function = njit(lambda x: helper(x) * 2.0)
    leaves(DATA)
    before, value = dispatchers(), function(0.5)
    before = dispatchers()
    build(function, helper, leaves)
    assert dispatchers() == before
    assert function(0.5) == value
    assert function(1) == helper.py_func(1) * 2.0
    assert len(function.overloads) == 2
    assert "DILocation" not in function.inspect_llvm((types.int64,))


def test_session_does_not_see_twins():
    """Neither the compilation nor the overload is in the profile."""
    function = njit(lambda x: helper(x) * 4.0)
    with numbaprof.profile() as profile:
        function(0.5)
        build(function, helper)
        function(0.5)
    events = profile.result.compile_events
    names = [compiled.function.qualname for compiled in events]
    assert names.count(function.py_func.__qualname__) == 1
    mine = [
        overload
        for overload in profile.result.overloads
        if overload.function.line == function.py_func.__code__.co_firstlineno
    ]
    assert [overload.calls for overload in mine] == [2]
    assert profile.result.losses.hook_errors == ()


def test_listeners_of_numba_hear_nothing():
    """Events of twins are not broadcast, also not to other listeners."""
    function = njit(lambda x: x * 29 + 3)
    function(1)
    heard = event.RecordingListener()
    with event.install_listener("numba:compile", heard):
        build(function)
    assert heard.buffer == []


def test_warnings_do_not_come_again():
    """What the first compilation warned of is known."""

    def serial(a):
        return a[0]

    function = njit(parallel=True)(serial)
    with pytest.warns(NumbaPerformanceWarning):
        function(DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(function).compiled == 1


def test_everything_is_restored_when_compiling_fails():
    """An error within the block leaves no patch behind."""
    original = vars(types.Dispatcher)["dispatcher"]
    broadcast = event.broadcast
    with pytest.raises(KeyError), twin_compiler.TwinCompiler():
        raise KeyError
    assert vars(types.Dispatcher)["dispatcher"] is original
    assert event.broadcast is broadcast
    assert not linetable.is_active()


def test_twin_of_a_kind_that_is_not_known_is_refused():
    """The reason names the class."""
    thing = twin_compiler.Overload(object(), (), None, "f")
    compiler = twin_compiler.TwinCompiler()
    with pytest.raises(numbaprof.errors.UnsupportedError, match="object"):
        compiler.compile(thing)
