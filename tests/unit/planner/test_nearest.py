import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner import nearest, planners
from gearshift.planner.contract.ladder import OfCascades, best_by_ladder
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.nearest import feasible_or_nearest
from gearshift.planner.search.optimal import restricted
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.search.search_space import evaluated
from gearshift.planner.space.request import PlanRequest
from tests.often import first_short
from tests.unit.planner import fake
from tests.unit.planner.little import little_request, little_trace, single_plan
from tests.worlds import synthetic_profile


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that answers at once, infeasible under 12.3451 ms or over an accuracy of 0.87659."""
    monkeypatch.setitem(planners.for_(), "fake", "tests.unit.planner.fake")
    fake.asked.clear()


def refused(request: PlanRequest, planner: str = "fake", find: Any = planners.plan) -> Infeasible:
    with pytest.raises(Infeasible) as caught:
        feasible_or_nearest(find, planner, request)
    return caught.value


def asked(**objective: float) -> PlanRequest:
    return little_request(objective=Objective(**objective))


def test_what_is_feasible_is_answered_as_it_is() -> None:
    assert feasible_or_nearest(planners.plan, "fake", asked(latency_s=0.02)).planner == "fake"
    assert len(fake.asked) == 1


def test_a_latency_is_offered_that_was_planned_for_and_reads_as_a_command_line_says_it() -> None:
    error = refused(asked(latency_s=0.005))
    assert error.nearest_latency_s == 0.01235
    assert fake.asked[-1].objective == Objective(latency_s=0.01235)
    assert (error.nearest_accuracy, error.together) == (None, False)


def test_where_neither_objective_alone_is_feasible_both_are_offered_together() -> None:
    error = refused(asked(latency_s=0.005, accuracy=0.88))
    assert (error.nearest_latency_s, error.nearest_accuracy, error.together) == (0.01235, 0.8765, True)
    assert "the nearest feasible accuracy with it is 0.8765" in str(error)


def test_what_the_planner_hints_at_is_not_offered_when_planning_for_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def hopeful(request: PlanRequest, **_: object) -> GearPlan:
        raise Infeasible("no", nearest_latency_s=0.02, nearest_accuracy=0.8, nearest_devices=3)

    monkeypatch.setattr(fake, "plan", hopeful)
    error = refused(asked(latency_s=0.005, accuracy=0.85))
    assert (error.nearest_latency_s, error.nearest_accuracy, error.nearest_devices) == (None, None, None)


def test_range_model_and_device_are_named_where_the_planner_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(request: PlanRequest, **_: object) -> GearPlan:
        raise Infeasible("no")

    monkeypatch.setattr(fake, "plan", silent)
    error = refused(asked(latency_s=0.005))
    assert (error.load_range[0], error.bottleneck, error.device) == ("[", "m2", "cpu-0")


@pytest.mark.parametrize("planner", ["optimal", "frontier", "model-switching", "placement-heuristic"])
def test_a_spent_budget_is_blamed_on_no_range_and_no_model(planner: str) -> None:
    error = refused(little_request(budget_s=1e-9), planner)
    assert (error.load_range, error.bottleneck, error.device) == ("", "", "")
    assert str(error) == "no plan was found within the budget of 1e-09 s; give a larger --budget-s"


def test_a_frontier_for_which_there_was_no_time_is_blamed_on_no_range_and_no_model() -> None:
    error = refused(little_request(objective=Objective(), budget_s=1e-9), "optimal", planners.frontier)
    assert str(error) == "no plan was found in time; give a larger --budget-s"


@pytest.mark.long
def test_too_few_samples_are_blamed_on_no_range_and_no_model() -> None:
    profile = synthetic_profile(models=3, samples=60, fastest_s=0.001)
    request = little_request(
        profile=profile, trace=little_trace(low_qps=60, high_qps=120), ranges=2,
        objective=Objective(accuracy=0.8, confidence=0.95),
    )  # fmt: skip
    error = refused(request, "optimal")
    assert "30 samples certify no more than 0." in str(error)
    assert (error.load_range, error.bottleneck, error.device, error.nearest_devices) == ("", "", "", None)
    assert error.nearest_accuracy
    objective = Objective(accuracy=error.nearest_accuracy, confidence=0.95)
    assert planners.plan("optimal", dataclasses.replace(request, objective=objective))


@pytest.mark.parametrize("find", first_short([planners.plan, planners.fewest]))
def test_that_no_model_is_fast_enough_is_said_without_a_search(find: Any) -> None:
    error = refused(asked(latency_s=0.0005, accuracy=0.8), find=find)
    assert error.reason == (
        "no model answers a request within 0.5 ms: the fastest, 'm0', takes 1.1 ms with nothing before it"
    )
    assert (error.load_range, error.bottleneck, error.device, error.by_load) == ("", "", "", False)
    assert error.nearest_latency_s == 0.1
    assert not [each for each in fake.asked if each.latency_s < 0.001]


def test_why_it_is_infeasible_and_the_time_for_offers_are_said_before_they_are_looked_for() -> None:
    said: list[str] = []
    with pytest.raises(Infeasible):
        feasible_or_nearest(planners.plan, "fake", asked(latency_s=0.005), progress=lambda what, _: said.append(what))
    told = next(i for i, what in enumerate(said) if what.startswith("infeasible: too much is asked; "))
    assert said[told].endswith("for up to 60 s")
    assert said[told + 1].startswith("looking for the nearest feasible")


def test_where_time_for_offers_ran_out_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(request: PlanRequest, **_: object) -> GearPlan:
        if request.latency_s == 0.005:
            raise Infeasible("no", nearest_latency_s=0.02)
        return msgspec.structs.replace(fake.made(request, 1, latency_s=0.01), unfinished=True)

    monkeypatch.setattr(fake, "plan", cut_short)
    error = refused(asked(latency_s=0.005))
    assert error.nearest_latency_s is None
    assert error.reason == "no; looking for what is feasible nearby ended after 60 s: --budget-s gives more"


def test_a_spent_budget_leaves_the_error_without_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused(little_request(objective=Objective(latency_s=0.005), budget_s=1e-9))
    assert len(fake.asked) == 1
    assert error.nearest_latency_s is None


def without_a_hint(request: PlanRequest, **_: object) -> GearPlan:
    fake.asked.append(request)
    raise Infeasible("no", load_range="[0, inf)", bottleneck="m0")


@pytest.mark.parametrize("budget_s", [None, 30.0])
def test_what_the_cheapest_cascade_keeps_is_looked_for_within_what_is_left_of_the_time(
    monkeypatch: pytest.MonkeyPatch, budget_s: float | None
) -> None:
    budgets_s: list[float] = []

    class Recorded(PlanSearch):
        def __init__(self, so_far: SoFar) -> None:
            budgets_s.append(so_far.request.budget_s or math.inf)
            super().__init__(so_far)

    monkeypatch.setattr(fake, "plan", without_a_hint)
    monkeypatch.setattr(nearest, "PlanSearch", Recorded)
    refused(little_request(objective=Objective(latency_s=0.005), budget_s=budget_s))
    assert 0 < budgets_s[0] < (budget_s or nearest.OFFERS_S)


def test_where_the_time_is_over_no_latency_is_looked_for_and_the_reason_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0])
    monkeypatch.setattr(nearest, "time", SimpleNamespace(monotonic=lambda: next(clock, 1e6)))
    monkeypatch.setattr(nearest, "PlanSearch", None)
    monkeypatch.setattr(fake, "plan", without_a_hint)
    error = refused(little_request(objective=Objective(latency_s=0.005), budget_s=10.0))
    assert error.reason == "no; looking for what is feasible nearby ended after 10 s: --budget-s gives more"


def test_what_fails_while_looking_does_not_take_the_place_of_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "plan", without_a_hint)
    no_room = Hardware(devices=(Device(id="little", memory_bytes=1),))
    error = refused(little_request(objective=Objective(latency_s=0.005), hardware=no_room))
    assert (error.reason, error.device, error.nearest_latency_s) == ("no", "little", None)


def test_ctrl_c_while_looking_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(request: PlanRequest, **_: object) -> GearPlan:
        if request.latency_s == 0.005:
            raise Infeasible("no", load_range="[0, inf)", bottleneck="m0", nearest_latency_s=0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "plan", interrupted)
    error = refused(asked(latency_s=0.005))
    assert (error.reason, error.device, error.nearest_latency_s) == ("no", "cpu-0", None)


@pytest.mark.long
def test_overload_is_met_with_devices_and_not_with_a_latency_of_ages() -> None:
    crowd = little_trace(low_qps=1500, high_qps=3000)
    error = refused(little_request(trace=crowd, ranges=2), "static-cascade")
    assert error.nearest_latency_s is None
    assert error.nearest_devices
    enough = little_request(trace=crowd, ranges=2, devices=error.nearest_devices)
    assert planners.plan("static-cascade", enough)
    one_less = little_request(trace=crowd, ranges=2, devices=error.nearest_devices - 1)
    with pytest.raises(Infeasible):
        planners.plan("static-cascade", one_less)


def test_fewer_devices_are_looked_for_until_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def from_seven(request: PlanRequest, **_: object) -> GearPlan:
        tried.append(devices := len(request.hardware.devices))
        if devices < 7:
            raise Infeasible("no", load_range="[0, inf)", bottleneck="m0", by_load=True)
        if len(tried) > interrupted_after:
            raise KeyboardInterrupt
        return single_plan("m0")

    monkeypatch.setattr(fake, "plan", from_seven)
    monkeypatch.setattr(nearest, "enough_devices", lambda *of: 10)
    crowd, interrupted_after = little_trace(low_qps=1500, high_qps=3000), 99
    assert refused(little_request(trace=crowd, ranges=2)).nearest_devices == 7
    assert tried[:2] == [1, 10]
    tried.clear()
    interrupted_after = 2
    assert refused(little_request(trace=crowd, ranges=2)).nearest_devices == 10


def test_no_plan_is_made_for_devices_beyond_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def never(request: PlanRequest, **_: object) -> GearPlan:
        tried.append(len(request.hardware.devices))
        raise Infeasible("no", load_range="[0, inf)", bottleneck="m0", by_load=True)

    monkeypatch.setattr(fake, "plan", never)
    monkeypatch.setattr(nearest, "enough_devices", lambda *of: 700)
    crowd = little_trace(low_qps=1500, high_qps=3000)
    assert refused(little_request(trace=crowd, ranges=2)).nearest_devices is None
    assert max(tried) == 700


def test_a_frontier_of_too_few_devices_says_how_many_do() -> None:
    crowd = little_trace(low_qps=1500, high_qps=3000)
    request = little_request(trace=crowd, ranges=2, objective=Objective())
    error = refused(request, "single", planners.frontier)
    assert (error.nearest_devices or 0) > 1
    assert planners.frontier(
        "single", little_request(trace=crowd, ranges=2, objective=Objective(), devices=error.nearest_devices or 0)
    )


def test_latency_accuracy_and_devices_are_all_offered_where_each_would_do() -> None:
    request = little_request(objective=Objective(latency_s=0.02, accuracy=0.8), ranges=2)
    error = refused(request, "static-cascade")
    assert error.nearest_accuracy is not None
    assert error.nearest_latency_s is not None
    assert error.nearest_devices is not None
    for objective, devices in (
        (Objective(latency_s=0.02, accuracy=error.nearest_accuracy), 1),
        (Objective(latency_s=error.nearest_latency_s, accuracy=0.8), 1),
        (Objective(latency_s=0.02, accuracy=0.8), error.nearest_devices),
    ):
        assert planners.plan("static-cascade", little_request(objective=objective, ranges=2, devices=devices))


def test_the_fewest_devices_of_an_accuracy_out_of_reach_name_the_nearest() -> None:
    error = refused(asked(latency_s=0.05, accuracy=0.95), "single", planners.fewest)
    assert error.nearest_accuracy is not None
    assert error.nearest_devices is None
    assert planners.fewest("single", asked(latency_s=0.05, accuracy=error.nearest_accuracy))


# Where the errors begin -----------------------------------------------------------------------------------------------


def test_errors_name_range_model_and_device_where_they_are_raised() -> None:
    made = single_plan("m0")
    both = asked(latency_s=0.02, accuracy=0.85)
    unplaced = evaluated(both, Cascade(models=("m2",)))
    ladder = OfCascades(both, lambda _: made, dataclasses.replace(unplaced, accuracy=0.9))
    ends = [
        lambda: best_by_ladder(SoFar(both), ladder),
        lambda: best_by_ladder(SoFar(asked(accuracy=0.85)), ladder),
        lambda: restricted(candidates=[unplaced], placement=made.placement).plan(asked(latency_s=0.02)),
        lambda: planners.plan("single", asked(latency_s=0.0012)),
        lambda: planners.plan("coordinate", asked(latency_s=0.0012)),
        lambda: planners.plan("frontier", asked(latency_s=0.0012)),
        lambda: planners.plan("optimal", asked(latency_s=0.0012)),
    ]
    for end in ends:
        with pytest.raises(Infeasible) as caught:
            end()
        error = caught.value
        assert (error.load_range[0], error.bottleneck[0], error.device) == ("[", "m", "cpu-0"), error


def test_an_accuracy_of_no_candidate_blames_neither_range_nor_device() -> None:
    best = evaluated(asked(accuracy=0.85), Cascade(models=("m2",)))
    ladder = OfCascades(asked(accuracy=0.85), lambda _: single_plan("m0"), dataclasses.replace(best, accuracy=0.8))
    with pytest.raises(Infeasible, match=r"no candidate has an accuracy of 0\.85, on any devices") as caught:
        best_by_ladder(SoFar(asked(accuracy=0.85)), ladder)
    assert (caught.value.load_range, caught.value.bottleneck, caught.value.nearest_accuracy) == ("", "", 0.8)


def test_the_device_is_the_one_that_holds_the_bottleneck() -> None:
    """Only the second has room for the model that is too slow."""
    little = Device(id="little", memory_bytes=1)
    room = Device(id="room", memory_bytes=1 << 30)
    with pytest.raises(Infeasible) as caught:
        planners.plan("single", little_request(hardware=Hardware(devices=(little, room)), latency_s=0.0012))
    assert caught.value.device == "room"
    assert caught.value.facts()["device"] == "room"
    assert identical_devices(1).devices[0].id not in str(caught.value)
