"""Load shares that spread a cascade's work over devices as evenly as the placement allows.

Each model in turn is poured over its replicas like water over an uneven floor: the level of a
replica is how busy the other models keep its devices, and pouring raises all replicas under water
to one level. Repeated until nothing moves, this minimises the sum of squared levels, which on
devices of one kind also minimises the highest: the least `u` of the load-balancing program of
CascadeServe (section 4.4, Eq. 1-3) and Ken (Eq. 1-2), without leaving any device busier than it
must be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.placement import Placement

ROUNDS = 200
PRECISION = 1e-9


@dataclass(frozen=True, slots=True)
class Balance:
    """Load shares by replica id, and the busiest device's device-seconds per request."""

    shares: dict[str, float]
    utilisation_per_qps: float


def balanced(placement: Placement, work_s: Mapping[str, float], reach: Mapping[str, float]) -> Balance:
    """Balance a cascade whose models are reached by the shares `reach` of the requests.

    `work_s` is seconds per request, by replica id.
    """
    devices = {d: i for i, d in enumerate(sorted({d for r in placement.replicas for d in r.device_ids}))}
    level = np.zeros(len(devices))
    parts = []
    for model, share in reach.items():
        replicas = [r for r in placement.replicas if r.model == model]
        cost = np.array([share * work_s[r.id] for r in replicas])
        parts.append(_Part([r.id for r in replicas], [[devices[d] for d in r.device_ids] for r in replicas], cost))
        parts[-1].add_to(level, 1.0)
    for _ in range(ROUNDS):
        moved = 0.0
        for part in parts:
            before = part.poured
            part.add_to(level, -1.0)
            part.poured = _pour(part.floor(level), part.cost)
            part.add_to(level, 1.0)
            moved = max(moved, float(np.abs(part.poured - before).max()))
        if moved < PRECISION or len(parts) == 1:
            break
    shares = {id_: float(x) for part in parts for id_, x in zip(part.ids, part.poured, strict=True)}
    return Balance(shares, float(level.max(initial=0.0)))


class _Part:
    """One model's replicas, their `cost` per request per second, and the share `poured` on each."""

    def __init__(self, ids: list[str], spans: Sequence[Sequence[int]], cost: NDArray[np.float64]) -> None:
        self.ids, self.cost = ids, cost
        self.poured = np.full(len(ids), 1 / len(ids))
        lengths = [len(span) for span in spans]
        self._device = np.array([device for span in spans for device in span])
        self._begin = np.concatenate([[0], np.cumsum(lengths[:-1])]).astype(np.int64)
        self._replica = np.repeat(np.arange(len(spans)), lengths)

    def add_to(self, level: NDArray[np.float64], sign: float) -> None:
        level[self._device] += sign * (self.poured * self.cost)[self._replica]

    def floor(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        highest: NDArray[np.float64] = np.maximum.reduceat(level[self._device], self._begin)
        return highest


def _pour(floor: NDArray[np.float64], cost: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares (n,) with sum 1 that bring all replicas with a share to one level."""
    if not (cost > 0).all():
        return np.full(len(cost), 1 / len(cost))
    order = np.argsort(floor, kind="stable")
    speed = np.cumsum(1 / cost[order])
    under = np.cumsum(floor[order] / cost[order])
    surface = (1 + under) / speed
    wet = np.flatnonzero(surface > floor[order])[-1]
    poured = np.maximum(0.0, surface[wet] - floor) / cost
    shares: NDArray[np.float64] = poured / poured.sum()
    return shares
