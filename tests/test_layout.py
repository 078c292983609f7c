from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbaprof.layout import Column, Row, fold, heading, tabulate, to_ascii, to_text


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("short", 10, ["short"]),
        ("two words", 7, ["two", "  words"]),
        (
            "f(float64[:, ::1], int64)",
            20,
            ["f(float64[:, ::1],", "  int64)"],
        ),
        (
            "package.module(int64)",
            18,
            ["package.module(", "  int64)"],
        ),
        ("a/long_file_name.py:1", 13, ["a/long_file_", "  name.py:1"]),
        ("abcdefghij", 4, ["abcd", "  ef", "  gh", "  ij"]),
    ],
)
def test_text_breaks_where_it_reads_best(text, width, lines):
    """At spaces outside brackets, else after a parenthesis or dot, else anywhere."""
    assert fold(text, width) == lines


@given(text=st.text("ab (.[],:1", max_size=60), width=st.integers(8, 40))
def test_folding_loses_no_letter_and_keeps_the_width(text, width):
    """Only spaces come and go."""
    lines = fold(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    if "[" not in text:
        assert all(len(line) <= width for line in lines)


def test_table_aligns_numbers_and_folds_the_last_column():
    """Numbers end in one column; the long name stays in its own."""
    rows = [
        Row((("1", ""), ("f(int64, int64, int64)", ""))),
        Row((("1,000", ""), ("g", "")), tail="mod.py:1", indent=2),
    ]
    lines = tabulate([Column("calls"), Column("name", "<")], rows, 25)
    assert to_text(lines).splitlines() == [
        "calls  name",
        "    1  f(int64, int64,",
        "         int64)",
        "1,000    g  mod.py:1",
    ]


def test_tail_takes_a_line_of_its_own_when_there_is_no_room():
    """What does not fit behind the name stands below it."""
    row = Row((("1", ""), ("a_long_name", "")), tail="module.py:1")
    lines = tabulate([Column("n"), Column("name", "<")], [row], 20)
    assert to_text(lines).splitlines()[1:] == ["1  a_long_name", "     module.py:1"]


def test_heading_fills_the_width():
    """The rule ends where the report ends."""
    assert len(to_text([heading("Findings", 60)])) == 60


def test_ascii_has_something_for_every_character():
    """Units and bullets stay readable, anything else becomes a question mark."""
    lines = to_ascii([(("● 5 µs … é", "bad"),)])
    assert lines == [(("* 5 us ... ?", "bad"),)]


def test_characters_a_terminal_obeys_are_not_printed():
    """Names may hold escape sequences and marks that turn the text around."""
    line = (("a\x1b[31mred\u202e\n", ""),)
    assert to_text([line]) == "a?[31mred??"
