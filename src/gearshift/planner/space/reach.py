"""Check that some cascade has the accuracy, on any devices and within any latency."""

import math
from weakref import WeakKeyDictionary

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.planner.space.cascade_search import search_cascades, work_per_request_s
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords

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
