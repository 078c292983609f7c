"""A profile as one HTML file, and inside a notebook."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numbaprof.errors import SaveError, TargetError
from numbaprof.model import ProfileResult
from numbaprof.page import render_page
from numbaprof.page_data import PageOptions
from numbaprof.report import ReportOptions, render, render_html_table
from numbaprof.svg import render_svg

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["Plot", "mimebundle", "plot", "to_html"]

NOTEBOOK_CONTEXTS = 3_000
"""Contexts drawn in a notebook, whose file keeps every output: about 0.3 MB."""

FRAME_HEIGHT = 620
"""Pixels of the frame in a notebook; it can be resized."""


def to_html(
    result: ProfileResult,
    path: str | PathLike[str] | None = None,
    *,
    options: PageOptions | None = None,
) -> str:
    """Render a profile as one self-contained HTML document.

    Parameters
    ----------
    result : ProfileResult
        What to show.
    path : path-like, optional
        Where to write the document, too.
    options : PageOptions, optional
        How much to show.

    Returns
    -------
    str
        The document. The same profile makes the same text.

    Raises
    ------
    SaveError
        The file could not be written.

    Notes
    -----
    At most ``options.max_contexts`` contexts are drawn; the page says how many were
    left out and what time and calls they stand for.
    """
    document = render_page(result, options or PageOptions())
    if path is not None:
        try:
            Path(path).write_text(document, encoding="utf-8")
        except OSError as error:
            raise SaveError(
                error.errno,
                f"the page could not be written ({error.strerror}); choose a file in "
                "a folder that exists and that you may write to",
                os.fspath(path),
            ) from error
    return document


def plot(
    target: Any,
    path: str | PathLike[str] | None = None,
    *,
    open_browser: bool = False,
) -> Plot:
    """Show a profile as an interactive picture.

    Parameters
    ----------
    target : ProfileResult or profile
        What to show.
    path : path-like, optional
        Where to write the page. Without it nothing is written, unless a browser is
        asked for, which gets a file in the temporary folder.
    open_browser : bool, default False
        Open the page in a browser.

    Returns
    -------
    Plot
        Shows itself where it is the last value of a notebook's cell.

    Raises
    ------
    TargetError
        ``target`` is no profile.
    SaveError
        The file could not be written.
    """
    result = getattr(target, "result", target)
    if not isinstance(result, ProfileResult):
        raise TargetError(
            f"cannot plot {target!r}: a {type(target).__name__} is no profile; give "
            "what numbaprof.profile() or numbaprof.load() returned"
        )
    if path is None and open_browser:
        handle, name = tempfile.mkstemp(prefix="numbaprof-", suffix=".html")
        os.close(handle)
        path = name
    shown = Plot(result, None if path is None else Path(path))
    if path is not None:
        shown.save(path)
    if shown.path is not None and open_browser:
        webbrowser.open(shown.path.resolve().as_uri())
    return shown


class Plot:
    """A picture of a profile: shows itself in a notebook, writes itself to a file.

    Parameters
    ----------
    result : ProfileResult
        What to show.
    path : Path, optional
        Where the page was written.
    """

    def __init__(self, result: ProfileResult, path: Path | None = None) -> None:
        self.result = result
        self.path = path

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page; see :func:`to_html`."""
        to_html(self.result, path)
        self.path = Path(path)

    def __repr__(self) -> str:
        where = ".save(path) writes the page" if self.path is None else f"{self.path}"
        return f"<numbaprof.Plot of {len(self.result.overloads)} overloads, {where}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return mimebundle(self.result) | {"text/plain": repr(self)}


def mimebundle(
    result: ProfileResult, options: ReportOptions | None = None
) -> dict[str, str]:
    """Render a profile in the forms that notebooks choose from.

    Parameters
    ----------
    result : ProfileResult
        What to show.
    options : ReportOptions, optional
        Order of the overloads and what the text lists.

    Returns
    -------
    dict of str to str
        By MIME type: ``text/html`` is the page in a frame that may run its script and
        nothing else, followed by a plain table for readers that remove frames;
        ``image/svg+xml`` a still picture; ``text/plain`` the report.
    """
    options = options or ReportOptions()
    page = PageOptions(sort=options.sort, max_contexts=NOTEBOOK_CONTEXTS)
    frame = (
        f'<iframe srcdoc="{escape(to_html(result, options=page))}" '
        'sandbox="allow-scripts allow-downloads" title="numbaprof profile" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0;resize:vertical">'
        "</iframe>"
    )
    table = render_html_table(result)
    return {
        "text/html": f"<div>{frame}<details><summary>as a plain table</summary>{table}"
        "</details></div>",
        "image/svg+xml": render_svg(result),
        "text/plain": render(result, options=options),
    }
