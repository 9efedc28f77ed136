"""Reasons why a request is infeasible: checks without a search, and the load range, model and device to name."""

import math
from weakref import WeakKeyDictionary

from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible, InvalidInput
from gearshift.placement import Placement
from gearshift.planner.evaluate.steady_state import steady_of
from gearshift.planner.space.cascade_search import most_accurate_model, search_cascades, work_per_request_s
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest, least_margin, load_ranges
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords
from gearshift.support.numbers import plain


def refusal(
    request: PlanRequest,
    reason: str,
    *,
    k: int = -1,
    model: str | None = None,
    placement: Placement | None = None,
    cascade: Cascade | None = None,
    nearest_accuracy: float | None = None,
    nearest_latency_s: float | None = None,
) -> Infeasible:
    """The error for range `k` (default the last) and a model (default the most accurate).

    Its device is the busiest when `cascade` is served on `placement`. A feasible accuracy is
    rounded down.
    """
    model = model or most_accurate_model(request.profile)
    return Infeasible(
        reason,
        load_range=str(load_ranges(request.upper_ends())[k]),
        bottleneck=model,
        device=busiest_device(request, model, placement=placement, cascade=cascade),
        nearest_accuracy=math.floor(nearest_accuracy * 1e4) / 1e4 if nearest_accuracy else None,
        nearest_latency_s=nearest_latency_s,
    )


def require_router(request: PlanRequest) -> None:
    """Raise `Infeasible` where the router's own time per request is too long for the load."""
    router_s = request.profile.router_s
    load_qps = least_margin(request) * float(request.upper_ends()[-1])
    if router_s * load_qps >= 1:
        raise Infeasible(
            f"the router takes {1e6 * router_s:.0f} us of its processor for a request, so it carries up to "
            f"{plain(1 / router_s)} requests/s, and {plain(load_qps)} are to be planned for; no device helps it",
            by_load=False,
        )


def require_latency(request: PlanRequest) -> None:
    """Raise `Infeasible` where no model answers a single request within the latency."""
    devices = {(device.kind, device.cores) for device in request.hardware.devices}
    anywhere = request.hardware.pool_cores is not None
    alone_s = {
        curve.model: float(curve.table_ns()[1:].min()) / NS_PER_S
        for curve in sorted(request.profile.curves, key=lambda c: -float(c.table_ns()[1:].min()))
        if anywhere or (curve.device_kind, curve.cores) in devices
    }
    if not alone_s:
        return
    fastest = min(alone_s, key=lambda model: alone_s[model])
    least_s = request.profile.front_end_s + alone_s[fastest]
    if least_s > request.latency_s:
        raise Infeasible(
            f"no model answers a request within {plain(request.latency_s * 1e3)} ms: the fastest, {fastest!r}, takes "
            f"{plain(least_s * 1e3)} ms with nothing before it",
            by_load=False,
        )


def busiest_device(
    request: PlanRequest, model: str, *, placement: Placement | None = None, cascade: Cascade | None = None
) -> str:
    """The busiest device that holds the model, when the cascade's load is balanced.

    Without a placement the model is alone, wherever it fits. Where it fits nowhere: the device
    with the most memory.
    """
    if placement is None or cascade is None or not {model} <= set(cascade.models) <= set(placement.models):
        cascade = Cascade(models=(model,))
        try:
            placement = place_everywhere(request.profile, request.hardware, models=(model,))
        except InvalidInput:
            return max(request.hardware.devices, key=lambda device: device.memory_bytes).id
    steady = steady_of(request, request.hardware, placement)
    return steady.busiest_device(cascade, model)


HARDLY_LESS = 0.0002
"""The offer is this much below the highest accuracy: drawn samples have a little less, or more."""

_found: WeakKeyDictionary[PredictionRecords, dict[tuple[tuple[str, float], ...], list[tuple[float, Cascade]]]] = (
    WeakKeyDictionary()
)


def require_accuracy(request: PlanRequest) -> None:
    """Raise `Infeasible` where no cascade has the accuracy asked for, on either part of the samples.

    A target within a standard error of the highest accuracy passes: a search decides.
    """
    target, records = request.objective.accuracy, request.profile.predictions
    parts = {part: records.indices(part) for part in (PART_A, PART_B)}
    if target is None or any(target <= float(records.quality[:, n].mean(axis=1).max()) for n in parts.values()):
        return
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    on_parts = _most_accurate(records, work_s)
    highest = max(accuracy for accuracy, _ in on_parts)
    samples = min(len(request.trace), len(parts[PART_B]))
    if target <= highest + math.sqrt(max(0.0, highest * (1 - highest)) / samples):
        return
    judged, best = on_parts[-1]
    sure = min(accuracy for accuracy, _ in on_parts) - HARDLY_LESS
    raise Infeasible(
        f"no cascade of these models has an accuracy of {target:.4g}, on any devices and within any latency: the most "
        f"accurate, {best}, has {judged:.4f}",
        nearest_accuracy=math.floor(sure * 1e4) / 1e4 or None,
        by_load=False,
    )


def _most_accurate(records: PredictionRecords, work_s: dict[str, float]) -> list[tuple[float, Cascade]]:
    kept, key = _found.setdefault(records, {}), tuple(sorted(work_s.items()))
    if key not in kept:
        spaces = [search_cascades(records, work_s, part=part) for part in (PART_A, PART_B)]
        best = [int(space.accuracy.argmax()) for space in spaces]
        kept[key] = [(float(s.accuracy[i]), s.cascade(i)) for s, i in zip(spaces, best, strict=True)]
    return kept[key]
