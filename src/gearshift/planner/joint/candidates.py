"""The tuples that a planner chooses from: the joint front of the operators' cascades on part A."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from gearshift.cascade import Cascade
from gearshift.pipeline import Edge, Node
from gearshift.planner.joint.answers import Answers, answers
from gearshift.planner.joint.composed import ComposedQuery, composed_query
from gearshift.planner.joint.front import Doubles, Ints, JointFront, joint_front, judged
from gearshift.planner.joint.measures import ACCURACY
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate
from gearshift.planner.space.cascade_search import Chain, any_chain, pareto_cascades
from gearshift.planner.space.ways import device_seconds
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.profiles.tuples import JointRecords

MOST_IMPLEMENTATIONS = 24


class Graph(Protocol):
    """A pipeline, planned or to be planned."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...
    @property
    def edges(self) -> Sequence[Edge]: ...
    @property
    def output(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Tuples:
    """Implementations of each node, from cheap to dear, whose answers are composed on one part of the records.

    A tuple is a row of `chosen` (n, nodes): the numbers of its implementations, by the query's nodes.
    """

    query: ComposedQuery
    cascades: Mapping[str, Sequence[Cascade]]
    work_s: Mapping[str, float]

    @cached_property
    def answers(self) -> dict[str, Answers]:
        return self.answers_with(self.work_s)

    def of_models(self, models: Collection[str]) -> "Tuples":
        """Those whose cascades have no other models."""
        cascades = {
            node: [each for each in of if set(each.models) <= set(models)] for node, of in self.cascades.items()
        }
        return Tuples(self.query, cascades, self.work_s)

    def front(self) -> JointFront:
        return joint_front(self.query, self.answers)

    def judged(self, chosen: Ints) -> tuple[Doubles, Doubles]:
        """Mean work and accuracy (n,) of a request row."""
        return judged(self.query, self.answers, chosen, ACCURACY)

    def candidates(self, chosen: Ints) -> list[Candidate]:
        """The tuples with their work, and the items of each model per request row."""
        work_s, quality = self.judged(chosen)
        visits = {}
        for model in {model for of_node in self.cascades.values() for cascade in of_node for model in cascade.models}:
            counted = self.answers_with({**dict.fromkeys(self.work_s, 0.0), model: 1.0})
            visits[model], _ = judged(self.query, counted, chosen, ACCURACY)
        return [
            Candidate(
                cascades={node: self.cascades[node][k] for node, k in zip(self.query.places, numbers, strict=True)},
                quality=float(quality[i]),
                work_s=float(work_s[i]),
                visits={model: float(of_tuples[i]) for model, of_tuples in sorted(visits.items())},
            )
            for i, numbers in enumerate(chosen.tolist())
        ]

    def answers_with(self, work_s: Mapping[str, float]) -> dict[str, Answers]:
        """The answers of each node, with these seconds of each model as work."""
        return {node: answers(self.query, node, of_node, work_s) for node, of_node in self.cascades.items()}


def query_of(graph: Graph, profiles: Mapping[str, Profile], records: JointRecords, *, part: int) -> ComposedQuery:
    predictions = {operator: profile.predictions for operator, profile in profiles.items()}
    return composed_query(graph.nodes, graph.edges, graph.output, records, predictions, part=part)


def tuples_of(
    request: PipelineRequest,
    *,
    query: ComposedQuery | None = None,
    models: Collection[str] | None = None,
    chains: Callable[[Chain], bool] = any_chain,
) -> Tuples:
    """All tuples on part A, of all models, or of these; cascades are of the `chains` of models that are allowed.

    `query` is the pipeline laid out over part A, where that is known.
    """
    query = query or query_of(request, request.profiles, request.records, part=PART_A)
    work_s = work_of_all(request.profiles)
    allowed = {model: s for model, s in work_s.items() if models is None or model in models}
    cascades = {
        node: implementations(request.profiles[query.operators[node]], allowed, chains) for node in query.places
    }
    return Tuples(query, cascades, work_s)


def candidates_of(
    request: PipelineRequest,
    *,
    query: ComposedQuery | None = None,
    models: Collection[str] | None = None,
    chains: Callable[[Chain], bool] = any_chain,
) -> list[Candidate]:
    """The joint front on part A by rising work; as `tuples_of`."""
    tuples = tuples_of(request, query=query, models=models, chains=chains)
    return tuples.candidates(tuples.front().chosen)


def candidate_with(
    request: PipelineRequest, cascades: Mapping[str, Cascade], *, query: ComposedQuery | None = None
) -> Candidate:
    """The tuple of these cascades on part A, over which `query` is laid out, where that is known."""
    query = query or query_of(request, request.profiles, request.records, part=PART_A)
    alone = {node: [cascades[node]] for node in query.places}
    only = np.zeros((1, len(alone)), dtype=np.int64)
    return Tuples(query, alone, work_of_all(request.profiles)).candidates(only)[0]


def worst_composed(request: PipelineRequest) -> float:
    """The accuracy on part B where each node has its operator's worst model."""
    query = query_of(request, request.profiles, request.records, part=PART_B)
    worst = {node: [_worst(request.profiles[query.operators[node]])] for node in query.places}
    _, accuracy = Tuples(query, worst, work_of_all(request.profiles)).judged(np.zeros((1, len(worst)), dtype=np.int64))
    return float(accuracy[0])


def _worst(profile: Profile) -> Cascade:
    records = profile.predictions
    accuracies = records.quality[:, records.indices(PART_B)].mean(axis=1)
    return Cascade(models=(records.models[int(accuracies.argmin())],))


def single_models(chain: Chain) -> bool:
    return len(chain) == 1


def implementations(
    profile: Profile, work_s: Mapping[str, float] | None = None, chains: Callable[[Chain], bool] = any_chain
) -> list[Cascade]:
    """Cascades of an operator from cheap to expensive, of the models in `work_s`, or of all."""
    work_s = work_of(profile) if work_s is None else work_s
    own_s = {model: work_s[model] for model in profile.models if model in work_s}
    front = pareto_cascades(profile, own_s, most=MOST_IMPLEMENTATIONS, allowed=chains)
    return [candidate.cascade for candidate in front]


def work_of_all(profiles: Mapping[str, Profile]) -> dict[str, float]:
    return {model: s for profile in profiles.values() for model, s in work_of(profile).items()}


def work_of(profile: Profile) -> dict[str, float]:
    """Device-seconds per item of each model where it is fastest, in the most efficient batches."""
    return {
        model: min(device_seconds(curve) for curve in profile.whole_curves if curve.model == model)
        for model in profile.models
    }
