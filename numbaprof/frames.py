"""Data frames of a profile: one function for each view of ``ProfileResult``.

Every column, with unit and type, is described in ``docs/columns.md``; the types are the
same in an empty frame. Seconds appear here and nowhere below. Whatever cannot be had is
missing (``NaN`` or ``<NA>``), never 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numbaprof.analysis import (
    display_names,
    explain_overloads,
    find,
    is_internal,
    payback_calls,
    percentile,
)
from numbaprof.call_graph import Key, build_call_graph
from numbaprof.line_table import build_line_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from numbaprof.model import (
        ContextNode,
        Fingerprint,
        FunctionId,
        OverloadStats,
        ProfileResult,
    )

__all__ = [
    "CALLERS_COLUMNS",
    "COMPILES_COLUMNS",
    "FINDINGS_COLUMNS",
    "FUNCTIONS_COLUMNS",
    "LINES_COLUMNS",
    "STATS_COLUMNS",
    "callers_frame",
    "compiles_frame",
    "findings_frame",
    "functions_frame",
    "lines_frame",
    "stats_frame",
]

NS_PER_SECOND = 1e9

# Types as pandas names them. "str" is its default for text: object before pandas 3.
TEXT, COUNT, SECONDS, FLAG, ANY = "str", "Int64", "float64", "bool", "object"

STATS_COLUMNS: Mapping[str, str] = {
    "function": TEXT,
    "signature": TEXT,
    "module": TEXT,
    "file": TEXT,
    "line": COUNT,
    "ncalls": COUNT,
    "errors": COUNT,
    "total_s": SECONDS,
    "self_s": SECONDS,
    "mean_s": SECONDS,
    "min_s": SECONDS,
    "p50_s": SECONDS,
    "p99_s": SECONDS,
    "max_s": SECONDS,
    "dispatch_s": SECONDS,
    "compile_s": SECONDS,
    "compile_self_s": SECONDS,
    "origin": TEXT,
    "reason": TEXT,
    "countable": FLAG,
    "not_countable_reason": TEXT,
    "kind": TEXT,
    # Appended since; new columns go below so that positions stay.
    "cache_load_s": SECONDS,
    "payback_calls": COUNT,
    "in_flight": COUNT,
    "elements": COUNT,
    "unbox_s": SECONDS,
    "kernel_s": SECONDS,
    "box_s": SECONDS,
    "dispatch_reason": TEXT,
    "compile_reason": TEXT,
    "boxing_reason": TEXT,
    "return_type": TEXT,
    "fingerprint": TEXT,
    "instructions": COUNT,
    "packed_fp": COUNT,
    "vector_bits": COUNT,
    "fingerprint_reason": TEXT,
}
"""Columns of ``p.stats`` with their types; the first two are the index."""

COMPILES_COLUMNS: Mapping[str, str] = {
    "function": TEXT,
    "signature": TEXT,
    "event": TEXT,
    "inclusive_s": SECONDS,
    "exclusive_s": SECONDS,
    "thread": TEXT,
    "trigger_file": TEXT,
    "trigger_line": COUNT,
    # Appended since.
    "trigger_function": TEXT,
    "start_s": SECONDS,
    "kind": TEXT,
    "at_import": FLAG,
    "import_module": TEXT,
    "process": COUNT,
    "parent": COUNT,
    "internal": FLAG,
    "error": TEXT,
    "cpu_s": SECONDS,
    "test": TEXT,
}
"""Columns of ``p.compiles`` with their types."""

FINDINGS_COLUMNS: Mapping[str, str] = {
    "slug": TEXT,
    "function": TEXT,
    "signature": TEXT,
    "message": TEXT,
    "evidence": ANY,
    "try": TEXT,
}
"""Columns of ``p.findings`` with their types."""

CALLERS_COLUMNS: Mapping[str, str] = {
    "function": TEXT,
    "signature": TEXT,
    "caller": TEXT,
    "caller_kind": TEXT,
    "caller_file": TEXT,
    "caller_line": COUNT,
    "ncalls": COUNT,
    "errors": COUNT,
    "total_s": SECONDS,
    "self_s": SECONDS,
    "dispatch_s": SECONDS,
}
"""Columns of ``p.callers`` with their types."""


FUNCTIONS_COLUMNS: Mapping[str, str] = {
    "function": TEXT,
    "signature": TEXT,
    "ncalls": COUNT,
    "primitive_calls": COUNT,
    "tottime": SECONDS,
    "cumtime": SECONDS,
    "file": TEXT,
    "line": COUNT,
    "kind": TEXT,
    "overflow": TEXT,
}
"""Columns of ``p.functions`` with their types; times are seconds, named as pstats does.
"""

LINES_COLUMNS: Mapping[str, str] = {
    "function": TEXT,
    "signature": TEXT,
    "file": TEXT,
    "line": COUNT,
    "samples": COUNT,
    "time_s": SECONDS,
    "time_low_s": SECONDS,
    "time_high_s": SECONDS,
    "share": SECONDS,
    "hits": COUNT,
    "vector_width": COUNT,
    "remark": TEXT,
    "source": TEXT,
    "self_samples": COUNT,
    "self_s": SECONDS,
    "callees": ANY,
    "instructions": COUNT,
    "hits_reason": TEXT,
    "internal": FLAG,
}
"""Columns of ``p.lines`` with their types; ``share`` is a number within 0 and 1."""


def stats_frame(result: ProfileResult) -> pd.DataFrame:
    """Tabulate the overloads of a profile.

    Returns
    -------
    DataFrame
        One row per overload in the order of the profile, Numba's own helpers included
        (origin ``internal``); index (``function``, ``signature``); columns as in
        :data:`STATS_COLUMNS`.
    """
    names = display_names(result)
    reasons = explain_overloads(result)
    rows = [
        {
            "function": names[overload.function],
            "reason": reason,
            **_describe_overload(overload),
            **_measure_overload(overload),
        }
        for overload, reason in zip(result.overloads, reasons, strict=True)
    ]
    frame = _to_frame(rows, STATS_COLUMNS)
    indexed: pd.DataFrame = frame.set_index(["function", "signature"])
    return indexed


def lines_frame(result: ProfileResult, *, internal: bool = False) -> pd.DataFrame:
    """Tabulate the source lines of compiled code that were sampled or counted.

    Parameters
    ----------
    result : ProfileResult
        Any profile.
    internal : bool, optional
        Give Numba's own functions rows of their own.

    Returns
    -------
    DataFrame
        One row per overload and line, the dearest overload first, lines in order;
        columns as in :data:`LINES_COLUMNS`. ``self_samples`` adds up to the samples
        that ended in compiled code.
    """
    names = display_names(result)
    rows = [
        {
            "function": names.get(row.function, row.function.qualname),
            "signature": row.signature,
            "file": row.file,
            "line": row.line or None,
            "samples": row.samples,
            "time_s": row.time_ns / NS_PER_SECOND,
            "time_low_s": row.low_ns / NS_PER_SECOND,
            "time_high_s": row.high_ns / NS_PER_SECOND,
            "share": row.share,
            "hits": row.hits,
            "vector_width": row.vector_width,
            "remark": "; ".join(row.remarks),
            "source": row.source,
            "self_samples": row.self_samples,
            "self_s": row.self_ns / NS_PER_SECOND,
            "callees": {name or "(own code)": n for name, n in row.callees},
            "instructions": row.instructions,
            "hits_reason": row.hits_reason,
            "internal": row.internal,
        }
        for table in build_line_tables(result, internal=internal)
        for row in table.rows
    ]
    return _to_frame(rows, LINES_COLUMNS)


def compiles_frame(result: ProfileResult) -> pd.DataFrame:
    """Tabulate compilations, cache loads and failures to compile.

    Returns
    -------
    DataFrame
        One row per event, failed and internal ones included; the index is what the
        column ``parent`` refers to; columns as in :data:`COMPILES_COLUMNS`.
    """
    names = display_names(result)
    rows = [
        {
            "function": names[event.function],
            "signature": event.signature,
            "event": event.event,
            "inclusive_s": event.inclusive_ns / NS_PER_SECOND,
            "exclusive_s": event.exclusive_ns / NS_PER_SECOND,
            "thread": event.thread,
            "trigger_file": event.trigger.file if event.trigger else "",
            "trigger_line": event.trigger.line if event.trigger else None,
            "trigger_function": event.trigger.function if event.trigger else "",
            "start_s": event.start_ns / NS_PER_SECOND,
            "kind": event.kind,
            "at_import": event.at_import,
            "import_module": event.import_module,
            "process": event.process,
            "parent": event.parent if event.parent >= 0 else None,
            "internal": event.internal,
            "error": event.error,
            "cpu_s": None if event.cpu_ns is None else event.cpu_ns / NS_PER_SECOND,
            "test": event.test,
        }
        for event in result.compile_events
    ]
    return _to_frame(rows, COMPILES_COLUMNS)


def findings_frame(result: ProfileResult) -> pd.DataFrame:
    """Tabulate the findings of a profile.

    Returns
    -------
    DataFrame
        One row per finding, in the order of :func:`numbaprof.analysis.find`;
        ``evidence`` holds dicts; columns as in :data:`FINDINGS_COLUMNS`.
    """
    names = display_names(result)
    rows = [
        {
            "slug": finding.slug,
            "function": names[finding.function] if finding.function else "",
            "signature": finding.signature,
            "message": finding.message,
            "evidence": dict(finding.evidence),
            "try": finding.try_,
        }
        for finding in find(result)
    ]
    return _to_frame(rows, FINDINGS_COLUMNS)


def callers_frame(result: ProfileResult) -> pd.DataFrame:
    """Tabulate who called each overload, over all threads and processes.

    Returns
    -------
    DataFrame
        One row per (overload, caller), dearest first within an overload; columns as in
        :data:`CALLERS_COLUMNS`.

    Notes
    -----
    Under recursion ``total_s`` counts each moment once: a call made inside another call
    of the same overload adds to ``ncalls`` and ``self_s`` alone.
    """
    names = display_names(result)
    totals: dict[int, dict[_Caller, list[int]]] = defaultdict(
        lambda: defaultdict(lambda: [0, 0, 0, 0, 0])
    )
    for index, node in enumerate(result.contexts):
        if node.kind != "overload":
            continue
        caller = _find_caller(result, node, names)
        is_outermost = not _is_inside_itself(result.contexts, index)
        sums = totals[node.overload][caller]
        for place, value in enumerate(
            (
                node.calls,
                node.errors,
                node.inclusive_ns * is_outermost,
                node.exclusive_ns,
                node.dispatch_ns,
            )
        ):
            sums[place] += value
    rows = []
    for position, callers in sorted(totals.items()):
        overload = result.overloads[position]
        for caller, sums in sorted(callers.items(), key=lambda item: -item[1][2]):
            calls, errors, *durations = sums
            total_s, self_s, dispatch_s = (ns / NS_PER_SECOND for ns in durations)
            rows.append(
                {
                    "function": names[overload.function],
                    "signature": overload.signature,
                    "caller": caller.name,
                    "caller_kind": caller.kind,
                    "caller_file": caller.file,
                    "caller_line": caller.line,
                    "ncalls": calls,
                    "errors": errors,
                    "total_s": total_s,
                    "self_s": self_s,
                    "dispatch_s": dispatch_s,
                }
            )
    return _to_frame(rows, CALLERS_COLUMNS)


def functions_frame(result: ProfileResult) -> pd.DataFrame:
    """Tabulate Python functions, builtins, overloads and compiling in pstats terms.

    Returns
    -------
    DataFrame
        One row per function and signature that was called, the largest own time first;
        columns as in :data:`FUNCTIONS_COLUMNS`. Python functions and builtins are there
        if they were traced. The ``tottime`` of an overload has its dispatch time in it,
        so that the column adds up to the time of the threads.
    """
    names = display_names(result)
    rows = [
        {
            **_describe_function(result, key, names),
            "ncalls": entry.calls,
            "primitive_calls": entry.primitive_calls,
            "tottime": entry.exclusive_ns / NS_PER_SECOND,
            "cumtime": entry.inclusive_ns / NS_PER_SECOND,
        }
        for key, entry in build_call_graph(result).items()
    ]
    rows.sort(key=lambda row: -row["tottime"])
    return _to_frame(rows, FUNCTIONS_COLUMNS)


# -- rows ------------------------------------------------------------------------------


def _describe_overload(overload: OverloadStats) -> dict[str, object]:
    function = overload.function
    return {
        "signature": overload.signature,
        "module": function.module,
        "file": function.file,
        "line": function.line or None,
        "origin": "internal" if is_internal(overload) else overload.origin,
        "countable": overload.countable,
        "not_countable_reason": overload.not_countable_reason,
        "kind": overload.kind,
        "dispatch_reason": overload.dispatch_reason,
        "compile_reason": overload.compile_reason,
        "boxing_reason": overload.boxing_reason,
        "return_type": overload.return_type,
        "fingerprint_reason": overload.fingerprint_reason,
        **_describe_code(overload.fingerprint),
    }


def _describe_code(fingerprint: Fingerprint | None) -> dict[str, object]:
    return {
        "fingerprint": fingerprint.code if fingerprint else "",
        "instructions": fingerprint.instructions if fingerprint else None,
        "packed_fp": fingerprint.packed_fp if fingerprint else None,
        "vector_bits": fingerprint.width_bits if fingerprint else None,
    }


def _describe_function(
    result: ProfileResult, key: Key, names: Mapping[FunctionId, str]
) -> dict[str, Any]:
    if key.kind == "row":
        row = result.python_rows[key.number]
        return {
            "function": row.qualname,
            "signature": row.signature,
            "file": row.file,
            "line": row.line or None,
            "kind": row.kind,
            "overflow": row.overflow,
        }
    if key.kind == "overload":
        overload = result.overloads[key.number]
        function = overload.function
        return {
            "function": names[function],
            "signature": overload.signature,
            "file": function.file,
            "line": function.line or None,
            "kind": overload.kind,
            "overflow": "",
        }
    blank = {"signature": "", "file": "", "line": None, "overflow": ""}
    return {"function": f"[{key.kind}]", "kind": key.kind, **blank}


def _measure_overload(overload: OverloadStats) -> dict[str, object]:
    calls, boxing = overload.calls, overload.boxing
    inclusive_ns = overload.inclusive_ns
    p50_ns, p99_ns = (_percentile(overload, q) for q in (0.5, 0.99))
    durations = {
        "total_s": inclusive_ns,
        "self_s": overload.exclusive_ns,
        "mean_s": inclusive_ns / calls if calls and inclusive_ns is not None else None,
        "min_s": overload.min_ns,
        "p50_s": p50_ns,
        "p99_s": p99_ns,
        "max_s": overload.max_ns,
        "dispatch_s": overload.dispatch_ns,
        "compile_s": overload.compile_ns,
        "compile_self_s": overload.compile_self_ns,
        "cache_load_s": overload.cache_load_ns,
        "unbox_s": boxing.unbox_ns if boxing else None,
        "kernel_s": boxing.kernel_ns if boxing else None,
        "box_s": boxing.box_ns if boxing else None,
    }
    return {
        "ncalls": calls,
        "errors": overload.errors,
        "in_flight": overload.in_flight,
        "elements": overload.elements,
        "payback_calls": payback_calls(overload),
        **{
            name: None if ns is None else ns / NS_PER_SECOND
            for name, ns in durations.items()
        },
    }


def _percentile(overload: OverloadStats, q: float) -> int | None:
    if overload.min_ns is None or overload.max_ns is None:
        return None
    return percentile(
        overload.histogram, q, min_ns=overload.min_ns, max_ns=overload.max_ns
    )


@dataclass(frozen=True, slots=True)
class _Caller:
    name: str
    kind: str
    file: str = ""
    line: int | None = None


def _find_caller(
    result: ProfileResult, node: ContextNode, names: Mapping[FunctionId, str]
) -> _Caller:
    if node.via is not None:
        return _Caller(node.via.function, "python", node.via.file, node.via.line)
    parent = result.contexts[node.parent]
    if parent.kind == "overload":
        overload = result.overloads[parent.overload]
        function = overload.function
        name = names[function] + overload.signature
        return _Caller(name, "overload", function.file, function.line or None)
    if parent.python_row >= 0:
        row = result.python_rows[parent.python_row]
        return _Caller(row.qualname, row.kind, row.file, row.line or None)
    return _Caller(parent.label or parent.kind, parent.kind)


def _is_inside_itself(contexts: tuple[ContextNode, ...], index: int) -> bool:
    overload, index = contexts[index].overload, contexts[index].parent
    while index >= 0:
        if contexts[index].overload == overload:
            return True
        index = contexts[index].parent
    return False


def _to_frame(
    rows: Iterable[Mapping[str, object]], columns: Mapping[str, str]
) -> pd.DataFrame:
    """Build a frame with exactly these columns and types, also from no rows."""
    import pandas as pd

    rows = list(rows)
    frame: pd.DataFrame = pd.DataFrame(
        {
            name: pd.Series([row[name] for row in rows], dtype=dtype)
            for name, dtype in columns.items()
        },
        columns=list(columns),
    )
    return frame
