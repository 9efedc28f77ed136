import dataclasses
import functools
import json
from pathlib import Path

import msgspec
import pytest

from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.explain import Explanation, explain
from gearshift.planner.search.optimal import PLANNER, single_model_plan
from gearshift.planner.what_if import neighbours
from gearshift.plans.plan_file import encode_plan, read_plan
from tests.unit.planner import fake
from tests.unit.planner.little import PROFILE, constant_plan, little_request, little_trace

plan = PLANNER.plan


@functools.cache
def planned() -> GearPlan:
    return plan(little_request())


@functools.cache
def explained() -> Explanation:
    return explain(planned(), PROFILE, little_trace())


def test_each_range_repeats_what_the_plan_predicts_of_it() -> None:
    gears = planned().pipelines["task"].gears
    assert [r.load_range for r in explained().ranges] == [g.load_range for g in gears]
    assert [r.predicted for r in explained().ranges] == [g.predicted for g in gears]


def test_the_next_cascade_is_more_accurate_and_breaks_something_at_the_same_load() -> None:
    following = [(r, r.next) for r in explained().ranges if r.next is not None]
    assert following
    for found, better in following:
        assert better.predicted.accuracy > found.predicted.accuracy
        assert better.predicted.load_qps == found.predicted.load_qps
        assert (better.model in PROFILE.models, better.device) == (True, "cpu-0")
        match better.breaks:
            case "latency":
                assert better.predicted.latency_p95_s > explained().limit_s
            case "trace":
                assert better.share_late_on_trace is not None
                assert better.share_late_on_trace > 0.05
            case "margin":
                assert better.capacity_qps is not None
                assert found.predicted.load_qps <= better.capacity_qps < 2 * found.predicted.load_qps
            case "open_end":
                assert found.load_range.to is None


def test_devices_and_lateness_are_those_of_a_replay() -> None:
    replayed = explained().replayed
    assert replayed.requests == len(little_trace())
    assert replayed.share_late == pytest.approx(planned().predictions["task"].share_late, abs=0.02)
    assert 0 < replayed.utilisation["cpu-0"] < 1


def test_a_load_that_the_next_cascade_cannot_carry_is_told_with_the_model_that_is_busiest() -> None:
    crowd = little_trace(low_qps=1700, high_qps=1700)
    (found,) = explain(single_model_plan(little_request(trace=crowd), "m0"), PROFILE, crowd).ranges
    assert found.next is not None
    assert (found.next.breaks, found.next.model, found.next.device) == ("load", "m0", "cpu-0")


def test_without_a_latency_objective_the_limit_is_what_the_trace_takes() -> None:
    operator = msgspec.structs.replace(planned().pipelines["task"], objective=Objective(accuracy=0.7))
    found = explain(msgspec.structs.replace(planned(), pipelines={"task": operator}), PROFILE, little_trace())
    assert found.limit_s == found.replayed.latency_s.p95


def test_another_trace_than_the_plans_own_is_told() -> None:
    assert explained().same_trace  # neither has a hash
    made = msgspec.structs.replace(planned(), traces={"task": msgspec.structs.replace(planned().trace, sha256="x")})
    assert not explain(made, PROFILE, little_trace()).same_trace


def test_the_same_planner_is_asked_for_one_device_fewer_and_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(planners.for_(), "fake", "tests.unit.planner.fake")
    hardware = Hardware(devices=(Device(id="cpu-2"), Device(id="cpu-0")))
    made = fake.plan(little_request(hardware=hardware))
    fake.asked.clear()
    found = neighbours(made, PROFILE, little_trace())
    assert [n.devices for n in found] == [1, 3]
    assert all(n.predicted is not None for n in found)
    assert [[d.id for d in request.hardware.devices] for request in fake.asked] == [
        ["cpu-2"],
        ["cpu-2", "cpu-0", "cpu-3"],
    ]


def test_a_neighbour_without_a_plan_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(planners.for_(), "fake", "tests.unit.planner.fake")
    made = fake.plan(little_request())
    operator = msgspec.structs.replace(made.pipelines["task"], objective=Objective(latency_s=fake.LEAST_S / 2))
    (more,) = neighbours(msgspec.structs.replace(made, pipelines={"task": operator}), PROFILE, little_trace())
    assert (more.devices, more.predicted) == (2, None)
    assert "too much is asked" in more.reason


def test_a_planner_that_is_not_registered_is_a_reason_too() -> None:
    (more,) = neighbours(fake.plan(little_request()), PROFILE, little_trace())
    assert "there is no planner 'fake'" in more.reason


def test_the_same_range_of_load_is_planned_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gearshift.planner.search.plan_search.MOST_CELLS", 0
    )  # published planners have ranges of their own
    monkeypatch.setitem(planners.for_(), "optimal", "tests.unit.planner.fake")
    fake.asked.clear()
    tight = plan(little_request(latency_s=0.01))
    neighbours(tight, PROFILE, little_trace())
    gears = tight.pipelines["task"].gears
    width = gears[1].load_range.from_
    assert len(gears) > 4  # some of them beyond the top
    assert fake.asked[0].ranges == 4
    assert fake.asked[0].upper_ends()[-1] == pytest.approx(4 * width)


def test_a_plan_of_one_cascade_at_all_loads_is_planned_for_again_up_to_what_it_was_planned_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constant = constant_plan(little_request(latency_s=0.03))
    assert len(constant.pipelines["task"].gears) == 2
    monkeypatch.setitem(planners.for_(), "optimal", "tests.unit.planner.fake")
    fake.asked.clear()
    neighbours(constant, PROFILE, little_trace())
    assert fake.asked[0].ranges == 20
    assert fake.asked[0].upper_ends()[-1] == pytest.approx(little_request().upper_ends()[-1])


# What was asked -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_neighbour_is_asked_for_what_the_plan_was_asked_for_and_not_for_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accurate = dataclasses.replace(
        little_request(hardware=identical_devices(2), objective=Objective(accuracy=0.8)),
        least_margin=1.3,
        load="zipf",
        most_candidates=5,
        budget_s=60.0,
    )
    made = planners.plan("optimal", accurate)
    kept = made.pipelines["task"].objective
    assert kept.latency_s is not None
    monkeypatch.setitem(planners.for_(), "optimal", "tests.unit.planner.fake")
    fake.asked.clear()
    neighbours(made, PROFILE, accurate.trace)
    fewer, more = fake.asked
    for request, devices in ((fewer, 1), (more, 3)):
        assert len(request.hardware.devices) == devices
        assert dataclasses.replace(request, hardware=accurate.hardware) == accurate


@pytest.mark.long
def test_more_devices_give_less_latency_at_the_same_accuracy_and_too_few_break_the_accuracy_alone() -> None:
    made = planners.plan(
        "optimal", little_request(trace=little_trace(high_qps=900), devices=2, objective=Objective(accuracy=0.78))
    )
    fewer, more = neighbours(made, PROFILE, little_trace(high_qps=900))
    assert more.predicted is not None
    assert more.predicted.accuracy >= 0.78
    assert more.predicted.latency_s.p95 < made.predictions["task"].latency_s.p95
    assert "accuracy of 0.78" in fewer.reason
    assert " ms" not in fewer.reason


@pytest.mark.long
def test_one_device_more_than_the_fewest_is_planned_for_the_latency_alone() -> None:
    both = Objective(latency_s=0.02, accuracy=0.84)
    made = planners.fewest("optimal", little_request(objective=both))
    (fewer, more) = neighbours(made, PROFILE, little_trace())
    assert made.pipelines["task"].asked is not None
    assert made.pipelines["task"].asked.objective == both
    assert (fewer.predicted, more.devices) == (None, len(made.hardware.devices) + 1)
    assert more.predicted is not None
    assert more.predicted.devices == more.devices
    assert more.predicted.accuracy > made.predictions["task"].accuracy


def test_a_plan_file_that_does_not_say_what_was_asked_is_still_read(tmp_path: Path) -> None:
    made = planners.plan("single", little_request())
    old = json.loads(encode_plan(made))
    assert old["pipelines"]["task"].pop("asked")["objective"]["latency_s"] == 0.03
    (tmp_path / "plan.json").write_text(json.dumps(old))
    operator = msgspec.structs.replace(made.pipelines["task"], asked=None)
    assert read_plan(tmp_path / "plan.json") == msgspec.structs.replace(made, pipelines={"task": operator})


# Models on no device --------------------------------------------------------------------------------------------------


def test_a_better_cascade_of_models_on_no_device_is_told_with_where_they_would_fit() -> None:
    made = planners.plan("single", little_request())
    (found,) = explain(made, PROFILE, little_trace()).ranges
    assert len(made.placement.models) == 1
    assert found.next is None
    assert found.unplaced is not None
    assert found.unplaced.accuracy > found.predicted.accuracy
    assert set(found.unplaced.room.values()) == {("cpu-0",)}
    assert made.placement.models[0] not in found.unplaced.room


def test_a_model_that_no_memory_holds_is_told() -> None:
    needs_bytes = PROFILE.curves[0].memory_bytes
    small = identical_devices(1, memory_bytes=needs_bytes)
    made = planners.plan("single", little_request(hardware=small))
    (found,) = explain(made, PROFILE, little_trace()).ranges
    assert found.unplaced is not None
    assert set(found.unplaced.room.values()) == {()}
