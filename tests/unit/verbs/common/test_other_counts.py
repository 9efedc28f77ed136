"""Plans for other numbers of devices, found as the plan was."""

import msgspec
import pytest

from gearshift.gear import GearPlan
from gearshift.planner.what_if import INTERRUPTED
from gearshift.result import OtherDevices
from gearshift.verbs.common.other_counts import with_other_counts
from tests.unit.planner import fake
from tests.unit.planner.little import little_request


def on(count: int, *, unfinished: bool = False) -> GearPlan:
    made = fake.made(little_request(devices=count), 1, latency_s=0.1)
    return msgspec.structs.replace(made, unfinished=unfinished)


def others(budget_s: float | None) -> tuple[OtherDevices, ...]:
    """Those of a plan on two devices, where the search for three was ended early."""
    found = with_other_counts(on(2), lambda count: on(count, unfinished=count == 3), budget_s=budget_s).what_if
    assert isinstance(found, tuple)
    return found


def test_an_interrupted_search_is_told_and_ends_the_others() -> None:
    assert [(one.devices, one.reason) for one in others(None)] == [(1, ""), (3, INTERRUPTED)]


@pytest.mark.parametrize("budget_s", [0.1, 600.0])
def test_a_search_that_a_budget_ended_keeps_its_plan_and_the_others_follow(budget_s: float) -> None:
    found = others(budget_s)
    assert [(one.devices, one.reason) for one in found] == [(1, ""), (3, ""), (4, "")]
    assert all(one.predicted is not None for one in found)
