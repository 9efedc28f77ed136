"""Passes recorded items along the edges of graphs, where devices are emulated."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gearshift.gear import GearPlan
from gearshift.model import LABEL, Arrays
from gearshift.models.classes import class_name
from gearshift.pipeline import When
from gearshift.plans.plan_tables import PlanTables
from gearshift.profiles.conditions import CERTAINTY
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.request import Sample
from gearshift.runtime.backends.emulated import SAMPLE
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.service.answers import TOO_MANY_ROWS


class RecordedPassing:
    """A request's `sample` is the number of a recorded tuple, an item's that of a recorded sample.

    `joint` are by pipeline. Conditions are compared with certainty and label of the recorded answer.
    """

    def __init__(self, plan: GearPlan, tables: PlanTables, joint: Mapping[str, JointRecords]) -> None:
        self._joint, self._conditions = joint, tables.graph.conditions
        self._first_node = [pipeline.first_node for pipeline in tables.pipelines]
        self._nodes = [(name, node) for each in plan.pipelines.values() for name, node in each.nodes.items()]
        self._starts = {name: records.begin.tolist() for name, records in joint.items()}

    def holds(self, edge: int, item: Sample) -> bool:
        when = self._conditions[edge]
        return when is None or _holds(when, item)

    def rows(self, node: int, scope: Scope) -> int:
        rows, (name, settings) = len(self._places(node, scope)), self._nodes[node]
        assert settings.fan_out is not None
        most = settings.fan_out.most
        if rows > most and settings.fan_out.beyond == "refuse":
            raise CannotPass(f"{TOO_MANY_ROWS}: the tuple has {rows} rows, and node {name!r} takes {most}")
        if rows > most:
            row = scope.flow.row
            row.cut = (*row.cut, (node, rows))
        return min(rows, most)

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


def _holds(when: When, item: Sample) -> bool:
    if when.at_least is not None and when.output == CERTAINTY:
        return item.certainty >= when.at_least
    result: Any = item.result
    if LABEL not in result:
        raise CannotPass(f"the records have no answers, on which an edge has a condition ({when.output!r})")
    label = class_name(result[LABEL][0])
    if when.one_of is not None:
        return label in {class_name(value) for value in when.one_of}
    try:
        return float(label) >= (when.at_least or 0.0)
    except ValueError:
        raise CannotPass(f"the recorded answer {label!r} is no number, and an edge has a condition on it") from None
