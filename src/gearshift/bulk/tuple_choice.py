"""The tuple that a whole relation goes through in a graph: a gear's, or the cheapest that is good enough."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gearshift.bulk.choice import Choice, asked_for
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.planner.joint.candidates import Tuples, implementations, query_of, work_of_all
from gearshift.planner.joint.certified import Promise, certify
from gearshift.planner.joint.front import Ints, JointFront
from gearshift.planner.joint.replay import ACCURACY
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.profiles.tuples import JointRecords


def choose_tuple(
    plan: GearPlan,
    pipeline: str,
    profiles: Mapping[str, Profile],
    records: JointRecords | None,
    *,
    accuracy: float | None = None,
    confidence: float | None = None,
    gear: int | None = None,
) -> Choice:
    """The tuple of `gear`, or the cheapest one of `accuracy`, with `confidence` if that is given.

    As `choose`, for a graph: tuples are those of the joint front on part A of the joint records,
    and are tested on part B. Of several cascades of a node that a gear allows, it is the last.
    Raises `InvalidInput` for an accuracy without joint records.
    """
    planned = plan.pipelines[pipeline]
    accuracy, confidence = asked_for(planned, accuracy, confidence, gear)
    if accuracy is None:
        return _of_gear(planned, gear or 0, profiles, records)
    if records is None:
        raise InvalidInput(
            f"pipeline {pipeline!r} has no joint records, so the accuracy of its answers is not known",
            remedy="profile the project with samples of whole requests, or name a gear",
        )
    cascades = {node: implementations(profiles[one.operator]) for node, one in planned.nodes.items()}
    on_part_a = _tuples(planned, profiles, records, cascades, part=PART_A)
    front = on_part_a.front()
    good = front.score >= accuracy
    require(
        bool(good.any()),
        f"no cascades of the nodes give pipeline {pipeline!r} accuracy {accuracy:.4g}: the best have "
        f"{front.score.max():.4g}",
        remedy="ask for less, or profile better models",
    )
    front = replace(front, chosen=front.chosen[good], work_s=front.work_s[good], score=front.score[good])
    if confidence is not None:
        on_part_b = _tuples(planned, profiles, records, cascades, part=PART_B)
        return _certified(on_part_b, front, accuracy, confidence)
    return _as_chosen(planned, profiles, records, _picked(on_part_a, front.chosen[0]))


def _of_gear(planned: PipelinePlan, gear: int, profiles: Mapping[str, Profile], records: JointRecords | None) -> Choice:
    count = len(planned.gears)
    require(0 <= gear < count, f"gear is {gear}, the plan has gears 0 to {count - 1}", remedy="give one of these")
    cascades = {node: allowed[-1] for node, allowed in planned.gears[gear].cascades.items()}
    if records is None:
        return Choice(cascades=cascades, accuracy=None, work_s=None)
    return _as_chosen(planned, profiles, records, cascades)


def _certified(on_part_b: Tuples, front: JointFront, accuracy: float, confidence: float) -> Choice:
    promise = Promise("accuracy", ACCURACY, accuracy)
    tested = certify(on_part_b.query, on_part_b.answers, front, [promise], confidence)
    (verdict,) = tested.verdicts
    if tested.place is None:
        raise InvalidInput(
            f"accuracy {accuracy:.4g} cannot be certified at confidence {confidence:.4g}: {verdict.trials} "
            f"requests of part B show at least {verdict.bound:.4g} for the most accurate tuple",
            remedy="ask for less, or profile with more requests",
        )
    chosen = front.chosen[tested.place]
    work_s, score = on_part_b.judged(chosen[None])
    picked = _picked(on_part_b, chosen)
    return Choice(cascades=picked, accuracy=float(score[0]), work_s=float(work_s[0]), at_least=verdict.bound)


def _as_chosen(
    planned: PipelinePlan, profiles: Mapping[str, Profile], records: JointRecords, cascades: dict[str, Cascade]
) -> Choice:
    alone = _tuples(planned, profiles, records, {node: [one] for node, one in cascades.items()}, part=PART_B)
    work_s, score = alone.judged(np.zeros((1, len(cascades)), dtype=np.int64))
    return Choice(cascades=cascades, accuracy=float(score[0]), work_s=float(work_s[0]))


def _picked(tuples: Tuples, chosen: Ints) -> dict[str, Cascade]:
    return {node: tuples.cascades[node][k] for node, k in zip(tuples.query.places, chosen.tolist(), strict=True)}


def _tuples(
    planned: PipelinePlan,
    profiles: Mapping[str, Profile],
    records: JointRecords,
    cascades: Mapping[str, Sequence[Cascade]],
    *,
    part: int,
) -> Tuples:
    own = {node.operator: profiles[node.operator] for node in planned.nodes.values()}
    return Tuples(query_of(planned, own, records, part=part), cascades, work_of_all(own))
