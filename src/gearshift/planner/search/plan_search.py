"""Parts that the planner's searches for all objectives share.

Candidates, placements, simulated cells, replays and the time limit.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.placement import Placement
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.so_far import OutOfTime, SoFar, unfinished, with_best
from gearshift.planner.evaluate.assemble import replay, with_predictions
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.replays import Replays, seeds_for
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.evaluate.steady_state import SAMPLES, SteadyState
from gearshift.planner.published import coordinate, frontier
from gearshift.planner.search.every_range import holds_every_range
from gearshift.planner.search.slices import plan_by_slices, slice_of, slices_of
from gearshift.planner.search.slo_search import SloSearch
from gearshift.planner.search.unvisited import with_best_where_unvisited
from gearshift.planner.space.candidates import single_models
from gearshift.planner.space.cascade_search import (
    CandidateCascade,
    evaluate_cascade,
    pareto_cascades,
    work_per_request_s,
)
from gearshift.planner.space.metered import metered_loads, seldom_exceeded_qps, shares_of_ranges
from gearshift.planner.space.placement_search import PlacementSearch
from gearshift.planner.space.request import PlanRequest, Progress, least_margin, silent
from gearshift.profiles.profile import PART_A
from gearshift.support.processors import usable_processors

LAYOUTS = 3
QUICK_SAMPLES = SAMPLES // 2
MOST_LESS = 8
"""With at most this many devices, also try the plan for one device less."""
MOST_CELLS, MOST_REQUESTS = 64, 20_000
"""Published planners' plans are tried up to this many devices times load ranges. On a trace of
more requests, only `coordinate` is tried, on the request's own hardware: it replays the trace no
more than once for each seed."""
SAME_ACCURACY = 1e-3
NOISE = 1.0
"""At most two standard errors of the accuracy of one replayed request."""
BOUND_SLACK = 0.02
"""Slack above the placements' accuracy bound: a replay meets other loads than the bound assumes."""
LADDER_STEP = 1.08
SLOWEST_FACTOR = 12.0


T = TypeVar("T")


class PlanSearch:
    """The search for one request, restricted to `candidates` and `placement` where given."""

    def __init__(
        self,
        request: PlanRequest,
        progress: Progress,
        *,
        candidates: Sequence[CandidateCascade] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.request, self.report = request, progress
        self._given_candidates, self._given_placement = candidates, placement
        self._candidates: dict[tuple[str, ...], list[CandidateCascade]] = {}
        self._steady: dict[tuple[Hardware, Placement, int], SteadyState] = {}
        self._current: SloSearch | None = None
        self._made: dict[tuple[object, ...], GearPlan] = {}
        self.kept: GearPlan | None = None
        self.time = SoFar(request)
        self.on_time = self.time.check
        self._replays = Replays(self.on_time)

    def most_accurate(self, request: PlanRequest, *, on_fewer: bool = True) -> GearPlan:
        """The most accurate plan on part A within the latency objective.

        With `on_fewer` the search also uses the plan for fewer devices, so that another device
        never lowers accuracy.
        """
        key = _key(request, on_fewer)
        if key not in self._made:
            found, refused = self._best(request, on_fewer=on_fewer)
            if found is None:
                raise self._told(request, refused)
            self._made[key] = found
        return self._made[key]

    def _told(self, request: PlanRequest, refused: Sequence[Infeasible]) -> Infeasible:
        told = min(refused, key=lambda e: e.nearest_latency_s or math.inf)
        if told.nearest_latency_s is not None or told.nearest_devices is not None or self.sliced(request):
            return told
        return self.searches(request)[0].infeasible()

    def better_where_unvisited(self, made: GearPlan, request: PlanRequest) -> GearPlan:
        """Use better cascades in ranges the trace never visits, if that is confirmed in time.

        It takes up to `WAYS` confirmations, so it is done only for plans that are returned to the
        user.
        """
        if self.sliced(request):
            return made
        try:
            self.on_time()
            steady = self._steady_on(request, made.placement)
            candidates = self._placed(request, made.placement, None)
            least = accuracy_on_part_a(made, request)
            for changed in with_best_where_unvisited(made, request, steady, candidates):
                if accuracy_on_part_a(changed, request) >= least:
                    found = confirmed_to_recover(changed, request, on_time=self.on_time)
                    if found is not None:
                        return found
        except OutOfTime:
            pass
        return made

    def quickly(self, request: PlanRequest) -> GearPlan:
        return self._on_best_placements(request, quick=True)

    def single_models(self, request: PlanRequest) -> list[CandidateCascade]:
        return single_models(request) if self._given_candidates is None and self._given_placement is None else []

    def sliced(self, request: PlanRequest) -> bool:
        return self._given_placement is None and slices_of(request) > 1

    def on_best_placement(self, request: PlanRequest, use: Callable[[SloSearch], T], *, quick: bool = False) -> list[T]:
        """Results of `use` on the most promising placement where any is feasible."""
        searches = self.searches(request, quick=quick)
        self._current = searches[0]
        alike = [list(those) for _, those in groupby(searches, key=lambda search: search.steady.placement)]
        with ThreadPoolExecutor(usable_processors()) as pool:
            promising = list(pool.map(_promising, alike))
        infeasible: list[Infeasible] = []
        for those, _ in sorted(zip(alike, promising, strict=True), key=lambda found: -found[1]):
            made: list[T] = []
            for search in those:
                self._current = search
                try:
                    made.append(use(search))
                except Infeasible as error:
                    infeasible.append(error)
            if made:
                return made
        raise min(infeasible, key=lambda e: e.nearest_latency_s or math.inf)

    def _best(
        self, request: PlanRequest, *, on_fewer: bool, above: float = -1.0
    ) -> tuple[GearPlan | None, list[Infeasible]]:
        """The most accurate plan above accuracy `above`, and the errors of failed ways."""
        restricted = self._given_candidates is not None or self._given_placement is not None
        ways: list[Callable[[PlanRequest, float], GearPlan | None]] = [self._where_hoped_for]
        if not restricted:
            ways = [self._made_for_fewer] * on_fewer + ways + [self._of_single_models]
            ways += [self._on_one_device_less] * on_fewer + [self._of_published]
        best: GearPlan | None = None
        accuracy = above
        refused: list[Infeasible] = []
        for way in ways:
            try:
                found = way(request, accuracy)
            except Infeasible as error:
                refused.append(error)
                continue
            if found is not None and (reached := accuracy_on_part_a(found, request)) >= accuracy:
                best, accuracy = found, reached
                if request is self.request:
                    self.kept = best
        return best, refused

    def _where_hoped_for(self, request: PlanRequest, above: float) -> GearPlan | None:
        if above >= 0:
            lucky = NOISE / math.sqrt(len(request.trace))
            if all(_hoped(search) + lucky <= above for search in self.searches(request)):
                return None
        return self._on_best_placements(request)

    def _on_best_placements(self, request: PlanRequest, *, quick: bool = False) -> GearPlan:
        if self.sliced(request):
            return self._by_slices(request, slices_of(request))

        def confirmed(search: SloSearch) -> GearPlan:
            made = search.confirmed()
            if request is self.request:
                self.kept = self.kept or made
            return made

        found = self.on_best_placement(request, confirmed, quick=quick)
        if len(found) == 1:
            return found[0]
        seeds = seeds_for(request.trace)
        runs = [replay(made, request, part=PART_A, seeds=seeds, on_time=self.on_time) for made in found]
        return max(zip(found, runs, strict=True), key=lambda pair: pair[1].result.accuracy)[0]

    def _by_slices(self, request: PlanRequest, slices: int) -> GearPlan:
        searches, most = self.searches(request), self._ceiling(request) - SAME_ACCURACY
        for search in searches:
            if (made := search.constant(most)) is not None:
                return made
        refused: Infeasible | None = None
        best, above = None, -1.0

        def plan_slice(part: PlanRequest) -> GearPlan:
            return self.better_where_unvisited(self.most_accurate(part, on_fewer=False), part)

        try:
            best = plan_by_slices(request, slices, plan_slice, on_time=self.on_time)
            above = accuracy_on_part_a(best, request)
        except Infeasible as error:
            refused = error
        for search in searches:
            if (made := search.constant(above)) is not None and (found := accuracy_on_part_a(made, request)) > above:
                best, above = made, found
        if best is None:
            raise refused or refusal(request, "no cascade holds on the devices")
        return best

    def _of_single_models(self, request: PlanRequest, above: float) -> GearPlan | None:
        models = single_models(request)
        best: GearPlan | None = None
        for cheapest in range(len(models) if slices_of(request) == 1 else 0):
            if max(m.accuracy for m in models[cheapest:]) <= above:
                break
            for search in self.searches(request, models[cheapest:]):
                try:
                    hope = search.hoped_accuracy() > above and search.most_accuracy() > above
                    made = search.confirmed() if hope else None
                except Infeasible:
                    continue
                if made is not None and (accuracy := accuracy_on_part_a(made, request)) > above:
                    best, above = made, accuracy
        return best

    def _made_for_fewer(self, request: PlanRequest, above: float) -> GearPlan | None:
        """Reuse the plan made for the most devices below these, the others idle."""
        devices, (_, *asked) = set(request.hardware.devices), _key(request, True)
        alike = [made for (_, *key), made in self._made.items() if key == asked]
        smaller = [made for made in alike if devices > set(made.hardware.devices)]
        made = max(smaller, key=lambda made: len(made.hardware.devices), default=None)
        return made and self._on(request, made)

    def _on_one_device_less(self, request: PlanRequest, above: float) -> GearPlan | None:
        """The plan that leaves the last device idle, where that may be more accurate than `above`."""
        devices = request.hardware.devices[:-1]
        if not devices or len(devices) >= MOST_LESS or above >= self._ceiling(request) - SAME_ACCURACY:
            return None
        less = dataclasses.replace(request, hardware=Hardware(devices=devices))
        try:
            if _key(less, True) in self._made or self.reachable(less) < above:
                return None
            made, _ = self._best(less, on_fewer=True, above=above)
        except InvalidInput:  # no model fits without the last device
            return None
        if made is None or accuracy_on_part_a(made, less) <= above:
            return None
        return self._on(request, made)

    def _on(self, request: PlanRequest, made: GearPlan) -> GearPlan:
        return with_predictions(msgspec.structs.replace(made, hardware=request.hardware), request, on_time=self.on_time)

    def _of_published(self, request: PlanRequest, above: float) -> GearPlan | None:
        """A published planner's plan if it is quick to make and, confirmed, more accurate.

        With scope `every-range` it must also hold every range with our margin.
        """
        devices, short = len(request.hardware.devices), len(request.trace) <= MOST_REQUESTS
        quick = devices * request.ranges <= MOST_CELLS and (short or request.hardware == self.request.hardware)
        if not quick or above >= self._ceiling(request) - SAME_ACCURACY:
            return None
        every_range = request.objective.scope == "every-range"
        margin = least_margin(request) if every_range else request.least_margin
        asked = dataclasses.replace(request, least_margin=margin)
        best: GearPlan | None = None
        for planner in (coordinate, frontier)[: 1 + short]:
            with suppress(Infeasible):
                offered = planner.plan(self.time.remaining(asked), progress=silent)
                if offered.unfinished:
                    raise OutOfTime
                accuracy = accuracy_on_part_a(offered, request)
                if accuracy > above and (not every_range or holds_every_range(offered, request)):
                    made = confirmed_to_recover(offered, request, on_time=self.on_time)
                    best, above = (best, above) if made is None else (made, accuracy)
        return best

    def _ceiling(self, request: PlanRequest) -> float:
        return max(c.accuracy for c in self.candidates(request, self._fitting(request)))

    def unfinished(self) -> GearPlan | None:
        made = self.kept
        if made is None and self._current is not None and self._current.best is not None:
            made = self._current.plan_of(self._current.best)
        return made and unfinished(made, self.request)

    def progress(self, what: str, share: float) -> None:
        accuracy = None
        if self.kept is not None:
            accuracy = self.kept.predictions[self.request.profile.operator].accuracy
        elif self._current is not None and (best := self._current.best) is not None:
            accuracy = max(best.accuracy, self._current.ranges.candidates[best.assignment[-1]].accuracy)
        self.report(with_best(what, accuracy), share)

    def searches(
        self, request: PlanRequest, among: Sequence[CandidateCascade] | None = None, *, quick: bool = False
    ) -> list[SloSearch]:
        """One search per promising placement, over the candidates `among` or all.

        Two where the metered load reaches the last range: they extend the ranges in different
        ways.
        """
        ends, searches = request.upper_ends(), []
        reached = seldom_exceeded_qps(request.trace) > float(ends[-1] - ends[0])
        for placement in self._placements(request, among):
            steady = self._steady_on(request, placement, QUICK_SAMPLES if quick else SAMPLES)
            placed = self._placed(request, placement, among)
            searches += [
                SloSearch(
                    request,
                    steady,
                    placed,
                    replays=self._replays,
                    progress=self.progress,
                    on_time=self.on_time,
                    quick=quick,
                    beyond=beyond,
                )
                for beyond in (False, True)[: 1 + reached]
                if placed
            ]
        if not searches:
            raise refusal(request, "none of the cascades has all its models on the devices")
        return searches

    def _steady_on(self, request: PlanRequest, placement: Placement, samples: int = SAMPLES) -> SteadyState:
        key = (request.hardware, placement, samples)
        if key not in self._steady:
            self._steady[key] = SteadyState(
                request.profile, request.hardware, placement, request.objective, seed=request.seed, samples=samples
            )
        return self._steady[key].judged_by(request.objective)

    def _placed(
        self, request: PlanRequest, placement: Placement, among: Sequence[CandidateCascade] | None
    ) -> list[CandidateCascade]:
        models = set(placement.models)
        offered = self.candidates(request, placement.models) if among is None else among
        return [c for c in offered if models.issuperset(c.cascade.models)]

    def candidates(self, request: PlanRequest, models: tuple[str, ...]) -> list[CandidateCascade]:
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

    def reachable(self, request: PlanRequest) -> float:
        offered = self.candidates(request, self._fitting(request))
        search = PlacementSearch(request.profile, request.hardware)
        loads, weights = _metered_loads(request)
        best = search.most_accuracy(offered, loads, weights, latency_s=request.latency_s)
        return min(1.0, best + BOUND_SLACK)

    def cheapest(self) -> GearPlan | None:
        made = (search.cheapest() for search in self.searches(self.request))
        return next((plan for plan in made if plan is not None), None)

    def least_latency_s(self) -> float | None:
        found_s = self.searches(self.request)[0].infeasible().nearest_latency_s
        if found_s is None:
            self.on_time()
        return found_s

    def ladder(self) -> list[float]:
        curves = self.request.profile.whole_curves
        front_end_s = self.request.profile.front_end_s
        low = 1.1 * min(c.seconds(c.batch_sizes[0]) for c in curves) + front_end_s
        slowest = max(
            max(SLOWEST_FACTOR * c.seconds(c.batch_sizes[0]), 2 * c.seconds(c.batch_sizes[-1])) for c in curves
        )
        high = slowest + (1 + SLOWEST_FACTOR) * front_end_s
        steps = math.ceil(math.log(high / low) / math.log(LADDER_STEP))
        return [float(s) for s in np.geomspace(low, high, steps + 1)]

    def within(self, latency_s: float) -> PlanRequest:
        objective = msgspec.structs.replace(self.request.objective, latency_s=latency_s, accuracy=None, confidence=None)
        return dataclasses.replace(self.request, objective=objective)

    def accuracy_within(self, latency_s: float) -> float:
        best, request = -math.inf, self.within(latency_s=latency_s)
        if self.sliced(request):
            request = slice_of(request, slices_of(request), request.least_margin)
        for search in self.searches(request):
            self._current = search
            try:
                best = max(best, search.choices()[0].accuracy)
            except Infeasible:
                continue
        return best


def evaluated(request: PlanRequest, cascade: Cascade) -> CandidateCascade:
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    return evaluate_cascade(cascade, request.profile.predictions, work_s, part=PART_A)


def _key(request: PlanRequest, on_fewer: bool) -> tuple[object, ...]:
    return request.hardware, request.objective, request.least_margin, len(request.trace), on_fewer


def _hoped(search: SloSearch) -> float:
    try:
        return search.hoped_accuracy()
    except Infeasible:
        return -1.0


def _promising(searches: Sequence[SloSearch]) -> float:
    """The highest steady-state accuracy. Not in parallel: the searches share cells."""
    accuracies = [-1.0]
    for search in searches:
        with suppress(Infeasible):
            accuracies.append(search.capacities.steady_accuracy())
    return max(accuracies)


def _metered_loads(request: PlanRequest) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The trace's metered loads (32,) in requests/s, and the share of requests at each."""
    rates, _ = metered_loads(request.trace)
    ends = max(1.0, float(rates.max())) * np.arange(1, 33) / 32
    return ends, shares_of_ranges(request.trace, ends)
