"""Plans of several operators to compare with one made together: one at a time, and each on devices of its own.

One at a time is Ken's way (section 3): by a planner of one operator, with the others fixed. An operator that
was not planned yet has its cheapest model at all loads. Each is planned once, in the order of the request: what
it takes is not given back for those that follow.
"""

from dataclasses import replace
from itertools import combinations

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.published import coordinate, frontier
from gearshift.planner.search.optimal import PLANNER as OPTIMAL
from gearshift.planner.several.coordinate import Coordination, beside, of_pipeline, together_in_order
from gearshift.planner.several.layouts import layouts_of, with_room
from gearshift.planner.several.plan import finished, require_possible
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.cascade_search import single_models
from gearshift.planner.space.request import PlanRequest


def _apart(so_far: Search[SeveralRequest]) -> GearPlan:
    """Each operator planned alone, on devices of its own: the split with the best mean accuracy.

    The first devices are the first operator's. Raises `Infeasible` where no split is feasible.
    """
    several = so_far.request
    names, devices = list(several.requests), several.hardware.devices
    known: dict[tuple[str, int, int], GearPlan | None] = {}
    why: Infeasible | None = None

    def alone(name: str, begin: int, end: int) -> GearPlan | None:
        nonlocal why
        if (name, begin, end) not in known:
            request = replace(several.requests[name], hardware=Hardware(devices=devices[begin:end]))
            try:
                with of_pipeline(name):
                    known[name, begin, end] = OPTIMAL.plan(request, progress=so_far.report)
            except Infeasible as error:
                why = why or error
                known[name, begin, end] = None
        return known[name, begin, end]

    best: dict[str, GearPlan] | None = None
    for cuts in combinations(range(1, len(devices)), len(names) - 1):
        ends = [0, *cuts, len(devices)]
        plans = {name: alone(name, *ends[i : i + 2]) for i, name in enumerate(names)}
        if all(plan is not None for plan in plans.values()):
            found = {name: plan for name, plan in plans.items() if plan is not None}
            if best is None or _accuracy(several, found) > _accuracy(several, best):
                best = found
    if best is None:
        raise why or Infeasible(
            f"{len(devices)} devices are too few for {len(names)} operators on devices of their own"
        )
    return finished(several, {name: msgspec.structs.replace(p, hardware=several.hardware) for name, p in best.items()})


def _accuracy(several: SeveralRequest, plans: dict[str, GearPlan]) -> float:
    return sum(several.share_of_requests[name] * plan.predictions[name].accuracy for name, plan in plans.items())


PLANNER = Planner(name="apart", best_within=_apart)


def planner_of_each(planner: Planner[PlanRequest]) -> Planner[SeveralRequest]:
    """The planner of several that plans one after another with `planner`."""
    return Planner(name=planner.name, best_within=lambda so_far: _one_at_a_time(so_far, planner))


def _one_at_a_time(so_far: Search[SeveralRequest], planner: Planner[PlanRequest]) -> GearPlan:
    """The plan; raises `Infeasible` for the first operator that finds no plan beside the others."""
    several = so_far.request
    require_possible(several)
    plans = cheapest_of_each(several)
    for name, request in several.requests.items():
        others = {other: plan for other, plan in plans.items() if other != name}
        fixed = SeveralRequest(requests=several.requests, fixed=together_in_order(others))
        asked = replace(request, hardware=with_room(fixed), beside=beside(several, plans, name, kept=others))
        with of_pipeline(name):
            made = planner.plan(asked, progress=so_far.report)
        plans[name] = msgspec.structs.replace(made, hardware=several.hardware)
    return finished(several, plans)


def cheapest_of_each(several: SeveralRequest) -> dict[str, GearPlan]:
    """Each operator with its cheapest model at all loads."""
    cheapest = {name: single_models(request)[:1] for name, request in several.requests.items()}
    layout = layouts_of(several, cheapest, most=1)[0]
    guessed = Coordination(several, layout.placement, Search(several))
    guessed.guess_all(layout.tuples[0])
    return guessed.plans


COORDINATE, FRONTIER = planner_of_each(coordinate.PLANNER), planner_of_each(frontier.PLANNER)
