"""The words of an explanation, for evidence made up."""

from __future__ import annotations

import linecache

import pytest

from numbaprof.evidence import (
    FunctionEvidence,
    InlinedCode,
    LineEvidence,
    LoopEvidence,
    OverloadEvidence,
)
from numbaprof.explain_text import describe, moved_lines, sources
from numbaprof.model import FunctionId

FILE = "<made up>"
SOURCE = """\
def f(a, c):
    for i in range(a.shape[0]):
        k = c * 2
        if a[i] > 3:
            return k
        a[i] = k
    return 0
"""


@pytest.fixture(autouse=True)
def source():
    """Let the source be known, as that of a notebook's cell is."""
    linecache.cache[FILE] = (len(SOURCE), None, SOURCE.splitlines(True), FILE)
    yield
    del linecache.cache[FILE]


def evidence(*lines, remarks=(), inlined=(), reason="", loops=1):
    """Make evidence of one overload; lines are (line, own, in_loops, stretches)."""
    overload = OverloadEvidence(
        "(float64[::1], float64)",
        instructions=40,
        without_line=10,
        loops=loops,
        lines=tuple(
            LineEvidence(line, own, 0, stretches, in_loops, 0)
            for line, own, in_loops, stretches in lines
        ),
        inlined=inlined,
        remarks=tuple(LoopEvidence(FILE, *remark) for remark in remarks),
        reason=reason,
    )
    return FunctionEvidence(FunctionId("m", "f", FILE, 1), 7, (overload,))


def words(found, **options):
    """Return the text in one line."""
    return " ".join(describe(found, **options).split())


def test_lines_without_code_are_listed_as_ranges():
    """One, and several."""
    one = evidence((2, 4, 4, 1), (3, 0, 0, 0), (6, 3, 3, 1))
    assert "Line 3 has no instruction: what it says" in words(one)
    several = evidence((2, 4, 4, 1), (3, 0, 0, 0), (4, 0, 0, 0), (6, 0, 0, 0))
    assert "Lines 3-4, 6 have no instruction: what they say" in words(several)


def test_line_in_a_loop_of_the_source_only_was_moved():
    """Lines behind a condition may run once anyway and are not claimed."""
    found = evidence((2, 4, 4, 1), (3, 2, 0, 1), (5, 2, 0, 1), (6, 3, 3, 1))
    assert moved_lines(found, found.overloads[0]) == {3}
    assert "Line 3 stands in a loop of the source, but has no instruction" in words(
        found
    )


def test_nothing_was_moved_out_of_a_loop_that_is_gone():
    """Where no line is in a machine loop, there is no inside."""
    found = evidence((2, 4, 0, 1), (3, 2, 0, 1), (6, 3, 0, 1), loops=0)
    assert moved_lines(found, found.overloads[0]) == set()


def test_move_that_llvm_told_of_is_told():
    """If it is a statement's; how a loop counts is nobody's concern."""
    found = evidence(
        (2, 4, 4, 1),
        (3, 0, 0, 0),
        remarks=[(3, True, "hoisting call"), (2, True, "hoisting icmp")],
    )
    text = words(found)
    assert "Line 3: LLVM moved work out of the loop" in text
    assert "icmp" not in text
    assert moved_lines(found, found.overloads[0]) == {3}


def test_reason_for_a_loop_stands_in_place_of_the_bare_remark():
    """LLVM gives both; a loop without a reason keeps the bare one."""
    bare = (2, False, "loop not vectorized")
    reason = (6, False, "loop not vectorized: cannot identify array bounds")
    both = words(evidence((2, 4, 4, 1), remarks=[reason, bare]))
    assert both.count("loop not vectorized") == 1
    alone = words(evidence((2, 4, 4, 1), remarks=[bare]))
    assert "Line 2: LLVM: loop not vectorized." in alone


def test_vector_loop_has_its_width():
    """And how many vectors are worked on at a time, if more than one."""
    text = words(
        evidence(
            (2, 4, 4, 1),
            remarks=[
                (
                    2,
                    True,
                    "vectorized loop (vectorization width: 8, interleaved count: 2)",
                )
            ],
        )
    )
    assert "vector code, 8 iterations per instruction, 2 such vectors at a time" in text


def test_inlined_function_of_the_user_has_its_place():
    """Numba's own are added up."""
    found = evidence(
        (2, 4, 4, 1),
        inlined=(
            InlinedCode(6, "g", "g.py", 3, 7, internal=False),
            InlinedCode(6, "h", "numba.py", 3, 7, internal=True),
        ),
    )
    assert "Line 6 contains g (g.py:3): 7 instructions, inlined" in words(found)
    assert "numba.py" not in words(found)


def test_missing_evidence_has_its_reason():
    """In place of everything else on the overload."""
    text = words(evidence(reason="it is not there"))
    assert "No evidence: it is not there." in text
    assert "Instr." not in text


def test_general_part_can_be_left_out():
    """For the second of several functions."""
    found = evidence((2, 4, 4, 1))
    assert "A line profiler reads a clock" in words(found)
    assert "A line profiler reads a clock" not in words(found, general=False)


def test_source_is_dedented():
    """Functions within others would stand far to the right."""
    indented = "".join(f"        {line}\n" for line in SOURCE.splitlines())
    linecache.cache[FILE] = (len(indented), None, indented.splitlines(True), FILE)
    assert sources(evidence((2, 4, 4, 1)))[1] == "def f(a, c):"
