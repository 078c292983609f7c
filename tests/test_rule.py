"""The decision rules, against known probabilities and simulated noise."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from numbaprof import rule
from numbaprof.errors import OptionError


def simulated_rate(trials, draw, *, sessions=5, seed=7):
    """Return how often the two-stage rule calls a regression, as ``ab`` runs it."""
    source = random.Random(seed)
    found = 0
    for _ in range(trials):
        first = [draw(source) for _ in range(sessions)]
        if not rule.screen(first):
            continue
        second = [draw(source) for _ in range(sessions)]
        found += rule.judge(first, second).verdict == "regression"
    return found / trials


@pytest.mark.parametrize(
    ("n", "confidence", "position", "reached"),
    [
        (5, 0.95, 0, 0.96875),
        (8, 0.95, 1, 1 - 9 / 256),
        (10, 0.95, 1, 1 - 11 / 1024),
        (10, 0.98, 1, 1 - 11 / 1024),
        (7, 0.98, 0, 1 - 1 / 128),
    ],
)
def test_bound_is_the_order_statistic_of_the_binomial(n, confidence, position, reached):
    """For n = 5 the minimum (96.9 %), for 8 and 10 the second (96.5, 98.9 %)."""
    values = [float(value) for value in range(n)]
    random.Random(1).shuffle(values)
    bound = rule.sign_bound(values, confidence)
    assert bound is not None
    assert bound.value == position
    assert bound.confidence == pytest.approx(reached)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_too_few_values_have_no_bound(n):
    """Four values cannot bound their median with 95 %."""
    assert rule.sign_bound([1.0] * n, 0.95) is None


def test_symmetric_noise_of_half_the_time_is_called_in_one_of_a_hundred():
    """Whatever the noise, if it is symmetric, false alarms stay below 1.1 %."""
    assert simulated_rate(20_000, lambda s: s.gauss(0, 0.5)) <= 0.011


def test_heavy_tails_do_not_raise_false_alarms():
    """Cauchy noise, which has no mean, is held to the same bound."""

    def draw(source):
        return 0.05 * math.tan(math.pi * (source.random() - 0.5))

    assert simulated_rate(20_000, draw) <= 0.011


def test_drift_between_sessions_does_not_matter():
    """Both sides of a session drift together, so a 3 % drift of the machine cancels."""

    def session(source, drift):
        speed = 1.0 + drift
        return rule.session_ratio(
            (speed * source.gauss(1, 0.005), speed * 1.1 * source.gauss(1, 0.005))
            for _ in range(30)
        )

    source = random.Random(3)
    drifts = [0.03 * step for step in range(10)]
    ratios = [session(source, drift) for drift in drifts]
    judged = rule.judge(ratios[:5], ratios[5:])
    assert judged.verdict == "regression"
    assert judged.change == pytest.approx(0.1, abs=0.01)


def test_ten_percent_on_a_quiet_kernel_is_found():
    """A session's noise of 2.3 %, as measured for a busy machine, hides no 10 %."""
    assert simulated_rate(2000, lambda s: s.gauss(math.log(1.1), 0.023)) > 0.95


def test_effect_below_the_minimum_is_no_regression():
    """A change of 2 % is nobody's business with a minimum of 5 %."""
    ratios = [math.log(1.02)] * 5
    assert rule.judge(ratios, ratios).verdict == "ok"


def test_medians_without_agreement_are_a_suspicion():
    """Nine of ten sessions must be slower."""
    first = [0.1, 0.1, 0.1, -0.01, -0.01]
    judged = rule.judge(first, first)
    assert judged.verdict == "suspect"
    assert judged.slower_sessions == 6


def test_second_stage_that_disagrees_clears():
    """What is gone in fresh sessions was an accident."""
    assert rule.judge([0.2] * 5, [0.0] * 5).verdict == "ok"


def test_unconfirmed_change_is_a_suspicion():
    """Without the second stage a row is not failed, and says so."""
    judged = rule.judge([0.2] * 5)
    assert judged.verdict == "suspect"
    assert "not confirmed" in judged.evidence


def test_single_stage_is_judged_when_it_has_enough_sessions():
    """With confirmation switched off, six sessions can fail a row, five cannot."""
    assert rule.judge([0.2] * 6, single_stage=True).verdict == "regression"
    assert rule.judge([0.2] * 5, single_stage=True).verdict == "suspect"


def test_faster_needs_the_same_certainty():
    """A gain is claimed when nine of ten sessions saw it."""
    assert rule.judge([-0.2] * 5, [-0.2] * 5).verdict == "faster"
    assert rule.judge([-0.2] * 5 + [0.1] * 5).verdict == "ok"


def test_bounds_enclose_the_change():
    """The bounds come from the ordered sessions, in relative terms."""
    judged = rule.judge([0.07, 0.08, 0.09, 0.1, 0.11], [0.06, 0.08, 0.1, 0.12, 0.2])
    assert judged.low is not None
    assert judged.high is not None
    assert judged.low == pytest.approx(math.expm1(0.07))
    assert judged.high == pytest.approx(math.expm1(0.12))
    assert judged.low < judged.change < judged.high


def test_nothing_measured_is_ok_and_says_so():
    """A row without sessions has no change to speak of."""
    assert rule.judge([]).evidence == "not measured"


def test_session_ratio_takes_the_median_of_usable_rounds():
    """A round in which the clock did not move is left out, an outlier is outvoted."""
    rounds = [(1.0, 1.1), (1.0, 50.0), (1.0, 1.1), (0.0, 1.0), (1.0, 1.1)]
    assert rule.session_ratio(rounds) == pytest.approx(math.log(1.1))


def test_session_without_usable_rounds_is_refused():
    """There is no ratio of nothing."""
    with pytest.raises(OptionError, match="usable round"):
        rule.session_ratio([(0.0, 1.0)])


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 4)])
def test_rank_test_counts_every_order(n, m):
    """The p is the share of all orders that favour ``head`` at least as much."""
    values = [float(value) for value in range(n + m)]
    splits = list(itertools.combinations(range(n + m), m))

    def favour(split):
        head = [values[i] for i in split]
        base = [values[i] for i in range(n + m) if i not in split]
        return sum(h > b for b in base for h in head), base, head

    for split in splits:
        observed, base, head = favour(split)
        expected = sum(favour(other)[0] >= observed for other in splits) / len(splits)
        assert rule.rank_test(base, head) == pytest.approx(expected)


def test_stored_sides_need_five_processes():
    """Four processes a side cannot reach the level; the row says what is missing."""
    judged = rule.judge_stored([1.0] * 4, [2.0] * 4)
    assert judged.verdict == "suspect"
    assert "5 are needed" in judged.evidence


def test_stored_sides_are_judged_by_processes():
    """Five clearly slower processes are a regression, overlapping ones are not."""
    base = [1.00, 1.01, 1.02, 1.03, 1.04]
    assert rule.judge_stored(base, [1.2, 1.21, 1.22, 1.23, 1.24]).verdict == (
        "regression"
    )
    assert rule.judge_stored(base, [0.9, 0.95, 1.2, 1.22, 1.25]).verdict == "suspect"
    assert rule.judge_stored([1.2, 1.21, 1.22, 1.23, 1.24], base).verdict == "faster"
    assert rule.judge_stored(base, base).verdict == "ok"


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        ((3.0, 3.0), "regression"),
        ((3.0, 1.0), "ok"),
        ((1.2, 1.3), "suspect"),
        ((1.0, 1.0), "ok"),
        ((0.3, 0.3), "faster"),
    ],
)
def test_single_processes_must_differ_grossly_in_minimum_and_mean(head, verdict):
    """A mean alone follows one preemption, a minimum alone another input."""
    assert rule.judge_single((1.0, 1.0), head).verdict == verdict
