"""From frames of machine code to lines of overloads."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from builders import make_function

from numbaprof.line_resolution import (
    LineResolver,
    Owners,
    PhysicalFrame,
    SourceRange,
)

KERNEL = make_function("kernel", line=10)
HELPER = make_function("helper", line=30)
POLY = make_function("poly", line=50)
NUMBA_FILE = "/site/numba/np/arraymath.py"
OWNERS = {
    "_ZN8kernel_i": (KERNEL, "(int64)"),
    "kernel_f": (KERNEL, "(float64)"),
    "helper_f": (HELPER, "(float64)"),
    "poly_i": (POLY, "(int64)"),
    "poly_f": (POLY, "(float64)"),
}
RANGES = (
    SourceRange("demo.py", 10, 20, KERNEL),
    SourceRange("demo.py", 30, 35, HELPER),
    SourceRange("demo.py", 50, 55, POLY),
)


class Frame(NamedTuple):
    """A frame as a line table gives it."""

    line: int
    file: str = "demo.py"
    function: str = "kernel"
    inlined: bool = False


class Stack(NamedTuple):
    """A counted stack before its lines are known."""

    count: int = 1
    thread: str = "MainThread"
    bin: str = "function"
    callee: str = ""


@pytest.fixture
def resolver():
    """Return a resolver that knows three functions."""
    return LineResolver(Owners(OWNERS, RANGES), lambda file: "/numba/" in file)


def lines(resolver, *frames, **stack):
    """Resolve one stack, innermost frame first; return it and its lines as text."""
    found = resolver.stack(Stack(**stack), frames)
    sites = [resolver.sites[frame] for frame in found.frames]
    return found, [f"{s.function.qualname}{s.signature}:{s.line}" for s in sites]


def test_line_belongs_to_the_overload_that_the_code_is_of(resolver):
    """The symbol says which."""
    found, named = lines(resolver, PhysicalFrame("kernel_f", (Frame(12),)))
    assert found.bin == "line"
    assert named == ["kernel(float64):12"]


def test_inlined_function_is_unfolded_below_its_caller(resolver):
    """Outermost first; the one overload there is of it is the one."""
    frames = (Frame(31, function="helper", inlined=True), Frame(12))
    _, named = lines(resolver, PhysicalFrame("_ZN8kernel_i", frames))
    assert named == ["kernel(int64):12", "helper(float64):31"]


def test_inlined_function_of_several_overloads_has_no_signature(resolver):
    """Which one was inlined is not in the machine code; it is not guessed."""
    frames = (Frame(51, function="poly", inlined=True), Frame(12))
    _, named = lines(resolver, PhysicalFrame("_ZN8kernel_i", frames))
    assert named == ["kernel(int64):12", "poly:51"]


def test_calls_between_machine_frames_are_outermost_first(resolver):
    """The stack reads from the caller down."""
    _, named = lines(
        resolver,
        PhysicalFrame("helper_f", (Frame(31, function="helper"),)),
        PhysicalFrame("kernel_f", (Frame(15),)),
    )
    assert named == ["kernel(float64):15", "helper(float64):31"]


def test_body_of_a_parallel_loop_belongs_to_the_overload_that_links_it(resolver):
    """A worker thread's stack has no frame of the function itself."""
    body = Frame(14, function="__numba_parfor_gufunc_1")
    frame = PhysicalFrame("gufunc_7", (body,), linked_from=("kernel_f",))
    _, named = lines(resolver, frame)
    assert named == ["kernel(float64):14"]


def test_frame_of_numba_is_internal(resolver):
    """It is kept, and marked, so that it can be collapsed or shown."""
    frames = (Frame(170, NUMBA_FILE, "array_sum_impl", inlined=True), Frame(12))
    found, named = lines(resolver, PhysicalFrame("_ZN8kernel_i", frames))
    assert named == ["kernel(int64):12", "array_sum_impl:170"]
    assert [resolver.sites[f].internal for f in found.frames] == [False, True]
    assert found.bin == "line"


def test_code_without_a_line_table_is_known_by_its_function(resolver):
    """Function level, and the bin says so."""
    found, named = lines(resolver, PhysicalFrame("_ZN8kernel_i", ()))
    assert found.bin == "function"
    assert named == ["kernel(int64):0"]


def test_wrapper_is_its_function_without_a_line(resolver):
    """Converting arguments happens on no line of the user's."""
    found, named = lines(resolver, PhysicalFrame("_ZN7cpython8kernel_i", ()))
    assert (found.bin, named) == ("function", ["kernel(int64):0"])
    wrapper = Frame(0, "<wrapper>", "wrapper of kernel_i")
    found, named = lines(resolver, PhysicalFrame("_ZN7cpython8kernel_i", (wrapper,)))
    assert (found.bin, named) == ("function", ["kernel(int64):0"])


def test_wrapper_above_a_line_of_its_function_adds_nothing(resolver):
    """It only called it."""
    _, named = lines(
        resolver,
        PhysicalFrame("_ZN8kernel_i", (Frame(12),)),
        PhysicalFrame("_ZN7cpython8kernel_i", ()),
    )
    assert named == ["kernel(int64):12"]


def test_lifted_loop_keeps_its_lines_to_itself(resolver):
    """Its lines are within its function's source; the code is its own."""
    loop = make_function("kernel [loop at line 14]", line=14)
    owners = Owners({"loop": (loop, "()")}, RANGES)
    resolver = LineResolver(owners, lambda file: False)
    _, named = lines(resolver, PhysicalFrame("loop", (Frame(15),)))
    assert named == ["kernel [loop at line 14]():15"]


def test_helper_without_lines_is_charged_to_the_line_that_called_it(resolver):
    """Counting references is done for a line."""
    _, named = lines(
        resolver,
        PhysicalFrame("NRT_incref", ()),
        PhysicalFrame("_ZN8kernel_i", (Frame(13),)),
    )
    assert named == ["kernel(int64):13"]


def test_function_without_lines_keeps_its_time_below_one_with_lines(resolver):
    """What a refused twin leaves is function level, not its caller's own code."""
    found, named = lines(
        resolver,
        PhysicalFrame("helper_f", ()),
        PhysicalFrame("kernel_f", (Frame(13),)),
    )
    assert named == ["kernel(float64):13", "helper(float64):0"]
    assert found.bin == "function"


def test_unknown_code_is_named_by_its_symbol(resolver):
    """In a bin, under a name, and nobody's."""
    found, named = lines(resolver, PhysicalFrame("NRT_incref", ()))
    assert (found.bin, named) == ("function", ["NRT_incref:0"])
    assert resolver.sites[found.frames[0]].internal


def test_line_of_a_function_that_was_never_jitted_is_its_own(resolver):
    """``inline='always'`` of a helper in another module."""
    frames = (Frame(5, "other.py", "inner", inlined=True), Frame(12))
    _, named = lines(resolver, PhysicalFrame("_ZN8kernel_i", frames))
    assert named == ["kernel(int64):12", "inner:5"]


def test_stack_without_compiled_code_keeps_its_bin(resolver):
    """Python is Python."""
    found, named = lines(resolver, bin="python", callee="memcpy (libc)", count=3)
    assert (found.bin, found.count, named) == ("python", 3, [])


def test_user_code_in_a_generated_file_is_the_user_s():
    """Functions made by ``exec`` are in ``<string>``, as Numba's own are."""
    function = make_function("made", file="<string>", line=1)
    owners = Owners(
        {"made": (function, "()")}, (SourceRange("<string>", 1, 3, function),)
    )
    resolver = LineResolver(owners, lambda file: False)
    _, named = lines(resolver, PhysicalFrame("made", (Frame(2, "<string>", "made"),)))
    assert named == ["made():2"]


def test_equal_lines_are_one_site(resolver):
    """Two stacks through one line refer to the same."""
    a, _ = lines(resolver, PhysicalFrame("_ZN8kernel_i", (Frame(12),)))
    b, _ = lines(resolver, PhysicalFrame("_ZN8kernel_i", (Frame(12),)), thread="worker")
    assert a.frames == b.frames
    assert len(resolver.sites) == 1


def test_wrapper_is_none_of_the_user_s_lines_though_some_are_in_such_a_file():
    """Code of the user's in ``<string>`` makes no line of what Numba wrote there."""
    made = make_function("made", file="<string>", line=1)
    owners = Owners(
        {"made": (made, "()"), "method": (KERNEL, "(int64)")},
        (*RANGES, SourceRange("<string>", 1, 3, made)),
    )
    resolver = LineResolver(owners, lambda file: False)
    frame = PhysicalFrame("method", (Frame(3, "<string>", "method"),))
    assert lines(resolver, frame)[1] == ["kernel(int64):0"]
