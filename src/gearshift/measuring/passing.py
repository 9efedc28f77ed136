"""Items of the nodes of a pipeline for recorded requests, as if every edge were live."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.measuring.items import Rows, rows_of_results
from gearshift.model import Arrays
from gearshift.models.config import PipelineSettings
from gearshift.models.samples import Samples
from gearshift.pipeline import NO_SCOPE, Scope, scopes_of

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeItems:
    """Items of one node: the number of the request, and of the item of the fan-out around (items,).

    `inputs` are by the operator's names, one array for each item. `first_row` is the number of the
    first item among all of the operator's; the others follow.
    """

    of_tuple: Ints
    around: Ints
    inputs: Mapping[str, Rows]
    first_row: int = 0

    def __len__(self) -> int:
        return len(self.of_tuple)


@dataclass(slots=True, eq=False)
class Flow:
    """A pipeline's requests on their way: items and results of the nodes that have run.

    A node without fan-out has one item for each item of the fan-out around it, in its order, or
    for each request. So an item's number is that of the row that its scope is opened for.
    """

    name: str
    pipeline: PipelineSettings
    samples: Samples
    scopes: Mapping[str, Scope] = field(init=False)
    items: dict[str, NodeItems] = field(default_factory=dict)
    results: dict[str, Sequence[Arrays]] = field(default_factory=dict)
    """The outputs of each item, by the nodes that have run."""

    def __post_init__(self) -> None:
        self.scopes = scopes_of(self.pipeline.nodes, self.pipeline.edges)

    def begin(self, node: str, first_row: int) -> NodeItems:
        """Make the items of `node`; nodes whose outputs it takes must have `results`.

        Raises `InvalidInput` for an unknown tensor, and where a fan-out has too many rows or none.
        """
        settings, scope = self.pipeline.nodes[node], self.scopes[node]
        inputs = settings.inputs or {name: name for name in self.samples.arrays}
        outer = self._instances(scope.counted_in)
        around, number_in_fan_out = outer, np.zeros(len(outer), dtype=np.int64)
        fan_out = settings.fan_out
        if fan_out is not None:
            counts = self._row_counts(node, self._rows(node, fan_out.per_row, outer))
            around = np.repeat(outer, counts)
            number_in_fan_out = np.concatenate([np.arange(count) for count in counts]).astype(np.int64)
        columns: dict[str, Rows] = {}
        for to, tensor in inputs.items():
            rows = self._rows(node, tensor, around)
            if fan_out is not None and tensor == fan_out.per_row:
                rows = [row[number] for row, number in zip(rows, number_in_fan_out.tolist(), strict=True)]
            columns[to] = rows
        made = NodeItems(
            of_tuple=self._climbed(around, scope.counted_in, ""),
            around=around if scope.counted_in else np.full(len(around), NO_SCOPE),
            inputs=columns,
            first_row=first_row,
        )
        self.items[node] = made
        return made

    def labels(self, node: str) -> tuple[NDArray[Any] | None, str]:
        """The labels of a node's items, and a sentence about requests with another number of them.

        Those of the output node are the request's. Where numbers differ, no answer is right.
        """
        given: Sequence[Any] | None = self.samples.node_labels.get(node)
        if given is None and node == self.pipeline.output and self.samples.labels is not None:
            given = self.samples.labels.tolist()
        if given is None:
            return None, ""
        counts = np.bincount(self.items[node].of_tuple, minlength=len(self.samples))
        found: list[Any] = []
        wrong = 0
        for count, labels in zip(counts.tolist(), given, strict=True):
            listed = np.asarray(labels).reshape(-1).tolist()
            wrong += len(listed) != count
            found += listed if len(listed) == count else [""] * count
        sentence = (
            f"pipeline {self.name!r}, node {node!r}: {wrong} of {len(counts)} requests have another number of items "
            "than of labels, and their answers count as wrong"
            if wrong
            else ""
        )
        return _labels(found), sentence

    def _instances(self, opener: str) -> Ints:
        return np.arange(len(self.items[opener]) if opener else len(self.samples), dtype=np.int64)

    def _rows(self, node: str, tensor: str, around: Ints) -> Rows:
        """The value of `tensor` for each of `around`, numbers of rows of the scope that node counts in."""
        source, _, name = tensor.rpartition(".")
        counted_in = self.scopes[node].counted_in
        if not source:
            array = self._request(node, name)
            return [array[row] for row in self._climbed(around, counted_in, "").tolist()]
        self._require_output(node, tensor, source, name)
        rows = rows_of_results(self.results[source], name)
        opener = self.scopes[source].opener
        if self.pipeline.nodes[node].fan_in and opener and self.scopes[opener].counted_in == counted_in:
            return _gathered(rows, self._parents(opener), around)
        return [rows[number] for number in self._climbed(around, counted_in, opener).tolist()]

    def _request(self, node: str, name: str) -> NDArray[Any]:
        arrays = self.samples.arrays
        require(
            name in arrays,
            f"it takes {name!r}, and the request's tensors are {', '.join(map(repr, arrays))}",
            where=f"pipeline {self.name!r}, node {node!r}",
            remedy="name one of these, or an output as node.tensor",
        )
        return arrays[name]

    def _require_output(self, node: str, tensor: str, source: str, name: str) -> None:
        outputs = self.results[source][0]
        require(
            name in outputs,
            f"it takes {tensor!r}, and node {source!r} answers {', '.join(map(repr, outputs))}",
            where=f"pipeline {self.name!r}, node {node!r}",
            remedy="mend the node's inputs",
        )

    def _parents(self, opener: str) -> Ints:
        items = self.items[opener]
        return items.around if self.scopes[opener].counted_in else items.of_tuple

    def _climbed(self, numbers: Ints, scope: str, to: str) -> Ints:
        """Numbers of rows in `scope` as those in `to`, which is that scope or around it."""
        while scope != to:
            numbers, scope = self._parents(scope)[numbers], self.scopes[scope].counted_in
        return numbers

    def _row_counts(self, node: str, values: Rows) -> list[int]:
        fan_out = self.pipeline.nodes[node].fan_out
        assert fan_out is not None
        where = f"pipeline {self.name!r}, node {node!r}"
        require(
            all(np.ndim(value) >= 1 for value in values),
            f"tensor {fan_out.per_row!r} has a single value for each item, and no rows to run once for each",
            where=where,
            remedy="name a tensor with one more dimension",
        )
        counts = [len(value) for value in values]
        most = max(counts, default=0)
        if most > fan_out.most and fan_out.beyond == "refuse":
            raise InvalidInput(
                f"a sample has {most} rows of {fan_out.per_row!r}, and at most {fan_out.most} are let in",
                where=where,
                remedy='raise most, or set beyond = "cut"',
            )
        require(most > 0, f"no sample has a row of {fan_out.per_row!r}", where=where, remedy="give other samples")
        return [min(count, fan_out.most) for count in counts]


def _gathered(rows: Rows, parents: Ints, around: Ints) -> Rows:
    """For each of `around` the list of the rows whose parent it is, as one array."""
    full = next((row for row in rows if np.size(row)), rows[0])
    none = np.empty((0, *np.shape(full)), np.asarray(full).dtype)
    of_parent: dict[int, list[NDArray[Any]]] = {number: [] for number in around.tolist()}
    for row, parent in zip(rows, parents.tolist(), strict=True):
        of_parent[parent].append(row)
    return [np.stack(of_parent[number]) if of_parent[number] else none for number in around.tolist()]


def _labels(values: Sequence[Any]) -> NDArray[Any]:
    array = np.asarray(values)
    if "" in values and array.dtype.kind == "U":  # numbers beside ""
        array = np.array([str(value) for value in values])
    return array
