"""A scaler beside the compiled kernel, which is halted once a period and at shifts: the server's own decision."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import to_ns
from gearshift.decisions import Decision, LogRow
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.plan_tables import PlanTables
from gearshift.policies.demand import Scaling, SharedCores, Waiting, share
from gearshift.policies.gear_cores import cores_in_gear
from gearshift.profiles.performance_model import planned_ns
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import gear_times_ns
from gearshift.simulator.gear_cores import Cores
from gearshift.simulator.queues import NONE, Queues
from gearshift.simulator.state import DECIDED_NS, DONE, GEAR, HALTED_NS, LOGGED, NEVER_NS, Outcome, Plan, State


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
    """Run to the end, choosing cores at every halt by when samples (n,) are due; the whole log."""
    demands, log = shared.demands(), list[LogRow]()
    period_ns = next_ns = to_ns(shared.scaling.period_s)
    replicas, in_gear = len(demands), cores.in_gear.tolist()
    while True:
        run_until(next_ns)
        rows: list[LogRow] = [tuple(row) for row in out.log[: state.numbers[LOGGED]].tolist()]
        state.numbers[LOGGED] = 0
        log += rows
        if state.numbers[DONE] == len(out.finished_ns):
            return log
        for at_ns, kind, sample, replica, _ in rows:
            if kind == Decision.ROUTE:
                demands[replica].arrived(at_ns, int(due_ns[sample]))
        now_ns = int(min(state.numbers[HALTED_NS], next_ns))
        gear = int(state.numbers[GEAR])
        least = [cores_in_gear(in_gear, gear, replicas, replica) for replica in range(replicas)]
        queues = [(_waiting(q, due_ns, r), _free_ns(plan, state, r, now_ns)) for r in range(replicas)]
        cores.wanted[:] = share(demands, queues, now_ns, shared.cores, least=least, idle=least)
        next_ns += period_ns * int(state.numbers[HALTED_NS] == NEVER_NS)
        state.numbers[DECIDED_NS] = now_ns


def _waiting(q: Queues, due_ns: NDArray[np.int64], replica: int) -> list[Waiting]:
    """When each that waits for the replica came there, and when it is due."""
    found, sample = [], int(q.first[replica])
    while sample != NONE:
        found.append((int(q.entered_ns[sample]), int(due_ns[sample])))
        sample = int(q.next[sample])
    return found


def _free_ns(plan: Plan, state: State, replica: int, now_ns: int) -> int:
    """When all devices of the replica should be free."""
    devices = plan.spans[plan.spans_begin[replica] : plan.spans_begin[replica + 1]].tolist()
    return max([now_ns, *(int(state.free_ns[device]) for device in devices if state.busy[device])])


def shared_cores(
    plan: GearPlan, tables: PlanTables, profile: Profile, scaling: Scaling
) -> tuple[SharedCores, list[NDArray[np.int64]]]:
    """The scaler that the server would have of the plan, and the times of its replicas on up to all cores.

    Raises `InvalidInput` for a plan whose gears do not change cores.
    """
    pool = plan.hardware.pool_cores or 0
    medians, p95s = (
        gear_times_ns(plan, tables, profile, statistic=statistic, most_cores=pool) for statistic in ("median", "p95")
    )
    if medians is None or p95s is None:
        raise InvalidInput("a scaler needs a plan whose gears change cores", remedy="plan with --cores")
    planned = [planned_ns(np.maximum(*pair), scaling.margin) for pair in zip(medians, p95s, strict=True)]
    most = [len(table) - 1 for table in medians]
    return SharedCores(scaling, pool, planned, most, medians[0].shape[1] - 1), medians
