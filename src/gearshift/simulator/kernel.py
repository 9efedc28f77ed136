"""The simulator's event loop, compiled: the router's events and steps in the same order, on arrays.

Read `runtime/router.py` first; each function here stands for the one of the same name there.
"""

from typing import Any, NamedTuple

from gearshift import decisions
from gearshift.policies import admission, batching, forwarding, gear_shift, order, routing
from gearshift.policies import load as load_module
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS
from gearshift.simulator import queues as queues_module
from gearshift.simulator.compiled import compiled, inlined
from gearshift.simulator.load_scaling import Scaling, ticked
from gearshift.simulator.queues import NONE, Queues

NEVER_NS = 1 << 62
BLOCK = 16
"""So many devices keep their earliest end together, so that the next end is found in few steps among many."""

ANSWER = forwarding.ANSWER
NOT_YET = batching.NOT_YET
ROUTE, REFUSE, START = int(decisions.Decision.ROUTE), int(decisions.Decision.REFUSE), int(decisions.Decision.START)
TAKE, ANSWERED, SHIFT = int(decisions.Decision.TAKE), int(decisions.Decision.ANSWER), int(decisions.Decision.SHIFT)

arrival_rate_qps = inlined(load_module.arrival_rate_qps)
metered_load = inlined(gear_shift.metered_load)
gear_asked_for = inlined(gear_shift.gear_asked_for)
gear_in_force = inlined(gear_shift.gear_in_force)
choose_replica = inlined(routing.choose_replica)
carry_turns = inlined(routing.carry_turns)
start_reason = inlined(batching.start_reason)
batch_size = inlined(batching.batch_size)
next_model = inlined(forwarding.next_model)
replica_key = inlined(order.replica_key)
admits = inlined(admission.admits)
is_starving = queues_module.is_starving
add, head, take = queues_module.add, queues_module.head, queues_module.take

# Places in `State.numbers`.
NUMBERS = 9
GEAR, WAITING, LOGGED, SHIFTS, NEXT_END_NS, NEXT_WAKE_NS, TOUCHED, DONE, EASED_TICKS = range(NUMBERS)


class Plan(NamedTuple):
    """The arrays of `PlanTables`, with `run_ns` (replicas, sizes): how long a batch holds its devices."""

    replica_model: Any
    model_begin: Any
    on_device: Any
    on_device_begin: Any
    spans: Any
    spans_begin: Any
    stage_count: Any
    stage_models: Any
    thresholds: Any
    stage_of: Any
    shares: Any
    minimum_queue_length: Any
    largest_batch_size: Any
    longest_wait_ns: Any
    range_starts: Any
    run_ns: Any


class Settings(NamedTuple):
    """Numbers that hold for the whole run."""

    replicas: int
    models: int
    devices: int
    most_stages: int
    meter: int
    alpha: float
    upshift_margin: float
    starvation_ns: int
    most_waiting: int


class State(NamedTuple):
    """What changes.  Per device: `busy`, `ends_ns` (of the batch whose first device it is), `ending`, `wakes_ns`.

    `block_ends_ns`: the earliest of `ends_ns` per `BLOCK` devices.  Per replica: `batch` (its first sample),
    `batch_length`.  Per sample: `visited` models as bits.  `last` per model and `following`, `due`, `stride` per
    replica are the rings of `policies/routing.py`.
    `touched` lists idle devices to start on after an event; `is_touched` says which are in it.
    """

    numbers: Any
    busy: Any
    ends_ns: Any
    block_ends_ns: Any
    ending: Any
    wakes_ns: Any
    batch: Any
    batch_length: Any
    last: Any
    following: Any
    due: Any
    stride: Any
    visited: Any
    touched: Any
    is_touched: Any
    kept_ns: Any


class Outcome(NamedTuple):
    """What a run leaves: per sample `finished_ns` (-1: refused), `model` and `gear`; the rest as named.

    `busy_ns` (devices,); `batches` (replicas, sizes); `arrived_in_gear` (gears,); `shifts` (capacity, 2) of time and
    gear; `log` (capacity, 5) of decisions, empty when none is wanted.
    """

    finished_ns: Any
    model: Any
    gear: Any
    busy_ns: Any
    batches: Any
    arrived_in_gear: Any
    shifts: Any
    log: Any


@inlined
def write(state: State, out: Outcome, now_ns: int, kind: int, a: int, b: int, c: int) -> None:
    """Log a decision, where a log is wanted."""
    if out.log.shape[0] > 0:
        row = state.numbers[LOGGED]
        if row < out.log.shape[0]:
            out.log[row, 0] = now_ns
            out.log[row, 1] = kind
            out.log[row, 2] = a
            out.log[row, 3] = b
            out.log[row, 4] = c
        state.numbers[LOGGED] = row + 1


@inlined
def touch(plan: Plan, state: State, replica: int) -> None:
    """List a replica's idle devices to start on after this event."""
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        device = plan.spans[i]
        if state.busy[device] == 0 and state.is_touched[device] == 0:
            state.is_touched[device] = 1
            state.touched[state.numbers[TOUCHED]] = device
            state.numbers[TOUCHED] += 1


@inlined
def route(
    plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, sample: int, model: int, now_ns: int
) -> None:
    """Queue a sample at a replica of `model`."""
    replica = choose_replica(model, state.last, state.following, state.due, state.stride)
    add(q, replica, sample, now_ns)
    state.numbers[WAITING] += 1
    touch(plan, state, replica)
    if out.log.shape[0] > 0:
        visits = 0
        bits = state.visited[sample]
        while bits != 0:
            bits &= bits - 1
            visits += 1
        write(state, out, now_ns, ROUTE, sample, replica, visits)


@inlined
def spans_busy_device(plan: Plan, state: State, replica: int) -> bool:
    """Whether any device of the replica is busy."""
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        if state.busy[plan.spans[i]] != 0:
            return True
    return False


@inlined
def note_end(state: State, lead: int, end_ns: int) -> None:
    """A batch with `lead` as its first device ends at `end_ns`."""
    state.ends_ns[lead] = end_ns
    state.block_ends_ns[lead // BLOCK] = min(state.block_ends_ns[lead // BLOCK], end_ns)
    state.numbers[NEXT_END_NS] = min(state.numbers[NEXT_END_NS], end_ns)


@inlined
def next_lead(state: State) -> int:
    """The first device of the batch that ends next; of several batches the lowest."""
    block = 0
    while state.block_ends_ns[block] != state.numbers[NEXT_END_NS]:
        block += 1
    lead = block * BLOCK
    while state.ends_ns[lead] != state.numbers[NEXT_END_NS]:
        lead += 1
    return lead


@inlined
def forget_end(state: State, lead: int) -> None:
    """The batch with `lead` as its first device has ended; find the next end."""
    state.ends_ns[lead] = NEVER_NS
    first = lead // BLOCK * BLOCK
    block_end_ns = NEVER_NS
    for device in range(first, first + BLOCK):
        block_end_ns = min(block_end_ns, state.ends_ns[device])
    state.block_ends_ns[lead // BLOCK] = block_end_ns
    next_end_ns = NEVER_NS
    for block_end_ns in state.block_ends_ns:
        next_end_ns = min(next_end_ns, block_end_ns)
    state.numbers[NEXT_END_NS] = next_end_ns


@inlined
def start_batch(
    plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, replica: int, reason: int, now_ns: int
) -> None:
    """Start the replica on what is queued."""
    cell = state.numbers[GEAR] * settings.replicas + replica
    size = batch_size(q.length[replica], plan.largest_batch_size[cell])
    first = take(q, replica, size, now_ns, settings.starvation_ns)
    state.numbers[WAITING] -= size
    state.batch[replica] = first
    state.batch_length[replica] = size
    run_ns = plan.run_ns[replica, size]
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        device = plan.spans[i]
        state.busy[device] = 1
        state.wakes_ns[device] = NEVER_NS
        out.busy_ns[device] += run_ns
    lead = plan.spans[plan.spans_begin[replica]]
    state.ending[lead] = replica
    note_end(state, lead, now_ns + run_ns)
    out.batches[replica, size] += 1
    if out.log.shape[0] > 0:
        write(state, out, now_ns, START, replica, size, reason)
        sample = first
        for _ in range(size):
            write(state, out, now_ns, TAKE, replica, sample, 0)
            sample = q.next[sample]


@inlined
def start_on(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, device: int, now_ns: int) -> None:
    """Start the most urgent ready replica of an idle device."""
    if state.busy[device] != 0:
        return
    wake_ns = NEVER_NS
    chosen = NONE
    chosen_reason = NOT_YET
    chosen_key = (0, 0, 0, 0)
    base = state.numbers[GEAR] * settings.replicas
    for i in range(plan.on_device_begin[device], plan.on_device_begin[device + 1]):
        replica = plan.on_device[i]
        length = q.length[replica]
        if length == 0:
            continue
        oldest_ns = q.entered_ns[q.first[replica]]
        wait_ns = plan.longest_wait_ns[base + replica]
        reason = start_reason(length, oldest_ns, now_ns, plan.minimum_queue_length[base + replica], wait_ns)
        if reason == NOT_YET:
            wake_ns = min(wake_ns, oldest_ns + wait_ns)
            continue
        starving = is_starving(oldest_ns, now_ns, settings.starvation_ns)
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
    state.numbers[NEXT_WAKE_NS] = min(state.numbers[NEXT_WAKE_NS], wake_ns)
    if chosen != NONE and not spans_busy_device(plan, state, chosen):
        start_batch(plan, settings, state, q, out, chosen, chosen_reason, now_ns)


@inlined
def start_on_touched(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, now_ns: int) -> None:
    """Start what may start where this event touched."""
    for i in range(state.numbers[TOUCHED]):
        device = state.touched[i]
        state.is_touched[device] = 0
        start_on(plan, settings, state, q, out, device, now_ns)
    state.numbers[TOUCHED] = 0


@inlined
def finish_batch(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    record: Any,
    certainty: Any,
    lead: int,
    now_ns: int,
) -> None:
    """The router's `samples_finished`, then its `batch_finished`, for the batch whose first device is `lead`."""
    replica = state.ending[lead]
    model = plan.replica_model[replica]
    gear = state.numbers[GEAR]
    stage = plan.stage_of[gear * settings.models + model]
    stages = plan.stage_count[gear]
    base = gear * settings.most_stages
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        state.busy[plan.spans[i]] = 0
    state.ends_ns[lead] = NEVER_NS
    touch(plan, state, replica)
    sample = state.batch[replica]
    for _ in range(state.batch_length[replica]):
        following_sample = q.next[sample]
        visited = state.visited[sample] | (1 << model)
        state.visited[sample] = visited
        sure = certainty[model, record[sample]]
        following = next_model(stage, sure, visited, stages, plan.stage_models, plan.thresholds, base)
        if following == ANSWER:
            out.finished_ns[sample] = now_ns
            out.model[sample] = model
            out.gear[sample] = gear
            state.numbers[DONE] += 1
            write(state, out, now_ns, ANSWERED, sample, model, gear)
        else:
            route(plan, settings, state, q, out, sample, following, now_ns)
        sample = following_sample
    forget_end(state, lead)
    start_on_touched(plan, settings, state, q, out, now_ns)


@inlined
def share_turns(plan: Plan, settings: Settings, state: State) -> None:
    """Route by the shares of the gear in force."""
    base = state.numbers[GEAR] * settings.replicas
    for model in range(settings.models):
        begin, end = plan.model_begin[model], plan.model_begin[model + 1]
        carry_turns(plan.shares, base, model, begin, end, state.last, state.following, state.due, state.stride)


@inlined
def shift(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, gear: int, now_ns: int) -> None:
    """Change the gear, and test all idle devices again."""
    write(state, out, now_ns, SHIFT, state.numbers[GEAR], gear, 0)
    state.numbers[GEAR] = gear
    share_turns(plan, settings, state)
    row = state.numbers[SHIFTS]
    if row < out.shifts.shape[0]:
        out.shifts[row, 0] = now_ns
        out.shifts[row, 1] = gear
        state.numbers[SHIFTS] = row + 1
    for device in range(settings.devices):
        start_on(plan, settings, state, q, out, device, now_ns)


@inlined
def longest_first_stage_queue(plan: Plan, settings: Settings, state: State, q: Queues) -> int:
    """The longest queue of the first stage's model."""
    model = plan.stage_models[state.numbers[GEAR] * settings.most_stages]
    longest = 0
    for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
        longest = max(longest, q.length[replica])
    return longest


@compiled
def run(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    scaling: Scaling,
    out: Outcome,
    arrivals_ns: Any,
    continues: Any,
    record: Any,
    certainty: Any,
) -> None:
    """Serve all samples; fills `out`.  At one instant: batches finish, the meter ticks, samples arrive, waits end."""
    samples = arrivals_ns.shape[0]
    arrived = 0
    arrived_at_tick = 0
    next_tick_ns = METER_WINDOW_NS
    kept_ns = state.kept_ns
    metered = 0
    metered_at_tick = 0
    factor = 1.0
    share_turns(plan, settings, state)
    while state.numbers[DONE] < samples:
        arrival_ns = arrivals_ns[arrived] if arrived < samples else NEVER_NS
        end_ns = state.numbers[NEXT_END_NS]
        wake_ns = state.numbers[NEXT_WAKE_NS]
        now_ns = min(end_ns, next_tick_ns, arrival_ns, wake_ns)
        if end_ns == now_ns:
            finish_batch(plan, settings, state, q, out, record, certainty, next_lead(state), now_ns)
        elif next_tick_ns == now_ns:
            kept = min(metered, METER_KEEPS_ARRIVALS)
            oldest_ns = kept_ns[metered % METER_KEEPS_ARRIVALS] if kept == METER_KEEPS_ARRIVALS else 0
            rate_qps = arrival_rate_qps(metered - metered_at_tick, METER_WINDOW_NS, kept, oldest_ns, now_ns)
            metered_at_tick = metered
            longest = longest_first_stage_queue(plan, settings, state, q)
            load = metered_load(settings.meter, rate_qps, factor, state.numbers[WAITING], settings.alpha)
            asked = gear_asked_for(
                settings.meter,
                state.numbers[GEAR],
                load,
                longest,
                settings.alpha,
                plan.range_starts,
                plan.range_starts.shape[0],
            )
            gear, state.numbers[EASED_TICKS] = gear_in_force(
                state.numbers[GEAR],
                asked,
                state.numbers[EASED_TICKS],
                load,
                plan.range_starts,
                settings.upshift_margin,
            )
            out.arrived_in_gear[state.numbers[GEAR]] += arrived - arrived_at_tick
            arrived_at_tick = arrived
            if gear != state.numbers[GEAR]:
                shift(plan, settings, state, q, out, gear, now_ns)
            factor = ticked(scaling, now_ns // METER_WINDOW_NS, rate_qps, factor)
            next_tick_ns += METER_WINDOW_NS
        elif arrival_ns == now_ns:
            end = arrived + 1
            if continues.shape[0] > 0:
                while end < samples and continues[end]:
                    end += 1
            admitted = admits(state.numbers[WAITING], 0, end - arrived, 0, settings.most_waiting, 0)
            first_model = plan.stage_models[state.numbers[GEAR] * settings.most_stages]
            for sample in range(arrived, end):
                if admitted:
                    kept_ns[metered % METER_KEEPS_ARRIVALS] = now_ns
                    metered += 1
                    route(plan, settings, state, q, out, sample, first_model, now_ns)
                else:
                    state.numbers[DONE] += 1
                    write(state, out, now_ns, REFUSE, sample, 0, 0)
            arrived = end
            start_on_touched(plan, settings, state, q, out, now_ns)
        else:
            state.numbers[NEXT_WAKE_NS] = NEVER_NS
            for device in range(settings.devices):
                if state.wakes_ns[device] <= now_ns:
                    start_on(plan, settings, state, q, out, device, now_ns)
                state.numbers[NEXT_WAKE_NS] = min(state.numbers[NEXT_WAKE_NS], state.wakes_ns[device])
    out.arrived_in_gear[state.numbers[GEAR]] += samples - arrived_at_tick
