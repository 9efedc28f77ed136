"""The most accurate plan within a latency, from all ways to one; every search of `optimal` uses it."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

import msgspec
import numpy as np

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.placement import Placement
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.planner import OutOfTime, SoFar, unfinished, with_best
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import replay, seeds_for, with_predictions
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.evaluate.steady_state import steady_of
from gearshift.planner.search.capacities import with_best_where_unvisited
from gearshift.planner.search.search_space import SearchSpace, plan_by_slices, slice_of, slices_of
from gearshift.planner.search.slo_search import SloSearch
from gearshift.planner.space.cascade_search import CandidateCascade, single_models
from gearshift.planner.space.request import PlanRequest, least_margin
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.support.processors import usable_processors

MOST_LESS = 8
"""With at most this many devices, also try the plan for one device less."""
SAME_ACCURACY = 1e-3
NOISE = 1.0
"""At most two standard errors of the accuracy of one replayed request."""
LADDER_STEP = 1.08
SLOWEST_FACTOR = 12.0


T = TypeVar("T")


class PlanSearch:
    """The search for one request, restricted to `candidates` and `placement` where given."""

    def __init__(
        self,
        so_far: SoFar,
        *,
        candidates: Sequence[CandidateCascade] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.so_far, self.request, self.report = so_far, so_far.request, so_far.report
        so_far.otherwise = self._unconfirmed
        self._current: SloSearch | None = None
        self._made: dict[tuple[object, ...], GearPlan] = {}
        self.on_time = so_far.check
        self.space = SearchSpace(self.progress, self.on_time, candidates=candidates, placement=placement)

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
        if told.nearest_latency_s is not None or told.nearest_devices is not None or self.space.sliced(request):
            return told
        return self.space.searches(request)[0].infeasible()

    def better_where_unvisited(self, made: GearPlan, request: PlanRequest) -> GearPlan:
        """Use better cascades in ranges the trace never visits, if that is confirmed in time.

        It takes up to `WAYS` confirmations, so it is done only for plans that are returned to the
        user.
        """
        if self.space.sliced(request):
            return made
        try:
            self.on_time()
            steady = self.space.steady_on(request, made.placement)
            candidates = self.space.placed(request, made.placement, None)
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

    def on_best_placement(self, request: PlanRequest, use: Callable[[SloSearch], T], *, quick: bool = False) -> list[T]:
        """Results of `use` on the most promising placement where any is feasible."""
        searches = self.space.searches(request, quick=quick)
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
        ways: list[Callable[[PlanRequest, float], GearPlan | None]] = [self._where_hoped_for]
        if not self.space.restricted:
            ways += [self._of_single_models, self._of_published]
            if on_fewer:
                ways = [self._made_for_fewer, *ways[:2], self._on_one_device_less, *ways[2:]]
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
                    self.so_far.plan = best
        return best, refused

    def _where_hoped_for(self, request: PlanRequest, above: float) -> GearPlan | None:
        if above >= 0:
            lucky = NOISE / math.sqrt(len(request.trace))
            if all(_hoped(search) + lucky <= above for search in self.space.searches(request)):
                return None
        return self._on_best_placements(request)

    def _on_best_placements(self, request: PlanRequest, *, quick: bool = False) -> GearPlan:
        if self.space.sliced(request):
            return self._by_slices(request, slices_of(request))

        def confirmed(search: SloSearch) -> GearPlan:
            made = search.confirmed()
            if request is self.request:
                self.so_far.plan = self.so_far.plan or made
            return made

        found = self.on_best_placement(request, confirmed, quick=quick)
        if len(found) == 1:
            return found[0]
        seeds = seeds_for(request.trace)
        runs = [replay(made, request, part=PART_A, seeds=seeds, on_time=self.on_time) for made in found]
        return max(zip(found, runs, strict=True), key=lambda pair: pair[1].result.accuracy)[0]

    def _by_slices(self, request: PlanRequest, slices: int) -> GearPlan:
        searches, most = self.space.searches(request), self.space.ceiling(request) - SAME_ACCURACY
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
            for search in self.space.searches(request, models[cheapest:]):
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
        if not devices or len(devices) >= MOST_LESS or above >= self.space.ceiling(request) - SAME_ACCURACY:
            return None
        less = dataclasses.replace(request, hardware=Hardware(devices=devices))
        try:
            if _key(less, True) in self._made or self.space.reachable(less) < above:
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
        if above >= self.space.ceiling(request) - SAME_ACCURACY:
            return None
        return best_of_published(request, above, self.so_far)

    def unfinished(self) -> GearPlan | None:
        made = self.so_far.plan or self._unconfirmed()
        return made and unfinished(made, self.request)

    def _unconfirmed(self) -> GearPlan | None:
        if self._current is None or self._current.best is None:
            return None
        return self._current.plan_of(self._current.best)

    def progress(self, what: str, share: float) -> None:
        accuracy, kept = None, self.so_far.plan
        if kept is not None:
            accuracy = kept.predictions[self.request.profile.operator].accuracy
        elif self._current is not None and (best := self._current.best) is not None:
            accuracy = max(best.accuracy, self._current.ranges.candidates[best.assignment[-1]].accuracy)
        self.report(with_best(what, accuracy), share)

    def cheapest(self) -> GearPlan | None:
        made = (search.cheapest() for search in self.space.searches(self.request))
        return next((plan for plan in made if plan is not None), None)

    def least_latency_s(self) -> float | None:
        found_s = self.space.searches(self.request)[0].infeasible().nearest_latency_s
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

    def reachable(self, request: PlanRequest) -> float:
        return self.space.reachable(request)

    def highest_accuracy(self) -> float:
        return max(c.accuracy for c in self.space.candidates(self.request, self.request.profile.models))

    def kept(self, made: GearPlan) -> tuple[float, int]:
        result, samples = made.predictions[self.request.profile.operator], self.request.profile.predictions
        return result.accuracy, min(result.requests, len(self.request.trace), len(samples.indices(PART_B)))

    def accuracy_within(self, latency_s: float) -> float:
        best, request = -math.inf, self.request.within(latency_s)
        if self.space.sliced(request):
            request = slice_of(request, slices_of(request), request.least_margin)
        for search in self.space.searches(request):
            self._current = search
            try:
                best = max(best, search.choices()[0].accuracy)
            except Infeasible:
                continue
        return best


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


MOST_CELLS, MOST_REQUESTS = 64, 20_000
"""Published planners' plans are tried up to this many devices times load ranges. On a trace of
more requests, only `coordinate` is tried, on the request's own hardware: it replays the trace no
more than once for each seed."""


def best_of_published(request: PlanRequest, above: float, so_far: SoFar) -> GearPlan | None:
    """A published planner's plan if it is quick to make and, confirmed, more accurate than `above`.

    With scope `every-range` it must also hold every range with our margin.
    """
    devices, short = len(request.hardware.devices), len(request.trace) <= MOST_REQUESTS
    if devices * request.ranges > MOST_CELLS or not (short or request.hardware == so_far.request.hardware):
        return None
    from gearshift.planner.published import coordinate, frontier

    every_range = request.objective.scope == "every-range"
    margin = least_margin(request) if every_range else request.least_margin
    asked = dataclasses.replace(request, least_margin=margin)
    best: GearPlan | None = None
    for planner in (coordinate.PLANNER, frontier.PLANNER) if short else (coordinate.PLANNER,):
        with suppress(Infeasible):
            offered = planner.plan(so_far.remaining(asked))
            if offered.unfinished:
                raise OutOfTime
            accuracy = accuracy_on_part_a(offered, request)
            if accuracy > above and (not every_range or holds_every_range(offered, request)):
                made = confirmed_to_recover(offered, request, on_time=so_far.check)
                best, above = (best, above) if made is None else (made, accuracy)
    return best


def holds_every_range(made: GearPlan, request: PlanRequest) -> bool:
    """Whether each gear meets the objective on part A in steady state, as our own must.

    The load is the upper end of its range, or the highest planned one, times the request's least
    margin.
    """
    pipeline = made.pipeline
    steady = steady_of(request, made.hardware, made.placement)
    highest_qps = float(request.upper_ends()[-1])
    ends_qps = (min(gear.load_range.to or highest_qps, highest_qps) for gear in pipeline.gears)
    return all(
        steady.meets(steady.simulate(gear.cascade, least_margin(request) * end_qps, gear.replicas))
        for gear, end_qps in zip(pipeline.gears, ends_qps, strict=True)
    )
