"""The simulator's event loop, compiled: takes up all events in the router's order."""

from typing import Any, NamedTuple

from gearshift.clock import NEVER_NS
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.simulator.kernel.events import (
    arrive,
    leave_batch,
    set_in_force,
    share_turns,
    tick,
    timer,
    timer_is_due,
)
from gearshift.simulator.kernel.gear_cores import Cores, ask
from gearshift.simulator.kernel.graph import Graph, go_on
from gearshift.simulator.kernel.load_scaling import Scaling, count_arrived
from gearshift.simulator.kernel.queues import NONE, Queues
from gearshift.simulator.kernel.state import Outcome, Plan, Settings, State, next_lead
from gearshift.simulator.kernel.steps import start_on_touched
from gearshift.support.compiled import compiled, inlined


@inlined
def _is_over(now_ns: int, until_ns: int, end_ns: int, next_tick_ns: int) -> bool:
    return now_ns > until_ns or (now_ns == until_ns and now_ns < min(end_ns, next_tick_ns))


class Given(NamedTuple):
    """All of a run, so that one pointer leads to it; `g` is None where there are no graphs."""

    plan: Plan
    settings: Settings
    state: State
    q: Queues
    g: Graph | None
    scaling: Scaling
    cores: Cores
    out: Outcome
    arrivals_ns: Any
    continues: Any
    certainty: Any


@compiled
def run(given: Given, until_ns: int) -> None:
    """Serve all samples; fills `out`. Without `g` the code for graphs is not even compiled.

    Halts at `until_ns`, after the batches and the tick of that instant; where cores are scaled,
    also in every shift. When called again, it requests the cores that are wanted by then, and goes
    on.

    At one instant: batches finish, the meter ticks, samples arrive, waits end. The router does one
    thing at a time: events that fall due while it is busy are handled when it is free again, in
    that order.
    """
    plan, settings, state, q, out = given.plan, given.settings, given.state, given.q, given.out
    g = given.g
    scaling, cores, arrivals_ns = given.scaling, given.cores, given.arrivals_ns
    at = state.run
    if at.next_tick_ns == 0:
        at.next_tick_ns = METER_WINDOW_NS
        for number in range(state.pipelines.shape[0]):
            share_turns(plan, settings, state, number)
        set_in_force(plan, settings, state)
    elif settings.by_deadline is not None and cores.scaled:
        ask(plan, settings, state, q, cores, out, at.decided_ns)
    samples = arrivals_ns.shape[0]
    while at.done < samples:
        arrival_ns = arrivals_ns[at.arrived] if at.arrived < samples else NEVER_NS
        end_ns = at.next_end_ns
        due_ns = min(end_ns, at.next_tick_ns, arrival_ns, at.next_timer_ns)
        now_ns, by_timer = max(due_ns, at.free_ns), False
        if settings.by_deadline is not None and at.halted_ns != NEVER_NS:
            now_ns, at.halted_ns = at.halted_ns, NEVER_NS
        elif settings.by_deadline is not None and _is_over(due_ns, until_ns, end_ns, at.next_tick_ns):
            break
        elif end_ns == due_ns:
            at.free_ns = now_ns
            leave_batch(plan, settings, state, q, out, given.certainty, next_lead(state), due_ns, now_ns)
        elif at.next_tick_ns == due_ns:
            at.free_ns = now_ns
            tick(plan, settings, state, q, scaling, cores, out, now_ns)
            if settings.by_deadline is not None and at.halted_ns != NEVER_NS:
                break
        elif arrival_ns == due_ns:
            now_ns += settings.arrival_ns
            at.free_ns = now_ns
            arrive(plan, settings, state, q, g, out, given.continues, now_ns)
        else:
            if now_ns > due_ns and not timer_is_due(settings, state, cores, due_ns):
                now_ns = due_ns  # nothing is left to wake for; else events due meanwhile would run now
            at.free_ns = max(now_ns, at.free_ns)
            timer(plan, settings, state, q, cores, out, now_ns)
            by_timer = True
        if g is None:
            start_on_touched(plan, settings, state, q, out, now_ns)
            continue
        while True:  # what a timer drops goes on after devices have started, all else before
            if not by_timer:
                go_on(plan, settings, state, q, g, out, now_ns)
            start_on_touched(plan, settings, state, q, out, now_ns)
            by_timer = False
            if at.ended_first == NONE:
                break
    if at.done == samples:
        for number in range(state.pipelines.shape[0]):
            count_arrived(state, out, number)
