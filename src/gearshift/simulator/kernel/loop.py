"""The simulator's event loop, compiled: the router's events and steps on arrays, in its order.

Read `runtime/router.py` first; each function here and in `steps.py` mirrors the one of the same
name there.
"""

from typing import Any

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import admission, forwarding, gear_shift, routing
from gearshift.policies import load as load_module
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS
from gearshift.simulator.kernel.deadlines import degrade, in_time, misses_anyway, shed, watch
from gearshift.simulator.kernel.exits import take_leaving
from gearshift.simulator.kernel.gear_cores import Cores, ask, take_effect, want_of_gear
from gearshift.simulator.kernel.load_scaling import Scaling, ticked
from gearshift.simulator.kernel.queues import Queues
from gearshift.simulator.kernel.state import (
    ARRIVED,
    ARRIVED_AT_TICK,
    DECIDED_NS,
    DONE,
    EASED_TICKS,
    FREE_NS,
    GEAR,
    HALTED_NS,
    METERED,
    METERED_AT_TICK,
    MOST_WAITING,
    NEXT_END_NS,
    NEXT_TICK_NS,
    NEXT_WAKE_NS,
    SHIFTS,
    TICKED_NS,
    TOUCHED,
    WAITING,
    Outcome,
    Plan,
    Settings,
    State,
    finish,
    forget_end,
    next_lead,
    write,
)
from gearshift.simulator.kernel.steps import route, run_to_next_exit, start_on_touched, touch, touch_device
from gearshift.support.compiled import compiled, inlined

ANSWER = forwarding.ANSWER
REFUSE = int(decisions.Decision.REFUSE)
QUEUE_FULL, INFEASIBLE = int(decisions.Ending.QUEUE_FULL), int(decisions.Ending.INFEASIBLE)
ANSWERED, SHIFT = int(decisions.Decision.ANSWER), int(decisions.Decision.SHIFT)

arrival_rate_qps = inlined(load_module.arrival_rate_qps)
metered_load = inlined(gear_shift.metered_load)
gear_asked_for = inlined(gear_shift.gear_asked_for)
gear_in_force = inlined(gear_shift.gear_in_force)
carry_turns = inlined(routing.carry_turns)
next_model = inlined(forwarding.next_model)
admits = inlined(admission.admits)


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
    ended_ns: int,
    now_ns: int,
) -> None:
    """Mirror the router's `samples_finished` and `batch_finished` for the batch of device `lead`.

    Device `lead` is the first that the batch runs on. Where batches shrink, only
    `samples_finished` for the samples that leave while others have run on since `ended_ns`.
    Answers are written one after another once everything is decided.
    """
    replica = state.ending[lead]
    model = plan.replica_model[replica]
    gear = state.numbers[GEAR]
    stage = plan.stage_of[gear * settings.models + model]
    stages = plan.stage_count[gear]
    base = gear * settings.most_stages
    sample, leaving, left = state.batch[replica], state.batch_length[replica], 0
    if settings.by_deadline is not None and settings.by_exit:
        sample = take_leaving(plan, state, q, replica)
        left = state.batch_length[replica]
        leaving -= left
    state.ends_ns[lead] = NEVER_NS
    if left == 0:
        for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
            state.busy[plan.spans[i]] = 0
        touch(plan, state, replica)
    for _ in range(leaving):
        following_sample = q.next[sample]
        visited = state.visited[sample] | (1 << model)
        state.visited[sample] = visited
        sure = certainty[model, record[sample]]
        following = next_model(stage, sure, visited, stages, plan.stage_models, plan.thresholds, base)
        if following == ANSWER:
            finish(settings, state, out, sample, now_ns)
            out.model[sample] = model
            out.gear[sample] = gear
            state.numbers[DONE] += 1
            write(state, out, now_ns, ANSWERED, sample, model, gear)
        else:
            late = False
            if settings.by_deadline is not None:
                out.model[sample] = model
                late = not in_time(state.deadline_ns[sample], now_ns, plan.fastest_ns[following])
            if late:
                degrade(settings, state, out, sample, now_ns)
            else:
                route(plan, settings, state, q, out, sample, following, now_ns)
        sample = following_sample
    forget_end(state, lead)
    if left != 0:
        run_to_next_exit(plan, state, q, out, replica, state.exit[replica] + 1, ended_ns)


@inlined
def share_turns(plan: Plan, settings: Settings, state: State) -> None:
    base = state.numbers[GEAR] * settings.replicas
    for model in range(settings.models):
        begin, end = plan.model_begin[model], plan.model_begin[model + 1]
        carry_turns(plan.shares, base, model, begin, end, state.last, state.following, state.due, state.stride)


@inlined
def shift(
    plan: Plan, settings: Settings, state: State, q: Queues, cores: Cores, out: Outcome, gear: int, now_ns: int
) -> None:
    write(state, out, now_ns, SHIFT, state.numbers[GEAR], gear, 0)
    state.numbers[GEAR] = gear
    if settings.by_deadline is not None and cores.in_gear.shape[0] > 0 and not cores.scaled:
        want_of_gear(settings, state, cores)
        ask(plan, settings, state, q, cores, out, now_ns)
    share_turns(plan, settings, state)
    row = state.numbers[SHIFTS]
    if row < out.shifts.shape[0]:
        out.shifts[row, 0] = now_ns
        out.shifts[row, 1] = gear
        state.numbers[SHIFTS] = row + 1
    for device in range(settings.devices):
        touch_device(state, device)


@inlined
def longest_first_stage_queue(plan: Plan, settings: Settings, state: State, q: Queues) -> int:
    model = plan.stage_models[state.numbers[GEAR] * settings.most_stages]
    longest = 0
    for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
        longest = max(longest, q.length[replica])
    return longest


@inlined
def _is_over(now_ns: int, until_ns: int, end_ns: int, next_tick_ns: int) -> bool:
    return now_ns > until_ns or (now_ns == until_ns and now_ns < min(end_ns, next_tick_ns))


@inlined
def wakes(settings: Settings, state: State, cores: Cores, due_ns: int) -> bool:
    for device in range(settings.devices):
        if state.wakes_ns[device] <= due_ns:
            return True
    if settings.by_deadline is not None:
        for replica in range(settings.replicas):
            if state.gives_up_ns[replica] <= due_ns:
                return True
            if cores.in_force.shape[0] > 0 and cores.holds_ns[replica] <= due_ns:
                return True
    return False


@inlined
def touch_due(state: State, device: int, now_ns: int) -> None:
    """List an idle device to start on after this event, behind those that were due earlier."""
    touch_device(state, device)
    i = state.numbers[TOUCHED] - 1
    while i > 0 and min(state.wakes_ns[state.touched[i]], now_ns) < min(state.wakes_ns[state.touched[i - 1]], now_ns):
        state.touched[i], state.touched[i - 1] = state.touched[i - 1], state.touched[i]
        i -= 1


@compiled
def run(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    scaling: Scaling,
    cores: Cores,
    out: Outcome,
    arrivals_ns: Any,
    continues: Any,
    record: Any,
    certainty: Any,
    until_ns: int,
) -> None:
    """Serve all samples; fills `out`.

    Halts at `until_ns`, after the batches and the tick of that instant; where cores are scaled,
    also in every shift. When called again, it requests the cores that are wanted by then, and goes
    on.

    At one instant: batches finish, the meter ticks, samples arrive, waits end. The router does one
    thing at a time: events that fall due while it is busy are handled when it is free again, in
    that order.
    """
    samples = arrivals_ns.shape[0]
    arrived = state.numbers[ARRIVED]
    arrived_at_tick = state.numbers[ARRIVED_AT_TICK]
    next_tick_ns = state.numbers[NEXT_TICK_NS]
    kept_ns = state.kept_ns
    metered = state.numbers[METERED]
    metered_at_tick = state.numbers[METERED_AT_TICK]
    factor = state.factor[0]
    halted_ns = state.numbers[HALTED_NS]
    if next_tick_ns == 0:
        next_tick_ns = METER_WINDOW_NS
        share_turns(plan, settings, state)
    elif settings.by_deadline is not None and cores.scaled:
        ask(plan, settings, state, q, cores, out, state.numbers[DECIDED_NS])
    while state.numbers[DONE] < samples:
        arrival_ns = arrivals_ns[arrived] if arrived < samples else NEVER_NS
        end_ns = state.numbers[NEXT_END_NS]
        wake_ns = state.numbers[NEXT_WAKE_NS]
        due_ns = min(end_ns, next_tick_ns, arrival_ns, wake_ns)
        now_ns = max(due_ns, state.numbers[FREE_NS])
        if settings.by_deadline is not None and halted_ns != NEVER_NS:
            now_ns, halted_ns = halted_ns, NEVER_NS
        elif settings.by_deadline is not None and _is_over(due_ns, until_ns, end_ns, next_tick_ns):
            break
        elif end_ns == due_ns:
            state.numbers[FREE_NS] = now_ns
            finish_batch(plan, settings, state, q, out, record, certainty, next_lead(state), due_ns, now_ns)
        elif next_tick_ns == due_ns:
            state.numbers[FREE_NS] = now_ns
            kept = min(metered, METER_KEEPS_ARRIVALS)
            oldest_ns = kept_ns[metered % METER_KEEPS_ARRIVALS] if kept == METER_KEEPS_ARRIVALS else 0
            window_ns = max(METER_WINDOW_NS, now_ns - state.numbers[TICKED_NS])
            rate_qps = arrival_rate_qps(metered - metered_at_tick, window_ns, kept, oldest_ns, now_ns)
            metered_at_tick, state.numbers[TICKED_NS] = metered, now_ns
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
                shift(plan, settings, state, q, cores, out, gear, now_ns)
                if settings.by_deadline is not None and cores.scaled:
                    halted_ns = now_ns
            factor = ticked(scaling, next_tick_ns // METER_WINDOW_NS, rate_qps, factor)
            next_tick_ns += METER_WINDOW_NS
            if settings.by_deadline is not None and halted_ns != NEVER_NS:
                break
        elif arrival_ns == due_ns:
            now_ns += settings.arrival_ns
            state.numbers[FREE_NS] = now_ns
            end = arrived + 1
            if continues.shape[0] > 0:
                while end < samples and continues[end]:
                    end += 1
            admitted = admits(state.numbers[WAITING], 0, end - arrived, 0, settings.most_waiting, 0)
            if admitted:
                state.numbers[MOST_WAITING] = max(state.numbers[MOST_WAITING], state.numbers[WAITING] + end - arrived)
            first_model = plan.stage_models[state.numbers[GEAR] * settings.most_stages]
            ending = QUEUE_FULL
            feasible = True
            if settings.by_deadline is not None and settings.refuses:
                feasible = not misses_anyway(plan, state, first_model, state.deadline_ns[arrived], now_ns)
            for sample in range(arrived, end):
                if admitted:
                    kept_ns[metered % METER_KEEPS_ARRIVALS] = now_ns
                    metered += 1
                    if feasible:
                        route(plan, settings, state, q, out, sample, first_model, now_ns)
                        continue
                    ending = INFEASIBLE
                state.numbers[DONE] += 1
                out.ended[sample] = ending
                write(state, out, now_ns, REFUSE, sample, ending, 0)
            arrived = end
        else:
            if now_ns > due_ns and not wakes(settings, state, cores, due_ns):
                now_ns = due_ns  # nothing is left to wake for; else events due meanwhile would run now
            state.numbers[FREE_NS] = max(now_ns, state.numbers[FREE_NS])
            state.numbers[NEXT_WAKE_NS] = NEVER_NS
            if settings.by_deadline is not None and cores.in_force.shape[0] > 0:
                take_effect(plan, settings, state, q, cores, now_ns)
            if settings.by_deadline is not None:
                for replica in range(settings.replicas):
                    if state.gives_up_ns[replica] <= now_ns:
                        shed(plan, settings, state, q, out, replica, now_ns)
                        watch(plan, settings, state, q, replica, now_ns)
                        touch(plan, state, replica)
                    state.numbers[NEXT_WAKE_NS] = min(state.numbers[NEXT_WAKE_NS], state.gives_up_ns[replica])
            state.numbers[TOUCHED] = 0
            for device in range(settings.devices):
                if state.wakes_ns[device] <= now_ns or state.is_touched[device] != 0:
                    state.is_touched[device] = 0
                    touch_due(state, device, now_ns)
                else:
                    state.numbers[NEXT_WAKE_NS] = min(state.numbers[NEXT_WAKE_NS], state.wakes_ns[device])
        start_on_touched(plan, settings, state, q, out, now_ns)
    state.numbers[ARRIVED] = arrived
    state.numbers[ARRIVED_AT_TICK] = arrived_at_tick
    state.numbers[NEXT_TICK_NS] = next_tick_ns
    state.numbers[METERED] = metered
    state.numbers[METERED_AT_TICK] = metered_at_tick
    state.numbers[HALTED_NS] = halted_ns
    state.factor[0] = factor
    if state.numbers[DONE] == samples:
        out.arrived_in_gear[state.numbers[GEAR]] += samples - arrived_at_tick
