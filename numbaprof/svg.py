"""A still picture of a profile: SVG without script or style sheet.

For readers that remove frames and scripts from a notebook. Attributes only, as such
readers often remove style elements too.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING

from numbaprof.analysis import summarize
from numbaprof.icicle import KINDS, Box, build
from numbaprof.markup import escape_text
from numbaprof.report import state_lead
from numbaprof.wording import format_duration, format_share, plural

if TYPE_CHECKING:
    from numbaprof.model import ProfileResult

__all__ = ["render_svg"]

WIDTH, MARGIN = 960, 12
ROW, TOP = 20, 36
"""Pixels: height of a row, and of the verdict above the first."""
MAX_ROWS = 24
MIN_BOX = 1.0
"""Pixels: a narrower box is not drawn, nor is anything in it."""
LETTER = 6.7
"""Pixels of a letter at the font size of 11."""

_FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11"'


def render_svg(result: ProfileResult) -> str:
    """Render the calling contexts of a profile as a still picture.

    Returns
    -------
    str
        An ``<svg>`` element of 960 pixels width. Boxes narrower than a pixel and rows
        beyond the 24th are left out. The figures of each box are its tooltip.
    """
    boxes = build(result)
    children: dict[int, list[int]] = defaultdict(list)
    for index, box in enumerate(boxes):
        children[box.parent].append(index)
    drawn: list[str] = []
    rows = 0
    waiting = [(0, float(MARGIN), float(WIDTH - 2 * MARGIN), 0)]
    while waiting:
        index, left, width, row = waiting.pop()
        box = boxes[index]
        rows = max(rows, row + 1)
        inner = width * box.inclusive_ns / box.width_ns if box.width_ns else width
        if width - inner >= MIN_BOX:
            drawn.append(_draw(box, "dispatch", left, width - inner, row, boxes[0]))
        left += width - inner
        drawn.append(_draw(box, box.kind, left, inner, row, boxes[0]))
        if row + 1 == MAX_ROWS:
            continue
        inside = sorted(
            children[index], key=lambda i: (_is_last(boxes[i]), -boxes[i].width_ns)
        )
        total = max(box.inclusive_ns, sum(boxes[i].width_ns for i in inside))
        for child in inside:
            share = inner * boxes[child].width_ns / total if total else 0.0
            if share >= MIN_BOX:
                waiting.append((child, left, share, row + 1))
            left += share
    height = TOP + rows * ROW + MARGIN
    verdict = escape(state_lead(result, summarize(result))[-1])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">'
        f"<title>{verdict}</title>"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
        f'<text x="{MARGIN}" y="23" font-family="sans-serif" font-size="13" '
        f'fill="#1a2027">{verdict}</text>{"".join(drawn)}</svg>'
    )


def _is_last(box: Box) -> bool:
    return box.kind in ("rest", "small")


def _draw(box: Box, kind: str, left: float, width: float, row: int, whole: Box) -> str:
    top = TOP + row * ROW
    duration_ns = box.dispatch_ns if kind == "dispatch" else box.inclusive_ns
    label = f"dispatch of {box.name}" if kind == "dispatch" else box.name
    calls = "" if box.calls is None else f", {plural(box.calls, 'call')}"
    tip = (
        f"{label}: {format_duration(duration_ns)}, "
        f"{format_share(duration_ns, whole.inclusive_ns)}{calls}"
    )
    shown = _cut(label, int((width - 6) / LETTER))
    text = (
        f'<text x="{left + 4:.1f}" y="{top + 14}" {_FONT} fill="#1a2027">'
        f"{escape_text(shown)}</text>"
        if shown
        else ""
    )
    return (
        f"<g><title>{escape_text(tip)}</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{max(0.5, width - 1):.1f}" '
        f'height="{ROW - 1}" rx="2" fill="{KINDS[kind].light}"/>{text}</g>'
    )


def _cut(text: str, letters: int) -> str:
    if len(text) <= letters:
        return text
    return text[: letters - 1] + "…" if letters >= 4 else ""
