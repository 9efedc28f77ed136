"""The router's decisions for language models, compiled: where requests begin, wait, run and answer."""

from typing import Any

from gearshift import decisions
from gearshift.gear import METER_BACKLOG
from gearshift.policies import gear_shift
from gearshift.policies import next_step as next_step_module
from gearshift.policies.engines import deciding, outstanding
from gearshift.policies.engines import steps as steps_module
from gearshift.simulator.engines.kernel.read_ahead import read_ahead
from gearshift.simulator.engines.kernel.running import leave_running, schedule, unschedule
from gearshift.simulator.engines.kernel.state import (
    EXPECTED,
    NONE,
    OUTPUT,
    PROMPT,
    Engine,
    Outcome,
    Plan,
    Samples,
    State,
    touch,
    write,
)
from gearshift.support.compiled import apart, inlined

ANSWER, NOT_IN_CASCADE = next_step_module.ANSWER, next_step_module.NOT_IN_CASCADE
DECIDES_BY_ID, LOAD_DRAIN_S = deciding.DECIDES_BY_ID, outstanding.LOAD_DRAIN_S
ENQUEUE, SEND, CANCEL = int(decisions.Decision.ENQUEUE), int(decisions.Decision.SEND), int(decisions.Decision.CANCEL)
ANY_LENGTH = 1 << 30
READ_AHEAD = 4
"""Arrivals after which a recorded answer is used that is read from memory now."""
ANSWERED, SHIFT = int(decisions.Decision.ANSWER), int(decisions.Decision.SHIFT)

blocks_for = inlined(steps_module.blocks_for)
expected_output_tokens = inlined(outstanding.expected_output_tokens)
replica_with_room = inlined(outstanding.replica_with_room)
model_drain_ns = inlined(outstanding.model_drain_ns)
outstanding_load = inlined(outstanding.outstanding_load)
first_stage = inlined(deciding.first_stage)
decides_now = inlined(deciding.decides_now)
next_step = inlined(next_step_module.next_step)
gear_asked_for = inlined(gear_shift.gear_asked_for)
gear_in_force = inlined(gear_shift.gear_in_force)


@inlined
def stage_at_first(plan: Plan, state: State, samples: Samples, place: int) -> int:
    gear = state.run.gear
    base = gear * plan.most_stages
    return first_stage(
        samples.by_id[state.requests[place].number], plan.stage_count[gear], plan.thresholds, plan.decide_at, base
    )


@inlined
def arrive(plan: Plan, state: State, samples: Samples, out: Outcome, now_ns: int) -> None:
    """The next request takes a place."""
    place = take_place(state)
    request, run = state.requests[place], state.run
    request.number = run.arrived
    soon = min(run.arrived + READ_AHEAD, samples.row.shape[0] - 1)
    for model in range(plan.models):
        read_ahead(samples.answers, model * samples.rows + samples.row[soon])
    request.visited = request.answered = 0
    run.arrived += 1
    stage = stage_at_first(plan, state, samples, place)
    model = plan.stage_models[run.gear * plan.most_stages + stage]
    enqueue(plan, state, samples, out, place, model, stage, now_ns)


@inlined
def take_place(state: State) -> int:
    run = state.run
    place: int = run.free
    if place == NONE:
        place = run.used
        run.used += 1
    else:
        run.free = state.requests[place].following
    return place


@inlined
def enqueue(
    plan: Plan, state: State, samples: Samples, out: Outcome, place: int, model: int, stage: int, now_ns: int
) -> None:
    """A request waits for an engine of a model; what it was elsewhere is forgotten."""
    request, queue, run = state.requests[place], state.queues[model], state.run
    row = model * samples.rows + samples.row[request.number]
    request.model = model
    request.prompt = int(samples.answers[row, PROMPT])
    request.output = int(samples.answers[row, OUTPUT])
    request.expected = int(samples.answers[row, EXPECTED])
    if samples.prompt_tokens.shape[0] > 0:
        request.prompt = samples.prompt_tokens[request.number]
        request.expected = expected_of(plan, model, request.prompt)
    if samples.output_tokens.shape[0] > 0:
        request.output = samples.output_tokens[request.number]
    request.given = request.computed = request.decodes = 0
    request.at = request.following = NONE
    if queue.first == NONE:
        queue.first = place
    else:
        state.requests[queue.last].following = place
    queue.last = place
    queue.waiting_ns += waiting_ns(plan, state, request)
    run.prompt_tokens += request.prompt
    run.waiting += 1
    run.most_waiting = max(run.most_waiting, run.waiting)
    write(state, out, now_ns, ENQUEUE, request.number, model, stage)


@inlined
def expected_of(plan: Plan, model: int, prompt_tokens: int) -> int:
    """The length that is expected of an answer; a simulated request allows any."""
    bins = model * plan.bins
    return expected_output_tokens(
        prompt_tokens, ANY_LENGTH, plan.bin_edges, plan.expected_output, bins, bins + plan.bins
    )


@inlined
def expect(plan: Plan, samples: Samples) -> None:
    """Fill in the length that is expected of each recorded answer."""
    for model in range(plan.models):
        for row in range(model * samples.rows, (model + 1) * samples.rows):
            samples.answers[row, EXPECTED] = expected_of(plan, model, int(samples.answers[row, PROMPT]))


@inlined
def prompt_ns(engine: Engine, request: Any) -> int:
    """The work of a prompt of which no token is computed."""
    work_ns: int = engine.reading_ns + request.prompt * engine.prompt_token_ns
    return work_ns


@inlined
def waiting_ns(plan: Plan, state: State, request: Any) -> int:
    """The work of a request that waits, by its model's first replica."""
    first = state.engines[plan.replica_begin[request.model]]
    work_ns: int = prompt_ns(first, request) + request.expected * first.output_token_ns
    return work_ns


@inlined
def dispatch(plan: Plan, state: State, out: Outcome, now_ns: int) -> None:
    base = state.run.gear * plan.replicas
    for model in range(plan.models):
        queue = state.queues[model]
        while queue.first != NONE:
            replica = replica_with_room(
                plan.replica_begin[model],
                plan.replica_begin[model + 1],
                base,
                state.outstanding,
                state.work_ns,
                plan.most_outstanding,
                plan.shares,
                state.lost,
            )
            if replica < 0:
                break
            place = queue.first
            request = state.requests[place]
            queue.first = request.following
            queue.waiting_ns -= waiting_ns(plan, state, request)
            state.run.waiting -= 1
            send(state, out, place, replica, now_ns)


@inlined
def send(state: State, out: Outcome, place: int, replica: int, now_ns: int) -> None:
    """A request waits as the last within an engine."""
    request, engine = state.requests[place], state.engines[replica]
    request.blocks = blocks_for(request.prompt, engine.block_tokens)
    request.following = NONE
    if engine.first_waiting == NONE:
        engine.first_waiting = place
    else:
        state.requests[engine.last_waiting].following = place
    engine.last_waiting = place
    state.outstanding[replica] += 1
    state.work_ns[replica] += prompt_ns(engine, request) + request.expected * engine.output_token_ns
    if state.at_work[replica] == 0:
        touch(state, engine.group)
    write(state, out, now_ns, SEND, request.number, replica, state.outstanding[replica])


@inlined
def token_came(plan: Plan, state: State, samples: Samples, out: Outcome, replica: int, place: int, now_ns: int) -> None:
    """A request that decodes got a token at which something happens."""
    request, engine = state.requests[place], state.engines[replica]
    tokens = request.given + engine.count
    if tokens == 1:
        state.work_ns[replica] -= prompt_ns(engine, request)
        state.run.prompt_tokens -= request.prompt
    ended = tokens == request.output
    following = ANSWER
    if request.answered == 0:
        following = decide(plan, state, samples, out, place, tokens, ended, now_ns)
    if following == ANSWER and not ended:
        schedule(plan, state, engine, place)
        return
    leave_running(state, engine, place)
    state.outstanding[replica] -= 1
    state.work_ns[replica] -= request.expected * engine.output_token_ns
    if following == ANSWER:
        out.finished_ns[request.number] = now_ns
        state.run.done += 1
        request.following = state.run.free
        state.run.free = place
        return
    out.discarded_tokens[request.number, request.model] = tokens
    write(state, out, now_ns, CANCEL, request.number, replica, tokens)
    stage = plan.stage_of[state.run.gear * plan.models + following]
    enqueue(plan, state, samples, out, place, following, stage, now_ns)


@inlined
def decide(
    plan: Plan, state: State, samples: Samples, out: Outcome, place: int, tokens: int, ended: bool, now_ns: int
) -> int:
    """The model that a request goes on to; `ANSWER` where it stays."""
    request, gear = state.requests[place], state.run.gear
    base, model = gear * plan.most_stages, request.model
    stage, stages = plan.stage_of[gear * plan.models + model], plan.stage_count[gear]
    if stage != NOT_IN_CASCADE:
        if not decides_now(stage, stages, tokens, ended, plan.decide_at, base):
            return ANSWER
        if stage < stages - 1 and plan.decide_at[base + stage] != DECIDES_BY_ID:
            request.visited |= 1 << model
            row = model * samples.rows + samples.row[request.number]
            sure = samples.answers[row, plan.certainty_of[base + stage]]
            following = next_step(stage, sure, request.visited, stages, plan.stage_models, plan.thresholds, base)
            if following != ANSWER:
                return following
    request.answered = 1
    out.model[request.number] = model
    out.gear[request.number] = gear
    out.answered_ns[request.number] = now_ns
    out.output_tokens[request.number] = request.output
    out.decided_at_token[request.number] = tokens
    write(state, out, now_ns, ANSWERED, request.number, model, gear)
    return ANSWER


@inlined
def tick(plan: Plan, state: State, samples: Samples, out: Outcome, now_ns: int) -> None:
    run, drain_ns = state.run, 0
    for model in range(plan.models if plan.load_unit == LOAD_DRAIN_S else 0):
        begin, end = plan.replica_begin[model], plan.replica_begin[model + 1]
        base = run.gear * plan.replicas
        longest = model_drain_ns(begin, end, base, state.queues[model].waiting_ns, state.work_ns, plan.shares)
        drain_ns = max(drain_ns, longest)
    load = outstanding_load(plan.load_unit, run.arrived - run.done, run.prompt_tokens, drain_ns)
    gears = plan.range_starts.shape[0]
    asked = gear_asked_for(METER_BACKLOG, run.gear, load, 0, 0.0, plan.range_starts, gears)
    gear, run.eased_ticks = gear_in_force(
        run.gear, asked, run.eased_ticks, load, plan.range_starts, plan.upshift_margin
    )
    if gear != run.gear:
        shift(plan, state, samples, out, gear, now_ns)


@apart
def shift(plan: Plan, state: State, samples: Samples, out: Outcome, gear: int, now_ns: int) -> None:
    """Requests that wait and have run nowhere are put anew; those that run decide by the new gear."""
    run = state.run
    write(state, out, now_ns, SHIFT, run.gear, gear, 0)
    run.gear = gear
    if run.shifts < out.shifts.shape[0]:
        out.shifts[run.shifts, 0] = now_ns
        out.shifts[run.shifts, 1] = gear
    run.shifts += 1
    for model in range(plan.models):
        put_anew(plan, state, samples, out, model, now_ns)
    for replica in range(plan.replicas):
        engine = state.engines[replica]
        place = engine.oldest
        while place != NONE:
            request = state.requests[place]
            if request.at != NONE and request.answered == 0:
                unschedule(state, place)
                schedule(plan, state, engine, place)
            place = request.following


@inlined
def put_anew(plan: Plan, state: State, samples: Samples, out: Outcome, model: int, now_ns: int) -> None:
    queue, before = state.queues[model], NONE
    place = queue.first
    while place != NONE:
        request = state.requests[place]
        following = request.following
        stage = stage_at_first(plan, state, samples, place)
        first_model = plan.stage_models[state.run.gear * plan.most_stages + stage]
        if request.visited != 0 or first_model == model:
            before = place
        else:
            if before == NONE:
                queue.first = following
            else:
                state.requests[before].following = following
            if following == NONE:
                queue.last = before
            queue.waiting_ns -= waiting_ns(plan, state, request)
            state.run.waiting -= 1
            state.run.prompt_tokens -= request.prompt
            enqueue(plan, state, samples, out, place, first_model, stage, now_ns)
        place = following
