from typing import Any

import pytest

from gearshift.errors import Infeasible
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate import bottleneck
from gearshift.planner.evaluate.bottleneck import require_accuracy
from gearshift.planner.space.cascade_search import CascadeSpace, search_cascades
from gearshift.profiles.profile import PART_A, PART_B
from tests.unit.planner.little import little_request
from tests.worlds import synthetic_profile


def test_an_accuracy_that_no_cascade_has_is_told_as_that_and_not_as_a_lack_of_devices() -> None:
    out_of_reach = little_request(objective=Objective(latency_s=0.1, accuracy=0.97))
    for find in (planners.plan, planners.fewest):
        with pytest.raises(Infeasible) as told:
            find("optimal", out_of_reach)
        assert "no cascade of these models has an accuracy of 0.97, on any devices and within any latency" in str(
            told.value
        )
        assert (told.value.load_range, told.value.bottleneck, told.value.device) == ("", "", "")
        assert 0.85 < (told.value.nearest_accuracy or 0.0) < 0.97


@pytest.mark.parametrize("accuracy", [None, 0.5, 0.875])
def test_an_accuracy_that_some_cascade_has_is_searched_for(accuracy: float | None) -> None:
    require_accuracy(little_request(objective=Objective(latency_s=0.1, accuracy=accuracy)))


def test_cascades_are_searched_once_for_all_objectives_and_numbers_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def counted(*of: Any, part: int) -> CascadeSpace:
        searched.append(part)
        return search_cascades(*of, part=part)

    monkeypatch.setattr(bottleneck, "search_cascades", counted)
    profile = synthetic_profile(models=3, samples=200)
    for accuracy, devices in ((0.97, 1), (0.97, 2), (0.98, 2)):
        with pytest.raises(Infeasible, match="no cascade of these models"):
            require_accuracy(
                little_request(profile=profile, devices=devices, objective=Objective(latency_s=0.1, accuracy=accuracy))
            )
    assert searched == [PART_A, PART_B]
