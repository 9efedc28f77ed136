"""The cascade that a whole relation goes through: a gear's, or the cheapest that is good enough."""

from dataclasses import dataclass

import numpy as np
from msgspec import UNSET

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.planner.space.cascade_search import evaluate_cascade, search_cascades, work_per_request_s
from gearshift.profiles.profile import PART_B, Profile
from gearshift.result import lower_confidence_bound, share_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A tuple for a relation, one cascade for each node, with its figures on the recorded samples.

    `accuracy` is that of part B, `at_least` the lower bound of a certificate with a confidence.
    Accuracy and work of a gear's tuple are None where a graph has no joint records.
    """

    cascades: dict[str, Cascade]
    accuracy: float | None
    work_s: float | None
    at_least: float | None = None


def choose(
    plan: GearPlan,
    pipeline: str,
    profile: Profile,
    *,
    accuracy: float | None = None,
    confidence: float | None = None,
    gear: int | None = None,
    cascade: Cascade | None = None,
) -> Choice:
    """The `cascade`, that of `gear`, or the cheapest one of `accuracy`, with `confidence` if that is given.

    By default the accuracy and the confidence of the plan's objective count; where it has none,
    the gear of the lowest load. Cascades are chosen on part A of the samples. With a confidence,
    they are tested on part B, from the most accurate to the cheapest, up to the first that fails
    (Clopper and Pearson, 1934; Chernoff, 1952, where qualities are not 0 or 1).
    """
    planned = plan.pipelines[pipeline]
    node, work_s = planned.output, work_per_request_s(profile, plan.hardware.devices[0])
    if cascade is not None:
        alone = accuracy is None and confidence is None and gear is None
        require(alone, "a cascade is given, and how to choose one", remedy="give one of them")
        return _as_chosen(node, cascade, profile, work_s)
    accuracy, confidence = asked_for(planned, accuracy, confidence, gear)
    if accuracy is None:
        return _as_chosen(node, _of_gear(planned, gear or 0), profile, work_s)
    front = _front(profile, work_s, accuracy)
    if confidence is None:
        return _as_chosen(node, front[0], profile, work_s)
    return _certified(node, front, profile, work_s, accuracy, confidence)


def asked_for(
    planned: PipelinePlan, accuracy: float | None, confidence: float | None, gear: int | None
) -> tuple[float | None, float | None]:
    """The accuracy and the confidence: those that are given, else those of the plan's objective.

    Both are None where a gear counts; its cascades keep the recall and precision that a plan promises.
    """
    require(
        accuracy is None or gear is None,
        f"accuracy {accuracy} and gear {gear} are both given, and a gear has an accuracy of its own",
        remedy="give one of them",
    )
    require(
        confidence is None or gear is None,
        "a confidence is given for a gear, whose accuracy is what it is",
        remedy="give an accuracy in place of the gear",
    )
    for name, value in (("accuracy", accuracy), ("confidence", confidence)):
        require(value is None or 0 < value < 1, f"{name} is {value}", remedy="give a share between 0 and 1")
    if gear is None and accuracy is None:
        asked = planned.objective if planned.asked is None else planned.asked.objective
        if confidence is None and (asked.recall is not UNSET or asked.precision is not UNSET):
            return None, None  # a gear's cascades, which keep both
        accuracy, confidence = asked.accuracy, confidence or asked.confidence
    require(
        accuracy is not None or confidence is None,
        "a confidence is given without an accuracy",
        remedy="give accuracy, too",
    )
    return accuracy, confidence


def _of_gear(planned: PipelinePlan, gear: int) -> Cascade:
    count = len(planned.gears)
    require(0 <= gear < count, f"gear is {gear}, the plan has gears 0 to {count - 1}", remedy="give one of these")
    return planned.gears[gear].cascade


def _front(profile: Profile, work_s: dict[str, float], accuracy: float) -> list[Cascade]:
    """The Pareto cascades that reach `accuracy` on part A, by rising work."""
    space = search_cascades(profile.predictions, work_s)
    front = space.front()
    enough = front[space.accuracy[front] >= accuracy]
    best = float(space.accuracy[front].max())
    require(
        len(enough) > 0,
        f"no cascade of the plan's models has accuracy {accuracy:.4g}: the best has {best:.4g}",
        remedy="ask for less, or profile better models",
    )
    return [space.cascade(int(number)) for number in enough]


def _as_chosen(
    node: str, cascade: Cascade, profile: Profile, work_s: dict[str, float], at_least: float | None = None
) -> Choice:
    found = evaluate_cascade(cascade, profile.predictions, work_s, part=PART_B)
    return Choice(cascades={node: cascade}, accuracy=found.accuracy, work_s=found.work_s, at_least=at_least)


def _certified(
    node: str,
    front: list[Cascade],
    profile: Profile,
    work_s: dict[str, float],
    accuracy: float,
    confidence: float,
) -> Choice:
    chosen: Choice | None = None
    for cascade in reversed(front):
        bound = accuracy_bound(quality_of(cascade, profile), confidence)
        if bound < accuracy:
            if chosen is None:
                labels = len(profile.predictions.indices(PART_B))
                raise InvalidInput(
                    f"accuracy {accuracy:.4g} cannot be certified at confidence {confidence:.4g}: {labels} samples of "
                    f"part B show at least {bound:.4g} for the most accurate cascade",
                    remedy="ask for less, or profile with more samples",
                )
            break
        chosen = _as_chosen(node, cascade, profile, work_s, bound)
    assert chosen is not None
    return chosen


def quality_of(cascade: Cascade, profile: Profile, part: int = PART_B) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The quality of the cascade's answers to the samples of a part (n,)."""
    records = profile.predictions
    columns, rows = records.indices(part), records.rows(cascade.models)
    answers = np.full(len(columns), len(rows) - 1)
    for stage in range(len(rows) - 2, -1, -1):
        answers[records.certainty[rows[stage], columns] >= cascade.thresholds[stage]] = stage
    quality: np.ndarray[tuple[int], np.dtype[np.float64]] = records.quality[rows[answers], columns]
    return quality


def accuracy_bound(quality: np.ndarray[tuple[int], np.dtype[np.float64]], confidence: float) -> float:
    """The lower confidence bound on the mean of qualities (n,)."""
    if bool(((quality == 0) | (quality == 1)).all()):
        return share_bound(int((quality == 0).sum()), len(quality), confidence)
    return lower_confidence_bound(float(quality.mean()), len(quality), confidence)
