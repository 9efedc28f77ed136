from functools import cache

import msgspec
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.one_alone import OneAlone, each_alone
from gearshift.planner.space.beside import joined
from gearshift.profiles.profile import PART_B
from gearshift.result import ServingResult
from gearshift.simulator.simulate import simulate
from gearshift.workload import draw_workload
from tests.unit.planner.joint.mixed import SMALL, cats_beside, graph_of_strips, made_by_hand

AROUND = {"split": Cascade(models=("cut",)), "join": Cascade(models=("add",))}


def alone_in(request: PipelineRequest, plan: GearPlan) -> dict[str, OneAlone]:
    found = each_alone(plan, request.profiles, {"strips": request.records}, {"strips": request.trace})
    return {one.models["read"]: one for one in found["strips"]}


@cache
def of_graph() -> dict[str, OneAlone]:
    return alone_in(*graph_of_strips())


def predicted(one: OneAlone) -> ServingResult:
    assert one.predicted is not None
    return one.predicted


def test_models_of_nodes_that_have_several_are_tried_alone() -> None:
    assert sorted(of_graph()) == ["large", "small"]


def test_a_model_alone_is_as_accurate_as_a_plan_that_has_no_other_there() -> None:
    request, _ = graph_of_strips()
    only = made_by_hand(request, {**AROUND, "read": SMALL}, {**AROUND, "read": SMALL})
    workload = draw_workload(request.trace, request.records.indices(PART_B), seed=only.seed)
    run = simulate(only, request.profiles, workload, joint={"strips": request.records})
    expected = run.result(request.profiles, latency_objective_s=request.latency_s, pipeline="strips")
    assert predicted(of_graph()["small"]).accuracy == expected.accuracy


def test_the_larger_model_alone_is_more_accurate_and_slower() -> None:
    small, large = (predicted(of_graph()[name]) for name in ("small", "large"))
    assert large.accuracy > small.accuracy
    assert large.latency_s.p95 > small.latency_s.p95


def test_a_model_that_no_device_of_the_plan_has_is_placed_where_there_is_room() -> None:
    request, _ = graph_of_strips()
    only = made_by_hand(request, {**AROUND, "read": SMALL}, {**AROUND, "read": SMALL})
    assert "large" not in only.placement.models
    assert predicted(alone_in(request, only)["large"]).accuracy == predicted(of_graph()["large"]).accuracy


def test_a_model_without_room_is_refused_in_words() -> None:
    request, plan = graph_of_strips()
    devices = tuple(msgspec.structs.replace(device, memory_bytes=100) for device in plan.hardware.devices)
    kinds = {"small": 10, "large": 200}
    profiles = dict(request.profiles)
    read = profiles["read"]
    curves = tuple(msgspec.structs.replace(each, memory_bytes=kinds[each.model]) for each in read.curves)
    profiles["read"] = type(read)(operator="read", curves=curves, predictions=read.predictions)
    only = made_by_hand(request, {**AROUND, "read": SMALL}, {**AROUND, "read": SMALL})
    only = msgspec.structs.replace(only, hardware=Hardware(devices=devices))
    found = each_alone(only, profiles, {"strips": request.records}, {"strips": request.trace})["strips"]
    reasons = {one.models["read"]: one.reason for one in found}
    assert reasons == {"small": "", "large": "there is no room for model large on any device"}


@pytest.mark.long
def test_another_pipeline_stays_as_it_is_beside_a_model_alone() -> None:
    request, graph = graph_of_strips()
    cats, other = cats_beside()
    plan = joined(graph, other)
    profiles = {**request.profiles, **cats.profiles}
    traces = {"strips": request.trace, "cats": cats.trace}
    found = each_alone(plan, profiles, {"strips": request.records}, traces)
    of_cats = [predicted(one).accuracy for one in found["cats"]]
    assert len(set(of_cats)) == len(of_cats) > 1
    assert {one.models["read"] for one in found["strips"]} == {"small", "large"}
