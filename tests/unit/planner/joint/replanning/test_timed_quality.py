from itertools import product

import numpy as np
import pytest

from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query, best_quality, outcomes, timed_quality

FACE = When(output="label", one_of=("face",))
CAR = When(output="label", one_of=("car",))
NODES = {name: Node(operator=name) for name in ("detect", "face", "car", "answer")}
EDGES = (
    Edge(from_="detect", to="face", when=FACE),
    Edge(from_="detect", to="car", when=CAR),
    Edge(from_="detect", to="answer"),
    Edge(from_="face", to="answer"),
    Edge(from_="car", to="answer"),
)
DETECT = [(28, 0.911), (42, 0.929), (55, 0.941)]
FACES = [(18, 0.955), (37, 0.976), (59, 0.981), (111, 0.991)]
CARS = [(17, 0.902), (24, 0.918), (55, 0.926), (112, 0.934)]


def single(run_ms: int, quality: float) -> Outcomes:
    return Outcomes(np.array([run_ms]), np.ones(1), np.array([quality]))


def traffic() -> Query:
    of_nodes = {"detect": DETECT, "face": FACES, "car": CARS, "answer": [(0, 1.0)]}
    return Query(
        nodes=NODES,
        edges=EDGES,
        outcomes={node: [single(*each) for each in models] for node, models in of_nodes.items()},
        branches={
            "detect": {
                frozenset({"face", "answer"}): 0.46,
                frozenset({"car", "answer"}): 0.45,
                frozenset({"answer"}): 0.09,
            }
        },
    )


@pytest.mark.parametrize("within_ms", range(45, 221, 5))
def test_without_queues_the_tables_have_the_exact_optimum(within_ms: int) -> None:
    """Against all plans: a model for detection, and one for each branch by the time that is then left."""

    def best(models: list[tuple[int, float]], left_ms: int) -> float:
        return max([quality for ms, quality in models if ms <= left_ms], default=0.0)

    exact = max(
        quality * (0.46 * best(FACES, within_ms - ms) + 0.45 * best(CARS, within_ms - ms) + 0.09)
        for ms, quality in DETECT
    )
    assert best_quality(traffic(), within_ms) == pytest.approx(exact)


def test_a_chain_has_the_optimum_of_all_plans() -> None:
    nodes = {name: Node(operator=name) for name in ("a", "b", "c")}
    models = {"a": [(3, 0.8), (7, 0.9)], "b": [(2, 0.7), (9, 0.95)], "c": [(1, 0.5), (4, 0.99)]}
    query = Query(
        nodes=nodes,
        edges=(Edge(from_="a", to="b"), Edge(from_="b", to="c")),
        outcomes={name: [single(*each) for each in of_node] for name, of_node in models.items()},
    )
    for within_ms in range(22):
        plans = product(*models.values())
        exact = max(
            (
                float(np.prod([quality for _, quality in plan]))
                for plan in plans
                if sum(ms for ms, _ in plan) <= within_ms
            ),
            default=0.0,
        )
        assert best_quality(query, within_ms) == pytest.approx(exact)


def test_tables_hold_the_times_at_which_quality_rises() -> None:
    tables = timed_quality(traffic())
    assert tables["answer"][0].remaining_ms == (0,)
    assert tables["face"][1].remaining_ms == (37,)
    assert tables["face"][1].quality == pytest.approx((0.976,))
    assert tables["detect"][0].remaining_ms[:3] == (28, 28 + 17, 28 + 18)
    assert tables["detect"][0].quality[0] == pytest.approx(0.911 * 0.09)  # where there is nothing to recognise


def test_what_comes_after_a_join_counts_once() -> None:
    nodes = {
        "split": Node(operator="split"),
        "read": Node(operator="read", fan_out=FanOut(per_row="split.parts", most=9)),
        "join": Node(operator="join", fan_in=True),
    }
    query = Query(
        nodes=nodes,
        edges=(Edge(from_="split", to="read"), Edge(from_="read", to="join")),
        outcomes={"split": [single(1, 1.0)], "read": [single(5, 0.9)], "join": [single(2, 0.8)]},
        rows={"read": 3.0},
    )
    assert best_quality(query, 8) == pytest.approx(0.9**3 * 0.8)
    assert best_quality(query, 7) == 0.0


def test_an_implementation_that_is_never_in_time_has_quality_0() -> None:
    query = Query(nodes={"a": NODES["face"]}, edges=(), outcomes={"a": [single(70_000, 0.9)]})
    assert timed_quality(query)["a"][0].quality == (0.0,)


def test_outcomes_are_grouped_by_run_time_rounded_up() -> None:
    made = outcomes(np.array([0.0101, 0.011, 0.002]), np.array([1.0, 0.0, 1.0]))
    assert made.run_ms.tolist() == [2, 11]
    assert made.share.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert made.quality.tolist() == pytest.approx([1.0, 0.5])
