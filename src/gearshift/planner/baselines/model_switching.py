"""One model per load range: Model Switching with our placement, batching and meter (MS+; Ken 5.2, CascadeServe 6.2)."""

from gearshift.gear import GearPlan
from gearshift.planner.baselines.candidates import single_models
from gearshift.planner.baselines.ladder import frontier_by_ladder, plan_by_ladder
from gearshift.planner.cascade_search import CandidateCascade
from gearshift.planner.optimal import plan_with
from gearshift.planner.placement_everywhere import place_everywhere
from gearshift.planner.request import PlanRequest, Progress, silent

NAME = "model-switching"


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """A gear plan of single models; raises `Infeasible` when none meets the objective."""
    models = _placed_models(request)

    def best_within(asked: PlanRequest) -> GearPlan:
        return plan_with(asked, candidates=models, planner=NAME, progress=progress)

    return plan_by_ladder(request, best_within, highest_accuracy=_highest(models))


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """Undominated gear plans of single models, by rising latency."""
    models = _placed_models(request)

    def best_within(asked: PlanRequest) -> GearPlan:
        return plan_with(asked, candidates=models, planner=NAME)

    return frontier_by_ladder(request, best_within, highest_accuracy=_highest(models), progress=progress)


def _placed_models(request: PlanRequest) -> list[CandidateCascade]:
    """As many models as memory holds side by side (CascadeServe 6.2, MS+ iii)."""
    placed = set(place_everywhere(request.profile, request.hardware).models)
    return [candidate for candidate in single_models(request) if placed.issuperset(candidate.cascade.models)]


def _highest(models: list[CandidateCascade]) -> float:
    return max(candidate.accuracy for candidate in models)
