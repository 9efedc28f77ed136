"""A pipeline laid out over joint records, so that choices of cascades can be replayed on arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.errors import require
from gearshift.pipeline import Edge, Node, When, scopes_of
from gearshift.profiles.conditions import CERTAINTY, holds, holds_for_classes
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


# The answers of a node's implementations to every recorded item, wherever the query passes it.

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

NONE: Bools = np.empty((0, 0), dtype=np.bool_)


def rows_of(array: NDArray[Any], rows: Sequence[int] | NDArray[np.int64]) -> NDArray[Any]:
    """Rows of the first axis, also repeated; an array with one row for all, or none, as it is."""
    return array if len(array) <= 1 else array[np.asarray(rows, dtype=np.int64)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """Answers of k implementations of one node in each slot of its scope.

    All arrays are (k, slots), or (1, slots) where all agree: `quality`, `work_s`, for each edge
    from the node whether its condition holds in `live`, and at the output node whether the result
    is `positive`, elsewhere empty.
    """

    quality: Floats
    work_s: Floats
    live: tuple[Bools, ...]
    positive: Bools

    def __len__(self) -> int:
        return len(self.quality)

    def of(self, rows: Sequence[int] | NDArray[np.int64]) -> "Answers":
        """The answers of some of the implementations, in that order, also repeated."""
        return Answers(
            quality=rows_of(self.quality, rows),
            work_s=rows_of(self.work_s, rows),
            live=tuple(rows_of(each, rows) for each in self.live),
            positive=rows_of(self.positive, rows),
        )


def answers(
    query: ComposedQuery, node: str, cascades: Sequence[Cascade], work_s: Mapping[str, float | Doubles]
) -> Answers:
    """Replay cascades on the samples of a node; `work_s` is the cost of a visit of each model.

    A cost is one for all samples of the operator, or one for each (samples,).
    """
    records = query.records(node)
    positive = _positive_at(query, node)
    slots = query.samples[node]
    last = np.empty((len(cascades), len(records.part)), dtype=np.int64)
    work = np.empty(last.shape, dtype=np.float32)
    for k, cascade in enumerate(cascades):
        last[k], work[k] = _stages(cascade, records, work_s)
    samples = np.arange(last.shape[1])

    def met(when: When | None) -> Bools:
        if when is None:
            return np.ones((1, len(slots)), dtype=np.bool_)
        return np.asarray(holds(when, records)[last, samples][:, slots])

    return Answers(
        quality=records.quality[last, samples].astype(np.float32)[:, slots],
        work_s=work[:, slots],
        live=tuple(met(when) for when in query.conditions[node]),
        positive=NONE if positive is None else met(positive),
    )


def true_answers(query: ComposedQuery, node: str) -> Answers:
    """The answers of a model that is always right, at no cost: the labels.

    Raises `InvalidInput` where labels were not recorded, or an edge depends on certainty.
    """
    records = query.records(node)
    labels = records.label
    if labels is None and len(records.models) == 1 and records.prediction is not None:
        labels = records.prediction[0]  # a function is right
    conditions = [when for when in (*query.conditions[node], _positive_at(query, node)) if when is not None]
    require(
        labels is not None or not conditions,
        f"operator {query.operators[node]!r} has no labels, and recall and precision need the right answers",
        remedy="record the column 'label', or ask for accuracy",
    )
    require(
        all(when.output != CERTAINTY for when in conditions),
        f"node {node!r} has an edge on certainty, and recall and precision need edges on answers",
        remedy="ask for accuracy, or for agreement",
    )
    slots = query.samples[node]
    known = np.zeros(len(records.part), dtype=np.str_) if labels is None else labels

    def met(when: When | None) -> Bools:
        right = np.ones(known.shape, dtype=np.bool_) if when is None else holds_for_classes(when, known)
        return right[None, slots]

    positive = _positive_at(query, node)
    return Answers(
        quality=np.ones((1, len(slots)), dtype=np.float32),
        work_s=np.zeros((1, len(slots)), dtype=np.float32),
        live=tuple(met(when) for when in query.conditions[node]),
        positive=NONE if positive is None else met(positive),
    )


def _positive_at(query: ComposedQuery, node: str) -> When | None:
    return query.positive if node == query.output else None


def _stages(
    cascade: Cascade, records: PredictionRecords, work_s: Mapping[str, float | Doubles]
) -> tuple[NDArray[np.int64], Floats]:
    """The model that answers each sample (samples,), and the cost of all that it visits."""
    rows = records.rows(cascade.models)
    last = np.full(len(records.part), rows[0])
    work = np.full(len(records.part), work_s[cascade.models[0]], dtype=np.float32)
    forwarded = np.ones(len(records.part), dtype=np.bool_)
    for stage, threshold in enumerate(cascade.thresholds):
        forwarded &= records.certainty[rows[stage]] < threshold
        last[forwarded] = rows[stage + 1]
        work += forwarded * np.float32(work_s[cascade.models[stage + 1]])
    return last, work
