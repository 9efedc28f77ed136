"""The constrained space: how much of exhaustive search's hypervolume the planners find.

Five synthetic models on every device, batch 1, 8 cascades, 6 load ranges, 8 seconds of traffic.  The last range
begins at the highest load that is metered where nothing waits: only a backlog enters it, and as in every plan of ours
it holds the cheapest cascade.  Exhaustive search replays every assignment of cascades to the other five ranges (8^5;
`constrained_space.py` says where that takes fewer replays).  With `--last-range-free` it has all six (8^6): the
difference is what the rule costs.

Every planner is judged by replays of its plans: on the trace itself with part A, as exhaustive search is, and once
more on another arrival seed with part B, which the bar is about.  `replayed` counts as points everything that our
planner replayed on the way, not only the plans that it confirmed and answered.  Random search, and a plain search
around the front seen so far, replay as much as ours simulates: cells of steady state, replays, confirmations and
tests of recovery, all counted in requests.

The meter's alpha is 8 for all; what ours gains by choosing it is outside the space.
"""

import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.planner.constrained_space import Replays, Space, front_of, front_search, point_of, search_all
from benchmarks.shared.arguments import parser_of
from benchmarks.shared.judging import PUBLISHED, Point, Simulated, counting, judged, registered, volume
from benchmarks.shared.machine import describe
from benchmarks.shared.tables import print_bar, print_table
from benchmarks.shared.worlds import devices, five_models
from gearshift.clock import NS_PER_S
from gearshift.errors import Infeasible
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner import planners
from gearshift.planner.evaluate.assemble import DEFAULT_ALPHA
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.planner.search import slo_search
from gearshift.planner.search.optimal import restricted
from gearshift.planner.space.cascade_search import CandidateCascade, pareto_cascades, work_per_request_s
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest
from gearshift.policies.load import METER_WINDOW_NS
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.simulator.simulate import simulate
from gearshift.traces.generate import diurnal
from gearshift.workload import Trace

CASCADES, RANGES, SECONDS, DEVICES = 8, 6, 8.0, 2
SLO_S = 0.05
OTHER_SEED = 7
CURVE = (25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 12800)
BAR = 0.995


@dataclass(frozen=True, slots=True)
class Size:
    cascades: int
    ranges: int
    last_range_free: bool = False

    @property
    def choices(self) -> tuple[int, ...]:
        """How many cascades each range may have."""
        return (self.cascades,) * (self.ranges - 1) + (self.cascades if self.last_range_free else 1,)


FULL = Size(CASCADES, RANGES)
QUICK = Size(4, 4)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per method the share of exhaustive search's hypervolume, on the trace itself and re-simulated; and the curves."""

    space: int
    replays: int
    ours_replays: float
    found: dict[str, float]
    again: dict[str, float]
    curves: dict[str, list[float]]


def at_batch_one(profile: Profile) -> Profile:
    """The profile with run times of single requests only."""
    curves = tuple(
        msgspec.structs.replace(c, batch_sizes=c.batch_sizes[:1], median_s=c.median_s[:1], p95_s=c.p95_s[:1])
        for c in profile.curves
    )
    return replace(profile, curves=curves)


def highest_metered_qps(trace: Trace) -> float:
    """Requests in the busiest window of the meter, per second."""
    return float(np.bincount(trace.arrivals_ns // METER_WINDOW_NS).max() * NS_PER_S / METER_WINDOW_NS)


def instance(seed: int, size: Size) -> tuple[PlanRequest, list[CandidateCascade], Placement]:
    """Request, cascades by rising work, and all models on every device."""
    profile = at_batch_one(five_models(seed))
    trace = diurnal(80.0, 480.0, SECONDS, period_s=SECONDS / 2, seed=seed)
    request = PlanRequest(
        profile=profile,
        trace=trace,
        hardware=devices(DEVICES, models_each=len(profile.models)),
        objective=Objective(latency_s=SLO_S, scope="trace"),
        ranges=size.ranges,
        max_qps=(highest_metered_qps(trace) + 1) * size.ranges / (size.ranges - 1),
        most_candidates=size.cascades,
        least_margin=0.05,
        seed=seed,
    )
    work_s = work_per_request_s(profile, request.hardware.devices[0])
    candidates = pareto_cascades(profile, work_s, most=size.cascades)
    return request, candidates, place_everywhere(profile, request.hardware)


def our_plans(request: PlanRequest, candidates: list[CandidateCascade], placement: Placement) -> list[GearPlan]:
    """Our planner's confirmed plans, within the same space."""
    slo_search.ALPHAS = (DEFAULT_ALPHA,)
    return restricted(candidates=candidates, placement=placement).frontier(request)


def trace_replays(counted: Simulated, replays: Replays, request: PlanRequest) -> list[tuple[float, Point]]:
    """Replays of the trace as it is, on part A, in all that was simulated: when, in replays' worth, and the point."""
    workload = replays.workload
    return [
        (requests / len(workload), point_of(run, request.profile, request.objective.percentile))
        for requests, run in counted.runs
        if len(run.workload) == len(workload)
        and np.array_equal(run.workload.record, workload.record)
        and np.array_equal(run.workload.arrivals_ns, workload.arrivals_ns)
    ]


def random_search(space: Space, replays: int, seed: int) -> NDArray[np.int64]:
    """Assignments (replays,) drawn at random, none twice, by their place in the space."""
    assignments = len(space.flat())
    return np.random.default_rng([seed, 8]).permutation(assignments)[:replays]


def curve(points: list[tuple[float, Point]], request: PlanRequest) -> list[float]:
    """Hypervolume of what was seen within each of `CURVE` replays."""
    return [volume([p for at, p in points if at <= n], request, slo_s=SLO_S) for n in CURVE]


def outcome(seed: int, size: Size) -> Outcome:
    """Everything for one seed."""
    request, candidates, placement = instance(seed, size)
    replays = Replays(request, candidates, placement, part=PART_A, seed=0)
    elsewhere = Replays(request, candidates, placement, part=PART_B, seed=OTHER_SEED)
    space = search_all(size.choices, replays.replayed)
    best = volume(pairs(space.flat()[front_of(space.flat())]), request, slo_s=SLO_S)

    with counting(keep_runs=True) as counted:
        plans = {"ours": our_plans(request, candidates, placement)}
    budget = counted.requests / len(request.trace)
    seen = trace_replays(counted, replays, request)
    for name in registered(PUBLISHED):
        try:
            plans[name] = planners.frontier(name, request)
        except Infeasible:
            plans[name] = []

    found = {
        name: volume(judged(made, request, part=PART_A, seeds=1), request, slo_s=SLO_S) for name, made in plans.items()
    }
    again = {name: volume(simulated_again(made, request), request, slo_s=SLO_S) for name, made in plans.items()}
    found["ours, all replayed"] = volume([p for _, p in seen], request, slo_s=SLO_S)
    looked_at = {
        "random": [space.assignment(place) for place in random_search(space, math.ceil(budget), seed)],
        "front search": front_search(space, math.ceil(budget), seed),
    }
    curves = {"ours, all replayed": curve(seen, request)}
    for name, assignments in looked_at.items():
        points = np.array([space.points[a] for a in assignments])
        found[name] = volume(pairs(points), request, slo_s=SLO_S)
        kept = [assignments[i] for i in front_of(points)]
        again[name] = volume([elsewhere.replayed(a)[0] for a in kept], request, slo_s=SLO_S)
        curves[name] = curve([(float(i), point) for i, point in enumerate(pairs(points), start=1)], request)
    best_again = volume([elsewhere.replayed(a)[0] for a in space.front()], request, slo_s=SLO_S)
    return Outcome(
        space=len(space.flat()),
        replays=space.replays,
        ours_replays=budget,
        found={name: v / best for name, v in found.items()},
        again={name: v / best_again for name, v in again.items()},
        curves={name: [v / best for v in volumes] for name, volumes in curves.items()},
    )


def pairs(points: NDArray[np.float64]) -> list[Point]:
    return [(float(latency_s), float(accuracy)) for latency_s, accuracy in points]


def simulated_again(plans: list[GearPlan], request: PlanRequest) -> list[Point]:
    """The plans' points on another arrival seed, with part B."""
    workload = workload_of(request.trace, request.profile, part=PART_B, seed=OTHER_SEED)
    at = request.objective.percentile
    return [point_of(simulate(made, request.profile, workload), request.profile, at) for made in plans]


def percent(values: list[float]) -> str:
    """Median and least; empty for none."""
    return f"{np.median(values):.2%} ({min(values):.2%})" if values else ""


def main() -> None:
    parser = parser_of(__doc__, quick="4 cascades, 4 ranges and 3 seeds")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--last-range-free", action="store_true", help="exhaustive search may choose there, too")
    arguments = parser.parse_args()
    size, seeds = (QUICK, 3) if arguments.quick else (FULL, arguments.seeds)
    size = replace(size, last_range_free=arguments.last_range_free)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=2, mp_context=context) as pool:
        outcomes = list(pool.map(outcome, range(seeds), [size] * seeds))
    print(describe())
    print(
        f"{size.cascades} cascades x {size.ranges} ranges, {seeds} seeds; exhaustive search settled "
        f"{outcomes[0].space} assignments with {int(np.median([o.replays for o in outcomes]))} replays (median); "
        f"ours simulated the worth of {np.median([o.ours_replays for o in outcomes]):.0f} replays (median)"
    )
    methods = sorted(outcomes[0].found, key=lambda m: -float(np.median([o.found[m] for o in outcomes])))
    print_table(
        ("share of exhaustive search's hypervolume, median (least)", "on the trace", "another seed, part B"),
        [
            (m, percent([o.found[m] for o in outcomes]), percent([o.again[m] for o in outcomes if m in o.again]))
            for m in methods
        ],
    )
    print_table(
        ("replays", *outcomes[0].curves),
        [(n, *(percent([o.curves[m][i] for o in outcomes]) for m in outcomes[0].curves)) for i, n in enumerate(CURVE)],
    )
    again = float(np.median([o.again["ours"] for o in outcomes]))
    found = float(np.median([o.found["ours"] for o in outcomes]))
    print_bar(
        again >= BAR,
        f"our plans, simulated again, reach {BAR:.1%} of exhaustive search's hypervolume (median {again:.2%}; on the "
        f"trace that they were chosen on {found:.2%})",
    )


if __name__ == "__main__":
    main()
