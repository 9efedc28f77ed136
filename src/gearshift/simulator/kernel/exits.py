"""Batches that run, and those of learned caches, which shrink from exit to exit.

The samples left in a batch are the chain of `state.batch`:

    samples     a b c d e                 exits of the samples  2 0 2 1 0
    segment 0   a b c d e, for 5          b and e leave after it
    segment 1   a c d, for 3              d leaves
    segment 2   a c, for 2                the device is free
"""

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.simulator.kernel.queues import NONE, Queues
from gearshift.simulator.kernel.state import Outcome, Plan, Settings, State, lasts_ns, note_end, write
from gearshift.support.compiled import apart, inlined

START, TAKE = int(decisions.Decision.START), int(decisions.Decision.TAKE)


@apart
def until_next_exit_ns(plan: Plan, state: State, q: Queues, replica: int, done: int) -> int:
    """How long the batch runs on from segment `done` until samples leave; notes that exit."""
    model = plan.replica_model[replica]
    sample, left = state.batch[replica], state.batch_length[replica]
    next_exit = NEVER_NS
    for _ in range(left):
        next_exit = min(next_exit, plan.exit_segment[model, state.record[sample]])
        sample = q.next[sample]
    state.exit[replica] = next_exit
    run_ns = 0
    for segment in range(done, next_exit + 1):
        run_ns += plan.segment_ns[replica, segment, left]
    return run_ns


@apart
def take_leaving(plan: Plan, state: State, q: Queues, replica: int) -> int:
    """Unchain the leaving samples from the replica's batch; returns their first."""
    model = plan.replica_model[replica]
    sample = state.batch[replica]
    first = last = kept_first = kept_last = NONE
    kept = 0
    for _ in range(state.batch_length[replica]):
        after = q.next[sample]
        if plan.exit_segment[model, state.record[sample]] == state.exit[replica]:
            if last == NONE:
                first = sample
            else:
                q.next[last] = sample
            last = sample
        else:
            if kept_last == NONE:
                kept_first = sample
            else:
                q.next[kept_last] = sample
            kept_last = sample
            kept += 1
        sample = after
    state.batch[replica], state.batch_length[replica] = kept_first, kept
    return first


@inlined
def touch_device(state: State, device: int) -> None:
    if state.busy[device] == 0 and state.is_touched[device] == 0:
        state.is_touched[device] = 1
        state.touched[state.run.touched] = device
        state.run.touched += 1


@apart
def run_to_next_exit(plan: Plan, state: State, q: Queues, out: Outcome, replica: int, done: int, now_ns: int) -> None:
    run_ns = lasts_ns(state, replica, until_next_exit_ns(plan, state, q, replica, done))
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        out.busy_ns[plan.spans[i]] += run_ns
    note_end(state, plan.spans[plan.spans_begin[replica]], now_ns + run_ns)


@inlined
def run_batch(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    replica: int,
    size: int,
    reason: int,
    now_ns: int,
) -> None:
    """Run the samples that are chained from `state.batch[replica]`."""
    state.batch_length[replica] = size
    run_ns = plan.run_ns[replica, size]
    if settings.slowdown:
        state.slowdown.started_ns[replica] = now_ns
        state.slowdown.expected_ns[replica] = plan.expected_ns[replica, size]
    if state.run_factors.shape[0] > 0:
        state.run_factor[replica] = state.run_factors[state.run.started % state.run_factors.shape[0]]
        state.run.started += 1
    busy_ns = lasts_ns(state, replica, run_ns)
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        device = plan.spans[i]
        state.busy[device] = 1
        state.wakes_ns[device] = NEVER_NS
        if settings.by_deadline is None or not settings.by_exit:
            out.busy_ns[device] += busy_ns
        if settings.by_deadline is not None:
            state.free_ns[device] = now_ns + run_ns
    lead = plan.spans[plan.spans_begin[replica]]
    state.ending[lead] = replica
    if settings.by_deadline is not None and settings.by_exit:
        run_to_next_exit(plan, state, q, out, replica, 0, now_ns)
    else:
        note_end(state, lead, now_ns + busy_ns)
    out.batches[replica, size] += 1
    if out.log.shape[0] > 0:
        write(state, out, now_ns, START, replica, size, reason)
        sample = state.batch[replica]
        for _ in range(size):
            write(state, out, now_ns, TAKE, replica, sample, 0)
            sample = q.next[sample]
