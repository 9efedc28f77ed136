"""A chunk through a cascade, stage by stage, on models that tests make."""

import asyncio

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.bulk.answers import ANSWERED, DEGRADED, FAILED, OUTCOMES, REFUSED, Answers
from gearshift.bulk.stages import Ran, through_cascade
from gearshift.cascade import Cascade
from gearshift.model import Arrays
from gearshift.policies.next_step import ANSWER, next_step
from tests.often import often

FAILS, SILENT = -1.0, -2.0


class Recorded:
    """Model m is as certain of row r as `certainty[m, r]` says; it answers its own number."""

    def __init__(self, certainty: NDArray[np.float64]) -> None:
        self._certainty = certainty
        self.ran: list[tuple[str, list[int]]] = []

    async def run(self, model: str, inputs: Arrays, rows: int) -> Ran:
        records = inputs["record"]
        self.ran.append((model, records.tolist()))
        certainty = self._certainty[int(model), records]
        known = np.flatnonzero(certainty >= 0)
        return Ran(
            known,
            np.full(len(known), int(model)),
            certainty[known],
            failed=np.flatnonzero(certainty == FAILS),
            unanswered=np.flatnonzero(certainty == SILENT),
        )


def answered(certainty: NDArray[np.float64], thresholds: list[float], late_after: int = 99) -> tuple[Answers, Recorded]:
    models, rows = Recorded(certainty), certainty.shape[1]
    cascade = Cascade(models=tuple(map(str, range(len(certainty)))), thresholds=tuple(thresholds))
    work = through_cascade(cascade, {"record": np.arange(rows)}, rows, models, lambda: len(models.ran) >= late_after)
    return asyncio.run(work), models


def test_only_uncertain_rows_go_on():
    answers, models = answered(np.array([[0.9, 0.1, 0.5], [0.3, 0.3, 0.3]]), [0.5])
    assert models.ran == [("0", [0, 1, 2]), ("1", [1])]
    assert answers.label is not None
    assert answers.label.tolist() == [0, 1, 0]
    assert answers.certainty.tolist() == [0.9, 0.3, 0.5]


def test_later_models_are_not_asked_where_all_rows_have_an_answer():
    _, models = answered(np.ones((3, 4)), [0.5, 0.5])
    assert [model for model, _ in models.ran] == ["0"]


def test_a_failing_row_fails_and_a_silent_later_model_leaves_the_earlier_answer():
    answers, _ = answered(np.array([[FAILS, SILENT, 0.1, 0.1, 0.9], [1, 1, FAILS, SILENT, 1]]), [0.5])
    assert answers.outcome.tolist() == [FAILED, REFUSED, FAILED, DEGRADED, ANSWERED]
    assert np.isnan(answers.certainty).tolist() == [True, True, True, False, False]


def test_what_cannot_begin_in_time_keeps_the_answer_that_it_has():
    late, _ = answered(np.array([[0.1, 0.9], [0.9, 0.9]]), [0.5], late_after=1)
    assert [OUTCOMES[code] for code in late.outcome] == ["degraded", "answered"]
    never, models = answered(np.array([[0.1, 0.9], [0.9, 0.9]]), [0.5], late_after=0)
    assert [OUTCOMES[code] for code in never.outcome] == ["refused", "refused"]
    assert models.ran == []


def test_no_rows_ask_no_model():
    answers, models = answered(np.ones((2, 0)), [0.5])
    assert len(answers.outcome) == 0
    assert models.ran == []


@settings(max_examples=often(100))
@given(st.integers(1, 4), st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_each_row_is_answered_by_the_stage_that_the_policy_names(stages, rows, seed):
    generator = np.random.default_rng(seed)
    certainty, thresholds = generator.random((stages, rows)), generator.random(stages - 1).tolist()
    answers, _ = answered(certainty, thresholds)
    for row in range(rows):
        stage, visited = 0, 1
        while next_step(stage, certainty[stage, row], visited, stages, range(stages), thresholds, 0) != ANSWER:
            stage, visited = stage + 1, visited | 1 << (stage + 1)
        assert answers.label is not None
        assert (answers.label[row], answers.certainty[row]) == (stage, certainty[stage, row])
