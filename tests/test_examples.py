"""The example computes what is known about its data."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def answers() -> str:
    """Return what ``examples/nile.py`` prints, run as a user would."""
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "nile.py"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_nile_data_is_the_published_series():
    """Years, mean and extremes of nile.csv are those of Cobb's hundred years."""
    with (EXAMPLES / "nile.csv").open() as file:
        rows = [(int(row["year"]), int(row["flow"])) for row in csv.DictReader(file)]
    years, flows = zip(*rows, strict=True)
    assert years == tuple(range(1871, 1971))
    assert sum(flows) == 91935
    assert (min(flows), years[flows.index(456)]) == (456, 1913)
    assert (max(flows), years[flows.index(1370)]) == (1370, 1879)


def test_nile_split_is_the_published_one(answers):
    """The best split is after 1898, between means of 1097.75 and 849.97."""
    assert answers.startswith(
        "best split after 1898: mean flow 1097.75 before, 849.97 after\n"
    )


def test_nile_variances_are_the_published_ones(answers):
    """The likeliest local level model has variances 15099 and 1469.1."""
    found = re.search(r"noise (\d+), drift (\d+\.\d)", answers)
    assert found is not None
    assert float(found[1]) == pytest.approx(15099, abs=1)
    assert float(found[2]) == pytest.approx(1469.1, abs=0.2)


def test_energy_shows_its_lines_and_how_often_each_was_run():
    """The inner line is run once for each pair of points; the exponential is named."""
    text = subprocess.run(
        [sys.executable, EXAMPLES / "energy.py"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "120", "PYTHONPATH": str(EXAMPLES.parent)},
    ).stdout
    assert re.search(r"199,990,000 .* r = distance\(points\[i\], points\[j\]\)", text)
    (line,) = (line for line in text.splitlines() if "np.exp" in line)
    assert re.search(r"9\d,\d{3},\d{3} ", line)
    assert re.search(r"\d % exp \(libm\)", text)
