import numpy as np
import pytest

from gearshift.pipeline import Edge, Node
from gearshift.planner.joint.candidates import candidates_of, single_models
from gearshift.planner.joint.replanning.choices import Split, budget_tables, on_trace, plan_by_budgets
from gearshift.planner.joint.replanning.timed_quality import Outcomes, Query
from gearshift.profiles.profile import PART_B
from tests.unit.planner.joint.strips import strips

MODELS = {
    "detect": [(20, 0.91), (55, 0.94)],
    "face": [(18, 0.95), (110, 0.99)],
    "car": [(16, 0.90), (55, 0.92)],
    "answer": [(0, 1.0)],
}
ENDS = [("detect", "face"), ("detect", "car"), ("face", "answer"), ("car", "answer")]


def times(split: Split) -> dict[str, list[int]]:
    query = Query(
        nodes={name: Node(operator=name) for name in MODELS},
        edges=tuple(Edge(from_=a, to=b) for a, b in ENDS),
        outcomes={
            name: [Outcomes(np.array([ms]), np.ones(1), np.array([quality])) for ms, quality in of_node]
            for name, of_node in MODELS.items()
        },
    )
    return {node: [table.remaining_ms[0] for table in tables] for node, tables in budget_tables(query, split).items()}


def test_an_equal_split_gives_each_node_of_a_path_the_same_time() -> None:
    """With 80 ms left detection may take 40: its first model; at a face all that is left may be used."""
    assert times("equal") == {"detect": [40, 110], "face": [18, 110], "car": [16, 55], "answer": [0]}


def test_a_proportional_split_goes_by_slowest_models_and_the_tightest_path() -> None:
    """Detection gets 55 / (55 + 110) of the time, by the path over faces."""
    assert times("proportional") == {"detect": [60, 165], "face": [18, 110], "car": [16, 55], "answer": [0]}


@pytest.mark.parametrize(("latency_s", "least", "most"), [(0.1, 1.0, 1.0), (0.008, 0.3, 0.8)])
def test_a_plan_by_budgets_reads_the_parts_that_its_share_of_time_allows(
    latency_s: float, least: float, most: float
) -> None:
    """With 100 ms all parts are read by the large model; with 8 ms not those that wait for others."""
    request = strips(latency_s=latency_s, qps=10.0)
    made = plan_by_budgets(request, candidates_of(request, chains=single_models), "proportional")
    (gear,) = made.pipeline.gears
    assert [len(cascades) for cascades in gear.cascades.values()] == [1, 2, 1]
    answered = on_trace(made, request, part=PART_B).at_nodes()["read"].answered
    assert least <= answered["large"] / sum(answered.values()) <= most
