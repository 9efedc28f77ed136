"""The processors that a machine's workers share under a scaler, each held by one at most."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from gearshift.hardware import Hardware
from gearshift.runtime.backends.local import assign_cores


class CorePool:
    """Processors, and their holders: `held` at first, by the number of the worker."""

    def __init__(self, processors: Sequence[int], held: Mapping[int, Sequence[int]]) -> None:
        self.held = {worker: tuple(mine) for worker, mine in held.items()}
        taken = {processor for mine in self.held.values() for processor in mine}
        self._free = sorted(set(processors) - taken)

    def __len__(self) -> int:
        return len(self._free) + sum(map(len, self.held.values()))

    def held_by(self, worker: int) -> tuple[int, ...]:
        return self.held.get(worker, ())

    def resize(self, worker: int, count: int) -> tuple[int, ...]:
        """Give the worker `count` processors, or fewer if no more are free, and return them.

        It keeps its own; the highest free ones are added first, and the last added go first.
        """
        mine = [*self.held[worker]]
        while len(mine) > count:
            self._free.append(mine.pop())
        self._free.sort()
        while len(mine) < count and self._free:
            mine.append(self._free.pop())
        self.held[worker] = tuple(mine)
        return self.held[worker]


def processors_for(cores: float, core_share: float) -> int:
    """Whole processors for this many profiled cores, each of which is `core_share` of one."""
    return max(1, math.ceil(round(cores * core_share, 6)))


def on_processors(hardware: Hardware, core_share: float) -> Hardware:
    return Hardware(
        devices=tuple(
            msgspec.structs.replace(device, cores=processors_for(device.cores, core_share))
            for device in hardware.devices
        )
    )


def pooled_cores(
    hardware: Hardware, available: Sequence[int], core_share: float
) -> tuple[dict[str, frozenset[int]], tuple[int, ...], frozenset[int]]:
    """The processors that devices start with, those that they share, and the router's.

    The router has the lowest; if devices start with all there are, it shares them. Raises
    `InvalidInput` if devices need more than there are.
    """
    first = assign_cores(on_processors(hardware, core_share), available)
    taken = frozenset().union(*first.values())
    lowest = min(available)
    pool = frozenset(available) if lowest in taken else frozenset(available) - {lowest}
    return first, tuple(sorted(pool)), frozenset({lowest})
