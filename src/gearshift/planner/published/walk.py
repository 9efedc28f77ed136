"""The walk from the most accurate assignment of cascades to the cheapest.

Each step visits one plan (Ken, section 4.2).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.placement import Placement
from gearshift.planner.contract.planner import CUT_SHORT, SoFar, unfinished, with_best
from gearshift.planner.evaluate.bottleneck import refusal
from gearshift.planner.evaluate.confirm import with_predictions
from gearshift.planner.published.beam_search import WIDTH, Cost, Placer, Site, beam_search, sites
from gearshift.planner.published.candidate_plans import Assignment, Candidate, CandidatePlans, Tried
from gearshift.planner.space.cascade_search import pareto_cascades
from gearshift.planner.space.hosts import device_seconds, nowhere
from gearshift.planner.space.request import PlanRequest
from gearshift.support.numbers import plain

WALK_SHARE = 0.7
"""Share of the budget for the walk; the rest is for choosing among the visited plans."""


def lowered(assignment: Assignment, load_range: int) -> Assignment:
    """Take the next cheaper cascade in this range.

    Higher ranges get no more expensive cascade than that (Ken, section 4.3.1).
    """
    cheaper = assignment[load_range] - 1
    return (*assignment[:load_range], *(min(c, cheaper) for c in assignment[load_range:]))


class Walk:
    def __init__(self, so_far: SoFar) -> None:
        self.so_far, self.request, self.progress = so_far, so_far.request, so_far.report
        self.unfinished, request = False, so_far.request
        self.sites = _sites(request)
        self.placer = Placer(request.hardware, self.sites, np.random.default_rng([request.seed, 4]))
        self.batch_sizes = sorted({size for site in self.sites for size in site.curve.batch_sizes})
        self.progress("searching cascades", 0.0)
        cascades = pareto_cascades(
            request.profile,
            _work_s(self.sites),
            most=request.most_candidates,
            allowed=lambda chain: self.placer.first(chain) is not None,
        )
        self.plans = CandidatePlans(request, cascades)
        self.visited: list[Tried] = []
        self._placements: dict[frozenset[str], Placement | None] = {}

    def run(self, enough: Callable[[Tried], bool] = lambda tried: False) -> None:
        """Visit the cheapest plan, then all from the most accurate down to it (section 4.2).

        Ends early at a plan that is `enough`, or when cut short; then the plans are `unfinished`.
        """
        self.so_far.share = WALK_SHARE
        ranges, dearest, largest = len(self.plans.ranges), len(self.plans.cascades) - 1, self.batch_sizes[-1]
        try:
            cheapest = self._revised((0,) * ranges, 0, largest)
            if cheapest is None:
                raise self._overloaded()
            self._visit(self._settled(cheapest), 0.0)
            current = self._revised((dearest,) * ranges, 0, largest)
            while current is not None:
                current = self._settled(current)
                left = sum(current.candidate.assignment) / max(1, dearest * ranges)
                self._visit(current, 0.9 * (1 - left))
                current = None if enough(current) else self._step(current)
        except CUT_SHORT as why:
            self.cut_short(why)
        self.so_far.share = 1.0

    def finished(self, candidate: Candidate) -> GearPlan:
        made = self.plans.predicted(candidate)
        try:
            made = with_predictions(made, self.request, on_time=self.so_far.check)
        except CUT_SHORT as why:
            self.cut_short(why)
        return unfinished(made, self.request) if self.unfinished else made

    def likely(self) -> Tried | None:
        objective = self.request.objective
        met = [
            t
            for t in self.visited
            if t.latency_s <= self.request.latency_s and t.accuracy >= (objective.accuracy or 0.0)
        ]
        if objective.latency_s is None:
            return min(met, key=lambda t: t.latency_s, default=None)
        return max(met, key=lambda t: t.accuracy, default=None)

    def cut_short(self, why: BaseException) -> None:
        """Note that the search is cut short, by Ctrl-C for good; raises where there is no plan yet."""
        self.unfinished = True
        if isinstance(why, KeyboardInterrupt):
            self.so_far.end()
        if not self.visited:
            raise why

    def tried(self, candidate: Candidate) -> Tried:
        if not self.plans.known(candidate):
            self.so_far.check()
        return self.plans.tried(candidate)

    # Steps (section 4.3.1) --------------------------------------------------------------------------------------------

    def _visit(self, tried: Tried, share: float) -> None:
        self.visited.append(tried)
        count, best = len(self.visited), self.likely()
        plans = f"{count} plan{'s' * (count != 1)} so far"
        self.progress(with_best(f"walking the frontier, {plans}", best.accuracy if best else None), share)

    def _step(self, current: Tried) -> Tried | None:
        """The best of the next cheaper cascade in each range; None at the end.

        Changes only to gears that were never in force are skipped: simulation would not see them.
        """
        candidate, tried = current.candidate, []
        for k, c in enumerate(candidate.assignment):
            if c > 0:
                lower = lowered(candidate.assignment, k)
                if any(lower[j] != candidate.assignment[j] for j in current.entered):
                    tried.append(self._revised(lower, k, candidate.largest_batch_size, near=candidate.placement))
        return max((t for t in tried if t is not None), key=lambda t: t.score, default=None)

    def _revised(
        self, assignment: Assignment, blamed: int, largest_batch_size: int, *, near: Placement | None = None
    ) -> Tried | None:
        """Put the assignment on the best placement known; make it cheaper where none can carry it.

        `blamed` is the range made cheaper when the models do not fit together. An overloaded range
        that has the cheapest cascade lacks replicas: models are placed afresh for the current
        assignment, and if that does not help, the highest range with a more expensive cascade is
        blamed. None when the cheapest cascade alone is too much.
        """
        improved, afresh = set(), set()
        while True:
            models = self.plans.models(assignment)
            found = self._placed(assignment, largest_batch_size, near)
            if found is not None:
                if found.overloaded is None:
                    return found
                if models not in improved:
                    improved.add(models)
                    self._improve(found.candidate)
                    continue
                blamed = found.overloaded
                if assignment[blamed] == 0 and assignment not in afresh:
                    afresh.add(assignment)
                    self._search(found.candidate, [found.candidate.placement, *self._starts(models)])
                    continue
            if assignment[blamed] == 0:
                dearer = [k for k, c in enumerate(assignment) if c > 0]
                if not dearer:
                    return None
                blamed = dearer[-1]
            assignment = lowered(assignment, blamed)

    def _settled(self, tried: Tried) -> Tried:
        best = self.tried(replace(tried.candidate, placement=self._improve(tried.candidate)))
        while True:
            i = self.batch_sizes.index(best.candidate.largest_batch_size)
            near = [*self.batch_sizes[max(0, i - 1) : i], *self.batch_sizes[i + 1 : i + 2]]
            others = [self.tried(replace(best.candidate, largest_batch_size=size)) for size in near]
            better = max(others, key=lambda t: t.score, default=best)
            if better.score <= best.score:
                return best
            best = better

    # Placement (section 4.3.2) ----------------------------------------------------------------------------------------

    def _placed(self, assignment: Assignment, largest_batch_size: int, near: Placement | None) -> Tried | None:
        models = self.plans.models(assignment)
        if models not in self._placements:
            starts = self._starts(models)
            self._placements[models] = None
            if starts:
                self._search(Candidate(assignment, starts[0], largest_batch_size), starts)
        known = self._placements[models]
        if known is None:
            return None
        here = None if near is None else self.placer.completed(near, models)
        placements = [known] if here is None else [known, here]
        return min((self.tried(Candidate(assignment, p, largest_batch_size)) for p in placements), key=_cost)

    def _starts(self, models: frozenset[str]) -> list[Placement]:
        return [first for _ in range(WIDTH) if (first := self.placer.first(models)) is not None]

    def _improve(self, candidate: Candidate) -> Placement:
        return self._search(candidate, [candidate.placement], width=1)

    def _search(self, candidate: Candidate, starts: Sequence[Placement], *, width: int = WIDTH) -> Placement:
        def cost(placement: Placement) -> Cost:
            return _cost(self.tried(replace(candidate, placement=placement)))

        placement = beam_search(self.placer, cost, starts, width=width)
        self._placements[self.plans.models(candidate.assignment)] = placement
        return placement

    def _overloaded(self) -> Infeasible:
        cheapest, top_qps = self.plans.cascades[0], self.plans.upper_ends[-1]
        devices = len(self.request.hardware.devices)
        needed = math.ceil(cheapest.work_s * top_qps / 0.9)
        return refusal(
            self.request,
            f"{devices} device{'s' * (devices > 1)} cannot carry {plain(top_qps)} requests/s with the cheapest "
            f"cascade, about {max(needed, devices + 1)} could",
            model=self.bottleneck(0),
        )

    def bottleneck(self, c: int) -> str:
        chosen, work_s = self.plans.cascades[c], _work_s(self.sites)
        spent = dict(zip(chosen.cascade.models, chosen.reach, strict=True))
        return max(spent, key=lambda model: spent[model] * work_s[model])


def _cost(tried: Tried) -> Cost:
    return tried.overload_s, tried.latency_s


def _work_s(sites_: Iterable[Site]) -> dict[str, float]:
    """Device-seconds per request of each model, at its best site and batch size."""
    least: dict[str, float] = {}
    for site in sites_:
        least[site.model] = min(device_seconds(site.curve), least.get(site.model, math.inf))
    return least


def _sites(request: PlanRequest) -> tuple[Site, ...]:
    found = sites(request.profile, request.hardware)
    if not found:
        raise nowhere(request.profile, request.hardware)
    return found
