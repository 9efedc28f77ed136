import pytest

from gearshift.cascade import Cascade
from gearshift.gear import LoadRange
from gearshift.pipeline import When
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, place
from gearshift.profiles.profile import PART_A
from gearshift.simulator.flow import PipelineFlow, flows, in_words
from gearshift.simulator.simulate import simulate
from gearshift.workload import draw_workload
from tests.unit.planner.joint.strips import ROWS, strips


def flow_of(request: PipelineRequest, reader: Cascade) -> PipelineFlow:
    cascades = {"split": Cascade(models=("cut",)), "read": reader, "join": Cascade(models=("add",))}
    visits = {"cut": 1.0, "small": 3.0, "large": 1.0, "add": 1.0}
    candidate = Candidate(cascades, 1.0, 0.0, {m: visits[m] for c in cascades.values() for m in c.models})
    placement = place(request.profiles.values(), request.hardware, candidate.visits)
    gear = request.gear(LoadRange(from_=0.0), cascades, SteadyTuples(request, placement).settings(candidate, 8))
    plan = request.plan(placement, [gear])
    workload = draw_workload(request.trace, request.records.indices(PART_A), seed=0)
    run = simulate(plan, request.profiles, workload, joint={request.name: request.records})
    return flows(plan, request.profiles, run)[request.name]


def test_a_fan_out_has_items_for_each_row_and_edges_are_counted_per_request() -> None:
    flow = flow_of(strips(latency_s=0.1), Cascade(models=("small",)))
    assert {name: node.items for name, node in flow.nodes.items()} == {"split": 1.0, "read": ROWS, "join": 1.0}
    assert [(edge.from_, edge.rows) for edge in flow.edges] == [("split", 1.0), ("read", ROWS)]
    assert flow.nodes["read"].answered == {"small": 1.0}
    assert flow.share_of_busy == pytest.approx(1)
    assert sum(node.share_of_time for node in flow.nodes.values()) == pytest.approx(1)


def test_time_goes_to_the_node_whose_models_are_slow() -> None:
    small, large = (flow_of(strips(latency_s=1.0), Cascade(models=(model,))) for model in ("small", "large"))
    assert large.nodes["read"].share_of_time > small.nodes["read"].share_of_time > 0.5


def test_an_item_that_a_later_stage_answers_has_visited_those_before() -> None:
    threshold = 0.5
    request = strips(latency_s=1.0)
    flow = flow_of(request, Cascade(models=("small", "large"), thresholds=(threshold,)))
    answered = flow.nodes["read"].answered
    assert sum(answered.values()) == pytest.approx(1)
    certainty = request.profiles["read"].predictions
    expected = (certainty.certainty[0, certainty.part == PART_A] < threshold).mean()
    assert answered["large"] == pytest.approx(float(expected), abs=0.02)


def test_conditions_are_said_in_words() -> None:
    assert in_words(When(output="label", one_of=("cat", 3))) == "label is cat or 3"
    assert in_words(When(output="certainty", at_least=0.8)) == "certainty >= 0.8"
    assert in_words(None) == ""
