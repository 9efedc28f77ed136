"""Request rows on their way through graphs: `runtime/router/flows.py` on arrays.

What a row may become is known beforehand, from joint records. Its scopes lie in a block of slots: a
head, and one slot for each node whose edges are counted in the scope:

    scope of the row       head, split, join
    scope of row 0         head, read, check         `first` of a head: the head around it
    scope of row 1         head, read, check         `first`, `items` of a node's slot: its recorded items

A run has such a block for each request row, `base` further on, with the counts of edges.
"""

from typing import Any, NamedTuple

from gearshift import decisions
from gearshift.policies import graph as graph_module
from gearshift.simulator.kernel import choosing
from gearshift.simulator.kernel.choosing import model_now
from gearshift.simulator.kernel.deadlines import in_time, watch
from gearshift.simulator.kernel.queues import NONE, Queues, remove
from gearshift.simulator.kernel.state import (
    Outcome,
    Plan,
    Settings,
    State,
    finish,
    gear_of,
    leave_request,
    waits_no_more,
    write,
)
from gearshift.simulator.kernel.steps import route, touch
from gearshift.support.compiled import apart, inlined

BEGIN, SKIP = graph_module.BEGIN, graph_module.SKIP
REFUSE, SPAWN, JOIN = int(decisions.Decision.REFUSE), int(decisions.Decision.SPAWN), int(decisions.Decision.JOIN)
ANSWERED, DEGRADED = int(decisions.Ending.ANSWERED), int(decisions.Ending.DEGRADED)  # 0 and 1
INFEASIBLE = int(decisions.Ending.INFEASIBLE)
TOO_MANY = -1
"""In place of the number of rows of a fan-out that may not have so many."""

node_begins = inlined(graph_module.node_begins)


class Graph(NamedTuple):
    """The graphs of all pipelines, their joint records, and where the rows of a run stand.

    Per edge, as in `GraphTables`: `edge_to`, `crosses`, and `condition`, its place in `holds`
    (conditions, models, records), `NONE` where it is always live. Per node: `place` in `order`,
    `slot` in its scope; the nodes that close it, if it fans out, are `closers` from
    `closers_begin`; `joins` says whether it has several edges or closes a scope. Per pipeline:
    `output`, and whether it `is_graph`; its nodes are `order` from `order_begin`.

    Joint records: the slots of tuple t of pipeline p begin at `scope[first_tuple[p] + t]`; per slot
    `first`, `items` and `edges`; per recorded item `node`, `sample`, and the head of the scope that
    it is `inside` of.

    Per request row: `base` of its slots, `last` of its items, and whether it `is_degraded`. Per
    slot of a run: `open_edges`, `live_edges`, `has_begun`. Per item: `recorded`, its number in the
    joint records, and `following`, the next of its row, in a ring. `touched` (nodes,): the head of
    the scope in which edges to a node, by its place, have changed.
    """

    edge_begin: Any
    edge_to: Any
    crosses: Any
    condition: Any
    holds: Any
    order: Any
    order_begin: Any
    place: Any
    slot: Any
    closers: Any
    closers_begin: Any
    joins: Any
    joins_first: Any
    fans_out: Any
    required: Any
    output: Any
    is_graph: Any
    first_tuple: Any
    scope: Any
    first: Any
    items: Any
    edges: Any
    node: Any
    sample: Any
    inside: Any
    base: Any
    last: Any
    is_degraded: Any
    open_edges: Any
    live_edges: Any
    has_begun: Any
    recorded: Any
    following: Any
    touched: Any


@inlined
def go_on(plan: Plan, settings: Settings, state: State, q: Queues, g: Graph, out: Outcome, now_ns: int) -> None:
    """Go through the items that have ended, and the rows that have arrived, in their order.

    All that a visit needs is inlined here, once: a call that passes all arrays takes longer than the visit.
    """
    run = state.run
    while run.ended_first != NONE:
        ended = run.ended_first
        run.ended_first = q.next[ended]
        row = state.row[ended]
        if state.is_over[row] != 0:
            continue
        number = state.pipeline_of[state.node[ended]]
        item, place = NONE, g.order_begin[number]
        if ended < settings.first_item:
            begin_row(plan, state, g, number, row)
        else:
            item = end_item(plan, settings, state, q, g, out, number, row, ended, now_ns)
            place = g.place[state.node[ended]] + 1
        if item == NONE:
            look(plan, settings, state, q, g, out, number, row, place, now_ns)
        else:
            answer(plan, settings, state, q, g, out, number, row, item, now_ns)


@inlined
def begin_row(plan: Plan, state: State, g: Graph, number: int, row: int) -> None:
    """Count the edges of a row anew; the nodes that it begins with have a live one from nowhere."""
    recorded = g.first_tuple[number] + state.record[row]
    head = g.scope[recorded]
    for slot in range(head, g.scope[recorded + 1]):
        at = g.base[row] + slot
        g.open_edges[at] = g.edges[slot]
        g.live_edges[at] = 0
        g.has_begun[at] = 0
    for i in range(plan.entry_begin[number], plan.entry_begin[number + 1]):
        count(g, row, head, plan.entries[i], 0, 1)


@inlined
def end_item(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    g: Graph,
    out: Outcome,
    number: int,
    row: int,
    item: int,
    now_ns: int,
) -> int:
    """Turn the edges from an item; returns it if it is the answer of its row, else `NONE`."""
    recorded, ending = g.recorded[item], out.ended[item]
    node, head = g.node[recorded], g.inside[recorded]
    if ending > DEGRADED:
        fail(plan, settings, state, q, g, out, number, row, head, node, False, ending, now_ns)
        return NONE
    g.is_degraded[row] |= ending
    if node == g.output[number]:
        return item
    for edge in range(g.edge_begin[node], g.edge_begin[node + 1]):
        condition = g.condition[edge]
        live = condition == NONE or g.holds[condition, out.model[item], state.record[item]]
        turn(g, row, head, edge, live)
    return NONE


@inlined
def count(g: Graph, row: int, head: int, node: int, more: int, live: int) -> None:
    at = g.base[row] + head + g.slot[node]
    g.open_edges[at] += more
    g.live_edges[at] += live
    g.touched[g.place[node]] = head


@inlined
def turn(g: Graph, row: int, head: int, edge: int, live: bool) -> None:
    """Turn an edge from a node in the scope at `head` live or dead."""
    counted_in = g.first[head] if g.crosses[edge] else head
    count(g, row, counted_in, g.edge_to[edge], -1, 1 if live else 0)


@inlined
def open_rows(g: Graph, row: int, head: int, node: int, more: int, live: int) -> None:
    """Count the rows of a fan-out among the edges to the nodes that close it."""
    for i in range(g.closers_begin[node], g.closers_begin[node + 1]):
        count(g, row, head, g.closers[i], more, live)


@inlined
def look(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    g: Graph,
    out: Outcome,
    number: int,
    row: int,
    place: int,
    now_ns: int,
) -> None:
    """Begin or skip the nodes whose edges have changed, in topological order."""
    for at in range(place, g.order_begin[number + 1]):
        head = g.touched[at]
        if head == NONE:
            continue
        g.touched[at] = NONE
        if state.is_over[row] != 0:
            continue
        node = g.order[at]
        slot = g.base[row] + head + g.slot[node]
        first = g.joins_first[node]
        verdict = node_begins(g.open_edges[slot], g.live_edges[slot], first, g.has_begun[slot] != 0)
        if verdict == BEGIN:
            g.has_begun[slot] = 1
            begin(plan, settings, state, q, g, out, number, row, head, node, now_ns)
        elif verdict == SKIP:
            g.has_begun[slot] = 1
            if node == g.output[number]:
                write(state, out, now_ns, JOIN, row, node, 0)
                answer_apart(plan, settings, state, q, g, out, number, row, NONE, now_ns)
            elif g.fans_out[node]:
                open_rows(g, row, head, node, -1, 0)
            else:
                for edge in range(g.edge_begin[node], g.edge_begin[node + 1]):
                    turn(g, row, head, edge, False)


@inlined
def begin(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    g: Graph,
    out: Outcome,
    number: int,
    row: int,
    head: int,
    node: int,
    now_ns: int,
) -> None:
    slot = head + g.slot[node]
    if g.joins[node]:
        write(state, out, now_ns, JOIN, row, node, g.live_edges[g.base[row] + slot])
    rows = g.items[slot]
    if rows == TOO_MANY:
        fail(plan, settings, state, q, g, out, number, row, head, node, True, ANSWERED, now_ns)
        return
    late = False
    if settings.by_deadline is not None and settings.refuses and rows != 0:
        model = model_now(plan, settings, state, q, number, node, row, now_ns)
        late = not in_time(state.deadline_ns[row], now_ns, plan.fastest_ns[model])
    if late:
        write(state, out, now_ns, REFUSE, row, INFEASIBLE, node)
        fail(plan, settings, state, q, g, out, number, row, head, node, True, INFEASIBLE, now_ns)
        return
    if g.fans_out[node]:
        open_rows(g, row, head, node, rows - 1, 1)
    for i in range(rows):
        make(plan, settings, state, q, g, out, number, row, g.first[slot] + i, node, now_ns)


@inlined
def make(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    g: Graph,
    out: Outcome,
    number: int,
    row: int,
    recorded: int,
    node: int,
    now_ns: int,
) -> None:
    item = settings.first_item + state.run.made
    state.run.made += 1
    state.row[item] = row
    state.node[item] = node
    state.record[item] = g.sample[recorded]
    if state.bulk_gear.shape[0] > 0:
        state.bulk_gear[item] = state.bulk_gear[row]
    g.recorded[item] = recorded
    last = g.last[row]
    g.following[item] = item if last == NONE else g.following[last]
    if last != NONE:
        g.following[last] = item
    g.last[row] = item
    if settings.by_deadline is not None:
        state.deadline_ns[item] = state.deadline_ns[row]
    if q.by_urgency:
        q.priority[item] = q.priority[row]
        q.deadline_ns[item] = q.deadline_ns[row]
    write(state, out, now_ns, SPAWN, item, node, row)
    model = choosing.begin(plan, settings, state, q, out, item, number, node, now_ns)
    route(plan, settings, state, q, out, item, number, model, now_ns)


@apart
def fail(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    g: Graph,
    out: Outcome,
    number: int,
    row: int,
    head: int,
    node: int,
    before_items: bool,
    ending: int,
    now_ns: int,
) -> None:
    """End the row with a required node; else pass on null."""
    if g.required[node]:
        withdraw(plan, settings, state, q, g, row, now_ns)
        out.ended[row] = ending
        leave_request(state, row)
        state.run.done += 1
        return
    g.is_degraded[row] = 1
    if before_items and g.fans_out[node]:
        open_rows(g, row, head, node, -1, 1)
    elif node == g.output[number]:
        answer_apart(plan, settings, state, q, g, out, number, row, NONE, now_ns)
    else:
        for edge in range(g.edge_begin[node], g.edge_begin[node + 1]):
            turn(g, row, head, edge, g.condition[edge] == NONE)


def _answer_plain(
    plan: Plan,
    settings: Settings,
    state: State,
    q: Queues,
    g: Graph,
    out: Outcome,
    number: int,
    row: int,
    item: int,
    now_ns: int,
) -> None:
    """End the row with the answer of the output's item, or without one."""
    withdraw(plan, settings, state, q, g, row, now_ns)
    finish(settings, state, out, row, now_ns)
    state.run.done += 1
    if item != NONE:
        out.model[row] = out.model[item]
    out.gear[row] = gear_of(settings, state, number, row)
    out.ended[row] = DEGRADED if g.is_degraded[row] != 0 else ANSWERED


@inlined
def withdraw(plan: Plan, settings: Settings, state: State, q: Queues, g: Graph, row: int, now_ns: int) -> None:
    """Take the waiting items of a row that ends out of their queues; forget those that run."""
    state.is_over[row] = 1
    item = g.last[row]
    while state.row_waits[row] > 0:
        item = g.following[item]
        queue = state.replica[item]
        if queue != NONE:
            replica = queue % settings.replicas  # that of bulk work comes after those of all replicas
            remove(q, queue, item)
            waits_no_more(settings, state, item)
            touch(plan, state, replica)
            if settings.by_deadline is not None and queue == replica:
                watch(plan, settings, state, q, replica, now_ns)


answer, answer_apart = inlined(_answer_plain), apart(_answer_plain)
