"""The simulator's events, compiled: the router's on arrays.

Read `runtime/router/router.py` first; each function here and in `steps.py` mirrors the one of the
same name there.
"""

from typing import Any

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import admission, gear_shift, routing
from gearshift.policies import load as load_module
from gearshift.policies import next_step as next_step_module
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS
from gearshift.simulator.kernel.deadlines import degrade, in_time, misses_anyway, shed, watch
from gearshift.simulator.kernel.exits import take_leaving
from gearshift.simulator.kernel.gear_cores import Cores, ask, take_effect, want_of_gear
from gearshift.simulator.kernel.load_scaling import Scaling, ticked
from gearshift.simulator.kernel.queues import Queues
from gearshift.simulator.kernel.state import Outcome, Plan, Settings, State, finish, forget_end, write
from gearshift.simulator.kernel.steps import route, run_to_next_exit, touch, touch_device
from gearshift.support.compiled import inlined

ANSWER = next_step_module.ANSWER
REFUSE = int(decisions.Decision.REFUSE)
QUEUE_FULL, INFEASIBLE = int(decisions.Ending.QUEUE_FULL), int(decisions.Ending.INFEASIBLE)
ANSWERED, SHIFT = int(decisions.Decision.ANSWER), int(decisions.Decision.SHIFT)

arrival_rate_qps = inlined(load_module.arrival_rate_qps)
metered_load = inlined(gear_shift.metered_load)
gear_asked_for = inlined(gear_shift.gear_asked_for)
gear_in_force = inlined(gear_shift.gear_in_force)
carry_turns = inlined(routing.carry_turns)
next_step = inlined(next_step_module.next_step)
admits = inlined(admission.admits)


@inlined
def leave_batch(
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
    """Samples of the batch whose first device is `lead` leave it, and with the last it ends.

    Where batches shrink, those that are left have run on since `ended_ns`.
    """
    replica = state.ending[lead]
    sample, leaving, left = state.batch[replica], state.batch_length[replica], 0
    if settings.by_deadline is not None and settings.by_exit:
        sample = take_leaving(plan, state, q, replica)
        left = state.batch_length[replica]
        leaving -= left
    state.ends_ns[lead] = NEVER_NS
    if left == 0:
        executor_free(plan, state, replica)
    stage_ended(plan, settings, state, q, out, record, certainty, replica, sample, leaving, now_ns)
    forget_end(state, lead)
    if left != 0:
        run_to_next_exit(plan, state, q, out, replica, state.exit[replica] + 1, ended_ns)


@inlined
def executor_free(plan: Plan, state: State, replica: int) -> None:
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        state.busy[plan.spans[i]] = 0
    touch(plan, state, replica)


@inlined
def stage_ended(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    record: Any,
    certainty: Any,
    replica: int,
    sample: int,
    count: int,
    now_ns: int,
) -> None:
    """Answer or forward a chain of samples; answers are written once everything is decided."""
    model = plan.replica_model[replica]
    gear = state.pipeline.gear
    stage = plan.stage_of[gear * settings.models + model]
    stages = plan.stage_count[gear]
    base = gear * settings.most_stages
    for _ in range(count):
        following_sample = q.next[sample]
        visited = state.visited[sample] | (1 << model)
        state.visited[sample] = visited
        sure = certainty[model, record[sample]]
        following = next_step(stage, sure, visited, stages, plan.stage_models, plan.thresholds, base)
        if following == ANSWER:
            finish(settings, state, out, sample, now_ns)
            out.model[sample] = model
            out.gear[sample] = gear
            state.run.done += 1
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


@inlined
def tick(
    plan: Plan, settings: Settings, state: State, q: Queues, scaling: Scaling, cores: Cores, out: Outcome, now_ns: int
) -> None:
    run, pipeline = state.run, state.pipeline
    rate_qps = measured_qps(state, now_ns)
    longest = longest_first_stage_queue(plan, settings, state, q)
    load = metered_load(settings.meter, rate_qps, pipeline.factor, pipeline.waiting, settings.alpha)
    starts, before = plan.range_starts, pipeline.gear
    asked = gear_asked_for(settings.meter, before, load, longest, settings.alpha, starts, starts.shape[0])
    gear, pipeline.eased_ticks = gear_in_force(
        before, asked, pipeline.eased_ticks, load, starts, settings.upshift_margin
    )
    out.arrived_in_gear[before] += run.arrived - pipeline.arrived_at_tick
    pipeline.arrived_at_tick = run.arrived
    if gear != before:
        shift(plan, settings, state, q, cores, out, gear, now_ns)
        if settings.by_deadline is not None and cores.scaled:
            run.halted_ns = now_ns
    pipeline.factor = ticked(scaling, run.next_tick_ns // METER_WINDOW_NS, rate_qps, pipeline.factor)
    run.next_tick_ns += METER_WINDOW_NS


@inlined
def measured_qps(state: State, now_ns: int) -> float:
    """The arrival rate of the window that ends now; the next window begins."""
    pipeline = state.pipeline
    kept = min(pipeline.metered, METER_KEEPS_ARRIVALS)
    oldest_ns = state.kept_ns[pipeline.metered % METER_KEEPS_ARRIVALS] if kept == METER_KEEPS_ARRIVALS else 0
    window_ns = max(METER_WINDOW_NS, now_ns - pipeline.ticked_ns)
    recent = pipeline.metered - pipeline.metered_at_tick
    pipeline.metered_at_tick, pipeline.ticked_ns = pipeline.metered, now_ns
    return arrival_rate_qps(recent, window_ns, kept, oldest_ns, now_ns)


@inlined
def arrive(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, continues: Any, now_ns: int) -> None:
    """Meter and queue the samples of the next request, or refuse them all."""
    run, pipeline = state.run, state.pipeline
    first, end = run.arrived, run.arrived + 1
    if continues.shape[0] > 0:
        while end < continues.shape[0] and continues[end]:
            end += 1
    run.arrived = end
    admitted = admits(pipeline.waiting, 0, end - first, 0, settings.most_waiting, 0)
    if admitted:
        run.most_waiting = max(run.most_waiting, pipeline.waiting + end - first)
    first_model = plan.stage_models[pipeline.gear * settings.most_stages]
    ending = QUEUE_FULL
    feasible = True
    if settings.by_deadline is not None and settings.refuses:
        feasible = not misses_anyway(plan, state, first_model, state.deadline_ns[first], now_ns)
    for sample in range(first, end):
        if admitted:
            state.kept_ns[pipeline.metered % METER_KEEPS_ARRIVALS] = now_ns
            pipeline.metered += 1
            if feasible:
                route(plan, settings, state, q, out, sample, first_model, now_ns)
                continue
            ending = INFEASIBLE
        run.done += 1
        out.ended[sample] = ending
        write(state, out, now_ns, REFUSE, sample, ending, 0)


@inlined
def timer(plan: Plan, settings: Settings, state: State, q: Queues, cores: Cores, out: Outcome, now_ns: int) -> None:
    """Let cores take effect, drop samples that are late, and list devices whose wait is over."""
    run = state.run
    run.next_timer_ns = NEVER_NS
    if settings.by_deadline is not None and cores.in_force.shape[0] > 0:
        take_effect(plan, settings, state, q, cores, now_ns)
    if settings.by_deadline is not None:
        for replica in range(settings.replicas):
            if state.gives_up_ns[replica] <= now_ns:
                shed(plan, settings, state, q, out, replica, now_ns)
                watch(plan, settings, state, q, replica, now_ns)
                touch(plan, state, replica)
            run.next_timer_ns = min(run.next_timer_ns, state.gives_up_ns[replica])
    run.touched = 0
    for device in range(settings.devices):
        if state.wakes_ns[device] <= now_ns or state.is_touched[device] != 0:
            state.is_touched[device] = 0
            touch_due(state, device, now_ns)
        else:
            run.next_timer_ns = min(run.next_timer_ns, state.wakes_ns[device])


@inlined
def timer_is_due(settings: Settings, state: State, cores: Cores, due_ns: int) -> bool:
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
    i = state.run.touched - 1
    while i > 0 and min(state.wakes_ns[state.touched[i]], now_ns) < min(state.wakes_ns[state.touched[i - 1]], now_ns):
        state.touched[i], state.touched[i - 1] = state.touched[i - 1], state.touched[i]
        i -= 1


@inlined
def share_turns(plan: Plan, settings: Settings, state: State) -> None:
    base = state.pipeline.gear * settings.replicas
    for model in range(settings.models):
        begin, end = plan.model_begin[model], plan.model_begin[model + 1]
        carry_turns(plan.shares, base, model, begin, end, state.last, state.following, state.due, state.stride)


@inlined
def shift(
    plan: Plan, settings: Settings, state: State, q: Queues, cores: Cores, out: Outcome, gear: int, now_ns: int
) -> None:
    write(state, out, now_ns, SHIFT, state.pipeline.gear, gear, 0)
    state.pipeline.gear = gear
    if settings.by_deadline is not None and cores.in_gear.shape[0] > 0 and not cores.scaled:
        want_of_gear(settings, state, cores)
        ask(plan, settings, state, q, cores, out, now_ns)
    share_turns(plan, settings, state)
    row = state.run.shifts
    if row < out.shifts.shape[0]:
        out.shifts[row, 0] = now_ns
        out.shifts[row, 1] = gear
        state.run.shifts = row + 1
    for device in range(settings.devices):
        touch_device(state, device)


@inlined
def longest_first_stage_queue(plan: Plan, settings: Settings, state: State, q: Queues) -> int:
    model = plan.stage_models[state.pipeline.gear * settings.most_stages]
    longest = 0
    for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
        longest = max(longest, q.length[replica])
    return longest
