"""The items that a simulation made in graphs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    ended: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.node)

    @property
    def answered(self) -> NDArray[np.bool_]:
        return self.gear >= 0

    def of_rows(self, wanted: NDArray[np.bool_]) -> "Items":
        """The items of the wanted request rows (n,), which are numbered anew."""
        own = wanted[self.row]
        number = np.cumsum(wanted) - 1
        return Items(
            node=self.node[own],
            row=number[self.row[own]].astype(np.int32),
            record=self.record[own],
            model=self.model[own],
            gear=self.gear[own],
            ended=self.ended[own],
        )


def items_of(state: State, out: Outcome, rows: int) -> Items:
    made = slice(rows, rows + int(state.run.made))
    gear = out.gear[made]
    return Items(
        node=state.node[made],
        row=state.row[made],
        record=state.record[made],
        model=np.where(gear >= 0, out.model[made], -1).astype(np.int8),
        gear=gear,
        ended=out.ended[made],
    )
