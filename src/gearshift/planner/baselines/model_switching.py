"""One model per load range: Model Switching with our placement, batching and meter.

MS+ in Ken 5.2 and CascadeServe 6.2.
"""

from collections.abc import Sequence

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.contract.ladder import frontier_by_ladder, plan_by_ladder
from gearshift.planner.contract.so_far import SoFar
from gearshift.planner.search.optimal import plan_with
from gearshift.planner.space.candidates import single_models
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.placement_everywhere import place_everywhere
from gearshift.planner.space.request import PlanRequest, Progress, silent

NAME = "model-switching"


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    models = _placed_models(request)
    return plan_by_ladder(
        request,
        lambda asked, tell: _best_within(asked, models, tell),
        highest_accuracy=_most_accurate(models).accuracy,
        progress=progress,
    )


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    models = _placed_models(request)
    return frontier_by_ladder(
        request,
        lambda asked, tell: _best_within(asked, models, tell),
        most_accurate=_most_accurate(models),
        progress=progress,
    )


def _best_within(request: PlanRequest, models: Sequence[CandidateCascade], progress: Progress) -> GearPlan:
    """The best plan with all models, without the cheapest, without the two cheapest, and so on.

    The last gear always gets the cheapest model of its plan. Without models cheaper than one that
    carries every load, that model need never step down: one model at all loads is a plan, too.
    """
    so_far = SoFar(request, progress)

    def search() -> GearPlan:
        for cheapest in range(len(models)):
            asked = so_far.remaining(request)
            try:
                made = plan_with(asked, candidates=models[cheapest:], planner=NAME, progress=so_far.tell)
            except Infeasible:
                so_far.check()
                if so_far.plan is None:
                    raise
                break
            so_far.offer(made)
        return so_far.best()

    return so_far.run(search)


def _placed_models(request: PlanRequest) -> list[CandidateCascade]:
    """The models that fit in memory together (CascadeServe 6.2, MS+ iii)."""
    placed = set(place_everywhere(request.profile, request.hardware).models)
    return [candidate for candidate in single_models(request) if placed.issuperset(candidate.cascade.models)]


def _most_accurate(models: Sequence[CandidateCascade]) -> CandidateCascade:
    return max(models, key=lambda candidate: candidate.accuracy)
