"""The kernel's steps within an event: a sample is routed, a device starts the most urgent batch.

Each function mirrors the one of the same name in `runtime/router/router.py`.
"""

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import batching, bulk, order, routing
from gearshift.simulator.kernel import queues as queues_module
from gearshift.simulator.kernel.deadlines import chain_batch, endangered, shed, spans_busy_device, start_by_ns, watch
from gearshift.simulator.kernel.exits import run_batch, touch_device
from gearshift.simulator.kernel.queues import NONE, Queues
from gearshift.simulator.kernel.refining import start_refining_on, touch_alike, wait_for_gain
from gearshift.simulator.kernel.state import (
    Outcome,
    Plan,
    Settings,
    State,
    is_bulk,
    visits_of,
    waits,
    waits_no_more,
    write,
)
from gearshift.support.compiled import apart, inlined

NOT_YET, DEADLINE, BULK = batching.NOT_YET, batching.DEADLINE, batching.BULK
ROUTE = int(decisions.Decision.ROUTE)

choose_replica = inlined(routing.choose_replica)
start_reason = inlined(batching.start_reason)
batch_size = inlined(batching.batch_size)
replica_key = inlined(order.replica_key)
shortest_queue = inlined(bulk.shortest_queue)
bulk_batch_size = inlined(bulk.bulk_batch_size)
is_starving = queues_module.is_starving
add, head, take = queues_module.add, queues_module.head, queues_module.take


@inlined
def touch(plan: Plan, state: State, replica: int) -> None:
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        touch_device(state, plan.spans[i])


@inlined
def route(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    sample: int,
    number: int,
    model: int,
    now_ns: int,
) -> None:
    """Queue a sample of pipeline `number` at the replica of `model` whose turn it is."""
    if is_bulk(settings, state, sample):
        replica = queue_bulk(plan, settings, state, q, sample, model, now_ns)
    else:
        ring = number * settings.models + model
        turn = choose_replica(ring, state.last, state.following, state.due, state.stride)
        replica = turn - number * settings.replicas
        if settings.refines is not None:
            replica = state.refining.queue_of[replica]
        add(q, replica, sample, now_ns)
        waits(settings, state, sample, replica)
        if settings.by_deadline is not None:
            watch(plan, settings, state, q, replica, now_ns)
    if settings.refines is not None:
        touch_alike(plan, state, replica)
    else:
        touch(plan, state, replica)
    if out.log.shape[0] > 0:
        write(state, out, now_ns, ROUTE, sample, replica, visits_of(state, sample))


@inlined
def refine(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    sample: int,
    number: int,
    model: int,
    kept: int,
    sure: float,
    now_ns: int,
) -> None:
    """Queue a row that model `kept` has answered for `model`, or answer it if it could not finish."""
    turn = choose_replica(number * settings.models + model, state.last, state.following, state.due, state.stride)
    wait_for_gain(plan, settings, state, q, out, sample, number, turn - number * settings.replicas, kept, sure, now_ns)


@inlined
def start_batch(
    plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, replica: int, reason: int, now_ns: int
) -> None:
    size = batch_size(q.length[replica], state.largest_batch_size[replica])
    size = chain_batch(plan, settings, state, q, out, replica, replica, size, now_ns)
    run_batch(plan, settings, state, q, out, replica, size, reason, now_ns)


@inlined
def start_on(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, device: int, now_ns: int) -> None:
    if state.busy[device] != 0:
        return
    wake_ns = NEVER_NS
    chosen = NONE
    chosen_reason = NOT_YET
    chosen_key = (0, 0, 0, 0)
    on_device, lengths, oldest, entered_ns = plan.on_device, q.length, q.first, q.entered_ns
    for i in range(plan.on_device_begin[device], plan.on_device_begin[device + 1]):
        replica = on_device[i]
        if settings.by_deadline is not None:
            shed(plan, settings, state, q, out, replica, now_ns)
        length = lengths[replica]
        if length == 0:
            continue
        oldest_ns = entered_ns[oldest[replica]]
        wait_ns = state.longest_wait_ns[replica]
        reason = start_reason(length, oldest_ns, now_ns, state.minimum_queue_length[replica], wait_ns)
        if reason == NOT_YET:
            start_ns = oldest_ns + wait_ns
            if settings.by_deadline is not None:
                size = batch_size(length, state.largest_batch_size[replica])
                start_ns = start_by_ns(start_ns, state.deadline_ns[head(q, replica)], plan.run_ns[replica, size])
            if settings.by_deadline is None or now_ns < start_ns:
                wake_ns = min(wake_ns, start_ns)
                continue
            reason = DEADLINE
        starving = is_starving(oldest_ns, now_ns, plan.starvation_ns[replica])
        if not starving and spans_busy_device(plan, state, replica):
            continue
        first = head(q, replica)
        if q.by_urgency:
            key = replica_key(starving, q.priority[first], q.deadline_ns[first], oldest_ns)
        else:
            key = replica_key(starving, 0, 0, oldest_ns)
        if chosen == NONE or key < chosen_key:
            chosen, chosen_key, chosen_reason = replica, key, reason
    state.wakes_ns[device] = wake_ns
    state.run.next_timer_ns = min(state.run.next_timer_ns, wake_ns)
    if settings.by_deadline is not None and chosen_key[0] != 0:
        first = endangered(plan, settings, state, q, device, chosen, now_ns)
        if first != NONE:
            chosen, chosen_reason = first, DEADLINE
    if chosen != NONE and not spans_busy_device(plan, state, chosen):
        start_batch(plan, settings, state, q, out, chosen, chosen_reason, now_ns)
    if settings.several is not None and chosen == NONE and state.bulk_gear.shape[0] > 0:
        start_bulk(plan, settings, state, q, out, device, now_ns)


@inlined
def start_on_touched(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, now_ns: int) -> None:
    for i in range(state.run.touched):
        device = state.touched[i]
        state.is_touched[device] = 0
        if settings.refines is not None:
            start_refining_on(plan, settings, state, q, out, device, now_ns)
        else:
            start_on(plan, settings, state, q, out, device, now_ns)
    state.run.touched = 0


# Bulk work: the queue of replica r is number `replicas + r` of all queues.


@apart
def queue_bulk(plan: Plan, settings: Settings, state: State, q: Queues, sample: int, model: int, now_ns: int) -> int:
    """Queue a sample at the replica of `model` with the shortest queue; returns the replica."""
    begin, end = plan.model_begin[model], plan.model_begin[model + 1]
    queue = shortest_queue(q.length, settings.replicas + begin, settings.replicas + end)
    add(q, queue, sample, now_ns)
    waits(settings, state, sample, queue)
    return queue - settings.replicas


@apart
def start_bulk(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, device: int, now_ns: int) -> None:
    """Start a batch on a device on which nothing else starts: of the queue whose oldest sample has waited longest."""
    chosen, oldest_ns = NONE, 0
    for i in range(plan.on_device_begin[device], plan.on_device_begin[device + 1]):
        replica = plan.on_device[i]
        queue = settings.replicas + replica
        if q.length[queue] == 0 or spans_busy_device(plan, state, replica):
            continue
        entered_ns = q.entered_ns[q.first[queue]]
        if chosen == NONE or entered_ns < oldest_ns:
            chosen, oldest_ns = replica, entered_ns
    if chosen == NONE:
        return
    queue = settings.replicas + chosen
    size = bulk_batch_size(
        q.length[queue], state.largest_batch_size[chosen], plan.run_ns[chosen], plan.starvation_ns[chosen]
    )
    state.batch[chosen] = take(q, queue, size, now_ns, 0)
    sample = state.batch[chosen]
    for _ in range(size):
        waits_no_more(settings, state, sample)
        sample = q.next[sample]
    run_batch(plan, settings, state, q, out, chosen, size, BULK, now_ns)
