"""A plan in one line: what was asked for, the other figure, devices, cost, and the largest model's needs."""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.reporting.cost import cost_of_million, requests_per_s
from gearshift.reporting.drawing.numbers import money
from gearshift.result import ServingResult

if TYPE_CHECKING:
    from gearshift.planner.largest_alone import LargestAlone


def headline(plan: GearPlan, largest: "LargestAlone | None" = None) -> str:
    parts = [
        *(_predicted(plan, name) for name in plan.pipelines),
        f"{devices_in_words(plan)}, {cost_in_words(plan)}",
        *([] if largest is None else [_largest(largest, plan.hardware)]),
    ]
    return "; ".join(parts)


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
    """The devices' cost per hour, in the unit of their prices (1 each, where none were given)."""
    if plan.hardware.pool_cores is not None:
        result = plan.predictions.get(plan.name)
        held = None if result is None else result.core_s
        return "of unknown cost" if held is None else f"{held:.1f} core-seconds held"
    prices = [device.price_per_hour for device in plan.hardware.devices]
    each = f" at {money(prices[0])} each" if len(set(prices)) == 1 else ""
    return f"{money(sum(prices))} an hour{each}{_per_million(plan, sum(prices))}"


def _per_million(plan: GearPlan, price_per_hour: float) -> str:
    loads = [requests_per_s(result) for result in plan.predictions.values()]
    qps = sum(each or 0.0 for each in loads)
    return f" ({money(cost_of_million(price_per_hour, qps))} a million requests)" if qps > 0 else ""


def _largest(largest: "LargestAlone", hardware: Hardware) -> str:
    if largest.devices is None:
        return largest.why
    differ = len({msgspec.structs.replace(device, id="any") for device in hardware.devices}) > 1
    like = f" like {largest.like}" if differ else ""
    needed = f"{counted(largest.devices, 'device')}{like}, {money(largest.price_per_hour or 0.0)} an hour"
    return f"{largest.model} alone ({100 * largest.accuracy:.1f} %) would need {needed}"


def _figures(result: ServingResult, objective: Objective) -> str:
    low, high = result.accuracy_interval
    accuracy = f"accuracy {100 * result.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"
    figures = accuracy, _latency(result, objective)
    return "; ".join(figures if objective.latency_s is None else figures[::-1])


def _latency(result: ServingResult, objective: Objective) -> str:
    """The percentile asked for, or the share later than its latency if not measured."""
    known_s = {0.5: result.latency_s.p50, 0.99: result.latency_s.p99}
    if objective.percentile not in (*known_s, 0.95) and objective.latency_s is not None:
        limit_ms = 1e3 * objective.latency_s
        return f"{percentile_name(objective)} within {limit_ms:.4g} ms: {100 * result.share_late:.1f} % late"
    between = ""
    if result.latency_p95_interval_s is not None:
        least_s, most_s = result.latency_p95_interval_s
        between = f" ({1e3 * least_s:.3g} to {1e3 * most_s:.3g} ms)"
    asked_s = known_s.get(objective.percentile)
    asked = "" if asked_s is None else f"{percentile_name(objective)} {1e3 * asked_s:.3g} ms, "
    return f"{asked}p95 {1e3 * result.latency_s.p95:.3g} ms{between}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percentile_name(objective: Objective) -> str:
    return f"p{100 * objective.percentile:g}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    if not names:
        return "nothing"
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])
