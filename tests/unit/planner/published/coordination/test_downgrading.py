import pytest

from gearshift.cascade import Cascade
from gearshift.planner.published.coordination.problem import Choices, NotAccurate
from gearshift.planner.space.cascade_search import CandidateCascade


def candidate(*models: str, accuracy: float, work_s: float) -> CandidateCascade:
    cascade = Cascade(models=models, thresholds=(0.5,) * (len(models) - 1))
    return CandidateCascade(cascade=cascade, accuracy=accuracy, work_s=work_s, reach=(1.0,) * len(models))


CANDIDATES = (
    candidate("s", accuracy=0.70, work_s=1.0),
    candidate("s", "m", accuracy=0.80, work_s=2.0),
    candidate("m", accuracy=0.85, work_s=3.0),
    candidate("s", "l", accuracy=0.90, work_s=5.0),
)


def choices(*, least_accuracy: float | None = None, weights: tuple[float, ...] = (0.6, 0.3, 0.1)) -> Choices:
    everything = frozenset(range(len(CANDIDATES)))
    return Choices(
        candidates=CANDIDATES, weights=weights, least_accuracy=least_accuracy, open=(everything,) * len(weights)
    )


def numbers(made: Choices | None) -> list[int]:
    assert made is not None
    assigned = made.assigned()
    assert not isinstance(assigned, NotAccurate)
    return [CANDIDATES.index(c) for c in assigned]


def test_under_a_latency_objective_every_range_begins_with_the_most_accurate() -> None:
    assert numbers(choices()) == [3, 3, 3]


def test_the_range_that_an_error_names_gets_the_next_cheaper_cascade() -> None:
    assert numbers(choices().downgraded([2])) == [3, 3, 2]


def test_what_was_downgraded_is_not_tried_again() -> None:
    once = choices().downgraded([1, 2])
    assert once is not None
    assert numbers(once.downgraded([2])) == [3, 2, 1]


def test_the_cheapest_cannot_be_downgraded() -> None:
    made: Choices | None = choices()
    for _ in range(3):
        assert made is not None
        made = made.downgraded([0])
    assert numbers(made) == [0, 3, 3]
    assert made is not None
    assert made.downgraded([0]) is None
    assert numbers(made.downgraded([0, 1])) == [0, 2, 3]


def test_the_model_that_costs_least_weighted_accuracy_is_given_up() -> None:
    # Without l: 0.85 everywhere.  Without m: s > l stays.
    assert numbers(choices().best_without_one(["l", "m"])) == [3, 3, 3]
    assert numbers(choices().best_without_one(["l"])) == [2, 2, 2]


def test_a_range_of_little_weight_is_downgraded_before_a_model_is_given_up() -> None:
    assert numbers(choices().best_without_one(["l"], failing=[2])) == [3, 3, 2]
    assert numbers(choices(weights=(0.01, 0.01, 0.98)).best_without_one(["l"], failing=[2])) == [3, 3, 2]


def test_the_cheapest_cascade_is_never_given_up_under_a_latency_objective() -> None:
    assert numbers(choices().without("s")) == [2, 2, 2]
    made = choices().without("s")
    assert made is not None
    assert min(made.open[0]) == 0


def test_under_an_accuracy_objective_every_range_begins_with_the_cheapest() -> None:
    assert numbers(choices(least_accuracy=0.7)) == [0, 0, 0]


def test_the_range_where_most_time_is_spent_rises_first() -> None:
    # 0.7 x 0.1 brings 0.77; then 0.7 x 0.05 is more than 0.2 x 0.1.
    weights = (0.7, 0.2, 0.1)
    assert numbers(choices(least_accuracy=0.77, weights=weights)) == [1, 0, 0]
    assert numbers(choices(least_accuracy=0.80, weights=weights)) == [2, 0, 0]


def test_a_range_that_failed_does_not_rise_again_and_others_do_instead() -> None:
    assert numbers(choices(least_accuracy=0.76).downgraded([0])) == [0, 3, 0]


def test_more_accuracy_than_there_is_says_how_much_there_is() -> None:
    found = choices(least_accuracy=0.95).assigned()
    assert isinstance(found, NotAccurate)
    assert found.accuracy == pytest.approx(0.9)
