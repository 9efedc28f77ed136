from dataclasses import replace

import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.pipeline import Edge, Node, When
from gearshift.planner.joint.composed import ComposedQuery, answers, composed_query
from gearshift.planner.joint.front import judged
from gearshift.planner.joint.replay import ACCURACY, Agreement, Measure, Precision, Recall, results_of, truth_of
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.tuples import JointRecords
from tests.unit.planner.joint.graphs import SURE, YES

NODES = {"a": Node(operator="a"), "b": Node(operator="b")}
LABELS = {"a": "yynn", "b": "ynyn"}
CHEAP = {"a": "ynyn", "b": "yyyy"}


def filter_of_two(when: When = YES) -> ComposedQuery:
    """Request rows 0 to 3, of which the first is positive in truth; "dear" is right, "cheap" is not."""
    words = {"y": "yes", "n": "no"}
    predictions = {}
    for name, labels in LABELS.items():
        label = np.array([words[c] for c in labels])
        prediction = np.array([[words[c] for c in CHEAP[name]], label.tolist()])
        predictions[name] = PredictionRecords(
            models=("cheap", "dear"),
            quality=(prediction == label).astype(float),
            certainty=np.ones((2, 4)),
            part=np.array([0, 1, 0, 1], dtype=np.int8),
            label=label,
            prediction=prediction,
        )
    joint = JointRecords(
        nodes=("a", "b"),
        names=("0", "1", "2", "3"),
        begin=np.array([0, 2, 4, 6, 8]),
        node=np.array([0, 1] * 4, dtype=np.int32),
        row=np.repeat(np.arange(4), 2).astype(np.int32),
        parent=np.full(8, -1, dtype=np.int32),
        part=np.array([0, 1, 0, 1], dtype=np.int8),
    )
    return composed_query(NODES, [Edge(from_="a", to="b", when=when)], "b", joint, predictions, positive=YES)


def score_of(query: ComposedQuery, measure: Measure, model: str) -> tuple[float, float]:
    only = [Cascade(models=(model,))]
    candidates = {name: answers(query, name, only, {"cheap": 1.0, "dear": 10.0}) for name in NODES}
    work_s, score = judged(query, candidates, np.array([[0, 0]]), measure)
    return float(work_s[0]), float(score[0])


def test_the_truth_of_a_filter_is_that_of_its_labels() -> None:
    assert truth_of(filter_of_two()).tolist() == [True, False, False, False]


def test_measures_of_a_filter_worked_by_hand() -> None:
    """The cheap models pass request rows 0 and 2, and call both positive."""
    query = filter_of_two()
    truth = truth_of(query)

    assert score_of(query, ACCURACY, "cheap") == (1.5, 0.5)  # rows 0 and 3: all that was visited is right
    assert score_of(query, Recall(truth), "cheap") == (1.5, 1.0)
    assert score_of(query, Precision(truth), "cheap") == (1.5, 0.5)
    assert score_of(query, Agreement(truth), "cheap") == (1.5, 0.75)
    for measure in (ACCURACY, Recall(truth), Precision(truth), Agreement(truth)):
        assert score_of(query, measure, "dear") == (15.0, 1.0)


def test_without_a_positive_result_precision_is_one() -> None:
    query = filter_of_two()
    none = np.zeros(4, dtype=np.bool_)
    assert Precision(none).score([np.zeros(2), np.array([0.0, 0.5])]).tolist() == [1.0, 0.0]
    assert score_of(query, Recall(none), "cheap")[1] == 1.0


def test_results_need_a_condition_for_a_positive_one() -> None:
    query = replace(filter_of_two(), positive=None)
    with pytest.raises(InvalidInput, match="no condition for a positive result"):
        truth_of(query)


def test_the_truth_does_not_know_how_certain_models_are() -> None:
    with pytest.raises(InvalidInput, match="node 'a' has an edge on certainty"):
        truth_of(filter_of_two(SURE))


def test_the_truth_needs_labels() -> None:
    query = filter_of_two()
    unlabelled = {name: replace(records, label=None) for name, records in query.predictions.items()}
    with pytest.raises(InvalidInput, match="operator 'a' has no labels"):
        truth_of(replace(query, predictions=unlabelled))


def test_the_results_of_one_choice_are_by_request_row() -> None:
    query = filter_of_two()
    chosen = {name: answers(query, name, [Cascade(models=("cheap",))], {"cheap": 1.0}) for name in NODES}
    assert results_of(query, chosen).tolist() == [True, False, True, False]
