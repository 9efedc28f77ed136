import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.result import (
    ServingResult,
    latency_summary,
    lower_confidence_bound,
    percentile,
    share_bound,
    summarise,
    wilson_interval,
)
from tests.often import often

LATENCIES = st.lists(st.integers(0, 20).map(lambda ms: ms / 1000), min_size=1, max_size=200)
HUNDREDTHS = st.integers(1, 99)


def result_of(latency_s: list[float], *, objective_s: float | None, refused: int = 0) -> ServingResult:
    return summarise(
        latency_s=np.array(latency_s),
        quality=np.ones(len(latency_s)),
        requests=len(latency_s) + refused,
        refused=refused,
        latency_objective_s=objective_s,
        duration_s=2.0,
        devices=1,
        utilisation={},
    )


@settings(deadline=None, derandomize=True)
@given(LATENCIES, HUNDREDTHS)
def test_a_percentile_is_the_ceil_of_p_n_th_smallest(values: list[float], hundredths: int) -> None:
    rank = -(-hundredths * len(values) // 100)  # in whole numbers, so without rounding
    assert percentile(np.array(values), hundredths / 100) == sorted(values)[rank - 1]


@settings(deadline=None, derandomize=True, max_examples=often(300))
@given(LATENCIES, HUNDREDTHS, st.integers(0, 20))
def test_few_enough_are_late_exactly_when_the_percentile_is_within_the_objective(
    values: list[float], hundredths: int, objective_ms: int
) -> None:
    p, objective_s = hundredths / 100, objective_ms / 1000
    share_late = result_of(values, objective_s=objective_s).share_late
    assert (share_late <= 1 - p) == (percentile(np.array(values), p) <= objective_s)


def test_a_percentile_of_nothing_is_zero() -> None:
    assert percentile(np.array([]), 0.95) == 0.0


def test_the_95th_of_twenty_is_the_nineteenth() -> None:
    assert percentile(np.arange(20, 0, -1).astype(float), 0.95) == 19.0


def test_the_95th_of_twenty_one_is_the_twentieth() -> None:
    assert percentile(np.arange(21, 0, -1).astype(float), 0.95) == 20.0


@pytest.mark.parametrize("p", [0.07, 0.14, 0.28, 0.55, 0.56, 0.57])
def test_a_product_that_rounds_up_past_a_whole_number_does_not_raise_the_rank(p: float) -> None:
    assert percentile(np.arange(1, 101).astype(float), p) == round(100 * p)


def test_a_percentile_leaves_its_values_as_they_were() -> None:
    values = np.array([3.0, 1.0, 2.0])
    percentile(values, 0.5)
    assert values.tolist() == [3.0, 1.0, 2.0]


def test_a_summary_holds_the_mean_and_three_percentiles() -> None:
    summary = latency_summary(np.arange(1, 201) / 1000)
    assert (summary.mean, summary.p50, summary.p95, summary.p99) == pytest.approx((0.1005, 0.1, 0.19, 0.198))


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_as_published(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes / n, n) == pytest.approx((low, high), abs=5e-5)


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 500), st.floats(0, 1))
def test_wilsons_interval_lies_around_its_mean_within_zero_and_one(n: int, mean: float) -> None:
    low, high = wilson_interval(mean, n)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1


def test_wilsons_interval_without_trials_says_nothing() -> None:
    assert wilson_interval(0.0, 0) == (0.0, 1.0)


def test_refused_requests_count_as_late_and_not_in_latencies() -> None:
    result = result_of([0.01, 0.03], objective_s=0.02, refused=2)
    assert (result.share_late, result.share_refused, result.latency_s.p99) == (0.75, 0.5, 0.03)


def test_goodput_is_answers_within_the_objective_per_second() -> None:
    assert result_of([0.01, 0.02, 0.03], objective_s=0.02, refused=5).goodput_qps == 1.0


def test_without_a_latency_objective_only_unanswered_requests_are_late() -> None:
    assert result_of([9.0, 9.0, 9.0], objective_s=None, refused=1).share_late == 0.25


def test_a_run_that_answered_nothing_has_no_latency_and_is_all_late() -> None:
    result = result_of([], objective_s=0.02, refused=3)
    assert (result.share_late, result.share_refused, result.latency_s.p95, result.accuracy) == (1.0, 1.0, 0.0, 0.0)
    assert result.accuracy_interval == (0.0, 1.0)


def test_a_run_without_requests_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing was served: the workload has no requests"):
        result_of([], objective_s=0.02)


def test_few_recorded_samples_keep_the_accuracy_interval_wide() -> None:
    quality = np.tile([1.0, 0.0], 500)
    wide = summarise(
        latency_s=np.full(1000, 0.01),
        quality=quality,
        requests=1000,
        refused=0,
        latency_objective_s=None,
        duration_s=1.0,
        devices=1,
        utilisation={},
        independent_samples=10,
    )
    assert wide.accuracy_interval == wilson_interval(0.5, 10)
    assert math.isclose(wide.accuracy, 0.5)


@pytest.mark.parametrize("n", [20, 1000])
def test_a_share_is_below_its_bound_no_more_often_than_the_confidence_allows(n: int) -> None:
    share, confidence = 0.97, 0.9
    odds = [math.comb(n, wrong) * (1 - share) ** wrong * share ** (n - wrong) for wrong in range(n // 10 + 1)]
    missed = sum(p for wrong, p in enumerate(odds) if share_bound(wrong, n, confidence) > share)
    assert missed <= 1 - confidence
    assert share_bound(3, n, confidence) > lower_confidence_bound(1 - 3 / n, n, confidence)
    assert share_bound(n, n, confidence) == 0
