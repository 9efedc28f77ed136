"""Plans of a plan's planner for fewer and more devices, and their cost."""

import dataclasses

import msgspec

from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner import planners
from gearshift.planner.explain import one_fewer, one_more, request_of
from gearshift.planner.space.request import PlanRequest, Progress, silent
from gearshift.plans.prices import price_per_hour
from gearshift.profiles.profile import Profile
from gearshift.result import OtherDevices
from gearshift.workload import Trace

STEPS = 2
"""The numbers of devices fewer, and more, that are planned for."""

INTERRUPTED = "its search was interrupted"


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
    request = request_of(plan, profile, trace)
    if request.objective.latency_s is not None:
        for_latency = msgspec.structs.replace(request.objective, accuracy=None, confidence=None)
        request = dataclasses.replace(request, objective=for_latency)
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


def was_interrupted(made: GearPlan, budget_s: float | None) -> bool:
    """Whether a search was ended by hand: one with a budget may have ended because that was spent."""
    return made.unfinished and budget_s is None


def _on(hardware: Hardware, planner: str, request: PlanRequest) -> OtherDevices:
    other = OtherDevices(devices=len(hardware.devices), price_per_hour=price_per_hour(hardware))
    try:
        made = planners.plan(planner, dataclasses.replace(request, hardware=hardware))
    except (Infeasible, InvalidInput) as error:
        return msgspec.structs.replace(other, reason=str(error))
    if was_interrupted(made, request.budget_s):
        return msgspec.structs.replace(other, reason=INTERRUPTED)
    return msgspec.structs.replace(other, predicted=made.predictions[request.profile.operator])
