"""The kernel's steps for learned caches: a batch shrinks from exit to exit.

The samples left in a batch are the chain of `state.batch`:

    samples     a b c d e                 exits of the samples  2 0 2 1 0
    segment 0   a b c d e, for 5          b and e leave after it
    segment 1   a c d, for 3              d leaves
    segment 2   a c, for 2                the device is free
"""

from gearshift.clock import NEVER_NS
from gearshift.simulator.kernel.queues import NONE, Queues
from gearshift.simulator.kernel.state import Plan, State
from gearshift.support.compiled import apart


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
