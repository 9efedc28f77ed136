import dataclasses
from typing import Any

import pytest

from gearshift.errors import Infeasible
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.bottleneck import require_router
from gearshift.planner.space.request import PlanRequest
from tests.unit.planner.little import PROFILE, little_request


def busy(router_s: float, **changed: Any) -> PlanRequest:
    return little_request(profile=dataclasses.replace(PROFILE, router_s=router_s), max_qps=1000.0, **changed)


@pytest.mark.parametrize("name", ["optimal", "single"])
def test_a_router_that_cannot_carry_the_load_is_named_and_no_device(name: str) -> None:
    with pytest.raises(Infeasible) as error:
        planners.plan(name, busy(0.002, least_margin=1.0))
    told = str(error.value)
    assert "the router takes 2000 us of its processor for a request" in told
    assert "it carries up to 500 requests/s, and 1000 are to be planned for; no device helps it" in told
    assert (error.value.device, error.value.bottleneck, error.value.nearest_devices) == ("", "", None)


def test_what_every_range_is_planned_for_counts() -> None:
    require_router(busy(0.0015, least_margin=0.5))
    with pytest.raises(Infeasible, match=r"666\.7 requests/s"):
        require_router(busy(0.0015, least_margin=1.0))
    require_router(busy(0.0))


def test_a_frontier_and_the_fewest_devices_are_refused_alike() -> None:
    with pytest.raises(Infeasible, match="no device helps it"):
        planners.frontier("optimal", busy(0.002, least_margin=1.0))
    both = Objective(latency_s=0.03, accuracy=0.8)
    for name in ("optimal", "single"):
        with pytest.raises(Infeasible, match="no device helps it"):
            planners.fewest(name, busy(0.002, least_margin=1.0, objective=both))
