"""One row of a comparison: what is the same, what is slower, what fails, and why."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from numbaprof import gates
from numbaprof.comparison import Code, Failure, GateOptions, Row, Status, TimeVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numbaprof.pairing import Half
    from numbaprof.rule import Judgement

__all__ = ["Terms", "enabled", "make_row"]

PARALLEL_REASON = "parallel: its time depends on who else uses the processors"
SAME_CODE_REASON = "same machine code: what differs is noise"


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all rows of one comparison."""

    kind: Literal["ab", "runs", "profiles"]
    options: GateOptions
    min_effect: float
    target_reason: str
    """Why machine code cannot be compared; "" when it can."""
    advisory: str
    base_functions: frozenset[str]
    base_tests: frozenset[str] = frozenset()
    head_tests: frozenset[str] = frozenset()
    single_stage: bool = False


def make_row(
    key: tuple[str, str, str],
    pair: tuple[Half | None, Half | None],
    judged: Judgement | None,
    terms: Terms,
    *,
    compiled: tuple[Half | None, Half | None],
) -> Row:
    """Judge one overload in one test.

    Parameters
    ----------
    key : (test, function, signature)
        What the row is about; no function for a whole test.
    pair : (base, head)
        The overload on either side, None where it is not.
    judged : Judgement or None
        What the rule says about the times, None without times on both sides.
    terms : Terms
        What holds for all rows.
    compiled : (base, head)
        The same overloads for their compile times, (None, None) in all rows of an
        overload but one.
    """
    base, head = pair
    test, function, signature = key
    status = _status(key, pair, terms)
    code, code_reason = _code(pair, terms)
    verdict, reason = _time(pair, judged, code, terms)
    failures = []
    if verdict == "regression" and judged is not None:
        gate: Literal["time", "wall"] = "time" if function else "wall"
        failures.append(Failure(gate, _time_evidence(judged)))
    compile_failure, compile_reason = _compile(compiled, code, terms)
    failures += _exact_failures(key, pair, status, terms)
    if compile_failure is not None:
        failures.append(compile_failure)
    place = head or base
    prints = [half.fingerprint if half else None for half in pair]
    return Row(
        test=test,
        function=function,
        signature=signature,
        file=place.file if place else "",
        line=place.line if place else 0,
        status=status,
        base_ns=_center(base, terms),
        head_ns=_center(head, terms),
        change=judged.change if judged else None,
        change_low=judged.low if judged else None,
        change_high=judged.high if judged else None,
        confidence=judged.confidence if judged else None,
        sessions=judged.sessions if judged else 0,
        time=verdict,
        time_reason=reason,
        code=code,
        code_reason=code_reason,
        base_instructions=prints[0].instructions if prints[0] else None,
        head_instructions=prints[1].instructions if prints[1] else None,
        base_packed_fp=prints[0].packed_fp if prints[0] else None,
        head_packed_fp=prints[1].packed_fp if prints[1] else None,
        base_width_bits=prints[0].width_bits if prints[0] else None,
        head_width_bits=prints[1].width_bits if prints[1] else None,
        base_compile_ns=_compile_center(compiled[0]),
        head_compile_ns=_compile_center(compiled[1]),
        compile_reason=compile_reason,
        base_calls=base.calls if base else None,
        head_calls=head.calls if head else None,
        failures=enabled(terms, failures),
    )


def enabled(terms: Terms, found: Iterable[Failure]) -> tuple[Failure, ...]:
    """Return the failures of gates that are switched on."""
    return tuple(failure for failure in found if failure.gate in terms.options.fail)


def _status(
    key: tuple[str, str, str], pair: tuple[Half | None, Half | None], terms: Terms
) -> Status:
    test, function, _ = key
    if pair[0] and pair[1]:
        return "common"
    if pair[1]:
        if test and terms.base_tests and test not in terms.base_tests:
            return "new test"
        return "new" if function in terms.base_functions else "new function"
    if test and terms.head_tests and test not in terms.head_tests:
        return "gone test"
    return "gone"


def _code(pair: tuple[Half | None, Half | None], terms: Terms) -> tuple[Code, str]:
    base, head = pair
    if base is None or head is None:
        return "", ""
    if terms.target_reason:
        return "unknown", terms.target_reason
    if base.fingerprint is None or head.fingerprint is None:
        reason = base.fingerprint_reason or head.fingerprint_reason
        return "unknown", reason or "no fingerprint was taken"
    same = base.fingerprint.code == head.fingerprint.code
    reason = base.fingerprint.reason or head.fingerprint.reason
    return ("same" if same else "changed"), reason


def _time(
    pair: tuple[Half | None, Half | None],
    judged: Judgement | None,
    code: Code,
    terms: Terms,
) -> tuple[TimeVerdict, str]:
    if judged is None:
        return "", "" if None in pair else "not called from Python on both sides"
    if code == "same" and not terms.options.ignore_code:
        return "ok", SAME_CODE_REASON
    if judged.verdict in ("ok", "faster"):
        return judged.verdict, judged.evidence
    if terms.advisory:
        return "advisory", terms.advisory
    if any(half and half.parallel for half in pair):
        return "advisory", PARALLEL_REASON
    return judged.verdict, judged.evidence


def _time_evidence(judged: Judgement) -> str:
    text = f"run time {judged.change:+.1%}"
    if judged.low is not None and judged.high is not None:
        text += f" [{judged.low:+.1%}, {judged.high:+.1%}]"
    return f"{text} ({judged.evidence})"


def _exact_failures(
    key: tuple[str, str, str],
    pair: tuple[Half | None, Half | None],
    status: Status,
    terms: Terms,
) -> list[Failure]:
    _, function, signature = key
    base, head = pair
    if status == "new":
        if gates.is_allowed(function, signature, terms.options.allow_new):
            return []
        found = [Failure("new", "new overload of a function that base has")]
        object_mode = gates.object_mode("", head.kind) if head else None
        return [*found, object_mode] if object_mode else found
    if status == "gone":
        return [Failure("missing", "overload is gone")]
    if base is None or head is None:
        return []
    exact = [gates.object_mode(base.kind, head.kind)]
    if terms.kind == "ab" or not terms.target_reason:
        exact.append(gates.lost_simd(base.fingerprint, head.fingerprint))
    return [failure for failure in exact if failure is not None]


def _compile(
    pair: tuple[Half | None, Half | None], code: Code, terms: Terms
) -> tuple[Failure | None, str]:
    base, head = pair
    if base is None or head is None:
        return None, ""
    if terms.kind != "ab":
        reason = terms.advisory or "compiled at different times"
        if terms.kind == "profiles":
            reason = "wall time of one compilation"
        return None, reason
    return gates.judge_compile(
        base.compile_ns,
        head.compile_ns,
        cached=base.cached or head.cached,
        same_code=code == "same",
    )


def _center(half: Half | None, terms: Terms) -> float | None:
    if half is None or not half.times_ns:
        return None
    # Of a profile: the minimum, which one preemption does not spoil.
    if terms.kind == "profiles":
        return half.times_ns[0]
    return statistics.median(half.times_ns)


def _compile_center(half: Half | None) -> float | None:
    return statistics.median(half.compile_ns) if half and half.compile_ns else None
