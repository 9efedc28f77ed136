import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.beyond import with_planned_load
from gearshift.planner.space.metered import metered_loads, range_weights
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_tables import plan_tables
from gearshift.workload import PlannedLoad
from tests.little_task import renamed, two_gear_plan
from tests.unit.planner.little import little_request, little_trace

EDGE_QPS = 300.0


def made(request: PlanRequest, planner: str = "optimal") -> PlannedLoad:
    """What a plan of two gears with an edge at 300 requests a second comes to say."""
    plan = two_gear_plan("", edge_qps=EDGE_QPS)
    (told,) = with_planned_load(
        [renamed(plan, request.profile.operator)], request, load=request.load or planners.named(planner).load
    )
    planned = told.pipelines[request.profile.operator].planned_load
    assert planned is not None
    return planned


def test_the_planned_load_is_what_the_meter_would_measure_of_the_trace() -> None:
    trace = little_trace()
    planned = made(little_request(trace=trace))
    rates, _ = metered_loads(trace)
    assert planned.shares[1] == pytest.approx(float(np.mean(rates >= EDGE_QPS)), abs=1e-6)
    assert 0.35 < planned.shares[1] < 0.45  # two seconds of five are above
    assert planned.over_s == 10.0


@pytest.mark.parametrize(
    ("load", "planner", "zipf"),
    [("zipf", "optimal", True), (None, "coordinate", True), ("trace", "coordinate", False), (None, "frontier", False)],
)
def test_who_plans_by_zipfs_law_says_so(load: str | None, planner: str, zipf: bool) -> None:
    request = little_request(load=load, ranges=6, max_qps=600.0)
    of_law = sum(range_weights(little_request(load="zipf", ranges=6, max_qps=600.0))[:3])
    assert (made(request, planner).shares[0] == pytest.approx(of_law, abs=1e-5)) == zipf


def plan_for(objective: Objective, over_s: float = 600.0) -> GearPlan:
    plan = two_gear_plan("")
    planned = PlannedLoad(shares=(0.5, 0.5), over_s=over_s)
    operator = msgspec.structs.replace(plan.pipelines["sums"], objective=objective, planned_load=planned)
    return msgspec.structs.replace(plan, pipelines={"sums": operator})


@pytest.mark.parametrize(
    ("objective", "over_s", "minutes"),
    [
        (Objective(accuracy=0.9), 600.0, 10),
        (Objective(accuracy=0.9), 5.0, 1),
        (Objective(accuracy=0.9), 1e7, 1440),
        (Objective(latency_s=0.1), 600.0, 0),
        (Objective(accuracy=0.9, latency_s=0.1), 600.0, 0),
    ],
)
def test_load_is_scaled_where_accuracy_alone_was_asked_for(objective: Objective, over_s: float, minutes: int) -> None:
    assert plan_tables(plan_for(objective, over_s)).pipeline.scale_minutes == minutes


def test_shares_that_are_none_of_all_gears_are_refused() -> None:
    operator = two_gear_plan("").pipelines["sums"]
    with pytest.raises(InvalidInput, match="other than 2 shares"):
        msgspec.structs.replace(operator, planned_load=PlannedLoad(shares=(1.0,), over_s=1.0))
    with pytest.raises(InvalidInput, match=r"add up to 0\.9"):
        PlannedLoad(shares=(0.5, 0.4), over_s=1.0)
