"""The report's table of Python functions."""

from __future__ import annotations

from builders import make_result

from numbaprof.layout import to_text
from numbaprof.model import PythonRow
from numbaprof.python_table import render_python

MICROSECOND = 1_000


def make_row(name, own_us, **changes):
    """Build a row; called once unless told otherwise."""
    figures = {
        "calls": 1,
        "primitive_calls": 1,
        "inclusive_ns": own_us * MICROSECOND,
        "exclusive_ns": own_us * MICROSECOND,
    }
    identity = {
        "file": "/a/b/c.py",
        "line": 7,
        "name": name,
        "qualname": name,
        "kind": "python",
    }
    return PythonRow(**{**identity, **figures, **changes})


def text_of(*rows, top=20):
    """Render rows as text."""
    result = make_result(python_rows=rows)
    return to_text(render_python(result, top=top, width=80))


def test_rows_are_ordered_by_own_time_with_their_place():
    """The dearest is first; the place has the last two parts of the path."""
    shown = text_of(make_row("cheap", 1), make_row("dear", 900, signature="(a: int)"))
    first, second = shown.splitlines()[1:]
    assert first.split() == [
        "1",
        "900",
        "µs",
        "900",
        "µs",
        "dear(a:",
        "int)",
        "b/c.py:7",
    ]
    assert "cheap" in second


def test_recursive_calls_are_shown_as_pstats_does():
    """All calls, a slash, and the primitive ones."""
    assert "8/1" in text_of(make_row("fib", 5, calls=8))


def test_rows_that_are_left_out_are_summed():
    """Nothing is dropped silently."""
    shown = text_of(*(make_row(f"f{n}", n + 1, calls=2) for n in range(5)), top=2)
    assert shown.splitlines()[-1].split() == [
        *["6", "6.00", "µs", "…", "and", "3", "more", "rows,", "see", "p.functions"]
    ]
