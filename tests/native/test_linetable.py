"""Line tables: which lines, of whom, for what is compiled, and nothing left behind."""

from __future__ import annotations

import copy
import math
import pickle
import re
import threading
import warnings

import llvmlite.ir
import numpy as np
import pytest
from numba import cfunc, jit, njit, objmode, prange, stencil, types, vectorize
from numba.core import debuginfo, inline_closurecall
from numba.core.codegen import CPUCodeLibrary
from numba.core.cpu import CPUContext
from numba.core.ir import Loc
from numba.core.lowering import BaseLower
from numba.experimental import jitclass

import numbaprof
from numbaprof.errors import AttachError, SessionStateError
from numbaprof.native import compiling, inline_sites, line_builder, linetable, numba_api
from numbaprof.native.inline_sites import CallSite
from numbaprof.native.linetable import LineTables

HERE = __file__
DATA = np.linspace(0.0, 1.0, 50)


def line_of(mark):
    """Return the line of this file that ends with ``# mark``."""
    with open(HERE) as file:
        for number, text in enumerate(file, 1):
            if text.rstrip().endswith(f"# {mark}"):
                return number
    raise AssertionError(f"no line is marked {mark}")


class Metadata:
    """The debug information of an LLVM module, read from its text."""

    def __init__(self, text):
        self.text = text
        self._nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?(.*)$", text, re.M))

    def _field(self, node, name):
        found = re.search(rf'\b{name}: (?:"([^"]*)"|([^,)]+))', self._nodes[node])
        return found and (found[1] if found[1] is not None else found[2])

    def _function(self, scope):
        while self._nodes[scope].startswith("!DILexicalBlockFile"):
            scope = self._field(scope, "scope")
        return self._field(scope, "name").rpartition(".")[2]

    def stacks(self):
        """Return {((file, line, function), ...)}, innermost first, of all code."""
        found = set()
        for node in re.findall(r"^  .*!dbg (!\d+)", self.text, re.M):
            frames = []
            while node:
                scope = self._field(node, "scope")
                file = self._field(self._field(scope, "file"), "filename")
                line = int(self._field(node, "line"))
                frames.append((file, line, self._function(scope)))
                node = self._field(node, "inlinedAt")
            found.add(tuple(frames))
        return found

    def lines(self, file=HERE):
        """Return the lines of a file that innermost frames are on."""
        return {stack[0][1] for stack in self.stacks() if stack[0][0] == file}


def metadata(dispatcher):
    """Return the debug information of the one overload."""
    (text,) = dispatcher.inspect_llvm().values()
    return Metadata(text)


@njit(inline="always")
def inner(x):
    """Be inlined by Numba into what is inlined by Numba."""
    return math.sqrt(x) + 1.0  # in inner


@njit(inline="always")
def outer(x):
    """Be inlined by Numba."""
    y = inner(x) * 2.0  # call of inner
    return y - x


def calls_inlined(a):
    """Call what Numba inlines."""
    total = 0.0
    for x in a:
        total += outer(x)  # call of outer
    return total


def has_closure(a, c):
    """Call a closure."""

    def local(x):
        return x * c  # in closure

    total = 0.0
    for x in a:
        total += local(x)  # call of closure
    return total


def in_parallel(a):
    """Be a parfor."""
    total = 0.0
    for i in prange(len(a)):  # parfor
        y = a[i] * 3.0  # in parfor
        total += np.exp(y)  # exp in parfor
    return total


def expression(a, b):
    """Be an array expression."""
    c = a + 1.0
    return a * c + np.sqrt(b)  # array expression


@stencil
def neighbours(a):
    """Be a stencil."""
    return a[-1] * 0.5 + a[1]  # in stencil


def calls_stencil(a):
    """Call a stencil."""
    return neighbours(a)


def simple(a):
    """Have a line."""
    return a[0] + 1.0  # simple


# -------------------------------------------------------------------------------- lines


def test_every_line_of_a_plain_function_is_there():
    """Lines of code are found in the module, those of others are not."""
    with LineTables():
        compiled = njit(simple)
        compiled(DATA)
    found = metadata(compiled)
    assert line_of("simple") in found.lines()
    assert found.lines() <= set(range(line_of("simple") - 3, line_of("simple") + 1))
    assert "emissionKind: LineTablesOnly" in found.text


def test_functions_inlined_by_numba_are_frames():
    """Each statement of an inlined function knows all its callers."""
    with LineTables():
        compiled = njit(calls_inlined)
        compiled(DATA)
    assert (
        (HERE, line_of("in inner"), "inner"),
        (HERE, line_of("call of inner"), "outer"),
        (HERE, line_of("call of outer"), "calls_inlined"),
    ) in metadata(compiled).stacks()


def test_closure_is_a_frame():
    """The body of a closure lies within its call."""
    with LineTables():
        compiled = njit(has_closure)
        compiled(DATA, 2.0)
    stacks = metadata(compiled).stacks()
    assert (
        (HERE, line_of("in closure"), "local"),
        (HERE, line_of("call of closure"), "has_closure"),
    ) in stacks


def test_parfor_has_the_lines_of_its_body():
    """The kernel of a parfor has the user's lines and none of its own source."""
    with LineTables():
        compiled = njit(parallel=True)(in_parallel)
        compiled(DATA)
    found = metadata(compiled)
    assert found.lines() >= {line_of("in parfor"), line_of("exp in parfor")}
    assert not [stack for stack in found.stacks() if stack[0][0] == "<string>"]


def test_array_expression_has_the_line_of_the_statement():
    """Numba says line 1 of the file; the user wrote it elsewhere."""
    with LineTables():
        compiled = njit(expression)
        compiled(DATA, DATA)
    found = metadata(compiled).lines()
    assert line_of("array expression") in found
    assert 1 not in found


def test_array_expression_in_a_parfor_has_the_line_of_the_statement():
    """Also where it is compiled within a generated function."""
    with LineTables():
        compiled = njit(parallel=True)(expression)
        compiled(DATA, DATA)
    found = metadata(compiled)
    assert line_of("array expression") in found.lines()
    assert 1 not in found.lines()
    assert not [stack for stack in found.stacks() if stack[0][0] == "<string>"]


def test_stencil_has_the_lines_of_its_kernel():
    """The generated loops are on the kernel's own lines."""
    with LineTables():
        compiled = njit(calls_stencil)
        compiled(DATA)
    found = metadata(compiled)
    assert line_of("in stencil") in found.lines()
    assert not [stack for stack in found.stacks() if stack[0][0] == "<string>"]


def test_method_of_a_jitclass_has_lines():
    """What is inlined from a method lies on the method's lines."""

    @jitclass([("x", types.float64)])
    class Box:
        def __init__(self, x):
            self.x = x

        def scaled(self, c):
            return self.x * c + 0.5  # in method

    def uses(c):
        return Box(1.0).scaled(c)

    with LineTables():
        compiled = njit(uses)
        compiled(2.0)
    assert line_of("in method") in metadata(compiled).lines()


def test_object_mode_block_has_lines():
    """Code on both sides of an objmode block has lines, and LLVM does not complain."""

    def leaves(a):
        with objmode(n="intp"):
            n = len(a)
        return a[0] * n  # after objmode

    with LineTables():
        compiled = njit(leaves)
        compiled(DATA)
    assert line_of("after objmode") in metadata(compiled).lines()


def test_object_mode_function_has_lines(capfd):
    """Lowering of object mode never finishes its debug information; ours is whole."""

    def takes_anything(x):
        return [x]  # object mode

    with LineTables():
        compiled = jit(forceobj=True)(takes_anything)
        compiled(1)
    assert line_of("object mode") in metadata(compiled).lines()
    assert capfd.readouterr().err == ""


def test_lifted_loop_has_lines():
    """A lifted loop has the lines of the loop."""

    def lifts(n):
        object()
        total = 0
        for i in range(n):
            total = total * 3 ^ i  # in lifted loop
        return total

    with LineTables():
        compiled = jit(forceobj=True, looplift=True)(lifts)
        compiled(3)
    (cres,) = compiled.overloads.values()
    assert line_of("in lifted loop") in metadata(cres.lifted[0]).lines()


def kernels_with_wrappers():
    """Compile a ufunc and a C callback; return the modules that LLVM was given."""
    modules = []

    def scaled(x):
        y = x * 3.0  # in kernel
        return y - 1.0

    # As it is stored: a hook may be in place.
    original = vars(CPUCodeLibrary)["add_ir_module"]

    def add_ir_module(self, module):
        original.__get__(self)(module)
        modules.append(str(module))

    CPUCodeLibrary.add_ir_module = add_ir_module
    try:
        vectorize(["float64(float64)"])(scaled)
        cfunc("float64(float64)")(scaled)
    finally:
        CPUCodeLibrary.add_ir_module = original
    return modules


def test_wrappers_have_lines_so_that_what_llvm_inlines_there_keeps_its_own():
    """A ufunc's loop and a callback's wrapper say that they are no source."""
    with LineTables():
        modules = kernels_with_wrappers()
    wrappers = [text for text in modules if line_builder.WRAPPER_FILE in text]
    assert len(wrappers) >= 2
    for text in wrappers:
        stacks = Metadata(text).stacks()
        assert {stack[0][:2] for stack in stacks} == {(line_builder.WRAPPER_FILE, 1)}


@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPendingDeprecationWarning")
def test_wrapper_with_destructors_has_lines():
    """LLVM ends the process when a module says twice that it has lines."""

    def takes(items, found):
        items.append(1)
        found.add(1)
        return len(items)  # takes containers

    with LineTables():
        compiled = njit(takes)
        assert compiled([1, 2], {1, 2}) == 3
    found = metadata(compiled)
    assert line_of("takes containers") in found.lines()
    assert found.text.count('!"Debug Info Version"') == 1


def test_wrappers_of_functions_without_lines_have_none():
    """A wrapper alone would say nothing."""
    kernels_with_wrappers()
    assert not any(
        line_builder.WRAPPER_FILE in text for text in kernels_with_wrappers()
    )


# ------------------------------------------------------------------------ being a guest


def compiles_with_lines():
    """Tell whether a function compiled now has a line table."""
    compiled = njit(lambda x: x + 1)
    compiled(1)
    return "LineTablesOnly" in metadata(compiled).text


def test_stop_restores_numba_exactly():
    """Every name that was set has what it had before, or is gone again."""
    names = (
        (CPUContext, "enable_debuginfo"),
        (CPUContext, "DIBuilder"),
        (BaseLower, "_compute_def_location"),
        (inline_closurecall, "inline_closure_call"),
        (inline_closurecall.InlineWorker, "inline_ir"),
    )
    before = [vars(owner).get(name) for owner, name in names]
    tables = LineTables()
    tables.start()
    assert linetable.is_active()
    assert all(
        vars(owner).get(name) is not old
        for (owner, name), old in zip(names, before, strict=True)
    )
    assert tables.stop() == ()
    assert not linetable.is_active()
    assert [vars(owner).get(name) for owner, name in names] == before
    assert "DIBuilder" not in vars(CPUContext)
    assert not compiles_with_lines()


def test_error_while_line_tables_are_on_restores_numba():
    """Leaving the block by an exception leaves nothing behind."""
    with pytest.raises(KeyError), LineTables():
        raise KeyError
    assert not linetable.is_active()
    assert not compiles_with_lines()


def test_failing_to_start_leaves_nothing_behind(monkeypatch):
    """Where a hook cannot be placed, what was patched before is restored."""
    monkeypatch.setattr(inline_closurecall, "inline_closure_call", len)
    with pytest.raises(AttachError):
        LineTables().start()
    assert not linetable.is_active()
    assert "enable_debuginfo" not in vars(CPUContext)


def test_last_of_several_restores():
    """Line tables of two users end with the second."""
    one, two = LineTables(), LineTables()
    one.start()
    two.start()
    assert one.stop() == ()
    assert compiles_with_lines()
    assert two.stop() == ()
    assert not compiles_with_lines()


def test_starting_twice_raises():
    """The second start of one object is a mistake."""
    with LineTables() as tables, pytest.raises(SessionStateError, match="twice"):
        tables.start()


def test_stopping_what_is_not_on_does_nothing():
    """Stop may come at any time."""
    assert LineTables().stop() == ()


def test_place_that_somebody_replaced_is_left_and_reported(monkeypatch):
    """What was changed after us belongs to others."""
    tables = LineTables()
    tables.start()
    theirs = lambda self: None  # noqa: E731
    ours = BaseLower._compute_def_location
    BaseLower._compute_def_location = theirs
    try:
        (reason,) = tables.stop()
        assert "BaseLower._compute_def_location" in reason
        assert BaseLower._compute_def_location is theirs
    finally:
        # As found: the method that ours had in its closure.
        BaseLower._compute_def_location = ours.__closure__[0].cell_contents


@pytest.mark.parametrize("session_first", [True, False])
def test_lines_and_a_session_may_overlap(session_first):
    """Both hook the compiler; either may stop first, and all is restored."""
    tables, profile = LineTables(), numbaprof.profile()
    parts = [profile, tables] if session_first else [tables, profile]
    for part in parts:
        part.start()
    assert compiles_with_lines()
    if session_first:
        profile.stop()
        assert compiles_with_lines()
        assert tables.stop() == ()
    else:
        assert tables.stop() == ()
        assert not compiles_with_lines()
        profile.stop()
    assert profile.result.losses.unrestored == ()
    assert profile.result.losses.hook_errors == ()
    assert len(profile.result.compile_events) >= 1


def test_debug_build_of_the_user_is_numbas_own():
    """``debug=True`` gives full debug information, warnings included, as ever."""
    with LineTables(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = njit(debug=True)(simple)
        compiled(DATA)
    text = metadata(compiled).text
    assert "emissionKind: FullDebug" in text
    assert "LineTablesOnly" not in text
    assert "DILocalVariable" in text


def test_failing_compilation_raises_what_it_always_does():
    """An error of typing comes as without line tables."""

    def wrong(x):
        return x.nothing

    def failure():
        with pytest.raises(Exception) as caught:  # noqa: PT011 - compared below
            njit(wrong)(1)
        return type(caught.value), str(caught.value)

    plain = failure()
    with LineTables():
        assert failure() == plain


def test_no_hook_fails():
    """Compiling the kinds above met no error within our own hooks."""
    with LineTables() as tables:
        njit(has_closure)(DATA, 1.0)
        njit(calls_inlined)(DATA)
        njit(parallel=True)(in_parallel)(DATA)
        assert tables.problems == ()


def test_other_threads_get_lines_as_well():
    """Line tables hold for the process."""
    found = []
    with LineTables():
        thread = threading.Thread(target=lambda: found.append(compiles_with_lines()))
        thread.start()
        thread.join()
    assert found == [True]


# ----------------------------------------------------------------------- caches on disk


def cached_function(folder, name):
    """Return a caching function of a file of its own, and a helper it calls."""
    path = folder / f"{name}.py"
    path.write_text(
        "from numba import njit\n"
        "@njit\n"
        "def helper(x):\n"
        "    return x * 2\n"
        "@njit(cache=True)\n"
        "def cached(x):\n"
        "    return helper(x) + 1\n"
    )
    space = {"__name__": name, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return space["cached"], space["helper"]


def saved(folder):
    """Return what the cache files hold."""
    return b"".join(path.read_bytes() for path in folder.rglob("*.nbc"))


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """Cache into a folder of its own."""
    from numba.core import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_saved_in_the_users_cache_has_no_lines(tmp_path, cache_folder):
    """Neither the function nor a helper compiled for it."""
    cached, helper = cached_function(tmp_path, "plain_cache")
    with LineTables():
        cached(1)
    assert saved(cache_folder)
    assert b".debug_line" not in saved(cache_folder)
    assert "LineTablesOnly" not in metadata(helper).text


def test_lines_are_saved_when_asked_for(tmp_path, cache_folder):
    """With ``cached=True`` the next process loads the table with the code."""
    cached, _ = cached_function(tmp_path, "lines_cache")
    with LineTables(cached=True):
        cached(1)
    assert b".debug_line" in saved(cache_folder)


def test_nothing_that_compiles_is_no_compilation_for_a_cache():
    """Outside the compiler the stack says so."""
    assert not compiling.is_for_cache()
    assert compiling.enclosing_lowerer() is None
    assert compiling.enclosing_stencil() is None


# --------------------------------------------------------------------------- call sites


def test_call_site_is_never_copied():
    """Copies of statements stay within one inlining."""
    site = CallSite("f.py", 1, "g", "g.py", 2, None)
    assert copy.deepcopy([site])[0] is site
    assert pickle.loads(pickle.dumps(site)) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("/a/b.py", "/a/b.py"), ("<string>", "<string>"), (None, "<unknown>")],
)
def test_source_file_keeps_what_is_no_file(name, expected):
    """Only files are made absolute."""
    assert inline_sites.source_file(name) == expected


def test_own_files_are_numbas_but_for_its_tests():
    """A file is known by its folder."""
    assert numba_api.is_own_file(debuginfo.__file__)
    assert not numba_api.is_own_file(HERE)


def test_place_that_numba_does_not_know_is_line_zero():
    """It is no file and not the line before."""
    module = llvmlite.ir.Module()
    builder = line_builder.LineBuilder(module, HERE)
    assert builder.place_of(Loc("unknown location", 0)) == ((HERE, 0), None)


def test_module_says_once_that_it_has_lines():
    """Two builders of one module are one set of flags, or LLVM ends the process."""
    module = llvmlite.ir.Module()
    line_builder.LineBuilder(module, HERE)
    line_builder.LineBuilder(module, HERE)
    assert len(module.namedmetadata["llvm.module.flags"].operands) == 2
