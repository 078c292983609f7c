"""Each claim of an explanation, checked against the code by other means."""

from __future__ import annotations

import os
import re
import sys
from itertools import pairwise
from pathlib import Path

import explained_kernels as kernels
import llvmlite.binding as llvm
import numpy as np
import pytest
from dwarf_oracle import Oracle
from numba import njit, vectorize

import numbaprof
from numbaprof.errors import TargetError
from numbaprof.explanation import explain_file, explain_name
from numbaprof.native import objcode
from numbaprof.native.disassembly import disassemble
from numbaprof.native.line_events import LineEvents
from numbaprof.native.linetable import LineTables

KERNELS = [kernel for kernel, _ in kernels.CALLS]


@pytest.fixture(scope="module")
def explained():
    """Explain all kernels, once."""
    for kernel, args in kernels.CALLS:
        if not kernel.overloads:
            kernel(*args)
    return {kernel: numbaprof.explain(kernel) for kernel in KERNELS}


def only(explanation):
    """Return the evidence of the one overload."""
    (overload,) = explanation.evidence.overloads
    assert overload.reason == ""
    return overload


def line_of(kernel, text):
    """Return the number of the line of a kernel that has ``text`` in it."""
    file = Path(kernels.__file__).read_text().splitlines()
    first = kernel.py_func.__code__.co_firstlineno
    return next(n for n in range(first, first + 20) if text in file[n - 1])


def instructions_of(kernel):
    """Return the machine code of a kernel's one overload that runs, decoded here."""
    (cres,) = kernel.overloads.values()
    found = objcode.load_objects().with_symbol(cres.fndesc.llvm_func_name)
    symbol = found.symbol(cres.fndesc.llvm_func_name)
    low = symbol.address - found.start
    return disassemble(found.text[low : low + symbol.size], symbol.address)


def lines_with_rows(kernel, args):
    """Return the lines of a kernel's function that pyelftools finds in a line table."""
    options = dict(kernel.targetoptions)
    options.pop("nopython")
    with LineTables():
        njit(kernel.py_func, **options)(*args)
    found = set()
    for one in objcode.load_objects():
        if one.has_lines:
            rows = Oracle(one.elf.data).rows()
            found.update(
                line
                for (low, file, line), (high, _, _) in pairwise(rows)
                if file == kernels.__file__ and low < high
            )
    return found


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_every_instruction_is_on_a_line_or_said_to_be_on_none(explained, kernel):
    """And there are as many as the code has."""
    overload = only(explained[kernel])
    placed = sum(line.total for line in overload.lines)
    definition = overload.instructions - overload.without_line - placed
    # What is left belongs to the line of the def: taking arguments over.
    assert definition >= 0
    if kernel is not kernels.regions:
        real = [one for one in instructions_of(kernel) if not one.is_padding]
        assert overload.instructions == len(real)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_line_said_to_have_no_code_has_none(explained, kernel):
    """No row of the line table names it, read by pyelftools in another build."""
    overload = only(explained[kernel])
    empty = {line.line for line in overload.lines if not line.total}
    rows = lines_with_rows(kernel, dict(kernels.CALLS)[kernel])
    assert rows
    assert not empty & rows


@pytest.mark.parametrize("kernel", [kernels.vector, kernels.free_sum])
def test_loop_said_to_be_four_wide_computes_on_four_numbers(explained, kernel):
    """Or as many as the machine's registers hold; the disassembly agrees."""
    overload = only(explained[kernel])
    (loop,) = [remark for remark in overload.remarks if remark.vector_width]
    widest = max(one.packed_fp_bits for one in instructions_of(kernel))
    assert loop.vector_width * 64 == widest
    assert f"{loop.vector_width} iterations per instruction" in str(explained[kernel])
    table = explained[kernel].lines
    row = table[table.line == loop.line].iloc[0]
    assert (row.vector_width, row.interleave) == (loop.vector_width, loop.interleave)


@pytest.mark.parametrize(
    ("kernel", "advice"),
    [
        (kernels.ordered_sum, "fastmath={'reassoc', 'nsz'}"),
        (kernels.early, "break, return, or an error"),
        (kernels.gathered, "an index is computed in a way|may read what one before"),
        (kernels.recurrence, "may read what one before|an iteration needs a value"),
    ],
)
def test_loop_said_not_to_be_vectorized_has_no_packed_arithmetic(
    explained, kernel, advice
):
    """And the explanation says what to change, beside LLVM's words."""
    overload = only(explained[kernel])
    assert not any(remark.vector_width for remark in overload.remarks)
    assert not any(one.packed_fp_bits for one in instructions_of(kernel))
    text = " ".join(str(explained[kernel]).split())
    assert "(LLVM: loop not vectorized: " in text
    assert re.search(advice, text)


def test_inlined_function_is_not_called(explained):
    """The optimized IR has no call of it left."""
    overload = only(explained[kernels.vector])
    (one,) = [inlined for inlined in overload.inlined if not inlined.internal]
    assert (one.function, one.line) == (
        "doubled",
        line_of(kernels.vector, "doubled(a[i])"),
    )
    assert one.callee_line == line_of(kernels.doubled, "return")
    (ir,) = kernels.vector.inspect_llvm().values()
    assert not re.search(r"call .*doubled", ir)
    assert one.instructions > 0


def test_numba_s_own_code_is_on_the_line_that_calls_it(explained):
    """Whether or not its own lines are known, which depends on when it was compiled."""
    overload = only(explained[kernels.table_of_numba])
    (line,) = [
        line
        for line in overload.lines
        if line.line == line_of(kernels.table_of_numba, "np.zeros")
    ]
    assert line.total > 10
    assert all(one.internal for one in overload.inlined)


def test_work_said_to_be_moved_out_of_a_loop_is_in_no_loop(explained):
    """The square root is outside all ranges that a jump backwards goes over."""
    line = line_of(kernels.invariant, "sqrt")
    table = explained[kernels.invariant].lines
    assert list(table[table.moved_out_of_loop].line) == [line]
    code = instructions_of(kernels.invariant)
    roots = [one.address for one in code if "sqrt" in one.mnemonic]
    jumps = [
        (int(one.operands.rpartition("0x")[2], 16), one.address)
        for one in code
        if one.mnemonic.startswith("j") and "0x" in one.operands
    ]
    assert roots
    assert not any(to <= root <= at for root in roots for to, at in jumps)


def test_loop_that_became_a_formula_is_no_machine_loop(explained):
    """The sum of 0..n-1 is computed without going round."""
    overload = only(explained[kernels.formula])
    assert overload.loops == 0
    assert all(line.in_loops == 0 for line in overload.lines)


def test_parallel_region_is_part_of_its_function(explained):
    """Its code is a function of its own for LLVM."""
    overload = only(explained[kernels.regions])
    body = line_of(kernels.regions, "* 3.0")
    (line,) = [line for line in overload.lines if line.line == body]
    assert line.total > 0
    assert line.in_loops > 0


def test_lines_are_a_table(explained):
    """One row for each line that has byte code."""
    table = explained[kernels.vector].lines
    assert set(table.line) == LineEvents(kernels.vector.py_func.__code__).lines
    assert list(table.columns) == [
        "function", "signature", "file", "line", "instructions",
        "inlined_instructions", "inlined_from", "stretches", "in_loops",
        "vector_width", "interleave", "remark", "moved_out_of_loop", "source",
        "reason",
    ]  # fmt: skip
    row = table[table.line == line_of(kernels.vector, "doubled(a[i])")].iloc[0]
    assert row.inlined_from == "doubled"
    assert row.source.strip() == "b[i] = doubled(a[i])"


def test_text_has_the_reason_the_evidence_and_the_way_out(explained):
    """In this order, within 88 columns; the same in HTML."""
    explanation = explained[kernels.vector]
    text = str(explanation)
    assert text.index("A line profiler reads a clock") < text.index("Instr.")
    assert text.index("Instr.") < text.index("numbaprof.lines(vector)(...)")
    assert max(map(len, text.splitlines())) <= 88
    html = explanation._repr_html_()
    assert html.startswith("<pre>")
    assert "hits=True" in html


def test_each_overload_has_its_evidence():
    """They differ, and the text says that they may."""

    @njit
    def twice(a):
        for i in range(a.shape[0]):
            a[i] *= 2

    twice(np.arange(8.0))
    twice(np.arange(8.0)[::2])
    explanation = numbaprof.explain(twice)
    assert [one.signature for one in explanation.evidence.overloads] == [
        "(float64[::1],)".replace(",)", ")"),
        "(float64[:])",
    ]
    assert "2 compiled overloads behind it, one per combination" in " ".join(
        str(explanation).split()
    )


def test_explained_function_is_left_alone(explained):
    """Its overloads are those that it had, and remarks are off again."""

    @njit
    def later(a):
        s = 0.0
        for i in range(a.shape[0]):
            s += a[i]
        return s

    before = dict(kernels.ordered_sum.overloads)
    numbaprof.explain(kernels.ordered_sum)
    assert dict(kernels.ordered_sum.overloads) == before
    reader, writer = os.pipe()
    saved = os.dup(2)
    os.dup2(writer, 2)
    try:
        later(np.arange(3.0))
        llvm.check_jit_execution()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b""


def test_code_that_cannot_be_compiled_again_the_same_gives_no_evidence():
    """A global has another value by now: what runs is not what one would read."""
    names = {}
    exec(
        "from numba import njit\nfactor = 2.5\n"
        "@njit\ndef scaled(a):\n"
        "    for i in range(a.shape[0]):\n        a[i] = a[i] * factor + factor\n"
        "        if factor > 3: a[i] = 0\n",
        names,
    )
    names["scaled"](np.arange(3.0))
    names["factor"] = 4.5
    (overload,) = numbaprof.explain(names["scaled"]).evidence.overloads
    assert "compiled again it is other machine code" in overload.reason
    assert "No evidence: compiled again" in " ".join(
        str(numbaprof.explain(names["scaled"])).split()
    )


def test_function_without_source_is_explained_by_line_numbers():
    """Of code from exec there is nothing to show but numbers."""
    names = {}
    exec(
        "from numba import njit\n@njit\ndef plus(a):\n    b = a + 1\n    return b",
        names,
    )
    names["plus"](1)
    explanation = numbaprof.explain(names["plus"])
    assert set(explanation.lines.source) == {""}
    assert list(explanation.lines.line) == [4, 5]


@vectorize
def ufunc(x):
    """Be no dispatcher."""
    return x


@njit
def never(x):
    """Not be compiled."""
    return x


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (line_of, "line_of is a Python function, which Numba did not compile"),
        (len, "len is a builtin_function_or_method, which Numba did not compile"),
        (never, "never has not been compiled yet.*Call it once"),
        (ufunc, "ufunc is a DUFunc; explain.. reads functions made by @jit"),
        (3, "3 is a int, not a function"),
    ],
)
def test_what_cannot_be_explained_is_refused(thing, message):
    """With what to do about it."""
    with pytest.raises(TargetError, match=message):
        numbaprof.explain(thing)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_at_all:f", "cannot import 'no_such_module_at_all'"),
        ("explained_kernels:missing", "has no 'missing'; it has ARRAY, CALLS"),
    ],
)
def test_name_that_leads_nowhere_is_refused(name, message):
    """By naming the part that is wrong."""
    before = list(sys.path)
    with pytest.raises(TargetError, match=message):
        explain_name(name)
    assert sys.path == before


def test_file_without_jitted_functions_says_so():
    """In a sentence instead of an explanation."""
    (sentence,) = explain_file(("nowhere.py",))
    assert "nowhere.py did not define any jitted function" in sentence
