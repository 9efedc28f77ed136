"""Several operators as Ken plans them (section 3): one at a time, by a planner of one, with the others fixed.

An operator that was not planned yet has its cheapest model at all loads. Each is planned once, in
the order of the request: what it takes is not given back for those that follow.
"""

from dataclasses import replace

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import Planner
from gearshift.planner.contract.so_far import Search
from gearshift.planner.published import coordinate, frontier
from gearshift.planner.several.coordinate import Coordination, beside, of_pipeline, together_in_order
from gearshift.planner.several.layouts import layouts_of, with_room
from gearshift.planner.several.plan import finished, require_possible
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.cascade_search import single_models
from gearshift.planner.space.request import PlanRequest


def planner_of_each(planner: Planner[PlanRequest]) -> Planner[SeveralRequest]:
    """The planner of several that plans one after another with `planner`."""
    return Planner(name=planner.name, best_within=lambda so_far: _best_within(so_far, planner))


def _best_within(so_far: Search[SeveralRequest], planner: Planner[PlanRequest]) -> GearPlan:
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
