import dataclasses

import pytest

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.ladder import devices_like, fewest_devices
from tests.often import first_short
from tests.unit.planner.little import little_request


def fewest(name: str = "single", accuracy: float = 0.85, latency_s: float = 0.03, most: int = 16) -> GearPlan:
    objective = Objective(latency_s=latency_s, accuracy=accuracy)
    return fewest_devices(planners.named(name), little_request(objective=objective), most=most)


def one_by_one(name: str, accuracy: float, latency_s: float) -> int:
    """The fewest devices by trying 1, 2, 3, ..."""
    request = little_request(latency_s=latency_s)
    count = 0
    while True:
        count += 1
        asked = dataclasses.replace(request, hardware=devices_like(request.hardware, count))
        try:
            made = planners.plan(name, asked)
        except Infeasible:
            continue
        if made.predictions["task"].accuracy >= accuracy:
            return count


@pytest.mark.parametrize(
    ("name", "accuracy", "latency_s"),
    first_short(
        [
            ("single", 0.6, 0.03),
            ("static-cascade", 0.8, 0.03),
            ("single", 0.7, 0.03),
            ("single", 0.85, 0.03),
            ("single", 0.85, 0.015),
        ],
        2,
    ),
)
def test_the_fewest_devices_are_those_of_trying_one_after_the_other(
    name: str, accuracy: float, latency_s: float
) -> None:
    made = fewest(name, accuracy, latency_s)
    assert len(made.hardware.devices) == one_by_one(name, accuracy, latency_s)
    assert made.predictions["task"].share_late <= 0.05


def test_cascades_need_fewer_devices_than_a_single_model() -> None:
    assert len(fewest("static-cascade", 0.8).hardware.devices) < len(fewest("single", 0.8).hardware.devices)


def test_the_plan_records_both_objectives() -> None:
    objective = fewest().pipelines["task"].objective
    assert (objective.latency_s, objective.accuracy) == (0.03, 0.85)


def test_more_devices_than_allowed_are_infeasible_and_the_best_accuracy_is_named() -> None:
    with pytest.raises(Infeasible, match=r"does not reach an accuracy of 0.85 within 30 ms on 3 devices: its best acc"):
        fewest(most=3)


def test_a_latency_that_nothing_meets_is_infeasible() -> None:
    with pytest.raises(Infeasible, match="on 2 devices: it has no plan within the latency"):
        fewest(latency_s=0.0005, most=2)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"most": 0}, "at most 0 devices asked for; allow at least one"),
        ({"accuracy": 1.5}, "accuracy is 1.5; give a number from 0 to 1"),
        ({"latency_s": 0.0}, "latency_s is 0.0; give more than 0, up to 1000000000"),
        ({"name": "none"}, "there is no planner 'none'"),
    ],
)
def test_what_cannot_be_searched_for_names_the_value(changed: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        fewest(**changed)  # type: ignore[arg-type]
    assert str(caught.value).startswith(sentence)


def test_devices_are_like_the_first() -> None:
    first = Device(id="a", node="n", kind="gpu", memory_bytes=7, cores=3, price_per_hour=2.0)
    made = devices_like(Hardware(devices=(first, Device(id="b"))), 2)
    assert [d.id for d in made.devices] == ["gpu-0", "gpu-1"]
    assert {(d.node, d.kind, d.memory_bytes, d.cores, d.price_per_hour) for d in made.devices} == {
        ("n", "gpu", 7, 3, 2.0)
    }
