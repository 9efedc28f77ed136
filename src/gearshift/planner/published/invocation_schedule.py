"""Spread a gear's load over replicas, and set how many waiting requests start a batch.

Ken, section 4.3.3.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from gearshift.placement import Placement, Replica

Ints = NDArray[np.int64]

NEGLIGIBLE_SHARE = 1e-9
ONE_SECOND = 1 + 1e-9
"""A second of work per second, with room for rounding."""


def balanced_shares(
    placement: Placement, rate_qps: Mapping[str, float], run_s: Mapping[str, float]
) -> dict[str, float]:
    """Load shares by replica id that keep devices closest to the average load (Eq. 1 and 2).

    `rate_qps` holds the requests per second that reach each model of a cascade, `run_s` each
    replica's seconds for a batch of 1. The average is over the devices that hold the cascade's
    models, with each model's load spread evenly. Loads are in units of the average, so one
    solution of the linear program serves every load range that has the cascade.
    """
    used = [replica for replica in placement.replicas if replica.model in rate_qps]
    models = sorted(rate_qps)
    if len(used) == len(models):
        return {replica.id: 1.0 for replica in used}
    row = {d: i for i, d in enumerate(sorted({d for replica in used for d in replica.device_ids}))}
    devices, replicas = len(row), len(used)
    replicas_of = {model: sum(replica.model == model for replica in used) for model in models}
    even = np.array([1 / replicas_of[replica.model] for replica in used])
    work_s = np.array([run_s[replica.id] * rate_qps[replica.model] for replica in used])
    device, held = np.array([(row[d], r) for r, replica in enumerate(used) for d in replica.device_ids]).T
    load = work_s[held] / ((work_s * even)[held].sum() / devices)
    each, ones = np.arange(devices), np.ones(devices)
    solved = linprog(
        np.repeat([0.0, 1.0], [replicas, devices]),
        A_ub=_matrix(
            np.concatenate([load, -load, -ones, -ones]),
            np.concatenate([device, devices + device, each, devices + each]),
            np.concatenate([held, held, replicas + each, replicas + each]),
            (2 * devices, replicas + devices),
        ),
        b_ub=np.repeat([1.0, -1.0], devices),
        A_eq=_matrix(
            np.ones(replicas),
            np.array([models.index(replica.model) for replica in used]),
            np.arange(replicas),
            (len(models), replicas + devices),
        ),
        b_eq=np.ones(len(models)),
        method="highs",
    )
    found = even if solved.x is None else np.where(solved.x[:replicas] < NEGLIGIBLE_SHARE, 0, solved.x[:replicas])
    total = dict.fromkeys(models, 0.0)
    for replica, share in zip(used, found.tolist(), strict=True):
        total[replica.model] += share
    return {replica.id: share / total[replica.model] for replica, share in zip(used, found.tolist(), strict=True)}


def least_busy_s(
    placement: Placement, rate_qps: Mapping[str, float], run_s: Mapping[str, NDArray[np.float64]]
) -> float:
    """Seconds of work per second of the busiest device, at the most efficient batch sizes.

    `rate_qps` and `run_s` as for `minimum_queue_lengths`. Proportional to the load.
    """
    busy_s: dict[str, float] = {}
    for replica in placement.replicas:
        rate = rate_qps.get(replica.id, 0.0)
        if rate > 0:
            work_s = _work_per_s(rate, run_s[replica.id])[-1]
            for device_id in replica.device_ids:
                busy_s[device_id] = busy_s.get(device_id, 0.0) + work_s
    return max(busy_s.values(), default=0.0)


def minimum_queue_lengths(
    placement: Placement,
    rate_qps: Mapping[str, float],
    run_s: Mapping[str, NDArray[np.float64]],
) -> dict[str, int]:
    """Queue lengths by replica id, raised until each device's work fits in one second.

    They rise round-robin from 1. `rate_qps` and `run_s` by replica id: requests per second, and
    seconds (largest + 1,) for a batch of each size. No length rises past the most efficient size.
    Where even that does not fit on some device, all lengths stay at 1.
    """
    used = [replica for replica in placement.replicas if rate_qps.get(replica.id, 0.0) > 0]
    work_s = {r.id: _work_per_s(rate_qps[r.id], run_s[r.id]) for r in used}
    on_device: dict[str, list[Replica]] = {}
    for replica in used:
        for device_id in replica.device_ids:
            on_device.setdefault(device_id, []).append(replica)
    least = {r.id: len(work_s[r.id]) for r in used}
    length = dict.fromkeys(least, 1)

    def busy_s(device_id: str) -> float:
        return sum(work_s[r.id][length[r.id] - 1] for r in on_device[device_id])

    if least_busy_s(placement, rate_qps, run_s) > ONE_SECOND:
        return length
    turn = dict.fromkeys(on_device, 0)
    while crowded := [d for d in on_device if busy_s(d) > ONE_SECOND]:
        for device_id in crowded:
            while busy_s(device_id) > ONE_SECOND:
                replica = on_device[device_id][turn[device_id] % len(on_device[device_id])]
                length[replica.id] = min(length[replica.id] + 1, least[replica.id])
                turn[device_id] += 1
    return length


def _work_per_s(rate_qps: float, run_s: NDArray[np.float64]) -> list[float]:
    work = rate_qps * run_s[1:] / np.arange(1, len(run_s))
    kept: list[float] = work[: int(work.argmin()) + 1].tolist()
    return kept


def _matrix(values: NDArray[np.float64], rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    return sparse.csr_array((values, (rows, columns)), shape=shape)
