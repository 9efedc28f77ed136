"""The full space: how long our planner takes, and its hypervolume beside both published planners'.

100 cascades of five synthetic models, 50 load ranges, 4 devices that hold 3 models each.  The first workload is 1,200
seconds of Twitter at a peak of 7,600/s; on it our planner is timed.  All planners' plans are replayed alike, on five
arrival seeds with part B.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import msgspec

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.judging import PUBLISHED, Point, judged, registered, volume
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import devices, five_models, twitter
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective, Scope
from gearshift.planner import planners
from gearshift.planner.search.optimal import restricted
from gearshift.planner.space.request import PlanRequest
from gearshift.traces.generate import bursty, diurnal, step
from gearshift.workload import Trace

SLO_S = 0.05
PEAK_QPS = 7_600.0
BUDGETS_S = (5.0, 10.0, 20.0, 40.0)
BARS_S = {"an SLO plan on a given placement": 10.0, "an SLO plan": 30.0, "the frontier": 60.0}


@dataclass(frozen=True, slots=True)
class Size:
    cascades: int = 100
    ranges: int = 50
    twitter_s: int = 1_200
    other_s: float = 300.0


QUICK = Size(cascades=20, ranges=10, twitter_s=30, other_s=15.0)


@dataclass(frozen=True, slots=True)
class Timed:
    """What a planner made, and in how many seconds; no plans where it found none."""

    plans: list[GearPlan]
    seconds: float


def request_for(trace: Trace, *, seed: int, size: Size, scope: Scope = "every-range") -> PlanRequest:
    return PlanRequest(
        profile=five_models(seed),
        trace=trace,
        hardware=devices(4),
        objective=Objective(latency_s=SLO_S, scope=scope),
        ranges=size.ranges,
        most_candidates=size.cascades,
        seed=seed,
    )


def workloads(data: Path, size: Size, scope: Scope) -> dict[str, PlanRequest]:
    """By name; the first is the one of the bars."""
    low, length_s = 0.2 * PEAK_QPS, size.other_s
    traces = {
        "twitter": (0, twitter(data, peak_qps=PEAK_QPS, seconds=size.twitter_s)),
        "twitter, other models": (1, twitter(data, peak_qps=PEAK_QPS, start=300_000, seconds=int(length_s))),
        "step": (2, step(low, 0.8 * PEAK_QPS, length_s, seed=2)),
        "bursty": (3, bursty(low, PEAK_QPS, length_s, bursts=5, seed=3)),
        "diurnal": (4, diurnal(low, PEAK_QPS, length_s, seed=4)),
    }
    return {name: request_for(trace, seed=seed, size=size, scope=scope) for name, (seed, trace) in traces.items()}


def timed(work: Callable[[], list[GearPlan]]) -> Timed:
    """The plans, none where there are none, and the time they took."""
    began = time.perf_counter()
    try:
        plans = work()
    except Infeasible:
        plans = []
    return Timed(plans, time.perf_counter() - began)


def without_latency(request: PlanRequest) -> PlanRequest:
    """For frontiers, whose plans have latencies of their own."""
    return replace(request, objective=msgspec.structs.replace(request.objective, latency_s=None))


def timings(request: PlanRequest) -> dict[str, Timed]:
    """Our planner on one workload: for the SLO on a given placement, for the SLO, and the frontier."""
    slo = timed(lambda: [planners.plan("optimal", request)])
    made = {"an SLO plan": slo}
    if slo.plans:
        placement = slo.plans[0].placement
        made["an SLO plan on a given placement"] = timed(lambda: [restricted(placement=placement).plan(request)])
    made["the frontier"] = timed(lambda: planners.frontier("optimal", without_latency(request)))
    return made


def print_budgets(request: PlanRequest, budgets_s: tuple[float, ...]) -> None:
    """What planners make of a budget, and how long they take with it."""
    rows = []
    for name in ("optimal", *registered(PUBLISHED)):
        for budget_s in budgets_s:
            found = timed(lambda name=name, s=budget_s: [planners.plan(name, replace(request, budget_s=s))])
            points = judged(found.plans, request)
            ended = "no plan" if not found.plans else "unfinished" if found.plans[0].unfinished else "finished"
            rows.append((name, f"{budget_s:g}", f"{found.seconds:.1f}", ended, in_words(points)))
    print_table(("planner", "budget, s", "took, s", "the search", "the plan, on part B"), rows)


def in_words(points: list[Point]) -> str:
    if not points:
        return "none"
    fastest, slowest = min(points), max(points)
    return (
        f"{len(points)}: {fastest[0] * 1e3:.1f} ms {fastest[1]:.3f} .. {slowest[0] * 1e3:.1f} ms "
        f"{max(a for _, a in points):.3f}"
    )


def print_timings(took: dict[str, Timed]) -> None:
    print_table(
        ("our planner on Twitter", "s", "at most, s"),
        [(what, f"{took[what].seconds:.1f}" if what in took else "no plan", limit) for what, limit in BARS_S.items()],
    )
    for what, limit in BARS_S.items():
        print_bar(what in took and bool(took[what].plans) and took[what].seconds <= limit, f"{what} in {limit:g} s")


def frontiers_of(request: PlanRequest, ours: Timed | None) -> dict[str, Timed]:
    """All planners' frontiers on one workload; ours unless it is known."""
    planned = {"optimal": ours} if ours else {}
    for name in ("optimal", *registered(PUBLISHED)):
        if name not in planned:
            planned[name] = timed(lambda name=name: planners.frontier(name, without_latency(request)))
    return planned


def main() -> None:
    parser = parser_of(__doc__, data=True, quick="20 cascades, 10 ranges, half a minute of traffic")
    parser.add_argument("--scope", choices=get_args(Scope), default="every-range", help="what our plans hold for sure")
    parser.add_argument("--timings", action="store_true", help="our planner's times on the first workload, no more")
    parser.add_argument("--budgets", action="store_true", help="an SLO plan within several budgets, no more")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else Size()
    asked = workloads(data_of(arguments), size, arguments.scope)
    timed(lambda: [planners.plan("single", request_for(step(50, 50, 1.0), seed=0, size=QUICK))])  # compiles

    print(describe())
    if arguments.budgets:
        print_budgets(next(iter(asked.values())), BUDGETS_S[:1] if arguments.quick else BUDGETS_S)
        return
    took = timings(next(iter(asked.values())))
    print_timings(took)
    if arguments.timings:
        return
    met_everywhere = True
    for i, (name, request) in enumerate(asked.items()):
        frontiers = frontiers_of(request, took["the frontier"] if i == 0 else None)
        points = {planner: judged(found.plans, request) for planner, found in frontiers.items()}
        volumes = {planner: volume(points[planner], request, slo_s=SLO_S) for planner in frontiers}
        met_everywhere &= volumes["optimal"] >= max(volumes.values())
        rows = [
            (
                name,
                planner,
                len(request.trace),
                f"{found.seconds:.1f}",
                f"{volumes[planner]:.4f}",
                in_words(points[planner]),
            )
            for planner, found in frontiers.items()
        ]
        print_table(("workload", "planner", "requests", "planning, s", "hypervolume", "plans, on part B"), rows)
    missing = set(PUBLISHED) - set(registered(PUBLISHED))
    against = f"hypervolume at least that of {' and '.join(PUBLISHED)} on every workload"
    print_bar(
        met_everywhere and not missing, against + (f" (there is no {', '.join(sorted(missing))})" if missing else "")
    )


if __name__ == "__main__":
    main()
