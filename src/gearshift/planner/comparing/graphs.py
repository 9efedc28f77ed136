"""The planners of one pipeline of several nodes, and a run of one in a comparison."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.planner.baselines.greedy_steps import plan_greedily
from gearshift.planner.baselines.nodes_apart import plan_apart
from gearshift.planner.compare import Run, ran
from gearshift.planner.joint.candidates import Tuples, query_of, tuples_of, work_of_all
from gearshift.planner.joint.off_front import OffFront
from gearshift.planner.joint.replanning.search import plan_pipeline
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.space.request import Progress, silent
from gearshift.profiles.profile import PART_B, Profile


def plan_jointly(request: PipelineRequest, *, progress: Progress = silent) -> GearPlan:
    tuples = tuples_of(request)
    front = tuples.candidates(tuples.front().chosen)
    placed = {model for candidate in front for model in candidate.models}
    return plan_pipeline(request, front, off_front=OffFront(tuples.of_models(placed)), progress=progress)


PLANNERS: dict[str, Callable[..., GearPlan]] = {
    "joint": plan_jointly,
    "greedy": plan_greedily,
    "apart": plan_apart,
}
"""As `planners.OF_GRAPHS` names them. Only `apart` may miss the objective."""


def run_graph_planner(planner: str, request: PipelineRequest) -> Run:
    return ran(planner, request, _planned)


def _planned(planner: str, request: PipelineRequest) -> dict[str, Any]:
    made = PLANNERS[planner](request)
    return {"unfinished": made.unfinished, "predicted": made.predictions[request.name]}


def worst_composed(request: PipelineRequest) -> float:
    """The accuracy on part B where each node has its operator's worst model."""
    query = query_of(request, request.profiles, request.records, part=PART_B)
    worst = {node: [_worst(request.profiles[query.operators[node]])] for node in query.places}
    _, accuracy = Tuples(query, worst, work_of_all(request.profiles)).judged(np.zeros((1, len(worst)), dtype=np.int64))
    return float(accuracy[0])


def _worst(profile: Profile) -> Cascade:
    records = profile.predictions
    accuracies = records.quality[:, records.indices(PART_B)].mean(axis=1)
    return Cascade(models=(records.models[int(accuracies.argmin())],))
