import msgspec
import numpy as np
import pytest

from gearshift.gear import GearPlan
from gearshift.planner.published.coordinate import time_weighted_accuracy
from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.space.metered import range_weights
from gearshift.planner.space.request import PlanRequest
from gearshift.workload import Trace
from tests.unit.planner.little import little_request

plan = PLANNER.plan

COUNTS = (10, 10, 25, 99, 100, 250)
"""Requests in each of six seconds."""


def request(**changed: object) -> PlanRequest:
    times_s = np.concatenate([second + np.arange(n) / n for second, n in enumerate(COUNTS)])
    trace = Trace((times_s * 1e9).astype(np.int64), float(len(COUNTS)))
    return little_request(trace=trace, **{"ranges": 4, "max_qps": 100.0, **changed})


def test_by_default_range_k_is_visited_as_often_as_1_in_k() -> None:
    assert range_weights(request()).tolist() == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])


def test_zipfs_law_may_be_asked_for_by_name() -> None:
    assert range_weights(request(load="zipf")).tolist() == range_weights(request()).tolist()


def test_the_traces_weights_are_of_its_seconds_and_a_load_at_an_end_is_in_the_range_above() -> None:
    assert range_weights(request(load="trace")).tolist() == pytest.approx([2 / 6, 1 / 6, 0, 3 / 6])


def test_ranges_that_no_second_is_in_have_no_weight() -> None:
    weights = range_weights(request(load="trace", max_qps=1000.0, ranges=5))
    assert weights.tolist() == pytest.approx([5 / 6, 1 / 6, 0, 0, 0])


def test_one_range_has_all_the_weight() -> None:
    for load in (None, "trace", "zipf"):
        assert range_weights(request(ranges=1, load=load)).tolist() == [1.0]


def of_accuracies(accuracies: list[float | None]) -> GearPlan:
    """A plan of four gears that are predicted to have these accuracies."""
    made = plan(little_request(latency_s=0.01, max_qps=800.0))
    operator = made.pipelines["task"]
    gears = []
    for gear, accuracy in zip(operator.gears, accuracies, strict=True):
        assert gear.predicted is not None
        known = None if accuracy is None else msgspec.structs.replace(gear.predicted, accuracy=accuracy)
        gears.append(msgspec.structs.replace(gear, predicted=known))
    return msgspec.structs.replace(made, pipelines={"task": msgspec.structs.replace(operator, gears=tuple(gears))})


def test_the_time_weighted_accuracy_is_that_of_the_gears_by_the_time_in_their_ranges() -> None:
    made = of_accuracies([0.9, 0.8, 0.5, 0.6])
    assert time_weighted_accuracy(made, request()) == pytest.approx((12 * 0.9 + 6 * 0.8 + 4 * 0.5 + 3 * 0.6) / 25)
    assert time_weighted_accuracy(made, request(load="trace")) == pytest.approx((2 * 0.9 + 0.8 + 3 * 0.6) / 6)


@pytest.mark.long
def test_a_gear_without_a_prediction_counts_as_always_wrong() -> None:
    assert time_weighted_accuracy(of_accuracies([None, 0.8, None, 0.6]), request()) == pytest.approx(6.6 / 25)
