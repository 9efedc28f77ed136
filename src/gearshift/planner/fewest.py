"""The fewest identical devices with which a planner meets a latency and an accuracy.

CascadeServe 6.3, Figure 7.
"""

import dataclasses
import math
from typing import Any, TypeVar

import msgspec

from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.ladder import for_accuracy
from gearshift.planner.contract.median import within_median
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.space.bisection import first_found
from gearshift.planner.space.hosts import narrowest_ways
from gearshift.planner.space.request import OfLatency, PlanRequest, Progress, Request, silent
from gearshift.profiles.profile import PART_A
from gearshift.support.numbers import plain

MOST_DEVICES = 64

R = TypeVar("R", bound=OfLatency)


def fewest_devices(
    planner: Planner[R], request: R, *, most: int = MOST_DEVICES, progress: Progress = silent
) -> GearPlan:
    """The plan on the fewest devices like the request's first; raises `Infeasible` beyond `most`.

    A planner meets both objectives with n devices when its plan for the latency has the accuracy, on
    rows by a replay of part A. n starts at the fewest that any model spans and is doubled until it
    does, then bisected: with one device fewer the planner was tried, and failed.
    """
    require(most >= 1, f"at most {most} devices asked for", remedy="allow at least one")
    return planner.finished(Search(request, progress).run(lambda so_far: _fewest(planner, so_far, most)), request)


def _fewest(planner: Planner[R], so_far: Search[R], most: int) -> GearPlan:
    request, best = so_far.request, 0.0
    refused: Infeasible | InvalidInput | None = None
    latency_s, accuracy = request.latency_s, request.objective.accuracy or 0.0

    def plan(asked: Any) -> GearPlan:
        part = so_far.part(asked)
        return planner.plan(part.request, progress=part.report)

    def met(count: int) -> GearPlan | None:
        nonlocal best, refused
        so_far.check()
        so_far.tell(f"planning for {count} device{'s' * (count > 1)}", min(0.99, count / most))
        asked = dataclasses.replace(request, hardware=devices_like(request.hardware, count)).within(latency_s)
        try:
            made = within_median(plan, asked) if isinstance(asked, PlanRequest) else plan(asked)
        except (Infeasible, InvalidInput) as error:
            so_far.check()
            refused = error
            return None
        made = for_accuracy(made, accuracy)
        if made.unfinished:
            so_far.end_with(made)
        found = _accuracy_of(made, asked, so_far)
        if found > best or found >= accuracy:
            best = max(best, found)
            so_far.keep(made, found)
        return made if found >= accuracy else None

    if (made := first_found(met, first=min(most, _least_devices(request)), last=most)) is None:
        if isinstance(refused, InvalidInput):
            raise refused
        raise _beyond(planner, request, most, best, refused)
    so_far.tell("planned", 1.0)
    return made


def _accuracy_of(made: GearPlan, asked: R, so_far: Search[R]) -> float:
    if not isinstance(asked, PlanRequest):
        return made.predictions[made.name].accuracy
    return replay(made, asked, part=PART_A, seeds=1, on_time=so_far.check).result.accuracy


def _least_devices(request: Request) -> int:
    """The fewest devices that any model spans."""
    if not isinstance(request, PlanRequest):
        return 1
    narrowest = narrowest_ways(request.profile, request.hardware.devices[0]).values()
    return min((way.tensor_parallel for way in narrowest), default=1)


def _beyond(planner: Planner[R], request: R, most: int, best: float, refused: Infeasible | None) -> Infeasible:
    accuracy, latency_s = request.objective.accuracy or 0.0, request.latency_s
    reason = f"its best accuracy is {best:.4f}" if best else "it has no plan within the latency"
    if refused is None and isinstance(request, PlanRequest):
        refused = refusal(request, "")
    return Infeasible(
        f"planner {planner.name!r} does not reach an accuracy of {accuracy:.4g} within "
        f"{plain(latency_s * 1e3)} ms on {most} device{'s' * (most > 1)}: {reason}",
        load_range=refused.load_range if refused else "",
        bottleneck=refused.bottleneck if refused else "",
        device=refused.device if refused else "",
        nearest_latency_s=refused.nearest_latency_s if refused and not best else None,
        nearest_accuracy=math.floor(best * 1e4) / 1e4 if best else None,
    )


def devices_like(hardware: Hardware, count: int) -> Hardware:
    first = hardware.devices[0]
    return Hardware(devices=tuple(msgspec.structs.replace(first, id=f"{first.kind}-{i}") for i in range(count)))
