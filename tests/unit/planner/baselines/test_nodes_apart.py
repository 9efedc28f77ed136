import pytest

from gearshift.errors import Infeasible
from gearshift.planner.baselines.of_graphs import APART
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.replanning.search import plan_pipeline
from tests.unit.planner.joint.strips import strips


def test_nodes_planned_apart_miss_the_latency_that_a_joint_plan_keeps() -> None:
    request = strips(latency_s=0.02, qps=90.0)
    made = APART.plan(request)
    assert made.planner == "apart"
    assert set(made.pipeline.nodes) == {"split", "read", "join"}
    assert len(made.pipeline.gears) == request.ranges
    jointly = plan_pipeline(request, candidates_of(request)).predictions["strips"]
    assert jointly.share_late <= 0.05 < made.predictions["strips"].share_late


def test_a_part_of_the_latency_that_a_node_cannot_keep_is_refused() -> None:
    with pytest.raises(Infeasible, match="node 'split' binds"):
        APART.plan(strips(latency_s=0.0005))
