"""Give load ranges that the trace never visits the best cascade that holds there.

No replay tests such ranges. A search that weighs ranges by the trace leaves them what visited
ranges needed: one cascade for all loads, for example, or the cheapest.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.capacities import may_hold
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.metered import shares_of_ranges
from gearshift.planner.space.request import PlanRequest, equal_ranges, safe_margin

SELDOM = 0.01
"""A share of requests that counts as almost none; the replay shows whether they are served as
well."""
WAYS = (SELDOM, False), (0.0, False), (0.0, True)
"""The share up to which ranges change, and whether only to cascades no more expensive than in
visited ranges below."""
WIDE = 1.5
"""Gears this many times wider than a requested range are split at the ends of those."""


def with_best_where_unvisited(
    made: GearPlan, request: PlanRequest, steady: SteadyState, candidates: Sequence[CandidateCascade]
) -> Iterator[GearPlan]:
    """Variants of the plan with better cascades in ranges the trace never visits.

    First also ranges that it seldom visits; last only with cascades no more expensive than in the
    visited ranges below, so that a backlog drains. Wide ranges are split at the requested ones;
    the last one stays as it is.
    """
    pipeline = made.pipeline
    tried: list[tuple[Gear, ...]] = [pipeline.gears]
    for seldom, falling in WAYS:
        gears = _gears(pipeline.gears, request, steady, candidates, seldom=seldom, falling=falling)
        if gears not in tried:
            tried.append(gears)
            yield with_pipeline(msgspec.structs.replace(made, predictions={}), gears=gears)


def _gears(
    gears: Sequence[Gear],
    request: PlanRequest,
    steady: SteadyState,
    candidates: Sequence[CandidateCascade],
    *,
    seldom: float,
    falling: bool,
) -> tuple[Gear, ...]:
    top_qps = float(request.upper_ends()[-1])
    ends = _ends(gears, equal_ranges(top_qps, request.ranges).tolist())
    shares = shares_of_ranges(request.trace, np.array([*ends, math.inf]))
    work_s = {c.cascade: c.work_s for c in candidates}
    offered = sorted(candidates, key=lambda c: -c.accuracy)
    changed: list[Gear] = []
    from_qps, most_work_s = 0.0, math.inf
    for end, share in zip(ends, shares, strict=False):
        gear = next(g for g in gears if g.load_range.to is None or g.load_range.to >= end)
        load_range = LoadRange(from_=from_qps, to=end)
        if share > seldom:
            most_work_s = min(most_work_s, work_s.get(gear.cascade, math.inf))
        elif end <= top_qps and gear.predicted is not None:
            accuracy, held_qps = gear.predicted.accuracy, safe_margin(request) * end
            allowed = (c for c in offered if c.accuracy > accuracy and not (falling and c.work_s > most_work_s))
            if (best := next((c for c in allowed if may_hold(steady, c, held_qps)), None)) is not None:
                gear = _gear(best, load_range, held_qps, steady)
        if changed and _alike(changed[-1], gear):
            load_range = LoadRange(from_=changed.pop().load_range.from_, to=end)
        changed.append(msgspec.structs.replace(gear, load_range=load_range))
        from_qps = end
    return (*changed, msgspec.structs.replace(gears[-1], load_range=LoadRange(from_=from_qps, to=None)))


def _ends(gears: Sequence[Gear], asked: Sequence[float]) -> list[float]:
    ends: list[float] = []
    for gear in gears[:-1]:
        begin, end = gear.load_range.from_, float(gear.load_range.to or math.inf)
        wide = end - begin > WIDE * asked[0]
        ends += [*(qps for qps in asked if wide and begin < qps < end), end]
    return ends


def _gear(candidate: CandidateCascade, load_range: LoadRange, held_qps: float, steady: SteadyState) -> Gear:
    cascade, load_qps = candidate.cascade, float(load_range.to or held_qps)
    batching = steady.batching(cascade, held_qps)
    predicted = steady.cell(cascade, load_qps, batching).prediction(load_qps, candidate.accuracy)
    return steady.gear(load_range, cascade, batching, predicted)


def _alike(gear: Gear, other: Gear) -> bool:
    return gear.predicted is other.predicted and gear.replicas is other.replicas
