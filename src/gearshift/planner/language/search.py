"""The search over placements for one request: those that a fluid bound ranks first are searched.

Spaces of plans are searched one within the next: single models, then splits by id too, then all
cascades. Each search begins with the result of the one before, and unless it `begins_alone` with
those of searches for tighter limits, so that its own is no worse. (Ken's walk is not among the starts: it replays more
than all of this.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload
from gearshift.placement import Placement
from gearshift.planner.contract.planner import Search
from gearshift.planner.language.candidates import (
    Answers,
    CandidateTable,
    Stages,
    answers_of,
    candidate_table,
    fronts,
    table_of,
)
from gearshift.planner.language.choices import Choice, PlanMaker
from gearshift.planner.language.improving import Start, improved
from gearshift.planner.language.layouts import bottleneck_s, engine_rates, layouts
from gearshift.planner.language.placed import Evaluated, PlacedSearch, both_parts, evaluated
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import work_rates
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.support.numbers import plain
from gearshift.workload import Trace

MOST_DRAFTED = 6
MOST_CONFIRMED = 4
STARTS = 4
"""A space is searched with so many times `LanguageRequest.most_tried` choices."""
MOST_REPLAYED = 10_000_000
"""Local search replays about this many requests in a space for each of `STARTS`, and at least `LEAST_TRIED` choices."""
LEAST_TRIED = 100
WINDOW_S = 10.0
FULL = 0.85
"""Devices are taken to be busy up to this share where placements are ranked."""
NOTHING_SERVES = -1.0


class Found(NamedTuple):
    """Gears that both parts confirmed, and the space in which they were found."""

    space: int
    placement: Placement
    choice: Choice


SHARED_PROPERTIES = ("parts", "answers", "spaces", "drafted")
"""Properties that a search makes once, for each latency and for single models alone."""


class LanguageSearch:
    """One search; `so_far` has its time limit and the best plan."""

    def __init__(
        self,
        request: LanguageRequest,
        so_far: Search[LanguageRequest],
        *,
        single_models: bool = False,
        parts: tuple[tuple[LanguageWorkload, ...], tuple[LanguageWorkload, ...]] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.request, self.so_far, self.single_models = request, so_far, single_models
        self._parts, self._answers = parts, answers
        self.known: dict[Placement, Evaluated] = {}
        self.found: list[Found] = []
        self.searched: dict[tuple[int, float], Found | None] = {}
        """The result of each space within each latency, if there is one."""
        self.begins_alone = False
        """True for a search that begins as if no other latency were known; it takes plans of others that are better."""
        self.blind: LanguageSearch | None = None
        """A search that differs in certainties alone, and searches the spaces that look at none."""

    def within(
        self, latency_s: float, so_far: Search[LanguageRequest] | None = None, *, single_models: bool | None = None
    ) -> "LanguageSearch":
        """The same search for another latency, or in the first space alone, with what is known whatever of both."""
        request = self.request.within(latency_s)
        alone = self.single_models if single_models is None else single_models
        other = LanguageSearch(request, so_far or self.so_far, single_models=alone)
        for name in SHARED_PROPERTIES:
            other.__dict__[name] = getattr(self, name)
        other.known, other.found, other.searched, other.blind = self.known, self.found, self.searched, self.blind
        other.begins_alone = self.begins_alone
        return other

    def with_certainties_of(self, profile: LanguageProfile) -> "LanguageSearch":
        """The same search where answers have the certainties of `profile`; spaces that look at none are searched once.

        Nothing but certainties may be other.
        """
        other = LanguageSearch(replace(self.request, profile=profile), self.so_far, parts=self.parts)
        other.blind, other.begins_alone = self, self.begins_alone
        return other

    @cached_property
    def parts(self) -> tuple[tuple[LanguageWorkload, ...], tuple[LanguageWorkload, ...]]:
        return self._parts or both_parts(self.request)

    @cached_property
    def answers(self) -> Answers:
        request = self.request

        def mean(tokens: NDArray[np.int64] | None) -> float | None:
            return None if tokens is None else float(tokens.mean())

        return self._answers or answers_of(
            request.profile,
            request.planned_on,
            prompt_tokens=mean(request.prompt_tokens),
            output_tokens=mean(request.output_tokens),
        )

    @cached_property
    def spaces(self) -> tuple[CandidateTable, ...]:
        """All candidates of each space, wherever they are placed."""
        alone_s, blind = self._alone_s(), replace(self.answers, ranks=np.zeros_like(self.answers.ranks))
        singles = candidate_table(self.answers, alone_s, single_models=True)
        if self.single_models:
            return (singles,)
        wider = [blind, self.answers] if self.answers.ranks.any() else [blind]
        return (singles, *(candidate_table(answers, alone_s) for answers in wider))

    @property
    def last(self) -> int:
        """The space that is asked for."""
        return 0 if self.single_models else len(self.spaces) - 1

    @property
    def table(self) -> CandidateTable:
        return self.spaces[self.last]

    @cached_property
    def drafted(self) -> tuple[list[Placement], ...]:
        """The placements to search in each space, the most promising first."""
        request = self.request
        found = layouts(request.profile, request.hardware, memory_share=request.memory_share)
        kinds = {device.id: device.kind for device in request.hardware.devices}
        every_rates = [engine_rates(request.profile, placement, kinds) for placement in found]
        rates_qps = visited_qps(request.trace)

        def ranked(table: CandidateTable) -> list[Placement]:
            keys = []
            for rates in every_rates:
                seconds = bottleneck_s(rates, table)
                keys.append((_fluid_quality(table.quality, seconds, rates_qps), -float(seconds.min())))
            order = sorted(range(len(found)), key=lambda i: keys[i], reverse=True)
            return [found[i] for i in order[:MOST_DRAFTED]]

        return tuple(ranked(table) for table in self.spaces)

    @property
    def placements(self) -> list[Placement]:
        """The placements to search for what is asked for, the most promising first."""
        return self.drafted[self.last]

    def placed(self, placement: Placement, space: int | None = None) -> PlacedSearch:
        if placement not in self.known:
            self.known[placement] = self._evaluated(placement)
        within = self.last if space is None else space
        return PlacedSearch(self.request, self.known[placement], self.so_far.check, within)

    def _evaluated(self, placement: Placement) -> Evaluated:
        request = self.request
        offered: list[list[Stages]] = []
        for table in self.spaces:
            seconds = PlanMaker(request, placement, table).bottleneck_s
            usable = np.flatnonzero(np.isfinite(seconds))
            here = table.chosen(usable.tolist())
            front = fronts(here, seconds[usable], most=request.most_candidates)
            offered.append([here.stages[i] for i in front])
        together = table_of(list(dict.fromkeys(stages for front in offered for stages in front)), self.answers)
        work = PlanMaker(request, placement, together).bottleneck_s
        together = together.chosen(np.lexsort((together.quality, work)).tolist())
        place = {stages: i for i, stages in enumerate(together.stages)}
        ordered = tuple(tuple(sorted(place[stages] for stages in front)) for front in offered)
        return evaluated(request, placement, together, ordered, self.parts)

    def most_accurate(self) -> GearPlan:
        """The plan with the most quality within the latency that is found; raises `Infeasible`."""
        made: GearPlan | None = None
        best = -inf
        for space in range(self.last + 1):
            self._search(space)
            own, carried = self._own(space), self._carried(space)
            for one in [*own, *carried] if self.begins_alone else [*carried, *own]:
                search = self.placed(one.placement, space)
                if search.on_b_holds(one.choice):
                    made, best = self._keep(search, one.choice, made, best)
        if made is None:
            raise self.infeasible()
        return made

    def _search(self, space: int) -> Found | None:
        """Search one space, once for each latency; `found` has the result, too."""
        key = space, self.request.latency_s
        if key not in self.searched:
            found = self._found_blind(space) if self.blind and space < self.last else self._found(space)
            self.searched[key] = found
            self.found += [found] if found else []
        return self.searched[key]

    def _found(self, space: int) -> Found | None:
        carried = [] if self.begins_alone else self._carried(space)
        return self._confirmed(self._searched(space, [*carried, *self._own(space)]), space)

    def _found_blind(self, space: int) -> Found | None:
        """As the other search found it, with this one's candidates."""
        assert self.blind is not None
        other = self.blind.within(self.request.latency_s, self.so_far)
        for before in range(space):
            other._search(before)
        if (found := other._search(space)) is None:
            return None
        theirs, mine = (one.placed(found.placement).candidates.stages for one in (other, self))
        choice = tuple(gear._replace(candidate=mine.index(theirs[gear.candidate])) for gear in found.choice)
        return found._replace(choice=choice)

    def _own(self, space: int) -> list[Found]:
        """The results for this latency, in this space and in those within."""
        found = [self.searched.get((within, self.request.latency_s)) for within in range(space + 1)]
        return [one for one in found if one is not None]

    def _carried(self, space: int) -> list[Found]:
        """The results for other latencies there that hold for this one."""
        own = self._own(space)
        others = [one for one in self.found if one.space <= space and one not in own]
        return [one for one in others if self.placed(one.placement).admits(one.choice)]

    def _searched(self, space: int, carried: Sequence["Found"]) -> list[Start]:
        """The choices of a local search in one space, best first. All keep the limit on part A."""
        starts = [self.placed(one.placement, space).start(one.choice) for one in carried]
        for place, placement in enumerate(self.drafted[space]):
            done = (space + place / MOST_DRAFTED) / (self.last + 1)
            self.so_far.tell(f"placement {place + 1} of {len(self.drafted[space])}", 0.1 + 0.8 * done)
            search = self.placed(placement, space)
            for choice in search.drafts():
                starts.append(search.start(choice))
                if self.so_far.plan is None and search.on_b_holds(choice):
                    self.so_far.keep(search.plan(choice, steadily=False), search.quality(choice))

        def kept(start: Start) -> None:
            holds, quality, _ = start.score
            if holds:
                self.so_far.tell(f"improving gears, quality {quality:.4f} on part A", 0.1 + 0.8 * done)

        replayed = sum(len(workload) for workload in self.parts[0])
        tries = STARTS * min(int(max(MOST_REPLAYED / replayed, LEAST_TRIED)), self.request.most_tried)
        found = improved(starts, tries, self.request.seed, kept)
        return [start for start in found if start.score[0]]

    def _confirmed(self, starts: Sequence[Start], space: int) -> "Found | None":
        """The best of the first ones that part B confirms, or of more careful ones; else the next that it confirms.

        Starts hold the drafts, so a draft that part B confirmed is found again.
        """
        best: Found | None = None
        most = -inf
        for place, start in enumerate(starts):
            if best is not None and place >= MOST_CONFIRMED:
                break
            placement = start.annealing.replays.maker.placement
            search = self.placed(placement, space)
            if search.quality(start.choice) <= most:
                break
            choice = search.confirmed(start.choice)
            if choice is not None and search.quality(choice) > most:
                best, most = Found(space, placement, choice), search.quality(choice)
        return best

    def best_constant(self) -> GearPlan:
        """The plan of one cascade at all loads with the most quality; raises `Infeasible`."""
        made: GearPlan | None = None
        best = -inf
        for search in map(self.placed, self.placements):
            choice = search.best_constant()
            while choice is not None and search.quality(choice) > best:
                if search.on_b_holds(choice):
                    made, best = self._keep(search, choice, made, best)
                    break
                choice = search.confirmed(choice)
        if made is None:
            raise self.infeasible()
        return made

    def constants_s(self) -> Iterator[tuple[float, float]]:
        """The latency that it keeps on the trace, and the quality, of each candidate at all loads on each placement."""
        for search in map(self.placed, self.placements):
            for choice in search.constants():
                self.so_far.check()
                found = search.replays.of(choice)
                yield found.least_s(self.request.objective.percentile), found.quality

    def infeasible(self) -> Infeasible:
        """Why nothing holds, and the latency that the fastest candidate at all loads keeps."""
        request = self.request
        nearest = inf
        for search in map(self.placed, self.placements):
            fastest = [search.maker.constant(search.front[0])]
            for choice in [*fastest, *search.constants()]:
                runs = (search.replays.of(choice), search.known.confirming.of(choice))
                nearest = min(nearest, max(run.least_s(request.objective.percentile) for run in runs))
        search = self.placed(self.placements[0])
        model = request.profile.models[int(search.maker.rates.model[int(np.argmin(search.maker.bottleneck_s))])]
        return Infeasible(
            f"no gears keep the {request.objective.percentile * 100:g}th percentile of {METRIC_NAMES[request.metric]} "
            f"within {plain(request.latency_s * 1e3)} ms on {len(request.hardware.devices)} devices",
            bottleneck=model,
            nearest_latency_s=rounded_up_s(nearest) if np.isfinite(nearest) else None,
        )

    def _keep(
        self, search: PlacedSearch, choice: Choice, made: GearPlan | None, best: float
    ) -> tuple[GearPlan | None, float]:
        quality = search.quality(choice)
        if quality <= best:
            return made, best
        plan = search.plan(choice)
        self.so_far.keep(plan, quality)
        return plan, quality

    def _alone_s(self) -> NDArray[np.float64]:
        """Device-seconds (models,) of a mean request on the engine that takes the fewest."""
        profile, answers = self.request.profile, self.answers
        best = np.full(len(profile.models), inf)
        for engine in profile.engines:
            row = profile.models.index(engine.model)
            prompt_s, output_s = work_rates(engine, profile)
            whole = prompt_s * answers.prompt_tokens[row].mean() + output_s * answers.output_tokens[row].mean()
            best[row] = min(best[row], engine.tensor_parallel * whole)
        return best


METRIC_NAMES = {"ttft": "the time to the first token", "per_token": "the time per token", "total": "the total time"}


def visited_qps(trace: Trace, count: int = 12) -> NDArray[np.float64]:
    """Rates (count,) in windows of the trace, at even shares of its requests."""
    window_s = max(WINDOW_S, 4 * trace.duration_s / len(trace))
    windows = np.bincount((trace.arrivals_ns // int(window_s * NS_PER_S)).astype(np.int64))
    each = np.sort(np.repeat(windows, windows)) / window_s
    return np.asarray(each[np.linspace(0, len(each) - 1, count).astype(int)])


def _fluid_quality(quality: NDArray[np.float64], seconds: NDArray[np.float64], rates_qps: NDArray[np.float64]) -> float:
    """The mean quality of the best candidates that keep up at each rate."""
    order = np.argsort(seconds)
    best = np.maximum.accumulate(quality[order])
    place = np.searchsorted(seconds[order], FULL / rates_qps, side="right") - 1
    return float(np.where(place >= 0, best[np.maximum(place, 0)], NOTHING_SERVES).mean())


def rounded_up_s(seconds: float) -> float:
    """Up to three digits, despite errors of rounding."""
    unit = 10.0 ** (np.floor(np.log10(seconds * 1e3)) - 2)
    return float(np.ceil(seconds * 1e3 / unit * (1 + 1e-9)) * unit / 1e3)
