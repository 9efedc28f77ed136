"""What flows along edges, answered from joint records: the payload of an item is its number in them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import PlanTables
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.request import Sample
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.router.graph import Scope
from gearshift.workload import Workload


class RecordedPassing:
    def __init__(
        self,
        plan: GearPlan,
        tables: PlanTables,
        joint: Mapping[str, JointRecords],
        holds: NDArray[np.bool_],
        workload: Workload,
    ) -> None:
        self._tables, self._holds, self._tuple_of = tables, holds, workload.record
        self._fan_outs = [node.fan_out for pipeline in plan.pipelines.values() for node in pipeline.nodes.values()]
        self._joint = [joint.get(pipeline.name) for pipeline in tables.pipelines]
        self._items: dict[tuple[int, int, int, int], list[int]] = {}
        for pipeline, records in zip(tables.pipelines, self._joint, strict=True):
            if records is not None:
                assert records.nodes == pipeline.nodes
                columns = (records.tuple_of, records.node + pipeline.first_node, records.item_around)
                for item, key in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
                    self._items.setdefault((pipeline.number, *key), []).append(item)
        self._item_of: dict[Scope, int] = {}

    def record(self, item: Sample) -> int:
        """The recorded sample of an item of a graph, or of a request row elsewhere."""
        joint = self._joint[item.request.pipeline]
        return int(self._tuple_of[item.sequence] if joint is None else joint.row[item.payload])

    def _recorded(self, node: int, scope: Scope) -> list[int]:
        """Items of `node` within a scope, which is the one in which its edges are counted."""
        row = scope.flow.row
        around = OUTERMOST if scope.around is None else self._item_of[scope]
        return self._items.get((row.request.pipeline, int(self._tuple_of[row.sequence]), node, around), [])

    def holds(self, edge: int, item: Sample) -> bool:
        if self._tables.graph.conditions[edge] is None:
            return True
        return bool(self._holds[edge, item.model, self.record(item)])

    def rows(self, node: int, scope: Scope) -> int:
        fan_out, rows = self._fan_outs[node], len(self._recorded(node, scope))
        assert fan_out is not None
        if rows > fan_out.most and fan_out.beyond == "refuse":
            raise CannotPass(f"{rows} rows are too many")
        return min(rows, fan_out.most)

    def payload(self, node: int, scope: Scope) -> object:
        if self._fan_outs[node] is None:
            (item,) = self._recorded(node, scope)
            return item
        assert scope.around is not None
        self._item_of[scope] = self._recorded(node, scope.around)[scope.row]
        return self._item_of[scope]
