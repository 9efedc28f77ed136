"""The search over placements for one request: those that a fluid bound ranks first are searched."""

from collections.abc import Iterator
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.language_workload import LanguageWorkload
from gearshift.placement import Placement
from gearshift.planner.contract.so_far import TimedSearch
from gearshift.planner.language.candidates import Answers, CandidateTable, answers_of, candidate_table, fronts
from gearshift.planner.language.choices import Choice, PlanMaker
from gearshift.planner.language.layouts import layouts
from gearshift.planner.language.load import bottleneck_s, engine_rates
from gearshift.planner.language.placed import Evaluated, PlacedSearch, both_parts, evaluated
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import work_rates
from gearshift.support.numbers import plain
from gearshift.workload import Trace

MOST_DRAFTED = 6
MOST_IMPROVED = 4
WINDOW_S = 10.0
FULL = 0.85
"""Devices are taken to be busy up to this share where placements are ranked."""
NOTHING_SERVES = -1.0


class LanguageSearch:
    """One search; `so_far` has its time limit and the best plan."""

    def __init__(
        self,
        request: LanguageRequest,
        so_far: TimedSearch,
        *,
        single_models: bool = False,
        parts: tuple[tuple[LanguageWorkload, ...], tuple[LanguageWorkload, ...]] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.request, self.so_far, self.single_models = request, so_far, single_models
        self._parts, self._answers = parts, answers
        self.known: dict[Placement, Evaluated] = {}

    def within(self, latency_s: float) -> "LanguageSearch":
        """The same search for another latency, with what is known whatever the latency."""
        other = LanguageSearch(self.request.within(latency_s), self.so_far, single_models=self.single_models)
        for name in ("parts", "answers", "table", "placements"):
            other.__dict__[name] = getattr(self, name)
        other.known = self.known
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
    def table(self) -> CandidateTable:
        """All candidates, wherever they are placed."""
        return candidate_table(self.answers, self._alone_s(), single_models=self.single_models)

    @cached_property
    def placements(self) -> list[Placement]:
        """The placements to search, the most promising first."""
        request = self.request
        found = layouts(request.profile, request.hardware, memory_share=request.memory_share)
        kinds = {device.id: device.kind for device in request.hardware.devices}
        rates_qps = visited_qps(request.trace)
        ranked = []
        for placement in found:
            seconds = bottleneck_s(engine_rates(request.profile, placement, kinds), self.table)
            ranked.append((_fluid_quality(self.table.quality, seconds, rates_qps), -float(seconds.min())))
        order = sorted(range(len(found)), key=lambda i: ranked[i], reverse=True)
        return [found[i] for i in order[:MOST_DRAFTED]]

    def placed(self, placement: Placement) -> PlacedSearch:
        request = self.request
        if placement not in self.known:
            seconds = PlanMaker(request, placement, self.table).bottleneck_s
            usable = np.flatnonzero(np.isfinite(seconds))
            here = self.table.chosen(usable.tolist())
            front = fronts(here, seconds[usable], most=request.most_candidates)
            self.known[placement] = evaluated(request, placement, here.chosen(front), self.parts)
        return PlacedSearch(request, self.known[placement], self.so_far.check)

    def most_accurate(self) -> GearPlan:
        """The plan with the most quality within the latency that is found; raises `Infeasible`."""
        drafts = self._drafts()
        made: GearPlan | None = None
        best = -inf
        for search, choice in drafts[:MOST_IMPROVED]:
            if made is not None and self._hope(search) <= best:
                continue
            found = search.confirmed(choice)
            if found is None:
                continue
            made, best = self._keep(search, found, made, best)

            def kept(choice: Choice, search: PlacedSearch = search) -> None:
                quality = search.quality(choice)
                self.so_far.tell(f"improving gears, quality {quality:.4f} on part A", 0.8)

            better = search.confirmed(search.improved(found, kept))
            if better is not None:
                made, best = self._keep(search, better, made, best)
        for search, choice in drafts[MOST_IMPROVED:] if made is None else []:
            if (found := search.confirmed(choice)) is not None:
                made, best = self._keep(search, found, made, best)
                break
        if made is None:
            raise self.infeasible()
        return made

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
            fastest = [search.maker.constant(int(np.argmin(search.maker.bottleneck_s)))]
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

    def _drafts(self) -> list[tuple[PlacedSearch, Choice]]:
        """A choice that holds on part A for each placement that has one, by falling quality."""
        drafts = []
        for place, placement in enumerate(self.placements):
            self.so_far.tell(f"placement {place + 1} of {len(self.placements)}", 0.1 + 0.5 * place / MOST_DRAFTED)
            search = self.placed(placement)
            for choice in search.drafts():
                drafts.append((search, choice))
                if self.so_far.plan is None and search.on_b_holds(choice):
                    self.so_far.keep(search.plan(choice, steadily=False), search.quality(choice))
        return sorted(drafts, key=lambda draft: -draft[0].quality(draft[1]))

    def _keep(
        self, search: PlacedSearch, choice: Choice, made: GearPlan | None, best: float
    ) -> tuple[GearPlan | None, float]:
        quality = search.quality(choice)
        if quality <= best:
            return made, best
        plan = search.plan(choice)
        self.so_far.keep(plan, quality)
        return plan, quality

    def _hope(self, search: PlacedSearch) -> float:
        return float(search.candidates.quality.max())

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
