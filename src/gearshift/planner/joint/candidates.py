"""The tuples that a planner chooses from: the joint front of the operators' cascades on part A."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from gearshift.cascade import Cascade
from gearshift.planner.joint.answers import Answers, answers
from gearshift.planner.joint.composed import ComposedQuery, composed_query
from gearshift.planner.joint.front import Ints, joint_front, judged
from gearshift.planner.joint.measures import ACCURACY
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate
from gearshift.planner.space.cascade_search import Chain, any_chain, pareto_cascades
from gearshift.planner.space.ways import device_seconds
from gearshift.profiles.profile import PART_A, Profile

MOST_IMPLEMENTATIONS = 24


def candidates_of(
    request: PipelineRequest,
    *,
    models: Collection[str] | None = None,
    chains: Callable[[Chain], bool] = any_chain,
) -> list[Candidate]:
    """The joint front on part A by rising work, of all models, or of these.

    Cascades are those of the `chains` of models that are allowed.
    """
    query, work_s = _query(request), _all_work_s(request)
    allowed = {model: s for model, s in work_s.items() if models is None or model in models}
    cascades = {
        node: implementations(request.profiles[query.operators[node]], allowed, chains) for node in query.places
    }
    front = joint_front(query, answers_of(query, cascades, work_s))
    return _candidates(query, cascades, work_s, front.chosen)


def candidate_with(request: PipelineRequest, cascades: Mapping[str, Cascade]) -> Candidate:
    """The tuple of these cascades on part A."""
    query = _query(request)
    alone = {node: [cascades[node]] for node in query.places}
    only = np.zeros((1, len(alone)), dtype=np.int64)
    return _candidates(query, alone, _all_work_s(request), only)[0]


def _query(request: PipelineRequest) -> ComposedQuery:
    predictions = {operator: profile.predictions for operator, profile in request.profiles.items()}
    return composed_query(request.nodes, request.edges, request.output, request.records, predictions, part=PART_A)


def _candidates(
    query: ComposedQuery, cascades: Mapping[str, list[Cascade]], work_s: Mapping[str, float], chosen: Ints
) -> list[Candidate]:
    """Tuples `chosen` (n, nodes), with their work and the items of each model per request row."""
    of_work_s, quality = judged(query, answers_of(query, cascades, work_s), chosen, ACCURACY)
    visits = {}
    for model in {model for of_node in cascades.values() for cascade in of_node for model in cascade.models}:
        counted = answers_of(query, cascades, {**dict.fromkeys(work_s, 0.0), model: 1.0})
        visits[model], _ = judged(query, counted, chosen, ACCURACY)
    return [
        Candidate(
            cascades={node: cascades[node][k] for node, k in zip(query.places, numbers, strict=True)},
            quality=float(quality[i]),
            work_s=float(of_work_s[i]),
            visits={model: float(of_tuples[i]) for model, of_tuples in sorted(visits.items())},
        )
        for i, numbers in enumerate(chosen.tolist())
    ]


def answers_of(
    query: ComposedQuery, cascades: Mapping[str, list[Cascade]], work_s: Mapping[str, float]
) -> dict[str, Answers]:
    return {node: answers(query, node, of_node, work_s) for node, of_node in cascades.items()}


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


def _all_work_s(request: PipelineRequest) -> dict[str, float]:
    return {model: s for profile in request.profiles.values() for model, s in work_of(profile).items()}


def work_of(profile: Profile) -> dict[str, float]:
    """Device-seconds per item of each model where it is fastest, in the most efficient batches."""
    return {
        model: min(device_seconds(curve) for curve in profile.whole_curves if curve.model == model)
        for model in profile.models
    }
