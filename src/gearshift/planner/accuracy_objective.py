"""An accuracy that must be kept: at the lowest latency, or within a latency on the fewest devices."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product

import msgspec

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.planner.bottleneck import refusal
from gearshift.planner.plan_search import MOST_LESS, PlanSearch
from gearshift.profiles.profile import PART_B
from gearshift.result import lower_confidence_bound

PROBED = (1.0, 0.75, 0.5)
"""Where on the ladder of latencies the highest accuracy is looked for; a tighter latency can have a better plan."""
MOST_PARTS = 4096
"""How many parts of the hardware are looked at, one after the other."""
CERTIFICATES = 3
"""How many plans may be held against part B; with a confidence each gets its part of the level."""


class AccuracyObjective:
    """Plans for the accuracy objective of a search's request, with its confidence where one is asked for."""

    def __init__(self, search: PlanSearch) -> None:
        self._search, self._request = search, search.request

    def fastest(self) -> GearPlan:
        """The lowest latency objective at which the accuracy objective is kept."""
        ladder = self._search.ladder()
        target, n = self._request.objective.accuracy or 0.0, len(self._request.profile.predictions.indices(PART_B))
        known: dict[int, float] = {}

        def reached(step: int) -> float:
            if step not in known:
                known[step] = self._certain(self._search.accuracy_within(ladder[step]), n)
            return known[step]

        top = len(ladder) - 1
        most = max((round(top * share) for share in PROBED), key=reached)
        needed = target
        for certificate in range(1, CERTIFICATES + 1):
            low, high = -1, most
            if certificate == CERTIFICATES or reached(most) < needed:
                low = most - 1
            while high > low + 1:
                middle = (low + high) // 2
                low, high = (low, middle) if reached(middle) >= needed else (middle, high)
            made = self._search.most_accurate(self._search.within(ladder[high]), on_fewer=False)
            kept = self._kept_accuracy(made)
            if kept >= target and reached(high) >= target:
                return self._as_asked(made)
            if high == most:
                break
            needed = max(needed, reached(high)) + target - kept
        raise self._out_of_reach(max(0.0, min(kept, reached(most))))

    def fewest(self) -> GearPlan:
        """The cheapest hardware, of the request's devices, on which latency and accuracy are both kept."""
        target, best, refused = self._request.objective.accuracy or 0.0, 0.0, None
        looks = CERTIFICATES if self._request.objective.confidence is not None else math.inf

        def kept_on(hardware: Hardware) -> GearPlan | None:
            nonlocal best, refused, looks
            self._search.on_time()
            request = dataclasses.replace(self._search.within(self._request.latency_s), hardware=hardware)
            try:
                if not self._search.may_reach(request, target):
                    return None
                made = self._search.most_accurate(request)
            except Infeasible as error:
                refused = error
                return None
            except InvalidInput:  # no model runs on so little of the hardware
                if hardware == self._request.hardware:
                    raise
                return None
            looks -= 1
            kept = self._kept_accuracy(made) if looks >= 0 else 0.0
            if kept > best:
                best, self._search.kept = kept, self._as_asked(made)
            return self._as_asked(made) if kept >= target else None

        made = _first(list(_by_price(self._request.hardware)), kept_on)
        if made is not None:
            return made
        if best == 0.0 and refused is not None:
            raise refused
        if best == 0.0:  # the bound left no hope: what there is at most
            best = self._kept_accuracy(self._search.most_accurate(self._search.within(self._request.latency_s)))
        raise self._out_of_reach(best)

    def _certain(self, accuracy: float, n: int) -> float:
        """The accuracy that can be claimed: the estimate, or its lower bound where a confidence is asked for."""
        confidence = self._request.objective.confidence
        if confidence is None or accuracy < 0:
            return accuracy
        return lower_confidence_bound(accuracy, n, 1 - (1 - confidence) / CERTIFICATES)

    def _kept_accuracy(self, made: GearPlan) -> float:
        result = made.predictions[self._request.profile.operator]
        n = min(result.requests, len(self._request.profile.predictions.indices(PART_B)))
        return self._certain(result.accuracy, n)

    def _as_asked(self, made: GearPlan) -> GearPlan:
        """The plan with the whole objective that was asked for, at the latency that it keeps."""
        name = self._request.profile.operator
        latency_s = made.operators[name].objective.latency_s
        asked = msgspec.structs.replace(self._request.objective, latency_s=latency_s)
        operator = msgspec.structs.replace(made.operators[name], objective=asked)
        return msgspec.structs.replace(made, operators={name: operator})

    def _out_of_reach(self, best: float) -> Infeasible:
        objective = self._request.objective
        devices = len(self._request.hardware.devices)
        within = "" if objective.latency_s is None else f" within {objective.latency_s * 1e3:.4g} ms"
        certain = "" if objective.confidence is None else f" with confidence {objective.confidence:g}"
        reason = (
            f"no plan on {devices} device{'s' * (devices > 1)} has an accuracy of {objective.accuracy:g}{certain}"
            f"{within}; the best that was found has {best:.4f}"
        )
        request = self._request
        n = min(len(request.trace), len(request.profile.predictions.indices(PART_B)))
        highest = max(c.accuracy for c in self._search.candidates(request, request.profile.models))
        if few := too_few_samples(n, objective.accuracy or 0.0, highest, self._certain(highest, n)):
            return Infeasible(reason + few, nearest_accuracy=math.floor(best * 1e4) / 1e4 or None, by_load=False)
        return refusal(request, reason, nearest_accuracy=best)


def too_few_samples(n: int, target: float, highest: float, certain: float) -> str:
    """What `n` samples can certify, where some candidate has the accuracy and none can have it certified.

    More devices, or more latency, would not help then.  `certain` is what can be claimed of the `highest` accuracy.
    """
    if not certain < target <= highest:
        return ""
    return (
        f", since {n} samples certify no more than {certain:.4f} of the most accurate cascade's {highest:.4f}: "
        "record more, or ask for less --confidence"
    )


def _by_price(hardware: Hardware) -> list[Hardware]:
    """Parts of the hardware by rising price, alike devices in their order; of equal prices the fewest devices first.

    Where there are more than `MOST_PARTS`, only doublings of each kind are looked at.
    """
    alike: dict[tuple[object, ...], list[Device]] = {}
    for d in hardware.devices:
        alike.setdefault((d.kind, d.cores, d.memory_bytes, d.price_per_hour), []).append(d)
    groups = list(alike.values())
    counts = [list(range(len(group) + 1)) for group in groups]
    if math.prod(map(len, counts)) > MOST_PARTS:
        counts = [sorted({0, *(2**i for i in range(len(g).bit_length())), len(g)}) for g in groups]
    options = []
    for chosen in product(*counts):
        if sum(chosen) > 0:
            price = sum(n * group[0].price_per_hour for n, group in zip(chosen, groups, strict=True))
            options.append((price, sum(chosen), chosen))
    return [
        Hardware(devices=tuple(d for n, group in zip(chosen, groups, strict=True) for d in group[:n]))
        for _, _, chosen in sorted(options)
    ]


def _first(parts: Sequence[Hardware], kept_on: Callable[[Hardware], GearPlan | None]) -> GearPlan | None:
    """The plan on the first of these parts that has one.

    Where each is the one before and a device more, accuracy rises along them: found by doubling, then by bisection.
    """
    nested = all(set(a.devices) < set(b.devices) for a, b in pairwise(parts))
    if not nested or len(parts) <= MOST_LESS:
        return next((made for part in parts if (made := kept_on(part)) is not None), None)
    low, high = -1, 0
    while (found := kept_on(parts[high])) is None:
        if high == len(parts) - 1:
            return None
        low, high = high, min(2 * high + 1, len(parts) - 1)
    while high > low + 1:
        middle = (low + high) // 2
        made = kept_on(parts[middle])
        low, high, found = (middle, high, found) if made is None else (low, middle, made)
    return found
