"""Find the workers of a plan: replicas that take turns on one set of devices."""

from collections.abc import Sequence

from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.hardware import is_cuda, is_remote
from gearshift.placement import Replica
from gearshift.plans.plan_tables import PlanTables

Worker = dict[int, Replica]
"""The replicas that take turns on one set of devices, by number."""

KEEP_CORES = "with --scaler static, and leave --scaler-cores out"
"""Advice to keep the plan's cores; `static` with other cores changes them once."""


def scaled_workers(plan: GearPlan, tables: PlanTables, *, printed: bool) -> list[Worker]:
    """The workers on processors, whose cores may change; `printed` means Sponge's Algorithm 1.

    Raises `InvalidInput` where replicas share some but not all of their devices or have different
    cores, where gears of cores or the printed algorithm meet several replicas on a worker, or
    where no replica is on processors.
    """
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    users: dict[str, Replica] = {}
    found: dict[tuple[str, ...], Worker] = {}
    by_id = {replica.id: replica for replica in plan.placement.replicas}
    for number, replica_id in enumerate(tables.replica_ids):
        replica = by_id[replica_id]
        if any(is_cuda(kinds[device]) or is_remote(kinds[device]) for device in replica.device_ids):
            continue
        found.setdefault(replica.device_ids, {})[number] = replica
        for device in replica.device_ids:
            other = users.setdefault(device, replica)
            require(
                other.device_ids == replica.device_ids,
                f"replicas {other.id!r} and {replica_id!r} share device {device!r}, but not all of their devices",
                remedy=f"serve a plan whose replicas share all devices or none, or {KEEP_CORES}",
            )
            require(
                other.cores == replica.cores,
                f"replicas {other.id!r} and {replica_id!r} share a worker, of {other.cores} and {replica.cores} cores",
                remedy="give both the same number of cores in the plan",
            )
            require(
                other is replica or plan.hardware.pool_cores is None,
                f"replicas {other.id!r} and {replica_id!r} share a worker, and gears of cores need one for each",
                remedy="plan anew with `gearshift plan --cores`",
            )
            require(
                other is replica or not printed,
                f"replicas {other.id!r} and {replica_id!r} share a worker, and the printed algorithm knows one model",
                remedy="serve with --scaler exact, or a plan with a device for each replica",
            )
    if not found:
        raise InvalidInput("no replica is on processors", remedy=f"serve {KEEP_CORES}")
    return [*found.values()]


def cores_in_gears(workers: Sequence[Worker], tables: PlanTables) -> list[list[int]]:
    """The cores of each worker, gear by gear; empty where gears do not change cores."""
    by_gear = tables.cores.reshape(-1, len(tables.replica_ids))
    return [[int(row[[*worker]].max()) for worker in workers] for row in by_gear]


def shared_pool(workers: Sequence[Worker], tables: PlanTables, given: int | None) -> int:
    """The number of cores that workers share: `given`, or else as many as the plan needs.

    That is the largest sum over the gears, or, where gears do not change cores, the cores that
    workers begin with. Raises `InvalidInput` where fewer are given.
    """
    in_gears = cores_in_gears(workers, tables)
    needed = max(map(sum, in_gears), default=sum(next(iter(worker.values())).cores for worker in workers))
    require(
        given is None or needed <= given,
        f"the plan {'has gears of' if in_gears else 'begins with'} {needed} cores, and replicas share {given}",
        remedy="give more --scaler-cores, or plan for fewer",
    )
    return needed if given is None else given
