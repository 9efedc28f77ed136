"""A plan to compare with one made together: each operator on devices of its own."""

from dataclasses import replace
from itertools import combinations

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.planner import Planner
from gearshift.planner.contract.so_far import Search
from gearshift.planner.search.optimal import PLANNER as OPTIMAL
from gearshift.planner.several.coordinate import of_pipeline
from gearshift.planner.several.plan import finished
from gearshift.planner.several.request import SeveralRequest


def _best_within(so_far: Search[SeveralRequest]) -> GearPlan:
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


PLANNER = Planner(name="apart", best_within=_best_within)
