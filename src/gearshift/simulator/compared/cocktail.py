"""Cocktail+: bagging ensembles on devices that scale with load (CascadeServe 6.2, Ken 5.2).

Time is cut into periods. For each, the ensemble and its devices are chosen for the period's true
peak second. Each member has its own devices, which take its requests in turn; a request is
answered when all members have run it. Devices are available immediately, but a model takes
`load_s` to load: until then the former arrangement serves, and both are paid for.

    asked for:  0                       1 (more load)           2 (less load)
                |-----------------------|-----------------------|---------------
    in force:   0 ------------------------------| 1 ------------| 2 ------------
                                        |-load_s|
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S, to_ns
from gearshift.errors import Infeasible, InvalidInput, require
from gearshift.hardware import Device
from gearshift.objective import Objective
from gearshift.profiles.profile import PART_B, Profile, RunTimeCurve
from gearshift.result import ServingResult, percentile, summarise
from gearshift.simulator.compared.ensembles import Ensemble, useful_ensembles, voted_quality
from gearshift.support.compiled import compiled
from gearshift.workload import Trace, Workload, draw_workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LOAD_S = 5.0
"""CascadeServe 6.4 speaks of several seconds; Ken 5.2 assumes none."""
PERIOD_S = 60.0
PERIODS_S = (15.0, 30.0, 60.0, 120.0, 300.0)
LEAST_MARGIN, LARGEST_MARGIN, MARGIN_PRECISION = 0.5, 4.0, 0.02
CAPACITY_SAMPLES = 20_000
CAPACITY_PRECISION = 0.01
LEAST_SHARE = 0.01
"""Share of the highest throughput: a model too slow at this load is too slow."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests/s that one device carries within the latency objective, with this largest batch."""

    qps: float
    largest_batch_size: int


@dataclass(frozen=True, slots=True)
class Arrangement:
    """An ensemble and its members' devices; asked for at `asked_s`, in force from `from_s`."""

    asked_s: float
    from_s: float
    ensemble: Ensemble
    devices: tuple[int, ...]

    def devices_of(self, model: str) -> int:
        return dict(zip(self.ensemble.models, self.devices, strict=True)).get(model, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CocktailRun:
    """The result of serving on part B, and the devices it took.

    `latency_s` (n,) is by request. `device_s` are the device-seconds paid for, `mean_devices`
    their average over the trace; `peak_devices`, also `result.devices`, the most at once.
    `result.utilisation` is by model.
    """

    result: ServingResult
    latency_s: Floats
    arrangements: tuple[Arrangement, ...]
    device_s: float
    peak_devices: int
    mean_devices: float


def serve_cocktail(
    profile: Profile,
    trace: Trace,
    objective: Objective,
    *,
    device: Device | None = None,
    load_s: float = LOAD_S,
    period_s: float = PERIOD_S,
    margin: float = 1.0,
    seed: int = 0,
) -> CocktailRun:
    """Serve `trace` with devices sized for `margin` times each period's peak second.

    Devices are like `device` (default: as profiled). Each period uses the ensemble that reaches
    the accuracy objective with the fewest devices; without an accuracy objective, always the most
    accurate one. Raises `InvalidInput` without a latency objective or recorded predictions, and
    `Infeasible` when no ensemble meets the objective.
    """
    require(0 < margin < math.inf, f"margin is {margin}", remedy="give a positive number")
    _require_period(period_s, load_s)
    cocktail = _Cocktail(profile, trace, objective, device=device, load_s=load_s, seed=seed)
    return cocktail.run(cocktail.arrangements(period_s, margin))


def fewest_devices_cocktail(
    profile: Profile,
    trace: Trace,
    objective: Objective,
    *,
    device: Device | None = None,
    load_s: float = LOAD_S,
    periods_s: Sequence[float] = PERIODS_S,
    seed: int = 0,
) -> CocktailRun:
    """The run that meets the objective with the fewest devices on average.

    Periods and margins are searched.

    Raises as `serve_cocktail` does, and `Infeasible` when no margin is enough.
    """
    require(len(periods_s) > 0, "there are no periods to choose from", remedy="give at least one, in seconds")
    for period_s in periods_s:
        _require_period(period_s, load_s)
    cocktail = _Cocktail(profile, trace, objective, device=device, load_s=load_s, seed=seed)
    found = [cocktail.run(least) for period_s in periods_s if (least := cocktail.least(period_s)) is not None]
    if not found:
        raise Infeasible(
            f"models take {load_s:.4g} s to load, and no autoscaling keeps {objective.percentile:.4g} of requests "
            f"within {cocktail.latency_s * 1e3:.4g} ms"
        )
    return min(found, key=lambda run: (run.mean_devices, run.peak_devices))


def capacity_within(curve: RunTimeCurve, latency_s: float, percentile_: float, *, seed: int) -> Capacity:
    """Find by simulation, to 1 %, the Poisson load that one device serves within the latency.

    The largest batch is the profiled size that carries most.
    """
    table_ns = curve.table_ns()
    gaps = np.random.default_rng([seed, 3]).exponential(1.0, CAPACITY_SAMPLES)

    def holds(qps: float, size: int) -> bool:
        arrivals_ns = np.cumsum(np.rint(gaps * (NS_PER_S / qps)).astype(np.int64))
        finished_ns, _ = serve_in_turn(arrivals_ns, 1, table_ns, size)
        return percentile((finished_ns - arrivals_ns) / NS_PER_S, percentile_) <= latency_s

    def capacity(size: int) -> float:
        high = float((np.arange(1, size + 1) / table_ns[1 : size + 1]).max()) * NS_PER_S
        low = LEAST_SHARE * high
        if not holds(low, size):
            return 0.0
        while high > low * (1 + CAPACITY_PRECISION):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if holds(middle, size) else (low, middle)
        return low

    return max((Capacity(capacity(size), size) for size in curve.batch_sizes), key=lambda c: c.qps)


def serve_in_turn(arrivals_ns: Ints, devices: int | Ints, table_ns: Ints, largest_batch_size: int) -> tuple[Ints, int]:
    """Finish time of each request (n,), and the nanoseconds that devices were busy.

    `devices` is how many take requests in turn, or which one (n,) takes each. A batch starts when
    its device is free and takes the waiting requests, up to `largest_batch_size`, for
    `table_ns[size]`.
    """
    taker = np.arange(len(arrivals_ns)) % devices if isinstance(devices, int) else devices
    order = np.argsort(taker.astype(np.min_scalar_type(int(taker.max(initial=0)))), kind="stable")
    finished_ns = np.zeros(len(arrivals_ns), dtype=np.int64)
    begins = np.flatnonzero(np.diff(taker[order], prepend=-1)).astype(np.int64)
    ends = np.append(begins[1:], len(order)).astype(np.int64)
    busy_ns = _serve_queues(
        arrivals_ns, order.astype(np.int64), begins, ends, table_ns, largest_batch_size, finished_ns
    )
    return finished_ns, int(busy_ns)


@compiled
def _serve_queues(
    arrivals_ns: Ints,
    order: Ints,
    begins: Ints,
    ends: Ints,
    table_ns: Ints,
    largest_batch_size: int,
    finished_ns: Ints,
) -> int:
    """Serve queues one after another: queue q holds requests `order[begins[q]:ends[q]]`."""
    busy_ns = 0
    for queue in range(len(begins)):
        free_ns, first, end = 0, begins[queue], ends[queue]
        while first < end:
            start_ns = max(free_ns, arrivals_ns[order[first]])
            after = first + 1
            while after < end and after - first < largest_batch_size and arrivals_ns[order[after]] < start_ns:
                after += 1
            free_ns = start_ns + table_ns[after - first]
            busy_ns += table_ns[after - first]
            for k in range(first, after):
                finished_ns[order[k]] = free_ns
            first = after
    return busy_ns


class _Cocktail:
    """State shared by the runs of all periods and margins: workload, capacities and ensembles."""

    def __init__(
        self, profile: Profile, trace: Trace, objective: Objective, *, device: Device | None, load_s: float, seed: int
    ) -> None:
        if objective.latency_s is None:
            raise InvalidInput("Cocktail+ needs a latency objective", remedy="give a latency")
        self.profile, self.objective, self.load_s = profile, objective, load_s
        self.latency_s: float = objective.latency_s
        self.counts = trace.counts_per_second()
        self.workload: Workload = draw_workload(trace, profile.predictions.indices(PART_B), seed=seed)
        curves = _curves(profile, device)
        self.tables_ns = {m: curve.table_ns() for m, curve in curves.items()}
        within_s = self.latency_s - profile.front_end_s
        capacity = {m: capacity_within(c, within_s, objective.percentile, seed=seed) for m, c in curves.items()}
        self.capacity = {m: c for m, c in capacity.items() if c.qps > 0}
        self.ensembles = self._choice()

    def run(self, arrangements: tuple[Arrangement, ...]) -> CocktailRun:
        latency_s, busy_s = self._served(arrangements)
        voted = {e: voted_quality(self.profile.predictions, e.models) for e in {a.ensemble for a in arrangements}}
        record, duration_s = self.workload.record, max(self.workload.duration_s, 1 / NS_PER_S)
        quality = np.concatenate([voted[a.ensemble][record[span]] for a, span in self._spans(arrangements)])
        held = list(_held(arrangements, duration_s))
        held_s = {m: sum(seconds * devices.get(m, 0) for seconds, devices in held) for m in busy_s}
        peak = max(sum(devices.values()) for _, devices in held)
        return CocktailRun(
            result=summarise(
                latency_s=latency_s,
                quality=quality,
                requests=len(latency_s),
                refused=0,
                latency_objective_s=self.latency_s,
                duration_s=duration_s,
                devices=peak,
                utilisation={m: busy_s[m] / held_s[m] for m in busy_s if held_s[m] > 0},
                independent_samples=len(np.unique(record)),
            ),
            latency_s=latency_s,
            arrangements=arrangements,
            device_s=sum(held_s.values()),
            peak_devices=peak,
            mean_devices=sum(held_s.values()) / duration_s,
        )

    def least(self, period_s: float) -> tuple[Arrangement, ...] | None:
        """Bisect for the smallest margin that keeps the latency objective; None when none does."""

        def tried(margin: float) -> tuple[Arrangement, ...] | None:
            arrangements = self.arrangements(period_s, margin)
            latency_s, _ = self._served(arrangements)
            late = int(np.count_nonzero(latency_s > self.latency_s)) / len(latency_s)
            return arrangements if late <= 1 - self.objective.percentile else None

        low, high = LEAST_MARGIN, LARGEST_MARGIN
        if (least := tried(low)) is not None:
            return least
        found = tried(high)
        while found is not None and high > low * (1 + MARGIN_PRECISION):
            middle = (low * high) ** 0.5
            better = tried(middle)
            low, high, found = (middle, high, found) if better is None else (low, middle, better)
        return found

    def arrangements(self, period_s: float, margin: float) -> tuple[Arrangement, ...]:
        made: list[Arrangement] = []
        for asked_s in np.arange(0.0, len(self.counts), period_s).tolist():
            seconds = self.counts[int(asked_s) : math.ceil(asked_s + period_s)]
            ensemble, devices = self._needed(margin * float(seconds.max()))
            if made and (made[-1].ensemble, made[-1].devices) == (ensemble, devices):
                continue
            wanted = Arrangement(asked_s, asked_s, ensemble, devices)
            if made and any(wanted.devices_of(m) > made[-1].devices_of(m) for m in ensemble.models):
                wanted = Arrangement(asked_s, asked_s + self.load_s, ensemble, devices)
            made.append(wanted)
        return tuple(made)

    def _needed(self, qps: float) -> tuple[Ensemble, tuple[int, ...]]:
        """The ensemble for the load with the fewest devices; ties go to the most accurate."""
        needs = [(e, tuple(max(1, math.ceil(qps / self.capacity[m].qps)) for m in e.models)) for e in self.ensembles]
        return min(needs, key=lambda need: (sum(need[1]), -need[0].accuracy, need[0].models))

    def _choice(self) -> list[Ensemble]:
        found = useful_ensembles(self.profile.predictions, tuple(self.capacity))
        if not found:
            raise Infeasible(
                f"no model answers {self.objective.percentile:.4g} of requests within {self.latency_s * 1e3:.4g} ms, "
                "however many devices there are"
            )
        best = max(found, key=lambda e: e.accuracy)
        wanted = self.objective.accuracy
        if wanted is None:
            return [best]
        if best.accuracy < wanted:
            raise Infeasible(
                f"no ensemble within {self.latency_s * 1e3:.4g} ms has an accuracy of {wanted:.4g}; "
                f"the best has {best.accuracy:.4f}"
            )
        return [e for e in found if e.accuracy >= wanted]

    def _served(self, arrangements: tuple[Arrangement, ...]) -> tuple[Floats, dict[str, float]]:
        arrivals_ns = self.workload.arrivals_ns
        spans = self._spans(arrangements)
        finished_ns = np.zeros(len(arrivals_ns), dtype=np.int64)
        busy_s = {}
        for model in sorted({m for a in arrangements for m in a.ensemble.models}):
            members = [(a, span) for a, span in spans if model in a.ensemble.models]
            requests = np.concatenate([np.arange(span.start, span.stop) for _, span in members])
            taker = np.concatenate([np.arange(span.stop - span.start) % a.devices_of(model) for a, span in members])
            largest = self.capacity[model].largest_batch_size
            done_ns, busy_ns = serve_in_turn(arrivals_ns[requests], taker, self.tables_ns[model], largest)
            finished_ns[requests] = np.maximum(finished_ns[requests], done_ns)
            busy_s[model] = busy_ns / NS_PER_S
        return (finished_ns - arrivals_ns) / NS_PER_S + self.profile.front_end_s, busy_s

    def _spans(self, arrangements: tuple[Arrangement, ...]) -> list[tuple[Arrangement, slice]]:
        arrivals_ns = self.workload.arrivals_ns
        begins = np.searchsorted(arrivals_ns, [to_ns(a.from_s) for a in arrangements]).tolist()
        ends = [*begins[1:], len(arrivals_ns)]
        return [(a, slice(begin, end)) for a, begin, end in zip(arrangements, begins, ends, strict=True)]


def _curves(profile: Profile, device: Device | None) -> dict[str, RunTimeCurve]:
    first = profile.curves[0]
    kind, cores = (first.device_kind, first.cores) if device is None else (device.kind, device.cores)
    curves = {m: profile.curve(m, device_kind=kind, cores=cores) for m in profile.models}
    return {m: c for m, c in curves.items() if device is None or c.memory_bytes <= device.memory_bytes}


def _held(arrangements: Sequence[Arrangement], duration_s: float) -> Iterator[tuple[float, dict[str, int]]]:
    """Spans of seconds and each model's devices in them, counting those still being loaded."""
    ends_s = [a.asked_s for a in arrangements[1:]] + [duration_s]
    former: Arrangement | None = None
    for arrangement, end_s in zip(arrangements, ends_s, strict=True):
        from_s = min(arrangement.from_s, end_s)
        now = dict(zip(arrangement.ensemble.models, arrangement.devices, strict=True))
        if former is not None and from_s > arrangement.asked_s:
            models = {*now, *former.ensemble.models}
            yield from_s - arrangement.asked_s, {m: max(now.get(m, 0), former.devices_of(m)) for m in models}
        if end_s > from_s:
            yield end_s - from_s, now
        former = arrangement


def _require_period(period_s: float, load_s: float) -> None:
    require(0 <= load_s < math.inf, f"load_s is {load_s}", remedy="give a number of seconds from 0")
    require(
        max(load_s, 1.0) <= period_s < math.inf,
        f"a period of {period_s} s is too short",
        remedy=f"give at least {max(load_s, 1.0):g} s: a second, and the time in which models load",
    )
