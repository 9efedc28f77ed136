"""Refinement in the kernel: `runtime/router/refining.py` on arrays.

The rows that wait to be refined by alike replicas, the first of which is r, are in a doubly linked
list by the end of their time, and in one of `LEVELS` lists for their level, in the same order:

    first[r] -> ... -> last[r]                              Queues.next, Queues.previous
    first_at[r * LEVELS + level] -> ... -> last_at[...]     next_at, previous_at
"""

from typing import Any

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import batching, order, slowdown
from gearshift.policies import refine as policies
from gearshift.policies.refine import LEVELS, REFINE, URGENT
from gearshift.simulator.kernel import queues as queues_module
from gearshift.simulator.kernel.arrays import Refining
from gearshift.simulator.kernel.deadlines import chain_batch, degrade, shed, start_by_ns
from gearshift.simulator.kernel.exits import run_batch, touch_device
from gearshift.simulator.kernel.queues import NONE, Queues, unlink
from gearshift.simulator.kernel.state import (
    Outcome,
    Plan,
    Settings,
    State,
    finish,
    pipeline_of,
    visits_of,
    write,
)
from gearshift.support.compiled import apart, inlined

NOT_YET, DEADLINE, REFINES = batching.NOT_YET, batching.DEADLINE, batching.REFINES
ROUTE, RELEASE = int(decisions.Decision.ROUTE), int(decisions.Decision.RELEASE)
TIME = int(decisions.Ending.TIME)

expected_gain = inlined(policies.expected_gain)
refine_key = inlined(policies.refine_key)
refine_until_ns = inlined(policies.refine_until_ns)
may_finish = inlined(policies.may_finish)
release_at_ns = inlined(policies.release_at_ns)
screen_batch_size = inlined(policies.screen_batch_size)
refine_batch_size = inlined(policies.refine_batch_size)
screen_or_refine = inlined(policies.screen_or_refine)
overrun_ns = inlined(policies.overrun_ns)
answers_overrun = inlined(policies.answers_overrun)
slowed_ns = inlined(slowdown.slowed_ns)
profiled_ns = inlined(slowdown.profiled_ns)
start_reason = inlined(batching.start_reason)
batch_size = inlined(batching.batch_size)
replica_key = inlined(order.replica_key)
head = queues_module.head


@inlined
def run_time_ns(plan: Plan, settings: Settings, state: State, replica: int, size: int) -> Any:
    """The run time to be expected now."""
    run_ns = plan.run_ns[replica, size]
    if not settings.slowdown:
        return run_ns
    return slowed_ns(run_ns, state.slowdown.ratios[state.slowdown.alike[replica]])


@inlined
def touch_alike(plan: Plan, state: State, leader: int) -> None:
    """List the idle devices of all replicas that share the queues of `leader`."""
    model, queue_of = plan.replica_model[leader], state.refining.queue_of
    for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
        if queue_of[replica] == leader:
            for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
                touch_device(state, plan.spans[i])


@inlined
def deadline_of(settings: Settings, state: State, sample: int) -> int:
    return NEVER_NS if settings.by_deadline is None else state.deadline_ns[sample]


@inlined
def until_of(settings: Settings, state: State, sample: int) -> Any:
    """When a row's time ends, by the objective and the gear of its pipeline."""
    margin_ns = state.refining.margin_ns[state.gear_row[pipeline_of(settings, state, sample)]]
    return refine_until_ns(state.answer_by_ns[sample], margin_ns, deadline_of(settings, state, sample))


@inlined
def wait_for_gain(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    sample: int,
    number: int,
    replica: int,
    kept: int,
    sure: float,
    now_ns: int,
) -> None:
    """Queue a row with an answer for `replica` and those alike, or answer it if it could not finish."""
    refining = state.refining
    leader = refining.queue_of[replica]
    until_ns = until_of(settings, state, sample)
    refining.until_ns[sample] = until_ns
    if not may_finish(until_ns, now_ns, run_time_ns(plan, settings, state, leader, 1)):
        answer_by_time(settings, state, q, out, sample, now_ns)
        return
    pair = (number * settings.models + kept) * settings.models + plan.replica_model[replica]
    begin, end = refining.gain_begin[pair], refining.gain_begin[pair + 1]
    gain = expected_gain(sure, begin, end, refining.gain_certainty, refining.gains)
    refining.level[sample] = refine_key(gain, refining.greatest[number])
    q.entered_ns[sample] = now_ns
    _add(plan, settings, state, q, leader, sample)
    touch_alike(plan, state, leader)
    if out.log.shape[0] > 0:
        write(state, out, now_ns, ROUTE, sample, leader, visits_of(state, sample))
    if refining.length[leader] > refining.most[leader]:
        release_last(plan, settings, state, q, out, leader, now_ns)


@inlined
def _ends_later(refining: Refining, other: int, until_ns: int, sample: int) -> bool:
    other_ns = refining.until_ns[other]
    return other_ns > until_ns or (other_ns == until_ns and other > sample)


@inlined
def _insert(refining: Refining, first: Any, last: Any, next_of: Any, previous_of: Any, at: int, sample: int) -> None:
    """Put a row into a chain by the end of its time, from its end on: most rows come in that order."""
    until_ns = refining.until_ns[sample]
    before = last[at]
    while before != NONE and _ends_later(refining, before, until_ns, sample):
        before = previous_of[before]
    after = first[at] if before == NONE else next_of[before]
    previous_of[sample], next_of[sample] = before, after
    if before == NONE:
        first[at] = sample
    else:
        next_of[before] = sample
    if after == NONE:
        last[at] = sample
    else:
        previous_of[after] = sample


@inlined
def _add(plan: Plan, settings: Settings, state: State, q: Queues, leader: int, sample: int) -> None:
    refining = state.refining
    _insert(refining, refining.first, refining.last, q.next, q.previous, leader, sample)
    level = refining.level[sample]
    at = leader * LEVELS + level
    _insert(refining, refining.first_at, refining.last_at, refining.next_at, refining.previous_at, at, sample)
    refining.top[leader] = max(refining.top[leader], level)
    refining.length[leader] += 1
    watch_release(plan, settings, state, leader)


@inlined
def _remove(state: State, q: Queues, leader: int, sample: int) -> None:
    refining = state.refining
    unlink(refining.first, refining.last, q.next, q.previous, leader, sample)
    at = leader * LEVELS + refining.level[sample]
    unlink(refining.first_at, refining.last_at, refining.next_at, refining.previous_at, at, sample)
    refining.length[leader] -= 1


@inlined
def watch_release(plan: Plan, settings: Settings, state: State, leader: int) -> None:
    """Note when the next row is answered as it is."""
    refining = state.refining
    first = refining.first[leader]
    at_ns = NEVER_NS
    if first != NONE:
        at_ns = release_at_ns(refining.until_ns[first], run_time_ns(plan, settings, state, leader, 1))
    refining.release_ns[leader] = at_ns
    state.run.next_timer_ns = min(state.run.next_timer_ns, at_ns)


@inlined
def answer_by_time(settings: Settings, state: State, q: Queues, out: Outcome, sample: int, now_ns: int) -> None:
    if state.refining.until_ns[sample] == deadline_of(settings, state, sample):
        degrade(settings, state, q, out, sample, now_ns)
    else:
        answer_as_it_is(settings, state, out, sample, now_ns)


@inlined
def answer_as_it_is(settings: Settings, state: State, out: Outcome, sample: int, now_ns: int) -> None:
    gear = state.pipelines[pipeline_of(settings, state, sample)].gear
    finish(settings, state, out, sample, now_ns)
    state.run.done += 1
    out.gear[sample] = gear
    out.ended[sample] = TIME
    write(state, out, now_ns, RELEASE, sample, out.model[sample], gear)


@apart
def release(plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, leader: int, now_ns: int) -> None:
    """Answer the rows that could not finish any more."""
    refining = state.refining
    while refining.release_ns[leader] <= now_ns:
        sample = refining.first[leader]
        _remove(state, q, leader, sample)
        watch_release(plan, settings, state, leader)
        answer_by_time(settings, state, q, out, sample, now_ns)


@apart
def release_last(
    plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, leader: int, now_ns: int
) -> None:
    """Answer the row that gains least, as more wait than can be refined."""
    refining = state.refining
    level = 0
    while refining.last_at[leader * LEVELS + level] == NONE:
        level += 1
    sample = refining.last_at[leader * LEVELS + level]
    _remove(state, q, leader, sample)
    watch_release(plan, settings, state, leader)
    answer_as_it_is(settings, state, out, sample, now_ns)


@apart
def answer_overrun(settings: Settings, state: State, q: Queues, out: Outcome, replica: int, now_ns: int) -> None:
    """Answer rows of a batch that overruns, whose time has ended; note when to look again."""
    refining = state.refining
    overrun, check_ns = refining.overrun_ns[replica], NEVER_NS
    sample = state.batch[replica]
    for _ in range(state.batch_length[replica]):
        if refining.over[sample] == 0:
            if answers_overrun(refining.until_ns[sample], overrun, now_ns):
                refining.over[sample] = 1
                answer_by_time(settings, state, q, out, sample, now_ns)
            else:
                check_ns = min(check_ns, max(refining.until_ns[sample], overrun))
        sample = q.next[sample]
    refining.check_ns[replica] = check_ns
    state.run.next_timer_ns = min(state.run.next_timer_ns, check_ns)


@inlined
def _best_level(state: State, leader: int) -> Any:
    refining = state.refining
    level = refining.top[leader]
    while level > 0 and refining.first_at[leader * LEVELS + level] == NONE:
        level -= 1
    refining.top[leader] = level
    return level


@inlined
def _batch_size(
    plan: Plan, settings: Settings, state: State, replica: int, most: int, for_gain: bool, now_ns: int
) -> Any:
    """The size of the best batch to refine; the rows that were looked at are in `row`, `count` of them."""
    refining = state.refining
    leader = refining.queue_of[replica]
    level, count = _best_level(state, leader), 0
    waiting = min(2 * most, refining.length[leader])
    while count < waiting:
        sample = refining.first_at[leader * LEVELS + level]
        while sample != NONE and count < waiting:
            refining.row[count] = sample
            left_ns = refining.until_ns[sample] - now_ns
            if settings.slowdown:
                left_ns = profiled_ns(left_ns, state.slowdown.ratios[leader])
            refining.left_ns[count] = left_ns
            refining.row_level[count] = level
            count += 1
            sample = refining.next_at[sample]
        level -= 1
    run_ns = plan.run_ns[replica]
    return count, refine_batch_size(count, most, run_ns, refining.left_ns, refining.row_level, for_gain)


@inlined
def _take(plan: Plan, settings: Settings, state: State, q: Queues, replica: int, count: int, size: int) -> Any:
    """Chain the first `size` rows that can finish, of the `count` that were looked at."""
    refining = state.refining
    leader, run_ns = refining.queue_of[replica], plan.run_ns[replica, size]
    first = last = NONE
    taken = 0
    for i in range(count):
        if taken < size and refining.left_ns[i] >= run_ns:
            sample = refining.row[i]
            _remove(state, q, leader, sample)
            q.next[sample] = NONE
            if last == NONE:
                first = sample
            else:
                q.next[last] = sample
            last = sample
            taken += 1
    watch_release(plan, settings, state, leader)
    return first


@inlined
def _to_screen(plan: Plan, state: State, q: Queues, replica: int) -> Any:
    waiting = q.length[state.refining.queue_of[replica]]
    return screen_batch_size(waiting, state.largest_batch_size[replica], plan.run_ns[replica])


@inlined
def start_refining_on(
    plan: Plan, settings: Settings, state: State, q: Queues, out: Outcome, device: int, now_ns: int
) -> None:
    """Start a batch that screens, or one that refines, on an idle device."""
    if state.busy[device] != 0:
        return
    refining = state.refining
    wake_ns = NEVER_NS
    screens = urgent = refines = NONE
    reason = urgent_reason = NOT_YET
    urgent_until_ns = NEVER_NS
    screen_key = (0, 0, 0, 0)
    full = False
    best_level, best_until_ns = 0, 0
    for i in range(plan.on_device_begin[device], plan.on_device_begin[device + 1]):
        replica = plan.on_device[i]
        leader = refining.queue_of[replica]
        if settings.by_deadline is not None:
            shed(plan, settings, state, q, out, leader, now_ns)
        length = q.length[leader]
        if length > 0:
            oldest_ns, wait_ns = q.entered_ns[q.first[leader]], state.longest_wait_ns[replica]
            why = start_reason(length, oldest_ns, now_ns, state.minimum_queue_length[replica], wait_ns)
            first, start_ns = head(q, leader), oldest_ns + wait_ns
            if why == NOT_YET and settings.by_deadline is not None:
                run_ns = plan.run_ns[leader, batch_size(length, state.largest_batch_size[leader])]
                start_ns = start_by_ns(start_ns, state.deadline_ns[first], run_ns)
                if now_ns >= start_ns:
                    why = DEADLINE
            if why == NOT_YET:
                wake_ns = min(wake_ns, start_ns)
            else:
                full = full or length >= state.largest_batch_size[replica]
                until_ns = until_of(settings, state, q.first[leader])
                if urgent == NONE or until_ns < urgent_until_ns:
                    urgent, urgent_until_ns, urgent_reason = replica, until_ns, why
                key = replica_key(False, 0, 0, oldest_ns)
                if q.by_urgency:
                    key = replica_key(False, q.priority[first], q.deadline_ns[first], oldest_ns)
                if screens == NONE or key < screen_key:
                    screens, screen_key, reason = replica, key, why
        if refining.release_ns[leader] <= now_ns:
            release(plan, settings, state, q, out, leader, now_ns)
        if refining.length[leader] > 0:
            level = _best_level(state, leader)
            until_ns = refining.until_ns[refining.first_at[leader * LEVELS + level]]
            if refines == NONE or level > best_level or (level == best_level and until_ns < best_until_ns):
                refines, best_level, best_until_ns = replica, level, until_ns
    state.wakes_ns[device] = wake_ns
    state.run.next_timer_ns = min(state.run.next_timer_ns, wake_ns)
    count = size = 0
    if refines != NONE:
        best = refining.first_at[refining.queue_of[refines] * LEVELS + best_level]
        for_gain = refining.for_gain[state.gear_row[pipeline_of(settings, state, best)]] != 0
        count, size = _batch_size(plan, settings, state, refines, state.largest_batch_size[refines], for_gain, now_ns)
    if screens != NONE:
        to_screen, urgently = _to_screen(plan, state, q, screens), _to_screen(plan, state, q, urgent)
        goes = screen_or_refine(
            size > 0,
            refining.screened_last[device] != 0,
            full,
            urgent_until_ns,
            now_ns,
            run_time_ns(plan, settings, state, urgent, urgently),
            run_time_ns(plan, settings, state, screens, to_screen),
            0 if size == 0 else run_time_ns(plan, settings, state, refines, size),
        )
        if goes == URGENT:
            screens, to_screen, reason = urgent, urgently, urgent_reason
        if goes != REFINE:
            leader = refining.queue_of[screens]
            to_screen = chain_batch(plan, settings, state, q, out, screens, leader, to_screen, now_ns)
            refining.screened_last[device] = 1
            run_batch(plan, settings, state, q, out, screens, to_screen, reason, now_ns)
            return
    if size > 0:
        state.batch[refines] = _take(plan, settings, state, q, refines, count, size)
        refining.screened_last[device] = 0
        run_batch(plan, settings, state, q, out, refines, size, REFINES, now_ns)
        refining.overrun_ns[refines] = overrun_ns(now_ns, run_time_ns(plan, settings, state, refines, size))
        answer_overrun(settings, state, q, out, refines, now_ns)
