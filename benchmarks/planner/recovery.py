"""No lock-in: how long plans take to get back to their gears after a spike of twice their top range.

In seeded worlds every planner makes a plan. It serves the trace's mean load for 4 s, the spike for 1 s, and the mean
load for 40 s more (`planner/evaluate/spike_recovery.py`), and the same without the spike. A plan is back from the
moment on at which it is in no higher gear than ever without the spike. `optimal` and planners built on it confirm no
plan that is not back after 30 s; the other planners do not check. All times are simulated, so any machine gives the
same.
"""

import dataclasses
import statistics

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_table
from benchmarks.shared.worlds import devices, five_models
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.spike_recovery import AFTER_S, BEFORE_S, RECOVERY_S, spiked
from gearshift.planner.space.request import PlanRequest
from gearshift.simulator.simulate import simulate
from gearshift.traces.generate import diurnal
from gearshift.workload import Workload

WORLDS = 12
QUICK_WORLDS = 2
DEVICES = 2
SLOS = (40, 150)
FASTEST_S = (0.0004, 0.02)
"""The fastest model's run time at batch size 1; objectives are multiples of it."""
SHARE_OF_FASTEST = (0.3, 0.6)
"""The busiest second, as a share of what the devices carry with the fastest model."""
SECONDS = 20.0


def world(seed: int) -> PlanRequest:
    """Five models on two devices that hold three each; run times, latency objective and load by the seed."""
    fastest_s = FASTEST_S[seed % 2]
    profile = five_models(seed, fastest_s=fastest_s)
    curve = profile.curves[0]
    carried_qps = DEVICES * curve.batch_sizes[-1] / curve.median_s[-1]
    high_qps = carried_qps * SHARE_OF_FASTEST[seed // 4 % 2]
    return PlanRequest(
        profile=profile,
        trace=diurnal(0.2 * high_qps, high_qps, SECONDS, seed=seed),
        hardware=devices(DEVICES),
        objective=Objective(latency_s=SLOS[seed // 2 % 2] * fastest_s),
        ranges=6,
        most_candidates=10,
        seed=seed,
    )


def without_spike(workload: Workload, ends_s: float) -> Workload:
    """The same requests, but in the spike only as many as in as much time before it."""
    began, ended = np.searchsorted(workload.arrivals_ns, [BEFORE_S * 1e9, ends_s * 1e9])
    usual = max(1, round(began / BEFORE_S * (ends_s - BEFORE_S)))
    kept = np.unique(np.linspace(began, ended - 1, usual).astype(np.int64))
    order = np.concatenate([np.arange(began), kept, np.arange(ended, len(workload))])
    return dataclasses.replace(workload, arrivals_ns=workload.arrivals_ns[order], record=workload.record[order])


def back_after_s(made: GearPlan, request: PlanRequest) -> float:
    """Seconds from the end of the spike until the plan is back in the gears it has without, for good.

    Infinite where it is not while requests still come.
    """
    drawn = spiked(made, request)
    if drawn is None:
        return 0.0
    workload, ends_s = drawn
    usual = simulate(made, request.profile, without_spike(workload, ends_s)).shifts
    highest = max(usual[:, 1], default=0)
    shifts = simulate(made, request.profile, workload).shifts
    shifts = shifts[shifts[:, 0] <= workload.duration_s * 1e9]
    higher = np.flatnonzero(shifts[:, 1] > highest)
    if not len(higher):
        return 0.0
    if higher[-1] == len(shifts) - 1:
        return float("inf")
    return max(0.0, float(shifts[higher[-1] + 1, 0]) / 1e9 - ends_s)


def main() -> None:
    parser = parser_of(__doc__, quick=f"{QUICK_WORLDS} worlds")
    worlds = [world(seed) for seed in range(QUICK_WORLDS if parser.parse_args().quick else WORLDS)]
    print(describe())
    rows = []
    for name in planners.for_():
        times_s = []
        for request in worlds:
            try:
                times_s.append(back_after_s(planners.plan(name, request), request))
            except Infeasible:
                continue
        back = [s for s in times_s if s <= RECOVERY_S]
        figures = [f"{statistics.median(back):.2f}", f"{max(back):.2f}"] if back else ["-", "-"]
        rows.append((name, len(times_s), *figures, len(times_s) - len(back)))
    header = ("planner", "plans", "back after, s: median", "greatest", f"not back after {RECOVERY_S:g} s")
    print_table(header, rows)
    print(f"Each run goes on for {RECOVERY_S + AFTER_S:g} s after the spike.")


if __name__ == "__main__":
    main()
