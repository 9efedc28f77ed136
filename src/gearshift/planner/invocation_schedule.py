"""How one gear's load is spread over replicas, and how many waiting requests start a batch.

Ken, section 4.3.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from gearshift.placement import Placement, Replica

NEGLIGIBLE_SHARE = 1e-9
ONE_SECOND = 1 + 1e-9
"""A second of work per second, give or take what rounding does."""


def balanced_shares(
    placement: Placement, rate_qps: Mapping[str, float], run_s: Mapping[str, float]
) -> dict[str, float]:
    """Load shares by replica id that keep devices closest to the average load: the linear program of Eq. 1 and 2.

    `rate_qps` holds the requests per second that reach each model of a cascade, `run_s` each replica's seconds for a
    batch of 1.  The average is of the devices that hold the cascade's models, if each model's load were spread evenly
    over its replicas.  The variables are shares, not rates, and loads are in units of the average: so the solution does
    not depend on the load, and one serves every load range that has the cascade.
    """
    used = [replica for replica in placement.replicas if replica.model in rate_qps]
    device_ids = sorted({d for replica in used for d in replica.device_ids})
    models = sorted(rate_qps)
    if len(used) == len(models):
        return {replica.id: 1.0 for replica in used}
    work_s = np.array([run_s[replica.id] * rate_qps[replica.model] for replica in used])
    replicas_of = {model: sum(replica.model == model for replica in used) for model in models}
    even = np.array([1 / replicas_of[replica.model] for replica in used])
    on_device = _membership([replica.device_ids for replica in used], device_ids)
    average_s = float((on_device @ (work_s * even)).sum()) / len(device_ids)
    load = on_device @ sparse.diags_array(work_s / average_s)
    deviation = sparse.eye_array(len(device_ids))
    per_model = _membership([[replica.model] for replica in used], models)
    above_and_below: Any = sparse.block_array([[load, -deviation], [-load, -deviation]], format="csr")
    all_shared: Any = sparse.hstack([per_model, sparse.csr_array((len(models), len(device_ids)))], format="csr")
    solved = linprog(
        np.concatenate([np.zeros(len(used)), np.ones(len(device_ids))]),
        A_ub=above_and_below,
        b_ub=np.repeat([1.0, -1.0], len(device_ids)),
        A_eq=all_shared,
        b_eq=np.ones(len(models)),
        method="highs",
    )
    found = even if solved.x is None else np.where(solved.x[: len(used)] < NEGLIGIBLE_SHARE, 0, solved.x[: len(used)])
    total = dict.fromkeys(models, 0.0)
    for replica, share in zip(used, found.tolist(), strict=True):
        total[replica.model] += share
    return {replica.id: share / total[replica.model] for replica, share in zip(used, found.tolist(), strict=True)}


@dataclass(frozen=True, slots=True)
class QueueLengths:
    """Minimum queue lengths by replica id, and by how many seconds per second the busiest device is overloaded (0)."""

    minimum: dict[str, int]
    overload_s: float


def minimum_queue_lengths(
    placement: Placement,
    rate_qps: Mapping[str, float],
    run_s: Mapping[str, NDArray[np.float64]],
) -> QueueLengths:
    """Queue lengths raised round-robin from 1 until each device's work fits into one second.

    `rate_qps` and `run_s` by replica id: its requests per second, and its seconds (largest + 1,) for a batch of each
    size up to the largest allowed.  No length is raised past the size where a request takes least.  Where even that
    does not fit, the device is overloaded, and all lengths stay at 1.
    """
    used = [replica for replica in placement.replicas if rate_qps.get(replica.id, 0.0) > 0]
    work_s = {r.id: _work_per_s(rate_qps[r.id], run_s[r.id]) for r in used}
    on_device: dict[str, list[Replica]] = {}
    for replica in used:
        for device_id in replica.device_ids:
            on_device.setdefault(device_id, []).append(replica)
    least = {r.id: len(work_s[r.id]) for r in used}
    length = dict.fromkeys(least, 1)

    def busy_s(device_id: str, lengths: Mapping[str, int]) -> float:
        return sum(work_s[r.id][lengths[r.id] - 1] for r in on_device[device_id])

    overload_s = max((busy_s(d, least) - 1 for d in on_device), default=0.0)
    if overload_s > ONE_SECOND - 1:
        return QueueLengths(length, overload_s)
    turn = dict.fromkeys(on_device, 0)
    while crowded := [d for d in on_device if busy_s(d, length) > ONE_SECOND]:
        for device_id in crowded:
            while busy_s(device_id, length) > ONE_SECOND:
                replica = on_device[device_id][turn[device_id] % len(on_device[device_id])]
                length[replica.id] = min(length[replica.id] + 1, least[replica.id])
                turn[device_id] += 1
    return QueueLengths(length, 0.0)


def _work_per_s(rate_qps: float, run_s: NDArray[np.float64]) -> list[float]:
    """Seconds of work per second at batches of 1, 2, ... up to the size where that is least."""
    work = rate_qps * run_s[1:] / np.arange(1, len(run_s))
    kept: list[float] = work[: int(work.argmin()) + 1].tolist()
    return kept


def _membership(rows: Sequence[Sequence[str]], names: Sequence[str]) -> sparse.csr_array:
    """A matrix (names, rows) with 1 where the row holds the name."""
    index = {name: i for i, name in enumerate(names)}
    cells = [(index[name], row) for row, held in enumerate(rows) for name in held]
    where = np.array(cells).T
    return sparse.csr_array((np.ones(len(cells)), (where[0], where[1])), shape=(len(names), len(rows)))
