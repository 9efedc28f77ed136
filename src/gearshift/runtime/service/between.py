"""The memory of what requests make between the nodes of their graphs: counted with all that a service holds."""

from collections.abc import Mapping
from typing import Any

from gearshift.model import Arrays
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.service.answers import no_room
from gearshift.runtime.service.room import HeldBytes, bytes_of, has_room


class BetweenNodes:
    """Counts items and outputs of nodes in `held`; implements `flows.Memory`."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held

    def hold(self, own_bytes: int, more_bytes: int) -> None:
        """Hold more for a row that holds `own_bytes`; raises `CannotPass` where there is no room."""
        if not has_room(self._held, more_bytes):
            raise CannotPass(no_room(own_bytes + more_bytes, self._held))
        self._held.held_bytes += more_bytes

    def give_back(self, held_bytes: int) -> None:
        self._held.held_bytes -= held_bytes

    def of_result(self, result: object) -> int:
        return bytes_of(result) if isinstance(result, Mapping) else 0

    def of_gathered(self, payload: object) -> int:
        """Bytes of inputs that were put together from the rows of a fan-out; their texts are those of the rows."""
        arrays: Arrays | Any = payload
        return sum(array.nbytes for array in arrays.values()) if isinstance(arrays, Mapping) else 0
