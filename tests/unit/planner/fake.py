"""A planner that answers at once: one model per plan, with predictions made up from the request."""

import msgspec

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.gear import Gear, GearPlan, LoadRange, alone
from gearshift.planner.contract.planner import Planner
from gearshift.planner.evaluate.assemble import assemble, replica_settings
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest, Progress, silent
from gearshift.result import LatencySummary, ServingResult

LEAST_S = 0.0123451
MOST_ACCURATE = 0.87659
ACCURACIES = (0.7, 0.8, 0.87)

asked: list[PlanRequest] = []


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The middle model; infeasible under `LEAST_S` or over `MOST_ACCURATE`."""
    asked.append(request)
    progress("best so far: accuracy 0.8", 0.5)
    if request.latency_s < LEAST_S or (request.objective.accuracy or 0) > MOST_ACCURATE:
        raise Infeasible(
            "too much is asked",
            load_range="[0, inf)",
            bottleneck="m0",
            nearest_latency_s=LEAST_S,
            nearest_accuracy=MOST_ACCURATE,
        )
    return made(request, 1, latency_s=min(request.latency_s, 0.1))


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """Each model alone, at 10, 20 and 30 ms."""
    asked.append(request)
    return [made(request, k, latency_s=0.01 * (k + 1)) for k in range(len(request.profile.models))]


PLANNER = Planner(
    name="fake",
    best_within=lambda so_far: plan(so_far.request, progress=so_far.report),
    undominated=lambda so_far: frontier(so_far.request, progress=so_far.report),
    certifies=True,
)


def made(request: PlanRequest, k: int, *, latency_s: float) -> GearPlan:
    """The plan of model k alone."""
    placement = place_everywhere(request.profile, request.hardware)
    cascade = Cascade(models=(request.profile.models[k],))
    settings = replica_settings(
        request.profile,
        request.hardware,
        placement,
        cascade,
        shares={r.id: 1 / len(request.hardware.devices) for r in placement.replicas},
        largest_batch_size=4,
    )
    gear = Gear(load_range=LoadRange(from_=0.0), cascades=alone("task", cascade), replicas=settings)
    plan = assemble(request, placement, [gear])
    return msgspec.structs.replace(
        plan,
        planner="fake",
        predictions={request.profile.operator: result(latency_s, ACCURACIES[k], devices=len(plan.hardware.devices))},
    )


def result(latency_s: float, accuracy: float, *, devices: int = 1) -> ServingResult:
    """A result with this p95, whose interval ends 10 % above it."""
    return ServingResult(
        requests=100,
        accuracy=accuracy,
        accuracy_interval=(accuracy - 0.01, accuracy + 0.01),
        latency_s=LatencySummary(mean=latency_s / 2, p50=latency_s / 2, p95=latency_s, p99=2 * latency_s),
        latency_p95_interval_s=(0.9 * latency_s, 1.1 * latency_s),
        share_late=0.01,
        share_refused=0.0,
        goodput_qps=99.0,
        devices=devices,
        utilisation={},
    )
