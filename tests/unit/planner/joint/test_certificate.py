import math

import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.planner.joint.certified import Promise, Verdict, certify, lacking_trials, least_trials, verdict
from gearshift.planner.joint.composed import Answers, ComposedQuery, answers, composed_query
from gearshift.planner.joint.front import joint_front
from gearshift.planner.joint.replay import ACCURACY, Precision, Recall, Together, truth_of
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import lower_confidence_bound, share_bound
from tests.unit.planner.joint.graphs import YES, chain, drawn_predictions, drawn_records

WORK_S = {"cheap": 1.0, "middle": 4.0, "dear": 16.0}
SINGLE = [Cascade(models=(model,)) for model in WORK_S]


def two_parts(wrong: dict[str, float], tuples: int = 2000) -> tuple[ComposedQuery, ComposedQuery]:
    """One node whose models are wrong on these shares of samples, on parts A and B."""
    generator = np.random.default_rng(1)
    nodes, edges, output = chain()
    records = drawn_predictions(generator, samples=40)
    for row, model in enumerate(records.models):
        records.quality[row] = np.arange(40) >= 40 * wrong[model]
    joint = drawn_records((nodes, edges, output), tuples, generator)
    made = [composed_query(nodes, edges, output, joint, {output: records}, part=part) for part in (PART_A, PART_B)]
    return made[0], made[1]


def candidates_of(query: ComposedQuery) -> dict[str, Answers]:
    return {node: answers(query, node, SINGLE, WORK_S) for node in query.places}


def test_twenty_nine_right_ones_certify_nine_in_ten() -> None:
    assert least_trials(0.9, 0.95) == 29
    assert verdict("recall", np.ones(29, dtype=np.float32), 0.9, 0.95).holds
    assert not verdict("recall", np.ones(28, dtype=np.float32), 0.9, 0.95).holds


def test_scores_between_0_and_1_take_a_bound_for_all_scores() -> None:
    right_or_wrong = np.array([1, 1, 1, 0], dtype=np.float32)
    assert verdict("accuracy", right_or_wrong, 0.1, 0.9).bound == share_bound(1, 4, 0.9)
    scores = np.array([1, 1, 0.5, 0.5], dtype=np.float32)
    assert verdict("accuracy", scores, 0.1, 0.9).bound == lower_confidence_bound(0.75, 4, 0.9)


def test_no_trials_certify_nothing() -> None:
    nothing = verdict("recall", np.zeros(0, dtype=np.float32), 0.5, 0.9)
    assert nothing.bound == 0
    assert lacking_trials(nothing, 0.9) == 4  # 0.5 ** 4 < 0.1


def test_the_cheapest_tuple_that_passes_is_certified() -> None:
    on_a, on_b = two_parts({"cheap": 0.2, "middle": 0.05, "dear": 0.0})
    front = joint_front(on_a, candidates_of(on_a))
    promise = Promise("accuracy", ACCURACY, 0.9)
    certificate = certify(on_b, candidates_of(on_b), front, [promise], 0.95)

    assert front.chosen[:, 0].tolist() == [0, 1, 2]
    assert certificate.place == 1
    assert certificate.tried == 3
    (test,) = certificate.verdicts
    assert test.mean == pytest.approx(0.95, abs=0.02)
    assert 0.9 <= test.bound < test.mean
    assert certificate.lacking == {}


def test_testing_stops_at_the_first_failure() -> None:
    """A cheap tuple that would pass on part B is not tested once a safer one has failed."""
    on_a, on_b = two_parts({"cheap": 0.2, "middle": 0.1, "dear": 0.0})
    front = joint_front(on_a, candidates_of(on_a))
    lucky = on_b.predictions["n0"].quality.copy()
    on_b.predictions["n0"].quality[:] = [[1.0] * 40, [0.0] * 40, [1.0] * 40]
    certificate = certify(on_b, candidates_of(on_b), front, [Promise("accuracy", ACCURACY, 0.9)], 0.95)
    on_b.predictions["n0"].quality[:] = lucky

    assert certificate.place == 2
    assert certificate.tried == 2


def test_a_promise_that_the_safest_breaks_says_what_is_lacking() -> None:
    on_a, on_b = two_parts({"cheap": 0.2, "middle": 0.05, "dear": 0.0}, tuples=40)
    front = joint_front(on_a, candidates_of(on_a))
    certificate = certify(on_b, candidates_of(on_b), front, [Promise("accuracy", ACCURACY, 0.9)], 0.95)

    assert certificate.place is None
    assert certificate.lacking == {"accuracy": 9}  # 20 of 29


def test_more_labels_do_not_help_what_is_worse_than_promised() -> None:
    failed = Verdict(name="accuracy", level=0.9, trials=100, mean=0.89, bound=0.83)
    assert lacking_trials(failed, 0.95) is None


def test_labels_for_a_share_with_misses_are_enough_and_not_one_too_many() -> None:
    failed = Verdict(name="accuracy", level=0.9, trials=100, mean=0.95, bound=0.89)
    more = lacking_trials(failed, 0.95)
    assert more is not None
    n = 100 + more
    assert share_bound(math.ceil(0.05 * n), n, 0.95) >= 0.9
    assert share_bound(math.ceil(0.05 * (n - 1)), n - 1, 0.95) < 0.9


def test_recall_and_precision_hold_together() -> None:
    generator = np.random.default_rng(3)
    nodes, edges, output = chain(YES)
    predictions = {name: drawn_predictions(generator) for name in nodes}
    for records in predictions.values():
        assert records.prediction is not None
        assert records.label is not None
        records.prediction[2] = records.label
    joint = drawn_records((nodes, edges, output), 3000, generator)
    on_a, on_b = (
        composed_query(nodes, edges, output, joint, predictions, part=part, positive=YES) for part in (PART_A, PART_B)
    )
    both = Together([Recall(truth_of(on_a)), Precision(truth_of(on_a))], [0.9, 0.8])
    front = joint_front(on_a, candidates_of(on_a), both)
    truth = truth_of(on_b)
    promises = [Promise("recall", Recall(truth), 0.9), Promise("precision", Precision(truth), 0.8)]
    certificate = certify(on_b, candidates_of(on_b), front, promises, 0.95)

    assert front.score[-1] == pytest.approx(0.1)  # the dear models alone are always right
    assert certificate.place is not None
    assert front.chosen[certificate.place].tolist() == [2, 2]
    assert [test.trials for test in certificate.verdicts] == [truth.sum()] * 2


def test_a_promise_is_broken_no_more_often_than_its_confidence_allows() -> None:
    """The middle model keeps 0.9 by a hair too little: it may pass in one draw of ten at most."""
    passed = 0
    draws = 300
    generator = np.random.default_rng(8)
    for _ in range(draws):
        trials = (generator.random(200) < 0.8999).astype(np.float32)
        passed += verdict("accuracy", trials, 0.9, 0.9).holds
    assert 0 < passed <= 0.1 * draws + 3 * (0.1 * 0.9 * draws) ** 0.5
