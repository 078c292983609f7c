"""The page as text, and what notebooks get; ``tests/browser`` looks at it in one."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from html import escape
from html.parser import HTMLParser

import pytest
from builders import (
    make_event,
    make_function,
    make_losses,
    make_node,
    make_overload,
    make_result,
    make_thread,
)
from pages import EVIL, evil_profile, small_profile

import numbaprof
from numbaprof.analysis import summarize
from numbaprof.errors import OptionError, SaveError, TargetError
from numbaprof.html import mimebundle, plot, to_html
from numbaprof.page_data import PageOptions, to_json
from numbaprof.report import ReportOptions, state_lead
from numbaprof.svg import render_svg


class Outline(HTMLParser):
    """Collects the elements of a document, and the text in one of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note the element."""
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._inside = dict(attrs).get("id") or tag

    def handle_data(self, data):
        """Note the text."""
        self.texts[self._inside] = self.texts.get(self._inside, "") + data


def data_of(page: str) -> dict:
    """Read the data block of a page."""
    return json.loads(Outline(page).texts["data"])


def test_hostile_texts_add_no_element():
    """A profile full of markup has the elements that a harmless one has."""
    tags = set(Outline(to_html(small_profile())).tags)
    assert set(Outline(to_html(evil_profile())).tags) <= tags | {"b", "li", "ol"}


def test_hostile_texts_add_no_script_or_handler():
    """There are the page's two scripts and no attribute that runs anything."""
    outline = Outline(to_html(evil_profile()))
    assert outline.tags.count("script") == 2
    assert [name for _, name, _ in outline.attributes if name.startswith("on")] == []


def test_hostile_texts_arrive_as_they_were():
    """Escaping loses nothing: the data has the text itself."""
    assert any(EVIL in text for text in data_of(to_html(evil_profile()))["texts"])


def test_hostile_texts_do_nothing_in_a_notebook():
    """The frame's document is one attribute, and the still picture is sound XML."""
    bundle = mimebundle(evil_profile())
    assert "img" not in Outline(bundle["text/html"]).tags
    tree = ElementTree.fromstring(bundle["image/svg+xml"])
    names = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert names == {"svg", "title", "rect", "text", "g"}


@pytest.mark.parametrize("letter", ["<", ">", "&", "\u2028", "\u2029", "\ud800", "é"])
def test_data_is_plain_ascii(letter):
    """No letter of a text can mean anything to a reader of HTML or of scripts."""
    written = to_json({"name": letter})
    assert re.fullmatch(r"[ -%'-;=?-~]*", written)
    assert json.loads(written) == {"name": letter}


def test_half_characters_can_be_written(tmp_path):
    """A file name that is no text, as Python decodes it, does not break the page."""
    result = make_result(make_overload(make_function("f\udcff", file="\udcff.py")))
    to_html(result, tmp_path / "page.html")
    mimebundle(result)["image/svg+xml"].encode("utf-8")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype")


def test_page_refers_to_nothing_outside():
    """The only address in it is the name of the SVG vocabulary."""
    page = to_html(small_profile())
    addresses = set(re.findall(r"https?://[^\s\"']+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    linked = [
        value
        for _, name, value in Outline(page).attributes
        if name in ("src", "href", "srcset", "action", "data")
    ]
    assert linked == ["data:,"]


def test_policy_admits_exactly_the_page_s_script_and_style():
    """The hashes in the policy are those of what stands in the page."""
    import base64
    import hashlib

    page = to_html(small_profile())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none';")


def test_same_profile_makes_the_same_page():
    """Nothing in the page depends on when or where it is made."""
    assert to_html(small_profile()) == to_html(small_profile())


def test_page_lists_the_overloads_and_sums_the_rest():
    """Each of the user's overloads is a row, and the last sum is of all of them."""
    overloads = data_of(to_html(small_profile()))["overloads"]
    assert len(overloads["rows"]["index"]) == 2
    assert overloads["rows"]["calls"] == [3, 2]
    assert [title for title, _ in overloads["sums"]] == ["all overloads"]
    assert overloads["sums"][0][1]["calls"] == 5


def test_helpers_are_in_what_they_were_compiled_for_or_summed():
    """A helper's time is its owner's, as in the report; without one it is summed."""
    f = make_function("f")
    events = (
        make_event(f, inclusive_ns=100, exclusive_ns=60),
        make_event("of_f", inclusive_ns=40, parent=0, internal=True),
        make_event("of_none", inclusive_ns=5, internal=True),
    )
    result = make_result(make_overload(f, compile_ns=60), events=events)
    overloads = data_of(to_html(result))["overloads"]
    assert overloads["rows"]["compile"] == [100]
    assert [(title, sums["compile"]) for title, sums in overloads["sums"]] == [
        ("1 of Numba’s own helpers", 5),
        ("all overloads", 105),
    ]


def test_overloads_beyond_the_limit_are_summed():
    """Rows that are not listed are in a sum of their own."""
    page = to_html(small_profile(), options=PageOptions(max_overloads=1))
    overloads = data_of(page)["overloads"]
    assert len(overloads["rows"]["index"]) == 1
    assert overloads["sums"][0][0] == "1 more overloads"


def test_page_draws_a_box_for_each_context():
    """The boxes are the thread, who called, what ran and compiled, and the rest."""
    data = data_of(to_html(small_profile()))
    kinds = [data["boxes"]["kinds"][kind] for kind in data["boxes"]["kind"]]
    assert sorted(kinds) == sorted(
        ["thread", "caller", "overload", "overload", "compile", "compile", "rest"]
    )


def test_page_says_what_was_pruned():
    """Contexts that are not drawn are counted, with their calls and time."""
    data = data_of(to_html(small_profile(), options=PageOptions(max_contexts=5)))
    assert data["pruned"] == {
        "contexts": 2,
        "calls": 5,
        "time_ns": 5000,
        "limit_ns": 3000,
    }


def test_page_of_very_many_contexts_stays_small():
    """The size of the page is bounded by the limit, not by the profile."""
    n = 20_000
    contexts = [make_thread(inclusive_ns=n * 1000, exclusive_ns=0)]
    contexts += [make_node(inclusive_ns=1000) for _ in range(n)]
    result = make_result(
        make_overload(calls=n), contexts=tuple(contexts), wall_ns=n * 1000
    )
    page = to_html(result, options=PageOptions(max_contexts=1000))
    assert len(data_of(page)["boxes"]["kind"]) == 1001
    assert len(page) < 200_000


def test_shorter_events_are_left_out_of_the_timeline():
    """The longest events are drawn, those around them too, the others counted."""
    events = (
        make_event("outer", inclusive_ns=100, exclusive_ns=60),
        make_event("inner", inclusive_ns=40, parent=0),
        make_event("short", inclusive_ns=3),
    )
    result = make_result(make_overload(), events=events)
    shown = data_of(to_html(result, options=PageOptions(max_events=2)))["events"]
    assert shown["columns"]["parent"] == [-1, 0]
    assert (shown["left_out"], shown["left_out_ns"]) == (1, 3)


def test_page_has_what_the_report_says():
    """Verdict, findings, losses and environment are text of the page."""
    result = small_profile(losses=make_losses(in_flight_calls=2))
    page = to_html(result)
    verdict, *_ = state_lead(result, summarize(result))
    assert f"<p>{escape(verdict)}</p>" in page
    assert "2 calls still running when the profile ended" in page
    assert "numba 0.68.1" in page


def test_page_of_an_empty_profile_is_a_page():
    """Nothing measured is no reason to fail."""
    data = data_of(to_html(make_result(contexts=())))
    assert data["overloads"]["rows"]["index"] == []
    assert data["events"]["columns"]["start"] == []


@pytest.mark.parametrize(
    "options", [{"sort": "luck"}, {"max_contexts": 0}, {"max_events": -1}]
)
def test_impossible_page_options_are_refused(options):
    """A value that cannot be is named."""
    with pytest.raises(OptionError, match=str(next(iter(options.values())))):
        PageOptions(**options)


def test_page_is_written_where_asked(tmp_path):
    """The file holds what the call returns."""
    path = tmp_path / "page.html"
    assert small_profile().to_html(path) == path.read_text(encoding="utf-8")


def test_page_that_cannot_be_written_says_why(tmp_path):
    """The error names the file and is an OSError."""
    with pytest.raises(SaveError, match="could not be written") as caught:
        to_html(small_profile(), tmp_path / "no" / "page.html")
    assert caught.value.filename == str(tmp_path / "no" / "page.html")


def test_notebook_gets_a_frame_that_can_run_its_script_only():
    """The frame may run scripts and save files, and is of an origin of its own."""
    frame = {
        name: value
        for tag, name, value in Outline(
            mimebundle(small_profile())["text/html"]
        ).attributes
        if tag == "iframe"
    }
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert frame["srcdoc"].startswith("<!doctype html>")


def test_notebook_gets_report_and_still_picture():
    """Readers without frames have a table, a picture and the report."""
    bundle = mimebundle(small_profile(), ReportOptions(top=1))
    assert "<summary>as a plain table</summary>" in bundle["text/html"]
    assert bundle["image/svg+xml"].startswith("<svg ")
    assert "… and 1 more" in bundle["text/plain"]


def test_still_picture_draws_each_wide_box():
    """Boxes of a pixel and more are rectangles with their figures as tooltip."""
    tree = ElementTree.fromstring(render_svg(small_profile()))
    tips = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert "compile scale(int64): 100 ms, 10 %, 1 call" in tips
    assert len([tip for tip in tips if tip and tip.startswith("scale")]) == 0


def test_result_shows_itself_as_its_page():
    """A result at the end of a cell is the page; so is its HTML form."""
    result = small_profile()
    assert result._repr_mimebundle_()["text/html"] == result._repr_html_()


def test_plot_takes_a_profile_or_a_result(tmp_path):
    """Both are shown, and written if asked."""
    result = small_profile()

    class Profile:
        """Stands for what ``profile()`` returns."""

        def __init__(self) -> None:
            self.result = result

    path = tmp_path / "page.html"
    shown = plot(Profile(), path)
    assert shown.result is result
    assert path.read_text(encoding="utf-8") == to_html(result)
    assert str(path) in repr(shown)


def test_plot_without_a_path_writes_nothing(tmp_path, monkeypatch):
    """A picture that is only looked at leaves no file."""
    monkeypatch.chdir(tmp_path)
    shown = numbaprof.plot(small_profile())
    assert shown.path is None
    assert list(tmp_path.iterdir()) == []
    assert "image/svg+xml" in shown._repr_mimebundle_()


def test_plot_opens_a_browser_when_asked(monkeypatch, tmp_path):
    """Without a path the page goes to a new file in the temporary folder."""
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = plot(small_profile(), open_browser=True)
    assert opened == [shown.path.as_uri()]
    assert shown.path.parent == tmp_path


def test_plot_of_something_else_is_refused():
    """What is no profile is named."""
    with pytest.raises(TargetError, match="a int is no profile"):
        plot(3)


def test_profile_without_a_result_is_text_in_a_notebook():
    """A profile that has not run yet shows what it is."""
    p = numbaprof.profile()
    assert p._repr_mimebundle_() == {"text/plain": "<numbaprof.profile, ready>"}
    assert p._repr_html_() is None


def test_command_makes_a_page_of_a_saved_profile(tmp_path):
    """``numbaprof html FILE -o OUT`` writes the page."""
    from numbaprof.cli import main

    result = small_profile()
    result.save(tmp_path / "run.json")
    page = tmp_path / "run.html"
    assert main(["html", str(tmp_path / "run.json"), "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == to_html(result)


def test_command_that_cannot_write_fails(tmp_path, capsys):
    """The exit code and one line say that there is no page."""
    from numbaprof.cli import main

    small_profile().save(tmp_path / "run.json")
    code = main(["html", str(tmp_path / "run.json"), "-o", str(tmp_path / "no" / "x")])
    assert code == 1
    assert "could not be written" in capsys.readouterr().err
