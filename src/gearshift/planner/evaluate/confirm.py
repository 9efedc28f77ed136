"""Replay the full trace under a plan: once per arrival seed to confirm it, cached to compare many plans."""

import math
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray
from scipy.special import stdtrit

from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner.space.beside import joined
from gearshift.planner.space.bisection import halfway, split
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PART_B, PredictionRecords, Profile
from gearshift.result import LatencySummary, ServingResult, percentile_rank, wilson_interval
from gearshift.simulator.simulate import Prepared, Simulation, prepare
from gearshift.support.processors import usable_processors
from gearshift.workload import Trace, Workload, draw_workload, merge_workloads

T = TypeVar("T")

SEEDS = 5
REDRAW_WINDOW_NS = 100_000_000
SLOWEST = 4
OBJECTIVE_PRECISION = 1.001
MOST_KEPT_REQUESTS = 30_000_000
"""Workloads are kept as long as their trace, up to this many requests of 12 bytes each."""
MOST_REQUESTS_AT_ONCE = 60_000_000
"""A replay with its figures takes about 60 bytes per request of the trace: 3.6 GB in all."""

_kept: WeakKeyDictionary[Trace, dict[tuple[int, int], tuple[PredictionRecords, Workload]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Share late and percentile latency per seed (seeds,), and the figures of all runs.

    `slowest_s` has each seed's slowest latencies, rising: `SLOWEST` times as many as may be late.
    `others_hold` says whether the pipelines beside it keep their objectives.
    """

    share_late: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    result: ServingResult
    slowest_s: tuple[NDArray[np.float64], ...] = ()
    others_hold: bool = True

    def judged_by(self, latency_objective_s: float) -> "Confirmation":
        """The same runs under another objective, which at most the requests in `slowest_s` miss."""
        late = shares_late(self.slowest_s, self.result.requests, latency_objective_s)
        share, before = float(np.mean(late)), self.result.share_late
        per_share_qps = self.result.goodput_qps / (1 - before) if before < 1 else 0.0
        result = msgspec.structs.replace(self.result, share_late=share, goodput_qps=per_share_qps * (1 - share))
        return replace(self, share_late=late, result=result)

    def holds(self, percentile: float) -> bool:
        return self.others_hold and self.share_late_bound() <= 1 - percentile

    def share_late_bound(self) -> float:
        return share_late_bound(self.share_late)


def shares_late(
    slowest_s: Sequence[NDArray[np.float64]], requests: int, latency_objective_s: float
) -> NDArray[np.float64]:
    return np.array([np.count_nonzero(s > latency_objective_s) / requests for s in slowest_s])


def share_late_bound(share_late: NDArray[np.float64]) -> float:
    """Upper 95 % confidence bound (Student's t) of the mean share late (seeds,)."""
    n = len(share_late)
    if n == 1:
        return float(share_late[0])
    spread = float(share_late.std(ddof=1)) / n**0.5
    return float(share_late.mean() + stdtrit(n - 1, 0.95) * spread)


def holds(
    slowest_s: Sequence[NDArray[np.float64]], requests: int, latency_objective_s: float, percentile: float
) -> bool:
    """Whether runs keep the percentile with confidence, from their slowest latencies.

    Runs with more late than `slowest_s` has do not hold anyway.
    """
    return share_late_bound(shares_late(slowest_s, requests, latency_objective_s)) <= 1 - percentile


def least_objective_s(slowest_s: Sequence[NDArray[np.float64]], requests: int, percentile: float) -> float:
    """About the lowest latency objective that `holds` in runs; for a single run its percentile.

    `slowest_s` has at least the latencies beyond the percentile of each run, in rising order.
    """
    if len(slowest_s) == 1:
        return float(slowest_s[0][percentile_rank(percentile, requests) - requests])
    low, high = float(min(s[0] for s in slowest_s)), float(max(s[-1] for s in slowest_s))
    _, least_s = split(
        lambda s: not holds(slowest_s, requests, s, percentile),
        low,
        high,
        precision=OBJECTIVE_PRECISION,
        middle=halfway,
    )
    return least_s


def slowest_of(latency_s: NDArray[np.float64], percentile: float) -> NDArray[np.float64]:
    """The slowest `SLOWEST` times as many as may be late, rising; reorders `latency_s`."""
    first = max(0, len(latency_s) - 1 - math.ceil(SLOWEST * (1 - percentile) * len(latency_s)))
    latency_s.partition(first)
    return np.sort(latency_s[first:])


def redrawn(trace: Trace, seed: int) -> Trace:
    """Move every arrival at random within its 100 ms; seed 0 leaves the trace as it is.

    Bursts keep their place and size at the scale at which load is metered.
    """
    if seed == 0:
        return trace
    generator = np.random.default_rng([seed, 2])
    windows = trace.arrivals_ns // REDRAW_WINDOW_NS
    moved = windows * REDRAW_WINDOW_NS + generator.integers(0, REDRAW_WINDOW_NS, len(trace))
    end_ns = int(max(trace.arrivals_ns[-1], trace.duration_s * 1e9 - 1))
    return Trace(arrivals_ns=np.minimum(np.sort(moved), end_ns), duration_s=trace.duration_s)


def workload_of(trace: Trace, profile: Profile, *, part: int, seed: int) -> Workload:
    kept, records = _kept.setdefault(trace, {}), profile.predictions
    known = kept.get((part, seed))
    if known is not None and known[0] is records:
        return known[1]
    drawn = draw_workload(redrawn(trace, seed), records.indices(part), seed=seed)
    if (len(kept) + 1) * len(trace) <= MOST_KEPT_REQUESTS:
        kept[part, seed] = records, drawn
    return drawn


def replay(
    made: GearPlan, request: PlanRequest, *, part: int, seeds: int = SEEDS, on_time: Callable[[], None] = lambda: None
) -> Confirmation:
    """Replay the request's trace with the samples of `part`, once per arrival seed, in threads.

    `on_time` is called before each replay, and may raise to end them.
    """

    def figures(run: Simulation) -> tuple[ServingResult, float, NDArray[np.float64]]:
        result = run.result(together(request), latency_objective_s=request.latency_s, pipeline=_name(request))
        run = own(run, request)
        latency_s, percentile = run.latency_s, request.objective.percentile
        slowest_s, requests = slowest_of(latency_s, percentile), len(latency_s)
        return result, float(slowest_s[percentile_rank(percentile, requests) - requests]), slowest_s

    runs, kept = _replayed(made, request, figures, part=part, seeds=seeds, on_time=on_time)
    results = [result for result, _, _ in runs]
    return Confirmation(
        share_late=np.array([r.share_late for r in results]),
        latency_s=np.array([latency_s for _, latency_s, _ in runs]),
        result=_together(results, independent=len(request.profile.predictions.indices(part))),
        slowest_s=tuple(slowest_s for _, _, slowest_s in runs),
        others_hold=kept,
    )


def slowest_on_part_a(
    made: GearPlan, request: PlanRequest, *, seeds: int = SEEDS, on_time: Callable[[], None] = lambda: None
) -> list[NDArray[np.float64]]:
    """Only `slowest_s` of a confirmation: its other figures take a third of the replay's time.

    Empty where pipelines beside it do not keep their objectives.
    """

    def slowest(run: Simulation) -> NDArray[np.float64]:
        return slowest_of(own(run, request).latency_s, request.objective.percentile)

    runs, kept = _replayed(made, request, slowest, part=PART_A, seeds=seeds, on_time=on_time)
    return runs if kept else []


def confirmed(
    made: GearPlan, request: PlanRequest, *, seeds: int = SEEDS, on_time: Callable[[], None] = lambda: None
) -> GearPlan | None:
    """The plan with predictions, if it holds on seeds of part A and then on part B."""
    percentile = request.objective.percentile
    slowest_s = slowest_on_part_a(made, request, seeds=seeds, on_time=on_time)
    if not slowest_s or not holds(slowest_s, len(request.trace), request.latency_s, percentile):
        return None
    predicted = replay(made, request, part=PART_B, on_time=on_time)
    if not predicted.holds(percentile):
        return None
    return msgspec.structs.replace(made, predictions={request.profile.operator: predicted.result})


def with_predictions(made: GearPlan, request: PlanRequest, *, on_time: Callable[[], None] = lambda: None) -> GearPlan:
    result = replay(made, request, part=PART_B, on_time=on_time).result
    return msgspec.structs.replace(made, predictions={request.profile.operator: result})


def quality_of_records(
    made: GearPlan, request: PlanRequest, *, part: int, seeds: int = SEEDS, on_time: Callable[[], None] = lambda: None
) -> NDArray[np.float64]:
    """The mean quality (drawn,) of the answers to each sample of `part` that replays drew and answered."""
    count = request.profile.predictions.quality.shape[1]

    def sums(run: Simulation) -> NDArray[np.float64]:
        answered = run.finished_ns >= 0
        records = run.workload.record[answered]
        return np.stack(
            [
                np.bincount(records, weights=run.quality(request.profile), minlength=count),
                np.bincount(records, minlength=count),
            ]
        )

    runs, _ = _replayed(made, request, sums, part=part, seeds=seeds, on_time=on_time)
    quality, answers = np.sum(runs, axis=0)
    return np.asarray(quality[answers > 0] / answers[answers > 0])


def _replayed(
    made: GearPlan,
    request: PlanRequest,
    figures: Callable[[Simulation], T],
    *,
    part: int,
    seeds: int,
    on_time: Callable[[], None],
) -> tuple[list[T], bool]:
    """The figures of each replay, and whether the pipelines beside it hold."""
    prepared = prepared_together(made, request)

    def one(seed: int) -> tuple[T, list[float]]:
        on_time()
        run = prepared.run(together_workload(request, part=part, seed=seed))
        return figures(run), others_late(run, request)

    with ThreadPoolExecutor(replays_at_once(len(request.trace))) as pool:
        runs = list(pool.map(one, range(seeds)))
    return [found for found, _ in runs], others_hold([late for _, late in runs], request)


# Pipelines beside the one that is planned ----------------------------------------------------------


def together(request: PlanRequest) -> Profile:
    return request.profile if request.beside is None else request.beside.together


def own(run: Simulation, request: PlanRequest) -> Simulation:
    """The run of the pipeline that is planned."""
    name = _name(request)
    return run if name is None else run.of(name)


def _name(request: PlanRequest) -> str | None:
    return None if request.beside is None else request.profile.operator


def prepared_together(made: GearPlan, request: PlanRequest) -> Prepared:
    plan = made if request.beside is None else joined(made, request.beside.plan)
    return prepare(plan, together(request))


def together_workload(request: PlanRequest, *, part: int, seed: int) -> Workload:
    """The request's trace, and with others beside it their traces, on one clock."""
    own = workload_of(request.trace, request.profile, part=part, seed=seed)
    if request.beside is None:
        return own
    others = request.beside
    each = [workload_of(others.traces[n], others.profiles[n], part=part, seed=seed) for n in others.names]
    return merge_workloads([own, *each])


def others_late(run: Simulation, request: PlanRequest) -> list[float]:
    """The share of requests that are late, of each other pipeline that must be kept."""
    limits_s = {name: objective.latency_s for name, objective in _kept_objectives(request).items()}
    return [
        0.0 if limit_s is None else float(np.mean(run.of(name).latency_s > limit_s))
        for name, limit_s in limits_s.items()
    ]


def others_hold(late: Sequence[Sequence[float]], request: PlanRequest) -> bool:
    """Whether each of these pipelines holds, from their shares late (seeds, pipelines)."""
    allowed = [1 - objective.percentile for objective in _kept_objectives(request).values()]
    return all(share_late_bound(shares) <= most for shares, most in zip(np.array(late).T, allowed, strict=True))


def _kept_objectives(request: PlanRequest) -> dict[str, Objective]:
    beside = request.beside
    if beside is None:
        return {}
    return {name: beside.plan.pipelines[name].objective for name in beside.names if name in beside.kept}


def replays_at_once(requests: int) -> int:
    """The replays to run in threads, as the kernel releases the interpreter's lock.

    One per processor, fewer for long traces, to limit memory; at least one.
    """
    return max(1, min(usable_processors(), MOST_REQUESTS_AT_ONCE // requests))


def _together(results: list[ServingResult], *, independent: int) -> ServingResult:
    """Means over the runs.

    The accuracy interval comes from the samples, the latency interval from the spread.
    """

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    first = results[0]
    core_s = [r.core_s for r in results if r.core_s is not None]
    accuracy = mean([r.accuracy for r in results])
    p95s = [r.latency_s.p95 for r in results]
    latency = {name: mean([getattr(r.latency_s, name) for r in results]) for name in ("mean", "p50", "p95", "p99")}
    return msgspec.structs.replace(
        first,
        core_s=mean(core_s) if core_s else None,
        most_waiting=max((r.most_waiting for r in results if r.most_waiting is not None), default=None),
        accuracy=accuracy,
        accuracy_interval=wilson_interval(accuracy, min(independent, first.requests)),
        latency_s=LatencySummary(**latency),
        latency_p95_interval_s=(min(p95s), max(p95s)),
        share_late=mean([r.share_late for r in results]),
        share_refused=mean([r.share_refused for r in results]),
        share_degraded=mean([r.share_degraded for r in results]),
        share_by_time=_mean_by_time(results),
        goodput_qps=mean([r.goodput_qps for r in results]),
        utilisation={d: mean([r.utilisation[d] for r in results]) for d in first.utilisation},
    )


def _mean_by_time(results: Sequence[ServingResult]) -> float | UnsetType:
    shares = [result.share_by_time for result in results]
    known = [share for share in shares if share is not UNSET]
    return float(np.mean(known)) if known else UNSET


ENOUGH_REQUESTS = 20_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """Seconds at the objective's percentile, accuracy on part A, and shares of arrivals per gear.

    For several seeds: the lowest latency objective that holds, as for a confirmation, and the
    means of the others; infinite where a pipeline beside it does not hold. `careful_s` is the
    objective that holds if one standard error more of the recorded samples were late.
    """

    latency_s: float
    careful_s: float
    accuracy: float
    arrived_in_gear: tuple[float, ...]


def seeds_for(trace: Trace) -> int:
    return min(SEEDS, max(1, ENOUGH_REQUESTS // len(trace)))


class Replays:
    """Replays by a key of how a plan serves; `on_time` may raise before each to end a search."""

    def __init__(self, on_time: Callable[[], None] = lambda: None) -> None:
        self._on_time = on_time
        self._known: dict[Hashable, Replayed] = {}

    def of(self, key: Hashable, make: Callable[[], GearPlan], request: PlanRequest) -> Replayed:
        if key not in self._known:
            prepared, runs, late = prepared_together(make(), request), list[Simulation](), list[list[float]]()
            for seed in range(seeds_for(request.trace)):
                self._on_time()
                run = prepared.run(together_workload(request, part=PART_A, seed=seed))
                runs.append(own(run, request))
                late.append(others_late(run, request))
            failed_s = 0.0 if others_hold(late, request) else math.inf
            at, records = request.objective.percentile, len(request.profile.predictions.indices(PART_A))
            careful = at + math.sqrt(at * (1 - at) / records)
            slowest_s, requests = [slowest_of(run.latency_s, at) for run in runs], len(request.trace)
            self._known[key] = Replayed(
                latency_s=max(failed_s, least_objective_s(slowest_s, requests, at)),
                careful_s=least_objective_s(slowest_s, requests, min(careful, 1.0)),
                accuracy=float(np.mean([run.quality(together(request)).mean() for run in runs])),
                arrived_in_gear=tuple(np.mean([run.arrived_in_gear / len(run.workload) for run in runs], axis=0)),
            )
        return self._known[key]
