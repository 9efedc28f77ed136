import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gearshift.pipeline import Edge, FanOut, Node
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords
from gearshift.profiles.tuples import OUTERMOST, Items, independent

NODES = {
    "split": Node(operator="split"),
    "digit": Node(operator="digit", fan_out=FanOut(per_row="split.crops", most=3)),
    "check": Node(operator="check"),
    "join": Node(operator="join", fan_in=True),
}
EDGES = [Edge(from_="split", to="digit"), Edge(from_="digit", to="check"), Edge(from_="check", to="join")]


def records(samples: int) -> PredictionRecords:
    part = np.arange(samples) % 2
    return PredictionRecords(
        models=("only",),
        quality=np.ones((1, samples)),
        certainty=np.ones((1, samples)),
        part=part.astype(np.int8),
    )


def test_items_are_ordered_by_tuple_node_and_parent_wherever_they_stand() -> None:
    of_tuple = np.array([1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1])
    node = np.array([0, 3, 2, 1, 1, 2, 3, 0, 1, 1, 2, 2, 1])
    row = np.array([7, 8, 22, 11, 12, 21, 9, 6, 13, 14, 24, 25, 15])
    around = np.array([-1, -1, 4, -1, -1, 3, -1, -1, -1, -1, 9, 12, -1])
    extra = (0, 2, 23, 8)  # the third digit's check
    columns = [np.append(column, value) for column, value in zip((of_tuple, node, row, around), extra, strict=True)]

    made = Items(*columns).joint_records(NODES, EDGES, names=["a", "b"], part=np.array([0, 1], dtype=np.int8))

    assert made.begin.tolist() == [0, 8, 14]
    assert made.node.tolist() == [0, 1, 1, 1, 2, 2, 2, 3, 0, 1, 1, 2, 2, 3]
    assert made.row.tolist() == [6, 11, 12, 13, 21, 22, 23, 8, 7, 14, 15, 24, 25, 9]
    assert made.parent.tolist() == [-1, -1, -1, -1, 1, 2, 3, -1, -1, -1, -1, 1, 2, -1]
    assert made.item_around.tolist() == [-1, -1, -1, -1, 1, 2, 3, -1, -1, -1, -1, 9, 10, -1]
    assert made.tuple_of.tolist() == [0] * 8 + [1] * 6


@given(st.integers(2, 40), st.integers(0, 5), st.integers(0, 3))
def test_independent_tuples_have_every_node_and_keep_the_parts_apart(tuples: int, seed: int, digits: int) -> None:
    predictions = {name: records(10) for name in NODES}
    made = independent(NODES, EDGES, predictions, tuples=tuples, fan_out_rows={"digit": digits}, seed=seed)

    assert made.assumed_independent
    assert (np.diff(made.begin) == 2 + 2 * digits).all()
    assert (made.row % 2 == made.part[made.tuple_of]).all()
    checks = made.node == 2
    assert (made.node[made.item_around[checks]] == 1).all()
    assert (np.sort(made.item_around[checks]) == np.flatnonzero(made.node == 1)).all()
    assert (made.parent[~checks] == OUTERMOST).all()


def test_a_fan_out_of_unknown_length_is_as_long_as_it_may_be() -> None:
    made = independent(NODES, EDGES, {name: records(50) for name in NODES})

    assert len(made) == 50
    assert (np.diff(made.begin) == 8).all()
    assert len(made.indices(PART_A)) == len(made.indices(PART_B)) == 25


def test_nested_fan_outs_keep_their_parents() -> None:
    nodes = {
        "page": Node(operator="x", fan_out=FanOut(per_row="pages", most=2)),
        "line": Node(operator="x", fan_out=FanOut(per_row="page.lines", most=3)),
        "word": Node(operator="x"),
        "text": Node(operator="x", fan_in=True),
        "all": Node(operator="x", fan_in=True),
    }
    order = list(nodes)
    edges = [Edge(from_=a, to=b) for a, b in itertools.pairwise(order)]
    made = independent(nodes, edges, {"x": records(1000)}, tuples=2)

    assert np.diff(made.begin).tolist() == [2 + 6 + 6 + 2 + 1] * 2
    first = made.parent[: made.begin[1]]
    assert first.tolist() == [-1, -1, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 0, 1, -1]
