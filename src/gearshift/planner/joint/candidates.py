"""The tuples that a planner chooses from: the joint front of the operators' cascades on part A."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.pipeline import Edge, Node
from gearshift.planner.joint.composed import Answers, ComposedQuery, answers, composed_query
from gearshift.planner.joint.front import Doubles, Ints, JointFront, chunks, joint_front, judged, picked
from gearshift.planner.joint.replay import ACCURACY, replay
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate, SteadyTuples
from gearshift.planner.space.cascade_search import Chain, any_chain, pareto_cascades
from gearshift.planner.space.hosts import device_seconds
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


# Looks for tuples off the joint front that hold a load where those next on the front do not.
#
# The front is by mean work, and what holds is a percentile of the latency: a tuple with a little more work may hold,
# because fewer of its requests go all the long ways. Tuples that differ at two nodes are looked at; which of them are
# likely to hold is told by what was simulated at loads nearby, so that few are simulated in vain.

LEAST_GAIN = 2e-5
"""So much more accuracy is worth a simulation."""
MOST_TRIED = 2
"""So many tuples are simulated in vain for each range."""
LEAST_SEEN = 5
SLACK = 1.1
"""Plans expected within this multiple of the latency are tried."""
NEARBY = 0.2
"""Loads are nearby up to this share."""
LONGEST_S = 5.0
"""A longer latency is that of a queue which grows, and counts as this."""


def two_changed(numbers: Sequence[int], sizes: Sequence[int]) -> Ints:
    """All tuples (k, nodes) with up to two numbers other than `numbers`; of node i they are below `sizes[i]`."""
    found = [np.array([numbers], dtype=np.int64)]
    for i, j in combinations(range(len(sizes)), 2):
        both = np.tile(found[0], (sizes[i] * sizes[j], 1))
        both[:, i], both[:, j] = np.divmod(np.arange(len(both)), sizes[j])
        found.append(both)
    return np.unique(np.concatenate(found), axis=0)


def likely(of: Doubles, seen: Doubles, latency_s: Doubles, limit_s: float) -> NDArray[np.bool_]:
    """Those of n tuples that are expected to keep `limit_s`, from their traits `of` (n, traits).

    The logarithm of `latency_s` (m,) is fitted as linear in the traits `seen` (m, traits) by least squares.
    """
    one = np.ones((len(seen), 1))
    fit, *_ = np.linalg.lstsq(np.hstack([one, seen]), np.log(np.minimum(latency_s, LONGEST_S)), rcond=None)
    return np.asarray(fit[0] + of @ fit[1:] <= np.log(limit_s))


def tails_s(query: ComposedQuery, answers: dict[str, Answers], chosen: Ints, share: float) -> Doubles:
    """The `share` percentile (n,) over recorded requests of the work of tuples (n, nodes)."""
    found = [
        np.percentile(replay(query, picked(query, answers, chosen[rows])).work_s, 100 * share, axis=1)
        for rows in chunks(query, len(chosen))
    ]
    return np.broadcast_to(np.concatenate(found), (len(chosen),)).astype(np.float64)


@dataclass(slots=True, eq=False)
class OffFront:
    """Tuples of `tuples` beside those that a search has chosen."""

    tuples: Tuples
    _alone: dict[str, Answers] = field(default_factory=dict)
    """The answers of each node, with the run times of single items as their work."""
    _tails_s: dict[tuple[int, ...], float] = field(default_factory=dict)

    def better(self, steady: SteadyTuples, chosen: Candidate, load_qps: float, most_work_s: float) -> Candidate:
        """The most accurate found that holds `load_qps` with no more than `most_work_s`, else `chosen`."""
        some = islice(self._likely(steady, chosen, load_qps, most_work_s), MOST_TRIED)
        return next((each for each in some if steady.holding(each, load_qps) is not None), chosen)

    def _likely(
        self, steady: SteadyTuples, chosen: Candidate, load_qps: float, most_work_s: float
    ) -> Iterator[Candidate]:
        seen = steady.seen_near(load_qps, NEARBY)
        if len(seen) < LEAST_SEEN:
            return
        sizes = [len(of_node) for of_node in self.tuples.cascades.values()]
        near = two_changed(self._numbers(chosen), sizes)
        work_s, quality = self.tuples.judged(near)
        fits = np.flatnonzero((quality > chosen.quality + LEAST_GAIN) & (work_s <= most_work_s))
        if not len(fits):
            return
        known = self._of_all([self._numbers(candidate) for candidate, _, _ in seen], steady)
        traits = np.array([[c.work_s * qps, tail_s] for (c, qps, _), tail_s in zip(seen, known, strict=True)])
        tails = self._of_all([tuple(row) for row in near[fits].tolist()], steady)
        hold = likely(
            np.column_stack([work_s[fits] * load_qps, tails]),
            traits,
            np.array([latency_s for *_, latency_s in seen]),
            SLACK * steady.request.latency_s,
        )
        by_accuracy = fits[hold][np.argsort(-quality[fits[hold]], kind="stable")]
        done = {self._numbers(candidate) for candidate, qps, _ in seen if qps == load_qps}
        for place in by_accuracy.tolist():
            if tuple(near[place].tolist()) not in done:
                yield self.tuples.candidates(near[place : place + 1])[0]

    def _of_all(self, numbers: Sequence[tuple[int, ...]], steady: SteadyTuples) -> Doubles:
        new = [each for each in dict.fromkeys(numbers) if each not in self._tails_s]
        if new:
            if not self._alone:
                alone_s = {model: float(np.max(each)) for model, each in steady.run_s().items()}
                self._alone = self.tuples.answers_with(alone_s)
            share = steady.request.objective.percentile
            found = tails_s(self.tuples.query, self._alone, np.array(new, dtype=np.int64), share)
            self._tails_s.update(zip(new, found.tolist(), strict=True))
        return np.array([self._tails_s[each] for each in numbers])

    def _numbers(self, candidate: Candidate) -> tuple[int, ...]:
        return tuple(self.tuples.cascades[node].index(candidate.cascades[node]) for node in self.tuples.query.places)
