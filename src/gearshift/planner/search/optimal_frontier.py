"""The frontier: confirmed plans at many latencies, found around those that no other beats.

1. For latency objectives where the most hypervolume is open, find the best choices of `slo_search`.
2. Around the choices that nothing seen so far beats, replay other cascades in one or two ranges.
3. Confirm the plans of the front that leave the least hypervolume uncovered.
4. Give those that no other beats better cascades in ranges the trace never visits.
"""

import dataclasses
import math
from collections.abc import Generator, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.contract.ladder import accuracy_on_part_a
from gearshift.planner.contract.planner import CUT_SHORT, spread, unfinished
from gearshift.planner.evaluate.assemble import rounded_up_s, with_objective
from gearshift.planner.evaluate.confirm import holds, least_objective_s, replay, replays_at_once, slowest_on_part_a
from gearshift.planner.evaluate.spike_recovery import recovers
from gearshift.planner.search.capacities import WAYS
from gearshift.planner.search.choices import SELDOM, Choice
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.search.search_space import evaluated
from gearshift.planner.search.slo_search import SloSearch
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.support.numbers import milliseconds

COARSE_POINTS = 5
OBJECTIVES = 16
"""Latency objectives to search: the first few evenly spaced, the rest where most hypervolume is
open."""
AROUND_REPLAYS, AROUND_REQUESTS = 2_000, 40_000_000
"""Bounds on replays around the front."""
FEW_REPLAYS = 50
"""Fewer replays find too little to be worth it."""
CONFIRMED_PLANS, CONFIRMED_REQUESTS = (12, 48), 240_000_000
"""Confirmed plans, at least and at most, and the number of requests that may be replayed for it."""
REPLAYS_TO_CONFIRM = 10
HOLE, MOST_IN_HOLES = 0.15, 8
"""A gap in the confirmed front's accuracies above this share of their span, and the plans to try
in such gaps."""
UNCONFIRMED_PLANS = 8
AT_ONCE = 4
TRIED_IN_VAIN = 100
ANOTHER_ALPHA = 0.125
"""The probability that a neighbour also gets a new alpha."""
OBJECTIVE_DIGITS = 3
NEXT_OBJECTIVE = 1.001
SEARCHED_SHARE = 0.8
"""Share of the budget for searching; the rest is for confirming or predicting."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    search: SloSearch
    choice: Choice
    latency_s: float

    @property
    def point(self) -> tuple[float, float]:
        return self.latency_s, self.choice.accuracy


def frontier_plans(search: PlanSearch) -> Iterator[GearPlan]:
    """Confirmed plans, in no order; raises `Infeasible` where even the loosest objective has none.

    When cut short before any is confirmed, yields unconfirmed plans before raising again.
    """
    front, any_confirmed = _Front(search), False
    try:
        search.so_far.share = SEARCHED_SHARE
        yield from front.explore()
        front.search_around()
        search.so_far.share = 1.0
        for made in front.confirmed():
            any_confirmed = True
            yield made
    except CUT_SHORT:
        search.so_far.share = 1.0
        if not any_confirmed:
            yield from front.unconfirmed()
        raise


class _Front:
    def __init__(self, search: PlanSearch) -> None:
        self._plans, self._request = search, search.request
        self._every_range = self._request.objective.scope == "every-range"
        self._seen: list[Seen] = []
        self._careful: list[Seen] = []
        self._known: set[Hashable] = set()

    def explore(self) -> Iterator[GearPlan]:
        """Find the best choices for objectives over the ladder; confirm slices at once.

        After a few even steps, each next objective halves the gap that leaves the most hypervolume
        open: the log ratio of two neighbours' latencies times the difference of their accuracies.
        """
        floor = min(evaluated(self._request, Cascade(models=(m,))).accuracy for m in self._request.profile.models)
        lowest_s, *_, loosest_s = self._plans.ladder()
        known: dict[float, float] = {}
        coarse = np.geomspace(loosest_s, lowest_s, COARSE_POINTS).tolist()
        while len(known) < OBJECTIVES:
            if len(known) < COARSE_POINTS:
                latency_s = coarse[len(known)]
            else:
                ends = sorted(known)
                gaps = [math.log(b / a) * (known[b] - known[a]) for a, b in pairwise(ends)]
                widest = int(np.argmax(gaps))
                if gaps[widest] <= 0:
                    return
                latency_s = math.sqrt(ends[widest] * ends[widest + 1])
            so_far = f"{len(self._seen)} plan{'s' * (len(self._seen) != 1)} so far"
            self._plans.report(f"planning for {milliseconds(latency_s)}, {so_far}", 0.7 * len(known) / OBJECTIVES)
            try:
                known[latency_s] = yield from self._look_at(latency_s)
            except Infeasible:
                if known:
                    known[latency_s] = floor
                else:
                    latency_s, made = self._loosest(latency_s)
                    yield made
                    coarse = np.geomspace(latency_s, lowest_s, COARSE_POINTS).tolist()
                    known[latency_s] = accuracy_on_part_a(made, self._request)

    def _loosest(self, latency_s: float) -> tuple[float, GearPlan]:
        """Search fully where a quick search failed, at this latency or well above the nearest.

        Raises `Infeasible` where no latency helps.
        """
        try:
            return latency_s, self._plans.most_accurate(self._request.within(latency_s), on_fewer=False)
        except Infeasible as error:
            if error.nearest_latency_s is None:
                raise
            latency_s = 2 * error.nearest_latency_s
        return latency_s, self._plans.most_accurate(self._request.within(latency_s), on_fewer=False)

    def _look_at(self, latency_s: float) -> Generator[GearPlan, None, float]:
        request = self._request.within(latency_s)
        if self._plans.space.sliced(request):
            made = self._plans.quickly(request)
            yield made
            return accuracy_on_part_a(made, request)
        found = self._plans.on_best_placement(request, lambda search: (search.choices(), search), quick=True)
        for _, search in found:
            for choice in sorted(search.seen, key=lambda c: (c.assignment, c.alpha, c.margin, c.accuracy)):
                self._see(search, choice)
        return max(choices[0].accuracy for choices, _ in found)

    def _alone(self) -> Iterator[Seen]:
        """Single models and cascades, each on all devices at all loads; only for scope `trace`.

        They are confirmed whatever else was seen: a more expensive plan that is just within the
        percentile may look better on the replayed samples and fall far behind on others.
        """
        if self._every_range or self._plans.space.sliced(self._request):
            return
        request = self._request.within(self._plans.ladder()[-1])
        alone = (
            self._plans.space.candidates(request, request.profile.models)
            if self._plans.space.single_models(request)
            else []
        )
        for candidate in alone:
            with suppress(Infeasible):
                for search in self._plans.space.searches(request, [candidate], quick=True)[:1]:
                    choice = search.choices()[0]
                    yield Seen(search, choice, search.seen[choice].latency_s)

    def _see(self, search: SloSearch, choice: Choice) -> None:
        """Keep a replayed choice that nothing beats, by its latency or by its careful latency.

        With scope `every-range` its cascades hold in steady state only for its search's objective.
        """
        least_s, found = search.request.latency_s if self._every_range else 0.0, search.seen[choice]
        self._seen = _front([*self._seen, Seen(search, choice, max(least_s, found.latency_s))])
        self._careful = _front([*self._careful, Seen(search, choice, max(least_s, found.careful_s))])

    def search_around(self) -> None:
        left = min(AROUND_REPLAYS, AROUND_REQUESTS // len(self._request.trace))
        if left < FEW_REPLAYS:
            return
        generator = np.random.default_rng([self._request.seed, 6])
        most, in_vain = left, 0
        with ThreadPoolExecutor(replays_at_once(len(self._request.trace))) as pool:
            while left > 0 and in_vain < TRIED_IN_VAIN:
                drawn: list[tuple[SloSearch, Choice]] = []
                for _ in range(AT_ONCE):
                    changed = self._neighbour(generator)
                    if changed is not None and (key := changed[0].key(changed[1])) not in self._known:
                        self._known.add(key)
                        drawn.append(changed)
                in_vain = 0 if drawn else in_vain + 1
                for search, choice in pool.map(lambda d: (d[0], d[0].replayed(d[1])), drawn):
                    self._see(search, choice)
                left -= len(drawn)
                self._plans.report(f"searching around {len(self._seen)} plans", 0.7 + 0.1 * (1 - left / most))

    def _neighbour(self, generator: np.random.Generator) -> tuple[SloSearch, Choice] | None:
        front = [*self._seen, *self._careful]
        if not front:
            return None
        near = front[int(generator.integers(len(front)))]
        search, n = near.search, len(near.search.ranges.candidates)
        assignment = [*near.choice.assignment[:-1], 0]
        visited = np.flatnonzero(search.ranges.weights[:-1] > SELDOM)
        if not len(visited) or n == 1:
            return None
        alpha = float(generator.choice(search.alphas)) if generator.random() < ANOTHER_ALPHA else near.choice.alpha
        for k in generator.choice(visited, size=int(generator.integers(1, 3))).tolist():
            step = int(generator.choice((1, 2, max(2, n // 12)))) * int(generator.choice((-1, 1)))
            assignment[k] = int(np.clip(assignment[k] + step, 0, n - 1))
            if self._every_range and not search.capacities.holds_in(k, assignment[k]):
                return None
        return search, dataclasses.replace(
            near.choice, assignment=tuple(assignment), alpha=alpha, gains={}, constant=None, accuracy=0.0
        )

    def confirmed(self) -> Iterator[GearPlan]:
        """Confirm plans of the front, each for the lowest objective that it keeps.

        On a short trace also plans of the careful front: where records are few, a plan that is
        just within the percentile may miss it on the next records.
        """
        at_least, at_most = CONFIRMED_PLANS
        affordable = _affordable(self._request)
        pending = _covering(self._seen, min(at_most, max(at_least, affordable)))
        if affordable >= at_most:
            known = {seen.choice for seen in pending}
            pending += [s for s in _covering(self._careful, at_most) if s.choice not in known]
        alone = self._alone() if affordable >= at_most else ()
        most_in_holes = min(MOST_IN_HOLES, affordable - len(pending))
        kept: list[float] = []
        for done, seen in enumerate(chain(pending, alone, self._in_holes(kept, pending, most_in_holes))):
            self._plans.on_time()
            total = max(len(pending), done + 1)
            self._plans.report(f"confirming plan {done + 1} of {total}", 0.8 + 0.2 * done / total)
            made = self._confirmed(seen)
            if made is not None:
                kept.append(seen.choice.accuracy)
                yield made

    def _in_holes(self, kept: list[float], pending: Sequence[Seen], most: int) -> Iterator[Seen]:
        offered = [*self._seen, *self._careful]
        tried = {seen.choice for seen in pending}
        for _ in range(most):
            left = [seen for seen in offered if seen.choice not in tried]
            chosen = in_widest_hole(kept, [seen.choice.accuracy for seen in left])
            if chosen is None:
                return
            tried.add(left[chosen].choice)
            yield left[chosen]

    def _confirmed(self, seen: Seen) -> GearPlan | None:
        made = self._with_gains(seen)
        if made is None or not recovers(made, seen.search.request):
            return None
        percentile, requests = self._request.objective.percentile, len(self._request.trace)
        request, on_time = seen.search.request, self._plans.on_time
        on_part_a = slowest_on_part_a(made, request, on_time=on_time)
        on_part_b = replay(made, request, part=PART_B, on_time=on_time)
        runs = on_part_a, on_part_b.slowest_s
        least_s = max(least_objective_s(run, requests, percentile) for run in runs)
        if self._every_range:
            least_s = max(least_s, seen.search.request.latency_s)
        latency_s = rounded_up_s(least_s, digits=OBJECTIVE_DIGITS)
        while not all(holds(run, requests, latency_s, percentile) for run in runs):  # the bound may rise for a while
            latency_s = rounded_up_s(latency_s * NEXT_OBJECTIVE, digits=OBJECTIVE_DIGITS)
        result = on_part_b.judged_by(latency_s).result
        made = with_objective(made, self._request.within(latency_s).objective)
        return msgspec.structs.replace(made, predictions={self._request.profile.operator: result})

    def _with_gains(self, seen: Seen) -> GearPlan | None:
        """The plan with replayed gains of ranges above a cheaper range; None for no gain."""
        search, choice = seen.search, seen.choice
        monotone = tuple(accumulate(choice.assignment, min))
        if monotone != choice.assignment:
            gain = choice.accuracy - search.replayed(dataclasses.replace(choice, assignment=monotone)).accuracy
            if gain <= 0:
                return None
            raised = {k: gain for k, (a, b) in enumerate(zip(choice.assignment, monotone, strict=True)) if a != b}
            choice = dataclasses.replace(choice, gains=raised)
        return search.plan_of(choice)

    def unconfirmed(self) -> Iterator[GearPlan]:
        """A few unconfirmed plans with predictions from one replay: one, more if time allows."""
        if not self._seen and (only := self._plans.unfinished()) is not None:
            yield only
        for done, seen in enumerate(_covering(self._seen, UNCONFIRMED_PLANS)):
            if done:
                self._plans.on_time()
            made = seen.search.plan_of(seen.choice)
            latency_s = rounded_up_s(seen.latency_s, digits=OBJECTIVE_DIGITS)
            yield unfinished(with_objective(made, self._request.within(latency_s).objective), self._request)


def with_better_where_unvisited(search: PlanSearch, plans: Sequence[GearPlan], *, confirmed: int) -> list[GearPlan]:
    """Improve plans in ranges the trace never visits, as time and requests allow.

    `confirmed` plans have used part of the requests. At Ctrl-C the rest stays as it is.
    """
    better, left = list(plans), max(0, _affordable(search.request) - confirmed) // len(WAYS)
    name = search.request.profile.operator
    with suppress(KeyboardInterrupt):
        for done, i in enumerate(sorted(range(len(plans)), key=spread)[:left]):
            made = plans[i]
            if not made.unfinished and (latency_s := made.pipelines[name].objective.latency_s) is not None:
                search.report(f"looking where the trace never is, plan {done + 1} of {len(plans)}", 0.99)
                changed = search.better_where_unvisited(made, search.request.within(latency_s))
                if changed.predictions[name].accuracy >= made.predictions[name].accuracy:
                    better[i] = changed
    return better


def _affordable(request: PlanRequest) -> int:
    return CONFIRMED_REQUESTS // (REPLAYS_TO_CONFIRM * len(request.trace))


def _front(seen: list[Seen]) -> list[Seen]:
    return [seen[i] for i in undominated([s.point for s in seen])]


def in_widest_hole(kept: Sequence[float], offered: Sequence[float]) -> int | None:
    """The offered accuracy nearest to the middle of the widest gap that has one; None for no gap.

    A gap: two neighbours in `kept` that are more than `HOLE` of their span apart.
    """
    ordered = sorted(kept)
    holes = [(low, high) for low, high in pairwise(ordered) if high - low > HOLE * (ordered[-1] - ordered[0])]
    for low, high in sorted(holes, key=lambda hole: hole[0] - hole[1]):
        inside = [i for i, accuracy in enumerate(offered) if low < accuracy < high]
        if inside:
            return min(inside, key=lambda i: abs(offered[i] - (low + high) / 2))
    return None


def _covering(front: list[Seen], most: int) -> list[Seen]:
    chosen = covering([s.point for s in front], most)
    return [front[chosen[n]] for n in sorted(range(len(chosen)), key=spread)]


def covering(points: Sequence[tuple[float, float]], most: int) -> list[int]:
    """Indices of at most `most` points (latency, accuracy) that cover a front well.

    Points come by rising latency. The first and the last are always chosen; then, one by one, the
    point that adds the most hypervolume (log latency) between its neighbours.
    """
    chosen = [0, len(points) - 1] if len(points) > 1 else list(range(len(points)))
    while len(chosen) < min(most, len(points)):
        gains = [
            (math.log(points[after][0] / points[i][0]) * (points[i][1] - points[before][1]), -i)
            for before, after in pairwise(chosen)
            for i in range(before + 1, after)
        ]
        chosen = sorted([*chosen, -max(gains)[1]])
    return chosen
