"""Plans of a plan's planner for fewer and more devices, and their cost."""

import dataclasses
from collections.abc import Callable, Sequence

import msgspec

from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import Gear, GearPlan, PipelinePlan
from gearshift.hardware import Hardware
from gearshift.objective import Asked
from gearshift.planner import planners
from gearshift.planner.space.request import MOST_CANDIDATES, RANGES, PlanRequest, Progress, silent
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import Profile
from gearshift.result import OtherDevices, ServingResult
from gearshift.workload import Trace

STEPS = 2
"""The numbers of devices fewer, and more, that are planned for."""

INTERRUPTED = "its search was interrupted"


NOT_ASKED = "policy", "chosen_because", "memory_share"
"""Not asked again: other plans are made by the planner that made it, and engines alone share memory."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """The same planner's prediction on another number of devices, or why it has no plan."""

    devices: int
    predicted: ServingResult | None = None
    reason: str = ""


def what_if(
    plan: GearPlan, profile: Profile, trace: Trace, *, steps: int = STEPS, progress: Progress = silent
) -> tuple[OtherDevices, ...]:
    """Plan the same request on up to `steps` devices fewer (without the last) and more (like the last).

    A latency and an accuracy were asked of the fewest devices; on others the most accurate plan for
    the latency is made. An interrupted search ends the others, too, and keeps what was found before.
    """
    require(
        plan.hardware.pool_cores is None,
        "the plan is for a host of cores, not for a number of devices",
        remedy="leave --what-if out, and plan for other --cores",
    )
    request = _for_latency(request_of(plan, profile, trace))
    fewer, more, hardware = list[Hardware](), list[Hardware](), plan.hardware
    while len(fewer) < steps and (less := one_fewer((fewer or [hardware])[-1])) is not None:
        fewer.append(less)
    while len(more) < steps:
        more.append(one_more((more or [hardware])[-1]))
    found = list[OtherDevices]()
    for other in [*reversed(fewer), *more]:
        progress(f"planning for {len(other.devices)} devices", len(found) / (len(fewer) + len(more)))
        found.append(_on(other, plan.planner, request))
        if found[-1].reason == INTERRUPTED:
            break
    return tuple(found)


def neighbours(plan: GearPlan, profile: Profile, trace: Trace, *, progress: Progress = silent) -> tuple[Neighbour, ...]:
    """Plan the same request on one device fewer (without the last) and one more (like the last).

    For a latency and an accuracy (fewest devices), one device more is planned for the latency
    alone.
    """
    request, found = request_of(plan, profile, trace), list[Neighbour]()
    for asked, hardware in ((request, one_fewer(plan.hardware)), (_for_latency(request), one_more(plan.hardware))):
        if hardware is not None:
            progress(f"planning for {len(hardware.devices)} devices", 0.3 if not found else 0.65)
            other = _on(hardware, plan.planner, asked)
            found.append(Neighbour(devices=other.devices, predicted=other.predicted, reason=other.reason))
    return tuple(found)


def _on(hardware: Hardware, planner: str, request: PlanRequest) -> OtherDevices:
    other = OtherDevices(devices=len(hardware.devices), price_per_hour=price_per_hour(hardware))
    asked = dataclasses.replace(request, hardware=hardware)
    return found_for(other, lambda: planners.plan(planner, asked), request.budget_s)


def found_for(other: OtherDevices, find: Callable[[], GearPlan], budget_s: float | None) -> OtherDevices:
    """With the prediction of the plan that is found, or why there is none.

    A search with a budget that ends early may have spent that; one without was ended by hand.
    """
    try:
        made = find()
    except (Infeasible, InvalidInput) as error:
        return msgspec.structs.replace(other, reason=str(error))
    if made.unfinished and budget_s is None:
        return msgspec.structs.replace(other, reason=INTERRUPTED)
    return msgspec.structs.replace(other, predicted=made.predictions[made.name])


def _for_latency(request: PlanRequest) -> PlanRequest:
    return request if request.objective.latency_s is None else request.within(request.latency_s)


def request_of(plan: GearPlan, profile: Profile, trace: Trace) -> PlanRequest:
    """The request that the plan answers, as far as the plan tells."""
    asked = plan.pipeline.asked or _as_made(plan.pipeline)
    return PlanRequest(
        profile=profile,
        trace=trace,
        hardware=plan.hardware,
        seed=plan.seed,
        **{name: getattr(asked, name) for name in asked.__struct_fields__ if name not in NOT_ASKED},
    )


def _as_made(pipeline: PipelinePlan) -> Asked:
    ranges, max_qps = asked_for(pipeline.gears)
    return Asked(objective=pipeline.objective, ranges=ranges, most_candidates=MOST_CANDIDATES, max_qps=max_qps)


def one_fewer(hardware: Hardware) -> Hardware | None:
    return Hardware(devices=hardware.devices[:-1]) if len(hardware.devices) > 1 else None


def one_more(hardware: Hardware) -> Hardware:
    last, ids = hardware.devices[-1], {device.id for device in hardware.devices}
    new = next(name for i in range(len(ids) + 1) if (name := f"{last.kind}-{len(ids) + i}") not in ids)
    return Hardware(devices=(*hardware.devices, msgspec.structs.replace(last, id=new)))


def asked_for(gears: Sequence[Gear]) -> tuple[int, float | None]:
    """How many load ranges were asked for, and up to which load; None for a single range.

    Ranges from that load on are planned for that load. In a plan of one cascade at all loads no
    range ends before it.
    """
    ends = [gear.load_range.to for gear in gears[:-1]]
    last = gears[-1].predicted
    if last is not None and last.load_qps <= gears[-1].load_range.from_:
        return sum(end is not None and end <= last.load_qps for end in ends) or RANGES, last.load_qps
    return len(gears), None if not ends or ends[0] is None else ends[0] * len(gears)
