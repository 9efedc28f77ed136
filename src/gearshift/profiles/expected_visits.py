"""How often a recorded request row of a graph visits the stages of its nodes, with one cascade for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.pipeline import Edge, Node, Scope, scopes_of
from gearshift.profiles.conditions import holds
from gearshift.profiles.profile import PredictionRecords
from gearshift.profiles.tuples import OUTERMOST, JointRecords

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StageVisits:
    """The expected items of a node's stage for each request row, and the share of rows with any."""

    items: float
    rows: float


def visits_alone(cascade: Cascade, records: PredictionRecords) -> list[StageVisits]:
    """The visits in a pipeline of one node, where each recorded sample is a request row."""
    rows = np.arange(records.certainty.shape[1])
    return [
        StageVisits(float(coming.mean()), float(coming.mean()))
        for coming, _ in _stages(cascade, records, rows, np.ones(len(rows), dtype=np.bool_))
    ]


def expected_visits(
    nodes: Mapping[str, Node],
    edges: Sequence[Edge],
    cascades: Mapping[str, Cascade],
    records: Mapping[str, PredictionRecords],
    joint: JointRecords,
) -> dict[str, list[StageVisits]]:
    """By node, of each stage of its cascade; `cascades` and `records` are by node too.

    A node that failed or was late is not foreseen. Raises `InvalidInput` where a condition is on
    what was not recorded.
    """
    return _Walk(nodes, edges, records, joint).through(cascades)


class _Walk:
    """Passes the recorded tuples through the graph, node by node.

    A scope is named by its fan-out, "" is the outermost; its slots are that node's items, by their
    numbers in the joint records, or the tuples.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        edges: Sequence[Edge],
        records: Mapping[str, PredictionRecords],
        joint: JointRecords,
    ) -> None:
        self._edges, self._records, self._joint = edges, records, joint
        self._scopes: dict[str, Scope] = scopes_of(nodes, edges)
        self._tuple_of, self._around = joint.tuple_of, joint.item_around
        self._begun: dict[str, Bools] = {}
        self._live: dict[tuple[str, str], list[Bools]] = {}
        """By source and target, whether each edge between them is live in the slots of the source's scope."""

    def through(self, cascades: Mapping[str, Cascade]) -> dict[str, list[StageVisits]]:
        joint, made = self._joint, dict[str, list[StageVisits]]()
        for name, scope in self._scopes.items():
            items = np.flatnonzero(joint.node == joint.nodes.index(name))
            self._begun[name] = self._begins(name, scope)
            slots = np.where(self._around[items] == OUTERMOST, self._tuple_of[items], self._around[items])
            visited = self._begun[name][slots]
            records, rows = self._records[name], joint.row[items].astype(np.int64)
            made[name], answered = [], np.zeros(len(items), dtype=np.int64)
            for coming, model in _stages(cascades[name], records, rows, visited):
                answered[coming] = model
                with_any = len(np.unique(self._tuple_of[items[coming]]))
                made[name].append(StageVisits(int(coming.sum()) / len(joint), with_any / len(joint)))
            own = items if scope.opener == name else slots
            for edge in self._edges:
                if edge.from_ == name:
                    met = visited if edge.when is None else visited & holds(edge.when, records)[answered, rows]
                    self._live.setdefault((name, edge.to), []).append(self._in_slots(scope.opener, own[met]))
        return made

    def _begins(self, name: str, scope: Scope) -> Bools:
        """Whether the node begins in each slot of the scope in which the edges to it are counted."""
        begins = self._in_slots(scope.counted_in, np.zeros(0, dtype=np.int64))
        sources = [edge.from_ for edge in self._edges if edge.to == name]
        if not sources:
            return ~begins
        for source in dict.fromkeys(sources):
            opener = self._scopes[source].opener
            if opener == scope.counted_in:
                for live in self._live[source, name]:
                    begins |= live
                continue
            while self._scopes[opener].counted_in != scope.counted_in:
                opener = self._scopes[opener].counted_in
            begins |= self._begun[opener]
        return begins

    def _in_slots(self, scope: str, slots: Ints) -> Bools:
        chosen = np.zeros(len(self._joint.node) if scope else len(self._joint), dtype=np.bool_)
        chosen[slots] = True
        return chosen


def _stages(cascade: Cascade, records: PredictionRecords, rows: Ints, coming: Bools) -> list[tuple[Bools, int]]:
    """Which items (m,) of samples `rows` come to each stage, and the row of its model in `records`."""
    stages = []
    for stage, model in enumerate(records.rows(cascade.models)):
        stages.append((coming, int(model)))
        if stage < len(cascade.thresholds):
            coming = coming & (records.certainty[model, rows] < cascade.thresholds[stage])
    return stages
