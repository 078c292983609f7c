"""Comparisons for machines: DataFrame, JSON with a schema, JUnit XML, CSV, GitHub.

JSON is ``{"format": "numbaprof comparison", "format_version": 1, "comparison": ...}``
with a :class:`~numbaprof.comparison.Comparison` field by field; its schema is
``docs/compare-1.schema.json``.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from numbaprof.comparison import Comparison, Row
from numbaprof.schema import json_schema, to_plain

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "compare_schema",
    "github_annotations",
    "rows_frame",
    "to_csv",
    "to_json",
    "to_junit",
]

FORMAT_NAME = "numbaprof comparison"
FORMAT_VERSION = 1
NS_PER_S = 1e9
COLUMNS = (
    "test",
    "function",
    "signature",
    "status",
    "base_s",
    "head_s",
    "change",
    "change_low",
    "change_high",
    "sessions",
    "time",
    "time_reason",
    "code",
    "code_reason",
    "base_instructions",
    "head_instructions",
    "base_packed_fp",
    "head_packed_fp",
    "base_width_bits",
    "head_width_bits",
    "base_compile_s",
    "head_compile_s",
    "compile_reason",
    "base_calls",
    "head_calls",
    "failed",
    "gates",
    "why",
    "notes",
    "file",
    "line",
)
_INTEGERS = tuple(
    f"{side}_{what}"
    for what in ("instructions", "packed_fp", "width_bits")
    for side in ("base", "head")
)
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) has no way to write."""


def _record(row: Row) -> dict[str, Any]:
    """Return a row under the names of the columns; durations in seconds."""
    seconds = {
        f"{name}_s": None if value is None else value / NS_PER_S
        for name, value in (
            ("base", row.base_ns),
            ("head", row.head_ns),
            ("base_compile", row.base_compile_ns),
            ("head_compile", row.head_compile_ns),
        )
    }
    derived = {
        "failed": row.failed,
        "gates": ", ".join(failure.gate for failure in row.failures),
        "why": row.why,
        "notes": "; ".join(row.notes),
    }
    known = seconds | derived
    return {
        name: known[name] if name in known else getattr(row, name) for name in COLUMNS
    }


def rows_frame(comparison: Comparison) -> pd.DataFrame:
    """Return one row per entry, columns as :data:`COLUMNS`."""
    import pandas as pd

    records = [_record(row) for row in comparison.entries]
    frame: pd.DataFrame = pd.DataFrame(records, columns=list(COLUMNS))
    floats = [n for n in COLUMNS if n.endswith("_s") or "change" in n or "calls" in n]
    for name in (*floats, *_INTEGERS, "sessions", "line"):
        frame[name] = frame[name].astype("float64" if name in floats else "Int64")
    return frame


def to_csv(comparison: Comparison) -> str:
    """Return the rows as CSV (RFC 4180, with a header)."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(_record(row) for row in comparison.entries)
    return text.getvalue()


def to_json(comparison: Comparison) -> str:
    """Return the comparison as JSON, with what follows from it: verdict, exit code."""
    document = {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "verdict": comparison.verdict,
        "exit_code": comparison.exit_code,
        "failed": len(comparison.failing),
        "comparison": to_plain(comparison),
    }
    return json.dumps(document, allow_nan=False, indent=1) + "\n"


def compare_schema() -> dict[str, Any]:
    """Return the JSON schema of :func:`to_json`, as published in ``docs/``.

    ``python -m numbaprof.compare_files > docs/compare-1.schema.json`` renews it.
    """
    inner = json_schema(Comparison)
    verdicts = ["ok", "suspect", "regression", "incomplete"]
    properties = {
        "format": {"const": FORMAT_NAME},
        "format_version": {"const": FORMAT_VERSION},
        "verdict": {"enum": verdicts},
        "exit_code": {"enum": [0, 1, 2]},
        "failed": {"type": "integer"},
        "comparison": {"$ref": inner["$ref"]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{FORMAT_NAME}, format_version {FORMAT_VERSION}",
        "description": "Times are nanoseconds; changes are relative, 0.1 is 10 % "
        "slower; null means 'cannot be had'.",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": inner["$defs"],
    }


def to_junit(comparison: Comparison) -> str:
    """Return JUnit XML: a test case per row, a failure for each failing one.

    What could not be compared is an error of its own test case.
    """
    cases = [_junit_case(row) for row in comparison.entries]
    cases += [
        '<testcase classname="numbaprof" name="comparison">'
        f"<error message={_attribute(problem)}/></testcase>"
        for problem in comparison.problems
    ]
    counts = (
        f'tests="{len(cases)}" failures="{len(comparison.failing)}" '
        f'errors="{len(comparison.problems)}"'
    )
    body = "\n".join(cases)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<testsuites {counts}><testsuite name="numbaprof" {counts}>\n'
        f"{body}\n</testsuite></testsuites>\n"
    )


def _junit_case(row: Row) -> str:
    begin = (
        f"<testcase classname={_attribute(row.test or row.function)} "
        f"name={_attribute(row.name)} file={_attribute(row.file)} "
        f'line="{row.line}" time="{(row.head_ns or 0.0) / NS_PER_S:.9f}">'
    )
    inside = ""
    if row.failed:
        listed = "\n".join(f"{f.gate}: {f.evidence}" for f in row.failures)
        inside = f"<failure message={_attribute(row.why)}>{_text(listed)}</failure>"
    elif row.time in ("suspect", "advisory"):
        inside = f"<system-out>{_text(row.time + ': ' + row.time_reason)}</system-out>"
    return f"{begin}{inside}</testcase>"


def _text(value: str) -> str:
    return escape(NOT_XML.sub("?", value))


def _attribute(value: str) -> str:
    return quoteattr(NOT_XML.sub("?", value), {"\n": "&#10;"})


def github_annotations(comparison: Comparison) -> list[str]:
    """Return GitHub's workflow commands, one per failing row, at the function's line.

    The format is GitHub's: properties escape ``%``, line ends, ``:`` and ``,``.
    """
    lines = []
    for row in comparison.failing:
        place = f"file={_property(row.file)},line={max(row.line, 1)}"
        title = _property(f"numbaprof: {row.name}")
        message = _message(f"{row.why} ({row.test})" if row.test else row.why)
        lines.append(f"::error {place},title={title}::{message}")
    lines += [f"::error ::{_message(problem)}" for problem in comparison.problems]
    return lines


def _message(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _message(value).replace(":", "%3A").replace(",", "%2C")


if __name__ == "__main__":
    print(json.dumps(compare_schema(), indent=2))
