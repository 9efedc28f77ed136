"""A plan in one line, which begins with what was asked for: a latency, an accuracy, or of both the devices."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.objective import Metric, Objective
from gearshift.plans.prices import price_per_hour
from gearshift.reporting.cost import per_million
from gearshift.result import ServingResult
from gearshift.support.numbers import between_times, milliseconds, money, percent

NAMES: dict[Metric, str] = {"latency": "latency", "ttft": "TTFT", "per_token": "time per token", "total": "total time"}

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone


def headline(plan: GearPlan, largest: "LargestAlone | None" = None) -> str:
    predicted = [_predicted(plan, name) for name in plan.pipelines]
    devices = ", ".join(filter(None, (devices_in_words(plan), cost_in_words(plan))))
    parts = [devices, *predicted] if asks_for_devices(plan) else [*predicted, devices]
    return "; ".join(parts if largest is None else [*parts, _largest(largest, plan.hardware)])


def refinement_in_words(plan: GearPlan) -> list[str]:
    """A sentence for each pipeline that refines while there is time, with what that costs the median."""
    told = []
    for name, pipeline in plan.pipelines.items():
        if pipeline.refines:
            of, result = f"{name}: " if len(plan.pipelines) > 1 else "", plan.predictions.get(name)
            some = "" if all(gear.order == "gain" for gear in pipeline.gears) else ", in some gears"
            figures = (
                "" if result is None else f": half of the requests take up to {milliseconds(result.latency_s.p50)}"
            )
            if result is not None and result.share_by_time is not UNSET:
                figures += f", and {percent(result.share_by_time)} are answered with what they had when time ran out"
            told.append(f"{of}refines while there is time{some}{figures}")
    return told


def asks_for_devices(plan: GearPlan) -> bool:
    """Whether a latency and an accuracy are asked of one operator: the devices are what its plans differ in.

    Graphs, and several operators, are planned on all devices that are given.
    """
    if len(plan.pipelines) > 1 or len(plan.pipeline.nodes) > 1:
        return False
    asked = plan.pipeline.objective if plan.pipeline.asked is None else plan.pipeline.asked.objective
    return asked.latency_s is not None and asked.accuracy is not None


def closing_line(plan: GearPlan, path: Path, planning_s: float) -> str:
    """For example "wrote plan.json (2 devices) after 3.1 s"."""
    cores, devices = plan.hardware.pool_cores, len(plan.hardware.devices)
    count = counted(devices, "device") if cores is None else counted(cores, "core")
    return f"wrote {path} ({count}) after {planning_s:.1f} s"


def _predicted(plan: GearPlan, name: str) -> str:
    result = plan.predictions.get(name)
    figures = "nothing is predicted" if result is None else _figures(result, plan.pipelines[name].objective)
    return figures if len(plan.pipelines) == 1 else f"{name}: {figures}"


def devices_in_words(plan: GearPlan) -> str:
    """Count devices and name their models: "3 devices, each with base and xl"."""
    on: dict[str, list[str]] = {device.id: [] for device in plan.hardware.devices}
    for replica in plan.placement.replicas:
        spans = f" over {len(replica.device_ids)}" if len(replica.device_ids) > 1 else ""
        for device in replica.device_ids:
            on[device].append(f"{replica.model}{spans}")
    if plan.hardware.pool_cores is not None:
        models = list(dict.fromkeys(plan.placement.models))
        return f"{plan.hardware.pool_cores} cores, shared by {_listed(models)}"
    kinds = len({device.kind for device in plan.hardware.devices}) > 1
    alike = Counter((device.kind if kinds else "", tuple(sorted(on[device.id]))) for device in plan.hardware.devices)
    count = len(plan.hardware.devices)
    if len(alike) == 1:
        each = ", each" if count > 1 else ""
        return f"{counted(count, 'device')}{each} with {_listed(next(iter(alike))[1])}"
    groups = [" ".join(filter(None, (str(n), kind, "with", _listed(models)))) for (kind, models), n in alike.items()]
    return f"{counted(count, 'device')} ({', '.join(groups)})"


def cost_in_words(plan: GearPlan) -> str:
    """The devices' cost per hour, in the unit of their prices; nothing where some device has no price."""
    if plan.hardware.pool_cores is not None:
        result = plan.predictions.get(plan.name)
        held = None if result is None else result.core_s
        return "of unknown cost" if held is None else f"{held:.1f} core-seconds held"
    price = price_per_hour(plan.hardware)
    if price is None:
        return ""
    prices = {device.price_to_compare for device in plan.hardware.devices}
    each = f" at {money(prices.pop())} each" if len(prices) == 1 else ""
    million = per_million(price, *plan.predictions.values())
    return f"{money(price)} an hour{each}" + ("" if million is None else f" ({money(million)} a million requests)")


def _largest(largest: "LargestAlone", hardware: Hardware) -> str:
    if largest.devices is None:
        return largest.why
    differ = len({msgspec.structs.replace(device, id="any") for device in hardware.devices}) > 1
    like = f" like {largest.like}" if differ else ""
    needed = f"{counted(largest.devices, 'device')}{like}"
    if largest.price_per_hour is not None:
        needed += f", {money(largest.price_per_hour)} an hour"
    return f"{largest.model} alone ({100 * largest.accuracy:.1f} %) would need {needed}"


def _figures(result: ServingResult, objective: Objective) -> str:
    low, high = result.accuracy_interval
    accuracy = f"accuracy {100 * result.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"
    figures = accuracy, _latency(result, objective)
    return "; ".join(figures if objective.latency_s is None else figures[::-1])


def _latency(result: ServingResult, objective: Objective) -> str:
    """The percentile asked for, or the share later than its latency if not measured."""
    known_s = {0.5: result.latency_s.p50, 0.99: result.latency_s.p99}
    of_median = objective.median_s is not UNSET and objective.percentile != 0.5
    median = f"p50 {milliseconds(result.latency_s.p50)}, " if of_median else ""
    if objective.percentile not in (*known_s, 0.95) and objective.latency_s is not None:
        within = f"{percentile_name(objective)} within {milliseconds(objective.latency_s)}"
        return f"{median}{within}: {percent(result.share_late)} late"
    between = ""
    if result.latency_p95_interval_s is not None:
        least_s, most_s = result.latency_p95_interval_s
        if milliseconds(least_s) != milliseconds(most_s):
            between = f" ({between_times(least_s, most_s)})"
    asked_s = known_s.get(objective.percentile)
    asked = "" if asked_s is None else f"{percentile_name(objective)} {milliseconds(asked_s)}, "
    return f"{median}{asked}p95 {milliseconds(result.latency_s.p95)}{between}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percentile_name(objective: Objective) -> str:
    return f"p{100 * objective.percentile:g}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    if not names:
        return "nothing"
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])
