"""When is code slower? The decision rules of ``ab`` and ``compare``.

Three situations, three rules; all take medians, none takes a mean: one preemption costs
milliseconds, and the mean over a round of microseconds follows it.

Lock-step (:func:`judge`)
    Two live processes measured in alternating rounds. One number per session, the
    median over its rounds of log(head / base): what both sides suffer cancels. Rows
    whose median exceeds the minimum effect are measured again in fresh sessions; what
    holds in both sets, and in nearly all sessions, is a regression. Without the second
    part a kernel whose speed depends on where its arrays happen to lie would be accused
    in 7 of 100 comparisons of identical code.

Stored sessions (:func:`judge_stored`)
    Several processes on each side, but not at the same time: an exact rank test over
    the medians of the processes. Pooled rounds would not do: rounds of one process are
    not independent, and tests on them raise a false alarm in a third of all cases.

One process on each side (:func:`judge_single`)
    No test can be made of one number. Only a difference that no pair of processes with
    equal code showed counts; less is a suspicion.

Sources: the bound of a median by order statistics is in Conover, *Practical
Nonparametric Statistics* (1999), section 3.2; the rank test is Mann and Whitney (1947);
that a process, not a round, is the unit is Kalibera and Jones, "Rigorous benchmarking
in reasonable time" (ISMM 2013); that only alternating runs on one machine find 10 % in
the cloud is Laaber et al. (EMSE 2019). How often each rule is wrong was measured, see
``benchmarks/bench_ci_rules.py``.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from numbaprof.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "CONFIDENCE",
    "MIN_EFFECT",
    "Bound",
    "Judgement",
    "Verdict",
    "judge",
    "judge_single",
    "judge_stored",
    "rank_test",
    "screen",
    "session_ratio",
    "sign_bound",
]

Verdict = Literal["ok", "faster", "suspect", "regression"]

MIN_EFFECT = 0.05
"""Smaller changes are not reported: finds 10 % in 96 of 100 cases, 25 % always."""
CONFIDENCE = 0.98
"""Of the bound of the median. Ten sessions reach 98.9 % with nine of them slower."""
STORED_P = 0.01
"""Level of the rank test between processes that ran at different times."""
STORED_SESSIONS = 5
"""Fewer on a side cannot reach STORED_P: 5 against 5 have p >= 1/252."""
SINGLE_EFFECT = 0.5
"""Two processes with the same code differed by up to 32 % in the minimum, 44 % in the
median, in 99 of 100 pairs of the noisiest kernel on a busy machine."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A one-sided bound of a median."""

    value: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was decided about one row, with the figures it was decided on."""

    verdict: Verdict
    change: float
    """Relative, 0.1 for 10 % slower."""
    low: float | None = None
    """Bounds of ``change``; None with too few sessions."""
    high: float | None = None
    confidence: float | None = None
    """Of each bound alone."""
    sessions: int = 0
    slower_sessions: int = 0
    evidence: str = ""


def session_ratio(rounds: Iterable[tuple[float, float]]) -> float:
    """Return the one number of a session: the median of log(head / base).

    Parameters
    ----------
    rounds : iterable of (base, head)
        Times of rounds taken in lock-step, in any unit; pairs with a time that is not
        positive are left out.

    Raises
    ------
    OptionError
        There is no usable round.
    """
    logs = [math.log(head / base) for base, head in rounds if base > 0 and head > 0]
    if not logs:
        raise OptionError("a session without a usable round has no ratio")
    return statistics.median(logs)


@cache
def _tail(n: int, k: int) -> float:
    """Return P(Binomial(n, 1/2) < k)."""
    return sum(math.comb(n, i) for i in range(k)) / 2.0**n


def sign_bound(values: Sequence[float], confidence: float) -> Bound | None:
    """Return the largest order statistic that bounds the median from below.

    Whatever the distribution: the k-th smallest of n lies above the median with
    probability P(Binomial(n, 1/2) < k).

    Parameters
    ----------
    values : sequence of float
        Independent measurements.
    confidence : float
        At least this, between 0 and 1.

    Returns
    -------
    Bound or None
        With the confidence reached; None when there are too few values for any.
    """
    ordered = sorted(values)
    n = len(ordered)
    best = None
    for k in range(1, n // 2 + 1):
        reached = 1.0 - _tail(n, k)
        if reached >= confidence:
            best = Bound(ordered[k - 1], reached)
    return best


def screen(ratios: Sequence[float], min_effect: float = MIN_EFFECT) -> bool:
    """Tell whether a row should be measured again in fresh sessions."""
    return bool(ratios) and statistics.median(ratios) > math.log1p(min_effect)


def judge(
    first: Sequence[float],
    second: Sequence[float] = (),
    *,
    min_effect: float = MIN_EFFECT,
    confidence: float = CONFIDENCE,
    single_stage: bool = False,
) -> Judgement:
    """Decide about one row measured in lock-step.

    Parameters
    ----------
    first : sequence of float
        :func:`session_ratio` of each session of the first stage.
    second : sequence of float, optional
        The same of the confirming sessions; nothing about ``first`` may have decided
        what is in it, except whether it was taken.
    min_effect : float, optional
        Smaller changes are not reported.
    confidence : float, optional
        Of the bound that must be above zero.
    single_stage : bool, optional
        No confirmation was wanted: judge by ``first`` alone.

    Returns
    -------
    Judgement
        "regression" if the medians of either stage and of all sessions exceed
        ``min_effect`` and the bound of the median is above zero; "suspect" if only the
        medians do, or nothing was confirmed.
    """
    threshold = math.log1p(min_effect)
    pooled = [*first, *second]
    if not pooled:
        return Judgement("ok", 0.0, evidence="not measured")
    middle = statistics.median(pooled)
    low = sign_bound(pooled, confidence)
    high = sign_bound([-value for value in pooled], confidence)
    stages = [stage for stage in (first, second, pooled) if stage]
    slower = min(statistics.median(stage) for stage in stages) > threshold
    confirmed = bool(second) or single_stage
    verdict: Verdict = "ok"
    if slower:
        sure = confirmed and low is not None and low.value > 0
        verdict = "regression" if sure else "suspect"
    elif high is not None and high.value > 0 and middle < -math.log1p(min_effect):
        verdict = "faster"
    above = sum(value > 0 for value in pooled)
    evidence = f"slower in {above} of {len(pooled)} sessions"
    if verdict == "suspect" and not confirmed:
        evidence += ", not confirmed in fresh ones"
    return Judgement(
        verdict=verdict,
        change=math.expm1(middle),
        low=None if low is None else math.expm1(low.value),
        high=None if high is None else math.expm1(-high.value),
        confidence=None if low is None else low.confidence,
        sessions=len(pooled),
        slower_sessions=above,
        evidence=evidence,
    )


def judge_stored(
    base: Sequence[float], head: Sequence[float], *, min_effect: float = MIN_EFFECT
) -> Judgement:
    """Decide about one row whose sides were measured at different times.

    Parameters
    ----------
    base, head : sequence of float
        Median time per call of each process, in any one unit, positive.
    min_effect : float, optional
        Smaller changes are not reported.
    """
    change = statistics.median(head) / statistics.median(base) - 1.0
    sessions = min(len(base), len(head))
    above = sum(h > statistics.median(base) for h in head)
    if sessions < STORED_SESSIONS:
        verdict: Verdict = "suspect" if change > min_effect else "ok"
        evidence = f"{sessions} processes on a side, {STORED_SESSIONS} are needed"
        return Judgement(verdict, change, sessions=sessions, evidence=evidence)
    p_slower = rank_test(base, head)
    p_faster = rank_test(head, base)
    verdict = "ok"
    if change > min_effect:
        verdict = "regression" if p_slower <= STORED_P else "suspect"
    elif change < -min_effect and p_faster <= STORED_P:
        verdict = "faster"
    return Judgement(
        verdict,
        change,
        sessions=sessions,
        slower_sessions=above,
        evidence=f"rank test over {len(base)} and {len(head)} processes, "
        f"p = {min(p_slower, p_faster):.2g}",
    )


def judge_single(
    base: tuple[float, float],
    head: tuple[float, float],
    *,
    min_effect: float = MIN_EFFECT,
) -> Judgement:
    """Decide about one row of one process on each side.

    Parameters
    ----------
    base, head : (minimum, mean)
        Time per call, in any one unit, positive.
    min_effect : float, optional
        Smaller changes are not reported.
    """
    changes = [new / old - 1.0 for old, new in zip(base, head, strict=True)]
    smaller = min(changes)
    verdict: Verdict = "ok"
    if smaller > SINGLE_EFFECT:
        verdict = "regression"
    elif smaller > min_effect:
        verdict = "suspect"
    elif max(changes) < -SINGLE_EFFECT / (1 + SINGLE_EFFECT):
        verdict = "faster"
    return Judgement(
        verdict,
        changes[0],
        sessions=1,
        slower_sessions=int(smaller > 0),
        evidence=f"one process a side: minimum {changes[0]:+.0%}, mean "
        f"{changes[1]:+.0%}; both must exceed {SINGLE_EFFECT:+.0%}",
    )


def rank_test(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the exact one-sided p that ``head`` tends to be larger than ``base``.

    Mann and Whitney's U; ties count as half for and half against, rounded against a
    difference. Takes O(n m (n + m)) steps, made for tens of values, not thousands.
    """
    n, m = len(base), len(head)
    above = sum((h > b) + 0.5 * (h == b) for b in base for h in head)
    counts = _rank_counts(n, m)
    return sum(counts[math.floor(above) :]) / math.comb(n + m, n)


@cache
def _rank_counts(n: int, m: int) -> tuple[int, ...]:
    """Return how many orders of n + m values have U = 0, 1, ..., n m."""
    if n == 0 or m == 0:
        return (1,)
    with_head_last = _rank_counts(n, m - 1)
    with_base_last = _rank_counts(n - 1, m)
    counts = [0] * (n * m + 1)
    for value, count in enumerate(with_head_last):
        counts[value + n] += count
    for value, count in enumerate(with_base_last):
        counts[value] += count
    return tuple(counts)
