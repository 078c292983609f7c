"""LLVM's remarks: on the right lines, and standard error loses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.codegen import CPUCodeLibrary

from numbaprof.errors import OptionError
from numbaprof.native import linetable, remarks, twins
from numbaprof.native.linetable import LineTables
from numbaprof.native.remarks import Remark
from numbaprof.native.twin_store import TwinStore

DATA = np.linspace(0.0, 1.0, 64)
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120


def line_of(mark):
    """Return the line of this file that ends with ``# mark``."""
    with open(__file__) as file:
        for number, text in enumerate(file, 1):
            if text.rstrip().endswith(f"# {mark}"):
                return number
    raise AssertionError(f"no line is marked {mark}")


def two_loops(a, out):
    """Have a loop that vectorizes and one that does not."""
    for i in range(a.size):  # vectorized
        out[i] = a[i] * 3.0
    total = 0.0
    for i in range(a.size):
        total += a[i]  # reduction
    return total


def compiled():
    """Return a fresh function that has been compiled."""
    function = njit(two_loops)
    function(DATA, DATA.copy())
    return function


def texts(found, line):
    """Return what is said of a line."""
    return [remark.text for remark in found if remark.line == line]


def test_remarks_are_on_the_lines_of_the_loops():
    """One loop is vectorized, with its width; of the other one the reason is said."""
    with remarks.collect() as found:
        compiled()
    assert {remark.file for remark in found} == {__file__}
    assert any(
        text.startswith("vectorized loop (vectorization width: ")
        for text in texts(found, line_of("vectorized"))
    )
    assert (
        "loop not vectorized: cannot prove it is safe to reorder floating-point "
        "operations"
    ) in texts(found, line_of("reduction"))
    assert len(set(found)) == len(found)


def test_remarks_on_numbas_own_files_are_left_out_unless_wanted():
    """Sorting is Numba's code."""

    def sorts(a):
        return np.sort(a)

    with remarks.collect() as users:
        njit(sorts)(DATA)
    with remarks.collect(own=True) as all_remarks:
        njit(lambda a: np.sort(a.copy()))(DATA.astype(np.float32))
    assert not any("site-packages/numba" in remark.file for remark in users)
    assert any("quicksort" in remark.file for remark in all_remarks)


def test_remarks_come_from_twins_too():
    """For code that was compiled before."""
    function = compiled()
    with remarks.collect() as found:
        twins.build([function], store=TwinStore(None), budget_s=1e6)
    assert texts(found, line_of("vectorized"))


def test_remarks_are_off_after_the_block(capfd):
    """The next compilation writes none, with line tables or without."""
    with remarks.collect():
        compiled()
    with LineTables():
        compiled()
    compiled()
    assert capfd.readouterr().err == ""


def test_remarks_are_off_after_an_error(capfd):
    """Also where a compilation within the block fails."""
    original = vars(CPUCodeLibrary)["_optimize_final_module"]
    with pytest.raises(ZeroDivisionError), remarks.collect():
        compiled() and 1 / 0
    assert vars(CPUCodeLibrary)["_optimize_final_module"] is original
    assert not linetable.is_active()
    with LineTables():
        compiled()
    assert capfd.readouterr().err == ""


def test_error_of_the_optimizer_puts_standard_error_back(capfd, monkeypatch):
    """What raises within the capture leaves nothing captured."""

    def fails(self):
        os.write(2, b"before\n")
        raise RuntimeError("optimizer")

    monkeypatch.setattr(CPUCodeLibrary, "_optimize_final_module", fails)
    with remarks.collect(), pytest.raises(RuntimeError, match="optimizer"):
        compiled()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


@pytest.mark.parametrize("passes", [(), ("a|b",), ("",), ("^$",)])
def test_names_that_no_pass_has_are_refused(passes):
    """The names become a regular expression of LLVM's."""
    with pytest.raises(OptionError, match="passes"), remarks.collect(passes=passes):
        pass


def test_other_text_is_kept_to_the_byte():
    """Only whole remarks are taken out."""
    written = (
        b"half a "
        b"remark: /a b/c.py:12:3: vectorized loop (vectorization width: 4)\n"
        b"line\nremark: not one\n\xff\n"
        b"remark: f.py:1:2: something new\n"
        b"no newline"
    )
    found, rest = remarks.parse(written)
    assert found == [
        Remark(
            "/a b/c.py",
            12,
            3,
            "loop-vectorize",
            "passed",
            "vectorized loop (vectorization width: 4)",
        ),
        Remark("f.py", 1, 2, "", "unknown", "something new"),
    ]
    assert rest == b"half a line\nremark: not one\n\xff\nno newline"


def test_second_line_of_an_unsafe_dependence_belongs_to_its_remark():
    """Left behind, it would be replayed to the user's standard error."""
    first = b"loop not vectorized: unsafe dependent memory operations in loop."
    second = b"Unsafe indirect dependence. Memory location is the same as at f:4:1"
    lines = (b"remark: f.py:3:1: " + first, second, b"Unsafe at any speed", b"")
    written = b"\n".join(lines)
    ((found,), rest) = remarks.parse(written)
    assert found.text == f"{first.decode()} {second.decode()}"
    assert (found.pass_, found.kind) == ("loop-vectorize", "analysis")
    assert rest == b"Unsafe at any speed\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interleaved loop (interleaved count: 4)", ("loop-vectorize", "passed")),
        ("loop not vectorized", ("loop-vectorize", "missed")),
        ("loop not vectorized: call instruction", ("loop-vectorize", "analysis")),
        ("completely unrolled loop with 3 iterations", ("loop-unroll", "passed")),
        ("unrolled loop by a factor of 8", ("loop-unroll", "passed")),
        ("Stores SLP vectorized with cost -4", ("slp-vectorizer", "passed")),
        ("anything", ("", "unknown")),
    ],
)
def test_pass_and_kind_are_known_by_the_wording(text, expected):
    """LLVM prints only the text."""
    ((remark,), _) = remarks.parse(f"remark: f.py:1:1: {text}\n".encode())
    assert (remark.pass_, remark.kind) == expected


WRITER = """
import os, sys, threading
import numpy as np
from numba import njit
from numbaprof.native import remarks

done = threading.Event()
written = 0


def write():
    global written
    while not done.is_set():
        os.write(2, b"line %d\\n" % written)
        written += 1
        done.wait(0.001)


def kernel(a, out):
    for i in range(a.size):
        out[i] = a[i] * 3.0


thread = threading.Thread(target=write)
thread.start()
with remarks.collect(own=True) as found:
    for _ in range(5):
        njit(kernel)(np.ones(4), np.ones(4))
done.set()
thread.join()
print(written, len(found))
"""


def run(program, **options):
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=True,
        **options,
    )


def test_nothing_that_threads_write_meanwhile_is_lost():
    """Every line arrives once and whole, and no remark does."""
    done = run(WRITER, capture_output=True, text=True)
    written, found = map(int, done.stdout.split())
    assert found > 0
    lines = done.stderr.splitlines()
    assert sorted(lines) == sorted(f"line {n}" for n in range(written))


CLOSED = """
import os
import numpy as np
from numba import njit
from numbaprof.native import remarks

os.close(2)


def kernel(a, out):
    for i in range(a.size):
        out[i] = a[i] * 3.0


with remarks.collect(own=True) as found:
    njit(kernel)(np.ones(4), np.ones(4))
try:
    os.fstat(2)
except OSError:
    print(len(found))
"""


def test_closed_standard_error_stays_closed():
    """Remarks are collected and descriptor 2 is free again."""
    done = run(CLOSED, capture_output=True, text=True)
    assert int(done.stdout) > 0
