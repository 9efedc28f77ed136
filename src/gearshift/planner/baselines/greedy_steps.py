"""A baseline for pipelines: Ken's greedy steps (section 4.3.1), taken over the cascades of all nodes.

Load ranges are gone through from the lowest load. From the tuple of the range below, at first that
of the dearest cascades, each step takes the next cheaper cascade at one node: the step with the most
accuracy per latency in simulation. Steps end where the tuple holds the range. A step looks at one
node alone, and is never taken back.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gearshift.gear import GearPlan
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.joint.candidates import Tuples, tuples_of
from gearshift.planner.joint.placing import place
from gearshift.planner.joint.replanning.search import Assignment, confirmed, finished, too_slow
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, most_visits
from gearshift.planner.space.request import load_ranges

Numbers = tuple[int, ...]
"""A tuple: the number of its implementation at each node, from cheap to dear."""


def _best_within(so_far: Search[PipelineRequest]) -> GearPlan:
    """The plan, one cascade for each node and gear; raises `Infeasible` as the joint search does."""
    request = replace(so_far.request, replanning=False)
    known = _Known(tuples_of(request))
    placement = place(request.profiles.values(), request.hardware, most_visits(known.of(known.with_one_other)))
    steady = SteadyTuples(request, placement)
    return finished(confirmed(steady, lambda margin: _assigned(steady, known, margin)), request)


PLANNER = Planner(name="greedy", best_within=_best_within)


def greedy_steps(
    dearest: Numbers,
    loads_qps: Sequence[float],
    *,
    holds: Callable[[Numbers, float], bool],
    worth: Callable[[Numbers, float], float],
) -> list[Numbers]:
    """The tuple of each load, which rise; the cheapest one where none on the way holds."""
    now, chosen = dearest, []
    for load_qps in loads_qps:
        while any(now) and not holds(now, load_qps):
            cheaper = [(*now[:i], now[i] - 1, *now[i + 1 :]) for i in range(len(now)) if now[i]]
            now = max(cheaper, key=lambda each: worth(each, load_qps))
        chosen.append(now)
    return chosen


class _Known:
    """Tuples by their numbers, each composed once."""

    def __init__(self, tuples: Tuples) -> None:
        self._tuples = tuples
        self._candidates: dict[Numbers, Candidate] = {}
        self.dearest: Numbers = tuple(len(tuples.cascades[node]) - 1 for node in tuples.query.places)

    @property
    def with_one_other(self) -> list[Numbers]:
        """The dearest tuple with each implementation of each node."""
        dearest = self.dearest
        return [(*dearest[:i], k, *dearest[i + 1 :]) for i in range(len(dearest)) for k in range(dearest[i] + 1)]

    def of(self, wanted: Sequence[Numbers]) -> list[Candidate]:
        if new := [each for each in dict.fromkeys(wanted) if each not in self._candidates]:
            self._candidates |= dict(zip(new, self._tuples.candidates(np.array(new)), strict=True))
        return [self._candidates[each] for each in wanted]


def _assigned(steady: SteadyTuples, known: _Known, margin: float) -> Assignment:
    loads_qps = [margin * end_qps for end_qps in steady.request.upper_ends()]

    def candidate(numbers: Numbers) -> Candidate:
        return known.of([numbers])[0]

    def holds(numbers: Numbers, load_qps: float) -> bool:
        return steady.holding(candidate(numbers), load_qps) is not None

    def worth(numbers: Numbers, load_qps: float) -> float:
        return candidate(numbers).quality / steady.best(candidate(numbers), load_qps).latency_s

    chosen = list(map(candidate, greedy_steps(known.dearest, loads_qps, holds=holds, worth=worth)))
    largest = [steady.holding(each, load_qps) for each, load_qps in zip(chosen, loads_qps, strict=True)]
    if None in largest:
        k = largest.index(None)
        raise too_slow(steady, chosen[k], load_ranges(np.array(steady.request.upper_ends()))[k], loads_qps[k])
    return tuple((each, size or 1) for each, size in zip(chosen, largest, strict=True))
