"""Choosing among a node's implementations by the time that is left: `runtime/router/choosing.py` on arrays."""

from typing import Any

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.policies import replanning
from gearshift.simulator.kernel.queues import Queues
from gearshift.simulator.kernel.state import Outcome, Plan, Settings, State, gear_of, is_bulk, is_item, write
from gearshift.support.compiled import apart, inlined

NO_CHOICE = replanning.NO_CHOICE
CHOOSE = int(decisions.Decision.CHOOSE)

best_choice = inlined(replanning.best_choice)
wait_ns = inlined(replanning.wait_ns)


@inlined
def first_model(plan: Plan, settings: Settings, gear: int, node: int) -> Any:
    """The model with which items of a node begin in a gear, in the first of its choices."""
    row = gear
    if settings.several is not None:
        row += plan.first_row[node]
    if settings.chooses is not None:
        row = plan.choice_begin[row]
    return plan.stage_models[row * settings.most_stages]


@inlined
def model_now(
    plan: Plan, settings: Settings, state: State, q: Queues, number: int, node: int, row: int, now_ns: int
) -> Any:
    """The model with which an item of a request row would begin now."""
    if settings.chooses is None:
        return first_model(plan, settings, gear_of(settings, state, number, row), node)
    return plan.stage_models[choice(plan, settings, state, q, number, node, row, 0, now_ns) * settings.most_stages]


@inlined
def begin(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    item: int,
    number: int,
    node: int,
    now_ns: int,
) -> Any:
    """The model with which an item begins; in the log, if it was one of several."""
    if settings.chooses is None:
        return first_model(plan, settings, gear_of(settings, state, number, item), node)
    return plan.stage_models[
        chosen(plan, settings, state, q, out, item, number, node, 0, now_ns) * settings.most_stages
    ]


@apart
def chosen(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    out: Outcome,
    item: int,
    number: int,
    node: int,
    visited: int,
    now_ns: int,
) -> Any:
    row = item
    if is_item(settings, item):
        row = state.row[item]
    found = choice(plan, settings, state, q, number, node, row, visited, now_ns)
    at = plan.first_row[node] + state.pipelines[number].gear
    if plan.choice_begin[at + 1] - plan.choice_begin[at] > 1 and not is_bulk(settings, state, row):
        place = -1
        if found != NO_CHOICE:
            place = found - plan.choice_begin[at]
        write(state, out, now_ns, CHOOSE, item, node, place)
    return found


@apart
def choice(
    plan: Plan, settings: Settings, state: State, q: Queues, number: int, node: int, row: int, visited: int, now_ns: int
) -> Any:
    gear = gear_of(settings, state, number, row)
    at = plan.first_row[node] + gear
    begins, ends = plan.choice_begin[at], plan.choice_begin[at + 1]
    if ends - begins == 1 or is_bulk(settings, state, row):
        return ends - 1
    stage = 0
    left_ns = min(state.deadline_ns[row], state.answer_by_ns[row]) - now_ns
    left_ns -= plan.margin_ns[plan.first_gear[number] + gear]
    for model in range(settings.models):
        if (visited >> model) & 1 != 0:
            stage += 1
            left_ns += plan.fastest_ns[model]
    for each in range(begins, ends):
        waits_ns = 0
        if settings.knows_waits and stage < plan.stage_count[each]:
            model = plan.stage_models[each * settings.most_stages + stage]
            waits_ns = shortest_wait_ns(plan, settings, state, q, number, model, now_ns)
        state.waits_ns[each - begins] = waits_ns
    return best_choice(
        begins,
        ends,
        left_ns,
        state.waits_ns,
        visited,
        stage,
        plan.prefixes,
        settings.most_stages,
        plan.table_begin,
        plan.table_ns,
        plan.table_quality,
    )


@inlined
def shortest_wait_ns(
    plan: Plan, settings: Settings, state: State, q: Queues, number: int, model: int, now_ns: int
) -> int:
    """How long an item would wait for the first replica of `model` to get to it."""
    shortest_ns = NEVER_NS
    for replica in range(plan.model_begin[model], plan.model_begin[model + 1]):
        if state.stride[number * settings.replicas + replica] == 0:
            continue
        longest_ns = 0
        free_ns = now_ns
        for i in range(plan.spans_begin[replica], plan.spans_begin[replica + 1]):
            device = plan.spans[i]
            if state.busy[device] != 0:
                free_ns = max(free_ns, state.free_ns[device])
            queued_ns = 0
            for j in range(plan.on_device_begin[device], plan.on_device_begin[device + 1]):
                other = plan.on_device[j]
                queued_ns += wait_ns(
                    q.length[other], state.largest_batch_size[other], plan.run_ns[other], other == replica
                )
            longest_ns = max(longest_ns, queued_ns)
        shortest_ns = min(shortest_ns, free_ns - now_ns + longest_ns)
    return shortest_ns
