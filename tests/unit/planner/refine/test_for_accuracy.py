"""Plans that refine and keep an accuracy, certified or not."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.shared.worlds import GIB, arrivals
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.evaluate.confirm import SEEDS, quality_of_records, replay, workload_of
from gearshift.planner.refine.choice import price_of_used
from gearshift.planner.refine.search import _Refining
from gearshift.planner.refine.way import Way, pairs_of
from gearshift.planner.search.optimal import CERTIFICATES
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.result import lower_confidence_bound
from gearshift.simulator.simulate import prepare
from tests.unit.planner.refine.worlds import request

SURE = 0.9


def asked(count: int = 1, **objective: Any) -> PlanRequest:
    return replace(request(count), objective=Objective(**{"latency_s": 0.02} | objective))


def on_two_kinds() -> PlanRequest:
    """Two dear devices and two cheap ones, on which all models take twice as long."""
    one = request(1)
    slow = [
        msgspec.structs.replace(
            curve,
            device_kind="slow",
            median_s=tuple(2 * s for s in curve.median_s),
            p95_s=tuple(2 * s for s in curve.p95_s),
        )
        for curve in one.profile.curves
    ]
    prices = (("gpu", 5.0), ("slow", 1.0))
    devices = [
        Device(id=f"{kind}-{i}", kind=kind, memory_bytes=3 * GIB, price_per_hour=price)
        for kind, price in prices
        for i in range(2)
    ]
    profile = replace(one.profile, curves=(*one.profile.curves, *slow))
    return replace(one, profile=profile, hardware=Hardware(devices=tuple(devices)))


def bound_of(made: GearPlan, given: PlanRequest) -> float:
    quality = quality_of_records(made, given, part=PART_B)
    return lower_confidence_bound(float(quality.mean()), len(quality), 1 - (1 - SURE) / CERTIFICATES)


def test_the_quality_of_a_sample_is_the_mean_of_its_answers_over_all_seeds() -> None:
    made, given = planners.plan("refine", request(1)), request(1)
    answers: dict[int, list[float]] = {}
    prepared = prepare(made, given.profile)
    for seed in range(SEEDS):
        run = prepared.run(workload_of(given.trace, given.profile, part=PART_B, seed=seed))
        for record, right in zip(run.workload.record.tolist(), run.quality(given.profile).tolist(), strict=True):
            answers.setdefault(record, []).append(right)
    expected = [np.mean(answers[record]) for record in sorted(answers)]
    found = quality_of_records(made, given, part=PART_B)
    assert found == pytest.approx(expected)
    assert set(np.unique(found)) - {0.0, 1.0}, "some samples are answered now by one model and now by the other"
    assert found.mean() != pytest.approx(replay(made, given, part=PART_B).result.accuracy, abs=1e-9)


def test_a_certified_accuracy_is_reached_by_the_lower_bound_of_part_b() -> None:
    made = planners.plan("refine", asked(accuracy=0.75, confidence=SURE))
    assert made.pipeline.refines
    assert bound_of(made, request(1)) >= 0.75
    assert made.pipeline.objective == Objective(latency_s=0.02, accuracy=0.75, confidence=SURE)


def test_an_accuracy_that_is_predicted_but_not_certain_is_refused() -> None:
    uncertified = planners.plan("refine", asked(accuracy=0.8))
    assert uncertified.predictions["task"].accuracy >= 0.8 > bound_of(uncertified, request(1))
    with pytest.raises(Infeasible, match=r"was shown to have an accuracy of 0\.8 with confidence 0\.9"):
        planners.plan("refine", asked(accuracy=0.8, confidence=SURE))


def test_samples_that_are_too_few_to_certify_an_accuracy_are_said() -> None:
    with pytest.raises(Infeasible, match="200 samples certify no more than"):
        planners.plan("refine", asked(accuracy=0.85, confidence=SURE))


def test_a_confidence_needs_an_accuracy() -> None:
    with pytest.raises(InvalidInput, match="a confidence is given without an accuracy"):
        planners.plan("refine", asked(confidence=SURE))


@pytest.mark.long
def test_without_a_latency_the_lowest_that_is_found_is_certified() -> None:
    given = asked(latency_s=None, accuracy=0.75, confidence=SURE)
    made = planners.plan("refine", given)
    found_s = made.pipeline.objective.latency_s
    assert found_s is not None
    assert made.predictions["task"].latency_s.p95 <= found_s
    assert bound_of(made, given) >= 0.75


def test_both_objectives_take_as_few_devices_as_keep_them() -> None:
    made = planners.plan("refine", asked(3, accuracy=0.8))
    assert len(made.hardware.devices) == 2
    assert made.predictions["task"].accuracy >= 0.8
    with pytest.raises(Infeasible):
        planners.plan("refine", replace(asked(3, accuracy=0.8), hardware=request(1).hardware))


@pytest.mark.parametrize("latency_s", [0.02, 3.0])
def test_no_plan_is_more_accurate_than_the_bound_where_busy_and_quiet_seconds_alternate(latency_s: float) -> None:
    given = replace(asked(latency_s=latency_s), trace=arrivals(np.array([900, 1, 1, 900, 1, 1, 1])))
    so_far = SoFar(given)
    bound = _Refining(so_far, lambda _: pytest.fail("no search is needed for a bound")).reachable(given)
    most = max(accuracy_on_part_a(pair.plan(Way(factor=0.0, longest=0.2)), given) for pair in pairs_of(given))
    assert most <= bound


@pytest.mark.long
def test_of_two_kinds_the_cheaper_devices_are_taken_where_they_are_enough() -> None:
    given = on_two_kinds()
    cheap = planners.plan("refine", replace(given, objective=Objective(latency_s=0.02, accuracy=0.6)))
    assert {device.kind for device in cheap.hardware.devices} == {"slow"}
    dear = planners.plan("refine", replace(given, objective=Objective(latency_s=0.02, accuracy=0.85)))
    assert "gpu" in {device.kind for device in dear.hardware.devices}
    assert price_of_used(cheap) < price_of_used(dear)


@pytest.mark.long
def test_the_fewest_devices_that_refine_are_one_more_than_fail() -> None:
    assert len(planners.fewest("refine", asked(accuracy=0.85)).hardware.devices) == 2
    with pytest.raises(Infeasible, match="the best that was found has"):
        planners.plan("refine", asked(accuracy=0.85))
