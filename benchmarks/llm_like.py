"""Seconds-long requests and tens of them: Llama cascades on a trace of conversations.

Qualities and certainties are judged turns of mt_bench, run times those of Llama-2 on a V100, one request at a time;
the largest model is one replica on two devices.  Traffic is a window of Azure's conversations.

- frontiers: ours beside the published planners and the registered baselines, and beside ours without switching and
  without cascades, all replayed on the same arrival seeds with part B;
- a wrong load distribution: plans made for other loads up to the same peak, served on the true trace;
- planning time against the number of load ranges.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from imported import DEVICE_KIND, azure_conversations, mt_bench
from judging import PUBLISHED, judged, print_bar, print_table, registered, volume
from machine import describe

from gearshift.cascade import Cascade
from gearshift.errors import GearshiftError, Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.assemble import replay
from gearshift.planner.cascade_search import CandidateCascade, evaluate_cascade, pareto_cascades, work_per_request_s
from gearshift.planner.optimal import plan_with
from gearshift.planner.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.traces.generate import diurnal, steady, trace_of_rate
from gearshift.workload import Trace
from worlds import data_folder

BASELINES = ("model-switching", "static-cascade", "placement-heuristic")
DEVICES, MEMORY_BYTES = 8, 32 << 30
SLO_S = 5.0
START_S = 0.0
ON_ONE_DEVICE = ("1b", "3b", "8b")


@dataclass(frozen=True, slots=True)
class Size:
    seconds: float = 600.0
    ranges: int = 20
    cascades: int = 32
    rungs: int = 12
    counts_of_ranges: tuple[int, ...] = (5, 10, 20, 50, 100)


QUICK = Size(seconds=120.0, ranges=6, cascades=8, rungs=4, counts_of_ranges=(4, 8))


@dataclass(frozen=True, slots=True)
class Found:
    """A method's plans and seconds; `error` says why there are none."""

    plans: list[GearPlan]
    seconds: float
    error: str = ""


def found_by(work: Callable[[], list[GearPlan]]) -> Found:
    """What a method finds, and how long it takes; what it refuses is its `error`."""
    began = time.perf_counter()
    try:
        plans = work()
        return Found(plans, time.perf_counter() - began)
    except GearshiftError as error:
        return Found([], time.perf_counter() - began, str(error))


def request_for(data: Path, size: Size) -> PlanRequest:
    return PlanRequest(
        profile=mt_bench(data),
        trace=azure_conversations(data, start_s=START_S, seconds=size.seconds),
        hardware=identical_devices(DEVICES, kind=DEVICE_KIND, memory_bytes=MEMORY_BYTES),
        objective=Objective(latency_s=SLO_S, scope="trace"),
        ranges=size.ranges,
        most_candidates=size.cascades,
    )


def rungs_s(request: PlanRequest, rungs: int) -> list[float]:
    """Latency objectives from the fastest model's run time to ten times the SLO."""
    fastest_s = min(c.median_s[0] for c in request.profile.curves)
    return [float(s) for s in np.geomspace(1.5 * fastest_s, 10 * SLO_S, rungs)]


def within(request: PlanRequest, latency_s: float) -> PlanRequest:
    return replace(request, objective=Objective(latency_s=latency_s, scope=request.objective.scope))


def front_of_cascades(request: PlanRequest) -> list[CandidateCascade]:
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    return pareto_cascades(request.profile, work_s, most=request.most_candidates)


def without_switching(request: PlanRequest, latencies_s: list[float]) -> list[GearPlan]:
    """At each latency the most accurate cascade that serves all loads, placed by our planner."""
    made = []
    front = front_of_cascades(request)
    for latency_s in latencies_s:
        for candidate in reversed(front):
            try:
                made.append(plan_with(replace(within(request, latency_s), ranges=1), candidates=[candidate]))
                break
            except Infeasible:
                continue
    return made


def without_cascades(request: PlanRequest, latencies_s: list[float]) -> list[GearPlan]:
    """At each latency our planner's plan of single models; with those too cheap to be needed left out, too."""
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    records = request.profile.predictions
    by_work = sorted(work_s, key=lambda m: work_s[m])
    models = [evaluate_cascade(Cascade(models=(m,)), records, work_s, part=PART_A) for m in by_work]
    made = []
    for latency_s in latencies_s:
        for cheapest in range(len(models)):
            try:
                made.append(plan_with(within(request, latency_s), candidates=models[cheapest:]))
            except Infeasible:
                break
    return made


def methods(request: PlanRequest, size: Size) -> dict[str, Callable[[], list[GearPlan]]]:
    """By name, what finds a frontier."""
    any_latency = replace(request, objective=Objective(scope=request.objective.scope))
    latencies_s = rungs_s(request, size.rungs)
    named: dict[str, Callable[[], list[GearPlan]]] = {
        name: lambda name=name: planners.frontier(name, any_latency)
        for name in registered(("optimal", *PUBLISHED, *BASELINES))
    }
    named["ours, no switching"] = lambda: without_switching(request, latencies_s)
    named["ours, no cascade"] = lambda: without_cascades(request, latencies_s)
    return named


def wrong_loads(trace: Trace) -> dict[str, Trace]:
    """What might have been expected instead of this trace, up to the same peak."""
    peak_qps, length_s = trace.peak_qps, trace.duration_s
    return {
        "the true trace": trace,
        "steady at the mean": steady(trace.mean_qps, length_s, seed=1),
        "every load alike": trace_of_rate(lambda t: t % 60.0 / 60.0 * peak_qps, length_s, seed=1),
        "mostly high": diurnal(0.7 * peak_qps, peak_qps, length_s, seed=1),
        "mostly low": trace_of_rate(lambda t: np.where(t % 60.0 < 57.0, 0.1, 1.0) * peak_qps, length_s, seed=1),
    }


def served(made: GearPlan, request: PlanRequest) -> tuple[str, ...]:
    """Accuracy, p95 and share late on the request's trace."""
    result = replay(made, request, part=PART_B).result
    return f"{result.accuracy:.4f}", f"{result.latency_s.p95:.2f} s", f"{result.share_late:.1%}"


def compared(request: PlanRequest, size: Size) -> dict[str, float]:
    """Print what each method finds; hypervolumes by name, NaN where it refuses."""
    frontiers = {name: found_by(work) for name, work in methods(request, size).items()}
    volumes = {
        name: math.nan if f.error else volume(judged(f.plans, request), request, slo_s=SLO_S)
        for name, f in frontiers.items()
    }
    print_table(
        ("planner", "plans", "planning, s", "hypervolume", "refused"),
        [
            (name, len(f.plans), f"{f.seconds:.1f}", "" if f.error else f"{volumes[name]:.4f}", f.error)
            for name, f in frontiers.items()
        ],
    )
    return volumes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--quick", action="store_true", help="two minutes of traffic, 8 cascades, 6 ranges")
    size = QUICK if parser.parse_args().quick else Size()
    data = data_folder()
    request = request_for(data, size)
    trace = request.trace
    print(describe())
    print(f"{len(trace)} requests in {trace.duration_s:.0f} s, up to {trace.peak_qps:.0f}/s, on {DEVICES} devices")

    volumes = compared(request, size)
    print("Without the model that spans two devices, so that all planners can take part:")
    one_device = replace(request, profile=mt_bench(data, models=ON_ONE_DEVICE))
    narrow = compared(one_device, size)

    rows = []
    for name in registered(("optimal", *PUBLISHED)):
        for load, expected in wrong_loads(trace).items():
            asked = replace(request, trace=expected, max_qps=1.2 * trace.peak_qps)
            found = found_by(lambda name=name, asked=asked: [planners.plan(name, asked)])
            rows.append((name, load, *(served(found.plans[0], request) if found.plans else (found.error, "", ""))))
    print_table(("planner", "planned for", "accuracy", f"p95 (SLO {SLO_S:g} s)", "late"), rows)

    counts = size.counts_of_ranges
    print_table(
        ("planning one SLO plan, s", *(f"{n} ranges" for n in counts)),
        [
            (
                name,
                *(
                    f"{f.seconds:.1f}" + (" (refused)" if f.error else "")
                    for n in counts
                    for f in [found_by(lambda name=name, n=n: [planners.plan(name, replace(request, ranges=n))])]
                ),
            )
            for name in registered(("optimal", *PUBLISHED))
        ],
    )
    for world, found in (("all models", volumes), ("on one device each", narrow)):
        rivals = {name: v for name, v in found.items() if name != "optimal" and not math.isnan(v)}
        best = max(rivals, key=lambda name: rivals[name])
        refused = [name for name, v in found.items() if math.isnan(v)]
        print_bar(
            found["optimal"] >= rivals[best],
            f"{world}: hypervolume at least that of all others (ours {found['optimal']:.4f}, {best} {rivals[best]:.4f}"
            f"{'; refused: ' if refused else ''}{', '.join(refused)})",
        )


if __name__ == "__main__":
    main()
