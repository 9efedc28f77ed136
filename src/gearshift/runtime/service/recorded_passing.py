"""Passes recorded items along the edges of graphs, where devices are emulated."""

from collections.abc import Mapping

import msgspec
import numpy as np

from gearshift.gear import GearPlan
from gearshift.model import LABEL, Arrays
from gearshift.pipeline import When
from gearshift.plans.plan_tables import PlanTables
from gearshift.profiles.conditions import CERTAINTY
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.request import Sample
from gearshift.runtime.backends.emulated import SAMPLE
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.service.passing import Condition, rows_taken


class RecordedPassing:
    """A request's `sample` is the number of a recorded tuple, an item's that of a recorded sample.

    `joint` are by pipeline. Conditions are compared with certainty and label of the recorded answer.
    """

    def __init__(self, plan: GearPlan, tables: PlanTables, joint: Mapping[str, JointRecords]) -> None:
        self._joint = joint
        self._conditions = [None if when is None else recorded_condition(when) for when in tables.graph.conditions]
        self._first_node = [pipeline.first_node for pipeline in tables.pipelines]
        self._nodes = [(name, node) for each in plan.pipelines.values() for name, node in each.nodes.items()]
        self._starts = {name: records.begin.tolist() for name, records in joint.items()}

    def holds(self, edge: int, item: Sample) -> bool:
        condition = self._conditions[edge]
        return condition is None or condition.holds(item)

    def rows(self, node: int, scope: Scope) -> int:
        rows, (name, settings) = len(self._places(node, scope)), self._nodes[node]
        assert settings.fan_out is not None
        return rows_taken(rows, settings.fan_out, node, name, scope, of="the tuple")

    def payload(self, node: int, scope: Scope) -> Arrays:
        joint, begin, _ = self._tuple(scope)
        return {SAMPLE: np.array([joint.row[begin + self._place(node, scope)]])}

    def _place(self, node: int, scope: Scope) -> int:
        """The place within its tuple of the item of `node` in `scope`."""
        if scope.opener == node:
            assert scope.around is not None
            return self._places(node, scope.around)[scope.row]
        places = self._places(node, scope)
        if len(places) != 1:
            raise CannotPass(f"the tuple has {len(places)} items of node {self._nodes[node][0]!r} here, needs one")
        return places[0]

    def _places(self, node: int, scope: Scope) -> list[int]:
        joint, begin, end = self._tuple(scope)
        parent = OUTERMOST if scope.around is None else self._place(scope.opener, scope)
        number = node - self._first_node[scope.flow.pipeline.number]
        here = (joint.node[begin:end] == number) & (joint.parent[begin:end] == parent)
        places: list[int] = np.flatnonzero(here).tolist()
        return places

    def _tuple(self, scope: Scope) -> tuple[JointRecords, int, int]:
        """The joint records of the pipeline, and where the items of the request row's tuple begin and end."""
        name, payload = scope.flow.pipeline.name, scope.flow.row.payload
        if name not in self._joint:
            raise CannotPass(f"there are no joint records of pipeline {name!r}")
        number, starts = int(payload[SAMPLE][0]), self._starts[name]  # type: ignore[index]
        if not 0 <= number < len(starts) - 1:
            raise CannotPass(f"tuple {number} is not recorded, there are tuples 0 to {len(starts) - 2}")
        return self._joint[name], starts[number], starts[number + 1]


def recorded_condition(when: When) -> Condition:
    """An output is that which was recorded as the answer."""
    is_of_certainty = when.at_least is not None and when.output == CERTAINTY
    return Condition(when if is_of_certainty else msgspec.structs.replace(when, output=LABEL))
