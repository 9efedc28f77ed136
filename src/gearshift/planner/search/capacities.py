"""The load ranges of one search, the steady load that each candidate holds, and assignments by it.

A capacity is the highest load at which a cascade holds the objective; ranges get the best monotone
assignment of cascades that hold at their upper end.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.evaluate.steady_state import GRID_STEP, SteadyState
from gearshift.planner.search.infeasible import nothing_holds
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.metered import seldom_exceeded_qps, shares_of_ranges
from gearshift.planner.space.request import (
    LARGEST_MARGIN,
    PlanRequest,
    Progress,
    equal_ranges,
    least_margin,
    safe_margin,
)

UNVISITED_WEIGHT = 1e-6
"""Gives ranges the trace does not visit the best cascade, too."""
SURELY_OVERLOADED = 1.05
"""Above this utilisation of the busiest device, no batch size keeps up."""
HIGHEST_QPS = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges with `upper_ends` (ranges,), planned for `planned_qps` (ranges,) before a margin.

    `candidates` come by rising work. `shares` (ranges,) of the trace's requests are in each range.
    """

    request: PlanRequest
    candidates: Sequence[CandidateCascade]
    upper_ends: NDArray[np.float64]
    planned_qps: NDArray[np.float64]
    shares: NDArray[np.float64]

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.shares + UNVISITED_WEIGHT

    @property
    def highest_visited(self) -> int:
        return int(np.flatnonzero(self.shares)[-1])

    def needed_qps(self, margin: float) -> NDArray[np.float64]:
        """The loads (ranges,) that cascades must hold for a margin.

        No replay tests loads above those the trace visits, so the margin there is at least that of
        scope `every-range`.
        """
        unseen = np.arange(len(self.upper_ends)) > self.highest_visited
        return self.planned_qps * np.where(unseen, max(margin, safe_margin(self.request)), margin)


def ranges_of(
    request: PlanRequest,
    steady: SteadyState,
    candidates: Sequence[CandidateCascade],
    *,
    beyond: bool,
    on_time: Callable[[], None],
) -> Ranges:
    """The ranges of a search; with `beyond` more of them follow the top (`_reached`).

    Raises `Infeasible` where no candidate holds at the top and scope `every-range` requires it.
    """
    upper_ends = request.upper_ends()
    top_qps = float(upper_ends[-1])
    if request.objective.scope == "every-range":
        for first, candidate in enumerate(candidates):
            on_time()
            if may_hold(steady, candidate, top_qps):
                candidates = candidates[first:]
                break
        else:
            raise nothing_holds(request, steady, candidates, upper_ends)
    if beyond or request.max_qps is None:
        upper_ends = _reached(request, steady, candidates[0], beyond=beyond)
    return Ranges(
        request=request,
        candidates=candidates,
        upper_ends=upper_ends,
        planned_qps=np.minimum(upper_ends, top_qps) if beyond else upper_ends,
        shares=shares_of_ranges(request.trace, upper_ends),
    )


def may_keep_up(steady: SteadyState, candidate: CandidateCascade, load_qps: float) -> bool:
    if steady.others is not None and steady.others.beside.too_much(candidate.work_s, load_qps):
        return False
    return steady.balance(candidate.cascade).utilisation_per_qps * load_qps <= SURELY_OVERLOADED


def may_hold(steady: SteadyState, candidate: CandidateCascade, load_qps: float) -> bool:
    return may_keep_up(steady, candidate, load_qps) and steady.holds(candidate.cascade, load_qps)


def last_within(needed_qps: NDArray[np.float64], capacity_qps: float) -> int:
    """The last range that needs no more than a capacity; -1 for none."""
    return int(np.searchsorted(needed_qps, capacity_qps, side="right")) - 1


def _reached(
    request: PlanRequest, steady: SteadyState, cheapest: CandidateCascade, *, beyond: bool
) -> NDArray[np.float64]:
    """Upper ends of ranges whose last, the cheapest, is seldom reached by noise of the meter.

    At 300 requests/s a window of 100 ms holds 30 arrivals, give or take 5: a top of 1.2 times the
    peak second would give a sixth of the peak's requests to the cheapest cascade. Either the same
    number of ranges reaches further, or (`beyond`) up to as many more follow, planned for the top.
    """
    asked = request.upper_ends()
    top_qps, metered_qps = float(asked[-1]), seldom_exceeded_qps(request.trace)
    if beyond:
        more = min(len(asked), max(0, math.ceil((metered_qps - top_qps) / float(asked[0]))))
        ends = top_qps + float(asked[0]) * np.arange(1, more + 1)
        ends[-1:] = np.maximum(ends[-1:], metered_qps)
        return np.concatenate([asked, ends, [HIGHEST_QPS]])
    wanted = metered_qps * len(asked) / max(1, len(asked) - 1)
    capacity = steady.capacity_qps(cheapest.cascade, least_qps=top_qps, most_qps=max(top_qps, wanted))
    return equal_ranges(max(top_qps, min(wanted, capacity)), len(asked))


SURELY_REACHED = 1.2
"""A stage counts as always on the percentile's path if this many times the share that may be late
reaches it."""


@dataclass(frozen=True, slots=True, eq=False)
class Capacities:
    """The highest loads `qps` (candidates,) at which candidates hold; 0 where not needed.

    `highest` is the last range in which each holds with the least margin; -1 for none.
    """

    ranges: Ranges
    qps: NDArray[np.float64]
    highest: tuple[int, ...]

    def holds_in(self, load_range: int, c: int) -> bool:
        return load_range <= self.highest[c]

    def assigned(self, margin: float) -> tuple[int, ...]:
        """Assign for `margin` times the load; the last, endless range gets the cheapest."""
        ranges, highest = self.ranges, self.highest
        if margin != least_margin(ranges.request):
            needed_qps = ranges.needed_qps(margin)
            highest = tuple(last_within(needed_qps, qps) for qps in self.qps)
        highest = (len(ranges.upper_ends) - 1, *highest[1:])
        assignment = best_monotone_assignment(ranges.candidates, highest, ranges.weights)
        return (*assignment[:-1], 0)

    def steady_accuracy(self) -> float:
        assignment = self.assigned(least_margin(self.ranges.request))
        return float(self.ranges.weights @ self._accuracy[list(assignment)])

    def most_accuracy(self) -> float:
        """An upper bound on the accuracy of assignments that hold in steady state."""
        ranges, accuracy = self.ranges, self._accuracy
        top_qps = ranges.request.upper_ends()[-1]
        needed_qps = np.minimum(ranges.planned_qps, top_qps) * least_margin(ranges.request)
        held = np.where(self.qps[:, None] >= needed_qps / GRID_STEP, accuracy[:, None], accuracy[0]).max(axis=0)
        return float(ranges.weights @ held / ranges.weights.sum())

    @property
    def _accuracy(self) -> NDArray[np.float64]:
        return np.array([c.accuracy for c in self.ranges.candidates])


def capacities_of(
    ranges: Ranges, steady: SteadyState, *, quick: bool, progress: Progress, on_time: Callable[[], None]
) -> Capacities:
    """The capacities of candidates; 0 for those that no assignment needs.

    From the most accurate down, a candidate is needed only if it holds at a higher load than every
    more accurate one on the front of accuracy and work.
    """
    least = float(ranges.planned_qps[0])
    accuracy = np.array([c.accuracy for c in ranges.candidates])
    on_front = accuracy > np.concatenate([[-1.0], np.maximum.accumulate(accuracy)[:-1]])
    capacities, reached_qps = np.zeros(len(accuracy)), 0.0
    for done, c in enumerate(np.argsort(-accuracy, kind="stable").tolist()):
        on_time()
        progress("simulating steady load", 0.9 * done / len(accuracy))
        cascade = ranges.candidates[c].cascade
        highest_qps = _highest_qps(ranges, steady, ranges.candidates[c])
        if highest_qps <= reached_qps:
            continue
        if reached_qps > 0 and not steady.holds(cascade, min(highest_qps, reached_qps * GRID_STEP)):
            continue
        lowest_qps = max(least, reached_qps)
        capacity_qps = steady.capacity_qps(cascade, least_qps=lowest_qps, most_qps=highest_qps)
        capacities[c] = min(capacity_qps, _allowed_qps(ranges, ranges.candidates[c]))
        if on_front[c]:
            reached_qps = max(reached_qps, float(capacities[c]))
    return Capacities(ranges, capacities, _highest_ranges(ranges, steady, capacities, quick=quick))


def _allowed_qps(ranges: Ranges, candidate: CandidateCascade) -> float:
    """Below the range from which the candidate has too much work beside others; else infinite."""
    beside = ranges.request.beside
    if beside is None or beside.limit is None or candidate.work_s <= beside.limit.work_s:
        return math.inf
    needed_qps = ranges.needed_qps(least_margin(ranges.request))
    first = int(np.searchsorted(ranges.upper_ends[:-1], beside.limit.from_qps))
    return float(needed_qps[first]) / GRID_STEP**2


def bounds_of(ranges: Ranges, steady: SteadyState) -> Capacities:
    """Upper bounds on the capacities, without simulation; no range is certain."""
    qps = np.array([_highest_qps(ranges, steady, candidate) for candidate in ranges.candidates])
    return Capacities(ranges, qps, (-1,) * len(qps))


def _highest_qps(ranges: Ranges, steady: SteadyState, candidate: CandidateCascade) -> float:
    if _slower_alone(ranges.request, steady, candidate):
        return 0.0
    least, most = float(ranges.planned_qps[0]), float(ranges.planned_qps[-1]) * LARGEST_MARGIN
    return max(least, min(most, SURELY_OVERLOADED / steady.balance(candidate.cascade).utilisation_per_qps))


def _highest_ranges(
    ranges: Ranges, steady: SteadyState, capacities: NDArray[np.float64], *, quick: bool
) -> tuple[int, ...]:
    """The highest range in which each candidate holds with the least margin; -1 for none.

    A range up to a step of the grid above a capacity is checked in steady state, unless `quick`.
    """
    needed_qps = ranges.needed_qps(least_margin(ranges.request))
    highest = []
    for candidate, capacity in zip(ranges.candidates, capacities, strict=True):
        next_qps = float(needed_qps[min(last_within(needed_qps, capacity) + 1, len(needed_qps) - 1)])
        at_the_edge = not quick and capacity < next_qps <= capacity * GRID_STEP
        held_qps = next_qps if at_the_edge and steady.holds(candidate.cascade, next_qps) else capacity
        highest.append(last_within(needed_qps, held_qps))
    return tuple(highest)


def _slower_alone(request: PlanRequest, steady: SteadyState, candidate: CandidateCascade) -> bool:
    seldom = SURELY_REACHED * (1 - request.objective.percentile)
    run_s = [
        steady.least_run_s(model)
        for model, reach in zip(candidate.cascade.models, candidate.reach, strict=True)
        if reach > seldom
    ]
    return sum(run_s) + request.profile.front_end_s > request.latency_s


def best_monotone_assignment(
    candidates: Sequence[CandidateCascade], highest_range: Sequence[int], weights: NDArray[np.float64]
) -> list[int]:
    """A candidate per range, work not rising with load, with the greatest weighted accuracy.

    Candidate c, by rising work, holds in ranges 0 to `highest_range[c]` (-1: in none); the
    cheapest must hold everywhere. Exact, by dynamic programming from the highest range down:
    `best[c]` is the best total of ranges k and up when range k has candidate c; range k - 1 may
    have c or any more expensive one. Of equal totals the one with less work wins.
    """
    n, ranges = len(candidates), len(weights)
    accuracy = np.array([c.accuracy for c in candidates])
    holds = np.array([[k <= highest_range[c] for c in range(n)] for k in range(ranges)])
    total = np.where(holds[-1], weights[-1] * accuracy, -np.inf)
    follow: list[NDArray[np.int64]] = []
    for k in range(ranges - 2, -1, -1):
        cheapest_best = np.zeros(n, dtype=np.int64)
        for c in range(1, n):
            cheapest_best[c] = c if total[c] > total[cheapest_best[c - 1]] + 1e-15 else cheapest_best[c - 1]
        follow.append(cheapest_best)
        total = np.where(holds[k], weights[k] * accuracy + total[cheapest_best], -np.inf)
    first = int(np.argmax(total))
    assignment = [first]
    for cheapest_best in reversed(follow):
        assignment.append(int(cheapest_best[assignment[-1]]))
    return assignment


# Give load ranges that the trace never visits the best cascade that holds there.
#
# No replay tests such ranges. A search that weighs ranges by the trace leaves them what visited
# ranges needed: one cascade for all loads, for example, or the cheapest.

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
