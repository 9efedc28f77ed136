"""Passes data along the edges of a pipeline: conditions, rows of fan-outs, and the inputs of nodes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import GearPlan, PipelinePlan
from gearshift.model import DATATYPES, Arrays, TensorSpec
from gearshift.models.classes import class_name
from gearshift.pipeline import NO_SCOPE, FanOut, When
from gearshift.plans.plan_tables import PlanTables
from gearshift.request import Sample
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.service.answers import TOO_MANY_ROWS

CERTAINTY = "certainty"

Array = NDArray[Any]


class OutputPassing:
    """Makes the inputs of nodes from the request's tensors and from the outputs of earlier nodes.

    `outputs` are those that each operator declares, from which lists without rows get their type.
    Raises `InvalidInput` for a condition on, or an input from, an output that is not declared.
    """

    def __init__(
        self, plan: GearPlan, tables: PlanTables, outputs: Mapping[str, Sequence[TensorSpec]] | None = None
    ) -> None:
        _require_outputs(plan, outputs or {})
        self._conditions = [None if when is None else Condition(when) for when in tables.graph.conditions]
        self._nodes = list(_nodes_of(plan, tables, outputs or {}))

    def holds(self, edge: int, item: Sample) -> bool:
        condition = self._conditions[edge]
        return condition is None or condition.holds(item)

    def rows(self, node: int, scope: Scope) -> int:
        """The number of rows of a fan-out."""
        passed = self._nodes[node]
        fan_out, source = passed.fan_out, passed.rows_from
        assert fan_out is not None
        assert source is not None
        array = source.of(scope)
        if array is None:
            raise CannotPass(f"node {passed.name!r} has no {fan_out.per_row!r} to take rows of")
        if array.ndim < 2:
            raise CannotPass(f"{fan_out.per_row!r} is a single value, and has no rows")
        return rows_taken(array.shape[1], fan_out, node, passed.name, scope, of=repr(fan_out.per_row))

    def payload(self, node: int, scope: Scope) -> Arrays:
        """The inputs of the item, arrays of one row; those that are missing are left out."""
        passed = self._nodes[node]
        outer = scope if passed.fan_out is None or scope.around is None else scope.around
        if passed.inputs is None:
            arrays = dict(_request(scope))
        else:
            given = [(name, source.of(outer)) for name, source in passed.inputs]
            arrays = {name: array for name, array in given if array is not None}
            if not arrays:
                raise CannotPass(f"node {passed.name!r} has none of its inputs")
        for name in passed.row_inputs:
            if name in arrays:
                arrays[name] = arrays[name][0, scope.row : scope.row + 1]
        return arrays


def rows_taken(rows: int, fan_out: FanOut, node: int, name: str, scope: Scope, *, of: str) -> int:
    """How many of the `rows` node `name` takes; a request with more than it allows is told that some are cut."""
    if rows <= fan_out.most:
        return rows
    if fan_out.beyond == "refuse":
        raise CannotPass(f"{TOO_MANY_ROWS}: {of} has {rows} rows, and node {name!r} takes {fan_out.most}")
    row = scope.flow.row
    row.cut = (*row.cut, (node, rows))
    return fan_out.most


class Condition:
    """A condition on an output of an item, or on its certainty."""

    def __init__(self, when: When) -> None:
        self._output, self._at_least = when.output, when.at_least
        self._one_of = frozenset() if when.one_of is None else frozenset(class_name(value) for value in when.one_of)

    def holds(self, item: Sample) -> bool:
        """Raises `CannotPass` where the item has no such output, or several values or no number."""
        value = self._value(item)
        if self._at_least is None:
            return class_name(value) in self._one_of
        try:
            return float(value) >= self._at_least
        except (TypeError, ValueError):
            raise CannotPass(f"the output {self._output!r} is no number") from None

    def _value(self, item: Sample) -> Any:
        result: Any = item.result
        if self._output in result:
            array = np.asarray(result[self._output])
            if array.size != 1:
                raise CannotPass(f"the output {self._output!r} has {array.size} values, and a condition needs one")
            return array.reshape(-1)[0]
        if self._output == CERTAINTY:
            return item.certainty
        raise CannotPass(f"the answer has no output {self._output!r}, on which an edge has a condition")


# Where inputs come from ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OfRequest:
    """A tensor of the request."""

    tensor: str

    def of(self, scope: Scope) -> Array | None:
        return _request(scope).get(self.tensor)


@dataclass(frozen=True, slots=True)
class OfNode:
    """An output of a node in the scope `levels` around that of the item."""

    node: int
    tensor: str
    levels: int

    def of(self, scope: Scope) -> Array | None:
        at: Scope | None = scope
        for _ in range(self.levels):
            at = None if at is None else at.around
        return None if at is None else _output(at.results.get(self.node), self.tensor)


@dataclass(frozen=True, slots=True)
class OfRows:
    """A list of the outputs of a node from all rows of fan-outs: `path` leads to them, outermost first.

    Rows without an answer are left out. `none` is the list without any.
    """

    node: int
    tensor: str
    path: tuple[int, ...]
    none: Array

    def of(self, scope: Scope) -> Array | None:
        scopes = [scope]
        for opener in self.path:
            scopes = [row for at in scopes for row in at.rows.get(opener, ())]
        found = [_output(at.results.get(self.node), self.tensor) for at in scopes]
        arrays = [array for array in found if array is not None]
        if not arrays:
            return self.none
        try:
            return np.concatenate(arrays)[None]
        except ValueError:
            raise CannotPass(f"the rows of {self.tensor!r} have different shapes") from None


Source = OfRequest | OfNode | OfRows


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """The inputs of a node, None for all of the request's; `row_inputs` are those that a fan-out divides."""

    name: str
    inputs: tuple[tuple[str, Source], ...] | None
    fan_out: FanOut | None
    rows_from: Source | None
    row_inputs: tuple[str, ...]


def _nodes_of(plan: GearPlan, tables: PlanTables, outputs: Mapping[str, Sequence[TensorSpec]]) -> Iterator[PassedOn]:
    for of, pipeline in zip(tables.pipelines, plan.pipelines.values(), strict=True):
        numbers = {name: of.first_node + n for n, name in enumerate(of.nodes)}
        for name, node in pipeline.nodes.items():
            sources = _Sources(pipeline, tables, numbers, outputs, name)
            fan_out = node.fan_out
            per_row = None if fan_out is None else fan_out.per_row
            yield PassedOn(
                name=name,
                inputs=tuple((to, sources.of(tensor)) for to, tensor in node.inputs.items()) if node.inputs else None,
                fan_out=fan_out,
                rows_from=None if per_row is None else sources.of(per_row),
                row_inputs=tuple(to for to, tensor in node.inputs.items() if tensor == per_row)
                if node.inputs
                else tuple([per_row] if per_row is not None else []),
            )


class _Sources:
    """Resolves the names of tensors for node `name`."""

    def __init__(
        self,
        pipeline: PipelinePlan,
        tables: PlanTables,
        numbers: Mapping[str, int],
        outputs: Mapping[str, Sequence[TensorSpec]],
        name: str,
    ) -> None:
        self._pipeline, self._numbers, self._outputs, self._name = pipeline, numbers, outputs, name
        self._opener: list[int] = tables.graph.opener.tolist()
        self._counted_in: list[int] = tables.graph.counted_in.tolist()

    def of(self, tensor: str) -> Source:
        source, _, output = tensor.rpartition(".")
        if not source:
            return OfRequest(tensor)
        declared = self._declared(source, output, tensor)
        node, start = self._numbers[source], self._counted_in[self._numbers[self._name]]
        inner = self._around(self._opener[node])
        if start in inner:
            path = inner[: inner.index(start)]
            return OfRows(node, output, tuple(reversed(path)), _none(declared)) if path else OfNode(node, output, 0)
        around = self._around(start)
        require(
            self._opener[node] in around,
            f"node {self._name!r} takes {tensor!r}, and node {source!r} runs for the rows of another fan-out",
            remedy="gather the rows first, at a node with fan_in",
        )
        return OfNode(node, output, around.index(self._opener[node]))

    def _around(self, opener: int) -> list[int]:
        """The scopes from that of `opener` outwards."""
        scopes = [opener]
        while scopes[-1] != NO_SCOPE:
            scopes.append(self._counted_in[scopes[-1]])
        return scopes

    def _declared(self, source: str, output: str, tensor: str) -> TensorSpec | None:
        specs = self._outputs.get(self._pipeline.nodes[source].operator, ())
        found = next((spec for spec in specs if spec.name == output), None)
        require(
            not specs or found is not None or output == CERTAINTY,
            f"node {self._name!r} takes {tensor!r}, and node {source!r} answers {_names(specs)}",
            remedy="mend the node's inputs",
        )
        return found


def _require_outputs(plan: GearPlan, outputs: Mapping[str, Sequence[TensorSpec]]) -> None:
    """Raise `InvalidInput` for a condition on an output that its node does not declare."""
    for name, pipeline in plan.pipelines.items():
        for edge in pipeline.edges:
            specs = outputs.get(pipeline.nodes[edge.from_].operator, ())
            if edge.when is not None and specs:
                require(
                    edge.when.output in (CERTAINTY, *(spec.name for spec in specs)),
                    f"the edge from {edge.from_!r} to {edge.to!r} has a condition on {edge.when.output!r}, and node "
                    f"{edge.from_!r} answers {_names(specs)}",
                    where=f"pipeline {name!r}",
                    remedy="name one of these, or the certainty",
                )


def _names(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(repr(spec.name) for spec in specs)


def _none(spec: TensorSpec | None) -> Array:
    if spec is None:
        return np.empty((1, 0))
    dtype = np.dtype(object) if spec.datatype == "BYTES" else np.dtype(DATATYPES[spec.datatype])
    return np.empty((1, 0, *(max(0, dimension) for dimension in spec.shape[1:])), dtype)


def _request(scope: Scope) -> Arrays:
    arrays: Arrays = scope.flow.row.payload  # type: ignore[assignment]
    return arrays


def _output(item: Sample | None, tensor: str) -> Array | None:
    if item is None:
        return None
    result: Any = item.result
    if tensor == CERTAINTY and tensor not in result:
        return np.array([item.certainty])
    array: Array | None = result.get(tensor)
    return array
