"""How often a load is called drifted that is as planned, and how much of a change is called so.

Plans of six ranges of 20 requests/s for ten minutes of traffic; then twenty minutes that are drawn anew, at another
level where one is given.  Deterministic: no time is measured.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.shared.arguments import parser_of
from benchmarks.shared.plan_by_hand import plan_by_hand
from benchmarks.shared.tables import print_table
from gearshift.cascade import Cascade
from gearshift.gear import Gear, LoadRange, ReplicaSettings, alone
from gearshift.hardware import identical_devices
from gearshift.placement import Replica
from gearshift.planner.space.metered import metered_loads
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.watch.drift import LoadDrift
from gearshift.traces.generate import bursty, poisson_arrivals, steady
from gearshift.workload import PlannedLoad, Trace

EDGES = (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
SPAN_S = 600.0

Draw = Callable[[int, float], Trace]


def rhythm(seed: int, times: float, spans: int = 2) -> Trace:
    """A rhythm of `SPAN_S`, begun somewhere in it."""
    second = np.arange(spans * SPAN_S) + 7.3 * seed
    rates = times * (45 + 35 * np.sin(2 * np.pi * second / SPAN_S))
    return Trace(poisson_arrivals(rates, seed), spans * SPAN_S)


def steadily(qps: float) -> Draw:
    return lambda seed, times: steady(times * qps, 2 * SPAN_S, seed=seed)


def other_bursts(seed: int, times: float) -> Trace:
    return bursty(times * 20, times * 90, 2 * SPAN_S, bursts=12 + seed % 9, seed=seed)


def watch_for(trace: Trace) -> LoadDrift:
    loads, _ = metered_loads(trace)
    counts = np.bincount(np.searchsorted(EDGES[1:], loads, side="right"), minlength=len(EDGES))
    hardware = identical_devices(1)
    settings = (ReplicaSettings(replica="a", load_share=1.0),)
    gears = tuple(
        Gear(
            load_range=LoadRange(from_=low, to=high), cascades=alone("task", Cascade(models=("a",))), replicas=settings
        )
        for low, high in zip(EDGES, [*EDGES[1:], None], strict=True)
    )
    planned = PlannedLoad(shares=tuple((counts / counts.sum()).tolist()), over_s=SPAN_S)
    replica = Replica(id="a", model="a", device_ids=(hardware.devices[0].id,))
    plan = plan_by_hand("task", gears, [replica], hardware, planned_load=planned)
    return LoadDrift(plan_tables(plan).pipeline, SPAN_S)


def row(name: str, planned: Trace, draw: Draw, times: float, runs: int) -> tuple[str, ...]:
    drifted, judged, farthest = 0, 0, []
    for seed in range(runs):
        watch, said, far = watch_for(planned), False, 0.0
        for rate in metered_loads(draw(seed, times))[0].tolist():
            if watch.ticked(rate):
                judged += 1
                said, far = said or watch.drifting, max(far, watch.distance)
        drifted += said
        farthest.append(far)
    return name, f"{times:g}", f"{drifted} of {runs}", str(judged), f"{np.median(farthest):.3f}", f"{max(farthest):.3f}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    cases = [("rhythm", rhythm(1000, 1.0, 1), rhythm, times) for times in (1.0, 0.5, 0.7, 1.3, 1.6, 3.0)]
    cases += [(f"steady {qps:g}/s", steady(qps, SPAN_S, seed=1000), steadily(qps), 1.0) for qps in (5.0, 20.0, 60.0)]
    cases += [("8 bursts; then 6 to 10", bursty(20.0, 90.0, SPAN_S, bursts=8, seed=1000), other_bursts, 1.0)]
    found = [row(*case, runs) for case in cases]
    print_table(("load", "times", "drifted", "judged", "farthest, median", "farthest"), found)


if __name__ == "__main__":
    main()
