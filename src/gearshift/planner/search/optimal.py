"""Our planner, the default: exact assignment on simulated tables, and every plan confirmed.

- a latency objective: the most accurate plan that keeps it (`slo_search`), on the best placements;
- an accuracy objective: the plan with the lowest latency that keeps it, by bisection;
- both: the fewest devices (the lowest price per hour) on which both are kept;
- `frontier`: plans for latency objectives from the fastest model's run time up.

One cascade at all loads, single models, and the plan for one device less are candidates for every
plan, so none of them is more accurate. `docs/planners/optimal.md` gives the reasons.
"""

import dataclasses
from collections.abc import Sequence

import msgspec

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan
from gearshift.placement import Placement
from gearshift.planner.contract.planner import Planner, SoFar, all_so_far
from gearshift.planner.evaluate.assemble import DEFAULT_ALPHA
from gearshift.planner.evaluate.confirm import with_predictions
from gearshift.planner.search.accuracy_objective import AccuracyObjective
from gearshift.planner.search.choices import Choice, PlanMaker
from gearshift.planner.search.optimal_frontier import frontier_plans, with_better_where_unvisited
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.search.search_space import evaluated
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest


def restricted(
    *, candidates: Sequence[CandidateCascade] | None = None, placement: Placement | None = None
) -> Planner[PlanRequest]:
    """The planner among `candidates` (by rising work) and on `placement`, where given."""

    def searched(so_far: SoFar) -> PlanSearch:
        return PlanSearch(so_far, candidates=candidates, placement=placement)

    return Planner(
        name="optimal",
        best_within=lambda so_far: _best_within(searched(so_far)),
        undominated=lambda so_far: _undominated(searched(so_far)),
        certifies=True,
        counts_devices=True,
        any_within=lambda so_far: searched(so_far).cheapest(),
    )


PLANNER = restricted()


def _best_within(search: PlanSearch) -> GearPlan:
    objective = search.request.objective
    if objective.latency_s is None:
        made = AccuracyObjective(search).fastest()
    elif objective.accuracy is None:
        made = search.better_where_unvisited(search.most_accurate(search.request), search.request)
    else:
        made = AccuracyObjective(search).fewest()
    search.report("planned", 1.0)
    return made


def _undominated(search: PlanSearch) -> list[GearPlan]:
    found = all_so_far(frontier_plans(search))
    name = search.request.profile.operator
    results = [made.predictions[name] for made in found]
    points = [
        (made.pipelines[name].objective.latency_s or 0.0, r.accuracy) for made, r in zip(found, results, strict=True)
    ]
    front = [found[i] for i in undominated(points)]
    return with_better_where_unvisited(search, front, confirmed=len(found))


def single_model_plan(request: PlanRequest, model: str) -> GearPlan:
    """The baseline of one model at all loads with the best batch size, whatever the objective."""
    candidate = evaluated(request, Cascade(models=(model,)))
    search = PlanSearch(SoFar(dataclasses.replace(request, ranges=1)), candidates=[candidate])
    choice = Choice((0,), margin=1.0, alpha=DEFAULT_ALPHA, accuracy=candidate.accuracy)
    steady, ends = search.space.searches(search.request)[0].steady, search.request.upper_ends()
    made = PlanMaker(search.request, steady, [candidate], ends, ends).plan_of(choice)
    return with_predictions(msgspec.structs.replace(made, planner="single"), request)
