"""Choices of candidates for load ranges, the plans made from them on one placement, and local search among them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.gear import GearPlan, GearPrediction, LoadRange
from gearshift.planner.evaluate.assemble import assemble
from gearshift.planner.evaluate.cells import Batching
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.capacities import Capacities
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.request import PlanRequest, load_ranges, safe_margin


class Constant(NamedTuple):
    """One gear for all loads up to `to_qps`, except in ranges with more expensive candidates."""

    candidate: int
    to_qps: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate per range, planned for `margin` times the load, and its accuracy on part A."""

    assignment: tuple[int, ...]
    margin: float
    alpha: float
    accuracy: float
    gains: dict[int, float] = field(default_factory=dict, hash=False)
    """Replayed gain by range, where a more expensive cascade was used than steady state allowed."""
    constant: Constant | None = None
    """Replaces the ranges below its end that have its candidate."""


@dataclass(frozen=True, slots=True)
class _Row:
    load_range: LoadRange
    load_qps: float
    candidate: CandidateCascade
    batching: Batching
    gain: float | None = None


class PlanMaker:
    """Makes the plans of choices among `candidates` (by rising work) on the placement of `steady`.

    Ranges with `upper_ends` (ranges,) are planned for loads `planned_qps` (ranges,).
    """

    def __init__(
        self,
        request: PlanRequest,
        steady: SteadyState,
        candidates: Sequence[CandidateCascade],
        upper_ends: NDArray[np.float64],
        planned_qps: NDArray[np.float64],
    ) -> None:
        self._request, self._steady, self._candidates = request, steady, candidates
        self._upper_ends, self._planned_qps = upper_ends, planned_qps

    def plan_of(self, choice: Choice, *, predicted: bool = True) -> GearPlan:
        gears = [
            self._steady.gear(
                row.load_range, row.candidate.cascade, row.batching, self._prediction(row) if predicted else None
            )
            for row in self._rows(choice)
        ]
        return assemble(self._request, self._steady.placement, gears, alpha=choice.alpha)

    def key(self, choice: Choice) -> Hashable:
        """Equal for choices whose plans serve alike."""
        rows = self._rows(choice)
        gears = tuple((row.load_range.to, row.candidate.cascade, row.batching) for row in rows)
        return self._request.trace, self._request.hardware, self._steady.placement, gears, choice.alpha

    def _rows(self, choice: Choice) -> list[_Row]:
        ranges, loads_qps = load_ranges(self._upper_ends), self._planned_qps.tolist()
        if choice.constant is None:
            loads = zip(ranges, loads_qps, choice.assignment, strict=True)
            return [self._row(range_, qps, c, choice.gains.get(k)) for k, (range_, qps, c) in enumerate(loads)]
        constant, to_qps = choice.constant
        top_qps, first = float(self._request.upper_ends()[-1]), choice.assignment.index(constant)
        rows = [self._row(*row) for row in zip(ranges[:first], loads_qps, choice.assignment, strict=False)]
        one_gear = LoadRange(from_=ranges[first].from_, to=to_qps)
        rows.append(self._row(one_gear, min(top_qps, to_qps), constant))
        for range_, qps, c in zip(ranges, loads_qps, choice.assignment, strict=True):
            if range_.to is None or range_.to > to_qps:
                beyond = LoadRange(from_=max(range_.from_, to_qps), to=range_.to)
                own_qps = qps if beyond.from_ < qps else top_qps  # else above all planned loads
                rows.append(self._row(beyond, own_qps, 0 if range_.to is None else c))
        return rows

    def _row(self, load_range: LoadRange, load_qps: float, c: int, gain: float | None = None) -> _Row:
        candidate = self._candidates[c]
        tuned_qps = load_qps * max(1.0, safe_margin(self._request))
        return _Row(load_range, load_qps, candidate, self._steady.batching(candidate.cascade, tuned_qps), gain)

    def _prediction(self, row: _Row) -> GearPrediction:
        cell = self._steady.cell(row.candidate.cascade, row.load_qps, row.batching)
        return cell.prediction(row.load_qps, row.candidate.accuracy, replayed_gain=row.gain)


# Local search: more expensive cascades per range, where a replay of the trace holds and gains.

IMPROVING_STEPS = (0.1, 0.03, 0.0)
"""Step sizes, as shares of the candidates: how far above the present cascade to try; at least the
next."""
SELDOM = 1e-4
"""Ranges with a smaller share of requests are left alone."""
IMPROVING_REPLAYS = (4, 400)
IMPROVING_REQUESTS = 12_000_000
"""Requests that local search may replay, within the least and most replays above."""


def improved(
    choice: Choice,
    capacities: Capacities,
    replayed: Callable[[Choice], Choice],
    holds: Callable[[Choice], bool],
) -> list[Choice]:
    """Use more expensive cascades where the replay holds and gains accuracy.

    First the cheapest cascade of the plan is replaced everywhere, then one range at a time, those
    with the most requests first; large steps before small ones. With scope `every-range` only
    cascades that hold in steady state with the least margin are tried.
    """
    least, most = IMPROVING_REPLAYS
    weights, candidates = capacities.ranges.weights, capacities.ranges.candidates
    path: list[Choice] = []
    left = min(most, max(least, IMPROVING_REQUESTS // len(capacities.ranges.request.trace)))
    ranges = [k for k in np.argsort(-weights).tolist() if weights[k] > SELDOM and k < len(weights) - 1]
    for step in IMPROVING_STEPS:
        for k in [None, *ranges]:
            while left > 0:
                changed = _dearer(choice.assignment, k, max(1, round(step * len(candidates))), capacities)
                if changed is None:
                    break
                left -= 1
                tried = replayed(replace(choice, assignment=changed))
                if not holds(tried) or tried.accuracy <= choice.accuracy:
                    break
                gain = tried.accuracy - choice.accuracy
                raised = [r for r, (a, b) in enumerate(zip(choice.assignment, changed, strict=True)) if a != b]
                choice = replace(tried, gains=choice.gains | {r: choice.gains.get(r, 0.0) + gain for r in raised})
                path.append(choice)
    return path


def _dearer(assignment: tuple[int, ...], k: int | None, step: int, capacities: Capacities) -> tuple[int, ...] | None:
    """Raise range `k`, or with None the cheapest of visited ranges, by at least `step` candidates.

    Candidates that are not more accurate are skipped. Unvisited higher ranges keep a cascade that
    holds.
    """
    ranges, visited = capacities.ranges, capacities.ranges.highest_visited + 1
    accuracy = [c.accuracy for c in ranges.candidates]
    now = min(assignment[:visited]) if k is None else assignment[k]
    dearer = next((c for c in range(now + step, len(accuracy)) if accuracy[c] > accuracy[now]), None)
    if dearer is None:
        return None
    if ranges.request.objective.scope == "every-range" and not capacities.holds_in(
        visited - 1 if k is None else k, dearer
    ):
        return None
    kept = [r for r in range(visited, len(assignment)) if not capacities.holds_in(r, dearer)]
    return tuple(max(a, dearer) if k in (None, r) and r not in kept else a for r, a in enumerate(assignment))
