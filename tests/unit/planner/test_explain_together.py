from functools import cache

import pytest

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.planner.explain_together import TogetherExplanation, explain_together
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.space.beside import joined
from tests.unit.planner.joint.mixed import BOTH, SMALL, cats_beside, graph_of_strips, made_by_hand


def explained(
    graph: tuple[PipelineRequest, GearPlan], *others: tuple[PipelineRequest, GearPlan]
) -> TogetherExplanation:
    requests, plan = [graph[0]], graph[1]
    for request, other in others:
        requests.append(request)
        plan = joined(plan, other)
    profiles = {name: profile for request in requests for name, profile in request.profiles.items()}
    traces = {request.name: request.trace for request in requests}
    return explain_together(plan, profiles, {"strips": graph[0].records}, traces)


@cache
def of_graph() -> TogetherExplanation:
    return explained(graph_of_strips())


def test_each_range_of_a_graph_has_the_next_tuple_and_the_node_that_binds() -> None:
    low, high = of_graph().pipelines["strips"].ranges
    assert low.cascades["read"] == str(BOTH)
    assert high.cascades["read"] == str(SMALL)
    for found in (low, high):
        assert found.next is not None
        assert found.next.changed == ("read",)
        assert found.next.predicted.accuracy > found.predicted.accuracy
        assert (found.next.binds.node, found.next.binds.pipeline) == ("read", "strips")
    assert high.next is not None
    assert high.next.breaks == "open_end"


def test_a_tuple_that_is_too_slow_breaks_the_latency() -> None:
    found = explained(graph_of_strips(latency_s=0.008)).pipelines["strips"]
    nexts = [each.next for each in found.ranges]
    assert {each.breaks for each in nexts if each} <= {"latency", "trace", "load"}
    late = next(each for each in nexts if each and each.breaks == "latency")
    assert late.predicted.latency_p95_s > 0.008


def test_time_and_items_of_nodes_are_those_of_the_replay() -> None:
    found = of_graph()
    flow = found.pipelines["strips"].flow
    assert flow.nodes["read"].items == pytest.approx(3)
    assert found.binds.node == max(flow.nodes, key=lambda node: flow.nodes[node].share_of_time) == "read"


@pytest.mark.long
def test_a_pipeline_of_one_node_is_explained_beside_a_graph() -> None:
    found = explained(graph_of_strips(), cats_beside())
    assert list(found.pipelines) == ["strips", "cats"]
    cats = found.pipelines["cats"]
    assert cats.ranges[1].next is not None
    assert cats.ranges[1].next.changed == ("cats",)
    assert sum(one.flow.share_of_busy for one in found.pipelines.values()) == pytest.approx(1)


@pytest.mark.long
def test_what_makes_another_pipeline_late_says_which() -> None:
    found = explained(graph_of_strips(latency_s=1.0), cats_beside(latency_s=0.002))
    nexts = [each.next for each in found.pipelines["strips"].ranges if each.next]
    assert {each.breaks for each in nexts} == {"others"}
    assert {each.late for each in nexts} == {"cats"}


def test_a_tuple_of_models_that_are_on_no_device_is_named_with_the_room_for_them() -> None:
    request, _ = graph_of_strips()
    around = {"split": Cascade(models=("cut",)), "join": Cascade(models=("add",)), "read": SMALL}
    low, _ = explained((request, made_by_hand(request, around, around))).pipelines["strips"].ranges
    assert low.next is None
    assert low.unplaced is not None
    assert "large" in low.unplaced.cascade
    assert list(low.unplaced.room) == ["large"]
