"""The fewest identical devices with which a planner meets a latency and an accuracy.

CascadeServe 6.3, Figure 7.
"""

import dataclasses
import math

import msgspec

from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.ladder import for_accuracy, within
from gearshift.planner.contract.median import within_median
from gearshift.planner.contract.planner import Planner
from gearshift.planner.contract.so_far import SoFar
from gearshift.planner.evaluate.bottleneck import busiest_device
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.space.bisection import first_found
from gearshift.planner.space.cascade_search import most_accurate_model
from gearshift.planner.space.request import PlanRequest, Progress, load_ranges, silent
from gearshift.planner.space.ways import narrowest_ways
from gearshift.profiles.profile import PART_A
from gearshift.support.numbers import plain

MOST_DEVICES = 64


def fewest_devices(
    planner: Planner, request: PlanRequest, *, most: int = MOST_DEVICES, progress: Progress = silent
) -> GearPlan:
    """The plan on the fewest devices like the request's first; raises `Infeasible` beyond `most`.

    A planner meets both objectives with n devices when its plan for the latency has the accuracy
    on part A. n starts at the fewest that any model spans and is doubled until it does, then
    bisected: with one device fewer the planner was tried, and failed.
    """
    require(most >= 1, f"at most {most} devices asked for", remedy="allow at least one")
    return SoFar(request, progress).run(lambda so_far: _fewest(planner, so_far, most))


def _fewest(planner: Planner, so_far: SoFar, most: int) -> GearPlan:
    request, best, refused = so_far.request, 0.0, None
    latency_s, accuracy = request.latency_s, request.objective.accuracy or 0.0

    def met(count: int) -> GearPlan | None:
        nonlocal best, refused
        so_far.check()
        so_far.tell(f"planning for {count} device{'s' * (count > 1)}", min(0.99, count / most))
        asked = within(dataclasses.replace(request, hardware=devices_like(request.hardware, count)), latency_s)
        try:
            made = for_accuracy(within_median(lambda each: planner.plan(so_far.remaining(each)), asked), accuracy)
        except Infeasible as error:
            so_far.check()
            refused = error
            return None
        if made.unfinished:
            so_far.end_with(made)
        found = replay(made, asked, part=PART_A, seeds=1, on_time=so_far.check).result.accuracy
        if found > best or found >= accuracy:
            best = max(best, found)
            so_far.keep(made, found)
        return made if found >= accuracy else None

    narrowest = narrowest_ways(request.profile, request.hardware.devices[0]).values()
    first = min(most, min((way.tensor_parallel for way in narrowest), default=1))
    if (found := first_found(met, first=first, last=most)) is None:
        reason = f"its best accuracy is {best:.4f}" if best else "it has no plan within the latency"
        raise Infeasible(
            f"planner {planner.name!r} does not reach an accuracy of {accuracy:.4g} within "
            f"{plain(latency_s * 1e3)} ms on {most} device{'s' * (most > 1)}: {reason}",
            load_range=refused.load_range if refused else str(load_ranges(request.upper_ends())[-1]),
            bottleneck=refused.bottleneck if refused else most_accurate_model(request.profile),
            device=refused.device if refused else busiest_device(request, most_accurate_model(request.profile)),
            nearest_latency_s=refused.nearest_latency_s if refused and not best else None,
            nearest_accuracy=math.floor(best * 1e4) / 1e4 if best else None,
        )
    so_far.tell("planned", 1.0)
    return found


def devices_like(hardware: Hardware, count: int) -> Hardware:
    first = hardware.devices[0]
    return Hardware(devices=tuple(msgspec.structs.replace(first, id=f"{first.kind}-{i}") for i in range(count)))
