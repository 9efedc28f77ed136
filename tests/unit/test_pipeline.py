import pytest

from gearshift.errors import InvalidInput
from gearshift.pipeline import Edge, FanOut, Node, When, require_graph

NODES = {name: Node(operator=name) for name in ("split", "read", "check", "join")}
EDGES = [
    Edge(from_="split", to="read"),
    Edge(from_="split", to="check", when=When(output="label", one_of=("odd",))),
    Edge(from_="read", to="join"),
    Edge(from_="check", to="join"),
]


def refusal(edges: list[Edge], output: str = "join", nodes: dict[str, Node] = NODES) -> str:
    with pytest.raises(InvalidInput) as caught:
        require_graph(nodes, edges, output)
    return str(caught.value)


def test_branches_that_meet_again_are_a_graph() -> None:
    require_graph(NODES, EDGES, "join")


def test_one_node_is_a_graph() -> None:
    require_graph({"task": NODES["read"]}, [], "task")


def test_a_pipeline_of_no_nodes_is_refused() -> None:
    assert "has no nodes" in refusal([], nodes={})


def test_an_output_that_is_no_node_is_refused() -> None:
    assert "the output is node 'sum'" in refusal(EDGES, "sum")


@pytest.mark.parametrize("edge", [Edge(from_="sum", to="join"), Edge(from_="join", to="sum")])
def test_an_edge_that_names_an_unknown_node_is_refused(edge: Edge) -> None:
    assert "names node 'sum', which is not there" in refusal([*EDGES, edge])


def test_a_cycle_is_named_in_the_direction_of_its_edges() -> None:
    sentence = refusal([*EDGES, Edge(from_="join", to="split")])
    assert "split > read > join > split" in sentence or "split > check > join > split" in sentence


def test_a_node_that_leads_nowhere_is_refused() -> None:
    assert "nodes ['check'] do not lead to the output 'join'" in refusal(EDGES[:3])


@pytest.mark.parametrize("fields", [{}, {"one_of": (1,), "at_least": 0.5}])
def test_a_condition_has_one_form(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="has both one_of and at_least, or neither"):
        When(output="label", **fields)


def test_a_fan_out_has_a_bound() -> None:
    with pytest.raises(InvalidInput, match="has most 0, needs at least 1"):
        FanOut(per_row="faces", most=0)


def test_a_node_names_its_operator() -> None:
    with pytest.raises(InvalidInput, match="names no operator"):
        Node(operator="")
