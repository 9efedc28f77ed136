"""The load ranges of one search, their planned loads, and the candidates that may serve them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.search.infeasible import nothing_holds
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.metered import seldom_exceeded_qps, shares_of_ranges
from gearshift.planner.space.request import PlanRequest, equal_ranges, safe_margin

UNVISITED_WEIGHT = 1e-6
"""Gives ranges the trace does not visit the best cascade, too."""
SURELY_OVERLOADED = 1.05
"""Above this utilisation of the busiest device, no batch size keeps up."""
HIGHEST_QPS = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges with `upper_ends` (ranges,), planned for `planned_qps` (ranges,) before a margin.

    `candidates` come by rising work. `shares` (ranges,) of the trace's requests are in each range.
    """

    request: PlanRequest
    candidates: Sequence[CandidateCascade]
    upper_ends: NDArray[np.float64]
    planned_qps: NDArray[np.float64]
    shares: NDArray[np.float64]

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.shares + UNVISITED_WEIGHT

    @property
    def highest_visited(self) -> int:
        return int(np.flatnonzero(self.shares)[-1])

    def needed_qps(self, margin: float) -> NDArray[np.float64]:
        """The loads (ranges,) that cascades must hold for a margin.

        No replay tests loads above those the trace visits, so the margin there is at least that of
        scope `every-range`.
        """
        unseen = np.arange(len(self.upper_ends)) > self.highest_visited
        return self.planned_qps * np.where(unseen, max(margin, safe_margin(self.request)), margin)


def ranges_of(
    request: PlanRequest,
    steady: SteadyState,
    candidates: Sequence[CandidateCascade],
    *,
    beyond: bool,
    on_time: Callable[[], None],
) -> Ranges:
    """The ranges of a search; with `beyond` more of them follow the top (`_reached`).

    Raises `Infeasible` where no candidate holds at the top and scope `every-range` requires it.
    """
    upper_ends = request.upper_ends()
    top_qps = float(upper_ends[-1])
    if request.objective.scope == "every-range":
        able = (i for i, c in enumerate(candidates) if _may_hold(steady, c, top_qps, on_time))
        if (first := next(able, None)) is None:
            raise nothing_holds(request, steady, candidates, upper_ends)
        candidates = candidates[first:]
    if beyond or request.max_qps is None:
        upper_ends = _reached(request, steady, candidates[0], beyond=beyond)
    return Ranges(
        request=request,
        candidates=candidates,
        upper_ends=upper_ends,
        planned_qps=np.minimum(upper_ends, top_qps) if beyond else upper_ends,
        shares=shares_of_ranges(request.trace, upper_ends),
    )


def may_keep_up(steady: SteadyState, candidate: CandidateCascade, load_qps: float) -> bool:
    return steady.balance(candidate.cascade).utilisation_per_qps * load_qps <= SURELY_OVERLOADED


def may_hold(steady: SteadyState, candidate: CandidateCascade, load_qps: float) -> bool:
    return may_keep_up(steady, candidate, load_qps) and steady.holds(candidate.cascade, load_qps)


def last_within(needed_qps: NDArray[np.float64], capacity_qps: float) -> int:
    """The last range that needs no more than a capacity; -1 for none."""
    return int(np.searchsorted(needed_qps, capacity_qps, side="right")) - 1


def _may_hold(steady: SteadyState, candidate: CandidateCascade, load_qps: float, on_time: Callable[[], None]) -> bool:
    on_time()
    return may_hold(steady, candidate, load_qps)


def _reached(
    request: PlanRequest, steady: SteadyState, cheapest: CandidateCascade, *, beyond: bool
) -> NDArray[np.float64]:
    """Upper ends of ranges whose last, the cheapest, is seldom reached by noise of the meter.

    At 300 requests/s a window of 100 ms holds 30 arrivals, give or take 5: a top of 1.2 times the
    peak second would give a sixth of the peak's requests to the cheapest cascade. Either the same
    number of ranges reaches further, or (`beyond`) up to as many more follow, planned for the top.
    """
    asked = request.upper_ends()
    top_qps, metered_qps = float(asked[-1]), seldom_exceeded_qps(request.trace)
    if beyond:
        more = min(len(asked), max(0, math.ceil((metered_qps - top_qps) / float(asked[0]))))
        ends = top_qps + float(asked[0]) * np.arange(1, more + 1)
        ends[-1:] = np.maximum(ends[-1:], metered_qps)
        return np.concatenate([asked, ends, [HIGHEST_QPS]])
    wanted = metered_qps * len(asked) / max(1, len(asked) - 1)
    capacity = steady.capacity_qps(cheapest.cascade, least_qps=top_qps, most_qps=max(top_qps, wanted))
    return equal_ranges(max(top_qps, min(wanted, capacity)), len(asked))
