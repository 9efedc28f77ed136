"""A pipeline laid out over joint records, so that choices of cascades can be replayed on arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.pipeline import Edge, Node, When, scopes_of
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.tuples import OUTERMOST, JointRecords, around_nodes

Ints = NDArray[np.int64]

TUPLE = ""
"""The outermost scope, whose slots are the tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node stands: the scope it runs in, and the one in which the edges to it are counted.

    A scope is named by its fan-out node, or `TUPLE`; its slots are that node's items, or the
    tuples. `closes` are the scopes that a node with fan-in closes. `edges` are the edges to it of
    its own scope: the source, and which of the source's conditions must hold.
    """

    scope: str
    counted_in: str
    closes: tuple[str, ...]
    edges: tuple[tuple[str, int], ...]
    is_entry: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComposedQuery:
    """A pipeline over the tuples of one part; nodes in topological order.

    `samples` has for each node the sample (slots,) of each slot of its scope. `around` has for each
    fan-out node the slot (items,), in the scope around it, in which each of its items lies: rising.
    `conditions` are those of the edges from a node. `numbers` are the tuples'
    numbers in the joint records. The query's result is positive if the output is reached and meets
    the condition `positive`; with `negated`, in all other cases, as for "not: neither a nor b".
    """

    places: dict[str, Place]
    operators: dict[str, str]
    output: str
    predictions: Mapping[str, PredictionRecords]
    conditions: dict[str, tuple[When | None, ...]]
    samples: dict[str, Ints]
    around: dict[str, Ints]
    numbers: NDArray[np.int32]
    positive: When | None = None
    negated: bool = False

    @property
    def tuples(self) -> int:
        return len(self.numbers)

    def records(self, node: str) -> PredictionRecords:
        return self.predictions[self.operators[node]]

    def slots(self, scope: str) -> int:
        return self.tuples if scope == TUPLE else len(self.samples[scope])


def composed_query(
    nodes: Mapping[str, Node],
    edges: Sequence[Edge],
    output: str,
    records: JointRecords,
    predictions: Mapping[str, PredictionRecords],
    *,
    part: int | None = None,
    positive: When | None = None,
    negated: bool = False,
) -> ComposedQuery:
    """Lay out a pipeline over the joint records of `part`, or over all; `predictions` by operator.

    Raises `InvalidInput` where the records are of other nodes, or name samples that are not there.
    """
    require(
        set(records.nodes) == set(nodes),
        f"the joint records are of nodes {sorted(records.nodes)}, and the pipeline has {sorted(nodes)}",
        remedy="record the pipeline anew",
    )
    numbers = np.arange(len(records), dtype=np.int32) if part is None else records.indices(part)
    places = _places(nodes, edges)
    samples, around = _slots(nodes, edges, records, numbers)
    for name, node in nodes.items():
        known = len(predictions[node.operator].part)
        require(
            int(samples[name].max(initial=-1)) < known,
            f"the joint records name a sample of node {name!r} beyond the {known} of operator {node.operator!r}",
            remedy="record predictions and joint records together",
        )
    return ComposedQuery(
        places=places,
        operators={name: nodes[name].operator for name in places},
        output=output,
        predictions=predictions,
        conditions={name: tuple(edge.when for edge in edges if edge.from_ == name) for name in places},
        samples={name: samples[name] for name in places},
        around=around,
        numbers=numbers,
        positive=positive,
        negated=negated,
    )


def _places(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> dict[str, Place]:
    scopes = scopes_of(nodes, edges)
    counts: dict[str, int] = {}
    leading: dict[str, list[tuple[str, int]]] = {name: [] for name in nodes}
    for edge in edges:
        leading[edge.to].append((edge.from_, counts.setdefault(edge.from_, 0)))
        counts[edge.from_] += 1
    return {
        name: Place(
            scope=scope.opener,
            counted_in=scope.counted_in,
            closes=tuple(sorted({scopes[source].opener for source, _ in leading[name]} - {scope.counted_in})),
            edges=tuple(end for end in leading[name] if scopes[end[0]].opener == scope.counted_in),
            is_entry=not leading[name],
        )
        for name, scope in scopes.items()
    }


def _slots(
    nodes: Mapping[str, Node], edges: Sequence[Edge], records: JointRecords, numbers: NDArray[np.int32]
) -> tuple[dict[str, Ints], dict[str, Ints]]:
    local = np.full(len(records), OUTERMOST, dtype=np.int64)
    local[numbers] = np.arange(len(numbers))
    of_tuple, item_around = local[records.tuple_of], records.item_around
    items, around = {}, {}
    for name, outer in around_nodes(nodes, edges).items():
        mine = np.flatnonzero((records.node == records.nodes.index(name)) & (of_tuple != OUTERMOST))
        items[name] = mine
        if nodes[name].fan_out:
            around[name] = np.searchsorted(items[outer], item_around[mine]) if outer else of_tuple[mine]
        else:
            expected = items[outer] if outer else numbers
            require(
                len(mine) == len(expected),
                f"the joint records have {len(mine)} items of node {name!r}, need {len(expected)}, one for each "
                f"{'row of ' + repr(outer) if outer else 'tuple'}",
                remedy="record the pipeline anew",
            )
    return {name: records.row[mine].astype(np.int64) for name, mine in items.items()}, around
