"""What flows along the edges of graphs, answered from joint records in place of models' outputs."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.request import Sample
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.router.graph import Scope
from gearshift.workload import Workload


class RecordedPassing:
    """An item's payload is its recorded sample; `holds` (edges, models, records) are the conditions."""

    def __init__(
        self, plan: GearPlan, joint: Mapping[str, JointRecords], holds: NDArray[np.bool_], workload: Workload
    ) -> None:
        self._records, self._holds, self._workload = joint, holds, workload
        self._pipelines = plan_tables(plan).pipelines
        self._fan_outs = [node.fan_out for pipeline in plan.pipelines.values() for node in pipeline.nodes.values()]

    def holds(self, edge: int, item: Sample) -> bool:
        return bool(self._holds[edge, item.model, item.payload])

    def rows(self, node: int, scope: Scope) -> int:
        rows, fan_out = len(self._places(node, scope)), self._fan_outs[node]
        assert fan_out is not None
        if rows > fan_out.most and fan_out.beyond == "refuse":
            raise CannotPass(f"there are {rows} rows, and at most {fan_out.most} may be")
        return min(rows, fan_out.most)

    def payload(self, node: int, scope: Scope) -> int:
        joint, begin = self._of(scope)
        return int(joint.row[begin + self._place(node, scope)])

    def _place(self, node: int, scope: Scope) -> int:
        """The place within its tuple of the item of `node` in `scope`."""
        if scope.opener == node:
            assert scope.around is not None
            return self._places(node, scope.around)[scope.row]
        (place,) = self._places(node, scope)
        return place

    def _places(self, node: int, scope: Scope) -> list[int]:
        joint, begin = self._of(scope)
        parent = OUTERMOST if scope.around is None else self._place(scope.opener, scope)
        end = int(joint.begin[int(self._workload.record[scope.flow.row.sequence]) + 1])
        number = node - self._pipelines[scope.flow.pipeline.number].first_node
        here = (joint.node[begin:end] == number) & (joint.parent[begin:end] == parent)
        return [int(place) for place in np.flatnonzero(here)]

    def _of(self, scope: Scope) -> tuple[JointRecords, int]:
        """The joint records of the scope's pipeline, and the first item of its tuple."""
        joint = self._records[scope.flow.pipeline.name]
        return joint, int(joint.begin[self._workload.record[scope.flow.row.sequence]])
