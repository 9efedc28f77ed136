from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from gearshift.cascade import Cascade, ExpectedGain, TimedQuality
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan, LoadRange
from gearshift.objective import Objective
from gearshift.pipeline import Edge, Node
from gearshift.placement import Placement
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.plans.served import is_language_plan, require_served
from tests.conformance.small import small_gear, small_graph, small_graph_gear, small_plan
from tests.little_task import under_other_names

GEAR = small_gear({"a0": "d0", "b0": "d0"}, "a b", (0.1,))
PLAN = small_plan({"a0": "d0", "b0": "d0"}, GEAR)


def pipeline(**changed: Any) -> GearPlan:
    return replace(PLAN, pipelines={"task": replace(PLAN.pipelines["task"], **changed)})


def gear(**changed: Any) -> GearPlan:
    return pipeline(gears=(replace(GEAR, **changed),))


def objective(**changed: Any) -> GearPlan:
    return pipeline(objective=replace(PLAN.pipelines["task"].objective, **changed))


def node(**changed: Any) -> GearPlan:
    return pipeline(nodes={"task": Node(operator="task", **changed)})


def refined(**changed: Any) -> GearPlan:
    gains = tuple(
        ExpectedGain(kept=kept, later=later, certainty=(0.5,), gain=(0.1,))
        for kept, later in permutations(PLAN.placement.models, 2)
    )
    return pipeline(**{"gears": (replace(GEAR, order="gain"),), "gains": gains} | changed)


UNSERVED: dict[str, Callable[[], GearPlan]] = {
    "only node 'task' with inputs, fan-out or a join": lambda: node(inputs={"x": "image"}),
    "node 'task' with": lambda: node(join="first"),
    "or a join": lambda: node(join="first"),
    "with inputs": lambda: node(required=False),
    "an objective on ttft": lambda: objective(metric="ttft"),
    "several cascades of a node without their tables (timed) in the gear": lambda: gear(
        cascades={"task": (Cascade(models=("a",)), GEAR.cascade)}
    ),
    "decide_at_tokens in the gear": lambda: gear(cascades={"task": (replace(GEAR.cascade, decide_at_tokens=(4,)),)}),
    "order by gain without the expected gain of model": lambda: gear(order="gain"),
    "order by gain without a latency objective": lambda: refined(objective=Objective(accuracy=0.9)),
    "gears that order by gain beside others": lambda: refined(
        gears=(
            replace(GEAR, load_range=LoadRange(from_=0, to=9), order="gain"),
            replace(GEAR, load_range=LoadRange(from_=9)),
        )
    ),
    "most_outstanding in the gear": lambda: gear(
        replicas=tuple(replace(settings, most_outstanding=8) for settings in GEAR.replicas)
    ),
    "replicas with kv_tokens": lambda: replace(
        PLAN, placement=Placement(replicas=tuple(replace(r, kv_tokens=4096) for r in PLAN.placement.replicas))
    ),
}


@pytest.mark.parametrize("part", UNSERVED)
def test_what_cannot_be_served_yet_can_be_written_and_read_and_is_refused_by_name(part: str, tmp_path) -> None:
    plan = UNSERVED[part]()
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    with pytest.raises(InvalidInput, match="which this version of gearshift does not serve") as caught:
        plan_tables(plan)
    assert part in str(caught.value)


@pytest.mark.parametrize("load_unit", ["outstanding_requests", "queued_tokens", "drain_s"])
def test_a_plan_of_language_models_is_read_and_refused_where_others_are_needed(load_unit: str, tmp_path) -> None:
    plan = pipeline(load_unit=load_unit)
    write_plan(plan, tmp_path / "plan.json")
    assert is_language_plan(read_plan(tmp_path / "plan.json"))
    with pytest.raises(InvalidInput, match=f"language models \\(load in {load_unit}\\), and one of other models"):
        plan_tables(plan)


def test_a_pipeline_of_one_node_is_served() -> None:
    require_served(PLAN)
    require_served(gear(order="arrival"))
    require_served(objective(metric="latency"))
    require_served(objective(recall=0.9, precision=0.9, positive="yes", confidence=0.95))


def test_gears_that_order_by_gain_are_served_with_the_gains_of_their_models() -> None:
    tables = plan_tables(refined()).refine
    assert tables.refines
    assert (tables.greatest, tables.for_gain.tolist(), tables.margin_ns.tolist()) == (0.1, [1], [0])
    assert not plan_tables(PLAN).refine.refines
    assert plan_tables(PLAN).refine.queue_of.tolist() == list(range(len(PLAN.placement.replicas)))


def test_names_of_pipeline_and_node_may_differ_from_the_operators() -> None:
    renamed, plain = plan_tables(under_other_names(PLAN)), plan_tables(PLAN)
    assert (renamed.pipeline.name, renamed.pipeline.nodes) == ("shop", ("look",))
    assert not renamed.graph.is_graph
    for name in ("shares", "stage_models", "thresholds", "largest_batch_size"):
        assert getattr(renamed, name).tolist() == getattr(plain, name).tolist()


def test_several_cascades_of_a_node_have_rows_of_choices_with_their_tables() -> None:
    tables = (TimedQuality(remaining_ms=(10,), quality=(0.5,)), TimedQuality(remaining_ms=(20, 40), quality=(0.6, 0.9)))
    cascades = (Cascade(models=GEAR.cascade.models[:1]), GEAR.cascade)
    plan = gear(cascades={"task": cascades}, timed={"task": tables}, margin_s=0.008)
    made = plan_tables(plan)
    assert made.chooses
    assert not plan.is_plain
    assert not plan_tables(PLAN).chooses
    assert PLAN.is_plain
    assert made.choice_begin.tolist()[:2] == [0, 2]
    assert made.table_begin.tolist()[:3] == [0, 1, 3]
    assert made.table_ns.tolist()[:3] == [10_000_000, 20_000_000, 40_000_000]
    assert made.margin_ns.tolist()[0] == 8_000_000
    assert made.stage_count.tolist()[:2] == [1, len(GEAR.cascade.models)]


def test_a_pipeline_of_several_nodes_is_resolved_by_node_and_gear() -> None:
    gears = [
        small_graph_gear({"a0": "d0", "b0": "d0"}, {"first": first, "then": "b"}, load=load)
        for load, first in (((0, 9), "a"), ((9, None), "b"))
    ]
    nodes = {"first": Node(operator="one"), "then": Node(operator="other", required=False, inputs={"x": "first.y"})}
    tables = plan_tables(small_graph({"a0": "d0", "b0": "d0"}, nodes, [Edge(from_="first", to="then")], *gears))
    assert [tables.cascade(gear, node).models for node in (0, 1) for gear in (0, 1)] == [("a",), ("b",), ("b",), ("b",)]
    assert tables.pipeline.output == 1


IMPOSSIBLE: dict[str, Callable[[], GearPlan]] = {
    "median_s is -1.0": lambda: objective(median_s=-1.0),
    "recall is 7.0": lambda: objective(recall=7.0),
    "precision is -0.1": lambda: objective(precision=-0.1),
    "answer_by_margin_s is nan": lambda: gear(order="gain", answer_by_margin_s=float("nan")),
    "the order is not by gain": lambda: gear(answer_by_margin_s=0.001),
    "worth is 0.0, needs a positive number": lambda: pipeline(worth=0.0),
    "worth is set, and no gear orders by gain": lambda: pipeline(worth=2.0),
    "margin_s is -3.0": lambda: gear(margin_s=-3.0),
    "timed has {'other': 1} tables": lambda: gear(timed={"other": (TimedQuality(remaining_ms=(1,), quality=(0.5,)),)}),
    "a table by remaining_ms has 2 points for 1 values": lambda: gear(
        timed={"task": (TimedQuality(remaining_ms=(1, 2), quality=(0.5,)),)}
    ),
    "decides at tokens of 3 stages": lambda: gear(
        cascades={"task": (replace(GEAR.cascade, decide_at_tokens=(1, 2, 3)),)}
    ),
    "decides at a negative token": lambda: gear(cascades={"task": (replace(GEAR.cascade, decide_at_tokens=(-1,)),)}),
    "most_outstanding is 0": lambda: gear(replicas=(replace(GEAR.replicas[0], most_outstanding=0),)),
    "kv_tokens -5": lambda: replace(
        PLAN, placement=Placement(replicas=(replace(PLAN.placement.replicas[0], kv_tokens=-5),))
    ),
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE)
def test_values_that_cannot_be_are_refused_though_nothing_serves_them_yet(sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        IMPOSSIBLE[sentence]()
    assert sentence in str(caught.value)
