"""Plans that refine with a pair of models, and the load at which each row is worth a second run."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from gearshift.cascade import Cascade, ExpectedGain
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, RefineFor, ReplicaSettings, alone
from gearshift.placement import Placement
from gearshift.planner.evaluate.assemble import assemble, curves_of, with_pipeline
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest, load_ranges
from gearshift.profiles.profile import PART_A, PredictionRecords, RunTimeCurve

Floats = NDArray[np.float64]


# Expected gains: how much better a later model's answer is than a kept one, by the kept one's certainty.


def expected_gains(predictions: PredictionRecords, models: Iterable[str]) -> tuple[ExpectedGain, ...]:
    """The gains of all pairs of `models`, fitted on part A."""
    records = predictions.indices(PART_A)
    fitted = []
    for kept, later in permutations(models, 2):
        from_, to = predictions.rows((kept, later))
        certainty = predictions.certainty[from_, records]
        gain = predictions.quality[to, records] - predictions.quality[from_, records]
        points, gains = falling_steps(certainty, gain)
        fitted.append(ExpectedGain(kept=kept, later=later, certainty=tuple(points), gain=tuple(gains)))
    return tuple(fitted)


def falling_steps(certainty: Floats, gain: Floats) -> tuple[list[float], list[float]]:
    """The falling step function of least squares through the points (n,): where each step begins, and its gain.

    Isotonic regression, by pooling neighbours that are out of order (Barlow et al. 1972).
    """
    points, place = np.unique(certainty, return_inverse=True)
    weights = np.bincount(place)
    means = np.bincount(place, weights=gain) / weights
    fitted = isotonic_regression(means, weights=weights.astype(np.float64), increasing=False)
    begins = fitted.blocks[:-1]
    return points[begins].tolist(), fitted.x[begins].tolist()


def gain_at(table: ExpectedGain, certainty: Floats) -> Floats:
    """The expected gain (n,) at each certainty (n,)."""
    step = np.searchsorted(np.array(table.certainty), certainty, side="right") - 1
    gains: Floats = np.array(table.gain)[np.maximum(step, 0)]
    return gains


WAY_BACK = 2.0
"""The margin for the way back, in measured times of a lone request outside of the router's queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The choices of a plan that refines.

    The least gain is `factor` times the level of the load; batches run no longer than the share
    `longest` of the latency objective.
    """

    factor: float = 0.8
    refine_for: RefineFor = "rows"
    longest: float = 0.5


@dataclass(frozen=True, eq=False)
class Pair:
    """A first model and a later one on all devices where they fit; or a model alone, whose rows gain nothing.

    `accuracy` is the first model's on part A; `gains` are those of part A's rows, falling, and
    `table` has them by certainty.
    """

    request: PlanRequest
    first: str
    later: str | None
    placement: Placement
    table: ExpectedGain | None
    accuracy: float
    gains: Floats

    @cached_property
    def curves(self) -> Mapping[str, RunTimeCurve]:
        return curves_of(self.request.profile, self.request.hardware, self.placement)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.first,) if self.later is None else (self.first, self.later)

    @property
    def screening_s(self) -> float:
        """The least time of the first model for one row."""
        return min(curve.seconds(1) for curve in self.curves.values() if curve.model == self.first)

    def sizes(self, longest_s: float) -> dict[str, int]:
        """By replica, the largest batch: the one with the least time per row of those that are short enough."""
        return {replica: fastest_size(curve, longest_s) for replica, curve in self.curves.items()}

    def rates(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """The rows per second of each model, if its replicas ran nothing else."""
        rates = dict.fromkeys(self.models, 0.0)
        for replica in self.placement.replicas:
            size = sizes[replica.id]
            rates[replica.model] += size / self.curves[replica.id].seconds(size)
        return rates

    def share_refined(self, qps: float, sizes: Mapping[str, int]) -> float:
        """The share of rows that the devices can refine beside screening all; negative if they cannot screen all."""
        rates = self.rates(sizes)
        if self.later is None:
            return 0.0
        return (1 - qps / rates[self.first]) * rates[self.later] / qps

    def level(self, qps: float, sizes: Mapping[str, int]) -> float:
        """The gain of the last row that the devices can refine at this load, with the greatest gains first."""
        place = int(max(0.0, self.share_refined(qps, sizes)) * len(self.gains))
        return max(0.0, float(self.gains[place])) if place < len(self.gains) else 0.0

    def promise(self, way: Way, *, longer_s: float = 0.0) -> float:
        """The accuracy over the seconds of the trace if rows took no time but that of full batches.

        The devices have each second, and `longer_s` more, for the rows that arrive in it.
        """
        sizes = self.sizes(way.longest * self.request.latency_s)
        counts = self.request.trace.counts_per_second()
        sums = np.concatenate([[0.0], np.cumsum(np.maximum(self.gains, 0.0))]).tolist()
        total = 0.0
        for count in counts[counts > 0].tolist():
            share = self.share_refined(count / (1.0 + longer_s), sizes)
            total += count * sums[int(np.clip(share, 0.0, 1.0) * len(self.gains))] / len(self.gains)
        return self.accuracy + total / float(counts.sum())

    @property
    def most(self) -> float:
        """The accuracy on part A if all rows that gain were refined."""
        return self.accuracy + float(np.maximum(self.gains, 0.0).mean())

    def threshold(self, least_gain: float) -> float:
        """The certainty from which the gain is not above `least_gain`: such rows are answered at once."""
        assert self.table is not None
        below = np.flatnonzero(np.array(self.table.gain) <= least_gain)
        if len(below):
            return float(self.table.certainty[int(below[0])])
        highest = float(self.request.profile.predictions.certainty.max())
        return math.nextafter(highest, math.inf)

    def gear(self, load_range: LoadRange, qps: float, way: Way) -> Gear:
        sizes = self.sizes(way.longest * self.request.latency_s)
        return self.gear_of(load_range, way.factor * self.level(qps, sizes), sizes, way)

    def gear_of(self, load_range: LoadRange, least_gain: float, sizes: Mapping[str, int], way: Way) -> Gear:
        """A gear that refines rows of more than `least_gain`, in batches of up to these sizes."""
        thresholds = () if self.later is None else (self.threshold(least_gain),)
        cascade = Cascade(models=self.models, thresholds=thresholds)
        rates = {replica: size / self.curves[replica].seconds(size) for replica, size in sizes.items()}
        total = dict.fromkeys(self.models, 0.0)
        for replica in self.placement.replicas:
            total[replica.model] += rates[replica.id]
        return Gear(
            load_range=load_range,
            cascades=alone(self.request.profile.operator, cascade),
            replicas=tuple(
                ReplicaSettings(
                    replica=replica.id,
                    load_share=rates[replica.id] / total[replica.model],
                    largest_batch_size=sizes[replica.id],
                    cores=replica.cores,
                )
                for replica in self.placement.replicas
            ),
            order="gain",
            answer_by_margin_s=WAY_BACK * self.request.profile.front_end_s,
            refine_for=way.refine_for,
        )

    def plan(self, way: Way) -> GearPlan:
        """A plan without predictions, with a gear for each load range."""
        ends = self.request.upper_ends()
        ranges = zip(load_ranges(ends), ends.tolist(), strict=True)
        return self.of_gears([self.gear(load_range, qps, way) for load_range, qps in ranges])

    def of_gears(self, gears: list[Gear]) -> GearPlan:
        gains = expected_gains(self.request.profile.predictions, self.models)
        return with_pipeline(assemble(self.request, self.placement, gears), gains=gains)


def pairs_of(request: PlanRequest) -> list[Pair]:
    """All pairs whose later model is more accurate on part A, and which fit the devices.

    Raises `InvalidInput` where no model fits any device.
    """
    predictions = request.profile.predictions
    records = predictions.indices(PART_A)
    accuracy = dict(zip(predictions.models, predictions.quality[:, records].mean(axis=1).tolist(), strict=True))
    found = []
    for first in request.profile.models:
        for later in request.profile.models:
            if accuracy[first] >= accuracy[later]:
                continue
            try:
                placement = place_everywhere(request.profile, request.hardware, models=(first, later))
            except InvalidInput:  # one of them fits no device
                continue
            spans = any(len(replica.device_ids) > 1 for replica in placement.replicas)
            if spans or set(placement.models) != {first, later}:
                continue
            table = next(each for each in expected_gains(predictions, (first, later)) if each.kept == first)
            certainty = predictions.certainty[predictions.rows((first,))[0], records]
            gains = np.sort(gain_at(table, certainty))[::-1]
            found.append(Pair(request, first, later, placement, table, accuracy[first], gains))
    if not found:
        place_everywhere(request.profile, request.hardware)
    return found


def alone_of(request: PlanRequest) -> list[Pair]:
    """Each model alone, on all devices where it fits."""
    predictions, found = request.profile.predictions, []
    records = predictions.indices(PART_A)
    for model in request.profile.models:
        try:
            placement = place_everywhere(request.profile, request.hardware, models=(model,))
        except InvalidInput:  # it fits no device
            continue
        if all(len(replica.device_ids) == 1 for replica in placement.replicas):
            accuracy = float(predictions.quality[predictions.rows((model,))[0], records].mean())
            found.append(Pair(request, model, None, placement, None, accuracy, np.zeros(1)))
    return found


def fastest_size(curve: RunTimeCurve, longest_s: float) -> int:
    """The batch with the least time per row of those that run no longer than `longest_s`; the larger at a tie."""
    times_ns = curve.table_ns()
    short = [size for size in range(1, len(times_ns)) if times_ns[size] <= longest_s * 1e9] or [1]
    return min(short, key=lambda size: (float(times_ns[size]) / size, -size))
