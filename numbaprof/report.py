"""The report: what a profile says, as text for people.

The first line is a verdict, the rest supports it: where the time went, who caused
compiling, what each overload cost, why it exists, what to change, what was not seen.
A report of hundreds of overloads is as short as one of twenty; what is not listed is
summed, and the table's last line adds up.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, TextIO

from numbaprof.analysis import display_names, explain_overloads, is_internal, summarize
from numbaprof.errors import OptionError
from numbaprof.layout import (
    STYLES,
    Line,
    heading,
    paragraph,
    show,
    to_ascii,
    to_text,
)
from numbaprof.line_report import render_line_account, render_lines
from numbaprof.overload_table import (
    SORT_KEYS,
    label_overload,
    order_overloads,
    render_overloads,
    sum_overloads,
)
from numbaprof.python_table import render_python
from numbaprof.sections import (
    render_breakdown,
    render_compiling,
    render_details,
    render_findings,
    render_header,
    render_losses,
    render_reasons,
    state_verdict,
)
from numbaprof.wording import format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from numbaprof.analysis import Summary
    from numbaprof.model import ProfileResult

__all__ = [
    "SORT_NAMES",
    "ReportOptions",
    "render",
    "render_html_table",
    "state_lead",
    "write",
]

SORT_NAMES = tuple(SORT_KEYS)
"""Orders that the table of overloads can have."""

MIN_WIDTH = 60
"""Characters; the numbers alone need about fifty."""

FALLBACK_WIDTH = 100
"""Characters, where there is no terminal to ask."""

JIT_DISABLED = "jit is disabled, numbers are for interpreted Python"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report shows."""

    sort: str = "cost"
    """Order of the overloads, one of :data:`SORT_NAMES`."""
    top: int = 20
    """Overloads, reasons and findings listed; the others are summed."""
    only: str | tuple[str, ...] = ()
    """Patterns for qualname, module or file: ``fnmatch`` if they have ``*``, ``?`` or
    ``[``, else text to look for. Empty shows all."""
    width: int | None = None
    """Characters; None takes the terminal's width, 100 without one."""
    lines_only: bool = False
    """Show nothing but source lines."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be, naming those that can.

        Raises
        ------
        OptionError
            For an unknown order, a ``top`` below 1 or a width below 60.
        """
        if isinstance(self.only, str):
            object.__setattr__(self, "only", (self.only,) if self.only else ())
        if self.sort not in SORT_KEYS:
            raise OptionError(
                f"report: cannot sort by {self.sort!r}, only by {', '.join(SORT_NAMES)}"
            )
        if self.top < 1:
            raise OptionError(f"report: top is {self.top}, it must be at least 1")
        if self.width is not None and self.width < MIN_WIDTH:
            raise OptionError(
                f"report: width is {self.width}, it must be at least {MIN_WIDTH}"
            )

    @property
    def patterns(self) -> tuple[str, ...]:
        """``only`` as a tuple."""
        return (self.only,) if isinstance(self.only, str) else self.only


def render(result: ProfileResult, *, options: ReportOptions | None = None) -> str:
    """Render a report as plain text, without a newline at the end."""
    options = options or ReportOptions()
    width = options.width or _fit(
        shutil.get_terminal_size((FALLBACK_WIDTH, 24)).columns
    )
    return to_text(_build(result, options, width))


def write(
    result: ProfileResult, stream: TextIO, options: ReportOptions | None = None
) -> None:
    """Write a report to a stream, with colours if it is a terminal.

    Parameters
    ----------
    result : ProfileResult
        What to report.
    stream : text stream
        Usually ``sys.stderr``. Characters it cannot encode are replaced.
    options : ReportOptions, optional
        What to show.

    Notes
    -----
    A non-empty ``NO_COLOR`` turns colours off; else a non-empty ``FORCE_COLOR`` turns
    them on; else a terminal has them.
    """
    from rich.text import Text

    options = options or ReportOptions()
    width = options.width or _width_of(stream)
    lines: Iterable[Line] = _build(result, options, width)
    if not _can_encode(stream, to_text(lines)):
        lines = to_ascii(lines)
    console = _make_console(stream, width)
    for line in lines:
        spans = [(show(text), STYLES[style]) for text, style in line]
        text = Text.assemble(*spans)
        text.rstrip()
        console.print(text, soft_wrap=True)


def render_html_table(result: ProfileResult) -> str:
    """Render the verdict and the dearest overloads as a fragment of HTML.

    For notebooks (``_repr_html_``): no style sheet, no script, all text escaped.
    """
    options = ReportOptions()
    summary = summarize(result)
    names = display_names(result)
    reasons = explain_overloads(result)
    ordered = [i for members in order_overloads(result, "total") for i in members]
    titles = ("overload", "calls", "total", "self", "dispatch", "compile", "reason")
    rows = []
    for index in ordered[: options.top]:
        overload = result.overloads[index]
        durations = (
            overload.inclusive_ns,
            overload.exclusive_ns,
            overload.dispatch_ns,
            overload.compile_self_ns,
        )
        rows.append(
            (
                label_overload(overload, names[overload.function]),
                "-" if overload.calls is None else format_count(overload.calls),
                *("-" if ns is None else format_duration(ns) for ns in durations),
                overload.not_countable_reason or reasons[index],
            )
        )
    hidden = [result.overloads[index] for index in ordered[options.top :]]
    hidden += [overload for overload in result.overloads if is_internal(overload)]
    if hidden:
        more = sum_overloads(hidden)
        rows.append(
            (
                f"… and {format_count(more.overloads)} more",
                format_count(more.calls),
                "",
                format_duration(more.self_ns),
                format_duration(more.dispatch_ns),
                format_duration(more.compile_ns),
                "",
            )
        )
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    lead = "".join(
        f"<p><b>{escape(text)}</b></p>" for text in state_lead(result, summary)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{lead}{table if rows else ''}</div>"


# -- assembling ------------------------------------------------------------------------


def state_lead(result: ProfileResult, summary: Summary) -> list[str]:
    """Write the first lines: that jit is off, if it is, and the verdict."""
    disabled = any(run.environment.jit_disabled for run in result.processes)
    return [*([JIT_DISABLED] if disabled else []), state_verdict(result, summary)]


def _build(result: ProfileResult, options: ReportOptions, width: int) -> list[Line]:
    if options.lines_only:
        return _build_lines(result, options, width)
    summary = summarize(result)
    sort, top, only = options.sort, options.top, options.patterns
    lines: list[Line] = []
    for text in state_lead(result, summary):
        lines += paragraph(text, width, style="verdict")
    lines += [(), *render_header(result, width)]
    lines += _section("Where the time went", render_breakdown(summary, width), width)
    if result.compile_events:
        body = render_compiling(result, summary, width)
        lines += _section("Compiling", body, width)
    if result.overloads:
        body = render_overloads(result, sort=sort, top=top, only=only, width=width)
        lines += _section(f"Overloads, by {sort.replace('_', ' ')}", body, width)
    if result.python_rows:
        body = render_python(result, top=top, width=width)
        lines += _section("Python and builtin functions, by self", body, width)
    lines += _section("Lines", _build_lines(result, options, width), width)
    body = render_details(result, sort=sort, only=only, width=width)
    lines += _section("Inside the calls", body, width)
    body = render_reasons(result, sort=sort, top=top, only=only, width=width)
    lines += _section("Why there is more than one", body, width)
    body = render_findings(result, top=top, only=only, width=width)
    lines += _section("Findings", body, width)
    lines += _section("Not measured", render_losses(result, width), width)
    return lines


def _build_lines(
    result: ProfileResult, options: ReportOptions, width: int
) -> list[Line]:
    tables = render_lines(result, top=options.top, only=options.patterns, width=width)
    account = render_line_account(result, width)
    return [*account, *([()] if account and tables else []), *tables]


def _section(title: str, body: list[Line], width: int) -> list[Line]:
    return [(), heading(title, width), *body] if body else []


# -- streams ---------------------------------------------------------------------------


def _fit(columns: int) -> int:
    return max(MIN_WIDTH, columns)


def _width_of(stream: TextIO) -> int:
    """Take the width of the terminal behind the stream, if there is one."""
    if os.environ.get("COLUMNS", "").isdigit():
        return _fit(int(os.environ["COLUMNS"]))
    try:
        return _fit(os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError, AttributeError):
        return FALLBACK_WIDTH


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_coloured(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _make_console(stream: TextIO, width: int) -> Console:
    from rich.console import Console

    coloured = _is_coloured(stream)
    return Console(
        file=stream,
        width=width,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        no_color=not coloured,
        highlight=False,
        markup=False,
        emoji=False,
    )
