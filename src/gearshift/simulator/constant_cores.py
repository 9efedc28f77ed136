"""A plan whose workers keep the cores that they are given: the baseline of every scaler."""

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.hardware import is_cuda, is_remote
from gearshift.plans.plan_tables import PlanTables
from gearshift.plans.workers import scaled_workers
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import scaled_times_ns


def cores_of(plan: GearPlan) -> int | None:
    """The cores of all workers; None if a replica is not on processors or gears change cores."""
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    workers = {replica.device_ids: replica.cores for replica in plan.placement.replicas}
    elsewhere = any(is_cuda(kinds[device]) or is_remote(kinds[device]) for devices in workers for device in devices)
    return None if elsewhere or plan.hardware.pool_cores is not None else sum(workers.values())


def times_on_cores(
    plan: GearPlan, tables: PlanTables, profile: Profile, run_ns: NDArray[np.int64], cores: int
) -> NDArray[np.int64]:
    """`run_ns` (replicas, sizes) with `cores` shared evenly; the first workers get spare ones.

    Times are measured ones, or, between core counts, the performance model's. Raises
    `InvalidInput` for a plan whose cores a scaler could not change either, and for fewer or more
    cores than its workers can have.
    """
    require(
        plan.hardware.pool_cores is None,
        "the gears of the plan have cores of their own, and cannot have others that are constant",
        remedy="leave --scaler-cores out, or give --scaler exact",
    )
    workers = scaled_workers(plan, tables, printed=False)
    share, more = divmod(cores, len(workers))
    require(share >= 1, f"{len(workers)} workers cannot have {cores} cores", remedy="give each a core")
    times = scaled_times_ns(workers, plan, tables, profile, most_cores=share + 1, margin=0.0)
    found = run_ns.copy()
    for i, worker in enumerate(workers):
        own = share + (i < more)
        for number, replica in worker.items():
            medians = times[number][0]
            require(
                own < len(medians),
                f"replica {replica.id!r} is to have {own} cores, and was measured on up to {len(medians) - 1}",
                remedy="give fewer --scaler-cores, or profile it on more",
            )
            found[number] = medians[own]
    return found
