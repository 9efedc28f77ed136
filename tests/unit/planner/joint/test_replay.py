import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.planner.joint.composed import answers, composed_query
from gearshift.planner.joint.replay import replay
from gearshift.profiles.profile import PART_B
from tests.often import often
from tests.unit.planner.joint.graphs import (
    GRAPHS,
    WORK_S,
    YES,
    chain,
    drawn_cascades,
    drawn_predictions,
    drawn_records,
    walked,
)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
@settings(max_examples=often(60))
@given(seed=st.integers(0, 2**31))
def test_a_replay_is_the_walk_of_each_tuple(graph, seed: int) -> None:
    generator = np.random.default_rng(seed)
    nodes, edges, output = graph
    predictions = {name: drawn_predictions(generator) for name in nodes}
    joint = drawn_records(graph, 6, generator)
    choices = {name: drawn_cascades(generator, 3) for name in nodes}

    query = composed_query(nodes, edges, output, joint, predictions, positive=YES)
    replayed = replay(query, {name: answers(query, name, choices[name], WORK_S) for name in nodes})

    for k in range(3):
        cascades = {name: choices[name][k] for name in nodes}
        for of_tuple in range(6):
            quality, work, positive = walked(graph, joint, of_tuple, predictions, cascades, YES)
            assert np.broadcast_to(replayed.quality, (3, 6))[k, of_tuple] == quality
            assert np.broadcast_to(replayed.work_s, (3, 6))[k, of_tuple] == work
            assert np.broadcast_to(replayed.positive, (3, 6))[k, of_tuple] == positive


def test_a_part_has_its_own_tuples() -> None:
    generator = np.random.default_rng(1)
    graph = GRAPHS["a fan-out"]
    nodes, edges, output = graph
    predictions = {name: drawn_predictions(generator) for name in nodes}
    joint = drawn_records(graph, 7, generator)
    cascades = {name: drawn_cascades(generator, 1) for name in nodes}

    query = composed_query(nodes, edges, output, joint, predictions, part=PART_B)
    replayed = replay(query, {name: answers(query, name, cascades[name], WORK_S) for name in nodes})

    assert query.numbers.tolist() == [1, 3, 5]
    expected = [walked(graph, joint, t, predictions, {n: c[0] for n, c in cascades.items()}) for t in (1, 3, 5)]
    assert replayed.quality[0].tolist() == [quality for quality, _, _ in expected]
    assert replayed.work_s[0].tolist() == [work for _, work, _ in expected]


def test_records_of_another_pipeline_are_refused() -> None:
    generator = np.random.default_rng(1)
    joint = drawn_records(chain(None), 4, generator)
    nodes, edges, output = chain(None, None)
    with pytest.raises(InvalidInput, match=r"joint records are of nodes \['n0', 'n1'\]"):
        composed_query(nodes, edges, output, joint, {name: drawn_predictions(generator) for name in nodes})


def test_samples_beyond_the_predictions_are_refused() -> None:
    generator = np.random.default_rng(1)
    nodes, edges, output = chain(None)
    joint = drawn_records((nodes, edges, output), 20, generator)
    with pytest.raises(InvalidInput, match="beyond the 8 of operator"):
        composed_query(nodes, edges, output, joint, {name: drawn_predictions(generator, 8) for name in nodes})
