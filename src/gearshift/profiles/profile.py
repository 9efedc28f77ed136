"""Profiles: the measured run times of models, the time around them, and their recorded answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.model import TensorSpec, require_operator_name
from gearshift.models.loaded_from import LoadedFrom
from gearshift.profiles.performance_model import PerformanceModel, Statistic

PART_A = 0
PART_B = 1
LONGEST_BATCH_S = 1e6


class RunTimeCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds per batch of one model (segment) on one kind of device, at rising batch sizes.

    `median_s` and `p95_s` are (sizes,). Times between measured sizes are interpolated; larger
    sizes than measured are refused. `load_s` is how long the model took to load, where that was measured.
    """

    model: str
    device_kind: str = "cpu"
    tensor_parallel: int = 1
    cores: int = 1
    segment: int = 0
    batch_sizes: tuple[int, ...]
    median_s: tuple[float, ...]
    p95_s: tuple[float, ...]
    memory_bytes: int = 0
    overhead_per_batch_s: float = 0.0
    overhead_per_request_s: float = 0.0
    load_s: float | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        where = f"run times of model {self.model!r}"
        require(len(self.batch_sizes) >= 1, "there are none", where=where)
        require(
            len(self.batch_sizes) == len(self.median_s) == len(self.p95_s),
            "batch_sizes, median_s and p95_s have different lengths",
            where=where,
        )
        rising = all(a < b for a, b in zip(self.batch_sizes, self.batch_sizes[1:], strict=False))
        require(rising and self.batch_sizes[0] >= 1, "batch sizes must be at least 1 and rise", where=where)
        for name, seconds in (("median_s", self.median_s), ("p95_s", self.p95_s)):
            require(
                all(0 < s < LONGEST_BATCH_S for s in seconds),
                f"{name} must be positive, and under 11 days",
                where=where,
            )
        require(self.memory_bytes >= 0, "memory_bytes is negative", where=where)
        for overhead in (self.overhead_per_batch_s, self.overhead_per_request_s):
            require(0 <= overhead < math.inf, "an overhead is negative or not finite", where=where)
        loads = self.load_s is msgspec.UNSET or 0 <= self.load_s < math.inf
        require(loads, "load_s is negative or not finite", where=where)

    @property
    def place(self) -> tuple[str, str, int, int]:
        return self.model, self.device_kind, self.tensor_parallel, self.cores

    @property
    def largest_batch_size(self) -> int:
        return self.batch_sizes[-1]

    def seconds(self, batch_size: int) -> float:
        """Median seconds without overheads; raises `InvalidInput` past the largest size."""
        if not 1 <= batch_size <= self.largest_batch_size:
            raise InvalidInput(
                f"batch size {batch_size} of model {self.model!r} was not measured",
                remedy=f"stay within {self.largest_batch_size}, or profile larger batches",
            )
        return float(np.interp(batch_size, self.batch_sizes, self.median_s))

    def table_ns(self) -> NDArray[np.int64]:
        """Nanoseconds (largest + 1,) that a batch of each size holds a device, with overheads."""
        sizes = np.arange(self.largest_batch_size + 1)
        seconds = np.interp(sizes, self.batch_sizes, self.median_s)
        seconds += self.overhead_per_batch_s + sizes * self.overhead_per_request_s
        table: NDArray[np.int64] = np.maximum(1, np.rint(seconds * NS_PER_S)).astype(np.int64)
        table[0] = 0
        return table


@lru_cache
def expected_curve(segments: tuple[RunTimeCurve, ...], reach: tuple[float, ...]) -> RunTimeCurve:
    """Average run times where a share `reach` (segments,) of the samples gets to each segment.

    A batch of b is drawn from the samples: k of them get to a segment with the binomial
    probability, and the segment then takes as long as for a batch of k. Memory and overheads are
    the first segment's.
    """
    first = segments[0]
    most = min(curve.largest_batch_size for curve in segments)
    sizes = [size for size in first.batch_sizes if size <= most]
    if sizes[-1] < most:
        sizes.append(most)
    expected = np.zeros((2, len(sizes)))
    for curve, share in zip(segments, reach, strict=True):
        counts = np.arange(1, most + 1)
        seconds = [np.interp(counts, curve.batch_sizes, each) for each in (curve.median_s, curve.p95_s)]
        chances, drawn = np.ones(1), 0
        for at, size in enumerate(sizes):
            for _ in range(size - drawn):
                chances = np.convolve(chances, (1 - share, share))
            drawn = size
            expected[:, at] += [chances[1:] @ each[:size] for each in seconds]
    median_s, p95_s = (tuple(each) for each in expected.tolist())
    return msgspec.structs.replace(first, batch_sizes=tuple(sizes), median_s=median_s, p95_s=p95_s)


class Parted:
    """Records whose `part` (n,) is `PART_A`, on which plans are chosen, or `PART_B`, on which they are reported."""

    __slots__ = ()
    part: NDArray[np.int8]

    def indices(self, part: int) -> NDArray[np.int32]:
        return np.flatnonzero(self.part == part).astype(np.int32)

    def require_both(self, what: str, *, remedy: str = "") -> None:
        """Raise `InvalidInput`, which says `what`, where a part has no records."""
        require(bool((self.part == PART_A).any() and (self.part == PART_B).any()), what, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class PredictionRecords(Parted):
    """For each model and recorded sample: quality in [0, 1] and certainty, both (models, samples).

    `part` (samples,) is `PART_A`, on which thresholds and plans are chosen, or `PART_B`, on which
    they are reported. Optional: `label` (samples,) and `prediction` (models, samples) as names of
    classes (`gearshift.models.classes`), `output_tokens` and `exit_segment`. `labelled` is False where
    quality is agreement with the strongest model.
    """

    models: tuple[str, ...]
    quality: NDArray[np.float64]
    certainty: NDArray[np.float64]
    part: NDArray[np.int8]
    labelled: bool = True
    label: NDArray[np.str_] | None = None
    prediction: NDArray[np.str_] | None = None
    output_tokens: NDArray[np.int64] | None = None
    exit_segment: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.models), len(self.part))
        require(shape[0] >= 1 and shape[1] >= 2, f"predictions of {shape[0]} models on {shape[1]} samples are too few")
        for name in ("quality", "certainty", "prediction", "output_tokens", "exit_segment"):
            array = getattr(self, name)
            require(array is None or array.shape == shape, f"predictions: {name} is not of shape {shape}")
        require(len(set(self.models)) == shape[0], f"predictions name a model twice: {sorted(self.models)}")
        require(self.label is None or self.label.shape == shape[1:], f"predictions: label is not of shape {shape[1:]}")
        require(bool(np.isfinite(self.certainty).all()), "predictions: a certainty is not finite")
        require(bool(((self.quality >= 0) & (self.quality <= 1)).all()), "predictions: a quality is not in [0, 1]")
        self.require_both("predictions: part A or part B has no samples")

    def reach(self, model: str, segments: int) -> tuple[float, ...]:
        """Share of part A's samples that get to each segment; 1 where no exits are recorded."""
        if self.exit_segment is None:
            return (1.0,) * segments
        exits = self.exit_segment[self.models.index(model), self.indices(PART_A)]
        return tuple(float((exits >= segment).mean()) for segment in range(segments))

    def rows(self, models: tuple[str, ...]) -> NDArray[np.int64]:
        """Row numbers of `models`; raises `InvalidInput` for one without records."""
        missing = [m for m in models if m not in self.models]
        require(not missing, f"the profile has no predictions of models {missing}", remedy="profile them")
        return np.array([self.models.index(m) for m in models], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measured run times and predictions of an operator's models.

    `sha256` is a hash of the content. `project` is the path of the `gearshift.toml` whose models
    were measured, relative to the profile's folder; None for imported records. `front_end_s` is
    the time that a lone request takes to be parsed and answered; for `router_s` of it the router's
    process can do nothing else. `inputs` and `outputs` describe the operator. `performance` holds
    fitted models by batch size and cores, where several core counts were measured. `warnings` are
    sentences about oddities of the models. `loaded_from` says what the measured models were loaded
    from.
    """

    operator: str
    curves: tuple[RunTimeCurve, ...]
    predictions: PredictionRecords
    performance: tuple[PerformanceModel, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    certainty: str = "top_two_difference"
    front_end_s: float = 0.0
    router_s: float = 0.0
    project: str | None = None
    sha256: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    loaded_from: tuple[LoadedFrom, ...] = ()

    def __post_init__(self) -> None:
        require_operator_name(self.operator)
        require(0 <= self.front_end_s < math.inf, "front_end_s is negative or not finite")
        require(0 <= self.router_s < math.inf, "router_s is negative or not finite")
        keys = [(c.model, c.device_kind, c.tensor_parallel, c.cores, c.segment) for c in self.curves]
        require(len(set(keys)) == len(keys), "the profile has run times for one model and device kind twice")
        fitted = [(m.model, m.device_kind, m.tensor_parallel, m.segment, m.statistic) for m in self.performance]
        require(len(set(fitted)) == len(fitted), "the profile has two performance models for the same")
        for model in self.predictions.models:
            require(any(c.model == model for c in self.curves), f"model {model!r} has predictions but no run times")
        for curve in self.curves:
            require(curve.model in self.predictions.models, f"model {curve.model!r} has run times but no predictions")
        for place, numbers in self._segments().items():
            require(
                numbers == list(range(len(numbers))),
                f"run times of model {place[0]!r} are of segments {sorted(numbers)}",
            )
            exits = self.predictions.exit_segment
            if exits is not None:
                row = exits[self.predictions.models.index(place[0])]
                require(
                    bool(((row >= 0) & (row < len(numbers))).all()),
                    f"samples leave model {place[0]!r} after segments of which it has no run times",
                )

    def _segments(self) -> dict[tuple[str, str, int, int], list[int]]:
        numbers: dict[tuple[str, str, int, int], list[int]] = {}
        for c in sorted(self.curves, key=lambda c: c.segment):
            numbers.setdefault(c.place, []).append(c.segment)
        return numbers

    @property
    def models(self) -> tuple[str, ...]:
        return self.predictions.models

    @property
    def whole_curves(self) -> tuple[RunTimeCurve, ...]:
        """Run times of every model in every place where it was measured.

        These are `curves` without segments: models with learned caches have their expected run
        times by the recorded exits (`expected_curve`).
        """
        if all(curve.segment == 0 for curve in self.curves):
            return self.curves
        return tuple(self._expected(self.segments_like(c)) for c in self.curves if c.segment == 0)

    def curve(self, model: str, *, device_kind: str, tensor_parallel: int = 1, cores: int = 1) -> RunTimeCurve:
        """The run times of `model`; expected ones by the recorded exits if it has learned caches.

        Raises `InvalidInput` where that combination was not measured.
        """
        return self._expected(
            self.segments(model, device_kind=device_kind, tensor_parallel=tensor_parallel, cores=cores)
        )

    def segments(
        self, model: str, *, device_kind: str, tensor_parallel: int = 1, cores: int = 1
    ) -> tuple[RunTimeCurve, ...]:
        """The run times of each segment of `model`; one curve for a model without learned caches.

        Raises `InvalidInput` where that combination was not measured.
        """
        for c in self.curves:
            if c.place == (model, device_kind, tensor_parallel, cores):
                return self.segments_like(c)
        raise InvalidInput(
            f"the profile has no run times of model {model!r} on device kind {device_kind!r} "
            f"with {cores} cores and tensor_parallel {tensor_parallel}",
            remedy="profile it there, or plan for devices that were profiled",
        )

    def segments_like(self, one: RunTimeCurve) -> tuple[RunTimeCurve, ...]:
        return tuple(sorted((c for c in self.curves if c.place == one.place), key=lambda c: c.segment))

    def _expected(self, segments: tuple[RunTimeCurve, ...]) -> RunTimeCurve:
        if len(segments) == 1:
            return segments[0]
        return expected_curve(segments, self.predictions.reach(segments[0].model, len(segments)))

    def performance_model(
        self, model: str, *, device_kind: str, tensor_parallel: int = 1, statistic: Statistic = "median"
    ) -> PerformanceModel:
        """The run times of `model` by batch size and cores.

        Raises `InvalidInput` where cores were not varied, and for a model with learned caches,
        whose cores cannot be scaled.
        """
        require(
            all(c.segment == 0 for c in self.curves if c.model == model),
            f"model {model!r} has learned caches, and its cores cannot be scaled",
            remedy="scale the model without caches",
        )
        wanted = model, device_kind, tensor_parallel, 0, statistic
        for one in self.performance:
            if (one.model, one.device_kind, one.tensor_parallel, one.segment, one.statistic) == wanted:
                return one
        raise InvalidInput(
            f"the profile cannot tell how model {model!r} runs on other cores of device kind {device_kind!r}",
            remedy="profile it with `--cores 1,2,4`, on as many cores as it may get",
        )


class Overheads(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds outside of models: `front_end_s` per request, of which `router_s` occupy the router.

    `per_batch_s` and `per_sample_s` pass around a batch of each model and for each of its samples;
    for a model measured in several places, the largest.
    """

    front_end_s: float
    router_s: float
    per_batch_s: dict[str, float]
    per_sample_s: dict[str, float]


def overheads_of(profile: Profile, models: Sequence[str] | None = None) -> Overheads:
    names = profile.models if models is None else models
    curves = {name: [c for c in profile.curves if c.model == name and c.segment == 0] for name in names}
    return Overheads(
        front_end_s=profile.front_end_s,
        router_s=profile.router_s,
        per_batch_s={name: max(c.overhead_per_batch_s for c in curves[name]) for name in names},
        per_sample_s={name: max(c.overhead_per_request_s for c in curves[name]) for name in names},
    )


def split_parts(groups: NDArray[Any], seed: int) -> NDArray[np.int8]:
    """The part (n,) of each sample; samples of one of `groups` (n,) share a part.

    Groups go to the smaller part, largest first and otherwise at random, so the parts differ by at
    most one group. Raises `InvalidInput` for fewer than two groups.
    """
    names, group_of = np.unique(groups, return_inverse=True)
    require(
        len(names) >= 2,
        f"the {len(group_of)} samples form {len(names)} group, and a group cannot be split into two parts",
        where="samples",
        remedy="give samples of at least two groups",
    )
    sizes = np.bincount(group_of)
    generator = np.random.default_rng([seed, 0xAB])
    shuffled = generator.permutation(len(names))
    largest_first = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    held = [0, 0]
    part = np.empty(len(names), dtype=np.int8)
    for group, heads in zip(largest_first, generator.integers(2, size=len(names)), strict=True):
        smaller = int(heads) if held[0] == held[1] else held.index(min(held))
        part[group] = (PART_A, PART_B)[smaller]
        held[smaller] += int(sizes[group])
    return np.asarray(part[group_of], dtype=np.int8)
