"""Answers of a server to a chunk's rows."""

import msgspec
import numpy as np
import pytest

from gearshift.bulk.answers import ANSWERED, DEGRADED, Answers
from gearshift.bulk.server import CERTAINTY, _keep
from gearshift.client.v2_client import ClientAnswer
from gearshift.request import MissingNode


def kept(outputs: dict[str, np.ndarray], outcome: str, *missing: MissingNode) -> Answers:
    parameters = {"outcome": outcome}
    if missing:
        parameters["gearshift_missing"] = msgspec.json.encode(missing).decode()
    answers = Answers.none_yet(5)
    _keep(ClientAnswer(outputs=outputs, parameters=parameters), np.array([2, 3, 4]), "label", answers)
    return answers


@pytest.mark.parametrize(
    ("outcome", "missing", "labelled"),
    [
        ("answered", (), [2, 3, 4]),
        ("degraded", (MissingNode(node="check", row=1, reason="it failed"),), [2, 3, 4]),
        ("degraded", (MissingNode(node="join", row=1, reason="no branch led to it", is_output=True),), [2, 4]),
        ("degraded", (MissingNode(node="join", row=1, reason="it failed", is_output=True),), [2, 4]),
    ],
)
def test_rows_without_an_answer_of_the_output_node_have_no_label(outcome, missing, labelled):
    outputs = {"label": np.array(["a", "", "c"], dtype=object), CERTAINTY: np.array([1.0, 0.0, 0.5])}
    answers = kept(outputs, outcome, *missing)
    assert np.flatnonzero(answers.has_label).tolist() == labelled
    assert answers.outcome[2:].tolist() == [ANSWERED if outcome == "answered" else DEGRADED] * 3


def test_an_answer_without_outputs_gives_no_label():
    missing = [MissingNode(node="join", row=row, reason="no branch led to it", is_output=True) for row in range(3)]
    answers = kept({CERTAINTY: np.zeros(3)}, "degraded", *missing)
    assert not answers.has_label.any()
    assert answers.outcome[2:].tolist() == [DEGRADED] * 3
