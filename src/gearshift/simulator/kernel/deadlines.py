"""The kernel's steps for deadlines: `runtime/router/by_deadline.py` on arrays."""

from typing import Any

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import batching
from gearshift.policies import deadlines as policies
from gearshift.simulator.kernel import queues as queues_module
from gearshift.simulator.kernel.queues import NONE, Queues
from gearshift.simulator.kernel.state import (
    Outcome,
    Plan,
    Settings,
    State,
    finish,
    goes_on,
    is_item,
    leave_request,
    pipeline_of,
    waits_no_more,
    write,
)
from gearshift.support.compiled import apart, inlined

DROP, DEGRADE = int(decisions.Decision.DROP), int(decisions.Decision.DEGRADE)
DEGRADED = int(decisions.Ending.DEGRADED)
RUN, NEXT_GIVES_WAY = policies.RUN, policies.NEXT_GIVES_WAY

batch_size = inlined(batching.batch_size)
in_time = inlined(policies.in_time)
gives_up_ns = inlined(policies.gives_up_ns)
goes_first = inlined(policies.goes_first)
start_by_ns = inlined(policies.start_by_ns)
why_dropped = inlined(policies.why_dropped)
when_limited = inlined(policies.when_limited)
head, remove, next_out, take = queues_module.head, queues_module.remove, queues_module.next_out, queues_module.take


@inlined
def spans_busy_device(plan: Plan, state: State, replica: int) -> bool:
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        if state.busy[plan.spans[i]] != 0:
            return True
    return False


@inlined
def may_drop(settings: Settings, state: State, sample: int) -> bool:
    """Whether the sample has an answer already, or may be refused."""
    return settings.refuses or state.visited[sample] != 0


@inlined
def degrade(settings: Settings, state: State, q: Queues, out: Outcome, sample: int, now_ns: int) -> None:
    gear = state.pipelines[pipeline_of(settings, state, sample)].gear
    if is_item(settings, sample):
        goes_on(state, q.next, sample)
    else:
        finish(settings, state, out, sample, now_ns)
        state.run.done += 1
    out.gear[sample] = gear
    out.ended[sample] = DEGRADED
    write(state, out, now_ns, DEGRADE, sample, out.model[sample], gear)


@apart
def end_early(
    settings: Settings, state: State, q: Queues, out: Outcome, replica: int, sample: int, now_ns: int
) -> None:
    if state.visited[sample] != 0:
        degrade(settings, state, q, out, sample, now_ns)
        return
    ending = why_dropped(state.deadline_ns[sample], now_ns)
    out.ended[sample] = ending
    if is_item(settings, sample):
        goes_on(state, q.next, sample)
    else:
        leave_request(state, sample)
        state.run.done += 1
    write(state, out, now_ns, DROP, sample, replica, ending)


@apart
def drop(settings: Settings, state: State, q: Queues, out: Outcome, replica: int, sample: int, now_ns: int) -> None:
    remove(q, replica, sample)
    waits_no_more(settings, state, sample)
    end_early(settings, state, q, out, replica, sample, now_ns)


@apart
def watch(plan: Plan, settings: Settings, state: State, q: Queues, replica: int, now_ns: int) -> None:
    at_ns = NEVER_NS
    if q.length[replica] > 0:
        first = head(q, replica)
        deadline_ns = state.deadline_ns[first]
        if deadline_ns < NEVER_NS:
            over_ns = gives_up_ns(deadline_ns, plan.run_ns[replica, 1])
            if over_ns > now_ns or may_drop(settings, state, first):
                at_ns = max(over_ns, now_ns)
    state.gives_up_ns[replica] = at_ns
    state.run.next_timer_ns = min(state.run.next_timer_ns, at_ns)


@apart
def shed(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, replica: int, now_ns: int) -> None:
    dropped = False
    while q.length[replica] > 0:
        first = head(q, replica)
        if in_time(state.deadline_ns[first], now_ns, plan.run_ns[replica, 1]) or not may_drop(settings, state, first):
            break
        drop(settings, state, q, out, replica, first, now_ns)
        dropped = True
    if dropped:
        watch(plan, settings, state, q, replica, now_ns)


@inlined
def chained(q: Queues, first: int, last: int, sample: int) -> int:
    q.next[sample] = NONE
    if last == NONE:
        return sample
    q.next[last] = sample
    return first


@apart
def endangered(plan: Plan, settings: Settings, state: State, q: Queues, device: int, chosen: int, now_ns: int) -> Any:
    """The replica whose unanswered samples go before a batch of `chosen`, or `NONE`."""
    other = head(q, chosen)
    if state.visited[other] == 0:
        return NONE
    others_run_ns = plan.run_ns[chosen, batch_size(q.length[chosen], state.largest_batch_size[chosen])]
    for i in range(plan.on_device_begin[device], plan.on_device_begin[device + 1]):
        replica = plan.on_device[i]
        waiting, most = q.length[replica], state.largest_batch_size[replica]
        if waiting == 0 or spans_busy_device(plan, state, replica):
            continue
        first = head(q, replica)
        run_ns = plan.run_ns[replica, batch_size(waiting, most)]
        urgent = state.visited[first] == 0 and q.priority[first] <= q.priority[other]
        if urgent and goes_first(now_ns, others_run_ns, waiting, most, run_ns, state.deadline_ns[first]):
            return replica
    return NONE


@apart
def fill(
    plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, replica: int, most: int, now_ns: int
) -> Any:
    """Chain a batch that keeps its deadlines; returns its first sample and its size."""
    first = last = NONE
    size = 0
    tightest_ns = NEVER_NS
    while size < most and q.length[replica] > 0:
        sample = next_out(q, replica, now_ns, plan.starvation_ns[replica])
        deadline_ns = state.deadline_ns[sample]
        if not in_time(deadline_ns, now_ns, plan.run_ns[replica, 1]):
            if may_drop(settings, state, sample):
                drop(settings, state, q, out, replica, sample, now_ns)
                continue
            deadline_ns = NEVER_NS
        if in_time(min(tightest_ns, deadline_ns), now_ns, plan.run_ns[replica, size + 1]):
            remove(q, replica, sample)
            waits_no_more(settings, state, sample)
            first = chained(q, first, last, sample)
            last = sample
            size += 1
            tightest_ns = min(tightest_ns, deadline_ns)
            continue
        verdict = what_gives_way(plan, settings, q, replica, size, most, tightest_ns, deadline_ns, now_ns)
        if verdict == RUN:
            break
        if verdict == NEXT_GIVES_WAY:
            drop(settings, state, q, out, replica, sample, now_ns)
        else:
            whole_run_ns = plan.run_ns[replica, batch_size(size + q.length[replica], most)]
            first, last, size, tightest_ns = without_holders(
                settings, state, q, out, replica, first, size, whole_run_ns, now_ns
            )
    watch(plan, settings, state, q, replica, now_ns)
    return first, size


@inlined
def chain_batch(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    replica: int,
    queue: int,
    most: int,
    now_ns: int,
) -> Any:
    """Chain a batch of `replica` from `queue`, by deadline where samples have any; returns its size."""
    if settings.by_deadline is not None:
        first, size = fill(plan, settings, state, q, out, queue, most, now_ns)
        state.batch[replica] = first
    else:
        size = most
        state.batch[replica] = take(q, queue, size, now_ns, plan.starvation_ns[queue])
        if settings.several is None:
            state.pipelines[0].waiting -= size
        else:
            left = state.batch[replica]
            for _ in range(size):
                waits_no_more(settings, state, left)
                left = q.next[left]
    return size


@inlined
def what_gives_way(
    plan: Plan,
    settings: Settings,
    q: Queues,
    replica: int,
    size: int,
    most: int,
    tightest_ns: int,
    next_ns: int,
    now_ns: int,
) -> int:
    if not settings.refuses:
        return RUN
    waiting = q.length[replica]
    whole = batch_size(size + waiting, most)
    return when_limited(
        now_ns,
        size,
        waiting,
        whole,
        plan.run_ns[replica, size],
        plan.run_ns[replica, whole],
        plan.run_ns[replica, 1],
        plan.run_ns[replica, batch_size(waiting, most)],
        tightest_ns,
        next_ns,
    )


@apart
def without_holders(
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    replica: int,
    held: int,
    count: int,
    whole_run_ns: int,
    now_ns: int,
) -> Any:
    """End samples of the chain from `held` that a whole batch would make late; chain the others.

    Returns the chain's first and last sample, its length and its earliest deadline.
    """
    first = last = NONE
    size = 0
    tightest_ns = NEVER_NS
    for _ in range(count):
        after = q.next[held]
        if in_time(state.deadline_ns[held], now_ns, whole_run_ns):
            first = chained(q, first, last, held)
            last = held
            size += 1
            tightest_ns = min(tightest_ns, state.deadline_ns[held])
        else:
            end_early(settings, state, q, out, replica, held, now_ns)
        held = after
    return first, last, size, tightest_ns


@apart
def misses_anyway(
    plan: Plan, settings: Settings, state: State, number: int, model: int, deadline_ns: int, now_ns: int
) -> bool:
    """Whether no replica of `model` with a share could finish a sample in time, even as its next, alone."""
    for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
        if state.stride[number * settings.replicas + replica] == 0:
            continue
        free_ns = now_ns
        for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
            if state.busy[plan.spans[i]] != 0:
                free_ns = max(free_ns, state.free_ns[plan.spans[i]])
        if in_time(deadline_ns, free_ns, plan.run_ns[replica, 1]):
            return False
    return True
