"""Steps of engines, compiled: `profiles/engines/stepping.py` on counts, in a time that does not grow with the batch.

Read that module first. Only where memory runs out does a step look at each running request.
"""

from gearshift.clock import NEVER_NS
from gearshift.policies.engines import sharing
from gearshift.policies.engines import steps as steps_module
from gearshift.simulator.engines.kernel.routing import token_came
from gearshift.simulator.engines.kernel.running import (
    join_running,
    leave_running,
    schedule,
    slot_of,
    start_decoding,
    unschedule,
)
from gearshift.simulator.engines.kernel.state import NONE, Engine, Outcome, Plan, Samples, State, touch
from gearshift.support.compiled import apart, inlined

blocks_for = inlined(steps_module.blocks_for)
chunk_of = inlined(steps_module.chunk_of)
may_enter = inlined(steps_module.may_enter)
decodes_beside = inlined(steps_module.decodes_beside)
pairs_of = inlined(steps_module.pairs_of)
step_seconds = inlined(steps_module.step_seconds)
stretch_of = inlined(sharing.stretch_of)
work_left_ns = inlined(sharing.work_left_ns)
step_ends_ns = inlined(sharing.step_ends_ns)


@inlined
def begin_steps(plan: Plan, state: State, out: Outcome, now_ns: int) -> None:
    """The engines with work of each group of devices on which something changed begin their steps."""
    run = state.run
    for i in range(run.touched):
        group = state.touched[i]
        state.is_touched[group] = 0
        first, end = plan.first_member[group], plan.first_member[group + 1]
        place = first
        if plan.in_turn[group]:
            if turn_is_taken(plan, state, first, end):
                continue
            if state.last[group] != NONE:
                place = state.last[group] + 1
        for _ in range(end - first):
            if place == end:
                place = first
            replica = plan.members[place]
            place += 1
            if state.at_work[replica] != 0:
                continue
            took_ns = begin_step(plan, state, out, replica)
            if took_ns == NONE:
                continue
            state.at_work[replica] = 1
            out.steps[replica] += 1
            if end - first == 1 or plan.in_turn[group]:
                if run.begun != NONE:
                    state.ends_ns[run.begun] = run.begun_ends_ns
                run.begun, run.begun_ends_ns = replica, now_ns + took_ns
                out.busy_ns[group] += took_ns
                state.last[group] = place - 1
                break
            state.left_ns[replica], state.stretch[replica] = took_ns, 0.0
        if end - first > 1 and not plan.in_turn[group]:
            share_devices(plan, state, out, group, first, end, now_ns)
    run.touched = 0


@inlined
def turn_is_taken(plan: Plan, state: State, first: int, end: int) -> bool:
    for place in range(first, end):
        if state.at_work[plan.members[place]] != 0:
            return True
    return False


@apart
def share_devices(plan: Plan, state: State, out: Outcome, group: int, first: int, end: int, now_ns: int) -> None:
    """When steps end, as engines on the same devices slow each other from now on."""
    at_work = 0
    for place in range(first, end):
        replica = plan.members[place]
        if state.at_work[replica] == 0:
            continue
        at_work += 1
        stretch = stretch_of(replica, first, end, plan.members, state.at_work, plan.factors)
        if stretch == state.stretch[replica]:
            continue
        if state.stretch[replica] > 0:
            elapsed_ns = now_ns - state.since_ns[replica]
            state.left_ns[replica] = work_left_ns(state.left_ns[replica], elapsed_ns, state.stretch[replica])
        state.since_ns[replica], state.stretch[replica] = now_ns, stretch
        state.ends_ns[replica] = step_ends_ns(now_ns, state.left_ns[replica], stretch)
    if at_work > 0 and state.busy_since_ns[group] == NEVER_NS:
        state.busy_since_ns[group] = now_ns
    elif at_work == 0 and state.busy_since_ns[group] != NEVER_NS:
        out.busy_ns[group] += now_ns - state.busy_since_ns[group]
        state.busy_since_ns[group] = NEVER_NS


@inlined
def begin_step(plan: Plan, state: State, out: Outcome, replica: int) -> int:
    """The nanoseconds that the next step takes alone; `NONE` where there is nothing to do."""
    engine = state.engines[replica]
    if engine.running == 0 and engine.first_waiting == NONE:
        return NONE
    beside = True
    if engine.prefill_first != 0:
        beside = decodes_beside(engine.filling != NONE or first_may_enter(state, engine, 1), True)
    decoding, kv_tokens = 0, 0
    if beside and engine.decoding != 0:
        needed = state.phases[engine.first_phase + engine.phase] + engine.owed
        if needed <= engine.free_blocks:
            engine.free_blocks -= needed
        else:
            make_room(state, out, engine)
        engine.owed = 0
        decoding, kv_tokens = engine.decoding, engine.kv_tokens
    budget, prompts, entering, attention_pairs = engine.largest_batched_tokens - decoding, 0, 0, 0
    engine.first_chunk = NONE
    if engine.filling != NONE and budget > 0:
        place = engine.filling
        request = state.requests[place]
        tokens = chunk_of(request.prompt + request.given - request.computed, budget)
        attention_pairs += pairs_of(request.computed, tokens)
        request.computed += tokens
        budget -= tokens
        prompts = 1
        engine.first_chunk = place
        if request.computed == request.prompt + request.given:
            engine.filling = NONE
    while first_may_enter(state, engine, budget):
        place = engine.first_waiting
        request = state.requests[place]
        join_running(state, engine, place)
        tokens = chunk_of(request.prompt + request.given, budget)
        attention_pairs += pairs_of(0, tokens)
        request.computed = tokens
        budget -= tokens
        prompts += 1
        if request.given == 0:
            entering += 1
        if engine.first_chunk == NONE:
            engine.first_chunk = place
        if tokens != request.prompt + request.given:
            engine.filling = place
    if prompts + decoding == 0:
        return NONE
    engine.step_decodes = decoding
    curve = engine.decode_curve if prompts == 0 else engine.prefill_curve
    seconds = step_seconds(
        plan.curve_s[curve + engine.largest_batched_tokens - budget],
        kv_tokens,
        attention_pairs,
        prompts + decoding,
        entering,
        engine.per_kv_token_s,
        engine.per_attention_token_s,
        engine.overhead_per_step_s,
        engine.overhead_per_request_s,
        engine.overhead_per_prompt_s,
    )
    return round(seconds * 1e9)


@inlined
def first_may_enter(state: State, engine: Engine, budget: int) -> bool:
    if engine.first_waiting == NONE:
        return False
    return may_enter(
        state.requests[engine.first_waiting].blocks,
        engine.free_blocks,
        engine.watermark_blocks,
        engine.running,
        engine.largest_running,
        budget,
    )


@apart
def make_room(state: State, out: Outcome, engine: Engine) -> None:
    """A block for the next token of each that decodes, from the oldest on; the newest lose theirs."""
    place = engine.oldest
    while place != NONE:
        request = state.requests[place]
        if request.decodes != 0:
            context = request.prompt + request.given + engine.count
            held = request.blocks if request.begun == engine.count else blocks_for(context, engine.block_tokens)
            more = blocks_for(context + 1, engine.block_tokens) - held
            while more > engine.free_blocks and engine.newest != place:
                preempt(state, out, engine, engine.newest)
            if more > engine.free_blocks:
                preempt(state, out, engine, place)
                return
            engine.free_blocks -= more
        place = request.following


@inlined
def preempt(state: State, out: Outcome, engine: Engine, place: int) -> None:
    """It gives up its blocks, waits as the first, and computes all its context again."""
    request = state.requests[place]
    if engine.filling == place:
        engine.filling = NONE
    leave_running(state, engine, place)
    request.computed = 0
    out.preempted[request.number] += 1
    request.blocks = blocks_for(request.prompt + request.given, engine.block_tokens)
    request.following = engine.first_waiting
    if engine.first_waiting == NONE:
        engine.last_waiting = place
    engine.first_waiting = place


@inlined
def end_step(plan: Plan, state: State, samples: Samples, out: Outcome, replica: int, now_ns: int) -> None:
    engine = state.engines[replica]
    state.ends_ns[replica] = NEVER_NS
    state.at_work[replica] = 0
    touch(state, engine.group)
    if engine.step_decodes != 0:
        engine.count += 1
        engine.kv_tokens += engine.decoding
        engine.phase = engine.phase - 1 if engine.phase > 0 else engine.block_tokens - 1
    place = engine.first_chunk
    while place != NONE:
        request = state.requests[place]
        following = request.following
        if place != engine.filling:
            request.given += engine.prefill_gives_token
            start_decoding(state, engine, place)
            if engine.prefill_gives_token != 0:
                token_came(plan, state, samples, out, replica, place, now_ns)
            else:
                schedule(plan, state, engine, place)
        place = following
    if engine.step_decodes != 0:
        slot = slot_of(engine, engine.count)
        place = state.soonest[slot]
        while place != NONE:
            unschedule(state, place)
            token_came(plan, state, samples, out, replica, place, now_ns)
            place = state.soonest[slot]
