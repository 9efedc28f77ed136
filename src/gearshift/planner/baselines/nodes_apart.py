"""A baseline for pipelines: each node planned on its own, and their choices put together.

A node gets a part of the latency, in proportion to its dearest implementation, and the items that
come to it. It knows neither the other nodes on its devices, nor that the items of a fan-out come
together, nor what its errors do to the answer. So the plan may miss the objective.
"""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.gear import GearPlan, ReplicaSettings
from gearshift.pipeline import Node
from gearshift.placement import Placement
from gearshift.planner.contract.planner import Planner, Search
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.placing import place
from gearshift.planner.joint.replanning.search import Assignment, assigned, replayed
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import SteadyTuples
from gearshift.planner.space.request import load_ranges
from gearshift.profiles.profile import PART_B
from gearshift.profiles.tuples import JointRecords, samples_alone


def _best_within(so_far: Search[PipelineRequest]) -> GearPlan:
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


PLANNER = Planner(name="apart", best_within=_best_within)


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
