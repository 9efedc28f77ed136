"""The planner: the best accuracy within a latency percentile on given devices.

Everything is placed everywhere it fits.  Each cascade of the front gets its capacity, the highest steady load at
which it holds the objective; ranges get the best monotone assignment of cascades that hold at their upper end; and
the plan is confirmed by replaying the whole trace.  What steady state flattered is repaired by planning every range
for a margin times its load.
"""

import dataclasses
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, require
from gearshift.gear import Gear, GearPlan, GearPrediction, LoadRange
from gearshift.placement import Placement
from gearshift.planner.assemble import assemble, replay, rounded_up_s, with_predictions
from gearshift.planner.assignment import best_monotone_assignment
from gearshift.planner.cascade_search import CandidateCascade, evaluate_cascade, pareto_cascades, work_per_request_s
from gearshift.planner.confirm import SEEDS, Confirmation, workload_of
from gearshift.planner.placement_everywhere import place_everywhere
from gearshift.planner.request import LARGEST_MARGIN, PlanRequest, Progress, equal_ranges, load_ranges, silent
from gearshift.planner.steady_state import SteadyState
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.simulator.simulate import simulate

PROBE_RANGE = 4.0
PROBE_RANGES = 800
SELDOM_ABOVE = 0.998
UNVISITED_WEIGHT = 1e-6
"""So that ranges the trace does not visit get the best cascade, too."""
LEAST_MARGIN = {"every-range": 1.15, "trace": 0.5}
"""Every range is planned for at least so many times its load.  Not for 1: what a plan is tight at to the last percent,
a machine a few percent slower than when it was profiled cannot serve, and queues then grow without bound."""
CHEAPEST_EVERYWHERE = math.inf
"""The margin at which no other cascade holds anywhere."""
MARGIN_PRECISION = 0.02
ALPHAS = (8.0, 4.0, 2.0, 1.0)
"""Tried in turn: with a larger one a backlog downshifts sooner, with a smaller one accuracy is kept longer."""


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """A confirmed plan; raises `Infeasible` when none meets the objective."""
    require(request.objective.latency_s is not None, "the planner needs a latency objective", remedy="give --p95-ms")
    require(
        request.objective.accuracy is None and request.objective.confidence is None,
        "this planner takes no accuracy objective yet",
        remedy="give a latency objective alone",
    )
    return plan_with(request, progress=progress)


def plan_with(
    request: PlanRequest,
    *,
    candidates: Sequence[CandidateCascade] | None = None,
    placement: Placement | None = None,
    planner: str = "optimal",
    progress: Progress = silent,
) -> GearPlan:
    """The confirmed plan of restricted planners: of these `candidates` (by rising work) on this `placement` only.

    None leaves the choice to this planner.  Raises `Infeasible` when no plan meets the objective.
    """
    made = _Search(request, progress, candidates=candidates, placement=placement).run()
    return msgspec.structs.replace(made, planner=planner)


def single_model_plan(request: PlanRequest, model: str) -> GearPlan:
    """The baseline of one model at all loads, whether or not it meets the objective; its largest batch is chosen."""
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    candidate = evaluate_cascade(Cascade(models=(model,)), request.profile.predictions, work_s, part=PART_A)
    search = _Search(dataclasses.replace(request, ranges=1), silent)
    return with_predictions(msgspec.structs.replace(search.build([candidate]), planner="single"), request)


_Row = tuple[LoadRange, CandidateCascade, int, GearPrediction | None]


@dataclass(frozen=True, slots=True)
class _Repair:
    """A margin and an alpha with which the trace holds, and the accuracy they give on part A."""

    margin: float
    alpha: float
    accuracy: float


class _Search:
    """One search: the steady-state table, the capacities, and the plans made from them."""

    def __init__(
        self,
        request: PlanRequest,
        progress: Progress,
        *,
        candidates: Sequence[CandidateCascade] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.request, self.progress = request, progress
        self.placement: Placement = placement or place_everywhere(request.profile, request.hardware)
        self.steady = SteadyState(
            request.profile, request.hardware, self.placement, request.objective, seed=request.seed
        )
        self.upper_ends = request.upper_ends()
        self.candidates = list(candidates or ())
        self.capacities: NDArray[np.float64] = np.zeros(0)
        self.weights: NDArray[np.float64] = np.zeros(0)

    def run(self) -> GearPlan:
        """Search, confirm, repair."""
        request = self.request
        work_s = work_per_request_s(request.profile, request.hardware.devices[0])
        self.progress("searching cascades", 0.0)
        if not self.candidates:
            placed = {model: work_s[model] for model in self.placement.models}
            self.candidates = pareto_cascades(request.profile, placed, most=request.most_candidates)
        every_range = request.objective.scope == "every-range"
        if every_range and not self.steady.holds(self.candidates[0].cascade, float(self.upper_ends[-1])):
            raise self._infeasible()
        if request.max_qps is None:
            self._raise_top()
        self.capacities = self._capacities()
        cheapest = self.build([self.candidates[0]] * len(self.upper_ends))
        self.weights = self._metered(cheapest) + UNVISITED_WEIGHT
        repairs = [repair for alpha in ALPHAS if (repair := self._least_repair(alpha)) is not None]
        self.progress("confirming", 0.95)
        for repair in sorted(repairs, key=lambda r: -r.accuracy):
            confirmed = self._confirmed(repair)
            if confirmed is not None:
                self.progress("confirmed", 1.0)
                return confirmed
        raise self._infeasible()

    def build(self, assigned: Sequence[CandidateCascade], alpha: float = ALPHAS[0]) -> GearPlan:
        """The plan with one cascade per range, each with the largest batch that serves its upper end best."""
        rows = []
        for load_range, load_qps, candidate in zip(
            load_ranges(self.upper_ends), self.upper_ends.tolist(), assigned, strict=True
        ):
            size, cell = self.steady.best(candidate.cascade, load_qps)
            predicted = GearPrediction(
                load_qps=load_qps,
                accuracy=candidate.accuracy,
                latency_p95_s=cell.latency_s,
                share_late=cell.share_late,
                utilisation=cell.utilisation,
            )
            rows.append((load_range, candidate, size, predicted))
        return self._plan_of(rows, alpha)

    def _plan_of(self, rows: Sequence[_Row], alpha: float = ALPHAS[0]) -> GearPlan:
        """The plan with these gears: range, cascade, largest batch, and what is predicted."""
        gears = [
            Gear(
                load_range=load_range,
                cascade=candidate.cascade,
                replicas=self.steady.settings(candidate.cascade, size),
                predicted=predicted,
            )
            for load_range, candidate, size, predicted in rows
        ]
        return assemble(self.request, self.placement, gears, planner="optimal", alpha=alpha)

    def _raise_top(self) -> None:
        """Raise the top of the ranges so that noise of the meter seldom reaches the last range, which is the cheapest.

        At 300 requests/s a window of 100 ms holds 30 arrivals, give or take 5: a top of 1.2 times the peak second
        would hand a sixth of the peak's requests to the cheapest cascade.  The metered load is the simulator's own.
        """
        cheapest, top_qps = self.candidates[0], float(self.upper_ends[-1])
        fine = equal_ranges(PROBE_RANGE * top_qps, PROBE_RANGES)
        size, _ = self.steady.best(cheapest.cascade, top_qps)
        made = self._plan_of([(load_range, cheapest, size, None) for load_range in load_ranges(fine)])
        arrived = np.cumsum(self._metered(made))
        wanted = float(fine[min(PROBE_RANGES - 1, int(np.searchsorted(arrived, SELDOM_ABOVE * arrived[-1])))])
        wanted *= len(self.upper_ends) / max(1, len(self.upper_ends) - 1)
        capacity = self.steady.capacity_qps(cheapest.cascade, least_qps=top_qps, most_qps=max(top_qps, wanted))
        self.upper_ends = equal_ranges(max(top_qps, min(wanted, capacity)), len(self.upper_ends))

    def _metered(self, made: GearPlan) -> NDArray[np.float64]:
        """The share (ranges,) of the trace's arrivals metered in each range."""
        workload = workload_of(self.request.trace, self.request.profile, part=PART_A, seed=0)
        return simulate(made, self.request.profile, workload).arrived_in_gear / len(workload)

    def _capacities(self) -> NDArray[np.float64]:
        least, most = float(self.upper_ends[0]), float(self.upper_ends[-1]) * LARGEST_MARGIN
        done = 0

        def capacity(candidate: CandidateCascade) -> float:
            nonlocal done
            bound = 1.05 * len(self.request.hardware.devices) / candidate.work_s
            found = self.steady.capacity_qps(candidate.cascade, least_qps=least, most_qps=max(least, min(most, bound)))
            done += 1
            self.progress("simulating steady load", 0.9 * done / len(self.candidates))
            return found

        with ThreadPoolExecutor() as pool:
            return np.array(list(pool.map(capacity, self.candidates)))

    def _assigned(self, margin: float, alpha: float) -> GearPlan:
        """The plan for `margin` times the load; the last range, which has no upper end, gets the cheapest cascade."""
        highest = np.searchsorted(self.upper_ends * margin, self.capacities, side="right") - 1
        highest[0] = len(self.upper_ends) - 1
        assignment = best_monotone_assignment(self.candidates, highest.tolist(), self.weights)
        return self.build([self.candidates[c] for c in [*assignment[:-1], 0]], alpha)

    def _least_repair(self, alpha: float) -> _Repair | None:
        """The smallest margin whose plan holds on the trace as it is, by bisection; None when none does."""

        def replayed(margin: float) -> _Repair | None:
            made = self._assigned(margin, alpha)
            replay = self._replay(made, part=PART_A, seeds=1)
            return _Repair(margin, alpha, replay.result.accuracy) if self._holds(replay) else None

        low, high = self.request.least_margin or LEAST_MARGIN[self.request.objective.scope], LARGEST_MARGIN
        if (least := replayed(low)) is not None:
            return least
        if (found := replayed(high)) is None:
            return replayed(CHEAPEST_EVERYWHERE)
        while high > low * (1 + MARGIN_PRECISION):
            middle = (low + high) / 2
            if (tried := replayed(middle)) is None:
                low = middle
            else:
                high, found = middle, tried
        return found

    def _confirmed(self, repair: _Repair) -> GearPlan | None:
        """The repaired plan when it holds on all seeds, on part A and then on part B; margins rise until it does."""
        margin = repair.margin
        while True:
            made = self._assigned(margin, repair.alpha)
            if self._holds(self._replay(made, part=PART_A, seeds=SEEDS)):
                predicted = self._replay(made, part=PART_B, seeds=SEEDS)
                if self._holds(predicted):
                    name = self.request.profile.operator
                    return msgspec.structs.replace(made, predictions={name: predicted.result})
            if margin == CHEAPEST_EVERYWHERE:
                return None
            margin *= 1 + 2 * MARGIN_PRECISION
            if margin > LARGEST_MARGIN:
                margin = CHEAPEST_EVERYWHERE

    def _holds(self, replay: Confirmation) -> bool:
        return replay.share_late_bound() <= 1 - self.request.objective.percentile

    def _replay(self, made: GearPlan, *, part: int, seeds: int) -> Confirmation:
        return replay(made, self.request, part=part, seeds=seeds)

    def _nearest_s(self, least_s: float) -> float:
        """A round latency objective above `least_s` that the cheapest cascade meets on all replays."""
        made = self.build([self.candidates[0]] * len(self.upper_ends))
        replays = [self._replay(made, part=part, seeds=SEEDS) for part in (PART_A, PART_B)]
        spread_s = max(float(r.latency_s.max() + r.latency_s.std()) for r in replays)
        return rounded_up_s(1.05 * max(least_s, spread_s))

    def _infeasible(self) -> Infeasible:
        """Why, and the nearest latency objective that the cheapest cascade meets on the ranges and on the trace."""
        cheapest, top = self.candidates[0], float(self.upper_ends[-1])
        _, cell = self.steady.best(cheapest.cascade, top)
        last = LoadRange(from_=float(self.upper_ends[-2]) if len(self.upper_ends) > 1 else 0.0)
        bottleneck = max(cheapest.cascade.models, key=lambda m: work_share(cheapest, self.request.profile, m))
        devices = len(self.request.hardware.devices)
        if not cell.stable:
            needed = math.ceil(cheapest.work_s * top / 0.9)
            return Infeasible(
                f"{devices} device{'s' * (devices > 1)} cannot carry {top:.4g} requests/s with the cheapest cascade, "
                f"about {max(needed, devices + 1)} could",
                load_range=str(last),
                bottleneck=bottleneck,
            )
        nearest_s = self._nearest_s(max(cell.latency_s, self.request.latency_s))
        return Infeasible(
            f"no cascade keeps {self.request.objective.percentile:.4g} of requests within "
            f"{self.request.latency_s * 1e3:.4g} ms on {devices} device{'s' * (devices > 1)}",
            load_range=str(last),
            bottleneck=bottleneck,
            nearest_latency_s=nearest_s,
        )


def work_share(candidate: CandidateCascade, profile: Profile, model: str) -> float:
    """Seconds per request that a cascade spends in one of its models, at batch 1."""
    curve = next(c for c in profile.curves if c.model == model)
    return candidate.reach[candidate.cascade.models.index(model)] * curve.seconds(curve.batch_sizes[0])
