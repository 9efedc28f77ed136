from dataclasses import replace

import numpy as np
import pytest
from msgspec import UNSET
from msgspec.structs import replace as replace_struct

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.choices import on_trace, quality_in_time, result_of
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.planner.joint.replanning.timed_quality import allowing, timed_query
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import SteadyTuples, place
from gearshift.profiles.profile import PART_A, PART_B
from tests.unit.planner.joint.strips import NODES, ROWS, strips


@pytest.fixture(scope="module")
def tight() -> tuple[PipelineRequest, GearPlan, GearPlan]:
    """A pipeline planned without choices and with them: 30 ms for three parts that take 6 ms each at best."""
    request = strips(latency_s=0.03, qps=100.0, replanning=True)
    front = candidates_of(request)
    return request, plan_pipeline(replace(request, replanning=False), front), plan_pipeline(request, front)


@pytest.mark.parametrize("part", [PART_A, PART_B])
def test_choosing_by_the_time_left_gets_more_right_in_time_with_fewer_late(
    tight: tuple[PipelineRequest, GearPlan, GearPlan], part: int
) -> None:
    request, plain, choosing = tight
    before, after = (on_trace(plan, request, part=part) for plan in (plain, choosing))
    assert quality_in_time(after, request) > quality_in_time(before, request) + 0.005
    assert result_of(after, request).share_late < result_of(before, request).share_late


def test_a_gear_that_chooses_has_tables_a_margin_and_a_prediction(
    tight: tuple[PipelineRequest, GearPlan, GearPlan],
) -> None:
    _, plain, choosing = tight
    gears = [gear for gear in choosing.pipeline.gears if gear.timed is not UNSET]
    assert gears
    for gear in gears:
        assert gear.timed is not UNSET
        assert gear.margin_s is not UNSET
        assert len(gear.cascades["read"]) == len(gear.timed["read"]) > 1
        assert gear.predicted is not None
        assert gear.predicted.share_late <= 0.05
    assert plain.pipeline.gears[0] == choosing.pipeline.gears[0]  # with little load all is read by the dearest


def test_without_replanning_no_gear_chooses(tight: tuple[PipelineRequest, GearPlan, GearPlan]) -> None:
    _, plain, _ = tight
    assert all(gear.timed is UNSET and gear.margin_s is UNSET for gear in plain.pipeline.gears)


def test_with_a_confidence_gears_stay_plain() -> None:
    request = strips(latency_s=0.03, qps=100.0, replanning=True, accuracy=0.5, confidence=0.9)
    made = plan_pipeline(request, candidates_of(request))
    assert all(gear.timed is UNSET for gear in made.pipeline.gears)


@pytest.mark.long
def test_where_time_is_ample_the_plain_gears_are_kept() -> None:
    request = strips(latency_s=0.1, replanning=True)
    made = plan_pipeline(request, candidates_of(request))
    assert all(gear.timed is UNSET for gear in made.pipeline.gears)


def test_outcomes_are_the_recorded_run_times_and_answers_of_part_a() -> None:
    request = strips(latency_s=0.1)
    front = candidates_of(request)
    cascades = {node: [front[0].cascades[node], front[-1].cascades[node]] for node in request.nodes}
    query = timed_query(request, cascades, {"cut": 0.0005, "small": 0.001, "large": 0.006, "add": 0.0003})
    small, dearest = query.outcomes["read"]
    assert small.run_ms.tolist() == [1]
    records = request.profiles["read"].predictions
    in_a = records.quality[0, np.repeat(request.records.part == PART_A, ROWS)]
    assert small.quality.tolist() == pytest.approx([in_a.mean()])
    assert dearest.longest_ms in (6, 7)
    assert float(dearest.share.sum()) == pytest.approx(1.0)
    assert query.rows == {"read": ROWS}
    assert query.branches == {"split": {frozenset({"read"}): 1.0}, "read": {frozenset({"join"}): 1.0}, "join": {}}
    fewer = allowing(query, {"split": [0], "read": [1], "join": [0]})
    assert fewer.outcomes["read"] == [dearest]


def test_run_times_are_of_the_fastest_replica(tight: tuple[PipelineRequest, GearPlan, GearPlan]) -> None:
    request, plain, _ = tight
    assert SteadyTuples(request, plain.placement).run_s() == pytest.approx(
        {"cut": 0.0005, "small": 0.001, "large": 0.006, "add": 0.0003}
    )


def test_run_times_with_learned_caches_are_those_up_to_the_exit_of_each_sample() -> None:
    request = strips(latency_s=0.1)
    read = request.profiles["read"]
    small, large = read.curves
    first = replace_struct(large, median_s=(0.004,) * 4, p95_s=(0.004,) * 4)
    then = replace_struct(first, segment=1, median_s=(0.002,) * 4, p95_s=(0.002,) * 4)
    exits = np.stack([np.zeros(len(read.predictions.part)), np.arange(len(read.predictions.part)) % 2]).astype(int)
    cached = replace(
        read, curves=(small, first, then), predictions=replace(read.predictions, exit_segment=exits), performance=()
    )
    request = replace(request, profiles={**request.profiles, "read": cached})
    steady = SteadyTuples(
        request,
        place(request.profiles.values(), request.hardware, dict.fromkeys(("cut", "small", "large", "add"), 1.0)),
    )
    assert steady.run_s()["small"] == pytest.approx(0.001)
    assert steady.run_s()["large"] == pytest.approx(np.where(exits[1], 0.006, 0.004))
    cascades = {node: [Cascade(models=(model,))] for node, model in zip(NODES, ("cut", "large", "add"), strict=True)}
    of_read = timed_query(request, cascades, steady.run_s()).outcomes["read"][0]
    assert of_read.run_ms.tolist() == [4, 6]
    assert of_read.share.tolist() == pytest.approx([0.5, 0.5], abs=0.05)
