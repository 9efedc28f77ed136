"""Ken's planner for language models: from the most accurate gears step by step to the cheapest (sections 4.2, 4.3).

The load, outstanding work, is parted into ranges of equal width. Each step tries the next cheaper
candidate in each range, and above it where that is cheaper, and keeps the gears with the most
quality per latency on the trace. The placement is the first of `LanguageSearch`, not a beam search.
"""

import itertools
from collections.abc import Iterator
from math import inf

from gearshift.gear import GearPlan
from gearshift.planner.language.assigning import limit_of
from gearshift.planner.language.choices import Choice
from gearshift.planner.language.placed import PlacedSearch
from gearshift.planner.language.search import LanguageSearch

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
