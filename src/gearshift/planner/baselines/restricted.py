"""Baselines that are our planner with less to choose from: one model per load range, or placements by rule.

`model-switching` is Model Switching with our placement, batching and meter: MS+ in Ken 5.2 and
CascadeServe 6.2. `placement-heuristic` has all models on every device, or each on its own devices (Ken 5.7).
"""

from collections.abc import Sequence
from functools import partial

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.contract import ladder
from gearshift.planner.contract.planner import SoFar, offer
from gearshift.planner.search.optimal import restricted
from gearshift.planner.space.cascade_search import CandidateCascade, cascade_front, single_models
from gearshift.planner.space.hosts import hosts_of, place_everywhere
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile


def _switching(so_far: SoFar) -> ladder.OfCascades:
    models = _placed_models(so_far.request)
    most_accurate = max(models, key=lambda candidate: candidate.accuracy)
    return ladder.OfCascades(so_far.request, partial(_best_of_models, models=models), most_accurate)


def _best_of_models(so_far: SoFar, models: Sequence[CandidateCascade]) -> GearPlan:
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


MODEL_SWITCHING = ladder.planner("model-switching", _switching, single_models=True)


HIGHEST_UTILISATION = 0.9
MOST_PLANNED = 3
"""How many exclusive placements that meet the objective are planned; the most accurate plan is
taken."""


def _by_rule(so_far: SoFar) -> ladder.OfCascades:
    request, front = so_far.request, cascade_front(so_far.request)
    return ladder.OfCascades(
        request, partial(_best_of_placements, placements=placements_by_rule(request, front)), front[-1]
    )


def placements_by_rule(request: PlanRequest, front: Sequence[CandidateCascade]) -> list[Placement]:
    """All models on every device if they fit; else exclusive placements by falling accuracy.

    Only cascades whose own placement carries the top of the load ranges count; when none does, the
    one that carries the highest load.
    """
    profile, hardware = request.profile, request.hardware
    hosts = hosts_of(profile, hardware)
    if all(len(host.seconds) == len(profile.models) and host.over_bytes(host.seconds) <= 0 for host in hosts):
        return [place_everywhere(profile, hardware)]
    top_qps = float(request.upper_ends()[-1])
    placed = [exclusive_placement(profile, hardware, candidate) for candidate in reversed(front)]
    carried = [(placement, qps) for placement, qps in placed if HIGHEST_UTILISATION * qps >= top_qps]
    return list(dict.fromkeys(p for p, _ in carried or [max(placed, key=lambda both: both[1])]))


def exclusive_placement(profile: Profile, hardware: Hardware, candidate: CandidateCascade) -> tuple[Placement, float]:
    """Each model of the cascade on its own devices, and the requests/s that this placement carries.

    Hosts (a device, or as many as the model spans) go one by one to the model that carries the
    fewest requests so far.
    """
    reach = dict(zip(candidate.cascade.models, candidate.reach, strict=True))
    carried_qps = dict.fromkeys(reach, 0.0)
    idle = {m: [h for h in reversed(hosts_of(profile, hardware, models=(m,))) if h.seconds] for m in reach}
    taken: set[str] = set()
    replicas: list[Replica] = []
    while True:
        for hosts in idle.values():
            while hosts and not taken.isdisjoint(hosts[-1].device_ids):
                hosts.pop()
        first = {model: hosts[-1] for model, hosts in idle.items() if hosts}
        if not first:
            break
        model = min(first, key=lambda m: (carried_qps[m], -first[m].needs_bytes[m] * len(first[m].device_ids), m))
        taken.update(first[model].device_ids)
        carried_qps[model] += 1 / (first[model].seconds[model] * max(reach[model], 1e-9))
        replicas += first[model].replicas[model]
    return Placement(replicas=tuple(replicas)), min(carried_qps.values())


def _best_of_placements(so_far: SoFar, placements: Sequence[Placement]) -> GearPlan:
    planned, refused = 0, []
    for placement in placements:
        planner = restricted(placement=placement)
        try:
            made = planner.plan(so_far.remaining(so_far.request), progress=so_far.tell)
        except Infeasible as error:
            so_far.check()
            refused.append(error)
            continue
        offer(so_far, made)
        planned += 1
        if planned == MOST_PLANNED:
            break
    if not planned:
        raise min(refused, key=lambda error: error.nearest_latency_s or float("inf"))
    return so_far.best()


PLACEMENT_HEURISTIC = ladder.planner("placement-heuristic", _by_rule)
