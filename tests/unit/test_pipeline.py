from itertools import pairwise

import pytest

from gearshift.errors import InvalidInput
from gearshift.pipeline import MOST_NODES, Edge, FanOut, Node, When, require_graph

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


def test_many_ways_to_the_output_are_followed_once() -> None:
    """From 80 pairs in a row there are 2 ** 80 ways."""
    layers = [(f"a{i}", f"b{i}") for i in range(80)]
    edges = [Edge(from_=a, to=b) for one, other in pairwise(layers) for a in one for b in other]
    edges += [Edge(from_=a, to="end") for a in layers[-1]]
    nodes = {name: Node(operator="x") for name in (*(name for layer in layers for name in layer), "end")}
    require_graph(nodes | {"end": Node(operator="x", inputs={"x": "a0.y", "z": "b79.y"})}, edges, "end")


def test_a_chain_may_be_long_and_a_longer_one_is_refused() -> None:
    names = [f"n{i}" for i in range(MOST_NODES + 1)]
    nodes = {name: Node(operator="x", inputs={"x": "n0.y"} if name != "n0" else {}) for name in names}
    edges = [Edge(from_=one, to=other) for one, other in pairwise(names)]
    require_graph({name: nodes[name] for name in names[:-1]}, edges[:-1], names[-2])
    assert "has 1001 nodes and 1000 edges, at most 1000 and 10000" in refusal(edges, names[-1], nodes)
