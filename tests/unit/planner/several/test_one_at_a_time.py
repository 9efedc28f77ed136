"""Operators planned one at a time, with the others fixed, by the papers' planners."""

import pytest

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.planner.several.plan import COORDINATE
from tests.unit.planner.several.worlds import two_operators

SEVERAL = two_operators()


def used(made: GearPlan, name: str) -> set[str]:
    return {
        model for gear in made.pipelines[name].gears for cs in gear.cascades.values() for c in cs for model in c.models
    }


@pytest.mark.parametrize("planner", ["coordinate", "frontier"])
def test_each_is_planned_beside_the_others_on_the_same_devices(planner: str) -> None:
    made = planners.plan(planner, SEVERAL)
    assert made.planner == planner
    assert made.hardware == SEVERAL.hardware
    assert list(made.pipelines) == ["cats", "dogs"]
    for name, request in SEVERAL.requests.items():
        assert made.pipelines[name].objective == request.objective
        assert {model.split("-")[0] for model in used(made, name)} == {name}
        assert made.predictions[name].share_late <= 0.05
    assert {device for replica in made.placement.replicas for device in replica.device_ids} == {"cpu-0", "cpu-1"}


def test_an_operator_that_cannot_be_planned_is_named() -> None:
    with pytest.raises(Infeasible, match="pipeline 'dogs'"):
        COORDINATE.plan(two_operators(dogs_s=1e-5))
