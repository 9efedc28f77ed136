"""How long a batch holds a replica's devices: the one table of simulator and emulated devices."""

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.placement import Replica
from gearshift.plan_tables import PlanTables
from gearshift.profiles.performance_model import Statistic
from gearshift.profiles.profile import Profile


def run_times_ns(plan: GearPlan, tables: PlanTables, profile: Profile) -> NDArray[np.int64]:
    """Nanoseconds (replicas, sizes) that a batch of each size holds each replica's devices.

    Raises `InvalidInput` when the profile lacks a replica's run times or a gear's batch is larger than measured.
    """
    replicas = {replica.id: replica for replica in plan.placement.replicas}
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    largest = tables.largest_batch_size.reshape(-1, len(tables.replica_ids)).max(axis=0)
    known: dict[tuple[str, str, int, int], NDArray[np.int64]] = {}
    table = np.zeros((len(largest), int(largest.max()) + 1), dtype=np.int64)
    for r, replica_id in enumerate(tables.replica_ids):
        replica = replicas[replica_id]
        key = replica.model, kinds[replica.device_ids[0]], replica.tensor_parallel, replica.cores
        if key not in known:
            model, kind, tensor_parallel, cores = key
            curve = profile.curve(model, device_kind=kind, tensor_parallel=tensor_parallel, cores=cores)
            known[key] = curve.table_ns()
        row = known[key]
        require(
            largest[r] < len(row),
            f"a gear lets replica {replica_id!r} run batches of {largest[r]}, "
            f"but model {replica.model!r} was profiled to {len(row) - 1}",
            remedy="profile larger batches, or make the plan anew",
        )
        table[r, : largest[r] + 1] = row[: largest[r] + 1]
    return table


def core_table_ns(
    replica: Replica, device_kind: str, profile: Profile, *, most_cores: int, largest: int, statistic: Statistic
) -> NDArray[np.int64]:
    """Nanoseconds (cores + 1, largest + 1) that a batch holds a replica on every count of cores, overheads included.

    Up to `most_cores`, or as many as were measured.  Measured medians are taken as they are; the performance model
    fills what lies between.  Raises `InvalidInput` where cores were not varied, from 1 on, or batches are too large.
    """
    key = {"device_kind": device_kind, "tensor_parallel": replica.tensor_parallel}
    model = profile.performance_model(replica.model, **key, statistic=statistic)  # type: ignore[arg-type]
    require(
        model.cores[0] == 1,
        f"model {replica.model!r} was profiled on {model.cores[0]} cores and more",
        remedy="profile it on 1 core too, so that a scaler knows what the fewest cores are good for",
    )
    there = sorted({curve.cores for curve in profile.curves if curve.model == replica.model})
    measured = {cores: profile.curve(replica.model, **key, cores=cores) for cores in there}  # type: ignore[arg-type]
    table = model.table_ns(
        most_cores=min(most_cores, model.cores[-1]),
        largest_batch_size=largest,
        overhead_per_batch_s=measured[1].overhead_per_batch_s,
        overhead_per_request_s=measured[1].overhead_per_request_s,
    )
    if statistic == "median":
        for cores, curve in measured.items():
            if cores < len(table):
                table[cores] = curve.table_ns()[: largest + 1]
    return table


def fastest_ns(tables: PlanTables, run_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nanoseconds (models,) of one sample on the fastest replica of each model, by `run_ns` (replicas, sizes)."""
    return np.minimum.reduceat(run_ns[:, 1], tables.model_begin[:-1])
