"""Pipelines: graphs of nodes, each an operator, that a request passes through.

What this version does not serve yet is refused where a plan is resolved (`plans/plan_tables.py`).
"""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Literal

import msgspec

from gearshift.errors import InvalidInput, require


class FanOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One item for each row of a tensor, such as one for each face in an image.

    A request with more than `most` rows is refused, or answered for the first `most` alone.
    """

    per_row: str
    most: int
    beyond: Literal["refuse", "cut"] = "refuse"

    def __post_init__(self) -> None:
        require(self.most >= 1, f"fan-out over {self.per_row!r} has most {self.most}, needs at least 1")


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One operator in a pipeline.

    `inputs` maps each of the operator's inputs to a tensor of the request, or to `node.tensor` of
    an earlier node. `join` says whether the node waits for all branches that were taken, or for the
    first. A request fails with a `required` node; without another it goes on, and the answer says so.
    """

    operator: str
    inputs: dict[str, str] = {}
    fan_out: FanOut | None = None
    join: Literal["all", "first"] = "all"
    required: bool = True

    def __post_init__(self) -> None:
        require(bool(self.operator), "a node names no operator")


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A condition on an output of a node: it is one of some values, or a number from `at_least`."""

    output: str
    one_of: tuple[str | int, ...] | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        require(
            (self.one_of is None) != (self.at_least is None),
            f"the condition on output {self.output!r} has both one_of and at_least, or neither",
            remedy="give one of them",
        )


class Edge(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"from_": "from"}
):
    """From one node to the next, always or under a condition."""

    from_: str
    to: str
    when: When | None = None


def require_graph(nodes: Mapping[str, Node], edges: Sequence[Edge], output: str) -> None:
    """Raise `InvalidInput` unless the edges make an acyclic graph from which all nodes lead to `output`."""
    require(len(nodes) >= 1, "a pipeline has no nodes, needs at least one")
    require(output in nodes, f"the output is node {output!r}, which the pipeline does not have")
    after: dict[str, set[str]] = {name: set() for name in nodes}
    for edge in edges:
        for end in (edge.from_, edge.to):
            require(end in nodes, f"an edge from {edge.from_!r} to {edge.to!r} names node {end!r}, which is not there")
        after[edge.from_].add(edge.to)
    try:
        order = list(TopologicalSorter(after).static_order())  # those after a node come before it
    except CycleError as error:
        raise InvalidInput(f"the nodes {' > '.join(reversed(error.args[1]))} form a cycle") from None
    leads = {output}
    for name in order:
        if after[name] & leads:
            leads.add(name)
    astray = sorted(set(nodes) - leads)
    require(not astray, f"nodes {astray} do not lead to the output {output!r}", remedy="leave them out, or add an edge")
