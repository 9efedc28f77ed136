import pytest

from gearshift.policies.slowdown import learnt, profiled_ns, slowdown_of_load, slowed_ns


def test_the_slowdown_comes_to_the_ratio_of_observed_to_expected_times() -> None:
    slowdown = 1.0
    for _ in range(60):
        slowdown = learnt(slowdown, 150, 100)
    assert slowdown == pytest.approx(1.5, abs=0.002)


def test_one_stalled_batch_raises_the_slowdown_by_a_tenth_alone() -> None:
    assert learnt(1.0, 100_000, 100) == pytest.approx(1.1)


def test_nothing_is_learnt_where_no_time_is_expected() -> None:
    assert learnt(1.2, 100, 0) == 1.2


def test_load_is_slowed_by_the_models_that_have_work() -> None:
    assert slowdown_of_load([2.0, 1.0], [100, 300], 1.0) == pytest.approx(1.25)
    assert slowdown_of_load([2.0, 1.0], [0, 300], 1.0) == 1.0


def test_a_slowdown_of_less_than_a_tenth_leaves_gears_as_they_are() -> None:
    assert slowdown_of_load([1.09], [100], 1.0) == 1.0
    assert slowdown_of_load([1.11], [100], 1.0) == pytest.approx(1.11)


def test_a_faster_host_counts_as_one_that_is_as_profiled() -> None:
    assert slowdown_of_load([0.5], [100], 1.0) == 1.0
    assert (slowed_ns(70, 0.5), profiled_ns(70, 0.5)) == (70, 70)


def test_the_slowdown_of_load_stays_while_nothing_runs() -> None:
    assert slowdown_of_load([2.0, 1.0], [0, 0], 1.7) == 1.7


@pytest.mark.parametrize("slowdown", [1.0, 1.1, 1.37, 2.0, 3.3])
def test_a_run_that_is_slowed_fits_into_its_own_time_to_the_nanosecond(slowdown: float) -> None:
    for run_ns in range(1, 200):
        took_ns = slowed_ns(run_ns, slowdown)
        assert abs(profiled_ns(took_ns, slowdown) - run_ns) <= 1
