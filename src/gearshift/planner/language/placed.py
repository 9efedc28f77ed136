"""The search on one placement: first choices from steady load, local search from one, and confirmation on part B."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import msgspec

from gearshift.gear import GearPlan, GearPrediction
from gearshift.language_workload import LanguageWorkload
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.language.candidates import CandidateTable
from gearshift.planner.language.choices import Choice, PlanMaker, without_idle_replicas
from gearshift.planner.language.improving import Annealing, Moves, Start
from gearshift.planner.language.replays import READINGS, Replays, Steady, SteadyCell, assigned, limit_of, workloads_of
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.space.bisection import geometric, narrowed, split
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult
from gearshift.simulator.engines.simulate_language import simulate_language

LARGEST_MARGIN = 64.0
MARGIN_PRECISION = 0.1
CAREFUL = 1.25
"""Ranges end at loads divided by this where part B does not confirm a choice."""
MOST_CAREFUL = 12
EDGE_PRECISION = 1.1
MOST_DRAFTED = 16
"""Candidates, evenly along the front, of which first choices are made; local search has all of them."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One placement's results, whatever the latency asked for: simulations on both parts, and in steady load.

    `fronts` has the candidates of each space, by rising work.
    """

    replays: Replays
    confirming: Replays
    cells: dict[tuple[int, float], SteadyCell]
    fronts: tuple[tuple[int, ...], ...]

    @property
    def maker(self) -> PlanMaker:
        return self.replays.maker


def evaluated(
    request: LanguageRequest,
    placement: Placement,
    candidates: CandidateTable,
    fronts: tuple[tuple[int, ...], ...],
    parts: tuple[tuple[LanguageWorkload, ...], tuple[LanguageWorkload, ...]],
) -> Evaluated:
    """Nothing is known yet."""
    maker, (on_a, on_b) = PlanMaker(request, placement, candidates), parts
    replays = Replays(maker, on_a)
    return Evaluated(replays, replays if on_b is on_a else Replays(maker, on_b), {}, fronts)


@dataclass(frozen=True, eq=False)
class PlacedSearch:
    """The search for `objective` on one placement, in one space; `check` may raise to end it."""

    request: LanguageRequest
    known: Evaluated
    check: Callable[[], None]
    space: int = -1

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
    def front(self) -> tuple[int, ...]:
        """The candidates of the space, by rising work."""
        return self.known.fronts[self.space]

    @cached_property
    def among(self) -> list[int]:
        """Those, and the candidates of the spaces within."""
        within = self.known.fronts[: self.space % len(self.known.fronts) + 1]
        return sorted({candidate for front in within for candidate in front})

    @property
    def replays(self) -> Replays:
        return self.known.replays

    @cached_property
    def steady(self) -> Steady:
        return Steady(self.maker, self.objective, self.check, self.known.cells)

    def holds(self, choice: Choice) -> bool:
        self.check()
        return self.replays.of(choice).holds(self.objective)

    def admits(self, choice: Choice) -> bool:
        """Whether it holds, and no candidate serves more load than it may."""
        return self._annealing.moves.allowed(choice) and self.holds(choice)

    def quality(self, choice: Choice) -> float:
        """On part A."""
        return self.replays.of(choice).quality

    def constants(self) -> list[Choice]:
        """One candidate at all loads, each, by falling quality."""
        order = sorted(self.front, key=lambda c: -self.candidates.quality[c])
        return [self.maker.constant(candidate) for candidate in order]

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
            middle=geometric,
        )

    def drafts(self) -> list[Choice]:
        """Gears from steady load, two gears, and one candidate for all; only those that hold on part A."""
        found = [self.from_steady(self._drafted), self.best_constant()]
        best = max(self.front, key=lambda c: (self.candidates.quality[c], -self.maker.bottleneck_s[c]))
        found += [self._handing_over(best, other) for other in self._singles]
        return list(dict.fromkeys(choice for choice in found if choice is not None))

    def _handing_over(self, first: int, last: int) -> Choice | None:
        """Two gears, and the highest load at which the second begins, to `EDGE_PRECISION`, that holds."""
        if self.maker.bottleneck_s[last] >= self.maker.bottleneck_s[first]:
            return None

        def handing_over(load: float) -> Choice:
            return self.maker.free(first), self.maker.free(last, load)

        least, most = READINGS[self.request.load_unit]
        found, _ = split(
            lambda load: self.admits(handing_over(load)), least, most, precision=EDGE_PRECISION, middle=geometric
        )
        return handing_over(found) if found > least else None

    def start(self, choice: Choice) -> Start:
        return Start(self._annealing, choice)

    @cached_property
    def _drafted(self) -> tuple[int, ...]:
        step = -(-len(self.front) // MOST_DRAFTED)
        return tuple(sorted({*self.front[::step], *self._singles}))

    @property
    def _singles(self) -> list[int]:
        return [c for c in self.front if len(self.candidates.stages[c]) == 1]

    @cached_property
    def _annealing(self) -> Annealing:
        every = self.objective.scope == "every-range"
        limit = (lambda c: limit_of(self.steady, c, self.request.margin)) if every else (lambda _: inf)
        return Annealing(self.replays, self.objective, Moves(self.maker, self.among, limit), self.check)

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
        cheaper = [c for c in self.front if work[c] < work[choice[0].candidate]]
        if not cheaper:
            return None
        return self.maker.constant(max(cheaper, key=lambda c: self.candidates.quality[c]))

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
