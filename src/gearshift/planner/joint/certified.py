"""Certificates: what a query's answers are worth with confidence, and the tuples that a plan with one may use.

Tuples are chosen on part A. The Pareto tuples are then tested on part B in an order that part A
has fixed, from the safest to the cheapest, each at the full level, up to the first that fails: so
the chance that one which does not keep the promise passes is that of a single test. Several
promises are each tested at the full level, as all must hold. All tuples that passed may be used in
any gear.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.model import LABEL
from gearshift.objective import Certificate, CertifiedLevel, CertifiedMeasure, Objective
from gearshift.pipeline import When
from gearshift.planner.joint.composed import Answers, ComposedQuery, answers, composed_query
from gearshift.planner.joint.front import JointFront, judged, picked
from gearshift.planner.joint.replay import ACCURACY, Precision, Recall, TestedMeasure, Together, replay, truth_of
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.joint.steady import Candidate
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.result import lower_confidence_bound, share_bound

MOST_LABELS = 1 << 40


@dataclass(frozen=True, slots=True)
class Promise:
    """A level that a measure of the query's answers must reach: accuracy, recall, precision, agreement."""

    name: str
    measure: TestedMeasure
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The test of one promise on one tuple: `mean` of `trials`, and the bound that it certifies."""

    name: str
    level: float
    trials: int
    mean: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.bound >= self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Certification:
    """The cheapest tuple that passed, as its place in the front; None if none did.

    `verdicts` are those on each promise, for the tuple that passed, else for the safest; `passed`
    has those of all tuples that passed, by place. `tried` counts the tuples that were tested.
    `lacking` has for each promise how many more trials the safest tuple needs to keep it, at the
    share of right ones that it has; None where none would do.
    """

    place: int | None
    verdicts: tuple[Verdict, ...]
    passed: dict[int, tuple[Verdict, ...]]
    tried: int
    lacking: dict[str, int | None]


def certify(
    query: ComposedQuery,
    candidates: Mapping[str, Answers],
    front: JointFront,
    promises: Sequence[Promise],
    confidence: float,
) -> Certification:
    """Test a front found on part A on the records of part B, which `query` and `candidates` are of.

    The front must have been ordered without looking at part B.
    """
    passed: dict[int, tuple[Verdict, ...]] = {}
    verdicts: tuple[Verdict, ...] = ()
    tried = 0
    for place in range(len(front) - 1, -1, -1):
        replayed = replay(query, picked(query, candidates, front.chosen[place : place + 1]))
        now = tuple(verdict(p.name, p.measure.trials(replayed), p.level, confidence) for p in promises)
        tried += 1
        if tried == 1:
            verdicts = now
        if not all(each.holds for each in now):
            break
        passed[place] = verdicts = now
    lacking = {} if passed else {t.name: lacking_trials(t, confidence) for t in verdicts if not t.holds}
    return Certification(
        place=min(passed, default=None), verdicts=verdicts, passed=passed, tried=tried, lacking=lacking
    )


def verdict(name: str, trials: NDArray[np.floating], level: float, confidence: float) -> Verdict:
    """Test the mean of independent trials (n,) from 0 to 1, such as expected qualities in a replay.

    Exactly (Clopper and Pearson) where each is 0 or 1, else by a bound that holds for all scores.
    """
    n = len(trials)
    mean = float(trials.mean(dtype=np.float64)) if n else 0.0
    if np.isin(trials, (0.0, 1.0)).all():
        bound = share_bound(int(np.count_nonzero(trials == 0)), n, confidence)
    else:
        bound = lower_confidence_bound(mean, n, confidence)
    return Verdict(name=name, level=level, trials=n, mean=mean, bound=bound)


def least_trials(level: float, confidence: float) -> int:
    """How many trials without a miss certify `level`: 29 for 0.9 with confidence 0.95."""
    return math.ceil(math.log1p(-confidence) / math.log(level)) if level < 1 else MOST_LABELS


def lacking_trials(test: Verdict, confidence: float) -> int | None:
    """How many more trials a failed test needs if as large a share of them is right.

    None if that share is below the level. A miss or two may be chance: with few trials, the answer
    counts on none beyond their share.
    """
    if test.trials and test.mean < test.level:
        return None
    low = max(test.trials, least_trials(test.level, confidence))
    share_wrong = 1 - test.mean if test.trials else 0.0

    def enough(n: int) -> bool:
        return share_bound(math.ceil(share_wrong * n - 1e-9), n, confidence) >= test.level

    high = low
    while not enough(high):
        low, high = high, 2 * high
        if high > MOST_LABELS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - test.trials


TRIALS = {"recall": "requests of class {}", "precision": "requests that are answered {}"}


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedTuple:
    candidate: Candidate
    verdicts: tuple[Verdict, ...]


def certified_tuples(request: PipelineRequest, front: Sequence[Candidate]) -> list[CertifiedTuple]:
    """The tuples of a front by rising work that keep what is promised with the objective's confidence.

    Raises `InvalidInput` where something cannot be tested, and `Infeasible`, with the labels that
    are lacking, where not even the safest tuple passes.
    """
    confidence = _require_testable(request)
    cascades = {node: _distinct(node, front) for node in request.nodes}
    on_a, promises_a = _promised(request, PART_A)
    chosen = np.array([[cascades[node].index(one.cascades[node]) for node in on_a.places] for one in front])
    together = Together([p.measure for p in promises_a], [p.level for p in promises_a])
    _, margin = judged(on_a, _answers(on_a, cascades), chosen, together)
    work_s = np.array([one.work_s for one in front])
    safest_last = np.lexsort((work_s, margin))
    query, promises = _promised(request, PART_B)
    in_order = JointFront(
        nodes=tuple(query.places), chosen=chosen[safest_last], work_s=work_s[safest_last], score=margin[safest_last]
    )
    found = certify(query, _answers(query, cascades), in_order, promises, confidence)
    if not found.passed:
        raise Infeasible(_refusal(request.objective, found.verdicts, found.lacking), by_load=False)
    passed = {int(safest_last[place]): verdicts for place, verdicts in found.passed.items()}
    return [CertifiedTuple(front[place], passed[place]) for place in sorted(passed)]


def with_certificate(made: GearPlan, request: PipelineRequest, tuples: Sequence[CertifiedTuple]) -> GearPlan:
    """The plan with its certificate: for each promise the test of the gear that comes closest to its level."""
    pipeline, confidence = made.pipelines[request.name], request.objective.confidence
    assert confidence is not None
    used = []
    for gear in pipeline.gears:
        only = {node: cascades[0] for node, cascades in gear.cascades.items() if len(cascades) == 1}
        tested = next((one for one in tuples if dict(one.candidate.cascades) == only), None)
        if tested is None:
            raise InvalidInput(
                f"the gear for load {gear.load_range} was not tested, so that the plan has no certificate",
                remedy="leave --confidence out",
            )
        used.append(tested.verdicts)
    closest = [min(of_promise, key=lambda one: one.bound) for of_promise in zip(*used, strict=True)]
    certificate = Certificate(
        confidence=confidence,
        levels=tuple(
            CertifiedLevel(
                measure=_measure(v.name, request), level=v.level, bound=v.bound, mean=v.mean, labels=v.trials
            )
            for v in closest
        ),
    )
    pipelines = made.pipelines | {request.name: msgspec.structs.replace(pipeline, certificate=certificate)}
    return msgspec.structs.replace(made, pipelines=pipelines)


def _require_testable(request: PipelineRequest) -> float:
    objective = request.objective
    names = [name for name in ("accuracy", "recall", "precision") if _level(objective, name) is not None]
    require(
        bool(names),
        "a confidence is given, and nothing that must be certain",
        remedy="give an accuracy, a recall or a precision",
    )
    require(
        objective.positive is not UNSET or names == ["accuracy"],
        f"{names[-1]} is given, and no class that it is of",
        remedy="name the class with --positive",
    )
    require(
        not request.records.assumed_independent,
        "the joint records assume that operators err independently, so that nothing can be certified",
        remedy="record the operators on the same requests",
    )
    for name in names:
        level = _level(objective, name)
        assert level is not None
        require(0 < level < 1, f"{name} {level:g} can never be certified", remedy="give a share between 0 and 1")
    if objective.confidence is None:
        raise InvalidInput(f"{names[-1]} is given without a confidence", remedy="give --confidence, such as 0.95")
    return objective.confidence


def _level(objective: Objective, name: str) -> float | None:
    level = getattr(objective, name)
    return None if level is UNSET else level


def _distinct(node: str, front: Sequence[Candidate]) -> list[Cascade]:
    return list(dict.fromkeys(one.cascades[node] for one in front))


def _answers(query: ComposedQuery, cascades: Mapping[str, Sequence[Cascade]]) -> dict[str, Answers]:
    return {
        node: answers(query, node, of_node, {model: 0.0 for cascade in of_node for model in cascade.models})
        for node, of_node in cascades.items()
    }


def _promised(request: PipelineRequest, part: int) -> tuple[ComposedQuery, list[Promise]]:
    """The query on a part of the records, and what is promised of it there."""
    objective, positive = request.objective, request.objective.positive
    predictions = {operator: profile.predictions for operator, profile in request.profiles.items()}
    when = None if positive is UNSET else When(output=LABEL, one_of=(_known_class(request, positive),))
    query = composed_query(
        request.nodes, request.edges, request.output, request.records, predictions, part=part, positive=when
    )
    promises = []
    if objective.accuracy is not None:
        promises.append(Promise("accuracy", ACCURACY, objective.accuracy))
    if when is not None:
        truth = truth_of(query)
        if objective.recall is not UNSET:
            promises.append(Promise("recall", Recall(truth), objective.recall))
        if objective.precision is not UNSET:
            promises.append(Promise("precision", Precision(truth), objective.precision))
    return query, promises


def _known_class(request: PipelineRequest, positive: str) -> str:
    operator = request.nodes[request.output].operator
    labels = request.profiles[operator].predictions.label
    if labels is None:
        raise InvalidInput(
            f"operator {operator!r} answers, and has no labels: recall and precision need the right answers",
            remedy="give labels of its items, or ask for accuracy",
        )
    known = sorted(set(labels.tolist()))
    require(
        positive in known,
        f"no label of operator {operator!r} is {positive!r}",
        remedy=f"name one of {', '.join(known[:8])}" + (" and others" if len(known) > 8 else ""),
    )
    return positive


def _measure(name: str, request: PipelineRequest) -> CertifiedMeasure:
    if name == "recall":
        return "recall"
    if name == "precision":
        return "precision"
    return "accuracy" if all(map(_judged_by_labels, request.profiles.values())) else "agreement"


def _judged_by_labels(profile: Profile) -> bool:
    """A function, which is the only model of its operator and has its name, needs no labels."""
    return profile.predictions.labelled or profile.models == (profile.operator,)


def _refusal(objective: Objective, verdicts: Sequence[Verdict], lacking: Mapping[str, int | None]) -> str:
    of_class = "" if objective.positive is UNSET else repr(objective.positive)
    said = []
    for verdict in verdicts:
        if verdict.holds:
            continue
        trials = TRIALS.get(verdict.name, "labelled requests").format(of_class)
        more = lacking[verdict.name]
        shown = f"{verdict.trials} {trials} in part B show at least {verdict.bound:.4g} for the safest choice"
        if more is None:
            needed = f"no number of labels would do, as the share of right ones among them is {verdict.mean:.4g}"
        else:
            needed = f"{more} more {trials} in part B are lacking, if as large a share of them is right"
        said.append(
            f"{verdict.name} {verdict.level:g} cannot be certified with confidence {objective.confidence:g}: "
            f"{shown}; {needed}"
        )
    return "; ".join(said)
