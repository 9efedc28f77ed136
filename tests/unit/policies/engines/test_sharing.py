import pytest

from gearshift.policies.engines.sharing import step_ends_ns, stretch_of, work_left_ns

MEMBERS = (2, 0, 1)
FACTORS = (1.0, 1.5, 0.3, 1.2, 1.0, 2.0, 0.3, 1.0, 1.0)


@pytest.mark.parametrize(
    ("at_work", "stretch"),
    [((1, 0, 0), 1.0), ((0, 0, 0), 1.0), ((1, 1, 0), 3.0), ((1, 1, 1), 4.5), ((1, 0, 1), 1.0)],
    ids=["alone", "not yet at work", "beside one", "beside two the largest factor counts", "never faster than alone"],
)
def test_a_step_takes_as_many_times_as_long_as_engines_are_at_work_times_a_factor(
    at_work: tuple[int, ...], stretch: float
) -> None:
    assert stretch_of(0, 0, 3, MEMBERS, at_work, FACTORS) == stretch


def test_engines_on_other_devices_do_not_count() -> None:
    assert stretch_of(0, 1, 3, MEMBERS, (1, 0, 1), FACTORS) == 1.0


def test_a_step_that_is_slowed_for_a_while_ends_later_by_what_it_lost() -> None:
    left_ns = work_left_ns(100, 30, 1.0)
    left_ns = work_left_ns(left_ns, 60, 3.0)
    assert step_ends_ns(90, left_ns, 1.0) == 30 + 60 + 50


def test_what_is_left_of_a_step_is_never_less_than_nothing() -> None:
    assert work_left_ns(10, 25, 2.0) == 0
