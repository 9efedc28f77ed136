"""The planners of several operators on the same devices, and a run of one in a comparison."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.compare import Predicted, Run, ran, worst_accuracy
from gearshift.planner.planners import named
from gearshift.planner.several.apart import plan_apart
from gearshift.planner.several.one_at_a_time import plan_one_at_a_time
from gearshift.planner.several.plan import plan_several
from gearshift.planner.several.refined import plan_refined
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import Progress, silent

Plan = Callable[..., GearPlan]


def _apart(several: SeveralRequest, *, progress: Progress = silent) -> GearPlan:
    return msgspec.structs.replace(plan_apart(several, progress=progress), planner="apart")


def _one_at_a_time(planner: str, several: SeveralRequest, *, progress: Progress = silent) -> GearPlan:
    return plan_one_at_a_time(several, named(planner), progress=progress)


PLANNERS: dict[str, Plan] = {
    "optimal": plan_several,
    "apart": _apart,
    **{name: partial(_one_at_a_time, name) for name in ("coordinate", "frontier")},
    "refine": plan_refined,
}
"""As `planners.OF_SEVERAL` names them. `coordinate` and `frontier` do not confirm that all keep their objectives."""


def run_planner_of_several(planner: str, request: SeveralRequest) -> Run:
    return ran(planner, request, _planned)


def _planned(planner: str, request: SeveralRequest) -> dict[str, Any]:
    made = PLANNERS[planner](request)
    pipelines = {
        name: Predicted(
            latency_objective_s=one.latency_s,
            share=request.share_of_requests[name],
            predicted=made.predictions[name],
        )
        for name, one in request.requests.items()
    }
    return {"unfinished": made.unfinished, "pipelines": pipelines}


def worst_of_several(request: SeveralRequest) -> float:
    """The mean accuracy over all requests where each operator has its worst model."""
    share = request.share_of_requests
    return sum(share[name] * worst_accuracy(one.profile) for name, one in request.requests.items())
