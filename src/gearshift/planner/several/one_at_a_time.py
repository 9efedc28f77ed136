"""Several operators as Ken plans them (section 3): one at a time, by a planner of one, with the others fixed.

An operator that was not planned yet has its cheapest model at all loads. Each is planned once, in
the order of the request: what it takes is not given back for those that follow.
"""

from dataclasses import replace

import msgspec

from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import Planner
from gearshift.planner.contract.so_far import SoFar
from gearshift.planner.several.coordinate import Coordination, beside, of_pipeline, together_in_order
from gearshift.planner.several.layouts import layouts_of, with_room
from gearshift.planner.several.plan import finished, require_possible
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.cascade_search import single_models
from gearshift.planner.space.request import Progress, silent


def plan_one_at_a_time(several: SeveralRequest, planner: Planner, *, progress: Progress = silent) -> GearPlan:
    """The plan; raises `Infeasible` for the first operator that finds no plan beside the others."""
    require_possible(several)
    plans = cheapest_of_each(several)
    for name, request in several.requests.items():
        others = {other: plan for other, plan in plans.items() if other != name}
        fixed = SeveralRequest(requests=several.requests, fixed=together_in_order(others))
        asked = replace(request, hardware=with_room(fixed), beside=beside(several, plans, name, kept=others))
        with of_pipeline(name):
            made = planner.plan(asked, progress=progress)
        plans[name] = msgspec.structs.replace(made, hardware=several.hardware)
    return msgspec.structs.replace(finished(several, plans), planner=planner.name)


def cheapest_of_each(several: SeveralRequest) -> dict[str, GearPlan]:
    """Each operator with its cheapest model at all loads."""
    cheapest = {name: single_models(request)[:1] for name, request in several.requests.items()}
    layout = layouts_of(several, cheapest, most=1)[0]
    guessed = Coordination(several, layout.placement, SoFar(next(iter(several.requests.values()))))
    guessed.guess_all(layout.tuples[0])
    return guessed.plans
