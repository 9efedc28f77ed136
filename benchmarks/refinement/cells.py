"""The accuracy that plans gain by refining while there is time, cell by cell of real predictions.

Answers and certainties are FrugalML's, run times BERT's on a V100 at all batch sizes that were measured.  A cell is a
data set, a latency (p95) and a number of devices; its trace is a slice of Twitter with a busiest second of `--peak`
requests per device.  Plans are made on part A and replayed alike on part B with five arrival seeds.  A plan keeps the
latency if no more than 5 % of the requests are late.  With `--others` plans that refine are replayed on five other
slices of the same peak, and with `--overload` on the same slice at twice the peak.  With `--median` a plan whose median
is within 0.4 of the latency is held against the most accurate one, whatever its median, in cells of 50 ms.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, LARGEST_BATCH, PAIRINGS, frugalml
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import twitter
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.refine.search import planner as refining
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_B
from gearshift.workload import Trace

OURS, TODAY = "refine", "optimal"
LATENCIES_MS = (25.0, 50.0, 100.0, 200.0)
DEVICES = (1, 3)
MEMORY_BYTES = 16 << 30
START_S, SECONDS = 140_400, 300
OTHER_STARTS_S = (0, 86_400, 259_200, 432_000, 605_000)
MEDIAN_CELL_MS, MEDIAN_SHARE, MEDIAN_COST = 50.0, 0.4, 0.001
HEAVY_PEAK = 4000.0
MOST_BEHIND, MOST_BEHIND_HEAVY = 0.001, 0.005
"""The accuracy that another plan may have more, and from `HEAVY_PEAK` on."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A plan, and what it gives on part B."""

    plan: GearPlan
    seconds: float
    accuracy: float
    share_late: float
    p50_s: float
    p95_s: float


def request_of(asked: argparse.Namespace, dataset: str, latency_ms: float, devices: int) -> PlanRequest:
    """The request of one cell."""
    data = data_of(asked)
    return PlanRequest(
        profile=frugalml(data, dataset, seed=asked.halves, sizes=tuple(range(1, LARGEST_BATCH + 1))),
        trace=slice_of(data, asked, asked.start, devices),
        hardware=identical_devices(devices, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES),
        objective=Objective(latency_s=latency_ms / 1e3),
    )


def slice_of(data: Path, asked: argparse.Namespace, start: int, devices: int, times: float = 1.0) -> Trace:
    """A slice of Twitter with this many times the peak."""
    return twitter(data, peak_qps=times * asked.peak * devices, start=start, seconds=asked.seconds)


def judged(
    name: str, request: PlanRequest, find: Callable[[str, PlanRequest], GearPlan] = planners.plan
) -> Judged | None:
    """The plan of a planner, replayed; None where there is none."""
    began = time.process_time()
    try:
        made = find(name, request)
    except Infeasible:
        return None
    result = replay(made, request, part=PART_B).result
    return Judged(
        made,
        time.process_time() - began,
        result.accuracy,
        result.share_late,
        result.latency_s.p50,
        result.latency_s.p95,
    )


def late_on_others(made: GearPlan, request: PlanRequest, asked: argparse.Namespace) -> float:
    """The largest share late on other slices of the same peak."""
    data, devices = data_of(asked), len(request.hardware.devices)
    late = []
    for start in OTHER_STARTS_S:
        other = dataclasses.replace(request, trace=slice_of(data, asked, start, devices))
        late.append(replay(made, other, part=PART_B, seeds=1).result.share_late)
    return max(late)


def overloaded(made: GearPlan, request: PlanRequest, asked: argparse.Namespace) -> tuple[float, float]:
    """Accuracy and share late at twice the peak."""
    trace = slice_of(data_of(asked), asked, asked.start, len(request.hardware.devices), times=2.0)
    result = replay(made, dataclasses.replace(request, trace=trace), part=PART_B, seeds=1).result
    return result.accuracy, result.share_late


def cost_of_median(request: PlanRequest) -> float | None:
    """The accuracy that a median within `MEDIAN_SHARE` of the latency costs; None where no plan has it."""
    bound_s = MEDIAN_SHARE * request.latency_s
    bounded = judged(
        OURS, dataclasses.replace(request, objective=msgspec.structs.replace(request.objective, median_s=bound_s))
    )
    free = judged(OURS, request, lambda _, asked: refining(median_worth=0.0).plan(asked))
    if bounded is None or free is None or bounded.p50_s > bound_s:
        return None
    return free.accuracy - bounded.accuracy


def print_cell(name: str, found: dict[str, Judged | None], more: dict[str, tuple[str, str]]) -> None:
    """The cell's table."""
    rows = []
    for planner, each in found.items():
        if each is None:
            rows.append((planner, "no plan", *[""] * 6))
            continue
        first = each.plan.pipeline.gears[0].cascade.models
        rows.append(
            (
                planner,
                f"{each.accuracy:.2%}",
                f"{each.share_late:.2%}",
                f"{each.p50_s * 1e3:.1f}",
                f"{each.p95_s * 1e3:.1f}",
                " > ".join(first),
                *more.get(planner, ("", "")),
                f"{each.seconds:.0f}",
            )
        )
    header = ("accuracy", "late", "p50, ms", "p95, ms", "models at low load", "late elsewhere", "at twice the peak")
    print_table((name, *header, "processor, s"), rows)


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="one cell of 5 s, and two planners")
    parser.add_argument("--datasets", nargs="*", default=list(PAIRINGS))
    parser.add_argument("--latencies-ms", nargs="*", type=float, default=LATENCIES_MS)
    parser.add_argument("--devices", nargs="*", type=int, default=DEVICES)
    parser.add_argument("--planners", nargs="*", default=[OURS, TODAY, "coordinate"])
    parser.add_argument("--peak", type=float, default=2500.0, help="requests in the busiest second, per device")
    parser.add_argument("--start", type=int, default=START_S)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--halves", type=int, default=0, help="the seed of parts A and B")
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--median", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.datasets, asked.latencies_ms, asked.devices, asked.seconds = ["yelp"], [50.0], [1], 5
        asked.planners = [OURS, "single"]
    print(describe(), flush=True)
    gains: dict[str, list[tuple[float, float, float]]] = {}
    costs: list[float | None] = []
    for dataset in asked.datasets:
        for latency_ms in asked.latencies_ms:
            for devices in asked.devices:
                request = request_of(asked, dataset, latency_ms, devices)
                found = {name: judged(name, request) for name in asked.planners}
                more = {
                    name: (
                        f"{late_on_others(each.plan, request, asked):.2%}" if asked.others else "",
                        "{:.2%}, late {:.2%}".format(*overloaded(each.plan, request, asked)) if asked.overload else "",
                    )
                    for name, each in found.items()
                    if each is not None
                }
                print_cell(f"{dataset}, {latency_ms:g} ms, {devices}", found, more)
                gains.setdefault(dataset, []).append((latency_ms, *gain_of(found)))
                if asked.median and latency_ms == MEDIAN_CELL_MS:
                    costs.append(cost_of_median(request))
    heavy = asked.peak >= HEAVY_PEAK
    summarise(gains, most_behind=MOST_BEHIND_HEAVY if heavy else MOST_BEHIND)
    if costs:
        told = ", ".join("no plan" if cost is None else f"{cost:+.2%}" for cost in costs)
        print_bar(
            all(cost is not None and cost <= MEDIAN_COST for cost in costs),
            f"a median within {MEDIAN_SHARE} of {MEDIAN_CELL_MS:g} ms costs at most {MEDIAN_COST:.1%} ({told})",
        )


def gain_of(found: dict[str, Judged | None]) -> tuple[float, float]:
    """The accuracy gained over `optimal`, and over the best other plan that keeps the latency."""
    kept = {name: each.accuracy for name, each in found.items() if each is not None and each.share_late <= 0.05}
    ours, today = kept.pop(OURS, 0.0), kept.get(TODAY, 0.0)
    return ours - today, ours - max(kept.values(), default=0.0)


def summarise(gains: dict[str, list[tuple[float, float, float]]], *, most_behind: float) -> None:
    """The bars of the specification."""
    every = [cell for cells in gains.values() for cell in cells]
    behind = min(other for _, _, other in every)
    print_bar(
        behind >= -most_behind,
        f"no other is more than {100 * most_behind:g} points more accurate in any cell ({behind:+.2%})",
    )
    for dataset, cells in {**gains, "all": every}.items():
        tight: Sequence[tuple[float, float, float]] = [cell for cell in cells if cell[0] <= 50] or cells
        over_today, over_others = (float(np.median([cell[i] for cell in tight])) for i in (1, 2))
        print(f"{dataset}: median at <= 50 ms {over_today:+.2%} over {TODAY}, {over_others:+.2%} over the best other")


if __name__ == "__main__":
    main()
