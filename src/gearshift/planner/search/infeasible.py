"""Explain why no plan holds on a placement: range, model, and nearest feasible objective."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import Infeasible
from gearshift.gear import LoadRange
from gearshift.hardware import identical_devices
from gearshift.planner.contract.planner import OutOfTime
from gearshift.planner.evaluate.assemble import rounded_up_s
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.hosts import narrowest_ways, place_everywhere
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile
from gearshift.support.numbers import plain

DEVICES_TRIED = (1.0, 1.1, 1.25, 1.5, 2.0)
SLACK = 1.05
"""The latency offered is this multiple of the latency that was simulated."""
MOST_OFFERED = 1024
"""The most devices that an offer may have."""


def nothing_holds(
    request: PlanRequest,
    steady: SteadyState,
    candidates: Sequence[CandidateCascade],
    upper_ends: NDArray[np.float64],
    *,
    replayed_s: Callable[[], float] | None = None,
) -> Infeasible:
    """The error with its reason; with `replayed_s` also the latency or devices that are needed.

    These are for the cheapest of `candidates`, which come by rising work. `replayed_s` gives its
    latency on the trace, and may raise `OutOfTime`; then the error has none.
    """
    cheapest, top = candidates[0], float(upper_ends[-1])
    _, cell = steady.best(cheapest.cascade, top)
    last = LoadRange(from_=float(upper_ends[-2]) if len(upper_ends) > 1 else 0.0)
    bottleneck = max(cheapest.cascade.models, key=lambda m: work_share(cheapest, request.profile, m))
    device = steady.busiest_device(cheapest.cascade, bottleneck)
    devices = len(request.hardware.devices)
    if not cell.stable:
        needed = max(math.ceil(cheapest.work_s * top / 0.9), devices + 1)
        return Infeasible(
            f"{devices} device{'s' * (devices > 1)} cannot carry {plain(top)} requests/s with the cheapest cascade, "
            f"about {needed} could",
            load_range=str(last),
            bottleneck=bottleneck,
            device=device,
            nearest_devices=None if replayed_s is None else enough_devices(request, cheapest, top, needed),
        )
    nearest_s = None
    if replayed_s is not None:
        with suppress(OutOfTime):
            nearest_s = rounded_up_s(SLACK * max(cell.latency_s, request.latency_s, replayed_s()))
    return Infeasible(
        f"no cascade keeps {request.objective.percentile:.4g} of requests within "
        f"{plain(request.latency_s * 1e3)} ms on {devices} device{'s' * (devices > 1)}",
        load_range=str(last),
        bottleneck=bottleneck,
        device=device,
        nearest_latency_s=nearest_s,
    )


def work_share(candidate: CandidateCascade, profile: Profile, model: str) -> float:
    """Seconds per request that a cascade spends in one of its models, at batch 1."""
    curve = next(c for c in profile.whole_curves if c.model == model)
    return candidate.reach[candidate.cascade.models.index(model)] * curve.seconds(curve.batch_sizes[0])


def enough_devices(request: PlanRequest, candidate: CandidateCascade, load_qps: float, needed: int) -> int | None:
    """How many devices, like the first that suits, hold the cascade at a load; None if too many."""
    models = set(candidate.cascade.models)
    first = next((d for d in request.hardware.devices if models <= narrowest_ways(request.profile, d).keys()), None)
    if first is None:
        return None
    for factor in DEVICES_TRIED:
        count = math.ceil(factor * needed)
        if count > MOST_OFFERED:
            break
        hardware = identical_devices(count, kind=first.kind, cores=first.cores, memory_bytes=first.memory_bytes)
        placement = place_everywhere(request.profile, hardware, models=candidate.cascade.models)
        if set(placement.models) == models and SteadyState(
            request.profile, hardware, placement, request.objective, seed=request.seed
        ).holds(candidate.cascade, load_qps):
            return count
    return None
