"""The devices that the largest model alone would need for a plan's load: what a cascade saves."""

import dataclasses
import math

import msgspec
from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan, LoadRange
from gearshift.hardware import Hardware
from gearshift.planner.contract.ladder import devices_like
from gearshift.planner.evaluate.assemble import assemble
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.infeasible import MOST_OFFERED
from gearshift.planner.space.bisection import least_that
from gearshift.planner.space.cascade_search import work_per_request_s
from gearshift.planner.space.hosts import narrowest_ways, place_everywhere
from gearshift.planner.space.metered import pieces_of
from gearshift.planner.space.request import RANGES, PlanRequest, least_margin
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.workload import Trace

STEP = 1.3
"""Factor from one number of devices to the next, until one is enough."""


class LargestAlone(msgspec.Struct, frozen=True, kw_only=True):
    """The largest model, its accuracy on part B, and the number of devices that it would need.

    They are `like` the first device that suits it, whose price may not be known. Where `devices`
    is None, `why` is a sentence with the reason.
    """

    model: str
    accuracy: float
    devices: int | None = None
    like: str = ""
    price_per_hour: float | None = None
    why: str = ""


def largest_alone(plan: GearPlan, profile: Profile, trace: Trace) -> LargestAlone:
    """The devices that the largest model alone would need for the plan's objective.

    It takes a few simulations of some thousand requests each. With scope `every-range` the model
    must hold the top of the load ranges in steady state, with the margin of every range; with
    scope `trace` it must hold the trace.
    """
    work_s = work_per_request_s(profile, plan.hardware.devices[0])
    model = max(profile.models, key=lambda m: work_s[m])
    records = profile.predictions
    quality = records.quality[records.rows((model,))[0], records.indices(PART_B)]
    alone = LargestAlone(model=model, accuracy=float(quality.mean()))
    if plan.hardware.pool_cores is not None:
        return msgspec.structs.replace(
            alone, why=f"what {model} alone would need on a host whose cores models share is not known"
        )
    first = next((device for device in plan.hardware.devices if model in narrowest_ways(profile, device)), None)
    if first is None:
        return msgspec.structs.replace(alone, why=f"{model}, the largest model, runs on none of these devices")
    request = _request(plan, profile, trace, Hardware(devices=(first,)))
    curve = narrowest_ways(profile, first)[model]
    if profile.front_end_s + curve.seconds(curve.batch_sizes[0]) > request.latency_s:
        return msgspec.structs.replace(
            alone, why=f"{model} alone is too slow for this latency on any number of devices"
        )
    low = 0
    count = max(curve.tensor_parallel, math.ceil(work_s[model] * float(request.upper_ends()[-1])))
    count = min(count, MOST_OFFERED)
    while not _holds(request, model, count):
        if count >= MOST_OFFERED:
            return msgspec.structs.replace(alone, why=f"{model} alone would need more than {MOST_OFFERED} devices")
        low, count = count, min(MOST_OFFERED, math.ceil(count * STEP))
    devices = least_that(lambda n: _holds(request, model, n), fails=low, at_most=count)
    each = first.price_per_hour
    price = None if each is UNSET else devices * each
    return msgspec.structs.replace(alone, devices=devices, like=first.id, price_per_hour=price)


def _request(plan: GearPlan, profile: Profile, trace: Trace, hardware: Hardware) -> PlanRequest:
    pipeline = plan.pipeline
    asked = pipeline.asked
    return PlanRequest(
        profile=profile,
        trace=trace,
        hardware=hardware,
        objective=msgspec.structs.replace(pipeline.objective, accuracy=None, confidence=None),
        ranges=RANGES if asked is None else asked.ranges,
        max_qps=None if asked is None else asked.max_qps,
        least_margin=None if asked is None else asked.least_margin,
        seed=plan.seed,
    )


def _holds(request: PlanRequest, model: str, count: int) -> bool:
    request = dataclasses.replace(request, hardware=devices_like(request.hardware, count))
    try:
        placement = place_everywhere(request.profile, request.hardware, models=(model,))
    except InvalidInput:  # the model spans more devices
        return False
    cascade, top_qps = Cascade(models=(model,)), float(request.upper_ends()[-1])
    steady = SteadyState(request.profile, request.hardware, placement, request.objective, seed=request.seed)
    if request.objective.scope == "every-range":
        return steady.holds(cascade, least_margin(request) * top_qps)
    size, _ = steady.best(cascade, top_qps)
    gear = steady.gear(LoadRange(from_=0.0), cascade, size)
    pieces = dataclasses.replace(request, trace=pieces_of(request.trace))
    made = assemble(pieces, placement, [gear])
    return replay(made, pieces, part=PART_A, seeds=1).holds(request.objective.percentile)
