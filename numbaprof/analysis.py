"""What a profile means: where time went, why overloads exist, what to change.

One name for the three modules that compute it, all pure functions of a
:class:`~numbaprof.model.ProfileResult`:

- :mod:`numbaprof.summary`: figures that add up, percentiles, names;
- :mod:`numbaprof.why`: the reason for each overload;
- :mod:`numbaprof.findings`: advice with evidence.
"""

from __future__ import annotations

from numbaprof.findings import INFO_SLUGS, SLUGS, Finding, find
from numbaprof.summary import (
    CompileTotals,
    SiteTotals,
    Summary,
    TimeSplit,
    display_names,
    is_internal,
    never_called,
    payback_calls,
    percentile,
    root_of,
    summarize,
)
from numbaprof.why import explain_overloads

__all__ = [
    "INFO_SLUGS",
    "SLUGS",
    "CompileTotals",
    "Finding",
    "SiteTotals",
    "Summary",
    "TimeSplit",
    "display_names",
    "explain_overloads",
    "find",
    "is_internal",
    "never_called",
    "payback_calls",
    "percentile",
    "root_of",
    "summarize",
]
