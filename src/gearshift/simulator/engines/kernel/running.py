"""The running requests of an engine: who decodes, what memory they have, and when something happens to them."""

from typing import Any

from gearshift.policies.engines import deciding
from gearshift.policies.engines import steps as steps_module
from gearshift.policies.next_step import NOT_IN_CASCADE
from gearshift.simulator.engines.kernel.state import NONE, Engine, Plan, State
from gearshift.support.compiled import inlined

DECIDES_AT_END, DECIDES_BY_ID = deciding.DECIDES_AT_END, deciding.DECIDES_BY_ID

blocks_for = inlined(steps_module.blocks_for)


@inlined
def join_running(state: State, engine: Engine, place: int) -> None:
    """The first that waits in the engine enters."""
    request = state.requests[place]
    engine.first_waiting = request.following
    request.before = engine.newest
    request.following = NONE
    if engine.newest == NONE:
        engine.oldest = place
    else:
        state.requests[engine.newest].following = place
    engine.newest = place
    engine.running += 1
    engine.free_blocks -= request.blocks
    request.entry = engine.entered
    engine.entered += 1


@inlined
def leave_running(state: State, engine: Engine, place: int) -> None:
    """A request gives up its memory and its place."""
    request = state.requests[place]
    if request.decodes != 0:
        stop_decoding(state, engine, place)
    else:
        engine.free_blocks += request.blocks
    if request.before == NONE:
        engine.oldest = request.following
    else:
        state.requests[request.before].following = request.following
    if request.following == NONE:
        engine.newest = request.before
    else:
        state.requests[request.following].before = request.before
    engine.running -= 1


@inlined
def start_decoding(state: State, engine: Engine, place: int) -> None:
    request = state.requests[place]
    context = request.prompt + request.given
    whole, part = context // engine.block_tokens, context % engine.block_tokens
    phase = part + engine.phase
    if phase >= engine.block_tokens:
        phase -= engine.block_tokens
    request.phase = phase
    state.phases[engine.first_phase + phase] += 1
    request.decodes = 1
    request.begun = engine.count
    request.given -= engine.count
    engine.decoding += 1
    engine.kv_tokens += context
    engine.owed += whole + (1 if part > 0 else 0) - request.blocks


@inlined
def stop_decoding(state: State, engine: Engine, place: int) -> None:
    """All that `start_decoding` did is undone, and the request's blocks become free."""
    request = state.requests[place]
    request.given += engine.count
    request.decodes = 0
    context = request.prompt + request.given
    held = blocks_for(context, engine.block_tokens)
    if request.begun == engine.count:
        engine.owed -= held - request.blocks
        held = request.blocks
    engine.free_blocks += held
    engine.decoding -= 1
    engine.kv_tokens -= context
    state.phases[engine.first_phase + request.phase] -= 1
    if request.at != NONE:
        unschedule(state, place)


@inlined
def next_at(plan: Plan, state: State, engine: Engine, request: Any) -> int:
    """The engine's count at which a request that decodes has its first token, decides or ends."""
    given: int = request.given + engine.count
    at: int = request.output
    if given == 0:
        at = 1
    elif request.answered == 0:
        gear = state.run.gear
        stage = plan.stage_of[gear * plan.models + request.model]
        decide_at = DECIDES_BY_ID
        if stage != NOT_IN_CASCADE and stage != plan.stage_count[gear] - 1:
            decide_at = plan.decide_at[gear * plan.most_stages + stage]
        if decide_at != DECIDES_AT_END:
            at = min(at, max(decide_at, given + 1))
    return at - given + engine.count


@inlined
def schedule(plan: Plan, state: State, engine: Engine, place: int) -> None:
    """Put a request among those of its next count, in order of entry."""
    request = state.requests[place]
    slot = slot_of(engine, next_at(plan, state, engine, request))
    request.at = slot
    first = state.soonest[slot]
    if first == NONE:
        state.soonest[slot] = request.below = request.above = place
        return
    below = state.requests[first].below
    if request.entry < state.requests[first].entry:
        state.soonest[slot] = place
    else:
        while state.requests[below].entry > request.entry:
            below = state.requests[below].below
    request.below = below
    request.above = state.requests[below].above
    state.requests[request.above].below = place
    state.requests[below].above = place


@inlined
def slot_of(engine: Engine, count: int) -> int:
    return engine.first_slot + (count & (engine.slots - 1))


@inlined
def unschedule(state: State, place: int) -> None:
    request = state.requests[place]
    if request.above == place:
        state.soonest[request.at] = NONE
    else:
        state.requests[request.below].above = request.above
        state.requests[request.above].below = request.below
        if state.soonest[request.at] == place:
            state.soonest[request.at] = request.above
    request.at = NONE
