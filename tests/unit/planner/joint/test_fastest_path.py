import pytest

from gearshift.pipeline import Edge, Node, When
from gearshift.planner.joint.replanning.search import Path, fastest_path

RUN_S = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0}
SURE = When(output="certainty", at_least=0.5)


def nodes(**last: str) -> dict[str, Node]:
    return {name: Node(operator=name, **(last if name == "d" else {})) for name in "abcd"}


def edges(when_b: When | None, when_c: When | None) -> list[Edge]:
    return [
        Edge(from_="a", to="b", when=when_b),
        Edge(from_="a", to="c", when=when_c),
        Edge(from_="b", to="d"),
        Edge(from_="c", to="d"),
    ]


def test_all_branches_are_waited_for() -> None:
    assert fastest_path(nodes(), edges(None, None), "d", RUN_S) == Path(("a", "b", "d"), 7.0)


def test_the_first_branch_is_enough_where_a_node_joins_the_first() -> None:
    assert fastest_path(nodes(join="first"), edges(None, None), "d", RUN_S) == Path(("a", "c", "d"), 4.0)


def test_one_node_is_a_path() -> None:
    assert fastest_path({"a": Node(operator="a")}, [], "a", RUN_S) == Path(("a",), 1.0)


@pytest.mark.parametrize(("to", "path"), [("b", ("a", "d")), ("c", ("a", "d"))])
def test_a_branch_under_a_condition_may_be_left_out(to: str, path: tuple[str, ...]) -> None:
    graph = [Edge(from_="a", to=to, when=SURE), Edge(from_=to, to="d"), Edge(from_="a", to="d")]
    of = {name: node for name, node in nodes().items() if name in ("a", to, "d")}
    assert fastest_path(of, graph, "d", RUN_S) == Path(path, 2.0)
