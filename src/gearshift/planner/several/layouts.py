"""Which devices hold which models of several operators.

A *tuple* has one candidate for each operator. Its accuracy is the mean over requests; its work is
that of the mean request where each operator has the load of the 95th percentile of its trace. So
tuples take the place that cascades have in the placement search, and the most accurate tuple that a
placement carries at that load says how operators divide the devices' time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from gearshift.hardware import Hardware
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import curves_of
from gearshift.planner.several.request import SeveralRequest, trace_of
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.hosts import bytes_per_device
from gearshift.planner.space.metered import metered_loads, shares_of_ranges
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.placement_search import Bound, PlacementSearch
from gearshift.profiles.several import as_one

LEVELS = 32
FILLS = 1.0, 0.7, 0.45
"""Shares of the devices' time that pipelines may use at their busy loads all at once. What they do not
use leaves each of them more at its other loads."""
PREFERRED = (2.5,)
"""How many times as much the accuracy of a preferred operator counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTuple:
    """One candidate for each operator, with models, reach and work of the mean request."""

    members: Mapping[str, CandidateCascade]
    models: tuple[str, ...]
    reach: tuple[float, ...]
    accuracy: float
    work_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A placement of all operators' models, and tuples that it carries, which divide its time differently.

    The first is the most accurate.
    """

    placement: Placement
    tuples: tuple[OperatorTuple, ...]


def tuples_of(
    several: SeveralRequest,
    candidates: Mapping[str, Sequence[CandidateCascade]],
    preferred: Mapping[str, float] | None = None,
) -> list[OperatorTuple]:
    """The tuples that no other beats in accuracy and work, by rising work.

    The accuracy of an operator counts `preferred` times as much as its requests.
    """
    total_qps = sum(several.busy_qps[name] for name in candidates)
    found = [OperatorTuple(members={}, models=(), reach=(), accuracy=0.0, work_s=0.0)]
    for name, offered in candidates.items():
        of_load = several.busy_qps[name] / total_qps
        of_requests = several.share_of_requests[name] * (preferred or {}).get(name, 1.0)
        points = [
            (known.work_s + of_load * each.work_s, known.accuracy + of_requests * each.accuracy)
            for known in found
            for each in offered
        ]
        widened = []
        for place in undominated(points):
            known, each = found[place // len(offered)], offered[place % len(offered)]
            work_s, accuracy = points[place]
            widened.append(
                OperatorTuple(
                    members={**known.members, name: each},
                    models=(*known.models, *each.models),
                    reach=(*known.reach, *(of_load * share for share in each.reach)),
                    accuracy=accuracy,
                    work_s=work_s,
                )
            )
        found = widened
    return found


def layouts_of(
    several: SeveralRequest, candidates: Mapping[str, Sequence[CandidateCascade]], *, most: int
) -> list[Layout]:
    """Up to `most` placements on which each of these operators has a model, the most promising first.

    Replicas of fixed pipelines stay where they are.
    """
    asked = {name: several.requests[name] for name in candidates}
    search = PlacementSearch(as_one({name: r.profile for name, r in asked.items()}), with_room(several))
    tuples = tuples_of(several, candidates)
    limits_s = {model: request.latency_s for request in asked.values() for model in request.profile.models}
    arrivals = trace_of(request.trace for request in asked.values())
    rates, _ = metered_loads(arrivals)
    busy_qps = sum(several.busy_qps[name] for name in asked)
    ends = max(1.0, busy_qps, float(rates.max())) * np.arange(1, LEVELS + 1) / LEVELS
    weights = shares_of_ranges(arrivals, ends)
    counts = search.best(tuples, ends, weights, latency_s=limits_s, most=most)
    divisions = [tuples, *(tuples_of(several, candidates, one) for one in _preferences(several, candidates))]
    bounds = [Bound(search, each, ends, weights, limits_s) for each in divisions]
    layouts = []
    for each in counts:
        carried = [
            offered[numbers[0]]
            for fill in (FILLS if len(asked) > 1 else FILLS[:1])
            for offered, bound in zip(divisions, bounds, strict=True)
            if (numbers := bound.carried(each, busy_qps / fill))
        ]
        if carried:
            fixed = () if several.fixed is None else several.fixed.placement.replicas
            placement = Placement(replicas=(*fixed, *search.placement(each).replicas))
            distinct = {tuple(c.cascade for c in one.members.values()): one for one in carried}
            layouts.append(Layout(placement=placement, tuples=tuple(distinct.values())))
    return layouts


def _preferences(several: SeveralRequest, names: Iterable[str]) -> Iterator[dict[str, float]]:
    """Each operator in turn is preferred; with one there is nothing to divide."""
    free = list(names)
    if len(free) > 1:
        for name in free:
            for factor in PREFERRED:
                yield {name: factor}


def with_room(several: SeveralRequest) -> Hardware:
    """The hardware without the memory that replicas of fixed pipelines take."""
    if several.fixed is None:
        return several.hardware
    curves = curves_of(several.together, several.hardware, several.fixed.placement)
    taken = dict.fromkeys((device.id for device in several.hardware.devices), 0)
    for replica in several.fixed.placement.replicas:
        for id_ in replica.device_ids:
            taken[id_] += bytes_per_device(curves[replica.id])
    devices = tuple(
        msgspec.structs.replace(device, memory_bytes=max(1, device.memory_bytes - taken[device.id]))
        for device in several.hardware.devices
    )
    return msgspec.structs.replace(several.hardware, devices=devices)
