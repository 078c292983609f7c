"""The HTML document of one profile.

The file needs nothing but a browser: style, script and data are inside, and a content
security policy forbids it to fetch anything. Whatever comes from the profiled program
is text to it: escaped in the document, without ``<``, ``>`` and ``&`` in the data, and
put on the page by the script as text nodes only. The policy admits the one script by
its hash, so that nothing else could run even if something slipped through.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from numbaprof.analysis import display_names, find, summarize
from numbaprof.icicle import KINDS
from numbaprof.layout import to_text
from numbaprof.line_page import render_line_section
from numbaprof.markup import escape_text
from numbaprof.page_data import PageOptions, collect, to_json
from numbaprof.report import state_lead
from numbaprof.sections import describe_remainders, render_header, render_losses
from numbaprof.wording import format_count, format_duration, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numbaprof.analysis import Finding, Summary
    from numbaprof.model import ProfileResult

__all__ = ["render_page"]

UNFOLDED = 1_000_000
"""Characters: a line of the report that is not to be broken."""

FINDINGS_SHOWN = 100
"""A page of more would not be read; the others are counted."""


def render_page(result: ProfileResult, options: PageOptions) -> str:
    """Render the document.

    Returns
    -------
    str
        The same for the same profile, of characters that UTF-8 has.
    """
    return _fill(_asset("template.html"), _parts(result, options))


def _asset(name: str) -> str:
    return (files("numbaprof") / "html_assets" / name).read_text(encoding="utf-8")


def _fill(template: str, parts: dict[str, str]) -> str:
    """Put every part in its place, in one pass: no part is looked into for others."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _parts(result: ProfileResult, options: PageOptions) -> dict[str, str]:
    summary = summarize(result)
    style, script = _style(), _asset("app.js")
    command = " ".join(result.processes[0].environment.command_line)
    verdict = state_lead(result, summary)
    return {
        "policy": "default-src 'none'; img-src data:; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        "style": style,
        "script": script,
        "data": to_json(collect(result, options)),
        "title": escape_text(f"{_name_program(result)} · numbaprof"),
        "command": escape_text(command or "no command line"),
        "verdict": "".join(f"<p>{escape_text(line)}</p>" for line in verdict),
        "bar": _render_bar(summary),
        "split": _render_split(summary),
        "remainders": _paragraphs(describe_remainders(summary)),
        "lines": render_line_section(result),
        "findings": _render_findings(result),
        "losses": _paragraphs(map(_line, render_losses(result, UNFOLDED))),
        "facts": _paragraphs(map(_line, render_header(result, UNFOLDED))),
    }


def _name_program(result: ProfileResult) -> str:
    """Pick what names a run from its command line: ``script.py``, without folders."""
    for word in result.processes[0].environment.command_line[1:]:
        if word.endswith(".py") and PurePath(word).name != "__main__.py":
            return PurePath(word).name
    return "profile"


@cache
def _style() -> str:
    """Return the style sheet with one variable for each kind of box."""
    colours = "".join(
        f"--k-{slug}:light-dark({kind.light},{kind.dark});"
        for slug, kind in KINDS.items()
    )
    classes = "".join(
        f".k-{slug}{{fill:var(--k-{slug});background-color:var(--k-{slug})}}"
        for slug in KINDS
    )
    return f"{_asset('style.css')}\n:root{{{colours}}}{classes}\n"


def _hash(text: str) -> str:
    """Name a script or style in a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _line(line: Any) -> str:
    return to_text([line]).strip()


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape_text(line)}</p>" for line in lines)


def _split(summary: Summary) -> list[tuple[str, str, int]]:
    """Return (kind, name, nanoseconds) of the parts of the wall time that are there."""
    rest_ns = summary.rest_ns - summary.python_ns - summary.builtin_ns
    parts = [
        ("compile", "compiling", summary.compile_ns),
        ("cache_load", "loading cached code", summary.cache_load_ns),
        ("cache_miss", "cache misses", summary.cache_miss_ns),
        ("dispatch", "dispatch", summary.dispatch_ns),
        ("overload", "compiled code", summary.kernel_ns),
        ("failed_dispatch", "dispatch that failed", summary.failed_dispatch_ns),
        ("python", "Python functions", summary.python_ns),
        ("builtin", "builtins", summary.builtin_ns),
        ("rest", "Python and the rest", rest_ns),
    ]
    always = ("compile", "dispatch", "overload", "rest")
    return [part for part in parts if part[2] > 0 or part[0] in always]


def _render_bar(summary: Summary) -> str:
    """Draw the wall time as one bar, a part beside the other."""
    rects = []
    at = 0.0
    for kind, _, duration_ns in _split(summary):
        share = 100 * max(0, duration_ns) / summary.wall_ns if summary.wall_ns else 0.0
        if share:
            rects.append(
                f'<rect class="k-{kind}" x="{at:.3f}%" width="{share:.3f}%" '
                'height="100%"/>'
            )
        at += share
    return "".join(rects)


def _render_split(summary: Summary) -> str:
    return "".join(
        f'<li><i class="k-{kind}"></i>{escape_text(name)}'
        f"<b>{format_duration(max(0, duration_ns))}</b>"
        f"<span>{format_share(duration_ns, summary.wall_ns)}</span></li>"
        for kind, name, duration_ns in _split(summary)
    )


def _render_findings(result: ProfileResult) -> str:
    found = find(result)
    if not found:
        return "<p>Nothing to change was found.</p>"
    names = display_names(result)
    items = "".join(
        _render_finding(finding, names[finding.function] if finding.function else "")
        for finding in found[:FINDINGS_SHOWN]
    )
    more = len(found) - FINDINGS_SHOWN
    tail = f"<p>… and {format_count(more)} more</p>" if more > 0 else ""
    return f"<ol>{items}</ol>{tail}"


def _render_finding(finding: Finding, name: str) -> str:
    advice = f"try: {finding.try_}" if finding.try_ else "nothing to repair"
    cost = format_duration(finding.cost_s * 1e9) if finding.cost_s else ""
    search = escape_text(name)
    button = (
        f'<button type="button" data-find="{search}" title="find {search}">'
        f"{search}</button>"
        if name
        else ""
    )
    return (
        f"<li><p><span>{escape_text(finding.message)}.</span><b>{cost}</b></p>"
        f"<p>→ {escape_text(advice)}</p>"
        f"<p><code>{escape_text(finding.slug)}</code>{button}</p></li>"
    )
