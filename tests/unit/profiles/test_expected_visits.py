"""How often recorded requests of graphs visit the stages of nodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.profiles.expected_visits import StageVisits, expected_visits, visits_alone
from gearshift.profiles.profile import PredictionRecords
from tests.graph_task import EDGES, MODELS, graph_nodes, recorded_profiles, recorded_tuples
from tests.often import often
from tests.unit.planner.joint.graphs import (
    GRAPHS,
    WORK_S,
    Graph,
    drawn_cascades,
    drawn_predictions,
    drawn_records,
    walked,
)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
@settings(max_examples=often(30))
@given(seed=st.integers(0, 2**31))
def test_visits_are_those_of_a_walk_of_each_tuple(graph: Graph, seed: int) -> None:
    generator = np.random.default_rng(seed)
    nodes, edges, _ = graph
    predictions = {name: drawn_predictions(generator) for name in nodes}
    joint = drawn_records(graph, 6, generator)
    cascades = {name: drawn_cascades(generator, 1)[0] for name in nodes}
    made = expected_visits(nodes, edges, cascades, predictions, joint)
    work = sum(
        visits.items * WORK_S[model]
        for name in nodes
        for model, visits in zip(cascades[name].models, made[name], strict=True)
    )
    assert work * 6 == pytest.approx(sum(walked(graph, joint, t, predictions, cascades)[1] for t in range(6)))
    assert all(0 <= one.rows <= min(1, one.items + 1e-9) for stages in made.values() for one in stages)


def test_items_and_rows_of_a_fan_out_with_a_condition() -> None:
    profiles, nodes = recorded_profiles(), graph_nodes()
    made = expected_visits(
        nodes,
        EDGES,
        {name: Cascade(models=(MODELS[node.operator],)) for name, node in nodes.items()},
        {name: profiles[node.operator].predictions for name, node in nodes.items()},
        recorded_tuples(profiles),
    )
    # Of 8 requests one is empty; 19 pairs in the others, 9 of them with an odd sum, in 5 requests.
    assert made == {
        "split": [StageVisits(1, 1)],
        "read": [StageVisits(19 / 8, 7 / 8)],
        "check": [StageVisits(9 / 8, 5 / 8)],
        "join": [StageVisits(1, 1)],
    }


def test_of_one_node_it_is_the_share_that_is_forwarded() -> None:
    certainty = np.array([[0.1, 0.9, 0.4, 0.9], [1.0, 1.0, 0.2, 1.0], [1.0] * 4])
    records = PredictionRecords(
        models=("a", "b", "c"), quality=np.ones((3, 4)), certainty=certainty, part=np.array([0, 1, 0, 1], dtype=np.int8)
    )
    stages = visits_alone(Cascade(models=("a", "b", "c"), thresholds=(0.5, 0.5)), records)
    assert stages == [StageVisits(1, 1), StageVisits(0.5, 0.5), StageVisits(0.25, 0.25)]
