"""The event loop of the kernel for language models."""

from gearshift.clock import NEVER_NS
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.simulator.engines.kernel.routing import arrive, dispatch, tick
from gearshift.simulator.engines.kernel.state import Outcome, Plan, Samples, State
from gearshift.simulator.engines.kernel.steps import begin_steps, end_step
from gearshift.support.compiled import compiled


@compiled
def run(plan: Plan, state: State, samples: Samples, out: Outcome) -> None:
    """Serve all requests; fills `out`.

    At one instant: steps end, requests arrive, the meter ticks, requests are sent, steps begin.
    """
    at, requests = state.run, samples.arrivals_ns.shape[0]
    at.next_tick_ns = METER_WINDOW_NS
    while at.done < requests:
        arrival_ns = samples.arrivals_ns[at.arrived] if at.arrived < requests else NEVER_NS
        now_ns, first = NEVER_NS, plan.replicas
        for replica in range(plan.replicas):
            if state.ends_ns[replica] < now_ns:
                now_ns, first = state.ends_ns[replica], replica
        if min(arrival_ns, at.next_tick_ns) < now_ns:
            now_ns, first = min(arrival_ns, at.next_tick_ns), plan.replicas
        for replica in range(first, plan.replicas):
            if state.ends_ns[replica] == now_ns:
                end_step(plan, state, samples, out, replica, now_ns)
        while arrival_ns == now_ns:
            arrive(plan, state, samples, out, now_ns)
            arrival_ns = samples.arrivals_ns[at.arrived] if at.arrived < requests else NEVER_NS
        if at.next_tick_ns == now_ns:
            tick(plan, state, samples, out, now_ns)
            at.next_tick_ns += METER_WINDOW_NS
        if at.waiting > 0:
            dispatch(plan, state, out, now_ns)
        begin_steps(plan, state, out, now_ns)
