from dataclasses import replace

import pytest
from msgspec import UNSET
from msgspec.structs import replace as replace_struct

from gearshift.errors import Infeasible
from gearshift.hardware import Device, Hardware
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.choices import on_trace, result_of
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.planner.joint.request import PipelineRequest
from gearshift.profiles.profile import PART_B
from tests.unit.planner.joint.strips import ROWS, curve, strips


def test_candidates_rise_in_work_and_quality_and_count_the_items_of_models() -> None:
    front = candidates_of(strips(latency_s=0.1))
    assert [c.work_s for c in front] == sorted(c.work_s for c in front)
    assert [c.quality for c in front] == sorted(c.quality for c in front)
    assert len(front) > 5
    assert front[0].visits == pytest.approx({"cut": 1.0, "small": ROWS, "large": 0.0, "add": 1.0})


def test_a_pipeline_gets_more_accurate_tuples_at_less_load_and_keeps_its_latency() -> None:
    request = strips(latency_s=0.1)
    made = plan_pipeline(request, candidates_of(request))
    predicted = made.predictions["strips"]
    assert predicted.share_late <= 0.05
    qualities = [gear.predicted.accuracy for gear in made.pipeline.gears if gear.predicted]
    assert qualities == sorted(qualities, reverse=True)
    assert 0.72 < predicted.accuracy < 0.98
    assert {replica.model for replica in made.placement.replicas} >= {"cut", "small", "add"}


def test_more_time_buys_accuracy() -> None:
    found = [
        plan_pipeline(r, candidates_of(r)).predictions["strips"].accuracy
        for r in (strips(latency_s=s, qps=90.0) for s in (0.02, 0.2))
    ]
    assert found[0] < found[1]


def test_a_latency_that_nothing_keeps_names_the_range_the_node_and_the_model() -> None:
    request = strips(latency_s=0.002)
    with pytest.raises(Infeasible, match="node 'read' binds") as refused:
        plan_pipeline(request, candidates_of(request))
    assert refused.value.bottleneck == "small"
    assert refused.value.nearest_latency_s is not None


def test_a_latency_below_that_of_the_fastest_path_names_the_path() -> None:
    request = strips(latency_s=0.0015)
    with pytest.raises(Infeasible, match=r"the fastest path, split > read > join, takes 1\.8 ms without any load"):
        plan_pipeline(request, candidates_of(request))


def test_an_accuracy_out_of_reach_is_refused_with_the_nearest() -> None:
    request = strips(latency_s=0.1, accuracy=0.999)
    with pytest.raises(Infeasible, match="the accuracy is") as refused:
        plan_pipeline(request, candidates_of(request))
    assert 0.7 < (refused.value.nearest_accuracy or 0) < 0.999


def two_kinds() -> PipelineRequest:
    """Each model that reads has a device of its own, which cannot carry all parts."""
    request = strips(latency_s=0.3, qps=80.0, replanning=True)
    read = request.profiles["read"]
    curves = tuple(replace_struct(curve(model, ms), device_kind=model) for model, ms in (("small", 6), ("large", 6.5)))
    return replace(
        request,
        profiles={**request.profiles, "read": replace(read, curves=curves, performance=())},
        hardware=Hardware(devices=tuple(Device(id=kind, kind=kind) for kind in ("cpu", "small", "large"))),
        ranges=2,
    )


def test_loads_that_no_tuple_carries_are_spread_by_gears_that_choose() -> None:
    request = two_kinds()
    front = candidates_of(request)
    with pytest.raises(Infeasible):
        plan_pipeline(replace(request, replanning=False), front)
    made = plan_pipeline(request, front)
    assert made.predictions["strips"].share_late <= 0.05
    assert all(len(gear.cascades["read"]) > 1 and gear.timed is not UNSET for gear in made.pipeline.gears)


def test_where_run_times_vary_the_late_are_more() -> None:
    request = strips(latency_s=0.02, qps=90.0)
    made = plan_pipeline(request, candidates_of(request))
    late = [
        result_of(on_trace(made, r, part=PART_B), r).share_late for r in (request, replace(request, run_deviation=0.5))
    ]
    assert late[0] < late[1]


def test_ctrl_c_while_gears_are_given_choices_leaves_the_plan_that_was_found() -> None:
    def stop(what: str, share: float) -> None:
        if "range 2" in what:
            raise KeyboardInterrupt

    request = replace(strips(latency_s=0.1, replanning=True), ranges=2)
    made = plan_pipeline(request, candidates_of(request), progress=stop)
    assert made.unfinished
    assert made.predictions["strips"].share_late <= 0.05
