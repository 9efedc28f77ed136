"""A scaler beside the compiled kernel, which is halted once a period and at shifts: the server's own decision."""

from collections.abc import Callable

from gearshift.clock import to_ns
from gearshift.decisions import Decision, LogRow
from gearshift.policies.demand import SharedCores, Waiting, share
from gearshift.policies.gear_cores import cores_in_gear
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
) -> list[LogRow]:
    """Run to the end, choosing cores at every halt; the whole log."""
    demands, log = shared.demands(), list[LogRow]()
    period_ns = next_ns = to_ns(shared.scaling.period_s)
    replicas = len(demands)
    while True:
        run_until(next_ns)
        rows: list[LogRow] = [tuple(row) for row in out.log[: state.numbers[LOGGED]].tolist()]
        state.numbers[LOGGED] = 0
        log += rows
        if state.numbers[DONE] == len(out.finished_ns):
            return log
        for at_ns, kind, sample, replica, _ in rows:
            if kind == Decision.ROUTE:
                demands[replica].arrived(at_ns, int(state.deadline_ns[sample]))
        now_ns = int(min(state.numbers[HALTED_NS], next_ns))
        gear = int(state.numbers[GEAR])
        least = [cores_in_gear(cores.in_gear.tolist(), gear, replicas, replica) for replica in range(replicas)]
        queues = [(_waiting(state, q, r), _free_ns(plan, state, r, now_ns)) for r in range(replicas)]
        cores.wanted[:] = share(demands, queues, now_ns, shared.cores, least=least, idle=least)
        next_ns += period_ns * int(state.numbers[HALTED_NS] == NEVER_NS)
        state.numbers[DECIDED_NS] = now_ns


def _waiting(state: State, q: Queues, replica: int) -> list[Waiting]:
    """When each that waits for the replica came there, and its deadline."""
    found, sample = [], int(q.first[replica])
    while sample != NONE:
        found.append((int(q.entered_ns[sample]), int(state.deadline_ns[sample])))
        sample = int(q.next[sample])
    return found


def _free_ns(plan: Plan, state: State, replica: int, now_ns: int) -> int:
    """When all devices of the replica should be free."""
    devices = plan.spans[plan.spans_begin[replica] : plan.spans_begin[replica + 1]].tolist()
    return max([now_ns, *(int(state.free_ns[device]) for device in devices if state.busy[device])])
