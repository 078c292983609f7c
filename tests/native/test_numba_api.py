"""What is asked of Numba's insides: names, live objects, identities, kinds."""

from __future__ import annotations

import functools
import gc
import types as python_types
import weakref

import numpy as np
import pytest
from numba import cfunc, guvectorize, jit, njit, objmode, stencil, types, vectorize
from numba.core.dispatcher import Dispatcher
from numba.experimental import jitclass

from numbaprof.native import (
    compile_points,
    compiling,
    inline_sites,
    line_builder,
    linetable,
    numba_api,
    remarks,
    twin_compiler,
)
from numbaprof.native.numba_api import FunctionRegistry


def passing(**_):
    """Return a decorator that does nothing but take lines."""
    return lambda function: function


@njit
@passing(
    several=1,
    lines=2,
)
def decorated(a, b=2, *rest):
    """Have the def below its decorators."""
    return a


DEF_LINE = decorated.py_func.__code__.co_firstlineno + 5


@vectorize(["float64(float64)"])
def loop(x):
    """Be a ufunc."""
    return x


@vectorize
def lazy_loop(x):
    """Be a ufunc without loops."""
    return x


@guvectorize(["void(float64[:], float64[:])"], "(n)->()")
def row(x, out):
    """Be a generalized ufunc."""
    out[0] = x[0]


@vectorize(["float64(float64)"], target="parallel")
def parallel_loop(x):
    """Be a plain NumPy ufunc."""
    return x


@cfunc(types.float64(types.float64))
def callback(x):
    """Be a C callback."""
    return x


@stencil
def neighbours(a):
    """Be a stencil."""
    return a[-1] + a[1]


@jitclass([("value", types.int64)])
class Box:
    """Have members of every sort."""

    def __init__(self, value):
        self.value = value

    def add(self, more):
        """Be a method."""
        return self.value + more

    @property
    def double(self):
        """Be a property."""
        return self.value * 2


@njit
def with_block(x):
    """Have an objmode block."""
    with objmode():
        print(end="")
    return x


@jit(forceobj=True, looplift=True)
def with_loop(n):
    """Have a loop that is lifted."""
    object()
    total = 0
    for i in range(n):
        total += i
    return total


@njit
def generate(n):
    """Be a generator."""  # Numba cannot compile "yield from"
    while n > 0:
        n -= 1
        yield n


def make(number):
    """Return a function of a factory."""

    @njit
    def inner(x):
        return x + number

    return inner


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile what has overloads."""
    decorated(1)
    box = Box(3)
    box.add(1), box.double, box.value
    box.value = 4
    with_block(1)
    with_loop(3)
    generate(3)


# -- names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for module in (
            compile_points,
            compiling,
            inline_sites,
            line_builder,
            linetable,
            numba_api,
            remarks,
            twin_compiler,
        )
        for name in module.PRIVATE_NAMES
    ),
)
def test_private_name_exists(name):
    """What we touch of Numba is where we look for it."""
    assert numba_api._exists(name)


def test_nothing_is_missing():
    """The list says what is missing by name."""
    assert numba_api.missing_private_names() == ()


def test_missing_name_is_told(monkeypatch):
    """A name that has moved is reported."""
    names = (*numba_api.PRIVATE_NAMES, "numba.core.dispatcher:Dispatcher.gone")
    monkeypatch.setattr(numba_api, "PRIVATE_NAMES", names)
    assert numba_api.missing_private_names() == (names[-1],)


@pytest.mark.parametrize(
    ("module", "internal"),
    [
        ("numba", True),
        ("numba.typed.typedlist", True),
        ("numba.tests.support", False),
        ("numbaprof", False),
        ("numbalike.core", False),
        ("__main__", False),
        ("", False),
        (None, False),
    ],
)
def test_internal_modules(module, internal):
    """Numba's own functions are told from everybody else's."""
    assert numba_api.is_internal(module) is internal


# -- what is alive ---------------------------------------------------------------------


def test_all_dispatchers_are_found():
    """The registry of finalizers has every dispatcher that the collector knows."""
    gc.collect()
    alive = {id(o) for o in gc.get_objects() if issubclass(type(o), Dispatcher)}
    found = {id(o) for o in numba_api.live_dispatchers()}
    assert alive <= found


def test_frozen_dispatchers_are_found():
    """gc.freeze() hides nothing."""
    gc.freeze()
    try:
        assert decorated in numba_api.live_dispatchers()
    finally:
        gc.unfreeze()


def test_dead_dispatcher_is_not_found():
    """Looking keeps nothing alive."""
    function = make(1)
    reference = weakref.ref(function)
    assert function in numba_api.live_dispatchers()
    del function
    gc.collect()
    assert reference() is None


def test_ufuncs_are_found():
    """Ufuncs of all targets that are bound to a name are found."""
    found = {id(thing) for thing in numba_api.live_ufuncs()}
    assert {id(loop), id(lazy_loop), id(row), id(parallel_loop)} <= found


def test_dispatcher_classes_are_found():
    """All Python classes of dispatchers are found, bases before what derives."""
    found = numba_api.dispatcher_types()
    for cls in found[1:]:
        assert any(base in found[: found.index(cls)] for base in cls.__bases__)
    assert type(decorated) in found


def test_getters_of_a_jitclass_are_found():
    """Getters without a dispatcher are found by class and name."""
    instance = Box.class_type.instance_type
    found = {
        name
        for type_, name, _ in numba_api.live_property_getters()
        if type_ is instance
    }
    assert {"value", "double"} <= found


# -- identity --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "qualname"),
    [
        (decorated, "decorated"),
        (loop, "loop"),
        (lazy_loop, "lazy_loop"),
        (row, "row"),
        (callback, "callback"),
        (neighbours, "neighbours"),
    ],
)
def test_function_is_identified(thing, qualname):
    """Module, name, file and line of the user's function come out of every kind."""
    found = FunctionRegistry().identify(thing)
    assert (found.module, found.qualname, found.file) == (__name__, qualname, __file__)
    assert found.line > 0


def test_line_is_that_of_the_def():
    """The line is below the decorators, however many lines they take."""
    assert FunctionRegistry().identify(decorated).line == DEF_LINE


def test_first_line_is_found_again_from_that_of_the_def():
    """That is what cProfile knows the function by; without decorators they agree."""
    line = FunctionRegistry().identify(decorated).line
    code = decorated.py_func.__code__
    assert numba_api.first_line(__file__, line) == code.co_firstlineno
    assert numba_api.first_line(__file__, 1) == 1


def test_line_without_source_is_the_first():
    """Where there is no source the first line has to do."""
    space = {}
    exec(compile("\n\n\ndef f(x):\n    return x\n", "<nowhere>", "exec"), space)
    assert FunctionRegistry().identify(njit(space["f"])).line == 4


def test_factory_functions_are_numbered():
    """Functions that only their closures tell apart are counted, in order."""
    registry = FunctionRegistry()
    functions = [make(number) for number in range(3)]
    found = [registry.identify(function) for function in functions]
    assert [identity.instance for identity in found] == [0, 1, 2]
    assert len({(i.module, i.qualname, i.file, i.line) for i in found}) == 1


def test_identity_is_kept():
    """A function asked about again is the same one."""
    registry = FunctionRegistry()
    function = make(1)
    assert registry.identify(function) is registry.identify(function)


def test_address_that_comes_back_is_another_function():
    """A new function at a dead one's address gets a number of its own."""
    registry = FunctionRegistry()
    found = set()
    for number in range(5):
        found.add(registry.identify(make(number)).instance)
        gc.collect()
    assert found == {0, 1, 2, 3, 4}


def test_adopted_object_has_the_identity_given():
    """A ufunc object can be told to be its builder's function."""
    registry = FunctionRegistry()
    identity = registry.identify(loop)
    registry.adopt(np.add, identity)
    assert registry.identify(np.add) is identity


def test_lifted_code_is_named_by_its_place():
    """Lifted loops and objmode blocks name function and line."""
    registry = FunctionRegistry()
    names = {registry.identify(d).qualname for d in numba_api.live_dispatchers()}
    block = with_block.py_func.__code__.co_firstlineno + 3
    assert f"with_block [objmode at line {block}]" in names
    assert any(name.startswith("with_loop [loop at line") for name in names)


def roles():
    """Return role and identity of every wrapper that jitclass made for Box."""
    registry = FunctionRegistry()
    found = {}
    for dispatcher in numba_api.live_dispatchers():
        role = numba_api.jitclass_role(dispatcher)
        for cres in dispatcher.overloads.values() if role else ():
            args = numba_api.user_arguments(dispatcher, tuple(cres.signature.args))
            if "Box" in str(args[0] if args else cres.signature.return_type):
                identity = registry.identify(dispatcher, tuple(cres.signature.args))
                found[identity.qualname] = (role, identity.file)
    return found


def test_jitclass_members_lead_to_the_users_methods():
    """Wrappers of a jitclass are traced to the class's own code."""
    assert roles()["Box.add"] == ("method", __file__)
    assert roles()["Box.__init__"] == ("constructor", __file__)


def test_plain_function_has_no_role():
    """Only jitclass wrappers have a role."""
    assert numba_api.jitclass_role(decorated) is None
    assert numba_api.jitclass_role(loop) is None


# -- facts -----------------------------------------------------------------------------


def kinds():
    """Return the kinds of the overloads of this file's functions."""
    return {
        numba_api.overload_kind(dispatcher, cres)
        for dispatcher in numba_api.live_dispatchers()
        for cres in dispatcher.overloads.values()
    }


def test_every_kind_of_overload_is_told():
    """Kinds come from dispatcher class, jitclass role and return type."""
    assert {
        "function",
        "generator",
        "object mode",
        "lifted loop",
        "objmode body",
        "constructor",
        "method",
    } <= kinds()


@pytest.mark.parametrize(
    ("thing", "kind"),
    [
        (decorated, "dispatcher"),
        (loop, "vectorize"),
        (row, "guvectorize"),
        (callback, "cfunc"),
        (neighbours, "stencil"),
        (parallel_loop, "ufunc"),
    ],
)
def test_kind_of_function(thing, kind):
    """Every sort of function has its word."""
    identity = FunctionRegistry().identify(thing)
    assert numba_api.dispatcher_info(thing, identity).kind == kind


def info(thing):
    """Return the facts about a function."""
    return numba_api.dispatcher_info(thing, FunctionRegistry().identify(thing))


def test_parameter_names_have_their_star():
    """Names come in the order of a signature."""
    assert numba_api.parameter_names(decorated) == ("a", "b", "*rest")


def test_eager_function_is_told():
    """Explicit signatures close a function."""
    assert info(njit("int64(int64)")(lambda x: x)).eager
    assert not info(decorated).eager


def test_options_are_listed():
    """Options that were given are in the facts."""
    function = njit(nogil=True, fastmath=True)(lambda x: x)
    assert dict(info(function).options)["nogil"] == "True"


def test_enclosing_function_is_named():
    """A factory's function names the factory."""
    assert info(make(1)).defined_in == "make"
    assert info(decorated).defined_in == ""


def test_compiled_functions_in_the_closure_are_named():
    """A closure over a compiled function is what spoils caching; it is named."""
    helper = make(1)

    @njit
    def outer(x):
        return helper(x)

    assert info(outer).closure_functions == ("helper",)


def test_empty_cell_is_no_error():
    """A free variable that is not bound yet is passed over."""

    def build():
        @njit
        def function(x):
            return later(x)

        facts = info(function)
        later = function  # bound after it was looked at
        return facts

    assert build().closure_functions == ()


def test_python_function_of_anything_else_is_none():
    """What wraps no Python function has none."""
    assert numba_api.python_function(np.add) is None
    assert numba_api.python_function(functools.partial(print)) is None


def test_python_function_is_found():
    """The user's function is behind every kind."""
    for thing in (decorated, loop, row, callback, neighbours):
        assert isinstance(numba_api.python_function(thing), python_types.FunctionType)


def test_underlying_ufunc():
    """A DUFunc has a NumPy ufunc inside; a ufunc is its own."""
    assert numba_api.underlying_ufunc(loop) is loop.ufunc
    assert numba_api.underlying_ufunc(np.add) is np.add
