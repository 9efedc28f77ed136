"""Answers of a server to a chunk's rows."""

import msgspec
import numpy as np
import pytest

from gearshift.bulk.answers import ANSWERED, DEGRADED, Answers
from gearshift.bulk.server import CERTAINTY, _keep
from gearshift.client.v2_client import ClientAnswer
from gearshift.request import MissingNode
from gearshift.runtime.service.graph_answers import NO_BRANCH


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
        ("degraded", (MissingNode(node="join", row=1, reason=NO_BRANCH),), [2, 4]),
    ],
)
def test_rows_that_no_branch_led_to_the_output_have_no_label(outcome, missing, labelled):
    outputs = {"label": np.array(["a", "", "c"], dtype=object), CERTAINTY: np.array([1.0, 0.0, 0.5])}
    answers = kept(outputs, outcome, *missing)
    assert np.flatnonzero(answers.has_label).tolist() == labelled
    assert answers.outcome[2:].tolist() == [ANSWERED if outcome == "answered" else DEGRADED] * 3


def test_an_answer_without_outputs_gives_no_label():
    missing = [MissingNode(node="join", row=row, reason=NO_BRANCH) for row in range(3)]
    answers = kept({CERTAINTY: np.zeros(3)}, "degraded", *missing)
    assert not answers.has_label.any()
    assert answers.outcome[2:].tolist() == [DEGRADED] * 3
