"""Plans on a host that is slower than profiled, or whose run times vary, with and without learning how slow it is.

Cells are those of `benchmarks/refinement/cells.py`.  Each plan is replayed on part B with run times `--times` what was
profiled and, with `--deviation`, drawn around that.  `on` learns the slowdown, `off` believes the profile.  A plan
keeps its latency where at most 5 % are late; refinement that learns is to have at most 1 % late from 50 ms on.
"""

import argparse
from dataclasses import replace

import numpy as np

from benchmarks.refinement.cells import DEVICES, LATENCIES_MS, OURS, START_S, TODAY, request_of
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.imported import PAIRINGS
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from gearshift.gear import GearPlan
from gearshift.planner import planners
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.result import ServingResult
from gearshift.simulator.simulate import prepare
from gearshift.workload import varying_run_factors

MOST_LATE, MOST_LATE_AT_P95, LONG_MS = 0.01, 0.05, 50.0


def replayed(made: GearPlan, request: PlanRequest, factors: np.ndarray, *, learns: bool) -> ServingResult:
    """The request's trace on part B with these factors of run times."""
    workload = replace(workload_of(request.trace, request.profile, part=PART_B, seed=0), run_factors=factors)
    run = prepare(made, request.profile).run(workload, learns_slowdown=learns)
    return run.result(request.profile, latency_objective_s=request.latency_s)


def factors_of(asked: argparse.Namespace, times: float) -> np.ndarray:
    drawn = varying_run_factors(asked.deviation, seed=1) if asked.deviation else np.ones(1)
    return times * drawn


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one cell of 5 s")
    parser.add_argument("--datasets", nargs="*", default=list(PAIRINGS))
    parser.add_argument("--latencies-ms", nargs="*", type=float, default=LATENCIES_MS)
    parser.add_argument("--devices", nargs="*", type=int, default=DEVICES)
    parser.add_argument("--planners", nargs="*", default=[OURS, TODAY])
    parser.add_argument("--times", nargs="*", type=float, default=[1.0, 1.5])
    parser.add_argument("--deviation", type=float, default=0.0, help="of the logarithm of run times")
    parser.add_argument("--peak", type=float, default=2500.0, help="requests in the busiest second, per device")
    parser.add_argument("--start", type=int, default=START_S)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--halves", type=int, default=0, help="the seed of parts A and B")
    asked = parser.parse_args()
    if asked.quick:
        asked.datasets, asked.latencies_ms, asked.devices, asked.seconds = ["yelp"], [50.0], [1], 5
        asked.planners = [OURS]
    print(describe(), flush=True)
    rows, kept = [], list[bool]()
    for dataset in asked.datasets:
        for latency_ms in asked.latencies_ms:
            for devices in asked.devices:
                request = request_of(asked, dataset, latency_ms, devices)
                for name in asked.planners:
                    made = planners.plan(name, request)
                    for times in asked.times:
                        factors, cells = factors_of(asked, times), []
                        for learns in (False, True):
                            result = replayed(made, request, factors, learns=learns)
                            cells.append(f"{result.accuracy:.2%}, {result.share_late:.2%}")
                            cells.append(f"{result.latency_s.p95 * 1e3:.1f}")
                            if name == OURS and learns:
                                most = MOST_LATE if latency_ms >= LONG_MS else MOST_LATE_AT_P95
                                kept.append(result.share_late <= most)
                        rows.append((f"{dataset}/{devices}, {latency_ms:g} ms", name, f"{times:g}", *cells))
                        print("done:", *rows[-1], flush=True)
    header = ("cell", "planner", "times", "off: accuracy, late", "p95, ms", "on: accuracy, late", "p95, ms")
    print_table(header, rows)
    print_bar(
        all(kept),
        f"late at most 1 % from {LONG_MS:g} ms on, and 5 % below, where {OURS} learns ({sum(kept)}/{len(kept)})",
    )


if __name__ == "__main__":
    main()
