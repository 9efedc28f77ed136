"""The best accuracy within a latency percentile on one placement, confirmed by replaying the trace.

Each cascade gets its capacity, the highest steady load at which it holds the objective; ranges get the best monotone
assignment of cascades that hold at their upper end; and the plan is confirmed by replaying the whole trace.  What
steady state flattered is repaired by planning every range for a margin times its load; what it hid is found by trying
dearer cascades range by range on the replay.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.assignment import best_monotone_assignment
from gearshift.planner.cascade_search import CandidateCascade
from gearshift.planner.choices import Choice, Constant, PlanMaker
from gearshift.planner.infeasible import nothing_holds
from gearshift.planner.metered import seldom_exceeded_qps, shares_of_ranges
from gearshift.planner.recovery import confirmed_to_recover
from gearshift.planner.replays import Replayed, Replays
from gearshift.planner.request import LARGEST_MARGIN, PlanRequest, Progress, equal_ranges, silent
from gearshift.planner.steady_state import GRID_STEP, SteadyState
from gearshift.planner.threads import replays_at_once

UNVISITED_WEIGHT = 1e-6
"""So that ranges the trace does not visit get the best cascade, too."""
LEAST_MARGIN = {"every-range": 1.15, "trace": 0.5}
"""Every range is planned for at least so many times its load.  Not for 1: what a plan is tight at to the last percent,
a machine a few percent slower than when it was profiled cannot serve, and queues then grow without bound."""
CHEAPEST_EVERYWHERE = math.inf
"""The margin at which no other cascade holds anywhere."""
MARGIN_PRECISION = 0.02
IMPROVING_STEPS = (0.1, 0.03, 0.0)
"""Of the candidates: how much dearer the next cascade is that local search tries; at least the next."""
SELDOM = 1e-4
"""The share of requests below which local search leaves a range alone."""
IMPROVING_REPLAYS = (4, 400)
IMPROVING_REQUESTS = 12_000_000
"""How many requests local search may replay, within so many replays at least and at most."""
ALPHAS = (8.0, 4.0, 2.0, 1.0)
"""Those tried: with a larger one a backlog downshifts sooner, with a smaller one accuracy is kept longer."""
RUNS_TO_DRAIN = 4
"""Where models are slow, alphas are halved on until a backlog has so many of the longest runs to drain."""
SURELY_OVERLOADED = 1.05
"""How busy the busiest device would have to be: no batch size keeps up with that."""
SURELY_REACHED = 1.2
"""How many times as many requests as may be late reach a stage that the percentile must surely go through."""
HIGHEST_QPS, HIGHEST_S = 1e9, 1e9


def least_margin(request: PlanRequest) -> float:
    """The margin that every range is planned for at least."""
    return request.least_margin or LEAST_MARGIN[request.objective.scope]


class SloSearch:
    """One search: the steady-state table, the capacities, and the plans made from them.

    `candidates` come by rising work; `replays` are shared with other searches; `on_time` is called now and then, and
    may raise to end the search.  A `quick` search, one of many, tries fewer alphas, and its `Infeasible` does not say
    the nearest objective, which takes replays to find.  With `beyond` more ranges follow the top (`_reached`).
    """

    def __init__(
        self,
        request: PlanRequest,
        steady: SteadyState,
        candidates: Sequence[CandidateCascade],
        *,
        replays: Replays | None = None,
        progress: Progress = silent,
        on_time: Callable[[], None] = lambda: None,
        quick: bool = False,
        beyond: bool = False,
    ) -> None:
        self.beyond = beyond
        self.request, self.steady, self.candidates = request, steady, candidates
        self.progress, self.on_time, self.quick = progress, on_time, quick
        self.upper_ends = request.upper_ends()
        self.capacities: NDArray[np.float64] = np.zeros(0)
        self.weights: NDArray[np.float64] = np.zeros(0)
        self.seen: dict[Choice, Replayed] = {}
        """Every choice that was replayed."""
        self._replays = replays or Replays(on_time)
        self._choices: list[Choice] | None = None
        self._refused: set[int] = set()
        self._best: Choice | None = None
        self._highest: list[int] = []
        self._highest_visited = 0

    def choices(self) -> list[Choice]:
        """What holds on the trace as it is, the most accurate first; raises `Infeasible` when nothing does."""
        if self._choices is None:
            self.steady_accuracy()
            self.progress("replaying the trace", 0.8)
            with ThreadPoolExecutor(replays_at_once(len(self.request.trace))) as pool:
                tried = list(pool.map(self._least_repair, self.alphas[:: 2 if self.quick else 1]))
            repairs = [repair for repair in tried if repair is not None]
            choices = self._with_constant(_by_accuracy(repairs))
            if not choices:
                raise self._infeasible()
            self._choices = self._with_raised(choices)
        return self._choices

    def steady_accuracy(self) -> float:
        """The accuracy of the assignment for the least margin, as steady state sees it; raises `Infeasible`."""
        if not len(self.capacities):
            if self.request.objective.scope == "every-range":
                self._drop_unable()
            if self.beyond or self.request.max_qps is None:
                self.upper_ends = self._reached()
            self._best = Choice((0,) * len(self.upper_ends), CHEAPEST_EVERYWHERE, ALPHAS[0], -1.0)
            self.capacities = self._capacities()
            shares = shares_of_ranges(self.request.trace, self.upper_ends)
            self.weights = shares + UNVISITED_WEIGHT
            self._highest_visited = int(np.flatnonzero(shares)[-1])
            self._highest = self._highest_ranges()
        accuracy = np.array([c.accuracy for c in self.candidates])
        return float(self.weights @ accuracy[list(self._assigned(self._least_margin))])

    def most_accuracy(self) -> float:
        """No assignment whose cascades hold in steady state is more accurate; raises `Infeasible`."""
        if self.request.objective.scope == "trace":
            return max(c.accuracy for c in self.candidates)
        self.steady_accuracy()
        needed_qps = np.minimum(self._planned_qps(), self.request.upper_ends()[-1]) * self._least_margin
        accuracy = np.array([c.accuracy for c in self.candidates])
        held = np.where(self.capacities[:, None] >= needed_qps / GRID_STEP, accuracy[:, None], accuracy[0]).max(axis=0)
        return float(self.weights @ held / self.weights.sum())

    def _drop_unable(self) -> None:
        """Drop the candidates before the first that holds at the top, which serves the last range."""
        for first, candidate in enumerate(self.candidates):
            if self._may_hold(candidate, float(self.upper_ends[-1])):
                self.candidates = self.candidates[first:]
                return
        raise self._infeasible()

    def _may_hold(self, candidate: CandidateCascade, load_qps: float) -> bool:
        """Whether the cascade holds in steady state; not simulated where it is sure not to."""
        return self._may_keep_up(candidate, load_qps) and self.steady.holds(candidate.cascade, load_qps)

    @property
    def _least_margin(self) -> float:
        return least_margin(self.request)

    def confirmed(self) -> GearPlan:
        """The most accurate choice that holds on all arrival seeds, on part A and on part B; raises `Infeasible`."""
        pending = self.choices()
        self.progress("improving", 0.85)
        stepwise = next((c for c in pending if c.constant is None), None)
        if stepwise is not None:
            path = self._improved(stepwise)
            pending = _by_accuracy([*path, *pending])
        self.progress(f"confirming an accuracy of {pending[0].accuracy:.4f}", 0.95)
        if (made := self._first_confirmed(pending)) is None:
            raise self._infeasible()
        self.progress("confirmed", 1.0)
        return made

    def constant(self, above: float) -> GearPlan | None:
        """The most accurate confirmed plan of one cascade at all loads, of those with more accuracy than `above`."""
        return self._first_confirmed(self._with_constant([], above), above)

    def _first_confirmed(self, pending: list[Choice], above: float = -1.0) -> GearPlan | None:
        """The first that is confirmed; of one that is not, a more careful one takes its place among the pending."""
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

    @property
    def best(self) -> Choice | None:
        """The best choice so far; the cheapest cascade everywhere before there is another."""
        return self._choices[0] if self._choices else self._best

    def plan_of(self, choice: Choice) -> GearPlan:
        """The plan of a choice."""
        return self._maker.plan_of(choice)

    @property
    def alphas(self) -> list[float]:
        """The meter's alphas to choose from, falling."""
        profile, placed = self.request.profile, set(self.steady.placement.models)
        slowest_s = max(c.seconds(c.batch_sizes[0]) for c in profile.whole_curves if c.model in placed)
        alphas = list(ALPHAS)
        while alphas[-1] * RUNS_TO_DRAIN * slowest_s > 1:
            alphas.append(alphas[-1] / 2)
        return alphas

    @property
    def _maker(self) -> PlanMaker:
        return PlanMaker(self.request, self.steady, self.candidates, self.upper_ends, self._planned_qps())

    def key(self, choice: Choice) -> Hashable:
        """What decides how the choice's plan serves."""
        return self._maker.key(choice)

    def replayed(self, choice: Choice) -> Choice:
        """The choice with the accuracy that its replay gives."""
        maker = self._maker
        found = self._replays.of(maker.key(choice), lambda: maker.plan_of(choice, predicted=False), self.request)
        choice = replace(choice, accuracy=found.accuracy)
        self.seen[choice] = found
        return choice

    def holds_in(self, load_range: int, c: int) -> bool:
        """Whether a candidate holds in steady state at a range's upper end, with the least margin."""
        return load_range <= self._highest[c]

    @property
    def _safe_margin(self) -> float:
        return self.request.least_margin or LEAST_MARGIN["every-range"]

    def _planned_qps(self) -> NDArray[np.float64]:
        """The loads (ranges,) that ranges are planned for, before any margin: upper ends, but no more than the top."""
        return np.minimum(self.upper_ends, self.request.upper_ends()[-1]) if self.beyond else self.upper_ends

    def _needed_qps(self, margin: float) -> NDArray[np.float64]:
        """The loads (ranges,) that cascades are to hold for a margin.

        Above all that the trace visits no replay tells of a plan, so that the margin is at least that of every range.
        """
        unseen = np.arange(len(self.upper_ends)) > self._highest_visited
        return self._planned_qps() * np.where(unseen, max(margin, self._safe_margin), margin)

    def _reached(self) -> NDArray[np.float64]:
        """The upper ends of ranges of which noise of the meter seldom reaches the last, which is the cheapest.

        At 300 requests/s a window of 100 ms holds 30 arrivals, give or take 5: a top of 1.2 times the peak second
        would hand a sixth of the peak's requests to the cheapest cascade.  Either as many ranges reach further, or
        (`beyond`) more of them follow, up to as many again, those above the top planned for the top.
        """
        asked, top_qps = self.upper_ends, float(self.upper_ends[-1])
        metered_qps = seldom_exceeded_qps(self.request.trace)
        if self.beyond:
            more = min(len(asked), max(0, math.ceil((metered_qps - top_qps) / float(asked[0]))))
            beyond = top_qps + float(asked[0]) * np.arange(1, more + 1)
            beyond[-1:] = np.maximum(beyond[-1:], metered_qps)
            return np.concatenate([asked, beyond, [HIGHEST_QPS]])
        wanted = metered_qps * len(asked) / max(1, len(asked) - 1)
        capacity = self.steady.capacity_qps(
            self.candidates[0].cascade, least_qps=top_qps, most_qps=max(top_qps, wanted)
        )
        return equal_ranges(max(top_qps, min(wanted, capacity)), len(asked))

    def _capacities(self) -> NDArray[np.float64]:
        """The highest loads (candidates,) at which they hold; 0 for those that no assignment needs.

        The most accurate come first: of the others only those are needed that hold at a higher load than every more
        accurate one of the front of accuracy against work.
        """
        planned_qps = self._planned_qps()
        least, most = float(planned_qps[0]), float(planned_qps[-1]) * LARGEST_MARGIN
        accuracy = np.array([c.accuracy for c in self.candidates])
        on_front = accuracy > np.concatenate([[-1.0], np.maximum.accumulate(accuracy)[:-1]])
        capacities, reached_qps = np.zeros(len(accuracy)), 0.0
        for done, c in enumerate(np.argsort(-accuracy, kind="stable").tolist()):
            self.on_time()
            self.progress("simulating steady load", 0.9 * done / len(accuracy))
            cascade = self.candidates[c].cascade
            bound_qps = SURELY_OVERLOADED / self.steady.balance(cascade).utilisation_per_qps
            highest_qps = max(least, min(most, bound_qps))
            if highest_qps <= reached_qps or self._slower_alone(self.candidates[c]):
                continue
            if reached_qps > 0 and not self.steady.holds(cascade, min(highest_qps, reached_qps * GRID_STEP)):
                continue
            lowest_qps = max(least, reached_qps)
            capacities[c] = self.steady.capacity_qps(cascade, least_qps=lowest_qps, most_qps=highest_qps)
            if on_front[c]:
                reached_qps = max(reached_qps, float(capacities[c]))
        return capacities

    def _highest_ranges(self) -> list[int]:
        """The highest range in which each candidate holds with the least margin; -1 for none.

        A capacity is a load of the grid; whether a range that ends up to a step above it is held is asked of steady
        state itself, unless in a hurry.
        """
        needed_qps = self._needed_qps(self._least_margin)
        highest = []
        for candidate, capacity in zip(self.candidates, self.capacities, strict=True):
            next_qps = float(needed_qps[min(_held(needed_qps, capacity) + 1, len(needed_qps) - 1)])
            at_the_edge = not self.quick and capacity < next_qps <= capacity * GRID_STEP
            held_qps = next_qps if at_the_edge and self.steady.holds(candidate.cascade, next_qps) else capacity
            highest.append(_held(needed_qps, held_qps))
        return highest

    def _slower_alone(self, candidate: CandidateCascade) -> bool:
        """Whether a cascade misses the objective even where nothing ever waits."""
        seldom = SURELY_REACHED * (1 - self.request.objective.percentile)
        run_s = [
            self.steady.least_run_s(model)
            for model, reach in zip(candidate.cascade.models, candidate.reach, strict=True)
            if reach > seldom
        ]
        return sum(run_s) + self.request.profile.front_end_s > self.request.latency_s

    def _assigned(self, margin: float) -> tuple[int, ...]:
        """Candidates for `margin` times the load; the last range, which has no upper end, gets the cheapest."""
        if margin == self._least_margin:
            highest = self._highest
        else:
            highest = [_held(self._needed_qps(margin), capacity) for capacity in self.capacities]
        highest = [len(self.upper_ends) - 1, *highest[1:]]
        assignment = best_monotone_assignment(self.candidates, highest, self.weights)
        return (*assignment[:-1], 0)

    def _least_repair(self, alpha: float) -> Choice | None:
        """The smallest margin whose plan holds on the trace as it is, by bisection; None when none does."""

        def replayed(margin: float) -> Choice | None:
            choice = self.replayed(Choice(self._assigned(margin), margin, alpha, 0.0))
            if not self._holds(choice):
                return None
            if self._best is None or choice.accuracy > self._best.accuracy:
                self._best = choice
            return choice

        low, high = self._least_margin, LARGEST_MARGIN
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

    def _with_constant(self, choices: list[Choice], above: float = -1.0) -> list[Choice]:
        """The choices and, if it is more accurate than they and than `above`, the best cascade that holds at all loads.

        Tried from the most accurate down, so that no plan of one gear under the same scope and margin is better.
        """
        above = max([above, *(c.accuracy for c in choices)])
        every_range, trace = self.request.objective.scope == "every-range", self.request.trace
        load_qps = self._least_margin * float(self.request.upper_ends()[-1])
        if not every_range:
            load_qps = len(trace) / (trace.duration_s + min(self.request.latency_s, HIGHEST_S))
        for c in sorted(range(len(self.candidates)), key=lambda c: -self._accuracy(c)):
            if self._accuracy(c) <= above:
                break
            able = self._may_hold if every_range else self._may_keep_up
            if c in self._refused or not able(self.candidates[c], load_qps):
                continue
            if self._holds(found := self._constant(c)):
                return _by_accuracy([*choices, found])
        return choices

    def _may_keep_up(self, candidate: CandidateCascade, load_qps: float) -> bool:
        self.on_time()
        return self.steady.balance(candidate.cascade).utilisation_per_qps * load_qps <= SURELY_OVERLOADED

    def _constant(self, c: int) -> Choice:
        """One cascade up to a load that the trace does not meter then; cheaper ones beyond, so that backlogs drain.

        Where steady state was simulated, they are those that hold.
        """
        to_qps = 2 * float(self.request.upper_ends()[-1])
        cheaper = [0] * len(self.upper_ends)
        if self.request.objective.scope == "trace" and len(self.capacities):
            to_qps = float(self.upper_ends[self._highest_visited])
            cheaper = [min(c, safe) for safe in self._assigned(self._safe_margin)]
        while True:
            assignment = tuple(a if end > to_qps else c for a, end in zip(cheaper, self.upper_ends, strict=True))
            one = Constant(c, to_qps)
            choice = self.replayed(Choice(assignment, self._least_margin, ALPHAS[0], 0.0, constant=one))
            if sum(self.seen[choice].arrived_in_gear[1:]) == 0 or to_qps >= HIGHEST_QPS:
                return choice
            to_qps *= 2

    def _with_raised(self, choices: list[Choice]) -> list[Choice]:
        """The choices and, of a constant one, what serves low loads better that the trace hardly has.

        It comes first where it is as accurate.
        """
        for place, choice in enumerate(choices):
            if choice.constant is None:
                continue
            c, to_qps = choice.constant
            assignment = list(choice.assignment)
            for k, safe in enumerate(self._assigned(self._safe_margin)[: _held(self.upper_ends, to_qps)]):
                assignment[k] = max(c, safe) if self._accuracy(safe) > self._accuracy(c) else c
            tried = self.replayed(replace(choice, assignment=tuple(assignment)))
            if self._holds(tried) and tried.accuracy >= choice.accuracy:
                return _by_accuracy([*choices[:place], tried, *choices[place:]])
        return choices

    def _improved(self, choice: Choice) -> list[Choice]:
        """The choice with dearer cascades where the replay holds and gains accuracy.

        First the cheapest cascade of the plan is replaced everywhere, then one range at a time, those with the most
        requests first; large steps before small ones.  In scope `every-range` only cascades that hold in steady state
        at the range's upper end, with the least margin, are tried.
        """
        least, most = IMPROVING_REPLAYS
        path: list[Choice] = []
        left = min(most, max(least, IMPROVING_REQUESTS // len(self.request.trace)))
        ranges = [
            k for k in np.argsort(-self.weights).tolist() if self.weights[k] > SELDOM and k < len(self.weights) - 1
        ]
        for step in IMPROVING_STEPS:
            for k in [None, *ranges]:
                while left > 0:
                    changed = self._dearer(choice.assignment, k, max(1, round(step * len(self.candidates))))
                    if changed is None:
                        break
                    left -= 1
                    tried = self.replayed(replace(choice, assignment=changed))
                    if not self._holds(tried) or tried.accuracy <= choice.accuracy:
                        break
                    gain = tried.accuracy - choice.accuracy
                    raised = [r for r, (a, b) in enumerate(zip(choice.assignment, changed, strict=True)) if a != b]
                    choice = replace(tried, gains=choice.gains | {r: choice.gains.get(r, 0.0) + gain for r in raised})
                    path.append(choice)
        return path

    def _dearer(self, assignment: tuple[int, ...], k: int | None, step: int) -> tuple[int, ...] | None:
        """The assignment with range `k`, or with None the cheapest of all ranges, `step` candidates dearer.

        Candidates that are dearer but not more accurate are passed over.  Ranges above all that the trace visits keep
        what holds there.
        """
        now = min(assignment) if k is None else assignment[k]
        better = (c for c in range(now + step, len(self.candidates)) if self._accuracy(c) > self._accuracy(now))
        dearer = next(better, None)
        if dearer is None:
            return None
        if self.request.objective.scope == "every-range" and not self.holds_in(
            len(assignment) - 1 if k is None else k, dearer
        ):
            return None
        unseen = range(self._highest_visited + 1, len(assignment))
        kept = [r for r in unseen if not self.holds_in(r, dearer)]
        return tuple(max(a, dearer) if k in (None, r) and r not in kept else a for r, a in enumerate(assignment))

    def _accuracy(self, c: int) -> float:
        return self.candidates[c].accuracy

    def _confirmed(self, choice: Choice) -> GearPlan | None:
        """The chosen plan when it holds on all seeds, on part A and then on part B, and recovers."""
        return confirmed_to_recover(self.plan_of(choice), self.request, on_time=self.on_time)

    def _more_careful(self, choice: Choice) -> Choice | None:
        """The choice for the next margin with another assignment; None for what local search has found."""
        margin, assignment = choice.margin, choice.assignment
        if choice.gains or margin == CHEAPEST_EVERYWHERE:
            return None
        while assignment == choice.assignment and margin < CHEAPEST_EVERYWHERE:
            margin *= 1 + 2 * MARGIN_PRECISION
            margin = CHEAPEST_EVERYWHERE if margin > LARGEST_MARGIN else margin
            assignment = self._assigned(margin)
        return self.replayed(Choice(assignment, margin, choice.alpha, 0.0))

    def _holds(self, choice: Choice) -> bool:
        return self.seen[choice].latency_s <= self.request.latency_s

    def _infeasible(self) -> Infeasible:
        ends = self.request.upper_ends() if self.beyond else self.upper_ends
        nearest = not self.quick
        return nothing_holds(self.request, self.steady, self.candidates, ends, nearest=nearest, on_time=self.on_time)


def _held(needed_qps: NDArray[np.float64], capacity_qps: float) -> int:
    """The last range that needs no more than a capacity; -1 for none."""
    return int(np.searchsorted(needed_qps, capacity_qps, side="right")) - 1


def _by_accuracy(choices: Sequence[Choice]) -> list[Choice]:
    return sorted(choices, key=lambda c: -c.accuracy)
