"""Answers of rows of which the output node has no answer."""

from typing import Any

import numpy as np
import pytest

from gearshift.errors import TooLarge
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Answer, CutRows, MissingNode, Request, RowFacts, Sample
from gearshift.runtime.service.answers import OpenRequest, raise_if_refused
from gearshift.runtime.service.graph_answers import graph_answer
from gearshift.runtime.service.room import Client, HeldBytes, OpenRows, Room
from tests.graph_task import graph_plan

TABLES = plan_tables(graph_plan())
(PAIRS,) = TABLES.pipelines
CHECK, JOIN = 2, 3


def row(number: int, text: str | None = None, **fields: Any) -> Sample:
    request = Request(id=1, operator="pairs", arrived_ns=0, rows=2)
    made = Sample(request, number, number, **fields)
    if text is not None:
        made.result, made.certainty = {"text": np.array([text], dtype=object), "count": np.array([number])}, 0.5
        made.model = TABLES.models.index("join")
    return made


def answer_of(*rows: Sample) -> Answer:
    opened = OpenRequest(
        rows[0].request,
        [*rows],
        0,
        lambda answer: None,
        Client(),
        len(rows),
        0,
        Room(OpenRows(), 1, HeldBytes(1), lambda: None),
        [],
    )
    return graph_answer(opened, TABLES.models, 0, PAIRS)


def test_a_row_without_an_answer_is_empty_beside_the_others_and_named() -> None:
    answer = answer_of(row(0), row(1, "a"))
    outputs: Any = answer.outputs
    assert {name: array.tolist() for name, array in outputs.items()} == {"text": ["", "a"], "count": [0, 1]}
    assert answer.rows == (
        RowFacts(model="", stage=0, certainty=0.0),
        RowFacts(model="join", stage=0, certainty=0.5),
    )
    assert (answer.outcome, answer.reason) == ("degraded", "no_answer")
    assert answer.missing == (MissingNode(node="join", row=0, reason="no branch led to it", is_output=True),)


def test_a_request_of_which_no_row_has_an_answer_has_no_outputs() -> None:
    answer = answer_of(row(0, missing=((JOIN, "model 'join' failed on this sample"),)), row(1))
    assert (answer.outcome, answer.outputs, len(answer.rows)) == ("degraded", {}, 2)
    assert [(one.row, one.reason) for one in answer.missing] == [
        (0, "model 'join' failed on this sample"),
        (1, "no branch led to it"),
    ]


def test_optional_nodes_that_failed_and_rows_that_were_cut_are_named() -> None:
    answer = answer_of(row(0, "a", missing=((CHECK, "it is gone"),), degraded_by="it is gone", cut=((1, 7),)))
    assert (answer.outcome, answer.reason) == ("degraded", "it is gone")
    assert answer.missing == (MissingNode(node="check", row=0, reason="it is gone"),)
    assert answer.cut == (CutRows(node="read", row=0, rows=7),)


def test_an_error_of_one_row_fails_the_request_whatever_others_lack() -> None:
    answer = answer_of(row(0), row(1, error="model 'read' failed on this sample"))
    assert (answer.outcome, answer.errors) == ("failed", ("model 'read' failed on this sample",))


def test_too_many_rows_are_a_refusal_of_a_request_that_is_too_large() -> None:
    answer = answer_of(row(0, error="too_many_rows: 'x' has 9 rows, and node 'read' takes 3"))
    assert (answer.outcome, answer.reason) == ("refused", "too_many_rows")
    with pytest.raises(TooLarge, match=r"^'x' has 9 rows, and node 'read' takes 3"):
        raise_if_refused(answer)
