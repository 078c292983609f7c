"""Comparisons for machines: JSON, JUnit, CSV, GitHub's workflow commands."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator
from run_builders import TEST, make_run, make_run_overload, make_side, make_times

from numbaprof import compare_files
from numbaprof.comparing import compare

PUBLISHED_SCHEMA = Path(__file__).parent.parent / "docs" / "compare-1.schema.json"
SLOWER = math.log(1.2)


def comparison(**changes):
    """Return a comparison with one failing row, one new overload and one quiet row."""
    slow = make_run_overload(times=(make_times(*[SLOWER] * 10),))
    same = make_run_overload("pkg.kern.same", "(int64)", head=make_side("a"))
    new = make_run_overload("pkg.kern.dot", "(float32[::1])")
    new = replace(new, base=None, tests=(make_times(base_calls=0.0),))
    return compare(make_run(slow, same, new, **changes))


def test_published_schema_is_that_of_the_code():
    """Renew it with python -m numbaprof.compare_files."""
    assert json.loads(PUBLISHED_SCHEMA.read_text()) == compare_files.compare_schema()


def test_json_follows_the_schema():
    """Every field of a comparison with all kinds of rows is as published."""
    schema = compare_files.compare_schema()
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(comparison().to_json()))


def test_junit_has_a_failure_per_failing_row():
    """What GitLab and Jenkins show is what the table says."""
    made = comparison()
    suites = ElementTree.fromstring(made.to_junit())
    assert len(made.failing) == 2
    assert suites.get("failures") == "2"
    assert suites.get("tests") == "3"
    assert len(suites.findall(".//failure")) == 2
    messages = [node.get("message") for node in suites.findall(".//failure")]
    assert any("run time +20.0%" in message for message in messages)


def test_junit_reports_what_could_not_be_compared_as_an_error():
    """A side whose test failed is an error, not a failure."""
    side = replace(make_run().head, failed_tests=("t.py::test_x",))
    suites = ElementTree.fromstring(comparison(head=side).to_junit())
    assert suites.get("errors") == "1"
    assert len(suites.findall(".//error")) == 1


def test_junit_holds_any_name():
    """Markup, quotes and control characters in names are written, or replaced."""
    odd = make_run_overload('pkg.<lambda>"&\x00', "(int64)")
    suites = ElementTree.fromstring(compare(make_run(odd)).to_junit())
    (case,) = suites.findall(".//testcase")
    assert case.get("name") == 'pkg.<lambda>"&?(int64)'


def test_csv_has_a_line_per_row():
    """Columns are those of the DataFrame."""
    made = comparison()
    records = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert len(records) == len(made.entries)
    assert tuple(records[0]) == compare_files.COLUMNS
    assert list(made.rows.columns) == list(compare_files.COLUMNS)


def test_csv_is_written_to_a_file(tmp_path):
    """With a path the text goes there as well."""
    text = comparison().to_csv(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == text.replace("\r\n", "\n")


def test_annotation_stands_at_the_function():
    """GitHub shows a failure at the line of the jitted function."""
    lines = compare_files.github_annotations(comparison())
    assert len(lines) == 2
    assert lines[0].startswith("::error file=pkg/kern.py,line=12,title=numbaprof%3A ")
    assert TEST in lines[0]


@pytest.mark.parametrize("text", ["a,b", "50 %", "two\nlines", "a:b"])
def test_annotation_is_one_command(text):
    """Line ends, commas and per cent signs cannot end a command or a property."""
    odd = make_run_overload(f"pkg.{text}", times=(make_times(*[SLOWER] * 10),))
    (line,) = compare_files.github_annotations(compare(make_run(odd)))
    assert "\n" not in line
    assert line.count("::") == 2 + TEST.count("::")
    assert len(line.partition("::error ")[2].partition("::")[0].split(",")) == 3


def test_table_of_no_rows_has_its_types():
    """An empty table has the columns of a full one."""
    empty = replace(comparison(), entries=())
    frame = compare_files.rows_frame(empty)
    assert str(frame.dtypes["base_s"]) == "float64"
    assert str(frame.dtypes["line"]) == "Int64"
