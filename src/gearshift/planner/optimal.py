"""Our planner, the default: exact assignment on simulated tables, placements by a bound, everything confirmed.

- a latency objective: the most accurate plan that keeps it (`slo_search`), on the best few placements;
- an accuracy objective: the plan with the lowest latency that keeps it, by bisection over latency objectives;
- both: the fewest devices (the least price per hour) on which both are kept;
- `frontier`: all of it, for latency objectives from the fastest model's run time up.

Simulated cells are shared between objectives.  `docs/planners/optimal.md` gives the reasons.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, require
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.assemble import replay, with_predictions
from gearshift.planner.cascade_search import CandidateCascade, evaluate_cascade, pareto_cascades, work_per_request_s
from gearshift.planner.metered import metered_loads, shares_of_ranges
from gearshift.planner.pareto import undominated
from gearshift.planner.placement_search import PlacementSearch
from gearshift.planner.request import PlanRequest, Progress, silent
from gearshift.planner.slices import plan_by_slices, slices_of
from gearshift.planner.slo_search import SloSearch
from gearshift.planner.steady_state import SteadyState
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import lower_confidence_bound

NAME = "optimal"
LAYOUTS = 3
"""How many of the placements that are best in the bound are planned on."""
LADDER_STEP = 1.08
COARSE_POINTS = 5
FRONTIER_POINTS = 14
"""How many latency objectives a frontier is planned for; the first few evenly, the rest where most is open."""
SLOWEST_FACTOR = 12.0
CERTIFICATES = 3
"""How many plans may be held against part B; with a confidence each gets its part of the level."""


class OutOfTime(Exception):
    """The budget is spent."""


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """A confirmed plan; raises `Infeasible` when none meets the objective."""
    return plan_with(request, progress=progress)


def plan_with(
    request: PlanRequest,
    *,
    candidates: Sequence[CandidateCascade] | None = None,
    placement: Placement | None = None,
    planner: str = NAME,
    progress: Progress = silent,
) -> GearPlan:
    """The confirmed plan of restricted planners: of these `candidates` (by rising work) on this `placement` only.

    None leaves the choice to this planner.  When the budget is spent, or at Ctrl-C, the best plan so far is answered,
    marked unfinished.  Raises `Infeasible` when no plan meets the objective.
    """
    objective = request.objective
    require(
        objective.latency_s is not None or objective.accuracy is not None,
        "there is no objective",
        remedy="give --p95-ms, --accuracy, or both",
    )
    require(
        objective.confidence is None or objective.accuracy is not None,
        "a confidence is given without an accuracy",
        remedy="give --accuracy, too",
    )
    slices = 1 if placement is not None or objective.accuracy is not None else slices_of(request)
    if slices > 1:
        return plan_by_slices(
            request, slices, lambda part: plan_with(part, candidates=candidates, planner=planner, progress=progress)
        )
    search = _Planner(request, progress, candidates=candidates, placement=placement)
    try:
        if objective.latency_s is None:
            made = search.fastest()
        elif objective.accuracy is None:
            made = search.most_accurate(request)
        else:
            made = search.fewest()
    except (KeyboardInterrupt, OutOfTime) as error:
        unfinished = search.unfinished()
        if unfinished is None:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Infeasible(f"no plan was found within the budget of {request.budget_s:g} s") from None
        made = unfinished
    return msgspec.structs.replace(made, planner=planner)


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """Confirmed plans by rising latency, none dominated, each for its own latency objective."""
    return frontier_with(request, progress=progress)


def frontier_with(
    request: PlanRequest,
    *,
    candidates: Sequence[CandidateCascade] | None = None,
    placement: Placement | None = None,
    planner: str = NAME,
    latencies_s: Sequence[float] = (),
    progress: Progress = silent,
) -> list[GearPlan]:
    """`frontier` for restricted planners, at `latencies_s` where they are given."""
    search = _Planner(request, progress, candidates=candidates, placement=placement)
    found: list[GearPlan] = []
    try:
        for made in search.along(latencies_s) if latencies_s else search.spread():
            found.append(msgspec.structs.replace(made, planner=planner))  # noqa: PERF401  what there is at Ctrl-C stays
    except (KeyboardInterrupt, OutOfTime):
        found = [msgspec.structs.replace(made, unfinished=True) for made in found]
        if not found:
            raise Infeasible("no plan was found in time") from None
    name = request.profile.operator
    results = [made.predictions[name] for made in found]
    points = [
        (made.operators[name].objective.latency_s or 0.0, r.accuracy) for made, r in zip(found, results, strict=True)
    ]
    return [found[i] for i in undominated(points)]


def single_model_plan(request: PlanRequest, model: str) -> GearPlan:
    """The baseline of one model at all loads, whether or not it meets the objective; its largest batch is chosen."""
    candidate = _evaluated(request, Cascade(models=(model,)))
    search = _Planner(dataclasses.replace(request, ranges=1), silent, candidates=[candidate])
    one = search.searches(search.request)[0]
    return with_predictions(msgspec.structs.replace(one.build([0]), planner="single"), request)


class _Planner:
    """What all objectives share: candidates, placements, simulated cells and the clock."""

    def __init__(
        self,
        request: PlanRequest,
        progress: Progress,
        *,
        candidates: Sequence[CandidateCascade] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.request, self.progress = request, progress
        self._given_candidates, self._given_placement = candidates, placement
        self._candidates: dict[tuple[str, ...], list[CandidateCascade]] = {}
        self._steady: dict[tuple[Hardware, Placement], SteadyState] = {}
        self._current: SloSearch | None = None
        self._kept: GearPlan | None = None
        self._accuracy_on_a = 0.0
        self._ends_s = math.inf if request.budget_s is None else time.monotonic() + request.budget_s

    # The three objectives.

    def most_accurate(self, request: PlanRequest, *, explain: bool = True) -> GearPlan:
        """The most accurate plan within the latency objective, over the best placements.

        Without `explain`, what is infeasible is not examined for the nearest objective, which takes replays.
        """
        feasible, infeasible = [], []
        for search in self.searches(request):
            self._current, search.explain = search, explain
            try:
                feasible.append((search.steady_accuracy(), search))
            except Infeasible as error:
                infeasible.append(error)
        for _, search in sorted(feasible, key=lambda f: -f[0]):
            self._current = search
            try:
                made = search.confirmed()
                self._accuracy_on_a = search.choices()[0].accuracy
                return made
            except Infeasible as error:
                infeasible.append(error)
        raise min(infeasible, key=lambda e: e.nearest_latency_s or math.inf)

    def fastest(self) -> GearPlan:
        """The lowest latency objective at which the accuracy objective is kept."""
        ladder = self.ladder()
        target, n = self.request.objective.accuracy or 0.0, len(self.request.profile.predictions.indices(PART_B))
        known: dict[int, float] = {}

        def reached(step: int) -> float:
            if step not in known:
                known[step] = self._accuracy_within(ladder[step])
            return known[step]

        needed, best = target, 0.0
        for _ in range(CERTIFICATES):
            if self._certain(reached(len(ladder) - 1), n) < needed:
                raise self._out_of_reach(best or known[len(ladder) - 1])
            low, high = -1, len(ladder) - 1
            while high > low + 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._certain(reached(middle), n) >= needed else (middle, high)
            made = self.most_accurate(self._asked(latency_s=ladder[high]))
            kept = self._kept_accuracy(made)
            if kept >= target:
                return self._for_objective(made, self.request.objective)
            needed, best = max(needed, self._certain(known[high], n)) + target - kept, max(best, kept)
        raise self._out_of_reach(best)

    def fewest(self) -> GearPlan:
        """The cheapest hardware, of the request's devices, on which latency and accuracy are both kept."""
        target, best, refused = self.request.objective.accuracy or 0.0, 0.0, None
        for hardware in _by_price(self.request.hardware):
            self.on_time()
            request = dataclasses.replace(self._asked(latency_s=self.request.latency_s), hardware=hardware)
            if not self._may_reach(request, target):
                continue
            try:
                made = self.most_accurate(request)
            except Infeasible as error:
                refused = error
                continue
            best = max(best, self._kept_accuracy(made))
            if self._kept_accuracy(made) >= target:
                return self._for_objective(made, self.request.objective)
        if best == 0.0 and refused is not None:
            raise refused
        raise self._out_of_reach(best)

    def along(self, latencies_s: Sequence[float]) -> Iterator[GearPlan]:
        """A confirmed plan for each latency objective that has one; raises `Infeasible` where none has."""
        found = False
        for i, latency_s in enumerate(latencies_s):
            self.progress(f"planning for {latency_s * 1e3:.3g} ms", i / len(latencies_s))
            try:
                yield self.most_accurate(self._asked(latency_s=latency_s), explain=False)
                found = True
            except Infeasible:
                continue
        if not found:
            yield self.most_accurate(self._asked(latency_s=max(latencies_s)))

    def spread(self) -> Iterator[GearPlan]:
        """Confirmed plans for objectives where they are worth most.

        After a few even steps, each next objective halves the gap between two neighbours that leaves the most
        hypervolume open: the ratio of their latencies, on a log scale, times the difference of their accuracies.
        Raises `Infeasible` where even the loosest has none.
        """
        floor = min(_evaluated(self.request, Cascade(models=(m,))).accuracy for m in self.request.profile.models)
        lowest_s, *_, loosest_s = self.ladder()
        try:
            yield self.most_accurate(self._asked(latency_s=loosest_s))
        except Infeasible as error:
            if error.nearest_latency_s is None:
                raise
            loosest_s = 2 * error.nearest_latency_s
            yield self.most_accurate(self._asked(latency_s=loosest_s))
        known = {loosest_s: self._accuracy_on_a}
        coarse = np.geomspace(loosest_s, lowest_s, COARSE_POINTS).tolist()
        while len(known) < FRONTIER_POINTS:
            if len(known) < COARSE_POINTS:
                latency_s = coarse[len(known)]
            else:
                ends = sorted(known)
                gaps = [math.log(b / a) * (known[b] - known[a]) for a, b in pairwise(ends)]
                widest = int(np.argmax(gaps))
                if gaps[widest] <= 0:
                    return
                latency_s = math.sqrt(ends[widest] * ends[widest + 1])
            self.progress(f"planning for {latency_s * 1e3:.3g} ms", len(known) / FRONTIER_POINTS)
            known[latency_s] = floor
            try:
                made = self.most_accurate(self._asked(latency_s=latency_s), explain=False)
            except Infeasible:
                continue
            known[latency_s] = self._accuracy_on_a
            yield made

    def unfinished(self) -> GearPlan | None:
        """The best plan so far, with what one replay predicts for it."""
        made = self._kept or (self._current.unconfirmed() if self._current else None)
        if made is None:
            return None
        result = replay(made, self.request, part=PART_B, seeds=1).result
        return msgspec.structs.replace(made, unfinished=True, predictions={self.request.profile.operator: result})

    # Their parts.

    def on_time(self) -> None:
        """Raise `OutOfTime` when the budget is spent."""
        if time.monotonic() > self._ends_s:
            raise OutOfTime

    def searches(self, request: PlanRequest) -> list[SloSearch]:
        """A search for each placement that is worth one."""
        searches = []
        for placement in self._placements(request):
            key = (request.hardware, placement)
            if key not in self._steady:
                self._steady[key] = SteadyState(
                    request.profile, request.hardware, placement, request.objective, seed=request.seed
                )
            steady = self._steady[key].judged_by(request.objective)
            models = set(placement.models)
            placed = [c for c in self.candidates(request, placement.models) if models.issuperset(c.cascade.models)]
            if placed:
                searches.append(SloSearch(request, steady, placed, progress=self.progress, on_time=self.on_time))
        if not searches:
            raise Infeasible("none of the cascades has all its models on the devices")
        return searches

    def candidates(self, request: PlanRequest, models: tuple[str, ...]) -> list[CandidateCascade]:
        """The cascades to choose from where these models are placed."""
        if self._given_candidates is not None:
            return list(self._given_candidates)
        if models not in self._candidates:
            self.progress("searching cascades", 0.0)
            work_s = work_per_request_s(request.profile, request.hardware.devices[0])
            self._candidates[models] = pareto_cascades(
                request.profile, {m: work_s[m] for m in models}, most=request.most_candidates
            )
        return self._candidates[models]

    def _placements(self, request: PlanRequest) -> list[Placement]:
        if self._given_placement is not None:
            return [self._given_placement]
        search = PlacementSearch(request.profile, request.hardware)
        fitting = tuple(sorted({m for c in search.classes for p in c.patterns for m, _ in p}))
        loads, weights = _metered_loads(request)
        layouts = search.best(
            self.candidates(request, fitting), loads, weights, latency_s=request.latency_s, most=LAYOUTS
        )
        return [search.placement(layout) for layout in layouts]

    def _may_reach(self, request: PlanRequest, accuracy: float) -> bool:
        """Whether the bound leaves hope for that accuracy on this hardware."""
        search = PlacementSearch(request.profile, request.hardware)
        fitting = tuple(sorted({m for c in search.classes for p in c.patterns for m, _ in p}))
        loads, weights = _metered_loads(request)
        best = search.most_accuracy(self.candidates(request, fitting), loads, weights, latency_s=request.latency_s)
        return best >= accuracy - 0.02

    def ladder(self, points: int | None = None) -> list[float]:
        """Latency objectives from the fastest model's run time up, a factor apart that gives so many `points`."""
        curves = [c for c in self.request.profile.curves if c.segment == 0]
        front_end_s = self.request.profile.front_end_s
        low = 1.1 * min(c.seconds(c.batch_sizes[0]) for c in curves) + front_end_s
        slowest = max(
            max(SLOWEST_FACTOR * c.seconds(c.batch_sizes[0]), 2 * c.seconds(c.batch_sizes[-1])) for c in curves
        )
        high = slowest + (1 + SLOWEST_FACTOR) * front_end_s
        steps = math.ceil(math.log(high / low) / math.log(LADDER_STEP)) if points is None else points - 1
        return [float(s) for s in np.geomspace(low, high, steps + 1)]

    def _asked(self, *, latency_s: float) -> PlanRequest:
        objective = msgspec.structs.replace(self.request.objective, latency_s=latency_s, accuracy=None, confidence=None)
        return dataclasses.replace(self.request, objective=objective)

    def _accuracy_within(self, latency_s: float) -> float:
        """The accuracy on part A of the best unconfirmed plan; 0 where there is none."""
        best = 0.0
        for search in self.searches(self._asked(latency_s=latency_s)):
            self._current = search
            try:
                best = max(best, search.choices()[0].accuracy)
            except Infeasible:
                continue
        return best

    def _certain(self, accuracy: float, n: int) -> float:
        """The accuracy that can be claimed: the estimate, or its lower bound where a confidence is asked for."""
        confidence = self.request.objective.confidence
        if confidence is None:
            return accuracy
        return lower_confidence_bound(accuracy, n, 1 - (1 - confidence) / CERTIFICATES)

    def _kept_accuracy(self, made: GearPlan) -> float:
        result = made.predictions[self.request.profile.operator]
        n = min(result.requests, len(self.request.profile.predictions.indices(PART_B)))
        return self._certain(result.accuracy, n)

    def _for_objective(self, made: GearPlan, objective: Objective) -> GearPlan:
        name = self.request.profile.operator
        latency_s = made.operators[name].objective.latency_s
        asked = msgspec.structs.replace(objective, latency_s=latency_s)
        operator = msgspec.structs.replace(made.operators[name], objective=asked)
        return msgspec.structs.replace(made, operators={name: operator})

    def _out_of_reach(self, best: float) -> Infeasible:
        objective = self.request.objective
        devices = len(self.request.hardware.devices)
        within = "" if objective.latency_s is None else f" within {objective.latency_s * 1e3:.4g} ms"
        certain = "" if objective.confidence is None else f" with confidence {objective.confidence:g}"
        return Infeasible(
            f"no plan on {devices} device{'s' * (devices > 1)} has an accuracy of {objective.accuracy:g}{certain}"
            f"{within}; the best that was found has {best:.4f}",
            bottleneck=max(
                self.request.profile.models, key=lambda m: _evaluated(self.request, Cascade(models=(m,))).accuracy
            ),
        )


def _evaluated(request: PlanRequest, cascade: Cascade) -> CandidateCascade:
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    return evaluate_cascade(cascade, request.profile.predictions, work_s, part=PART_A)


def _metered_loads(request: PlanRequest) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The trace's metered loads (32,) in requests/s, and the share of requests that meet each."""
    rates, _ = metered_loads(request.trace)
    ends = max(1.0, float(rates.max())) * np.arange(1, 33) / 32
    return ends, shares_of_ranges(request.trace, ends)


def _by_price(hardware: Hardware) -> Iterator[Hardware]:
    """Parts of the hardware by rising price, alike devices in their order; of equal prices the fewest devices first."""
    alike: dict[tuple[object, ...], list[Device]] = {}
    for d in hardware.devices:
        alike.setdefault((d.kind, d.cores, d.memory_bytes, d.price_per_hour, d.node), []).append(d)
    groups = list(alike.values())
    options = []
    for counts in product(*(range(len(group) + 1) for group in groups)):
        if sum(counts) > 0:
            price = sum(n * group[0].price_per_hour for n, group in zip(counts, groups, strict=True))
            options.append((price, sum(counts), counts))
    for _, _, counts in sorted(options):
        yield Hardware(devices=tuple(d for n, group in zip(counts, groups, strict=True) for d in group[:n]))
