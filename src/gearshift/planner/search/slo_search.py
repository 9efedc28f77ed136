"""The best accuracy within a latency percentile on one placement, confirmed by replaying the trace.

Ranges get the best assignment that steady state allows (`capacities`); the plan is confirmed by
replaying the whole trace. Where steady state was too optimistic, every range is planned for a
margin times its load; where it was too pessimistic, local search on the replay improves the plan.
"""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.evaluate.confirm import Replayed, Replays, replay, replays_at_once, seeds_for
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.capacities import (
    HIGHEST_QPS,
    Capacities,
    Ranges,
    bounds_of,
    capacities_of,
    last_within,
    may_hold,
    may_keep_up,
    ranges_of,
)
from gearshift.planner.search.choices import Choice, Constant, PlanMaker, improved
from gearshift.planner.search.infeasible import nothing_holds
from gearshift.planner.space.bisection import halfway, narrowed
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.request import LARGEST_MARGIN, PlanRequest, Progress, least_margin, safe_margin, silent
from gearshift.profiles.profile import PART_A, PART_B

CHEAPEST_EVERYWHERE = inf
"""The margin at which only the cheapest cascade is used."""
MARGIN_PRECISION = 0.02
ALPHAS = (8.0, 4.0, 2.0, 1.0)
"""Meter alphas to try: with a larger one a backlog downshifts sooner, with a smaller one accuracy
is kept longer."""
RUNS_TO_DRAIN = 4
"""Where models are slow, alphas are halved further until a backlog has this many of the longest
runs to drain."""
HIGHEST_S = 1e9


class SloSearch:
    """One search: ranges and capacities, made when first used, and the plans from them.

    `offered` candidates come by rising work; `on_time` may raise to end the search. A `quick`
    search, one of many, tries fewer alphas. With `beyond`, more ranges follow the top.
    """

    def __init__(
        self,
        request: PlanRequest,
        steady: SteadyState,
        offered: Sequence[CandidateCascade],
        *,
        replays: Replays | None = None,
        progress: Progress = silent,
        on_time: Callable[[], None] = lambda: None,
        quick: bool = False,
        beyond: bool = False,
    ) -> None:
        self.request, self.steady, self.offered = request, steady, offered
        self.progress, self.on_time, self.quick, self.beyond = progress, on_time, quick, beyond
        self.seen: dict[Choice, Replayed] = {}
        self.best: Choice | None = None
        """The best choice so far; at first the cheapest cascade everywhere."""
        self._replays = replays or Replays(on_time)
        self._refused: set[int] = set()
        self._ranges: Ranges | None = None
        self._capacities: Capacities | None = None
        self._choices: list[Choice] | None = None

    @property
    def ranges(self) -> Ranges:
        """Raises `Infeasible`."""
        if self._ranges is None:
            self._ranges = ranges_of(self.request, self.steady, self.offered, beyond=self.beyond, on_time=self.on_time)
            self.best = _cheapest(len(self._ranges.upper_ends))
        return self._ranges

    @property
    def capacities(self) -> Capacities:
        """Raises `Infeasible`."""
        if self._capacities is None:
            self._capacities = capacities_of(
                self.ranges, self.steady, quick=self.quick, progress=self.progress, on_time=self.on_time
            )
        return self._capacities

    def choices(self) -> list[Choice]:
        """Choices that hold on the trace, by falling accuracy; raises `Infeasible`."""
        if self._choices is None:
            capacities = self.capacities
            self.progress("replaying the trace", 0.8)
            with ThreadPoolExecutor(replays_at_once(len(self.request.trace))) as pool:
                alphas = self.alphas[:: 2 if self.quick else 1]
                tried = list(pool.map(lambda alpha: self._least_repair(alpha, capacities), alphas))
            repairs = [repair for repair in tried if repair is not None]
            choices = self._with_constant(_by_accuracy(repairs))
            if not choices:
                raise self.infeasible(nearest=False)
            self._choices = self._with_raised(choices)
            self.best = self._choices[0]
        return self._choices

    def most_accuracy(self) -> float:
        """An upper bound on accuracy in steady state; raises `Infeasible`."""
        if self.request.objective.scope == "trace":
            return max(c.accuracy for c in self.offered)
        return self.capacities.most_accuracy()

    def hoped_accuracy(self) -> float:
        """An upper bound on `most_accuracy`, almost without simulation; raises `Infeasible`."""
        if self.request.objective.scope == "trace":
            return self.most_accuracy()
        return bounds_of(self.ranges, self.steady).most_accuracy()

    def confirmed(self) -> GearPlan:
        """The most accurate choice that is confirmed on parts A and B; raises `Infeasible`."""
        pending = self.choices()
        self.progress("improving", 0.85)
        stepwise = next((c for c in pending if c.constant is None), None)
        if stepwise is not None:
            path = improved(stepwise, self.capacities, self.replayed, self._holds)
            pending = _by_accuracy([*path, *pending])
        self.progress(f"confirming an accuracy of {pending[0].accuracy:.4f}", 0.95)
        if (made := self._first_confirmed(pending)) is None:
            raise self.infeasible(nearest=False)
        self.progress("confirmed", 1.0)
        return made

    def constant(self, above: float) -> GearPlan | None:
        try:
            return self._first_confirmed(self._with_constant([], above), above)
        except Infeasible:
            return None

    def cheapest(self) -> GearPlan | None:
        """The confirmed plan of the cheapest cascade at all loads; no other is easier to keep."""
        try:
            return self._confirmed(_cheapest(len(self.ranges.upper_ends)))
        except Infeasible:
            return None

    def _first_confirmed(self, pending: list[Choice], above: float = -1.0) -> GearPlan | None:
        """The first confirmed plan. A choice that fails is replaced by a more careful one."""
        while pending:
            choice, *pending = pending
            made = self._confirmed(choice)
            if made is not None:
                return made
            if choice.constant is not None:
                self._refused.add(choice.constant.candidate)
            elif (careful := self._more_careful(choice)) is not None:
                pending = _by_accuracy([*pending, careful])
            pending = self._with_constant(pending, above)
        return None

    def plan_of(self, choice: Choice) -> GearPlan:
        return self._maker.plan_of(choice)

    @property
    def alphas(self) -> list[float]:
        profile, placed = self.request.profile, set(self.steady.placement.models)
        slowest_s = max(c.seconds(c.batch_sizes[0]) for c in profile.whole_curves if c.model in placed)
        alphas = list(ALPHAS)
        while alphas[-1] * RUNS_TO_DRAIN * slowest_s > 1:
            alphas.append(alphas[-1] / 2)
        return alphas

    @property
    def _maker(self) -> PlanMaker:
        return PlanMaker(
            self.request, self.steady, self.ranges.candidates, self.ranges.upper_ends, self.ranges.planned_qps
        )

    def key(self, choice: Choice) -> Hashable:
        return self._maker.key(choice)

    def replayed(self, choice: Choice) -> Choice:
        maker = self._maker
        found = self._replays.of(maker.key(choice), lambda: maker.plan_of(choice, predicted=False), self.request)
        choice = replace(choice, accuracy=found.accuracy)
        self.seen[choice] = found
        return choice

    def _least_repair(self, alpha: float, capacities: Capacities) -> Choice | None:
        """The smallest margin whose plan holds on the trace, by bisection; None when none does."""

        def replayed(margin: float) -> Choice | None:
            choice = self.replayed(Choice(capacities.assigned(margin), margin, alpha, 0.0))
            if not self._holds(choice):
                return None
            if self.best is None or choice.accuracy > self.best.accuracy:
                self.best = choice
            return choice

        low, high = least_margin(self.request), LARGEST_MARGIN
        if (least := replayed(low)) is not None:
            return least
        if (found := replayed(high)) is None:
            return replayed(CHEAPEST_EVERYWHERE)
        return narrowed(replayed, found, fails=low, at_most=high, precision=MARGIN_PRECISION, middle=halfway)

    def _with_constant(self, choices: list[Choice], above: float = -1.0) -> list[Choice]:
        """Add the best cascade that holds at all loads, if more accurate than the others.

        Tried from the most accurate down, so that no plan of one gear under the same scope and
        margin is better.
        """
        above = max([above, *(c.accuracy for c in choices)])
        every_range, trace = self.request.objective.scope == "every-range", self.request.trace
        load_qps = least_margin(self.request) * float(self.request.upper_ends()[-1])
        if not every_range:
            load_qps = len(trace) / (trace.duration_s + min(self.request.latency_s, HIGHEST_S))
        for c in sorted(range(len(self.ranges.candidates)), key=lambda c: -self._accuracy(c)):
            if self._accuracy(c) <= above:
                break
            self.on_time()
            able = may_hold if every_range else may_keep_up
            if c in self._refused or not able(self.steady, self.ranges.candidates[c], load_qps):
                continue
            if self._holds(found := self._constant(c)):
                return _by_accuracy([*choices, found])
        return choices

    def _constant(self, c: int) -> Choice:
        """One cascade, and cheaper ones above, so that backlogs drain.

        Scope `every-range`: up to a load that the trace then never reaches, and the cheapest
        above. Scope `trace`: up to the highest visited load, and cascades that hold in steady
        state above, as no replay tests such loads.
        """
        upper_ends = self.ranges.upper_ends
        if self.request.objective.scope == "trace":
            return self._constant_to(
                c,
                float(upper_ends[self.ranges.highest_visited]),
                [min(c, safe) for safe in self.capacities.assigned(safe_margin(self.request))],
            )
        to_qps = 2 * float(self.request.upper_ends()[-1])
        while True:
            choice = self._constant_to(c, to_qps, [0] * len(upper_ends))
            if sum(self.seen[choice].arrived_in_gear[1:]) == 0 or to_qps >= HIGHEST_QPS:
                return choice
            to_qps *= 2

    def _constant_to(self, c: int, to_qps: float, above: Sequence[int]) -> Choice:
        ends = self.ranges.upper_ends
        assignment = tuple(other if end > to_qps else c for other, end in zip(above, ends, strict=True))
        one = Constant(c, to_qps)
        return self.replayed(Choice(assignment, least_margin(self.request), ALPHAS[0], 0.0, constant=one))

    def _with_raised(self, choices: list[Choice]) -> list[Choice]:
        """In a constant choice, raise cascades at low loads that the trace seldom has."""
        for place, choice in enumerate(choices):
            if choice.constant is None:
                continue
            c, to_qps = choice.constant
            assignment, safely = list(choice.assignment), self.capacities.assigned(safe_margin(self.request))
            for k, safe in enumerate(safely[: last_within(self.ranges.upper_ends, to_qps)]):
                assignment[k] = max(c, safe) if self._accuracy(safe) > self._accuracy(c) else c
            tried = self.replayed(replace(choice, assignment=tuple(assignment)))
            if self._holds(tried) and tried.accuracy >= choice.accuracy:
                return _by_accuracy([*choices[:place], tried, *choices[place:]])
        return choices

    def _accuracy(self, c: int) -> float:
        return self.ranges.candidates[c].accuracy

    def _confirmed(self, choice: Choice) -> GearPlan | None:
        return confirmed_to_recover(self.plan_of(choice), self.request, on_time=self.on_time)

    def _more_careful(self, choice: Choice) -> Choice | None:
        """Raise the margin until the assignment changes; None for a choice from local search."""
        margin, assignment = choice.margin, choice.assignment
        if choice.gains or margin == CHEAPEST_EVERYWHERE:
            return None
        while assignment == choice.assignment and margin < CHEAPEST_EVERYWHERE:
            margin *= 1 + 2 * MARGIN_PRECISION
            margin = CHEAPEST_EVERYWHERE if margin > LARGEST_MARGIN else margin
            assignment = self.capacities.assigned(margin)
        return self.replayed(Choice(assignment, margin, choice.alpha, 0.0))

    def _holds(self, choice: Choice) -> bool:
        return self.seen[choice].latency_s <= self.request.latency_s

    def infeasible(self, *, nearest: bool = True) -> Infeasible:
        """Why nothing holds; with `nearest` also replay to find what the cheapest cascade needs."""
        ranges = self._ranges
        candidates = self.offered if ranges is None else ranges.candidates
        ends = self.request.upper_ends() if ranges is None or self.beyond else ranges.upper_ends

        def replayed_s() -> float:
            made = PlanMaker(self.request, self.steady, candidates, ends, ends).plan_of(_cheapest(len(ends)))
            seeds = seeds_for(self.request.trace)
            runs = [replay(made, self.request, part=p, seeds=seeds, on_time=self.on_time) for p in (PART_A, PART_B)]
            return max(float(run.latency_s.max() + run.latency_s.std()) for run in runs)

        return nothing_holds(self.request, self.steady, candidates, ends, replayed_s=replayed_s if nearest else None)


def _cheapest(ranges: int) -> Choice:
    return Choice((0,) * ranges, CHEAPEST_EVERYWHERE, ALPHAS[0], -1.0)


def _by_accuracy(choices: Sequence[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda c: -c.accuracy)
