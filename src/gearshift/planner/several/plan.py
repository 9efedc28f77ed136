"""One plan for several pipelines of one operator each, over one placement.

It maximises the mean accuracy over all requests, within the latency of each pipeline. Placements
and the first division of device time come from tuples (`layouts`); from each, every pipeline is
planned in turn while the others stay as they are (`coordinate`). So it is from pipelines on devices
of their own, and the best of all is the plan.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import msgspec

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.evaluate.beyond import recorded
from gearshift.planner.evaluate.bottleneck import require_accuracy, require_latency, require_router
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.published import coordinate, frontier
from gearshift.planner.search.optimal import PLANNER as OPTIMAL
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.search.search_space import SearchSpace
from gearshift.planner.several.coordinate import Coordination, beside, of_pipeline, together_in_order
from gearshift.planner.several.layouts import Layout, OperatorTuple, layouts_of, with_room
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.cascade_search import single_models
from gearshift.planner.space.request import PlanRequest, least_margin, silent
from gearshift.profiles.profile import PART_B

LAYOUTS = 2
IMPROVED = 1
"""How many drafts are improved and confirmed, the most accurate first."""


def _best_within(so_far: Search[SeveralRequest]) -> GearPlan:
    """Plan all pipelines together, or only those that are not fixed; raises `Infeasible`."""
    several = so_far.request
    require_possible(several)
    best: Coordination | None = None

    def found_so_far() -> GearPlan | None:
        return None if best is None or best.accuracy < 0 else _kept(several, best)

    so_far.otherwise = found_so_far
    try:
        best = _divided(several, so_far)
        if best is not None:
            best.improve()
        for found in _drafted(several, so_far):
            best = best or found
            found.improve()
            best = max(best, found, key=lambda one: one.accuracy)
    except Infeasible:
        if best is None or best.accuracy < 0:
            raise
    assert best is not None
    made = _kept(several, best)
    so_far.report("planned", 1.0)
    return made


PLANNER = Planner(name="optimal", best_within=_best_within)


def _kept(several: SeveralRequest, found: Coordination) -> GearPlan:
    made = finished(several, found.plans)
    require_accuracies(several, made)
    return msgspec.structs.replace(made, unfinished=False)


def _divided(several: SeveralRequest, so_far: Search[SeveralRequest]) -> Coordination | None:
    """Each pipeline on devices of its own; None where that is not possible."""
    if several.fixed is not None or len(several.hardware.devices) < len(several.requests):
        return None
    try:
        plans = plans_on_own_devices(several, so_far)
    except (Infeasible, InvalidInput):  # also where its models fit none of its devices
        return None
    found = Coordination(several, together_in_order(plans).placement, so_far)
    return found if found.begin_with(plans) else None


def _drafted(several: SeveralRequest, so_far: Search[SeveralRequest]) -> list[Coordination]:
    """The best of all drafts; raises `Infeasible` where there is none."""
    drafts: list[tuple[float, Coordination]] = []
    why: Infeasible | None = None
    for layout, start in _starts(several, so_far):
        found = Coordination(several, layout.placement, so_far)
        try:
            drafts.append((found.draft(start), found))
        except Infeasible as error:
            why = why or error
    if not drafts:
        raise why or Infeasible("the devices hold no models of all operators")
    return [found for _, found in sorted(drafts, key=lambda pair: -pair[0])][:IMPROVED]


def _starts(several: SeveralRequest, so_far: Search[SeveralRequest]) -> Iterator[tuple[Layout, OperatorTuple]]:
    candidates = {}
    for name in several.free:
        space = SearchSpace(so_far.tell, so_far.check)
        with of_pipeline(name):
            request = several.requests[name]
            candidates[name] = space.candidates(request, space.fitting(request))
    for layout in layouts_of(several, candidates, most=LAYOUTS):
        for start in layout.tuples:
            yield layout, start


def require_possible(several: SeveralRequest) -> None:
    for name in several.free:
        with of_pipeline(name):
            request = several.requests[name]
            require_router(request)
            require_latency(request)
            require_accuracy(request)
    router_share = sum(
        request.profile.router_s * least_margin(request) * several.busy_qps[name]
        for name, request in several.requests.items()
    )
    if router_share >= 1:
        raise Infeasible(
            f"the router would be busy {100 * router_share:.0f} % of the time with the loads of all pipelines together;"
            " no device helps it",
            by_load=False,
        )


def finished(several: SeveralRequest, plans: Mapping[str, GearPlan]) -> GearPlan:
    """One plan, with what was asked of each pipeline, and its predictions among the others."""
    made: dict[str, GearPlan] = {}
    for name, plan in plans.items():
        among = beside(several, plans, name, kept=plans.keys())
        request = replace(several.requests[name], beside=among)
        if name in several.free:
            (plan,) = recorded([plan], request)
        result = replay(plan, request, part=PART_B).result
        made[name] = msgspec.structs.replace(plan, predictions={name: result})
    return together_in_order(made)


def require_accuracies(several: SeveralRequest, made: GearPlan) -> None:
    for name in several.free:
        wanted, reached = several.requests[name].objective.accuracy, made.predictions[name].accuracy
        if wanted is not None and reached < wanted:
            raise Infeasible(
                f"pipeline {name!r}: within the latencies of all, the best accuracy that was found is {reached:.4f},"
                f" not {wanted:.4g}",
                nearest_accuracy=int(reached * 1e4) / 1e4,
                by_load=False,
            )


# Devices divided among pipelines, by their work, and each planned alone on its own.


def plans_on_own_devices(several: SeveralRequest, so_far: Search[SeveralRequest]) -> dict[str, GearPlan]:
    """A plan of each pipeline, each on other devices; raises `Infeasible` for the first without one."""
    plans = {}
    for name, hardware in _hardware_of_each(several):
        part = so_far.part(replace(several.requests[name], hardware=hardware), silent)
        so_far.tell(f"planning {name} on devices of its own", 0.05)
        with of_pipeline(name):
            made = PlanSearch(part).most_accurate(part.request)
        plans[name] = msgspec.structs.replace(made, hardware=several.hardware)
    return plans


def _hardware_of_each(several: SeveralRequest) -> Iterator[tuple[str, Hardware]]:
    begin = 0
    for name, count in shares(_work(several), len(several.hardware.devices)).items():
        yield name, Hardware(devices=several.hardware.devices[begin : begin + count])
        begin += count


def _work(several: SeveralRequest) -> dict[str, float]:
    """The device time per second that each pipeline would take with its slowest model, one sample at a time."""
    return {
        name: several.busy_qps[name] * max(curve.seconds(1) for curve in request.profile.whole_curves)
        for name, request in several.requests.items()
    }


def shares(work: Mapping[str, float], devices: int) -> dict[str, int]:
    """At least one device for each, and each further one where most work is left per device."""
    counts = dict.fromkeys(work, 1)
    for _ in range(devices - len(work)):
        counts[max(work, key=lambda name: work[name] / counts[name])] += 1
    return counts


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


APART = Planner(name="apart", best_within=_apart)


# Several operators as Ken plans them (section 3): one at a time, by a planner of one, with the others fixed.
#
# An operator that was not planned yet has its cheapest model at all loads. Each is planned once, in
# the order of the request: what it takes is not given back for those that follow.


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
