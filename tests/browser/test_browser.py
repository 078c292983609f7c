"""The page in a real browser, offline, and in JupyterLab.

Needs node, Chromium and the npm package playwright-core, the last test JupyterLab as
well; `.ci/browser` gets them all. Whatever is missing is the reason of the skip.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from pages import evil_profile, small_profile

from numbaprof.html import to_html
from numbaprof.page_data import PageOptions

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TOOLS = Path(
    os.environ.get("NUMBAPROF_BROWSER_TOOLS", ROOT / ".ci/cache/browser")
).resolve()
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LAB_TIMEOUT = 120
"""Seconds for JupyterLab to answer."""


def find_driver() -> list[str]:
    """Return the command that drives the browser; skip where something is missing."""
    node = shutil.which("node")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    playwright = TOOLS / "node_modules" / "playwright-core"
    missing = [
        name
        for name, found in (
            ("node", node),
            ("chromium", browser),
            (str(playwright), playwright.is_dir()),
        )
        if not found
    ]
    if missing or node is None or browser is None:
        pytest.skip(f"no {' and no '.join(missing)}; .ci/browser installs it")
    return [node, str(HERE / "drive.cjs"), str(playwright), browser]


def drive(scenario: str, target: str) -> dict:
    """Run a scenario and return what was seen."""
    done = subprocess.run(
        [*find_driver(), scenario, target],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return what was seen on the page of an ordinary profile."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    to_html(small_profile(), path)
    return drive("page", str(path))


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """Return what was seen on the page of a hostile profile with too many contexts."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    to_html(evil_profile(), path, options=PageOptions(max_contexts=4))
    return drive("page", str(path))


def test_page_opens_offline_without_errors(seen):
    """The script runs through, and the only request is for the file itself."""
    assert seen["errors"] == []
    assert seen["failed"] == []
    assert [url.partition(":")[0] for url in seen["requests"]] == ["file"]


def test_page_draws_boxes_rows_and_events(seen):
    """Each context is a box, each overload a row, each compilation in the timeline."""
    assert (seen["boxes"], seen["rows"], seen["sums"], seen["events"]) == (5, 2, 1, 2)
    assert "MainThread" in seen["texts"]
    assert "scale(int64)" in seen["texts"]


def test_click_zooms_in_and_out(seen):
    """A click makes a box the whole width; crumbs and Escape lead back."""
    assert [len(crumbs) for crumbs in seen["zoom"]] == [1, 2, 1, 3, 2, 1]
    assert seen["zoom"][1] == ["MainThread", "main"]
    assert seen["zoomedBoxes"] == 3


def test_hovering_tells_the_exact_figures(seen):
    """The tooltip has the time in nanoseconds, the share and who caused it."""
    assert "100,000,000 ns · 10.0 %" in seen["hover"]
    assert "main, script.py" in seen["hover"]
    assert seen["hoverGone"]


def test_keys_walk_through_the_boxes(seen):
    """Arrows move the focus, which shows the figures; Enter and Escape zoom."""
    names = [label.split(",")[0] for label in seen["walk"]]
    compiled = ["compile scale(int64)", "compile scale(float64)"]
    assert names == ["MainThread", "main", *compiled, "main", "main"]
    assert "200,005,000 ns" in seen["focusTip"]
    assert seen["enter"] == ["MainThread", "main"]
    assert seen["enterFocus"].startswith("main,")
    assert seen["escape"] == ["MainThread"]


def test_search_marks_and_filters(seen):
    """Matches are counted and marked in both charts, and the table has only them."""
    assert seen["hits"] == "2 boxes, 100 ms, 10.0 %"
    assert (seen["hitBoxes"], seen["hitEvents"], seen["hitRows"]) == (1, 1, 1)
    assert seen["hitFocus"].startswith("compile scale(float64)")
    assert seen["cleared"] == [0, 2, ""]


def test_table_sorts_both_ways(seen):
    """A click on a heading sorts, another one turns the order round."""
    assert seen["sort"] == [
        ["descending", ["3", "2"]],
        ["ascending", ["2", "3"]],
        ["ascending", ["scale(float64)", "scale(int64)"]],
    ]


def test_row_shows_where_its_overload_ran(seen):
    """The boxes of the overload are marked, and Escape takes that back."""
    assert (seen["picked"], seen["unpicked"]) == (1, 0)


def test_timeline_zooms(seen):
    """A click shows one event at full width, a button the whole run again."""
    assert (seen["zoomedEvents"], seen["wholeEvents"]) == (True, 2)


def test_colours_follow_the_system_and_the_button(seen):
    """The button changes light to dark, and so does the system's setting."""
    light, by_hand, by_system = seen["colours"]
    assert light != by_hand
    assert by_hand == by_system


def test_page_fits_a_small_window(seen):
    """At 800 pixels nothing sticks out to the side."""
    assert seen["overflow"] <= 0


def test_hostile_names_do_nothing(evil):
    """No script of theirs ran, no element of theirs is there, nothing was fetched."""
    assert evil["errors"] == []
    assert evil["failed"] == []
    assert (evil["pwned"], evil["images"]) == ("undefined", 0)
    assert len(evil["requests"]) == 1


def test_hostile_names_are_shown_as_they_are(evil):
    """Markup in a name is text on the page."""
    assert "</script><img src=x" in evil["hover"]


def test_page_says_what_it_does_not_draw(evil):
    """Pruned contexts are counted below the picture."""
    assert evil["pruned"].startswith("Not drawn: ")


# -- JupyterLab ------------------------------------------------------------------------

CELL = """
import numbaprof
from numba import njit

@njit
def double(x):
    return 2 * x

with numbaprof.profile() as p:
    for i in range(5):
        double(i)
p
"""


@pytest.fixture
def lab(tmp_path):
    """Start JupyterLab on a notebook of one cell and return its address."""
    jupyter = TOOLS / "lab" / "bin" / "jupyter-lab"
    if not jupyter.exists():
        pytest.skip(f"no {jupyter}; .ci/browser installs it")
    find_driver()
    write_notebook(tmp_path / "cell.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = {
        f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME")
    }
    command = [
        *(jupyter, "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        *(f"--port={port}", "--ServerApp.port_retries=0"),
        *("--IdentityProvider.token=", "--PasswordIdentityProvider.hashed_password="),
        f"--ServerApp.root_dir={tmp_path}",
    ]
    environment = os.environ | paths | {"PYTHONPATH": str(ROOT)}
    with open(tmp_path / "lab.log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api", server)
        yield f"{address}/lab/tree/cell.ipynb?reset"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def write_notebook(path: Path) -> None:
    """Write a notebook with one cell that shows a profile."""
    cell = {
        "cell_type": "code",
        "id": "cell",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": CELL.strip(),
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {
        "cells": [cell],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(notebook))


def wait_for(address: str, server: subprocess.Popen) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + LAB_TIMEOUT
    while True:
        try:
            with urlopen(address, timeout=5):
                return
        except OSError:
            assert server.poll() is None, "JupyterLab ended by itself"
            assert time.monotonic() < deadline, "JupyterLab does not answer"
            time.sleep(0.5)


@pytest.mark.slow
def test_cell_of_jupyterlab_shows_the_page(lab):
    """A profile at the end of a cell is the page: it draws, zooms and can be saved."""
    seen = drive("lab", lab)
    assert seen["shown"], seen["output"]
    assert seen["boxes"] >= 4
    assert seen["rows"] == 1
    assert (seen["before"], seen["after"]) == (1, 2)
    assert seen["saved"] == ["<!doctype html>", True, False]
