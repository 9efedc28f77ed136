"""One request at a time, each long for its load: cascades of large models on a trace of conversations.

Qualities and certainties are judged turns of mt_bench, run times those of Llama-2 on a V100; the largest model is one
replica on two devices.  Traffic is a window of Azure's conversations.  With `--profile`, a profile that `gearshift
profile` made of live models takes their place: run without batches on as many devices, on the same traffic scaled to
load the dearest model as much.

- frontiers: ours beside the published planners and the registered baselines, and beside ours without switching and
  without cascades, all replayed on the same arrival seeds with part B; `refine`, which answers at once and refines
  while there is time, may be refused, as it needs two models side by side;
- a wrong load distribution: plans made for other loads up to the same peak, served on the true trace (Ken 5.5 also
  has prompts of unexpected lengths, which profiles do not know); ours once more with the SLO in every load range;
- planning time against the number of load ranges.

A profile of small live models is made in a minute and a half by `gearshift demo --folder live` (it is `live/profile`),
or from models of your own as in docs/guides/your-own-models.md.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.planner.constrained import at_batch_one
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import DEVICE_KIND, azure_conversations, mt_bench
from benchmarks.shared.judging import PUBLISHED, judged, registered, volume
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import arrivals
from gearshift.cascade import Cascade
from gearshift.clock import NS_PER_S
from gearshift.errors import GearshiftError, Infeasible
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.search.optimal import restricted
from gearshift.planner.space.cascade_search import (
    CandidateCascade,
    evaluate_cascade,
    pareto_cascades,
    work_per_request_s,
)
from gearshift.planner.space.request import HEADROOM, PlanRequest
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.profiles.store import read_profile
from gearshift.traces.generate import diurnal, steady, trace_of_rate
from gearshift.verbs.planning.hardware import profiled_devices
from gearshift.workload import Trace

MAY_BE_REFUSED = ("refine",)
BASELINES = ("model-switching", "static-cascade", "placement-heuristic")
DEVICES, MEMORY_BYTES = 8, 32 << 30
SLO_S = 5.0
START_S = 0.0
CHEAPEST_BUSY = 0.5
"""The part of all devices' time that the cheapest of measured models may need."""
MOST_REQUESTS = 50_000
"""Of scaled traffic; what comes later is left out."""
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


def request_like(llamas: PlanRequest, measured: Profile) -> PlanRequest:
    """The request with another profile's models: rates and latency are as many of its dearest model's run times.

    But the cheapest model carries the top of the load ranges with `CHEAPEST_BUSY` at most.
    """
    profile = at_batch_one(measured)
    then = replace(llamas, profile=profile, hardware=profiled_devices(profile, DEVICES))
    (_, now_s, now_run_s), (cheapest_s, then_s, then_run_s) = costs(llamas), costs(then)
    most = CHEAPEST_BUSY * DEVICES / (cheapest_s * float(llamas.upper_ends()[-1]))
    return replace(
        then,
        trace=scaled(llamas.trace, min(now_s / then_s, most)),
        objective=Objective(latency_s=llamas.latency_s * then_run_s / now_run_s, scope=llamas.objective.scope),
    )


def costs(request: PlanRequest) -> tuple[float, float, float]:
    """Device-seconds per request of the cheapest and of the dearest model, and how long the latter takes."""
    work_s = work_per_request_s(request.profile, request.hardware.devices[0])
    dearest = max(work_s, key=lambda m: work_s[m])
    run_s = min(c.table_ns()[1] / NS_PER_S for c in request.profile.curves if c.model == dearest)
    return min(work_s.values()), work_s[dearest], run_s


def scaled(trace: Trace, factor: float) -> Trace:
    """So many times the requests in each second, at random instants within it; at most `MOST_REQUESTS`."""
    counts = np.rint(trace.counts_per_second() * factor)
    return arrivals(counts[: max(1, int(np.searchsorted(np.cumsum(counts), MOST_REQUESTS)))])


def rungs_s(request: PlanRequest, rungs: int) -> list[float]:
    """Latency objectives from the fastest model's run time to ten times the SLO."""
    fastest_s = min(c.median_s[0] for c in request.profile.curves)
    return [float(s) for s in np.geomspace(1.5 * fastest_s, 10 * request.latency_s, rungs)]


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
                made.append(restricted(candidates=[candidate]).plan(replace(within(request, latency_s), ranges=1)))
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
                made.append(restricted(candidates=models[cheapest:]).plan(within(request, latency_s)))
            except Infeasible:
                break
    return made


def methods(request: PlanRequest, size: Size) -> dict[str, Callable[[], list[GearPlan]]]:
    """By name, what finds a frontier."""
    any_latency = replace(request, objective=Objective(scope=request.objective.scope))
    latencies_s = rungs_s(request, size.rungs)
    named: dict[str, Callable[[], list[GearPlan]]] = {
        name: lambda name=name: planners.frontier(name, any_latency)
        for name in registered(("optimal", *MAY_BE_REFUSED, *PUBLISHED, *BASELINES))
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
    return f"{result.accuracy:.4f}", f"{result.latency_s.p95:.3g} s", f"{result.share_late:.1%}"


def compared(request: PlanRequest, size: Size) -> dict[str, float]:
    """Print what each method finds; hypervolumes by name, NaN where it refuses."""
    frontiers = {name: found_by(work) for name, work in methods(request, size).items()}
    volumes = {
        name: math.nan if f.error else volume(judged(f.plans, request), request, slo_s=request.latency_s)
        for name, f in frontiers.items()
    }
    planned_for = {
        name: volume(judged(f.plans, request, part=PART_A), request, slo_s=request.latency_s)
        for name, f in frontiers.items()
    }
    print_table(
        ("planner", "plans", "planning, s", "hypervolume", "on part A", "refused"),
        [
            (
                name,
                len(f.plans),
                f"{f.seconds:.1f}",
                "" if f.error else f"{volumes[name]:.4f}",
                "" if f.error else f"{planned_for[name]:.4f}",
                f.error,
            )
            for name, f in frontiers.items()
        ],
    )
    return volumes


def misjudged_loads(request: PlanRequest) -> None:
    """Print what plans for other loads come to on the true trace (Ken 5.5)."""
    trace, rows = request.trace, []
    every_range = replace(request, objective=Objective(latency_s=request.latency_s, scope="every-range"))
    cases = [(name, name, request) for name in registered(("optimal", *PUBLISHED))]
    for told, name, asked_for in [*cases, ("optimal, every range", "optimal", every_range)]:
        for load, expected in wrong_loads(trace).items():
            asked = replace(asked_for, trace=expected, max_qps=HEADROOM * trace.peak_qps, load="trace")
            found = found_by(lambda name=name, asked=asked: [planners.plan(name, asked)])
            rows.append((told, load, *(served(found.plans[0], request) if found.plans else (found.error, "", ""))))
    print_table(("planner", "planned for", "accuracy", f"p95 (SLO {request.latency_s:.3g} s)", "late"), rows)


def planning_times(request: PlanRequest, counts: tuple[int, ...]) -> None:
    """Print how long one plan for the SLO takes with so many load ranges."""
    rows = []
    for name in registered(("optimal", *PUBLISHED)):
        found = [found_by(lambda name=name, n=n: [planners.plan(name, replace(request, ranges=n))]) for n in counts]
        rows.append((name, *(f"{f.seconds:.1f}" + " (refused)" * bool(f.error) for f in found)))
    print_table(("planning one SLO plan, s", *(f"{n} ranges" for n in counts)), rows)


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="two minutes of traffic, 8 cascades, 6 ranges")
    parser.add_argument("--profile", type=Path, help="a folder that `gearshift profile` wrote, instead of the Llamas")
    given = parser.parse_args()
    size = QUICK if given.quick else Size()
    llamas = request_for(data_of(given), size)
    if given.profile is None:
        narrow = replace(llamas, profile=mt_bench(data_of(given), models=ON_ONE_DEVICE))
        worlds = {"all Llamas": llamas, "Llamas on one device each": narrow}
    else:
        worlds = {f"models of {given.profile}": request_like(llamas, read_profile(given.profile))}
    request = next(iter(worlds.values()))
    trace = request.trace
    found_by(lambda: [planners.plan("static-cascade", request)])  # compiles
    print(describe())
    print(
        f"{len(trace)} requests in {trace.duration_s:.0f} s, up to {trace.peak_qps:.0f}/s, on {DEVICES} devices; "
        f"p95 within {request.latency_s:.3g} s; the dearest model takes {costs(request)[2]:.3g} s"
    )
    volumes = {}
    for world, asked in worlds.items():
        print(f"\n{world}:")
        volumes[world] = compared(asked, size)
    misjudged_loads(request)
    planning_times(request, size.counts_of_ranges)
    for world, found in volumes.items():
        refused = [name for name, v in found.items() if math.isnan(v) and name not in MAY_BE_REFUSED]
        print_bar(not refused, f"{world}: everybody finds plans{'; refused: ' if refused else ''}{', '.join(refused)}")
        rivals = {name: v for name, v in found.items() if name != "optimal" and not math.isnan(v)}
        best = max(rivals, key=lambda name: rivals[name])
        print_bar(
            found["optimal"] >= rivals[best],
            f"{world}: hypervolume at least that of all others "
            f"(ours {found['optimal']:.4f}, {best} {rivals[best]:.4f})",
        )


if __name__ == "__main__":
    main()
