import dataclasses

from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.compare import compared, run_planner, worst_accuracy
from tests.unit.planner.joint.strips import strips


def test_runs_of_a_graph_are_compared_as_those_of_one_operator_are() -> None:
    request = strips(latency_s=0.05, qps=90.0)
    runs = [run_planner(name, request) for name in planners.for_("rows", "graph")]
    assert [run.error for run in runs] == [None] * 3
    assert [(run.devices, run.latency_objective_s, run.percentile) for run in runs] == [(2, 0.05, 0.95)] * 3
    found = compared(runs, worst_accuracy(request), baselines=["apart"])
    assert found.planners == tuple(planners.for_("rows", "graph"))
    assert found.reference[0] == 0.5
    (joint, *_) = found.runs
    assert found.reference[1] < joint.accuracy
    assert all(cell.devices == 2 for cell in found.grid if cell.planner == "joint")


def test_a_latency_that_no_plan_keeps_is_an_error_of_the_run() -> None:
    request = strips(latency_s=0.05)
    found = run_planner("joint", dataclasses.replace(request, objective=Objective(latency_s=1e-4)))
    assert found.predicted is None
    assert found.error is not None
    assert found.error["kind"] == "infeasible"


def test_the_worst_accuracy_is_that_of_the_composed_query() -> None:
    request = strips(latency_s=0.05)
    part_b = request.records.indices(1)
    right = request.profiles["read"].predictions.quality[0].reshape(-1, 3).prod(axis=1)
    assert abs(worst_accuracy(request) - right[part_b].mean()) < 1e-6
