"""The tuples that a planner chooses from: the joint front of the operators' cascades on part A."""

from collections.abc import Callable, Mapping

from gearshift.cascade import Cascade
from gearshift.planner.joint.answers import Answers, answers
from gearshift.planner.joint.composed import ComposedQuery, composed_query
from gearshift.planner.joint.front import joint_front, judged
from gearshift.planner.joint.measures import ACCURACY
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate
from gearshift.planner.space.cascade_search import Chain, any_chain, pareto_cascades
from gearshift.planner.space.ways import device_seconds
from gearshift.profiles.profile import PART_A, Profile

MOST_IMPLEMENTATIONS = 24


def candidates_of(request: PipelineRequest, *, chains: Callable[[Chain], bool] = any_chain) -> list[Candidate]:
    """The joint front on part A by rising work, with the items of each model per request row.

    Cascades are those of the `chains` of models that are allowed.
    """
    predictions = {operator: profile.predictions for operator, profile in request.profiles.items()}
    query = composed_query(request.nodes, request.edges, request.output, request.records, predictions, part=PART_A)
    work_s = {model: s for profile in request.profiles.values() for model, s in _work_s(profile).items()}
    cascades = {node: _implementations(request.profiles[query.operators[node]], chains) for node in query.places}
    front = joint_front(query, _answers(query, cascades, work_s))
    visits = {}
    for model in work_s:
        counted = _answers(query, cascades, {**dict.fromkeys(work_s, 0.0), model: 1.0})
        visits[model], _ = judged(query, counted, front.chosen, ACCURACY)
    return [
        Candidate(
            cascades={node: cascades[node][k] for node, k in zip(front.nodes, chosen, strict=True)},
            quality=float(front.score[i]),
            work_s=float(front.work_s[i]),
            visits={model: float(of_tuples[i]) for model, of_tuples in visits.items()},
        )
        for i, chosen in enumerate(front.chosen.tolist())
    ]


def _answers(
    query: ComposedQuery, cascades: Mapping[str, list[Cascade]], work_s: Mapping[str, float]
) -> dict[str, Answers]:
    return {node: answers(query, node, of_node, work_s) for node, of_node in cascades.items()}


def single_models(chain: Chain) -> bool:
    return len(chain) == 1


def _implementations(profile: Profile, chains: Callable[[Chain], bool]) -> list[Cascade]:
    front = pareto_cascades(profile, _work_s(profile), most=MOST_IMPLEMENTATIONS, allowed=chains)
    return [candidate.cascade for candidate in front]


def _work_s(profile: Profile) -> dict[str, float]:
    """Device-seconds per item of each model where it is fastest, in the most efficient batches."""
    return {
        model: min(device_seconds(curve) for curve in profile.whole_curves if curve.model == model)
        for model in profile.models
    }
