"""Comparisons for people: terminal and Markdown."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from run_builders import TEST, make_run, make_run_overload, make_side, make_times

from numbaprof import compare_text
from numbaprof.comparing import compare

SLOWER = math.log(1.2)


def slow(name="pkg.kern.slow", signature="(float64[::1])", count=10):
    """Build an overload that is 20 % slower."""
    times = (make_times(*[SLOWER] * count),)
    return make_run_overload(name, signature, times=times)


def same(name="pkg.kern.same"):
    """Build an overload whose code is the same."""
    return make_run_overload(name, "(int64)", head=make_side("a"))


def cells(line):
    """Split a table line at the bars that are not escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_first_line_says_the_verdict():
    """Who reads no further knows the answer."""
    text = str(compare(make_run(slow(), same())))
    assert text.splitlines()[0] == "numbaprof: 1 regression in 2 rows"
    quiet = str(compare(make_run(same())))
    assert quiet.splitlines()[0] == "numbaprof: no regression in 1 row"
    suspect = str(compare(make_run(slow(count=5))))
    assert suspect.splitlines()[0] == "numbaprof: no regression in 1 row, 1 suspect"


def test_failing_row_has_its_evidence():
    """Times, change, and why it fails are in the row."""
    text = " ".join(str(compare(make_run(slow()))).split())
    assert "FAIL" in text
    assert "+20.0%" in text
    assert "10 of 10" in text


def test_noise_of_the_run_is_told():
    """Rows with the same code measure the noise."""
    assert "Noise of this run: 1 row" in str(compare(make_run(same())))


def test_terminal_uses_colour_only_when_asked():
    """Files and pipes get plain text."""
    made = compare(make_run(slow()))
    assert "\x1b[" not in compare_text.render(made)
    assert "\x1b[" in compare_text.render(made, color=True)


def test_many_quiet_rows_are_counted_on_the_terminal():
    """Hundreds of rows without a finding are not listed."""
    rows = [same(f"pkg.kern.f{number}") for number in range(100)]
    text = str(compare(make_run(slow(), *rows)))
    assert "and 60 more rows without a finding" in text


def test_markdown_puts_failing_rows_first_and_folds_the_rest():
    """The table of failures is open, the rest is folded."""
    text = compare(make_run(same(), slow())).to_markdown()
    assert text.startswith("## 🔴 numbaprof: 1 regression in 2 rows")
    assert text.index("kern.slow") < text.index("<details>") < text.index("kern.same")
    assert text.index("kern.same") < text.index("</details>")


def test_markdown_escapes_bars():
    """A signature with a bar, as a union or a repr has, keeps its table whole."""
    odd = slow("pkg.kern.odd", "(Literal[str](a|b), `x`)")
    text = compare(make_run(odd)).to_markdown()
    lines = [line for line in text.splitlines() if "kern.odd" in line]
    assert len(lines) == 1
    assert len(cells(lines[0])) == len(compare_text.HEADERS)
    assert cells(lines[0])[2] == r"`pkg.kern.odd(Literal[str](a\|b), 'x')`"


def test_markdown_of_a_thousand_rows_fits_a_comment():
    """GitHub cuts at 65,536 characters; what is left out is counted."""
    signature = f"({', '.join(['float64[:, :, ::1]'] * 6)})"
    rows = [slow(f"package.module.kernel_{n}", signature) for n in range(1000)]
    text = compare(make_run(*rows)).to_markdown()
    assert 50_000 < len(text) <= compare_text.MARKDOWN_LIMIT
    shown = sum(line.startswith("| 🔴") for line in text.splitlines())
    assert f"... and {1000 - shown:,} more rows like these" in text
    assert "1,000 regressions" in text


def test_markdown_of_a_thousand_quiet_rows_fits_a_comment():
    """Also when nothing fails."""
    rows = [same(f"package.module.kernel_{n}") for n in range(1000)]
    text = compare(make_run(slow(), *rows)).to_markdown()
    assert len(text) <= compare_text.MARKDOWN_LIMIT
    assert "1 regression" in text
    assert "</details>" in text
    assert re.search(r"and \d+ more rows", text)


def test_markdown_shows_problems():
    """What could not be compared stands above the table."""
    run = make_run(same())
    run = replace(run, head=replace(run.head, failed_tests=(TEST,)))
    text = compare(run).to_markdown()
    assert "> 1 of the common tests failed on the head side" in text


def test_advisory_reason_is_told():
    """A reader learns why a slower row does not fail."""
    made = replace(compare(make_run(slow())), advisory="other machine (a against b)")
    assert "Run times are advisory: other machine" in str(made)
