"""Turn measurements into a profile: run-time curves, overheads and prediction records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.model import Predicted
from gearshift.models.classes import class_names
from gearshift.models.samples import Samples
from gearshift.profiles.doubts import require_common_class, require_some_right
from gearshift.profiles.parts import split_parts
from gearshift.profiles.performance_model import PerformanceModel, Statistic, fit_performance_model
from gearshift.profiles.profile import PART_A, PredictionRecords, Profile, RunTimeCurve
from gearshift.result import percentile


def curve_from_timings(
    model: str,
    batch_sizes: Sequence[int],
    seconds: Sequence[NDArray[np.float64]],
    *,
    device_kind: str = "cpu",
    cores: int = 1,
    segment: int = 0,
    memory_bytes: int = 0,
    overhead_per_batch_s: float = 0.0,
    overhead_per_request_s: float = 0.0,
) -> RunTimeCurve:
    """Median and p95 of repeated runs, `seconds` (repeats,) per size; each size needs a run."""
    where = f"run times of model {model!r}"
    require(len(seconds) == len(batch_sizes), "there must be one array of runs per batch size", where=where)
    runs = [np.asarray(s, dtype=np.float64) for s in seconds]
    for size, s in zip(batch_sizes, runs, strict=True):
        require(len(s) >= 1, f"batch size {size} was never run", where=where)
        require(
            bool((np.isfinite(s) & (s > 0)).all()), f"a run at batch size {size} took no positive time", where=where
        )
    return RunTimeCurve(
        model=model,
        device_kind=device_kind,
        cores=cores,
        segment=segment,
        batch_sizes=tuple(int(size) for size in batch_sizes),
        median_s=tuple(percentile(s, 0.50) for s in runs),
        p95_s=tuple(percentile(s, 0.95) for s in runs),
        memory_bytes=int(memory_bytes),
        overhead_per_batch_s=float(overhead_per_batch_s),
        overhead_per_request_s=float(overhead_per_request_s),
    )


def fit_overheads(
    batch_sizes: Sequence[int],
    round_trip_s: Sequence[NDArray[np.float64]],
    run_s: Sequence[NDArray[np.float64]],
) -> tuple[float, float]:
    """Fit overhead per batch and per request, in seconds, neither negative.

    `round_trip_s` and `run_s` hold, per batch size, the repeated round trips (repeats,) and the
    runs inside them (repeats,). The overhead is the mean round trip minus the median run: queues
    feel the mean, and simulation uses the median. The line through these has the median slope of
    all pairs (Theil and Sen), so that one disturbed size does not bend it.
    """
    require(len(batch_sizes) == len(round_trip_s) == len(run_s) >= 1, "overheads need at least one batch size")
    x = np.asarray(batch_sizes, dtype=np.float64)
    beyond = [float(np.mean(trip) - np.median(run)) for trip, run in zip(round_trip_s, run_s, strict=True)]
    y = np.maximum(0.0, beyond)
    slopes = [(y[j] - y[i]) / (x[j] - x[i]) for i, j in combinations(range(len(x)), 2) if x[i] != x[j]]
    per_request = max(0.0, float(np.median(slopes))) if slopes else 0.0
    per_batch = float(np.median(y - per_request * x))
    if per_batch < 0:  # the best line through the origin
        return 0.0, float(np.median(y / x))
    return per_batch, per_request


def performance_models(curves: Sequence[RunTimeCurve]) -> tuple[PerformanceModel, ...]:
    """Fit median and p95 by batch size and cores, for every model measured on several core counts.

    Raises `InvalidInput` for too few points.
    """
    groups: dict[tuple[str, str, int, int], list[RunTimeCurve]] = {}
    for curve in curves:
        groups.setdefault((curve.model, curve.device_kind, curve.tensor_parallel, curve.segment), []).append(curve)
    statistics: tuple[Statistic, Statistic] = "median", "p95"
    return tuple(
        fit_performance_model(
            [size for curve in group for size in curve.batch_sizes],
            [curve.cores for curve in group for _ in curve.batch_sizes],
            [s for curve in group for s in (curve.median_s if statistic == "median" else curve.p95_s)],
            model=model,
            device_kind=device_kind,
            tensor_parallel=tensor_parallel,
            segment=segment,
            statistic=statistic,
        )
        for (model, device_kind, tensor_parallel, segment), group in groups.items()
        if len(group) > 1
        for statistic in statistics
    )


def strongest_model(curves: Sequence[RunTimeCurve], exits: Mapping[str, NDArray[np.int64]] | None = None) -> str:
    """The strongest model when there are no labels: the slowest at the largest common batch size.

    Ties go to the first. Models are compared in a place (device kind, tensor parallelism, cores)
    where all were measured, if there is one; segments of a model are added up, weighted by the
    share of samples that reach them by `exits` (samples,).
    """
    models = list(dict.fromkeys(curve.model for curve in curves))
    places = dict.fromkeys(_place(curve) for curve in curves)
    shared = (p for p in places if {c.model for c in curves if _place(c) == p} == set(models))
    place = next(shared, None)
    compared = {m: _at_one_place([c for c in curves if c.model == m], place) for m in models}
    size = min(curve.largest_batch_size for group in compared.values() for curve in group)

    def expected_s(curve: RunTimeCurve) -> float:
        known = None if exits is None else exits.get(curve.model)
        return curve.seconds(size) * (1.0 if known is None else float((known >= curve.segment).mean()))

    return max(models, key=lambda m: sum(map(expected_s, compared[m])))


def strongest_of(profile: Profile, models: Sequence[str]) -> str:
    """The most accurate of `models` on part A; of equals, or without labels, the slowest."""
    records = profile.predictions
    among = list(models)
    if records.labelled:
        quality = records.quality[records.rows(tuple(among))][:, records.indices(PART_A)].mean(axis=1)
        among = [model for model, right in zip(among, quality.tolist(), strict=True) if right == quality.max()]
    return strongest_model([curve for curve in profile.whole_curves if curve.model in among])


def records_from_answers(
    models: Sequence[str],
    answers: Mapping[str, Predicted],
    samples: Samples,
    seed: int,
    *,
    strongest: str | None = None,
) -> PredictionRecords:
    """Records of the answers of `models` to all `samples`; quality is 1 where `label` is right.

    Without labels, quality is agreement with the model `strongest`. Raises `InvalidInput` for a
    certainty or a label that is not finite, for a model without an output `label` or with outputs
    that match no label, and where no model is right on any sample.
    """
    prediction = np.stack([class_names(_labels_said(model, answers[model], len(samples))) for model in models])
    labels = samples.labels
    if labels is None:
        require(strongest in models, "there are no labels and no strongest model to compare with")
        truth = prediction[list(models).index(str(strongest))]
    else:
        truth = class_names(labels)
        for model, names in zip(models, prediction, strict=True):
            require_common_class(model, names, truth, where="samples, labels")
    groups = np.arange(len(samples)) if samples.groups is None else samples.groups
    records = PredictionRecords(
        models=tuple(models),
        quality=(prediction == truth).astype(np.float64),
        certainty=np.stack([np.asarray(answers[model].certainty, dtype=np.float64) for model in models]),
        part=split_parts(groups, seed),
        labelled=labels is not None,
        label=None if labels is None else truth,
        prediction=prediction,
        exit_segment=_exits(models, answers, len(samples)),
    )
    require_some_right(records, where="samples, labels")
    return records


def without_unusable(records: PredictionRecords, answers: Mapping[str, Predicted]) -> PredictionRecords:
    quality = records.quality.copy()
    for row, model in enumerate(records.models):
        if (unusable := answers[model].unusable) is not None:
            quality[row, unusable] = 0.0
    return replace(records, quality=quality)


def unusable_counted(answers: Mapping[str, Predicted]) -> list[str]:
    return [
        f"{np.count_nonzero(answer.unusable)} of {len(answer.certainty)} answers of model {model!r} were none of the "
        "classes, or none at all, and count as wrong"
        for model, answer in answers.items()
        if answer.unusable is not None
    ]


def _exits(models: Sequence[str], answers: Mapping[str, Predicted], n: int) -> NDArray[np.int64] | None:
    exits = [answers[model].exit_segment for model in models]
    if all(each is None for each in exits):
        return None
    return np.stack([np.zeros(n, dtype=np.int64) if each is None else each for each in exits])


def _place(curve: RunTimeCurve) -> tuple[str, int, int]:
    return curve.device_kind, curve.tensor_parallel, curve.cores


def _at_one_place(curves: Sequence[RunTimeCurve], place: tuple[str, int, int] | None) -> list[RunTimeCurve]:
    return [curve for curve in curves if _place(curve) == (place or _place(curves[0]))]


def _labels_said(model: str, answer: Predicted, n: int) -> NDArray[Any]:
    where = f"model {model!r}"
    bad = np.count_nonzero(~np.isfinite(answer.certainty))
    require(
        bad == 0,
        f"the certainty of {bad} of {n} samples is NaN or infinite",
        where=where,
        remedy="mend its certainty, or leave such samples out",
    )
    require(
        "label" in answer.outputs,
        f"its outputs are {sorted(answer.outputs)}, and without 'label' its answers cannot be judged",
        where=where,
        remedy="name its answer `label`, or bring judged answers with `gearshift profile --from-records`",
    )
    values = np.asarray(answer.outputs["label"])
    require(
        values.shape == (n,) and answer.certainty.shape == (n,),
        f"output 'label' has shape {values.shape} for {n} samples",
        where=where,
        remedy="answer one label per sample",
    )
    unknown = np.count_nonzero(np.isnan(values)) if values.dtype.kind == "f" else 0
    require(unknown == 0, f"output 'label' is NaN for {unknown} of {n} samples", where=where, remedy="answer a class")
    return values
