import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.planner.joint import front as front_module
from gearshift.planner.joint.composed import Answers, ComposedQuery, answers, composed_query
from gearshift.planner.joint.front import joint_front, judged
from gearshift.planner.joint.replay import ACCURACY, Agreement, Measure, Precision, Recall
from gearshift.planner.space.pareto import front_indices
from gearshift.profiles.profile import PART_A
from tests.often import often
from tests.unit.planner.joint.graphs import (
    GRAPHS,
    WORK_S,
    YES,
    Graph,
    chain,
    drawn_cascades,
    drawn_predictions,
    drawn_records,
)


def drawn(graph: Graph, seed: int, *, tuples: int = 30, each: int = 3) -> tuple[ComposedQuery, dict[str, Answers]]:
    generator = np.random.default_rng(seed)
    nodes, edges, output = graph
    predictions = {name: drawn_predictions(generator) for name in nodes}
    joint = drawn_records(graph, tuples, generator)
    query = composed_query(nodes, edges, output, joint, predictions, part=PART_A, positive=YES)
    choices = {name: answers(query, name, drawn_cascades(generator, each), WORK_S) for name in nodes}
    return query, choices


def every_choice(choices: dict[str, Answers], query: ComposedQuery) -> np.ndarray:
    axes = [np.arange(len(choices[node])) for node in query.places]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def measures(query: ComposedQuery, seed: int) -> list[Measure]:
    truth = np.random.default_rng(seed).random(query.tuples) < 0.5
    return [
        ACCURACY,
        Recall(truth),
        Precision(truth),
        Agreement(truth),
    ]


@settings(max_examples=often(20))
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
@given(seed=st.integers(0, 2**31))
def test_pairs_of_the_last_node_are_judged_as_by_replay(graph: Graph, seed: int) -> None:
    """With one tuple before it, the front is exact: no other choice beats any on it."""
    query, choices = drawn(graph, seed)
    last = query.output
    for node in query.places:
        only = {name: each if name in (node, last) else each.of([0]) for name, each in choices.items()}
        only = {name: each if name == node else each.of([0]) for name, each in only.items()}
        for measure in measures(query, seed):
            front = joint_front(query, only, measure)
            work_s, score = judged(query, only, every_choice(only, query), measure)
            exact = front_indices(work_s, score)
            assert front.work_s.tolist() == work_s[exact].tolist()
            assert front.score.tolist() == score[exact].tolist()


@given(st.integers(0, 2**31))
def test_the_front_of_two_operators_is_that_of_exhaustive_search(seed: int) -> None:
    query, choices = drawn(chain(YES), seed, tuples=200, each=12)
    front = joint_front(query, choices)
    work_s, score = judged(query, choices, every_choice(choices, query), ACCURACY)
    exact = front_indices(work_s, score)

    assert front.work_s.tolist() == work_s[exact].tolist()
    assert front.score.tolist() == score[exact].tolist()


def test_with_more_operators_it_lacks_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuples of the first nodes are dropped at once, and yet the front is nearly that of all."""
    monkeypatch.setattr(front_module, "FEW", 0)
    query, choices = drawn(chain(None, YES, None), 7, tuples=2000, each=8)
    front = joint_front(query, choices)
    work_s, score = judged(query, choices, every_choice(choices, query), ACCURACY)
    exact = front_indices(work_s, score)
    as_cheap = np.searchsorted(front.work_s, work_s[exact], side="right") - 1

    assert (as_cheap >= 0).all()
    assert (score[exact] - front.score[as_cheap]).max() <= 0.01


def test_a_front_rises_in_work_and_score_and_says_what_was_chosen() -> None:
    query, choices = drawn(chain(YES, None), 5, tuples=300, each=10)
    front = joint_front(query, choices)

    assert (np.diff(front.work_s) > 0).all()
    assert (np.diff(front.score) > 0).all()
    work_s, score = judged(query, choices, front.chosen, ACCURACY)
    assert front.work_s.tolist() == work_s.tolist()
    assert front.score.tolist() == score.tolist()


def test_errors_that_come_together_are_counted_together() -> None:
    """Two operators that fail on the same tuples are worth more than their product."""
    query, choices = drawn(chain(None), 3, tuples=400, each=6)
    same = dict.fromkeys(choices, choices["n0"])
    _, score = judged(query, same, np.array([[i, i] for i in range(6)]), ACCURACY)
    alone = choices["n0"].quality.mean(axis=1)

    assert (score > alone**2 + 0.01).any()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    query, choices = drawn(GRAPHS["a fan-out"], 4)
    whole = judged(query, choices, every_choice(choices, query)[:50], ACCURACY)
    monkeypatch.setattr(front_module, "MOST_CELLS", 100)
    in_chunks = judged(query, choices, every_choice(choices, query)[:50], ACCURACY)

    assert whole[0].tolist() == in_chunks[0].tolist()
    assert whole[1].tolist() == in_chunks[1].tolist()
