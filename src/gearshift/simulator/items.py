"""The items that a simulation made in graphs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gearshift.plans.plan_tables import PipelineTables
from gearshift.simulator.kernel.state import Outcome, State


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Items:
    """Items (m,) in the order in which they were made: `node`, request row, recorded sample.

    `model` answered, in gear `gear` of the pipeline; both are -1 where an item had no answer, or
    its request row ended before.
    """

    node: NDArray[np.int16]
    row: NDArray[np.int32]
    record: NDArray[np.int32]
    model: NDArray[np.int8]
    gear: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.node)

    @property
    def answered(self) -> "Items":
        return self._those(self.gear >= 0)

    def of_rows(self, wanted: NDArray[np.bool_]) -> "Items":
        """The items of the wanted request rows (n,), which are numbered anew."""
        own = self._those(wanted[self.row])
        number = np.cumsum(wanted) - 1
        return replace(own, row=number[own.row].astype(np.int32))

    def _those(self, wanted: NDArray[np.bool_]) -> "Items":
        return Items(
            node=self.node[wanted],
            row=self.row[wanted],
            record=self.record[wanted],
            model=self.model[wanted],
            gear=self.gear[wanted],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVisits:
    """The `items` made at a node, and how many of them each model answered."""

    items: int
    answered: dict[str, int]


def visits(items: Items, pipeline: PipelineTables, models: Sequence[str]) -> dict[str, NodeVisits]:
    """By node, from the items of this pipeline."""
    found = {}
    for place, name in enumerate(pipeline.nodes):
        here = items.model[items.node == pipeline.first_node + place]
        found[name] = visits_of(len(here), here[here >= 0], models)
    return found


def visits_of(items: int, answered_by: NDArray[np.int8], models: Sequence[str]) -> NodeVisits:
    counts = np.bincount(answered_by, minlength=len(models)).tolist()
    return NodeVisits(items=items, answered={model: n for model, n in zip(models, counts, strict=True) if n})


def items_of(state: State, out: Outcome, rows: int) -> Items:
    made = slice(rows, rows + int(state.run.made))
    gear = out.gear[made]
    return Items(
        node=state.node[made],
        row=state.row[made],
        record=state.record[made],
        model=np.where(gear >= 0, out.model[made], -1).astype(np.int8),
        gear=gear,
    )
