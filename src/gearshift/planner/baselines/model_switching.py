"""One model per load range: Model Switching with our placement, batching and meter.

MS+ in Ken 5.2 and CascadeServe 6.2.
"""

from collections.abc import Sequence
from functools import partial

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.contract import ladder
from gearshift.planner.contract.planner import SoFar, offer
from gearshift.planner.search.optimal import restricted
from gearshift.planner.space.cascade_search import CandidateCascade, single_models
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest


def _prepare(so_far: SoFar) -> ladder.OfCascades:
    models = _placed_models(so_far.request)
    most_accurate = max(models, key=lambda candidate: candidate.accuracy)
    return ladder.OfCascades(so_far.request, partial(_best_within, models=models), most_accurate)


def _best_within(so_far: SoFar, models: Sequence[CandidateCascade]) -> GearPlan:
    """The best plan with all models, without the cheapest, without the two cheapest, and so on.

    The last gear always gets the cheapest model of its plan. Without models cheaper than one that
    carries every load, that model need never step down: one model at all loads is a plan, too.
    """
    for cheapest in range(len(models)):
        planner = restricted(candidates=models[cheapest:])
        try:
            made = planner.plan(so_far.remaining(so_far.request), progress=so_far.tell)
        except Infeasible:
            so_far.check()
            if so_far.plan is None:
                raise
            break
        offer(so_far, made)
    return so_far.best()


def _placed_models(request: PlanRequest) -> list[CandidateCascade]:
    """The models that fit in memory together (CascadeServe 6.2, MS+ iii)."""
    placed = set(place_everywhere(request.profile, request.hardware).models)
    return [candidate for candidate in single_models(request) if placed.issuperset(candidate.cascade.models)]


PLANNER = ladder.planner("model-switching", _prepare, single_models=True)
