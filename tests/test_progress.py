"""A sign of life, on terminals only."""

from __future__ import annotations

import io

from numbaprof.progress import show_progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """Return True."""
        return True


def test_items_come_through_unchanged():
    """Showing progress changes nothing but the terminal."""
    assert list(show_progress([3, 1, 2], "reading", Terminal())) == [3, 1, 2]


def test_terminal_shows_how_far_it_is_and_is_left_clean():
    """The line is overwritten and gone at the end."""
    terminal = Terminal()
    list(show_progress("ab", "reading", terminal))
    assert "numbaprof: reading 2 of 2" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_terminal_is_left_clean_after_an_error():
    """An error message starts on a line of its own."""
    terminal = Terminal()
    items = show_progress("ab", "reading", terminal)
    next(items)
    items.close()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_written_to_a_file():
    """A log does not fill with progress."""
    stream = io.StringIO()
    assert list(show_progress([1], "reading", stream)) == [1]
    assert stream.getvalue() == ""


def test_there_need_be_no_stream():
    """A program without stderr works as well."""
    assert list(show_progress([1], "reading", None)) == [1]
