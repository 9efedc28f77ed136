"""Ken's planner: gear plans along the frontier from the most accurate to the cheapest (section 4).

From the most accurate cascade at every load, each step tries the next cheaper cascade in each load
range, and keeps the plan with the most accuracy per latency on the workload (`walk`). Replicas are
placed by beam search (`beam_search`); load is shared and batches are timed for each placement
(`invocation_schedule`). docs/planners/frontier.md lists the differences from the paper, and the
reasons.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import CUT_SHORT, OutOfTime, Planner, SoFar, spread
from gearshift.planner.evaluate.assemble import rounded_up_s
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.confirm import Confirmation, replay
from gearshift.planner.published.candidate_plans import Candidate, Tried
from gearshift.planner.published.walk import Walk, lowered
from gearshift.planner.space.pareto import undominated
from gearshift.profiles.profile import PART_A
from gearshift.support.numbers import plain

T = TypeVar("T")

ACCURACY_NOISE, LATENCY_NOISE = 0.01, 1.5
"""Tolerance between the search and replays of the whole trace: plans that miss the objective by
more are not replayed."""
LEAST_MARGIN = 1.15
"""Multiple of a range's load at which `plan` requires its gear to be in time; 1 for the cheapest
cascade. Plans are chosen on some samples and serve others, which may need a few percent more
work."""
FAR_BELOW = 0.5
"""Share of the latency objective: once a plan is this fast, cheaper plans are not tried."""
SPARE = 1.05
MOST_NEAREST = 3


def _best_within(so_far: SoFar) -> GearPlan:
    """The visited plan that meets the objective on the trace.

    With a latency it is the most accurate plan that keeps it (and the accuracy, if one is asked
    for), else the fastest plan with the accuracy.
    """
    chosen = _Choice(Walk(so_far)).run()
    so_far.report("confirmed", 1.0)
    return chosen


def _undominated(so_far: SoFar) -> list[GearPlan]:
    """Visited plans that no other beats on part A."""
    walk, progress = Walk(so_far), so_far.report
    walk.run()
    kept = _unbeaten(walk.visited)
    if walk.plans.sampled:
        progress("replaying", 0.9)
        kept = _unbeaten(_as_time_allows(walk, kept, walk.plans.on_the_whole_trace))
    progress("predicting", 0.92)
    made = _as_time_allows(walk, kept, lambda tried: walk.finished(tried.candidate))
    progress("predicted", 1.0)
    return [msgspec.structs.replace(each, unfinished=walk.unfinished) for each in made]


PLANNER = Planner(name="frontier", best_within=_best_within, undominated=_undominated)


def _as_time_allows(walk: Walk, kept: Sequence[Tried], do: Callable[[Tried], T]) -> list[T]:
    done: dict[int, T] = {}
    try:
        for i in sorted(range(len(kept)), key=spread):
            if done:
                walk.so_far.check()
            done[i] = do(kept[i])
    except CUT_SHORT as why:
        walk.cut_short(why)
    return [done[i] for i in sorted(done)]


class _Choice:
    def __init__(self, walk: Walk) -> None:
        self.walk, self.plans, self.objective = walk, walk.plans, walk.request.objective
        self.chosen: Candidate | None = None
        self.replayed: dict[Candidate, Confirmation] = {}

    def run(self) -> GearPlan:
        self.walk.run(self._enough)
        try:
            if self.objective.latency_s is None:
                self._choose_fastest()
            else:
                self._choose_most_accurate()
            if self.chosen is None and not self.walk.unfinished:
                raise self._infeasible()
        except CUT_SHORT as why:
            self.walk.cut_short(why)
        if self.chosen is None and (likely := self.walk.likely()) is not None:
            self.chosen = likely.candidate
        if self.chosen is None:
            raise OutOfTime
        return self.walk.finished(self.chosen)

    def _enough(self, tried: Tried) -> bool:
        if self.objective.latency_s is not None:
            return tried.latency_s < FAR_BELOW * self.objective.latency_s and self._in_time(tried) is not None
        return tried.accuracy < (self.objective.accuracy or 0.0) - 2 * ACCURACY_NOISE

    def _choose_fastest(self) -> None:
        for tried in sorted(self.walk.visited, key=lambda t: t.latency_s):
            if self._accurate(tried):
                self.chosen = tried.candidate
                break

    def _choose_most_accurate(self) -> None:
        """Start with the cheapest plan, so that there is one soon; then by falling accuracy."""
        most, (cheapest, *others) = -1.0, self.walk.visited
        for visited in [cheapest, *sorted(others, key=lambda t: -t.accuracy)]:
            tried = self._in_time(visited) if visited.accuracy > most else None
            if tried is None or tried.latency_s > LATENCY_NOISE * self.walk.request.latency_s:
                continue
            if not self._accurate(tried):
                continue
            replayed = self._replay(tried.candidate)
            if replayed.holds(self.objective.percentile) and replayed.result.accuracy > most:
                self.chosen, most = tried.candidate, replayed.result.accuracy

    def _accurate(self, tried: Tried) -> bool:
        wanted = self.objective.accuracy
        if wanted is None:
            return True
        return tried.accuracy + ACCURACY_NOISE >= wanted and self._replay(tried.candidate).result.accuracy >= wanted

    def _replay(self, candidate: Candidate) -> Confirmation:
        if candidate not in self.replayed:
            self.replayed[candidate] = replay(
                self.plans.bare(candidate), self.walk.request, part=PART_A, on_time=self.walk.so_far.check
            )
        return self.replayed[candidate]

    def _in_time(self, tried: Tried) -> Tried | None:
        """Make ranges cheaper on the same placement until none is late; None where that fails.

        With scope `trace`, steady state is not checked.
        """
        candidate, placed = tried.candidate, set(tried.candidate.placement.models)
        while (k := self._late_range(candidate)) is not None:
            assignment = candidate.assignment
            while assignment is candidate.assignment or not self.plans.models(assignment) <= placed:
                if assignment[k] == 0:
                    return None
                assignment = lowered(assignment, k)
            candidate = replace(candidate, assignment=assignment)
        return self.walk.tried(candidate)

    def _late_range(self, candidate: Candidate) -> int | None:
        if self.objective.scope == "every-range":
            for k in range(len(self.plans.ranges)):
                self.walk.so_far.check()
                cell = self._cell(candidate, k)
                if not cell.stable or cell.latency_s > self.walk.request.latency_s:
                    return k
        return None

    def _cell(self, candidate: Candidate, k: int) -> Cell:
        margin = self.walk.request.least_margin or LEAST_MARGIN
        return self.plans.cell(candidate, k, margin=margin if candidate.assignment[k] > 0 else 1.0)

    def _infeasible(self) -> Infeasible:
        objective, plans = self.objective, self.plans
        devices = len(self.walk.request.hardware.devices)
        on_devices = f"on {devices} device{'s' * (devices > 1)}"
        accurate = [t for t in sorted(self.walk.visited, key=lambda t: t.latency_s) if self._accurate(t)]
        if not accurate:
            best = max(self.walk.visited, key=lambda t: t.accuracy)
            dearest = len(plans.cascades) - 1
            k = next((k for k, c in enumerate(best.candidate.assignment) if c < dearest), len(plans.ranges) - 1)
            return refusal(
                self.walk.request,
                f"no plan reaches an accuracy of {objective.accuracy:.4g} {on_devices}; "
                f"the most accurate one has {best.accuracy:.4g}",
                k=k,
                model=self.walk.bottleneck(dearest),
                placement=best.candidate.placement,
                cascade=plans.cascades[best.candidate.assignment[k]].cascade,
                nearest_accuracy=best.accuracy,
            )
        nearest_s = min(self._needed_s(tried.candidate) for tried in accurate[:MOST_NEAREST])
        fastest = accurate[0].candidate
        late = self._late_range(fastest)
        k = len(plans.ranges) - 1 if late is None else late
        as_accurate = "" if objective.accuracy is None else f" with an accuracy of {objective.accuracy:.4g}"
        return refusal(
            self.walk.request,
            f"no plan keeps {objective.percentile:.4g} of requests within {plain(self.walk.request.latency_s * 1e3)} ms"
            f"{as_accurate} {on_devices}",
            k=k,
            model=self.walk.bottleneck(fastest.assignment[k]),
            placement=fastest.placement,
            cascade=plans.cascades[fastest.assignment[k]].cascade,
            nearest_latency_s=nearest_s if nearest_s < math.inf else None,
        )

    def _needed_s(self, candidate: Candidate) -> float:
        replayed = self._replay(candidate)
        needed_s = max(self.walk.request.latency_s, float(replayed.latency_s.max() + replayed.latency_s.std()))
        if self.objective.scope == "every-range":
            cells = [self._cell(candidate, k) for k in range(len(self.plans.ranges))]
            needed_s = max(needed_s, *(cell.latency_s if cell.stable else math.inf for cell in cells))
        return rounded_up_s(SPARE * needed_s) if needed_s < math.inf else math.inf


def _unbeaten(tried: Sequence[Tried]) -> list[Tried]:
    return [tried[i] for i in undominated([(t.latency_s, t.accuracy) for t in tried])]
