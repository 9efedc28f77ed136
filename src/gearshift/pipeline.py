"""Pipelines: graphs of nodes, each an operator, that a request passes through.

What this version does not serve yet is refused where a plan is resolved (`plans/plan_tables.py`).
"""

from collections import Counter
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
    an earlier node. Nodes after one with `fan_out` run once for each of its rows, up to one with
    `fan_in`, which runs once for all of them. `join` says whether the node waits for all branches
    that were taken, or for the first. A request fails with a `required` node; without another it
    goes on, and the answer says so.
    """

    operator: str
    inputs: dict[str, str] = {}
    fan_out: FanOut | None = None
    fan_in: bool = False
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


MOST_NODES, MOST_EDGES = 1_000, 10_000
NO_SCOPE = -1
"""In place of a fan-out's node: the outermost scope."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node runs: for each row of fan-out node `opener`, or once for a request row (empty).

    `counted_in` is the scope from which the edges to it come, or that it closes them into.
    """

    opener: str
    counted_in: str


def scopes_of(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> dict[str, Scope]:
    """The scope of each node; raises `InvalidInput` where edges join rows of different fan-outs."""
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for edge in edges:
        before[edge.to].append(edge.from_)
    scopes: dict[str, Scope] = {}
    for name in TopologicalSorter(before).static_order():
        sources = {scopes[source].opener: source for source in before[name]} or {"": ""}
        if nodes[name].fan_in:
            inner = max(sources, key=lambda opener: _depth(opener, scopes))
            require(
                bool(inner),
                f"node {name!r} has fan_in, and no node before it has a fan-out that is open",
                remedy="leave fan_in out",
            )
            counted_in = scopes[inner].counted_in
            usable = all(o == counted_in or (o and scopes[o].counted_in == counted_in) for o in sources)
        else:
            counted_in = next(iter(sources))
            usable = len(sources) == 1
        require(
            usable,
            f"edges from {sorted(sources.values())} to node {name!r} come from rows of different fan-outs",
            remedy="gather the rows first, at a node with fan_in",
        )
        scopes[name] = Scope(opener=name if nodes[name].fan_out else counted_in, counted_in=counted_in)
    return scopes


def _depth(opener: str, scopes: Mapping[str, Scope]) -> int:
    depth = 0
    while opener:
        opener, depth = scopes[opener].counted_in, depth + 1
    return depth


def require_graph(nodes: Mapping[str, Node], edges: Sequence[Edge], output: str) -> None:
    """Raise `InvalidInput` unless the edges make an acyclic graph from which all nodes lead to `output`."""
    require(len(nodes) >= 1, "a pipeline has no nodes, needs at least one")
    require(
        len(nodes) <= MOST_NODES and len(edges) <= MOST_EDGES,
        f"a pipeline has {len(nodes)} nodes and {len(edges)} edges, at most {MOST_NODES} and {MOST_EDGES} are taken",
    )
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
    ends = Counter((edge.from_, edge.to) for edge in edges)
    twice = sorted(end for end, count in ends.items() if count > 1)
    require(not twice, f"there are two edges from {twice[0][0]!r} to {twice[0][1]!r}" if twice else "")
    require(
        not scopes_of(nodes, edges)[output].opener,
        f"the output node {output!r} runs for each row of a fan-out",
        remedy="give it fan_in, so that it runs once for all rows",
    )
    far: dict[str, set[str]] = {}
    for name in order:
        far[name] = after[name].union(*(far[near] for near in after[name]))
    for name, node in nodes.items():
        require("." not in name, f"node {name!r} has a point in its name, which parts nodes from tensors")
        require(
            not (node.fan_in and node.join == "first"),
            f"node {name!r} has fan_in, and joins the first branch",
            remedy="leave one of them out",
        )
        for tensor in (*node.inputs.values(), *([node.fan_out.per_row] if node.fan_out else [])):
            source = tensor.rpartition(".")[0]
            require(
                not source or (source in nodes and name in far[source]),
                f"node {name!r} takes {tensor!r}, and no node {source!r} comes before it",
                remedy="add an edge, or name a tensor of an earlier node, or of the request",
            )
