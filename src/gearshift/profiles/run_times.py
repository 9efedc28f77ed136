"""How long a batch holds a replica's devices: the one table of simulator and emulated devices."""

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plan_tables import PlanTables
from gearshift.profiles.profile import Profile


def run_times_ns(plan: GearPlan, tables: PlanTables, profile: Profile) -> NDArray[np.int64]:
    """Nanoseconds (replicas, sizes) that a batch of each size holds each replica's devices.

    Raises `InvalidInput` when the profile lacks a replica's run times or a gear's batch is larger than measured.
    """
    replicas = {replica.id: replica for replica in plan.placement.replicas}
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    rows = []
    for r, replica_id in enumerate(tables.replica_ids):
        replica = replicas[replica_id]
        curve = profile.curve(
            replica.model,
            device_kind=kinds[replica.device_ids[0]],
            tensor_parallel=replica.tensor_parallel,
            cores=replica.cores,
        )
        largest = int(tables.largest_batch_size[r :: len(tables.replica_ids)].max())
        require(
            largest <= curve.largest_batch_size,
            f"a gear lets replica {replica_id!r} run batches of {largest}, "
            f"but model {replica.model!r} was profiled to {curve.largest_batch_size}",
            remedy="profile larger batches, or make the plan anew",
        )
        rows.append(curve.table_ns()[: largest + 1])
    table = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for r, row in enumerate(rows):
        table[r, : len(row)] = row
    return table
