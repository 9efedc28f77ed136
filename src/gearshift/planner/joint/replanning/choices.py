"""Gears that allow several implementations, where simulation says that choosing by time left helps.

A gear with one tuple of implementations is the plain gear. Around its tuple, others of the front
are allowed, with tables of expected quality by the time left, and a margin that cures what these
do not know. At the load for which the plain gear was chosen, the allowed tuples and the margin
that give most quality in time are found. Such a gear takes the plain one's place only if the whole
trace, replayed on part A, keeps the objective and gets more quality in time.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Literal

import msgspec
import numpy as np

from gearshift.cascade import Cascade, TimedQuality
from gearshift.gear import Gear, GearPlan, LoadRange
from gearshift.pipeline import Edge
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query, allowing, timed_quality, timed_query
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, most_visits, place
from gearshift.planner.space.request import Progress, load_ranges, silent
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import ServingResult
from gearshift.simulator.simulate import Simulation, simulate
from gearshift.workload import draw_workload

MOST_TUPLES = 8
"""So many tuples of the front are allowed in a gear, evenly spread."""
MARGINS = 0.0, 0.05, 0.1, 0.2
"""Margins that are tried: taken off the time left, as shares of the objective's latency."""
WARM_UP_SHARE = 0.1

Tables = Callable[[Query], dict[str, tuple[TimedQuality, ...]]]


def on_trace(made: GearPlan, request: PipelineRequest, *, part: int) -> Simulation:
    """The whole trace with the recorded tuples of `part`."""
    workload = draw_workload(request.trace, request.records.indices(part), seed=request.seed)
    return simulate(made, request.profiles, request.varying(workload), joint={request.name: request.records})


def result_of(run: Simulation, request: PipelineRequest) -> ServingResult:
    return run.result(request.profiles, latency_objective_s=request.latency_s)


def keeps(result: ServingResult, request: PipelineRequest) -> bool:
    return result.share_late <= 1 - request.objective.percentile


def quality_in_time(run: Simulation, request: PipelineRequest, *, warm_up: float = 0.0) -> float:
    """The mean quality of answers, where those that are late or missing count as wrong."""
    answered = ~np.isnan(run.latency_s)
    quality = np.zeros(len(answered))
    quality[answered] = run.quality(request.profiles)
    quality[answered] *= run.latency_s[answered] <= request.latency_s
    return float(quality[int(warm_up * len(quality)) :].mean())


def with_choices(
    plain: GearPlan,
    on_part_a: Simulation,
    steady: SteadyTuples,
    front: Sequence[Candidate],
    places: Sequence[int],
    margin: float,
    progress: Progress = silent,
) -> GearPlan:
    """The plan with gears that choose by time left where that helps, else `plain` as it is.

    `on_part_a` is the replay of `plain`. `places` are those of the gears' tuples in the front;
    `margin` the multiple of its load that each gear must hold. Ctrl-C ends the search with the plan
    so far, which is then marked as unfinished.
    """
    made, request = plain, steady.request
    try:
        allowed, gears = Choices(steady, front), list(plain.pipeline.gears)
        most = quality_in_time(on_part_a, request)
        for number, (place, end_qps) in enumerate(zip(places, request.upper_ends(), strict=True)):
            progress(f"choosing by the time left, range {number + 1} of {len(gears)}", 0.3 + 0.6 * number / len(gears))
            found = allowed.best(gears[number], place, end_qps, margin)
            if found is None:
                continue
            trial = request.plan(plain.placement, [*gears[:number], found, *gears[number + 1 :]])
            run = on_trace(trial, request, part=PART_A)
            if keeps(result_of(run, request), request) and (gained := quality_in_time(run, request)) > most:
                made, most, gears[number] = trial, gained, found
    except KeyboardInterrupt:
        return msgspec.structs.replace(made, unfinished=True)
    return made


def choosing_everywhere(steady: SteadyTuples, front: Sequence[Candidate], margin: float) -> GearPlan | None:
    """A plan for loads that no tuple alone carries: several spread a node's items over its models.

    None where a range is not held even so.
    """
    request, allowed = steady.request, Choices(steady, front)
    gears: list[Gear] = []
    for load_range, end_qps in zip(load_ranges(np.array(request.upper_ends())), request.upper_ends(), strict=True):
        plain = request.gear(load_range, front[0].cascades, steady.settings(front[0], steady.sizes()[-1]))
        found = allowed.best(plain, 0, end_qps, margin)
        if found is None:
            return None
        gears.append(found)
    return request.plan(steady.placement, gears)


@dataclass(slots=True)
class Choices:
    """Gears that allow tuples of a front, on a placement."""

    steady: SteadyTuples
    front: Sequence[Candidate]
    _cascades: dict[str, list[Cascade]] = field(init=False)
    _query: Query = field(init=False)

    def __post_init__(self) -> None:
        self._cascades = {
            node: list(dict.fromkeys(candidate.cascades[node] for candidate in self.front))
            for node in self.steady.request.nodes
        }
        self._query = timed_query(self.steady.request, self._cascades, self.steady.run_s())

    def best(self, plain: Gear, place: int, end_qps: float, margin: float) -> Gear | None:
        """The gear that gets most quality in time at `margin` times the load, if more than `plain`."""
        steady, load_qps = self.steady, margin * end_qps
        request = steady.request
        best, most = None, quality_in_time(steady.run(plain, load_qps), request, warm_up=WARM_UP_SHARE)
        largest = max(settings.largest_batch_size for settings in plain.replicas)
        for tuples in _spreads(place, len(self.front)):
            for share in MARGINS:
                gear = self.gear(plain, tuples, largest, timed_quality, margin_s=share * request.latency_s)
                run = steady.run(gear, load_qps)
                gained = quality_in_time(run, request, warm_up=WARM_UP_SHARE)
                if gained > most and steady.meets(steady.judged(run)):
                    best, most = gear, gained
        return None if best is None else self._predicted(best, end_qps)

    def gear(self, plain: Gear, places: Sequence[int], largest: int, tables: Tables, *, margin_s: float) -> Gear:
        """The gear `plain` with the implementations of the tuples at `places`, and tables for them."""
        tuples = [self.front[place] for place in places]
        allowed = {node: self._allowed(node, tuples) for node in self._cascades}
        return msgspec.structs.replace(
            plain,
            cascades={node: tuple(self._cascades[node][i] for i in each) for node, each in allowed.items()},
            replicas=self.steady.settings_for(self.steady.shares(_mean_visits(tuples)), largest),
            timed=tables(allowing(self._query, allowed)),
            margin_s=margin_s,
        )

    def _allowed(self, node: str, tuples: Sequence[Candidate]) -> list[int]:
        """The numbers of the node's implementations in these tuples, from cheap to dear."""
        numbers = {self._cascades[node].index(candidate.cascades[node]) for candidate in tuples}
        outcomes = self._query.outcomes[node]
        return sorted(numbers, key=lambda i: (float(outcomes[i].share @ outcomes[i].run_ms), i))

    def _predicted(self, gear: Gear, end_qps: float) -> Gear:
        run = self.steady.run(gear, end_qps)
        accuracy = float(run.quality(self.steady.request.profiles).mean())
        return msgspec.structs.replace(gear, predicted=self.steady.judged(run).prediction(end_qps, accuracy))


def _spreads(place: int, tuples: int) -> list[list[int]]:
    """Tuples from the cheapest to that at `place`, and from the cheapest to the dearest."""
    found = [np.unique(np.linspace(0, end, MOST_TUPLES).round().astype(int)).tolist() for end in (place, tuples - 1)]
    whole = sorted({*found[1], place})
    return [each for each in (found[0], whole if whole != found[0] else []) if len(each) > 1]


def _mean_visits(tuples: Sequence[Candidate]) -> Mapping[str, float]:
    models = {model for candidate in tuples for model in candidate.models}
    return {model: float(np.mean([each.visits.get(model, 0.0) for each in tuples])) for model in models}


# Replanning by partial latency budgets, a baseline (Gati sections 5.2 and 5.2.1).
#
# The time that is left is split over the nodes of each path to the output, equally or in proportion
# to each node's slowest model, and the smallest budget of a node over its paths counts. A node takes
# its most accurate model within its budget. Splitting what is left anew at each node is the same as
# handing saved time on. Gati's pseudocode contradicts this text twice (it takes the budget off the
# base latency, and picks at the root); the text is what is built here. Its tables know no waits, but
# the policy that reads them takes waits off the time left, as for ours.

Split = Literal["equal", "proportional"]


def plan_by_budgets(request: PipelineRequest, front: Sequence[Candidate], split: Split) -> GearPlan:
    """One gear for all loads, whose nodes choose among the models of the front by their budgets.

    The objective's latency is what is split; whether the plan keeps it is not asked. Of the largest
    batches, the one with most quality in time on part A is taken.
    """
    steady = SteadyTuples(request, place(request.profiles.values(), request.hardware, most_visits(front)))
    choices = Choices(steady, front)
    plain = request.gear(LoadRange(from_=0.0), front[0].cascades, steady.settings(front[0], 1))
    tables = partial(budget_tables, split=split)
    made = [
        request.plan(steady.placement, [choices.gear(plain, range(len(front)), size, tables, margin_s=0.0)])
        for size in steady.sizes()
    ]
    best = max(made, key=lambda plan: quality_in_time(on_trace(plan, request, part=PART_A), request))
    predicted = result_of(on_trace(best, request, part=PART_B), request)
    return msgspec.structs.replace(best, planner=f"budgets-{split}", predictions={request.name: predicted})


def budget_tables(query: Query, split: Split) -> dict[str, tuple[TimedQuality, ...]]:
    """Tables by which `policies/replanning.best_choice` picks as Gati does.

    An implementation is within the budget from its run time divided by the node's share of the
    time left; it then counts with its own quality alone.
    """
    shares = _shares(query.outcomes, query.edges, split)
    return {
        node: tuple(
            TimedQuality(
                remaining_ms=(math.ceil(each.longest_ms / shares[node]),),
                quality=(float(each.share @ each.quality),),
            )
            for each in implementations
        )
        for node, implementations in query.outcomes.items()
    }


def _shares(outcomes: Mapping[str, Sequence[Outcomes]], edges: Sequence[Edge], split: Split) -> dict[str, Fraction]:
    """Each node's part of the time that is left when it begins: the smallest over its paths.

    Nodes that take no time, such as functions, get none of it.
    """
    slowest_ms = {node: max(each.longest_ms for each in of_node) for node, of_node in outcomes.items()}
    weights = {node: ms if split == "proportional" else min(ms, 1) for node, ms in slowest_ms.items()}

    def heaviest(node: str) -> int:
        return weights[node] + max((heaviest(edge.to) for edge in edges if edge.from_ == node), default=0)

    return {node: Fraction(weight, heaviest(node)) if weight else Fraction(1) for node, weight in weights.items()}
