"""Check that a plan returns to its gear after a spike.

A backlog can feed itself: it asks for a low gear, and where even that gear cannot drain it within
the meter's window, the plan stays low for good. So each plan gets a steady load, then a second of
twice the top range, then the steady load again, and must be back in the gears it used before
within `RECOVERY_S`.
"""

from collections.abc import Callable

import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.gear import GearPlan
from gearshift.planner.evaluate.cells import random_arrivals
from gearshift.planner.evaluate.confirm import SEEDS, confirmed, own, prepared_together
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A
from gearshift.simulator.simulate import Simulation
from gearshift.workload import Trace, Workload, draw_workload, merge_workloads

BEFORE_S = 4.0
SPIKE_S = 1.0
RECOVERY_S = 30.0
"""The longest time from the end of the spike; a plan that takes longer is not confirmed."""
AFTER_S = 10.0
MOST_REQUESTS = 2_000_000


def confirmed_to_recover(
    made: GearPlan, request: PlanRequest, *, seeds: int = SEEDS, on_time: Callable[[], None] = lambda: None
) -> GearPlan | None:
    found = confirmed(made, request, seeds=seeds, on_time=on_time)
    return found if found is not None and recovers(found, request) else None


def recovers(made: GearPlan, request: PlanRequest) -> bool:
    """Whether the plan returns to its gear within `RECOVERY_S` of a spike, at the trace's mean load."""
    drawn = spiked(made, request)
    if drawn is None:
        return True
    workload, ends_s = drawn
    shifts = own(_run(made, request, workload), request).shifts
    before = _gears_in_force(shifts, 0.0, BEFORE_S)
    after = _gears_in_force(shifts, ends_s + RECOVERY_S, workload.duration_s)
    return min(after) <= max(before)


def _run(made: GearPlan, request: PlanRequest, workload: Workload) -> Simulation:
    """Others beside it have their traces' mean loads."""
    others, prepared = request.beside, prepared_together(made, request)
    if others is None:
        return prepared.run(workload)
    each = []
    for number, name in enumerate(others.names):
        mean_qps, records = others.traces[name].mean_qps, others.profiles[name].predictions.indices(PART_A)
        arrivals = random_arrivals(mean_qps, workload.duration_s, seed=[request.seed, 4, number])
        each.append(draw_workload(arrivals, records, seed=request.seed))
    return prepared.run(merge_workloads([workload, *each]))


def spiked(made: GearPlan, request: PlanRequest) -> tuple[Workload, float] | None:
    """The trace's mean load with a spike of twice the plan's top range, and its end in seconds.

    None for no arrivals. At most `MOST_REQUESTS` per part: a high load has a shorter spike, and a
    lower mean.
    """
    spike_qps = 2 * float(made_top_qps(made))
    spike_s = min(SPIKE_S, MOST_REQUESTS / spike_qps)
    base_qps = min(request.trace.mean_qps, MOST_REQUESTS / (RECOVERY_S + AFTER_S))
    rates = [(BEFORE_S, base_qps), (spike_s, spike_qps), (RECOVERY_S + AFTER_S, base_qps)]
    generator = np.random.default_rng([request.seed, 4])
    times, began_s = [], 0.0
    for length_s, qps in rates:
        count = int(generator.poisson(length_s * qps))
        times.append(began_s + length_s * np.sort(generator.random(count)))
        began_s += length_s
    arrivals_ns = (np.concatenate(times) * NS_PER_S).astype(np.int64)
    if not len(arrivals_ns):
        return None
    trace = Trace(arrivals_ns=arrivals_ns, duration_s=began_s)
    workload = draw_workload(trace, request.profile.predictions.indices(PART_A), seed=request.seed)
    return workload, BEFORE_S + spike_s


def made_top_qps(made: GearPlan) -> float:
    gears = made.pipeline.gears
    last = gears[-1]
    return last.load_range.from_ or (last.predicted.load_qps if last.predicted else 1.0)


def _gears_in_force(shifts: np.ndarray, from_s: float, to_s: float) -> set[int]:
    times_s = shifts[:, 0] / NS_PER_S
    begun = shifts[times_s <= from_s]
    inside = shifts[(times_s > from_s) & (times_s <= to_s)]
    return {int(begun[-1, 1]) if len(begun) else 0, *inside[:, 1].tolist()}
