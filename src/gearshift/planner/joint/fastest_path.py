"""The way through a graph that no request can be faster than, with all devices free."""

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

from gearshift.pipeline import Edge, Node


class Path(NamedTuple):
    """Nodes from an entry to the output, and the seconds of one item at each of them together."""

    nodes: tuple[str, ...]
    run_s: float


def fastest_path(nodes: Mapping[str, Node], edges: Sequence[Edge], output: str, run_s: Mapping[str, float]) -> Path:
    """The longest of the ways to a node that every request takes, else the shortest of all.

    `run_s` has the seconds of one item at each node, with its fastest model. Each fan-out has a row.
    """
    paths, always = dict[str, Path](), set[str]()
    to = {name: [edge for edge in edges if edge.to == name] for name in nodes}
    for name in TopologicalSorter({name: [edge.from_ for edge in of] for name, of in to.items()}).static_order():
        before = to[name]
        sure = [edge for edge in before if edge.when is None and edge.from_ in always]
        if sure or not before:
            always.add(name)
        waits = bool(sure) and nodes[name].join == "all"
        ways = [paths[edge.from_] for edge in (sure if waits else before)] or [Path((), 0.0)]
        way = (max if waits else min)(ways, key=lambda path: path.run_s)
        paths[name] = Path((*way.nodes, name), way.run_s + run_s[name])
    return paths[output]
