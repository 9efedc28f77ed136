"""Whether any planner that keeps the SLO is more accurate than ours, cell by cell of real predictions.

Answers and certainties are FrugalML's, run times BERT's on a V100.  A cell is a data set, a latency and a number of
devices; its trace is a slice of Twitter whose busiest second is `--load` times what the largest model alone carries
within the latency on those devices.  All planners plan for the same latency, scope and margin, and have their plans
replayed alike: on part B, with five arrival seeds.  A plan keeps the SLO when no more than 5 % are late, on average
over the seeds; and, with scope `every-range`, when each of its ranges holds in steady state with the margin.  With
scope `trace` every planner has its own margin, unless `--margin` is given.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, PAIRINGS, frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.hardware import identical_devices
from gearshift.objective import Objective, Scope
from gearshift.planner import planners
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.search.plan_search import holds_every_range
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.simulator.compared.cocktail import capacity_within
from gearshift.workload import Trace

OURS = "optimal"
LATENCIES_S = (0.05, 0.2)
DEVICES = (1, 3)
MEMORY_BYTES = 16 << 30
START_S, SECONDS = 140_760, 120
LOAD, MARGIN = 2.0, 1.15
SAME = 1e-4
"""Accuracies that differ by no more are taken as equal: one request in 10,000."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a plan gives on part B, None where there was none; and the processor time that making it took."""

    seconds: float
    accuracy: float | None = None
    share_late: float = 0.0
    keeps: bool = False


def judged(name: str, request: PlanRequest) -> Judged:
    """The plan of a planner, replayed."""
    began = time.process_time()
    try:
        made = planners.plan(name, request)
    except Infeasible:
        return Judged(time.process_time() - began)
    seconds = time.process_time() - began
    result = replay(made, request, part=PART_B).result
    objective = request.objective
    holds = objective.scope == "trace" or holds_every_range(made, request)
    keeps = holds and result.share_late <= 1 - objective.percentile
    return Judged(seconds, result.accuracy, result.share_late, keeps)


def cell(data: Path, dataset: str, latency_s: float, devices: int, asked: argparse.Namespace) -> PlanRequest:
    """The request of one cell."""
    profile = frugalml(data, dataset)
    objective = Objective(latency_s=latency_s, scope=asked.scope)
    hardware = identical_devices(devices, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES)
    largest = max(profile.curves, key=lambda curve: curve.median_s[0])
    peak_qps = asked.load * devices * capacity_within(largest, latency_s, objective.percentile, seed=0).qps
    return PlanRequest(
        profile=profile,
        trace=twitter(data, peak_qps=peak_qps, start=asked.start, seconds=asked.seconds),
        hardware=hardware,
        objective=objective,
        least_margin=asked.margin or (None if asked.scope == "trace" else MARGIN),
    )


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one cell, 5 s, and two planners")
    parser.add_argument("--datasets", nargs="*", default=list(PAIRINGS))
    parser.add_argument("--latencies-ms", nargs="*", type=float, default=[s * 1e3 for s in LATENCIES_S])
    parser.add_argument("--devices", nargs="*", type=int, default=DEVICES)
    parser.add_argument("--planners", nargs="*", default=list(planners.for_()))
    parser.add_argument("--load", type=float, default=LOAD, help="the peak, in what the largest model alone carries")
    parser.add_argument("--margin", type=float)
    parser.add_argument("--scope", choices=get_args(Scope), default="every-range")
    parser.add_argument("--start", type=int, default=START_S)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    asked = parser.parse_args()
    if asked.quick:
        asked.datasets, asked.latencies_ms, asked.devices, asked.seconds = ["yelp"], [50.0], [1], 5
        asked.planners = [OURS, "single"]
    print(describe(), flush=True)
    behind = []
    for dataset in asked.datasets:
        for latency_ms in asked.latencies_ms:
            for devices in asked.devices:
                request = cell(data_of(asked), dataset, latency_ms / 1e3, devices, asked)
                found = {name: judged(name, request) for name in asked.planners}
                print_cell(f"{dataset}, {latency_ms:g} ms, {devices}", request.trace, found)
                behind += behind_by(found)
    print_bar(not behind, f"{OURS} keeps the SLO, and no other that does is more accurate, in every cell")


def print_cell(name: str, trace: Trace, found: dict[str, Judged]) -> None:
    """The cell's table."""
    header = (f"{name} devices, peak {trace.peak_qps:.0f}/s", "accuracy, %", "late, %", "keeps the SLO", "processor, s")
    rows = [
        (planner, "no plan", "", "", f"{each.seconds:.1f}")
        if each.accuracy is None
        else (planner, f"{each.accuracy:.2%}", f"{each.share_late:.2%}", each.keeps, f"{each.seconds:.1f}")
        for planner, each in found.items()
    ]
    print_table(header, rows)


def behind_by(found: dict[str, Judged]) -> Sequence[float]:
    """By how much others are more accurate, of those that keep the SLO; all of it where ours does not."""
    kept = {name: each.accuracy or 0.0 for name, each in found.items() if each.keeps}
    ours = kept.pop(OURS, 0.0)
    return [accuracy - ours for accuracy in kept.values() if accuracy > ours + SAME]


if __name__ == "__main__":
    main()
