"""Line tables and remarks change no machine code: `.text` is the same to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import kernel_corpus
import pytest

TESTS = Path(__file__).parent
TIMEOUT_S = 600
WITHOUT_LINES = ("nrt_", "NRT_")
"""Objects that Numba's runtime brings along; it writes them as IR, from no source."""


def compile_corpus(folder, mode, names):
    """Return the objects that a fresh process made of some kernels."""
    output = folder / f"{mode}.json"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    # Object mode pickles a function into its code, whose length follows the order of
    # sets.
    environment |= {"PYTHONPATH": str(TESTS.parent), "PYTHONHASHSEED": "0"}
    program = [sys.executable, str(TESTS / "kernel_corpus.py"), str(output)]
    subprocess.run(
        [*program, "--mode", mode, "--only", ",".join(names)],
        env=environment,
        check=True,
        timeout=TIMEOUT_S,
        capture_output=True,
    )
    return json.loads(output.read_text())["objects"]


def different(one, other):
    """Return the symbols of the objects whose machine code differs."""
    assert len(one) == len(other)
    return [
        b["symbols"]
        for a, b in zip(one, other, strict=True)
        if (a["sha256"], a["size"]) != (b["sha256"], b["size"])
    ]


def without_lines(objects):
    """Return the symbols of the objects that were to have a line table and do not."""
    return [
        found["symbols"]
        for found in objects
        if found["symbols"]
        and not found["has_lines"]
        and not found["symbols"][0].startswith(WITHOUT_LINES)
    ]


LONG = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(kernel_corpus.FAST[:4], id="some"),
        pytest.param(tuple(kernel_corpus.CORPUS), id="all", marks=LONG),
    ],
)
def test_machine_code_is_the_same_with_line_tables(tmp_path, names):
    """Two processes, one with line tables, make the same code of every kernel."""
    plain = compile_corpus(tmp_path, "plain", names)
    lines = compile_corpus(tmp_path, "lines", names)
    assert different(plain, lines) == []
    assert without_lines(lines) == []
    assert not any(found["has_lines"] for found in plain)


@pytest.mark.long
@pytest.mark.slow
def test_machine_code_is_the_same_with_remarks(tmp_path):
    """Asking LLVM what it did changes nothing of what it does."""
    names = kernel_corpus.FAST
    plain = compile_corpus(tmp_path, "plain", names)
    assert different(plain, compile_corpus(tmp_path, "remarks", names)) == []


def test_corpus_is_large():
    """There are kernels enough to mean something."""
    assert len(kernel_corpus.CORPUS) >= 35
