"""Baselines for pipelines of several nodes: greedy steps over the cascades of all, and each node on its own.

`greedy` takes Ken's steps (section 4.3.1). Load ranges are gone through from the lowest load. From the
tuple of the range below, at first that of the dearest cascades, each step takes the next cheaper cascade
at one node: the step with the most accuracy per latency in simulation. Steps end where the tuple holds
the range. A step looks at one node alone, and is never taken back.

`apart` gives a node a part of the latency, in proportion to its dearest implementation, and the items
that come to it. It knows neither the other nodes on its devices, nor that the items of a fan-out come
together, nor what its errors do to the answer. So the plan may miss the objective.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan, ReplicaSettings
from gearshift.pipeline import Node
from gearshift.placement import Placement
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.joint.candidates import Tuples, candidates_of, tuples_of
from gearshift.planner.joint.replanning.search import Assignment, assigned, confirmed, finished, replayed, too_slow
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples, most_visits, place
from gearshift.planner.space.request import load_ranges
from gearshift.profiles.profile import PART_B
from gearshift.profiles.tuples import JointRecords, samples_alone

Numbers = tuple[int, ...]
"""A tuple: the number of its implementation at each node, from cheap to dear."""


def _greedy(so_far: Search[PipelineRequest]) -> GearPlan:
    """The plan, one cascade for each node and gear; raises `Infeasible` as the joint search does."""
    request = replace(so_far.request, replanning=False)
    known = _Known(tuples_of(request))
    placement = place(request.profiles.values(), request.hardware, most_visits(known.of(known.with_one_other)))
    steady = SteadyTuples(request, placement)
    return finished(confirmed(steady, lambda margin: _assigned(steady, known, margin)), request)


GREEDY = Planner(name="greedy", best_within=_greedy)


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


def _apart(so_far: Search[PipelineRequest]) -> GearPlan:
    """The plan, with what it gets on part B; raises `Infeasible` where a node holds its part with no cascade."""
    request = so_far.request
    alone = {node: _alone(request, node) for node in request.nodes}
    found = {node: candidates_of(own) for node, own in alone.items()}
    items = _items(request.records)
    dearest_s = {node: items[node] * candidates[-1].work_s for node, candidates in found.items()}
    cascades: dict[str, list[Cascade]] = {}
    chosen: dict[str, Assignment] = {}
    visits: dict[str, float] = {}
    for node, candidates in found.items():
        own = _with_part(alone[node], dearest_s[node] / sum(dearest_s.values()), items[node])
        most = {model: 1.0 for candidate in candidates for model in candidate.models}
        steady = SteadyTuples(own, place(own.profiles.values(), own.hardware, most))
        chosen[node] = assigned(steady, candidates, own.least_margin)
        cascades[node] = [candidate.cascades[own.name] for candidate, _ in chosen[node]]
        for model in {model for cascade in cascades[node] for model in cascade.models}:
            visits[model] = visits.get(model, 0.0) + items[node]
    placement = place(request.profiles.values(), request.hardware, visits)
    settings = {node: _settings(alone[node], placement, of_node) for node, of_node in chosen.items()}
    gears = []
    for i, load_range in enumerate(load_ranges(np.array(request.upper_ends()))):
        of_replicas = _joined([of_node[i] for of_node in settings.values()])
        gears.append(
            request.gear(
                load_range,
                {node: of_node[i] for node, of_node in cascades.items()},
                [of_replicas[replica.id] for replica in placement.replicas],
            )
        )
    made = request.plan(placement, gears)
    return msgspec.structs.replace(made, predictions={request.name: replayed(made, request, part=PART_B)})


APART = Planner(name="apart", best_within=_apart)


def _settings(own: PipelineRequest, placement: Placement, chosen: Assignment) -> list[tuple[ReplicaSettings, ...]]:
    """By range, the settings of the replicas that hold the operator's models."""
    (profile,) = own.profiles.values()
    held = Placement(replicas=tuple(each for each in placement.replicas if each.model in profile.models))
    steady = SteadyTuples(own, held)
    return [steady.settings(candidate, largest) for candidate, largest in chosen]


def _alone(request: PipelineRequest, node: str) -> PipelineRequest:
    """The node as a pipeline of its own, with the name of its operator."""
    operator = request.nodes[node].operator
    return replace(
        request,
        name=operator,
        nodes={operator: Node(operator=operator)},
        edges=(),
        output=operator,
        profiles={operator: request.profiles[operator]},
        records=samples_alone(operator, request.profiles[operator].predictions.part),
    )


def _with_part(own: PipelineRequest, share: float, items: float) -> PipelineRequest:
    """With a share of the latency, and so many items for each request."""
    latency_s = share * own.latency_s
    objective = msgspec.structs.replace(own.objective, latency_s=latency_s, accuracy=None, confidence=None)
    return replace(own, objective=objective, max_qps=items * own.upper_ends()[-1])


def _items(records: JointRecords) -> dict[str, float]:
    """Items of each node per request row, if every edge is live."""
    counts = np.bincount(records.node, minlength=len(records.nodes)) / len(records)
    return dict(zip(records.nodes, counts.tolist(), strict=True))


def _joined(of_nodes: list[tuple[ReplicaSettings, ...]]) -> Mapping[str, ReplicaSettings]:
    """Settings by replica; of nodes with the same operator, those that give it the most load."""
    joined: dict[str, ReplicaSettings] = {}
    for each in (one for settings in of_nodes for one in settings):
        if each.replica not in joined or each.load_share > joined[each.replica].load_share:
            joined[each.replica] = each
    return joined
