"""The tuple that a whole relation goes through in a graph: a gear's, or the cheapest that is good enough."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gearshift.bulk.choice import Choice, asked_for
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.planner.joint.answers import Answers
from gearshift.planner.joint.candidates import answers_of, implementations, work_of
from gearshift.planner.joint.certificate import Promise, certify
from gearshift.planner.joint.composed import ComposedQuery, composed_query
from gearshift.planner.joint.front import joint_front, judged
from gearshift.planner.joint.measures import ACCURACY
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
    judge = _Judge(planned, profiles, records, cascades)
    front = joint_front(judge.query(PART_A), judge.answers(PART_A))
    good = front.score >= accuracy
    require(
        bool(good.any()),
        f"no cascades of the nodes give pipeline {pipeline!r} accuracy {accuracy:.4g}: the best have "
        f"{front.score.max():.4g}",
        remedy="ask for less, or profile better models",
    )
    front = replace(front, chosen=front.chosen[good], work_s=front.work_s[good], score=front.score[good])
    place, at_least = 0, None
    if confidence is not None:
        promise = Promise("accuracy", ACCURACY, accuracy)
        tested = certify(judge.query(PART_B), judge.answers(PART_B), front, [promise], confidence)
        (verdict,) = tested.verdicts
        if tested.place is None:
            raise InvalidInput(
                f"accuracy {accuracy:.4g} cannot be certified at confidence {confidence:.4g}: {verdict.trials} "
                f"requests of part B show at least {verdict.bound:.4g} for the most accurate tuple",
                remedy="ask for less, or profile with more requests",
            )
        place, at_least = tested.place, verdict.bound
    picks = dict(zip(front.nodes, front.chosen[place].tolist(), strict=True))
    return judge.choice({node: cascades[node][pick] for node, pick in picks.items()}, at_least)


def _of_gear(planned: PipelinePlan, gear: int, profiles: Mapping[str, Profile], records: JointRecords | None) -> Choice:
    count = len(planned.gears)
    require(0 <= gear < count, f"gear is {gear}, the plan has gears 0 to {count - 1}", remedy="give one of these")
    cascades = {node: allowed[-1] for node, allowed in planned.gears[gear].cascades.items()}
    if records is None:
        return Choice(cascades=cascades, accuracy=None, work_s=None)
    return _Judge(planned, profiles, records, {node: [one] for node, one in cascades.items()}).choice(cascades)


class _Judge:
    """Replays the `cascades` of each node on a part of the joint records."""

    def __init__(
        self,
        planned: PipelinePlan,
        profiles: Mapping[str, Profile],
        records: JointRecords,
        cascades: Mapping[str, list[Cascade]],
    ) -> None:
        operators = {node.operator for node in planned.nodes.values()}
        predictions = {name: profiles[name].predictions for name in operators}
        self._queries = {
            part: composed_query(planned.nodes, planned.edges, planned.output, records, predictions, part=part)
            for part in (PART_A, PART_B)
        }
        self._cascades = cascades
        self._work_s = {model: s for name in operators for model, s in work_of(profiles[name]).items()}

    def query(self, part: int) -> ComposedQuery:
        return self._queries[part]

    def answers(self, part: int) -> dict[str, Answers]:
        return answers_of(self.query(part), self._cascades, self._work_s)

    def choice(self, cascades: dict[str, Cascade], at_least: float | None = None) -> Choice:
        query = self.query(PART_B)
        given = answers_of(query, {node: [one] for node, one in cascades.items()}, self._work_s)
        work_s, score = judged(query, given, np.zeros((1, len(cascades)), dtype=np.int64), ACCURACY)
        return Choice(cascades=cascades, accuracy=float(score[0]), work_s=float(work_s[0]), at_least=at_least)
