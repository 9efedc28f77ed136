"""Ken's planner: gear plans along the frontier from the most accurate to the cheapest (its section 4).

From the most accurate cascade at every load, each step tries for every load range the next cheaper cascade there, and
keeps what gives most accuracy per latency on the workload.  Replicas are placed by beam search (`beam_search`); load
is shared and batches are timed for each placement (`invocation_schedule`).  What differs from the paper, and why, is
in docs/planners/frontier.md.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S, WallClock
from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.placement import Placement
from gearshift.planner.assemble import replay, rounded_up_s, with_predictions
from gearshift.planner.beam_search import WIDTH, Cost, Placer, Site, beam_search, sites
from gearshift.planner.candidate_plans import Assignment, Candidate, CandidatePlans, Tried
from gearshift.planner.cascade_search import pareto_cascades
from gearshift.planner.confirm import Confirmation
from gearshift.planner.pareto import undominated
from gearshift.planner.request import PlanRequest, Progress, silent
from gearshift.planner.steady_state import Cell
from gearshift.profiles.profile import PART_A

WALK_SHARE = 0.7
"""Of the time there is; the rest is for choosing among the plans that were visited."""
ACCURACY_NOISE, LATENCY_NOISE = 0.01, 1.5
"""How far the search may be from replays of the whole trace: what misses the objective by more is not replayed."""
LEAST_MARGIN = 1.15
"""How many times the load of its range `plan` asks a gear to be in time at; of the cheapest cascade, once.  Plans are
chosen on some samples and serve others, which may ask for a few percent more work."""
FAR_BELOW = 0.5
"""Of the latency objective: cheaper plans than one that is as fast as this are not looked at."""
SPARE = 1.05
MOST_NEAREST = 3


def plan(request: PlanRequest, *, progress: Progress = silent) -> GearPlan:
    """The visited plan that answers the objective on the trace; raises `Infeasible` when none does.

    With a latency it is the most accurate one that keeps it (and the accuracy, if one is asked for), else the fastest
    one with the accuracy.
    """
    objective = request.objective
    require(
        objective.latency_s is not None or objective.accuracy is not None,
        "the planner needs an objective",
        remedy="give --p95-ms, or an accuracy, or both",
    )
    require(
        objective.confidence is None,
        "the planner 'frontier' takes no confidence",
        remedy="leave it out, and read the interval that the plan records",
    )
    chosen = _Choice(_Walk(request, progress)).run()
    progress("confirmed", 1.0)
    return chosen


def frontier(request: PlanRequest, *, progress: Progress = silent) -> list[GearPlan]:
    """The plans visited that no other beats on part A, by rising latency; raises `Infeasible` when there are none."""
    walk = _Walk(request, progress)
    walk.run()
    kept = walk.frontier()
    made = []
    for done, tried in enumerate(kept):
        progress("predicting", 0.9 + 0.1 * done / len(kept))
        made.append(walk.finished(tried.candidate))
    progress("predicted", 1.0)
    return made


def lowered(assignment: Assignment, load_range: int) -> Assignment:
    """The next cheaper cascade in this range, and nothing dearer than that in any higher one (Ken, section 4.3.1)."""
    cheaper = assignment[load_range] - 1
    return (*assignment[:load_range], *(min(c, cheaper) for c in assignment[load_range:]))


class _OutOfTimeError(Exception):
    """The budget is used up."""


class _Walk:
    """The walk from the most accurate assignment to the cheapest, and the plans that it visited."""

    def __init__(self, request: PlanRequest, progress: Progress) -> None:
        self.request, self.progress = request, progress
        self.clock, self.time_share, self.unfinished = WallClock(), WALK_SHARE, False
        self.sites = _sites(request)
        self.placer = Placer(request.hardware, self.sites, np.random.default_rng([request.seed, 4]))
        self.batch_sizes = sorted({size for site in self.sites for size in site.curve.batch_sizes})
        progress("searching cascades", 0.0)
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

        Ends before where a plan is `enough`, or when the walk's time is over.
        """
        ranges, dearest, largest = len(self.plans.ranges), len(self.plans.cascades) - 1, self.batch_sizes[-1]
        try:
            cheapest = self._revised((0,) * ranges, 0, largest)
            if cheapest is None:
                raise self._overloaded()
            self.visited.append(self._settled(cheapest))
            current = self._revised((dearest,) * ranges, 0, largest)
            while current is not None:
                current = self._settled(current)
                self.visited.append(current)
                left = sum(current.candidate.assignment) / max(1, dearest * ranges)
                self.progress("walking the frontier", 0.9 * (1 - left))
                current = None if enough(current) else self._step(current)
        except _OutOfTimeError:
            self.unfinished = True
            if not self.visited:
                raise self.out_of_time() from None
        self.time_share = 1.0

    def frontier(self) -> list[Tried]:
        """The plans visited that no other beats, by rising latency, on the whole trace."""
        kept = _undominated(self.visited)
        return _undominated([self.plans.on_the_whole_trace(tried) for tried in kept]) if self.plans.sampled else kept

    def finished(self, candidate: Candidate) -> GearPlan:
        """The plan with all its predictions."""
        made = msgspec.structs.replace(self.plans.predicted(candidate), unfinished=self.unfinished)
        return with_predictions(made, self.request)

    def tried(self, candidate: Candidate) -> Tried:
        """The candidate, simulated if there is time."""
        if not self.plans.known(candidate):
            self.check_time()
        return self.plans.tried(candidate)

    def check_time(self) -> None:
        """Raises when the budget, or the walk's part of it, is used up."""
        budget_s = self.request.budget_s
        if budget_s is not None and self.clock.now_ns() > self.time_share * budget_s * NS_PER_S:
            raise _OutOfTimeError

    def out_of_time(self) -> Infeasible:
        """No plan, for want of time."""
        return Infeasible(f"no plan that meets the objective was found within {self.request.budget_s:.4g} s")

    # Steps (section 4.3.1) --------------------------------------------------------------------------------------------

    def _step(self, current: Tried) -> Tried | None:
        """The best of the next cheaper cascade in each range; None at the end.

        What changes only gears that were never in force would change nothing that simulation sees, and is not tried.
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
        """The assignment on the best placement known; made cheaper where no placement found can carry it.

        `blamed` is the range made cheaper when the models do not fit together.  None when the cheapest cascade is
        too much.
        """
        searched = set()
        while True:
            models = self.plans.models(assignment)
            found = self._placed(assignment, largest_batch_size, near)
            if found is not None:
                if found.overloaded is None:
                    return found
                if models not in searched:
                    searched.add(models)
                    self._improve(found.candidate)
                    continue
                blamed = found.overloaded
            if assignment[blamed] == 0:
                return None
            assignment = lowered(assignment, blamed)

    def _settled(self, tried: Tried) -> Tried:
        """The candidate that was chosen, on the placement and with the largest batch that are best for it."""
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
        """The assignment on the better of what is known for its models and what is near; None where they do not fit."""
        models = self.plans.models(assignment)
        if models not in self._placements:
            starts = [first for _ in range(WIDTH) if (first := self.placer.first(models)) is not None]
            self._placements[models] = None
            if starts:
                self._search(Candidate(assignment, starts[0], largest_batch_size), starts)
        known = self._placements[models]
        if known is None:
            return None
        here = None if near is None else self.placer.completed(near, models)
        placements = [known] if here is None else [known, here]
        return min((self.tried(Candidate(assignment, p, largest_batch_size)) for p in placements), key=_cost)

    def _improve(self, candidate: Candidate) -> Placement:
        """As a search from where the candidate is placed, of one placement at a time."""
        return self._search(candidate, [candidate.placement], width=1)

    def _search(self, candidate: Candidate, starts: Sequence[Placement], *, width: int = WIDTH) -> Placement:
        """The best placement found from `starts`, which is from now on the one known for these models."""

        def cost(placement: Placement) -> Cost:
            return _cost(self.tried(replace(candidate, placement=placement)))

        placement = beam_search(self.placer, cost, starts, width=width)
        self._placements[self.plans.models(candidate.assignment)] = placement
        return placement

    def _overloaded(self) -> Infeasible:
        """The devices cannot carry the cheapest cascade."""
        cheapest, top_qps = self.plans.cascades[0], self.plans.upper_ends[-1]
        devices = len(self.request.hardware.devices)
        needed = math.ceil(cheapest.work_s * top_qps / 0.9)
        return Infeasible(
            f"{devices} device{'s' * (devices > 1)} cannot carry {top_qps:.4g} requests/s with the cheapest cascade, "
            f"about {max(needed, devices + 1)} could",
            load_range=str(self.plans.ranges[-1]),
            bottleneck=self.bottleneck(0),
        )

    def bottleneck(self, c: int) -> str:
        """The model on which cascade c spends most."""
        chosen, work_s = self.plans.cascades[c], _work_s(self.sites)
        spent = dict(zip(chosen.cascade.models, chosen.reach, strict=True))
        return max(spent, key=lambda model: spent[model] * work_s[model])


class _Choice:
    """Which of the plans that a walk visited answers the objective, by replays of the whole trace on part A."""

    def __init__(self, walk: _Walk) -> None:
        self.walk, self.plans, self.objective = walk, walk.plans, walk.request.objective
        self.chosen: Candidate | None = None
        self.replayed: dict[Candidate, Confirmation] = {}

    def run(self) -> GearPlan:
        """The chosen plan with its predictions; raises `Infeasible` when there is none."""
        self.walk.run(self._enough)
        try:
            if self.objective.latency_s is None:
                self._choose_fastest()
            else:
                self._choose_most_accurate()
        except _OutOfTimeError:
            self.walk.unfinished = True
        if self.chosen is None:
            raise self.walk.out_of_time() if self.walk.unfinished else self._infeasible()
        return self.walk.finished(self.chosen)

    def _enough(self, tried: Tried) -> bool:
        """Whether plans further down the walk, which are cheaper, cannot be the answer."""
        if self.objective.latency_s is not None:
            return tried.latency_s < FAR_BELOW * self.objective.latency_s and self._in_time(tried) is not None
        return tried.accuracy < (self.objective.accuracy or 0.0) - 2 * ACCURACY_NOISE

    def _choose_fastest(self) -> None:
        for tried in sorted(self.walk.visited, key=lambda t: t.latency_s):
            if self._accurate(tried):
                self.chosen = tried.candidate
                return

    def _choose_most_accurate(self) -> None:
        """The cheapest plan first, so that there is one however short the time is; then from the most accurate on."""
        most, (cheapest, *others) = -1.0, self.walk.visited
        for visited in [cheapest, *sorted(others, key=lambda t: -t.accuracy)]:
            tried = self._in_time(visited) if visited.accuracy > most else None
            if tried is None or tried.latency_s > LATENCY_NOISE * self.walk.request.latency_s:
                continue
            if not self._accurate(tried):
                continue
            replayed = self._replay(tried.candidate)
            in_time = replayed.share_late_bound() <= 1 - self.objective.percentile
            if in_time and replayed.result.accuracy > most:
                self.chosen, most = tried.candidate, replayed.result.accuracy

    def _accurate(self, tried: Tried) -> bool:
        """Whether the plan is as accurate as is asked for."""
        wanted = self.objective.accuracy
        if wanted is None:
            return True
        return tried.accuracy + ACCURACY_NOISE >= wanted and self._replay(tried.candidate).result.accuracy >= wanted

    def _replay(self, candidate: Candidate) -> Confirmation:
        if candidate not in self.replayed:
            self.walk.check_time()
            self.replayed[candidate] = replay(self.plans.bare(candidate), self.walk.request, part=PART_A)
        return self.replayed[candidate]

    def _in_time(self, tried: Tried) -> Tried | None:
        """The plan with ranges made cheaper, by what is placed, until none is late in steady state; None for no such.

        Of scope `trace`, steady state is not asked for.
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
        """The lowest range that is late under steady load, where the scope asks for every range."""
        if self.objective.scope == "every-range":
            for k in range(len(self.plans.ranges)):
                self.walk.check_time()
                cell = self._cell(candidate, k)
                if not cell.stable or cell.latency_s > self.walk.request.latency_s:
                    return k
        return None

    def _cell(self, candidate: Candidate, k: int) -> Cell:
        margin = self.walk.request.least_margin or LEAST_MARGIN
        return self.plans.cell(candidate, k, margin=margin if candidate.assignment[k] > 0 else 1.0)

    def _infeasible(self) -> Infeasible:
        """Why there is no plan, and the nearest latency that one of the fastest accurate plans keeps."""
        objective, plans = self.objective, self.plans
        devices = len(self.walk.request.hardware.devices)
        on_devices = f"on {devices} device{'s' * (devices > 1)}"
        accurate = [t for t in sorted(self.walk.visited, key=lambda t: t.latency_s) if self._accurate(t)]
        if not accurate:
            best = max(self.walk.visited, key=lambda t: t.accuracy)
            dearest = len(plans.cascades) - 1
            k = next((k for k, c in enumerate(best.candidate.assignment) if c < dearest), len(plans.ranges) - 1)
            return Infeasible(
                f"no plan reaches an accuracy of {objective.accuracy:.4g} {on_devices}; "
                f"the most accurate one has {best.accuracy:.4g}",
                load_range=str(plans.ranges[k]),
                bottleneck=self.walk.bottleneck(dearest),
            )
        nearest_s = min(self._needed_s(tried.candidate) for tried in accurate[:MOST_NEAREST])
        fastest = accurate[0].candidate
        late = self._late_range(fastest)
        k = len(plans.ranges) - 1 if late is None else late
        as_accurate = "" if objective.accuracy is None else f" with an accuracy of {objective.accuracy:.4g}"
        return Infeasible(
            f"no plan keeps {objective.percentile:.4g} of requests within {self.walk.request.latency_s * 1e3:.4g} ms"
            f"{as_accurate} {on_devices}",
            load_range=str(plans.ranges[k]),
            bottleneck=self.walk.bottleneck(fastest.assignment[k]),
            nearest_latency_s=nearest_s if nearest_s < math.inf else None,
        )

    def _needed_s(self, candidate: Candidate) -> float:
        """A round latency objective that the plan keeps, and is not tighter than the one asked for."""
        replayed = self._replay(candidate)
        needed_s = max(self.walk.request.latency_s, float(replayed.latency_s.max() + replayed.latency_s.std()))
        if self.objective.scope == "every-range":
            cells = [self._cell(candidate, k) for k in range(len(self.plans.ranges))]
            needed_s = max(needed_s, *(cell.latency_s if cell.stable else math.inf for cell in cells))
        return rounded_up_s(SPARE * needed_s) if needed_s < math.inf else math.inf


def _cost(tried: Tried) -> Cost:
    return tried.overload_s, tried.latency_s


def _undominated(tried: Sequence[Tried]) -> list[Tried]:
    return [tried[i] for i in undominated([(t.latency_s, t.accuracy) for t in tried])]


def _work_s(sites_: Iterable[Site]) -> dict[str, float]:
    """Device-seconds per request of each model that fits somewhere, at the site and batch size where it takes least."""
    least: dict[str, float] = {}
    for site in sites_:
        table_s = site.curve.table_ns()[1:] / NS_PER_S
        work_s = site.degree * float((table_s / np.arange(1, len(table_s) + 1)).min())
        least[site.model] = min(work_s, least.get(site.model, math.inf))
    return least


def _sites(request: PlanRequest) -> tuple[Site, ...]:
    """Where models can be; raises `InvalidInput` where none can."""
    found = sites(request.profile, request.hardware)
    if found:
        return found
    measured = {(curve.device_kind, curve.cores) for curve in request.profile.curves}
    devices = {(device.kind, device.cores) for device in request.hardware.devices}
    if not measured & devices:
        raise InvalidInput(
            "the profile has no run times on devices of these kinds and cores: "
            + ", ".join(f"{kind} with {cores}" for kind, cores in sorted(devices)),
            where="hardware",
            remedy="profile models there, or plan for devices that were profiled",
        )
    raise InvalidInput(
        "no model fits the memory of any device",
        where="hardware",
        remedy="plan for devices with more memory, or profile smaller models",
    )
