import pytest

from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, LoadRange, PipelinePlan, ReplicaSettings
from gearshift.objective import Objective
from gearshift.pipeline import Edge, FanOut, Node, When
from gearshift.plans.graph_tables import GraphTables, graph_tables

LIKELY = When(output="certainty", at_least=0.5)


def tables(nodes: dict[str, Node], edges: list[Edge], output: str) -> GraphTables:
    gear = Gear(
        load_range=LoadRange(from_=0.0),
        cascades={name: (Cascade(models=("model",)),) for name in nodes},
        replicas=(ReplicaSettings(replica="r", load_share=1.0),),
    )
    one = {"only": Node(operator="only")}
    alone = PipelinePlan(
        nodes=one,
        output="only",
        objective=Objective(),
        gears=(Gear(load_range=gear.load_range, cascades={"only": (Cascade(models=("m",)),)}, replicas=gear.replicas),),
    )
    graph = PipelinePlan(nodes=nodes, edges=tuple(edges), output=output, objective=Objective(), gears=(gear,))
    return graph_tables({"alone": alone, "graph": graph})


def node(**fields: object) -> Node:
    return Node(operator="operator", **fields)  # type: ignore[arg-type]


def test_nodes_after_a_fan_out_run_for_its_rows_up_to_a_fan_in() -> None:
    nodes = {
        "join": node(fan_in=True),
        "read": node(fan_out=FanOut(per_row="split.parts", most=9)),
        "split": node(),
        "check": node(),
    }
    edges = [
        Edge(from_="split", to="read"),
        Edge(from_="read", to="check", when=LIKELY),
        Edge(from_="read", to="join"),
        Edge(from_="check", to="join"),
        Edge(from_="split", to="join"),
    ]
    made = tables(nodes, edges, "join")
    only, join, read, split, check = range(5)
    assert made.is_graph
    assert made.order.tolist() == [only, split, read, check, join]
    assert made.opener.tolist() == [-1, -1, read, -1, read]
    assert made.counted_in.tolist() == [-1, -1, -1, -1, read]
    assert made.edge_to.tolist() == [check, join, read, join, join]
    assert made.edge_begin.tolist() == [0, 0, 0, 2, 4, 5]
    assert made.crosses.tolist() == [False, True, False, False, True]
    assert made.conditions == (LIKELY, None, None, None, None)
    assert made.entries[made.entry_begin[1] :].tolist() == [split]
    assert made.edges_to.tolist() == [0, 3, 1, 0, 1]


def test_rows_of_different_fan_outs_do_not_meet_without_fan_in() -> None:
    nodes = {
        "a": node(),
        "b": node(fan_out=FanOut(per_row="a.rows", most=2)),
        "c": node(fan_out=FanOut(per_row="a.rows", most=2)),
        "d": node(),
    }
    edges = [Edge(from_="a", to="b"), Edge(from_="a", to="c"), Edge(from_="b", to="d"), Edge(from_="c", to="d")]
    with pytest.raises(InvalidInput, match="come from rows of different fan-outs"):
        tables(nodes, edges, "d")


def test_an_output_within_a_fan_out_is_refused() -> None:
    nodes = {"a": node(), "b": node(fan_out=FanOut(per_row="a.rows", most=2))}
    with pytest.raises(InvalidInput, match="runs for each row of a fan-out; give it fan_in"):
        tables(nodes, [Edge(from_="a", to="b")], "b")


def test_a_fan_in_without_a_fan_out_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no node before it has a fan-out that is open"):
        tables({"a": node(), "b": node(fan_in=True)}, [Edge(from_="a", to="b")], "b")


def test_an_input_of_a_node_that_does_not_come_before_is_refused() -> None:
    nodes = {"a": node(inputs={"x": "b.label"}), "b": node()}
    with pytest.raises(InvalidInput, match=r"node 'a' takes 'b\.label', and no node 'b' comes before it"):
        tables(nodes, [Edge(from_="a", to="b")], "b")
