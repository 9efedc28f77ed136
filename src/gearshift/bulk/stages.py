"""One chunk through one cascade, stage by stage, by the decision function of router and simulator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gearshift.bulk.answers import DEGRADED, FAILED, REFUSED, Answers
from gearshift.cascade import Cascade
from gearshift.model import Arrays
from gearshift.policies.next_step import ANSWER, next_step


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """A model's answers to n rows: those of `rows` (k,), and the rows that it failed on.

    `unanswered` rows have no answer for a reason that may pass, such as an endpoint that did not
    respond.
    """

    rows: NDArray[np.int64]
    label: NDArray[Any]
    certainty: NDArray[np.float64]
    failed: NDArray[np.int64]
    unanswered: NDArray[np.int64]


class Models(Protocol):
    async def run(self, model: str, inputs: Arrays, rows: int) -> Ran: ...


async def through_cascade(
    cascade: Cascade, inputs: Arrays, rows: int, models: Models, is_late: Callable[[], bool]
) -> Answers:
    """The answers to n rows of `inputs`.

    A row that a model fails on is `FAILED`. Where a later model has no answer, or the run
    `is_late`, a row keeps the answer of an earlier one and is `DEGRADED`; without one it is
    `REFUSED`.
    """
    answers = Answers.none_yet(rows, REFUSED)
    left = np.arange(rows)
    for stage, model in enumerate(cascade.models):
        if len(left) == 0:
            break
        if is_late():
            _end_without(answers, left)
            break
        ran = await models.run(model, {name: array[left] for name, array in inputs.items()}, len(left))
        answers.end(left[ran.failed], FAILED)
        _end_without(answers, left[ran.unanswered])
        answers.keep(left[ran.rows], ran.label, ran.certainty)
        left = left[ran.rows[_goes_on(cascade, stage, ran.certainty)]]
    return answers


def _goes_on(cascade: Cascade, stage: int, certainty: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each row (n,) goes on to the next stage, as `next_step` decides for one row."""
    count = len(cascade.models)
    models, visited = range(count), (1 << (stage + 1)) - 1
    steps = [next_step(stage, one, visited, count, models, cascade.thresholds, 0) for one in certainty.tolist()]
    on: NDArray[np.bool_] = np.array(steps, dtype=np.int64) != ANSWER
    return on


def _end_without(answers: Answers, rows: NDArray[np.int64]) -> None:
    kept = answers.has_label[rows]
    answers.end(rows[kept], DEGRADED)
    answers.end(rows[~kept], REFUSED)
