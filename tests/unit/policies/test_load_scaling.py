import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.load_scaling import BINS, FACTORS, LOAD_EDGES, load_bin, load_factor
from tests.often import often

STARTS = [0.0, 20.0, 40.0, 80.0]


def factor_of(loads: np.ndarray, planned: np.ndarray) -> float:
    """The factor for `loads` where the plan was made for the loads `planned`."""
    counts = np.bincount([load_bin(load, LOAD_EDGES) for load in loads], minlength=BINS).tolist()
    shares = np.bincount(np.searchsorted(STARTS[1:], planned, side="right"), minlength=len(STARTS)) / len(planned)
    bins = [load_bin(start, LOAD_EDGES) for start in STARTS]
    return load_factor(counts, [0] * (BINS + 1), bins, shares.tolist(), FACTORS)


PLANNED = np.random.default_rng(1).gamma(4.0, 10.0, 5000)


@pytest.mark.parametrize("times", [1 / 20, 1 / 4, 1 / 2, 1, 2, 4, 20])
def test_loads_that_are_so_many_times_the_planned_ones_are_scaled_back(times: float) -> None:
    assert factor_of(PLANNED * times, PLANNED) * times == pytest.approx(1.0, rel=0.05)


def test_another_draw_of_the_planned_loads_is_hardly_scaled() -> None:
    factors = [factor_of(np.random.default_rng(seed).gamma(4.0, 10.0, 600), PLANNED) for seed in range(20)]
    assert max(factors) <= 1.15
    assert min(factors) >= 1 / 1.15


def test_without_any_loads_or_where_one_range_holds_all_nothing_is_scaled() -> None:
    assert factor_of(np.array([], dtype=np.float64), PLANNED) == 1.0
    assert load_factor([0] * 9 + [5] + [0] * (BINS - 10), [0] * (BINS + 1), [0], [1.0], FACTORS) == 1.0


def test_of_factors_that_do_equally_well_it_is_the_nearest_to_1() -> None:
    assert factor_of(np.full(100, 30.0), np.full(100, 25.0)) == 1.0
    low = factor_of(np.full(100, 50.0), np.full(100, 25.0))
    assert 0.75 < low < 0.8


@given(st.floats(0, 1e7))
@settings(max_examples=often(200), deadline=None, derandomize=True)
def test_a_load_is_in_the_last_bin_that_does_not_begin_above_it(load: float) -> None:
    place = load_bin(load, LOAD_EDGES)
    assert load >= LOAD_EDGES[place] or place == 0
    assert place == BINS - 1 or load < LOAD_EDGES[place + 1]


@given(st.lists(st.integers(0, 50), min_size=BINS, max_size=BINS), st.integers(0, 2**32 - 1))
@settings(max_examples=often(20), deadline=None, derandomize=True)
def test_no_other_factor_comes_closer(counts: list[int], seed: int) -> None:
    shares = np.random.default_rng(seed).dirichlet(np.ones(4))
    bins = [load_bin(start, LOAD_EDGES) for start in STARTS]
    chosen = load_factor(counts, [0] * (BINS + 1), bins, shares.tolist(), FACTORS)

    def apart(factor: float) -> float:
        step = FACTORS.index(factor) - len(FACTORS) // 2
        below = [sum(counts[: max(0, place - step)]) / max(1, sum(counts)) for place in bins[1:]]
        return float(np.abs(np.array(below) - np.cumsum(shares)[:-1]).sum())

    if sum(counts):
        assert apart(chosen) <= min(map(apart, FACTORS)) + 1e-6
