"""Cores that the server's scaler changes while the compiled kernel runs, and cores that stay as they are given."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS, to_ns
from gearshift.decisions import Decision, LogRow
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.hardware import is_cuda, is_remote
from gearshift.plans.plan_tables import PlanTables
from gearshift.plans.workers import scaled_workers, shared_pool
from gearshift.policies.cores.demand import MachineDemand, Scaling, SharedCores, Waiting
from gearshift.policies.cores.scaling import cores_in_gear
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import scaled_times_ns
from gearshift.simulator.kernel.gear_cores import Cores
from gearshift.simulator.kernel.queues import NONE, Queues
from gearshift.simulator.kernel.state import Outcome, Plan, State


def serve_scaled(
    shared: SharedCores,
    run_until: Callable[[int], None],
    plan: Plan,
    state: State,
    q: Queues,
    cores: Cores,
    out: Outcome,
    due_ns: NDArray[np.int64],
) -> list[LogRow]:
    """Run to the end; samples (n,) are due at `due_ns`. Returns the whole log."""
    demand, log = MachineDemand(shared), list[LogRow]()
    period_ns = next_ns = to_ns(shared.scaling.period_s)
    replicas, in_gear = len(shared.run_ns), cores.in_gear.tolist()
    while True:
        run_until(next_ns)
        rows: list[LogRow] = [tuple(row) for row in out.log[: state.run.logged].tolist()]
        state.run.logged = 0
        log += rows
        if state.run.done == len(out.finished_ns):
            return log
        for at_ns, kind, sample, replica, _ in rows:
            if kind == Decision.ROUTE:
                demand.arrived(replica, at_ns, int(due_ns[sample]))
        now_ns = int(min(state.run.halted_ns, next_ns))
        is_period, gear = state.run.halted_ns == NEVER_NS, int(state.pipelines[0].gear)
        if is_period or in_gear:
            least = [cores_in_gear(in_gear, gear, replicas, replica) for replica in range(replicas if in_gear else 0)]
            queues = [(_waiting(q, due_ns, r), _free_ns(plan, state, r, now_ns)) for r in range(replicas)]
            cores.wanted[:] = demand.wanted(queues, now_ns, in_gear=least, asked=cores.asked.tolist())
        next_ns += period_ns * int(is_period)
        state.run.decided_ns = now_ns


def most_rows(samples: int, tables: PlanTables) -> int:
    return samples * (3 * tables.most_stages + 2) + 2 * len(tables.replica_ids) + 2


def held_by_log(tables: PlanTables, shared: SharedCores, log: Sequence[LogRow]) -> NDArray[np.int64]:
    leads = [each[0] for each in shared.replicas_of_workers()]
    begun_with = tables.cores if len(tables.cores) else shared.first
    first = sum(int(begun_with[lead]) for lead in leads)
    changes = [(at, wanted - had) for at, kind, r, wanted, had in log if kind == Decision.CORES and r in leads]
    steps = np.array([(0, first), *changes], dtype=np.int64)
    return np.stack([steps[:, 0], np.cumsum(steps[:, 1])], axis=1)


def _waiting(q: Queues, due_ns: NDArray[np.int64], replica: int) -> list[Waiting]:
    found, sample = [], int(q.first[replica])
    while sample != NONE:
        found.append((int(q.entered_ns[sample]), int(due_ns[sample])))
        sample = int(q.next[sample])
    return found


def _free_ns(plan: Plan, state: State, replica: int, now_ns: int) -> int:
    devices = plan.spans[plan.spans_begin[replica] : plan.spans_begin[replica + 1]].tolist()
    return max([now_ns, *(int(state.free_ns[device]) for device in devices if state.busy[device])])


def shared_cores(
    plan: GearPlan, tables: PlanTables, profile: Profile, scaling: Scaling, cores: int | None = None
) -> tuple[SharedCores, list[NDArray[np.int64]]]:
    """The scaler that the server would use for the plan, and run times up to all cores.

    Workers share `cores`, by default the plan's pool, or else the cores that they begin with.
    Raises `InvalidInput` as the server does for a plan that it cannot scale, and for fewer cores
    than the plan needs.
    """
    workers = scaled_workers(plan, tables, printed=scaling.scaler == "paper")
    cores_of = {number: replica.cores for worker in workers for number, replica in worker.items()}
    other = next((name for number, name in enumerate(tables.replica_ids) if number not in cores_of), None)
    require(
        other is None,
        f"replica {other!r} is not on processors, and a scaler is simulated of workers on processors alone",
        remedy="simulate it with --scaler static",
    )
    first = [cores_of[number] for number in range(len(cores_of))]
    pool = shared_pool(workers, tables, plan.hardware.pool_cores if cores is None else cores)
    times = scaled_times_ns(workers, plan, tables, profile, most_cores=pool, margin=scaling.margin)
    medians = [times[number][0] for number in sorted(times)]
    planned = [times[number][1] for number in sorted(times)]
    most, largest = [len(table) - 1 for table in medians], medians[0].shape[1] - 1
    return SharedCores(scaling, pool, planned, most, largest, [[*worker] for worker in workers], first), medians


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
