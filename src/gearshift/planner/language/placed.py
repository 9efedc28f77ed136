"""The search on one placement: a first choice from steady load, then local search, then confirmation on part B."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import msgspec
import numpy as np

from gearshift.gear import GearPlan, GearPrediction
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.language.assigning import assigned, limits
from gearshift.planner.language.candidates import BY_ID, CandidateTable
from gearshift.planner.language.choices import Choice, PlanMaker, without_idle_replicas
from gearshift.planner.language.improving import Improvement
from gearshift.planner.language.replays import Replays, workloads_of
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.steady import Steady, SteadyCell
from gearshift.planner.space.bisection import narrowed
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult
from gearshift.simulator.engines.simulate_language import simulate_language

LARGEST_MARGIN = 64.0
MARGIN_PRECISION = 0.1
CAREFUL = 1.25
"""Ranges end at loads divided by this where part B does not confirm a choice."""
MOST_CAREFUL = 12
MOST_REPLAYED = 10_000_000
"""Local search replays about this many requests, and at least `LEAST_TRIED` choices."""
LEAST_TRIED = 100


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One placement's results, whatever the latency asked for: simulations on both parts, and in steady load."""

    replays: Replays
    confirming: Replays
    cells: dict[tuple[int, float], SteadyCell]

    @property
    def maker(self) -> PlanMaker:
        return self.replays.maker


def evaluated(
    request: LanguageRequest,
    placement: Placement,
    candidates: CandidateTable,
    parts: tuple[tuple[LanguageWorkload, ...], tuple[LanguageWorkload, ...]],
) -> Evaluated:
    """Nothing is known yet. Candidates come by rising work on the placement."""
    maker, (on_a, on_b) = PlanMaker(request, placement, candidates), parts
    replays = Replays(maker, on_a)
    return Evaluated(replays, replays if on_b is on_a else Replays(maker, on_b), {})


@dataclass(frozen=True, eq=False)
class PlacedSearch:
    """The search for `objective` on one placement; `check` may raise to end it."""

    request: LanguageRequest
    known: Evaluated
    check: Callable[[], None]

    @property
    def objective(self) -> Objective:
        return self.request.objective

    @property
    def maker(self) -> PlanMaker:
        return self.known.maker

    @property
    def candidates(self) -> CandidateTable:
        return self.maker.candidates

    @property
    def replays(self) -> Replays:
        return self.known.replays

    @cached_property
    def steady(self) -> Steady:
        return Steady(self.maker, self.objective, self.check, self.known.cells)

    def holds(self, choice: Choice) -> bool:
        self.check()
        return self.replays.of(choice).holds(self.objective)

    def quality(self, choice: Choice) -> float:
        """On part A."""
        return self.replays.of(choice).quality

    def constants(self) -> list[Choice]:
        """One candidate at all loads, each, by falling quality."""
        order = np.argsort(-self.candidates.quality, kind="stable")
        return [self.maker.constant(int(candidate)) for candidate in order]

    def best_constant(self) -> Choice | None:
        """The best candidate that keeps the objective on the trace at all loads, and in steady load if asked to."""
        for choice in self.constants():
            if self.holds(choice):
                return choice
        return None

    def from_steady(self, among: Sequence[int]) -> Choice | None:
        """The gears of some candidates, of the least margin that holds on the trace; None where none does."""

        def holds(margin: float) -> Choice | None:
            choice = assigned(self.steady, margin, among)
            return choice if self.holds(choice) else None

        low = self.request.margin
        if (found := holds(low)) is not None:
            return found
        cheapest = self.maker.constant(min(among, key=lambda c: self.maker.bottleneck_s[c]))
        if (found := holds(LARGEST_MARGIN)) is None:
            return cheapest if self.holds(cheapest) else None
        return narrowed(
            holds,
            found,
            fails=low,
            at_most=LARGEST_MARGIN,
            precision=MARGIN_PRECISION,
            middle=lambda a, b: (a * b) ** 0.5,
        )

    def drafts(self) -> list[Choice]:
        """Gears from steady load, of all candidates, of splits by id and of single models, and one candidate for all.

        Only those that hold on part A.
        """
        every = range(len(self.candidates.stages))
        by_id = [c for c in every if self.candidates.latest[c] == BY_ID]
        singles = [c for c in every if len(self.candidates.stages[c]) == 1]
        found = [self.from_steady(among) for among in (every, by_id, singles)]
        return list(dict.fromkeys(choice for choice in (*found, self.best_constant()) if choice is not None))

    def improved(self, choice: Choice, kept: Callable[[Choice], None]) -> Choice:
        every = self.objective.scope == "every-range"
        bounds = limits(self.steady, self.request.margin) if every else [inf] * len(self.candidates.stages)
        replayed = sum(len(workload) for workload in self.replays.workloads)
        tried = int(min(max(MOST_REPLAYED / replayed, LEAST_TRIED), self.request.most_tried))
        search = Improvement(self.replays, self.objective, bounds, self.check, kept, tried, self.request.seed)
        return search.from_(choice)

    def confirmed(self, choice: Choice) -> Choice | None:
        """The choice, or a more careful one, that keeps the objective on part B too; None where none does."""
        for _ in range(MOST_CAREFUL):
            if self.on_b_holds(choice):
                return choice
            if (careful := self._more_careful(choice)) is None:
                return None
            choice = careful
        return None

    def on_b_holds(self, choice: Choice) -> bool:
        self.check()
        return self.known.confirming.of(choice).holds(self.objective)

    def _more_careful(self, choice: Choice) -> Choice | None:
        if len(choice) > 1:
            return tuple(gear._replace(begins=gear.begins / CAREFUL) for gear in choice)
        work = self.maker.bottleneck_s
        cheaper = np.flatnonzero(work < work[choice[0].candidate])
        if not len(cheaper):
            return None
        best = cheaper[np.argmax(self.candidates.quality[cheaper])]
        return self.maker.constant(int(best))

    def plan(self, choice: Choice, *, steadily: bool = True) -> GearPlan:
        """The plan, with predictions for the trace on part B, and with those of steady load unless told otherwise."""
        name = self.request.profile.operator
        told = [self._predicted(choice, i) for i in range(len(choice))] if steadily else []
        made = with_pipeline(self.maker.plan(choice, told), objective=self.objective)
        made = msgspec.structs.replace(made, predictions={name: self.predicted(choice)})
        return without_idle_replicas(made)

    def predicted(self, choice: Choice) -> ServingResult:
        """The figures of part B: of the trace as it is, with the share late and the interval of all seeds."""
        confirming = self.known.confirming
        run = simulate_language(self.maker.tables(choice), self.request.profile, confirming.workloads[0])
        result = run.result(self.request.profile, self.objective)
        all_seeds = confirming.of(choice)
        latency_s = all_seeds.latency_s(self.objective.percentile)
        several = len(latency_s) > 1 and self.objective.percentile == 0.95
        late = all_seeds.share_late(self.request.latency_s)
        return msgspec.structs.replace(
            result,
            accuracy=all_seeds.quality,
            share_late=result.share_late if len(latency_s) == 1 else float(late.mean()),
            latency_p95_interval_s=(float(latency_s.min()), float(latency_s.max())) if several else None,
        )

    def _predicted(self, choice: Choice, i: int) -> GearPrediction:
        gear = choice[i]
        if i + 1 < len(choice):
            cell = self.steady.at_load(gear.candidate, choice[i + 1].begins)
        else:
            cell = self.steady.at_load(gear.candidate, inf)
        return GearPrediction(
            load_qps=cell.rate_qps,
            accuracy=cell.quality,
            latency_p95_s=cell.latency_s(self.objective.percentile),
            share_late=cell.share_late(self.request.latency_s),
            utilisation=min(1.0, cell.utilisation),
        )


def both_parts(request: LanguageRequest) -> tuple[tuple[LanguageWorkload, ...], tuple[LanguageWorkload, ...]]:
    """The trace's requests for planning and for judging; the same where the request has its prompts."""
    on_a = workloads_of(request, PART_A)
    return on_a, on_a if request.records is not None else workloads_of(request, PART_B)
