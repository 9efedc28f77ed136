"""The event loop of the kernel for language models."""

from typing import NamedTuple

from gearshift.clock import NEVER_NS
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.simulator.engines.kernel.routing import arrive, dispatch, expect, tick
from gearshift.simulator.engines.kernel.state import NONE, Outcome, Plan, Samples, State
from gearshift.simulator.engines.kernel.steps import begin_steps, end_step
from gearshift.support.compiled import apart, compiled


@apart
def end_steps(plan: Plan, state: State, samples: Samples, out: Outcome, now_ns: int) -> None:
    """Several steps end at once."""
    for replica in range(plan.replicas):
        if state.ends_ns[replica] == now_ns:
            end_step(plan, state, samples, out, replica, now_ns)


class Given(NamedTuple):
    plan: Plan
    state: State
    samples: Samples
    out: Outcome


@compiled
def run(given: Given) -> None:
    """Serve all requests; fills `out`.

    At one instant: steps end, requests arrive, the meter ticks, requests are sent, steps begin. The
    replica whose step ends first is found by sums, as a processor guesses the way of a search wrong.
    """
    plan, state, samples, out = given.plan, given.state, given.samples, given.out
    at, requests = state.run, samples.arrivals_ns.shape[0]
    at.next_tick_ns = METER_WINDOW_NS
    expect(plan, samples)
    while at.done < requests:
        arrival_ns = samples.arrivals_ns[at.arrived] if at.arrived < requests else NEVER_NS
        now_ns, ending, first = NEVER_NS, 0, 0
        for replica in range(plan.replicas):
            now_ns = min(now_ns, state.ends_ns[replica])
        for replica in range(plan.replicas):
            ends = 1 if state.ends_ns[replica] == now_ns else 0
            ending += ends
            first += replica * ends
        if at.begun != NONE:
            state.ends_ns[at.begun] = at.begun_ends_ns
            if at.begun_ends_ns <= now_ns:
                ending = 1 if at.begun_ends_ns < now_ns else ending + 1
                now_ns, first = at.begun_ends_ns, at.begun
            at.begun = NONE
        if min(arrival_ns, at.next_tick_ns) < now_ns:
            now_ns, ending = min(arrival_ns, at.next_tick_ns), 0
        if ending == 1:
            end_step(plan, state, samples, out, first, now_ns)
        elif ending > 1:
            end_steps(plan, state, samples, out, now_ns)
        while arrival_ns == now_ns:
            arrive(plan, state, samples, out, now_ns)
            arrival_ns = samples.arrivals_ns[at.arrived] if at.arrived < requests else NEVER_NS
        if at.next_tick_ns == now_ns:
            tick(plan, state, samples, out, now_ns)
            at.next_tick_ns += METER_WINDOW_NS
        if at.waiting > 0:
            dispatch(plan, state, out, now_ns)
        begin_steps(plan, state, out, now_ns)
