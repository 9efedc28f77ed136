from pathlib import Path

import msgspec
import pytest

from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.planner import planners
from gearshift.planner.space.request import PlanRequest
from gearshift.planner.what_if import what_if
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.result import OtherDevices
from tests.unit.planner import fake
from tests.unit.planner.little import little_request


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(planners.for_(), "fake", "tests.unit.planner.fake")


def test_devices_fewer_and_more_are_planned_for_the_latency_alone_and_have_their_price(faked: None) -> None:
    request = little_request(hardware=identical_devices(2, price_per_hour=0.5))
    made = msgspec.structs.replace(planners.plan("fake", request), planner="fake")
    fake.asked.clear()
    found = what_if(made, request.profile, request.trace)
    assert [(one.devices, one.price_per_hour) for one in found] == [(1, 0.5), (3, 1.5), (4, 2.0)]
    assert [len(asked.hardware.devices) for asked in fake.asked] == [1, 3, 4]
    assert all(asked.objective.accuracy is None for asked in fake.asked)
    assert all(one.predicted is not None for one in found)


def test_a_plan_keeps_them_in_its_file_and_has_no_field_for_them_without(tmp_path: Path) -> None:
    made = fake.made(little_request(devices=2), 1, latency_s=0.1)
    write_plan(made, tmp_path / "plan.json")
    assert "what_if" not in (tmp_path / "plan.json").read_text()
    other = OtherDevices(devices=1, price_per_hour=1.0, reason="too few")
    write_plan(msgspec.structs.replace(made, what_if=(other,)), tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").what_if == (other,)


def test_an_interrupted_search_is_told_and_ends_the_others(faked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    request = little_request(devices=2)
    made = msgspec.structs.replace(planners.plan("fake", request), planner="fake")
    plan = planners.plan

    def cut(planner: str, request: PlanRequest) -> GearPlan:
        unfinished = len(request.hardware.devices) == 3
        return msgspec.structs.replace(plan(planner, request), unfinished=unfinished)

    monkeypatch.setattr("gearshift.planner.what_if.planners.plan", cut)
    found = what_if(made, request.profile, request.trace)
    assert [(one.devices, one.reason, one.predicted is None) for one in found] == [
        (1, "", False),
        (3, "its search was interrupted", True),
    ]
