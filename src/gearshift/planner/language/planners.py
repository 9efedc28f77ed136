"""The planners of language models: what each of them searches, on the ladder of `contract/ladder`."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Protocol

from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Asked
from gearshift.planner.contract.ladder import WithinLatency, best_by_ladder, frontier_by_ladder
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.language.choices import Choice
from gearshift.planner.language.placed import PlacedSearch
from gearshift.planner.language.replays import limit_of
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch, rounded_up_s
from gearshift.support.numbers import plain

# Ken's planner for language models: from the most accurate gears step by step to the cheapest (sections 4.2, 4.3).
#
# The load, outstanding work, is parted into ranges of equal width. Each step tries the next cheaper
# candidate in each range, and above it where that is cheaper, and keeps the gears with the most
# quality per latency on the trace. The placement is the first of `LanguageSearch`, not a beam search.

FAR_BELOW = 0.5
"""Once gears are this share of the objective fast, cheaper ones are not tried."""


def walked(search: LanguageSearch) -> GearPlan:
    """The most accurate of the visited gears that hold on parts A and B; raises `Infeasible`."""
    for placement in search.placements:
        placed = search.placed(placement)
        visited = [(placed.replays.of(choice), choice) for choice in _walk(placed, search.request.latency_s)]
        holding = [(found.quality, choice) for found, choice in visited if found.holds(placed.objective)]
        for _, choice in sorted(holding, key=lambda each: -each[0]):
            if placed.on_b_holds(choice):
                return placed.plan(choice)
    raise search.infeasible()


def _walk(placed: PlacedSearch, latency_s: float) -> Iterator[Choice]:
    order = sorted(placed.front, key=lambda c: -placed.maker.bottleneck_s[c])  # the most expensive first
    ranges, percentile = placed.request.most_gears, placed.objective.percentile
    top = max(limit_of(placed.steady, c, 1.0) for c in order) or 1.0
    edges = [top * i / ranges for i in range(ranges)]
    now = [0] * ranges
    yield (choice := _choice(placed, now, edges, order))
    while min(now) < len(order) - 1 and placed.replays.of(choice).worst_s(percentile) > FAR_BELOW * latency_s:
        best, most = now, -inf
        for i in range(ranges):
            if now[i] == len(order) - 1:
                continue
            tried = [max(each, now[i] + 1) if place >= i else each for place, each in enumerate(now)]
            placed.check()
            found = placed.replays.of(_choice(placed, tried, edges, order))
            if (score := found.quality / max(found.worst_s(percentile), 1e-9)) > most:
                best, most = tried, score
        now = best
        yield (choice := _choice(placed, now, edges, order))


def _choice(placed: PlacedSearch, now: list[int], edges: list[float], order: list[int]) -> Choice:
    gears = [placed.maker.free(order[step], begins) for step, begins in zip(now, edges, strict=True)]
    kept = [gears[0], *(b for a, b in itertools.pairwise(gears) if a.candidate != b.candidate)]
    return tuple(kept)


LATENCY_PRECISION = 0.1
SAME_QUALITY = 1e-4
ANY_LATENCY_S = 1e6


class Searches(Protocol):
    """Makes the search for a request."""

    def __call__(
        self, request: LanguageRequest, so_far: Search[LanguageRequest], *, single_models: bool = ...
    ) -> LanguageSearch: ...


@dataclass(frozen=True)
class OfLanguage(WithinLatency[LanguageRequest]):
    """A search for the best plan within a latency; `how` is what the planner does with it."""

    search: LanguageSearch
    how: Callable[[LanguageSearch], GearPlan]
    precision = LATENCY_PRECISION

    def best_within(self, so_far: Search[LanguageRequest]) -> GearPlan:
        return self.how(self.search.within(so_far.request.latency_s, so_far))

    def judged(self, made: GearPlan) -> float:
        """As predicted for the trace, on part B."""
        return made.predictions[made.name].accuracy

    def refused(self, made: GearPlan, latency_s: float, accuracy: float) -> Infeasible | None:
        return lacking(made, latency_s, accuracy)

    @cached_property
    def points(self) -> list[tuple[float, float]]:
        """The latency and the quality of each candidate at all loads."""
        return list(self.search.within(ANY_LATENCY_S).constants_s())

    def rungs_s(self) -> tuple[float, float]:
        seconds = [each for each, _ in self.points]
        return min(seconds), max(seconds)

    def rung_s(self, latency_s: float) -> float:
        return rounded_up_s(latency_s)

    def has_all(self, made: list[GearPlan]) -> bool:
        return max(map(self.judged, made)) >= max(quality for _, quality in self.points) - SAME_QUALITY

    def span_s(self, accuracy: float) -> tuple[float, float, float]:
        reaching = [seconds for seconds, quality in self.points if quality >= accuracy]
        if not reaching:
            most = max((quality for _, quality in self.points), default=0.0)
            reason = f"no cascade has a quality of {accuracy:.4g}; the best has {most:.4f}"
            raise Infeasible(reason, nearest_accuracy=int(most * 1e4) / 1e4, by_load=False)
        seconds = [each for each, _ in self.points]
        return min(seconds) / 2, min(reaching) * 1.05, 100 * max(seconds)

    def beyond(self, accuracy: float) -> Infeasible:
        return self.search.infeasible()

    def next_after(self, error: Infeasible, latency_s: float, step: float) -> float:
        return latency_s * step


def lacking(made: GearPlan, latency_s: float, accuracy: float) -> Infeasible | None:
    """Why a plan for this latency is none for an accuracy, too."""
    quality = made.predictions[made.name].accuracy
    if quality >= accuracy:
        return None
    ended = " where the search was ended early" if made.unfinished else ""
    return Infeasible(
        f"within {plain(latency_s * 1e3)} ms the best quality is {quality:.4f}{ended}, not {accuracy:.4g}",
        nearest_accuracy=int(quality * 1e4) / 1e4,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguagePlanner(Planner[LanguageRequest]):
    """A planner that does `how` with each search."""

    how: Callable[[LanguageSearch], GearPlan]

    def with_searches(self, search_for: Searches) -> "LanguagePlanner":
        """The same planner, whose searches may know what others found."""
        return planner(self.name, self.how, single_models=self.single_models, search_for=search_for)


def planner(
    name: str,
    how: Callable[[LanguageSearch], GearPlan],
    *,
    single_models: bool = False,
    search_for: Searches = LanguageSearch,
) -> LanguagePlanner:
    def prepared(so_far: Search[LanguageRequest]) -> OfLanguage:
        return OfLanguage(search_for(so_far.request, so_far, single_models=single_models), how)

    def best_within(so_far: Search[LanguageRequest]) -> GearPlan:
        made = best_by_ladder(so_far, prepared(so_far))
        so_far.report("planned", 1.0)
        return made

    return LanguagePlanner(
        name=name,
        best_within=best_within,
        undominated=lambda so_far: frontier_by_ladder(so_far, prepared(so_far)),
        single_models=single_models,
        finished=_finished,
        how=how,
    )


def _finished(made: GearPlan, request: LanguageRequest) -> GearPlan:
    """The plan with what was asked for; what it keeps is in its own objective."""
    objective, kept = request.objective, made.pipeline.objective
    if objective.accuracy is not None and (why := lacking(made, request.latency_s, objective.accuracy)) is not None:
        raise why
    asked = Asked(
        objective=kept if objective.latency_s is None and objective.accuracy is None else objective,
        ranges=request.most_gears,
        most_candidates=request.most_candidates,
        least_margin=request.least_margin,
        budget_s=request.budget_s,
        memory_share=request.memory_share,
    )
    return with_pipeline(made, asked=asked)


OPTIMAL = planner("optimal", LanguageSearch.most_accurate)
FRONTIER = planner("frontier", walked)
SINGLE = planner("single", LanguageSearch.best_constant, single_models=True)
MODEL_SWITCHING = planner("model-switching", LanguageSearch.most_accurate, single_models=True)
STATIC_CASCADE = planner("static-cascade", LanguageSearch.best_constant)
