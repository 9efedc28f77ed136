"""Ranges that the trace never visits: no replay tells of them, so each gets the best cascade that holds there.

What a search weighs by the trace leaves them what visited ranges had to have: one cascade for all loads, say, or the
cheapest, where a surge is short of capacity.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.ranges import may_hold
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.metered import shares_of_ranges
from gearshift.planner.space.request import PlanRequest, equal_ranges, safe_margin

SELDOM = 0.01
"""A share of the requests that counts as next to none: whether it is served as well is seen on the replay."""
WAYS = (SELDOM, False), (0.0, False), (0.0, True)
"""The share up to which ranges change, and whether only to what is no dearer than the visited ranges below."""
WIDE = 1.5
"""Gears of so many times the width of a range that was asked for are split at the ends of those."""


def with_best_where_unvisited(
    made: GearPlan, request: PlanRequest, steady: SteadyState, candidates: Sequence[CandidateCascade]
) -> Iterator[GearPlan]:
    """The plan with better cascades in ranges that the trace never visits; nothing where it has them.

    First those that it hardly visits, too; then only what is no dearer than the visited ranges below, so that a backlog
    drains.  Ranges are the plan's own, or those asked for where its own are wide; its last one stays as it is.
    """
    name, operator = next(iter(made.operators.items()))
    tried: list[tuple[Gear, ...]] = [operator.gears]
    for seldom, falling in WAYS:
        gears = _gears(operator.gears, request, steady, candidates, seldom=seldom, falling=falling)
        if gears not in tried:
            tried.append(gears)
            changed = msgspec.structs.replace(operator, gears=gears)
            yield msgspec.structs.replace(made, operators={name: changed}, predictions={})


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
    """Upper ends of all ranges but the last."""
    ends: list[float] = []
    for gear in gears[:-1]:
        begin, end = gear.load_range.from_, float(gear.load_range.to or math.inf)
        wide = end - begin > WIDE * asked[0]
        ends += [*(qps for qps in asked if wide and begin < qps < end), end]
    return ends


def _gear(candidate: CandidateCascade, load_range: LoadRange, held_qps: float, steady: SteadyState) -> Gear:
    cascade, load_qps = candidate.cascade, float(load_range.to or held_qps)
    batching = steady.batching(cascade, held_qps)
    return Gear(
        load_range=load_range,
        cascade=cascade,
        replicas=steady.settings(cascade, batching),
        predicted=steady.cell(cascade, load_qps, batching).prediction(load_qps, candidate.accuracy),
    )


def _alike(gear: Gear, other: Gear) -> bool:
    """Whether two gears are pieces of the same one."""
    return gear.predicted is other.predicted and gear.replicas is other.replicas
