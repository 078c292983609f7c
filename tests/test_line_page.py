"""Source lines on the HTML page."""

from __future__ import annotations

from html.parser import HTMLParser

from builders import (
    make_function,
    make_line_site,
    make_result,
    make_sampling,
    make_stack,
)
from pages import EVIL

from numbaprof.html import to_html
from numbaprof.line_page import render_line_section
from numbaprof.model import LineFacts


class Tags(HTMLParser):
    """Counts elements and collects classes of rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note the element."""
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append(dict(attrs).get("class", ""))


def sampled(source="s += x", qualname="kernel", callee=""):
    """Build a profile with one hot, one warm and one line without samples."""
    function = make_function(qualname)
    sites = tuple(make_line_site(n, function=function) for n in (11, 12, 13))
    stacks = (make_stack(0, count=90, callee=callee), make_stack(1, count=10))
    return make_result(
        line_sites=sites,
        stacks=stacks,
        sampling=(make_sampling(*stacks),),
        line_facts=(
            LineFacts(0, hits=1234, source=source),
            LineFacts(2, source="return s"),
        ),
    )


def test_page_has_a_row_for_each_line_with_its_heat():
    """Hot and warm lines are seen before they are read."""
    found = Tags(render_line_section(sampled()))
    assert found.rows == ["", "hot", "warm", ""]  # The first is the head.
    assert found.tags.count("details") == 1


def test_figures_are_those_of_the_report():
    """Hits, sampled time, its uncertainty, the share."""
    section = render_line_section(sampled())
    for text in ("1,234", "360 ms", "90 %", "s += x", "return s"):
        assert text in section


def test_section_is_part_of_the_page():
    """Between the overloads and the compilations."""
    page = to_html(sampled())
    assert page.index('id="overloads"') < page.index('id="h-lines"')
    assert page.index('id="h-lines"') < page.index('id="h-compiling"')


def test_page_without_lines_has_no_such_section():
    """Nothing was asked for, nothing is missing."""
    assert render_line_section(make_result()) == ""
    assert "h-lines" not in to_html(make_result())


def test_hostile_texts_add_no_element():
    """Source, names and callees are text, whatever they hold."""
    harmless = Tags(render_line_section(sampled(callee="x")))
    hostile = Tags(render_line_section(sampled(EVIL, EVIL, EVIL)))
    assert hostile.tags == harmless.tags
