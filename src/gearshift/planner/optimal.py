"""Our planner, the default: exact assignment on simulated tables, placements by a bound, everything confirmed.

- a latency objective: the most accurate plan that keeps it (`slo_search`), on the best few placements;
- an accuracy objective: the plan with the lowest latency that keeps it, by bisection over latency objectives;
- both: the fewest devices (the least price per hour) on which both are kept;
- `frontier`: all of it, for latency objectives from the fastest model's run time up.

One cascade at all loads, single models, and the plan for one device less are candidates of every plan, so that none
of them is more accurate.  Simulated cells are shared between objectives.  `docs/planners/optimal.md` gives the reasons.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.assemble import replay, with_predictions
from gearshift.planner.baselines.candidates import single_models
from gearshift.planner.baselines.ladder import accuracy_on_part_a
from gearshift.planner.cascade_search import (
    CandidateCascade,
    evaluate_cascade,
    most_accurate_model,
    pareto_cascades,
    work_per_request_s,
)
from gearshift.planner.metered import metered_loads, shares_of_ranges
from gearshift.planner.pareto import undominated
from gearshift.planner.placement_search import PlacementSearch
from gearshift.planner.request import PlanRequest, Progress, load_ranges, silent
from gearshift.planner.slices import plan_by_slices, slice_of, slices_of
from gearshift.planner.slo_search import SloSearch
from gearshift.planner.steady_state import SteadyState
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import lower_confidence_bound

NAME = "optimal"
LAYOUTS = 3
MOST_LESS = 8
"""Up to so many devices the plan for one device less is looked at, too."""
SAME_ACCURACY = 1e-3
PROBED = (1.0, 0.75, 0.5)
"""Where on the ladder of latencies the highest accuracy is looked for; a tighter latency can have a better plan."""
MOST_PARTS = 4096
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
    progress("planned", 1.0)
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
        if not found and (only := search.unfinished()) is not None:
            found = [msgspec.structs.replace(only, planner=planner)]
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
        self._made: dict[tuple[object, ...], GearPlan] = {}
        self._kept: GearPlan | None = None
        self._accuracy_on_a = 0.0
        self._quick = False
        self._ends_s = math.inf if request.budget_s is None else time.monotonic() + request.budget_s

    # The three objectives.

    def most_accurate(self, request: PlanRequest, *, on_fewer: bool = True, quick: bool = False) -> GearPlan:
        """The most accurate plan on part A within the latency objective.

        Where nothing restricts the planner, single models alone are tried, too; and so is one device less (with
        `on_fewer`), so that a device more never costs accuracy.  `quick`, for one of many objectives, neither does that
        nor examines what is infeasible for the nearest objective, which takes replays.
        """
        self._quick = quick
        if quick:
            return self._on_best_placements(request, -1.0)
        key = request.hardware, request.objective, request.least_margin, len(request.trace), on_fewer
        if key not in self._made:
            self._made[key] = self._best(request, on_fewer=on_fewer)
        return self._made[key]

    def _best(self, request: PlanRequest, *, on_fewer: bool) -> GearPlan:
        restricted = self._given_candidates is not None or self._given_placement is not None
        ways: list[Callable[[PlanRequest, float], GearPlan | None]] = [self._on_best_placements]
        if not restricted:
            ways += [self._of_single_models] + [self._on_one_device_less] * on_fewer
        best: GearPlan | None = None
        accuracy = -1.0
        refused: list[Infeasible] = []
        for way in ways:
            try:
                found = way(request, accuracy)
            except Infeasible as error:
                refused.append(error)
                continue
            if found is not None and (reached := accuracy_on_part_a(found, request)) > accuracy:
                best, accuracy = found, reached
                if request is self.request:
                    self._kept = best
        if best is None:
            raise min(refused, key=lambda e: e.nearest_latency_s or math.inf)
        return best

    def _on_best_placements(self, request: PlanRequest, _: float) -> GearPlan:
        slices = 1 if self._given_placement is not None else slices_of(request)
        if slices > 1:
            return self._by_slices(request, slices)
        feasible, infeasible = [], []
        for search in self.searches(request):
            self._current, search.explain = search, not self._quick
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

    def _by_slices(self, request: PlanRequest, slices: int) -> GearPlan:
        """The plan made for a slice, unless one cascade at all loads is more accurate on the whole."""
        searches, most = self.searches(request), self._ceiling(request) - SAME_ACCURACY
        for search in searches:
            if (made := search.constant(most)) is not None:
                return made
        refused: Infeasible | None = None
        best, above = None, -1.0
        try:
            best = plan_by_slices(request, slices, lambda part: self.most_accurate(part, on_fewer=False))
            above = accuracy_on_part_a(best, request)
        except Infeasible as error:
            refused = error
        for search in searches:
            if (made := search.constant(above)) is not None and (found := accuracy_on_part_a(made, request)) > above:
                best, above = made, found
        if best is None:
            raise refused or Infeasible("no cascade holds on the devices")
        return best

    def _of_single_models(self, request: PlanRequest, above: float) -> GearPlan | None:
        """Without cascades, and without the cheapest models, where that may be more accurate than `above`."""
        models = single_models(request)
        best: GearPlan | None = None
        for cheapest in range(len(models) if slices_of(request) == 1 else 0):
            if max(m.accuracy for m in models[cheapest:]) <= above:
                break
            for search in self.searches(request, models[cheapest:]):
                try:
                    made = search.confirmed() if search.most_accuracy() > above else None
                except Infeasible:
                    continue
                if made is not None and (accuracy := accuracy_on_part_a(made, request)) > above:
                    best, above = made, accuracy
        return best

    def _on_one_device_less(self, request: PlanRequest, above: float) -> GearPlan | None:
        """The plan that leaves the last device idle, where that may be more accurate than `above`."""
        devices = request.hardware.devices[:-1]
        if not devices or len(devices) >= MOST_LESS or above >= self._ceiling(request) - SAME_ACCURACY:
            return None
        less = dataclasses.replace(request, hardware=Hardware(devices=devices))
        try:
            made = self.most_accurate(less) if self._may_reach(less, above) else None
        except InvalidInput:  # no model fits without the last device
            return None
        if made is None:
            return None
        if accuracy_on_part_a(made, less) <= above:
            return None
        return with_predictions(msgspec.structs.replace(made, hardware=request.hardware), request)

    def _ceiling(self, request: PlanRequest) -> float:
        return max(c.accuracy for c in self.candidates(request, self._fitting(request)))

    def fastest(self) -> GearPlan:
        """The lowest latency objective at which the accuracy objective is kept."""
        ladder = self.ladder()
        target, n = self.request.objective.accuracy or 0.0, len(self.request.profile.predictions.indices(PART_B))
        known: dict[int, float] = {}

        def reached(step: int) -> float:
            if step not in known:
                known[step] = self._certain(self._accuracy_within(ladder[step]), n)
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
            made = self.most_accurate(self._asked(latency_s=ladder[high]), on_fewer=False)
            kept = self._kept_accuracy(made)
            if kept >= target and reached(high) >= target:
                return self._for_objective(made, self.request.objective)
            if high == most:
                break
            needed = max(needed, reached(high)) + target - kept
        raise self._out_of_reach(min(kept, reached(most)))

    def fewest(self) -> GearPlan:
        """The cheapest hardware, of the request's devices, on which latency and accuracy are both kept."""
        target, best, refused = self.request.objective.accuracy or 0.0, 0.0, None
        looks = CERTIFICATES if self.request.objective.confidence is not None else math.inf

        def kept_on(hardware: Hardware) -> GearPlan | None:
            nonlocal best, refused, looks
            self.on_time()
            request = dataclasses.replace(self._asked(latency_s=self.request.latency_s), hardware=hardware)
            try:
                if not self._may_reach(request, target):
                    return None
                made = self.most_accurate(request)
            except Infeasible as error:
                refused = error
                return None
            looks -= 1
            kept = self._kept_accuracy(made) if looks >= 0 else 0.0
            if kept > best:
                best, self._kept = kept, self._for_objective(made, self.request.objective)
            return self._for_objective(made, self.request.objective) if kept >= target else None

        made = _first(list(_by_price(self.request.hardware)), kept_on)
        if made is not None:
            return made
        if best == 0.0 and refused is not None:
            raise refused
        if best == 0.0:  # the bound left no hope: what there is at most
            best = self._kept_accuracy(self.most_accurate(self._asked(latency_s=self.request.latency_s)))
        raise self._out_of_reach(best)

    def along(self, latencies_s: Sequence[float]) -> Iterator[GearPlan]:
        """A confirmed plan for each latency objective that has one; raises `Infeasible` where none has."""
        found = False
        for i, latency_s in enumerate(latencies_s):
            self.progress(f"planning for {latency_s * 1e3:.3g} ms", i / len(latencies_s))
            try:
                yield self.most_accurate(self._asked(latency_s=latency_s), quick=True)
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
            yield self.most_accurate(self._asked(latency_s=loosest_s), on_fewer=False)
        except Infeasible as error:
            if error.nearest_latency_s is None:
                raise
            loosest_s = 2 * error.nearest_latency_s
            yield self.most_accurate(self._asked(latency_s=loosest_s), on_fewer=False)
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
                made = self.most_accurate(self._asked(latency_s=latency_s), quick=True)
            except Infeasible:
                continue
            known[latency_s] = self._accuracy_on_a
            yield made

    def unfinished(self) -> GearPlan | None:
        """The best plan so far, with what one replay predicts for it."""
        made = self._kept or (self._current.unconfirmed() if self._current else None)
        if made is None:
            return None
        name = self.request.profile.operator
        asked = dataclasses.replace(self.request, objective=made.operators[name].objective)
        result = replay(made, asked, part=PART_B, seeds=1).result
        return msgspec.structs.replace(made, unfinished=True, predictions={name: result})

    # Their parts.

    def on_time(self) -> None:
        """Raise `OutOfTime` when the budget is spent."""
        if time.monotonic() > self._ends_s:
            raise OutOfTime

    def searches(self, request: PlanRequest, among: Sequence[CandidateCascade] | None = None) -> list[SloSearch]:
        """A search, `among` these candidates or all, for each placement that is worth one."""
        searches = []
        for placement in self._placements(request, among):
            key = (request.hardware, placement)
            if key not in self._steady:
                self._steady[key] = SteadyState(
                    request.profile, request.hardware, placement, request.objective, seed=request.seed
                )
            steady = self._steady[key].judged_by(request.objective)
            models = set(placement.models)
            offered = self.candidates(request, placement.models) if among is None else among
            placed = [c for c in offered if models.issuperset(c.cascade.models)]
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
            front = pareto_cascades(request.profile, {m: work_s[m] for m in models}, most=request.most_candidates)
            single = [c for c in single_models(request) if c.cascade.models[0] in models]
            offered = {c.cascade: c for c in [*front, *single]}.values()
            self._candidates[models] = sorted(offered, key=lambda c: (c.work_s, c.accuracy))
        return self._candidates[models]

    def _fitting(self, request: PlanRequest) -> tuple[str, ...]:
        search = PlacementSearch(request.profile, request.hardware)
        return tuple(sorted({m for c in search.classes for p in c.patterns for m, _ in p}))

    def _placements(self, request: PlanRequest, among: Sequence[CandidateCascade] | None) -> list[Placement]:
        if self._given_placement is not None:
            return [self._given_placement]
        search = PlacementSearch(request.profile, request.hardware)
        offered = self.candidates(request, self._fitting(request)) if among is None else among
        loads, weights = _metered_loads(request)
        layouts = search.best(offered, loads, weights, latency_s=request.latency_s, most=LAYOUTS)
        return [search.placement(layout) for layout in layouts]

    def _may_reach(self, request: PlanRequest, accuracy: float) -> bool:
        """Whether the bound leaves hope for that accuracy on this hardware."""
        offered = self.candidates(request, self._fitting(request))
        search = PlacementSearch(request.profile, request.hardware)
        loads, weights = _metered_loads(request)
        best = search.most_accuracy(offered, loads, weights, latency_s=request.latency_s)
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
        best, request = 0.0, self._asked(latency_s=latency_s)
        if self._given_placement is None and (slices := slices_of(request)) > 1:
            request = slice_of(request, slices, request.least_margin)
        for search in self.searches(request):
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
            load_range=str(load_ranges(self.request.upper_ends())[-1]),
            bottleneck=most_accurate_model(self.request.profile),
            nearest_accuracy=math.floor(best * 1e4) / 1e4 if best > 0 else None,
        )


def _evaluated(request: PlanRequest, cascade: Cascade) -> CandidateCascade:
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    return evaluate_cascade(cascade, request.profile.predictions, work_s, part=PART_A)


def _metered_loads(request: PlanRequest) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The trace's metered loads (32,) in requests/s, and the share of requests that meet each."""
    rates, _ = metered_loads(request.trace)
    ends = max(1.0, float(rates.max())) * np.arange(1, 33) / 32
    return ends, shares_of_ranges(request.trace, ends)


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
