"""The simulator's events, compiled: the router's on arrays.

Read `runtime/router/router.py` first; each function here and in `steps.py` mirrors the one of the
same name there.
"""

from typing import Any

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import admission, gear_shift, routing, sharing
from gearshift.policies import next_step as next_step_module
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS
from gearshift.simulator.kernel import choosing
from gearshift.simulator.kernel.choosing import NO_CHOICE, first_model, model_now
from gearshift.simulator.kernel.deadlines import degrade, in_time, misses_anyway, shed, watch
from gearshift.simulator.kernel.exits import run_to_next_exit, take_leaving, touch_device
from gearshift.simulator.kernel.gear_cores import Cores, ask, take_effect, want_of_gear
from gearshift.simulator.kernel.graph import Graph
from gearshift.simulator.kernel.load_scaling import (
    Scaling,
    batch_ended,
    count_arrived,
    measured_qps,
    slowdown_ticked,
    ticked,
)
from gearshift.simulator.kernel.queues import Queues
from gearshift.simulator.kernel.refining import answer_overrun, release, watch_release
from gearshift.simulator.kernel.state import (
    Outcome,
    Plan,
    Settings,
    State,
    finish,
    forget_end,
    gear_of,
    goes_on,
    is_bulk,
    is_item,
    pipeline_of,
    write,
)
from gearshift.simulator.kernel.steps import refine, route, touch
from gearshift.support.compiled import apart, inlined

ANSWER, NOT_IN_CASCADE = next_step_module.ANSWER, next_step_module.NOT_IN_CASCADE
REFUSE = int(decisions.Decision.REFUSE)
QUEUE_FULL, INFEASIBLE = int(decisions.Ending.QUEUE_FULL), int(decisions.Ending.INFEASIBLE)
ANSWERED, SHIFT = int(decisions.Decision.ANSWER), int(decisions.Decision.SHIFT)

metered_load = inlined(gear_shift.metered_load)
gear_asked_for = inlined(gear_shift.gear_asked_for)
gear_in_force = inlined(gear_shift.gear_in_force)
carry_turns = inlined(routing.carry_turns)
settings_in_force = inlined(sharing.settings_in_force)
next_step = inlined(next_step_module.next_step)
admits = inlined(admission.admits)


@inlined
def leave_batch(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
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
        if settings.refines is not None:
            state.refining.check_ns[replica] = NEVER_NS
        if settings.slowdown:
            first = batch_ended(state.slowdown, replica, now_ns)
            if settings.refines is not None:
                watch_release(plan, settings, state, first)
    stage_ended(plan, settings, state, q, out, certainty, replica, sample, leaving, now_ns)
    forget_end(state, lead)
    if left != 0:
        run_to_next_exit(plan, state, q, out, replica, state.exit[replica] + 1, ended_ns)


@inlined
def executor_free(plan: Plan, state: State, replica: int) -> None:
    for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
        state.busy[plan.spans[i]] = 0
        touch_device(state, plan.spans[i])


@inlined
def stage_ended(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    certainty: Any,
    replica: int,
    sample: int,
    count: int,
    now_ns: int,
) -> None:
    """Answer or forward a chain of samples; answers are written once everything is decided."""
    model, of_pipeline = plan.replica_model[replica], 0
    gear = row = state.pipelines[of_pipeline].gear
    stage, stages = plan.stage_of[row * settings.models + model], plan.stage_count[row]
    base = row * settings.most_stages
    next_of, records, visits, of_model = q.next, state.record, state.visited, certainty[model]
    stage_models, thresholds = plan.stage_models, plan.thresholds
    for _ in range(count):
        following_sample = next_of[sample]
        if settings.several is not None:
            node = state.node[sample]
            of_pipeline = state.pipeline_of[node]
            gear = gear_of(settings, state, of_pipeline, sample)
            row = plan.first_row[node] + gear
            stage, stages = plan.stage_of[row * settings.models + model], plan.stage_count[row]
            base = row * settings.most_stages
        if is_item(settings, sample) and state.is_over[state.row[sample]] != 0:
            sample = following_sample
            continue
        if settings.refines is not None and state.refining.over[sample] != 0:
            sample = following_sample
            continue
        visited = visits[sample] | (1 << model)
        visits[sample] = visited
        sure = of_model[records[sample]]
        if settings.chooses is not None:
            choice = choosing.chosen(plan, settings, state, q, out, sample, of_pipeline, node, visited, now_ns)
            stage, stages, base = NOT_IN_CASCADE, 0, 0
            if choice != NO_CHOICE:
                stage, stages = plan.stage_of[choice * settings.models + model], plan.stage_count[choice]
                base = choice * settings.most_stages
        following = next_step(stage, sure, visited, stages, stage_models, thresholds, base)
        if following == ANSWER:
            if is_item(settings, sample):
                goes_on(state, q.next, sample)
            else:
                finish(settings, state, out, sample, now_ns)
                state.run.done += 1
            out.model[sample] = model
            out.gear[sample] = gear
            write(state, out, now_ns, ANSWERED, sample, model, gear)
        else:
            late = False
            if settings.by_deadline is not None:
                out.model[sample] = model
                late = not in_time(state.deadline_ns[sample], now_ns, plan.fastest_ns[following])
            if late:
                degrade(settings, state, q, out, sample, now_ns)
            elif settings.refines is not None:
                out.model[sample] = model
                refine(plan, settings, state, q, out, sample, of_pipeline, following, model, sure, now_ns)
            else:
                route(plan, settings, state, q, out, sample, of_pipeline, following, now_ns)
        sample = following_sample


@inlined
def tick(
    plan: Plan, settings: Settings, state: State, q: Queues, scaling: Scaling, cores: Cores, out: Outcome, now_ns: int
) -> None:
    run = state.run
    if settings.slowdown:
        slowdown_ticked(state.slowdown)
    for number in range(1 if settings.several is None else state.pipelines.shape[0]):
        pipeline, meter, alpha = state.pipelines[number], plan.meter[number], plan.alpha[number]
        rate_qps = measured_qps(state, number, now_ns)
        longest = longest_first_stage_queue(plan, settings, state, q, number)
        load = metered_load(meter, rate_qps, pipeline.factor, pipeline.waiting, alpha)
        if settings.slowdown:
            load = state.slowdown.of_load[0] * load
        first, before = plan.first_gear[number], pipeline.gear
        starts = plan.range_starts[first : plan.first_gear[number + 1]]
        asked = gear_asked_for(meter, before, load, longest, alpha, starts, starts.shape[0])
        gear, pipeline.eased_ticks = gear_in_force(
            before, asked, pipeline.eased_ticks, load, starts, plan.upshift_margin[number]
        )
        count_arrived(state, out, number)
        if gear != before:
            shift(plan, settings, state, q, cores, out, number, gear, now_ns)
            if settings.by_deadline is not None and cores.scaled:
                run.halted_ns = now_ns
        pipeline.factor = ticked(scaling, number, run.next_tick_ns // METER_WINDOW_NS, rate_qps, pipeline.factor)
    run.next_tick_ns += METER_WINDOW_NS


@inlined
def arrive(
    plan: Plan, settings: Settings, state: State, q: Queues, g: Graph | None, out: Outcome, continues: Any, now_ns: int
) -> None:
    """Meter and queue the samples of the next request, or refuse them all."""
    run = state.run
    first, end = run.arrived, run.arrived + 1
    number = pipeline_of(settings, state, first)
    pipeline = state.pipelines[number]
    if continues.shape[0] > 0:
        while end < continues.shape[0] and continues[end]:
            end += 1
    run.arrived = end
    bulk = is_bulk(settings, state, first)
    if not bulk:
        pipeline.arrived += end - first
    admitted = bulk or admits(pipeline.waiting, 0, end - first, 0, plan.most_waiting[number], 0)
    if admitted and not bulk:
        pipeline.most_waiting = max(pipeline.most_waiting, pipeline.waiting + end - first)
    node = plan.entries[plan.entry_begin[number]]
    model = model_now(plan, settings, state, q, number, node, first, now_ns)
    ending = QUEUE_FULL
    feasible = True
    if settings.by_deadline is not None and settings.refuses and not bulk:
        deadline_ns = state.deadline_ns[first]
        feasible = not misses_anyway(plan, settings, state, number, model, deadline_ns, now_ns)
        if g is not None and g.is_graph[number]:
            feasible = all_may_begin(plan, settings, state, q, g, number, first, now_ns)
    for sample in range(first, end):
        if admitted:
            if not bulk:
                state.kept_ns[number * METER_KEEPS_ARRIVALS + pipeline.metered % METER_KEEPS_ARRIVALS] = now_ns
                pipeline.metered += 1
            if feasible:
                if g is not None and g.is_graph[number]:
                    goes_on(state, q.next, sample)
                    continue
                model = choosing.begin(plan, settings, state, q, out, sample, number, node, now_ns)
                route(plan, settings, state, q, out, sample, number, model, now_ns)
                continue
            ending = INFEASIBLE
        run.done += 1
        out.ended[sample] = ending
        write(state, out, now_ns, REFUSE, sample, ending, 0)


@apart
def all_may_begin(
    plan: Plan, settings: Settings, state: State, q: Queues, g: Graph, number: int, row: int, now_ns: int
) -> bool:
    """Whether for each required node that a row begins with there is a replica that could be in time."""
    for i in range(plan.entry_begin[number], plan.entry_begin[number + 1]):
        node = plan.entries[i]
        model = model_now(plan, settings, state, q, number, node, row, now_ns)
        if g.required[node] and misses_anyway(plan, settings, state, number, model, state.deadline_ns[row], now_ns):
            return False
    return True


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
    if settings.refines is not None:
        release_due(plan, settings, state, q, out, now_ns)
    run.touched = 0
    for device in range(settings.devices):
        if state.wakes_ns[device] <= now_ns or state.is_touched[device] != 0:
            state.is_touched[device] = 0
            touch_due(state, device, now_ns)
        else:
            run.next_timer_ns = min(run.next_timer_ns, state.wakes_ns[device])


@inlined
def release_due(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, now_ns: int) -> None:
    for replica in range(settings.replicas):
        if state.refining.release_ns[replica] <= now_ns:
            release(plan, settings, state, q, out, replica, now_ns)
        state.run.next_timer_ns = min(state.run.next_timer_ns, state.refining.release_ns[replica])
    for replica in range(settings.replicas):
        if state.refining.check_ns[replica] <= now_ns:
            answer_overrun(settings, state, q, out, replica, now_ns)
        state.run.next_timer_ns = min(state.run.next_timer_ns, state.refining.check_ns[replica])


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
    if settings.refines is not None:
        for replica in range(settings.replicas):
            if state.refining.release_ns[replica] <= due_ns or state.refining.check_ns[replica] <= due_ns:
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
def share_turns(plan: Plan, settings: Settings, state: State, number: int) -> None:
    """Bring the turns of a pipeline to its gear; its replica r is r further on in the rings."""
    models, before = number * settings.models, number * settings.replicas
    base = state.gear_row[number] * settings.replicas - before
    for model in range(settings.models):
        begin, end = before + plan.model_begin[model], before + plan.model_begin[model + 1]
        carry_turns(plan.shares, base, models + model, begin, end, state.last, state.following, state.due, state.stride)


@inlined
def set_in_force(plan: Plan, settings: Settings, state: State) -> None:
    for replica in range(settings.replicas):
        minimum, largest, wait_ns = settings_in_force(
            replica,
            state.gear_row,
            settings.replicas,
            plan.shares,
            plan.minimum_queue_length,
            plan.largest_batch_size,
            plan.longest_wait_ns,
        )
        state.minimum_queue_length[replica] = minimum
        state.largest_batch_size[replica] = largest
        state.longest_wait_ns[replica] = wait_ns


@inlined
def shift(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    cores: Cores,
    out: Outcome,
    number: int,
    gear: int,
    now_ns: int,
) -> None:
    write(state, out, now_ns, SHIFT, state.pipelines[number].gear, gear, number)
    state.pipelines[number].gear = gear
    state.gear_row[number] = plan.first_gear[number] + gear
    if settings.by_deadline is not None and cores.in_gear.shape[0] > 0 and not cores.scaled:
        want_of_gear(settings, state, cores)
        ask(plan, settings, state, q, cores, out, now_ns)
    share_turns(plan, settings, state, number)
    set_in_force(plan, settings, state)
    row = state.run.shifts
    if row < out.shifts.shape[0]:
        out.shifts[row, 0] = now_ns
        out.shifts[row, 1] = gear
        out.shifts[row, 2] = number
        state.run.shifts = row + 1
    for device in range(settings.devices):
        touch_device(state, device)


@inlined
def longest_first_stage_queue(plan: Plan, settings: Settings, state: State, q: Queues, number: int) -> int:
    longest = 0
    for i in range(plan.entry_begin[number], plan.entry_begin[number + 1]):
        model = first_model(plan, settings, state.pipelines[number].gear, plan.entries[i])
        for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
            longest = max(longest, q.length[replica])
    return longest
