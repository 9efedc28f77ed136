from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.traces.generate import (
    bursty,
    diurnal,
    poisson_arrivals,
    steady,
    step,
    trace_of_rate,
    uniform_arrivals,
)
from gearshift.workload import Trace

rates = st.lists(st.floats(0, 200), min_size=1, max_size=30).map(lambda r: np.array(r, dtype=np.float64))


@given(rates=rates, seed=st.integers(0, 5), bin_s=st.sampled_from([0.05, 1.0, 0.3333]))
def test_arrivals_are_sorted_lie_within_the_trace_and_avoid_bins_without_rate(
    rates: np.ndarray, seed: int, bin_s: float
) -> None:
    for times in (poisson_arrivals(rates, seed, bin_s=bin_s), uniform_arrivals(rates, bin_s=bin_s)):
        assert times.dtype == np.int64
        assert np.all(np.diff(times) >= 0)
        edges_ns = np.rint(np.arange(len(rates) + 1) * bin_s * 1e9)
        bins = np.searchsorted(edges_ns, times, side="right") - 1
        assert np.all((bins >= 0) & (bins < len(rates)))
        assert np.all(rates[bins] > 0)


@given(rates=rates)
def test_uniform_arrivals_up_to_any_second_are_the_expected_number_rounded(rates: np.ndarray) -> None:
    times = uniform_arrivals(rates)
    counts = np.bincount(times // 10**9, minlength=len(rates))
    assert np.abs(np.cumsum(counts) - np.cumsum(rates)).max() <= 0.5 + 1e-6


def test_poisson_arrivals_have_exponential_gaps() -> None:
    gaps = np.diff(poisson_arrivals(np.full(100, 1000.0), seed=1)) / 1e9
    assert gaps.mean() == pytest.approx(0.001, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    counts = [len(poisson_arrivals(np.full(5, 20.0), seed=seed)) for seed in range(400)]
    assert np.mean(counts) == pytest.approx(100, rel=0.03)
    assert np.var(counts) == pytest.approx(100, rel=0.25)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: steady(50, 10, seed=seed),
        lambda seed: diurnal(10, 90, 10, seed=seed),
        lambda seed: bursty(20, 80, 10, seed=seed),
        lambda seed: step(20, 80, 10, seed=seed),
    ],
)
def test_the_same_seed_gives_the_same_trace(make: Callable[[int], Trace]) -> None:
    assert np.array_equal(make(3).arrivals_ns, make(3).arrivals_ns)
    assert make(3).sha256 == make(3).sha256 != make(4).sha256
    assert make(3).duration_s == 10


def test_a_steady_trace_has_its_rate() -> None:
    assert set(steady(40, 5, arrivals="uniform").counts_per_second().tolist()) == {40}
    assert steady(0.5, 10, arrivals="uniform").counts_per_second().sum() == 5


def test_a_diurnal_trace_rises_from_its_low_to_its_high_and_back() -> None:
    counts = diurnal(100, 500, 60, arrivals="uniform").counts_per_second()
    assert counts[0] == pytest.approx(100, abs=2)
    assert counts[30] == pytest.approx(500, abs=2)
    assert counts[-1] == pytest.approx(100, abs=2)
    assert diurnal(100, 500, 60, period_s=20, arrivals="uniform").counts_per_second()[10] == pytest.approx(495, abs=10)


def test_bursts_hold_their_peak_and_the_rest_its_base() -> None:
    counts = bursty(100, 350, 60, bursts=2, burst_s=6, ramp_s=2, arrivals="uniform").counts_per_second()
    for middle in (15, 45):
        assert np.all(np.abs(counts[middle - 3 : middle + 3] - 350) <= 1)
        assert np.all(np.abs(counts[middle - 5 : middle - 3] - 225) < 125)
    assert np.all(np.abs(counts[[*range(10), *range(20, 40), *range(50, 60)]] - 100) <= 1)
    assert counts.max() == pytest.approx(350, abs=1)


def test_a_burst_may_have_no_ramps() -> None:
    counts = bursty(10, 40, 8, bursts=1, burst_s=2, ramp_s=0, arrivals="uniform").counts_per_second()
    assert counts.tolist() == [10, 10, 10, 40, 40, 10, 10, 10]


def test_a_step_changes_the_rate_at_its_time_down_to_nothing_too() -> None:
    assert step(30, 0, 6, at_s=2, arrivals="uniform").counts_per_second().tolist() == [30, 30, 0, 0, 0, 0]
    assert step(10, 20, 4, arrivals="uniform").counts_per_second().tolist() == [10, 10, 20, 20]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: steady(0, 10), "qps is 0"),
        (lambda: steady(float("nan"), 10), "qps is nan"),
        (lambda: steady(10, -1), "duration_s is -1"),
        (lambda: steady(10, 1e9), "10 million seconds"),
        (lambda: steady(1e9, 10), "more than 200 million"),
        (lambda: steady(10, 10, arrivals="even"), "arrivals is 'even'"),
        (lambda: diurnal(20, 10, 10), "above high_qps"),
        (lambda: bursty(10, 20, 10, bursts=0), "bursts is 0"),
        (lambda: bursty(10, 20, 10, bursts=3, burst_s=5), "do not fit"),
        (lambda: step(-1, 10, 10), "before_qps is -1"),
        (lambda: step(1, 10, 10, at_s=11), "at_s is 11"),
        (lambda: step(0, 0, 10), "has no requests"),
        (lambda: trace_of_rate(lambda t: t - 1, 10), "negative or not finite"),
    ],
)
def test_bad_parameters_are_refused(make: Callable[[], Trace], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        make()
