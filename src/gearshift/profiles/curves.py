"""Run-time curves of models compared: over batch sizes and cores, and which model is the strongest."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gearshift.profiles.performance_model import PerformanceModel, Statistic, fit_performance_model
from gearshift.profiles.profile import PART_A, Profile, RunTimeCurve


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


def _place(curve: RunTimeCurve) -> tuple[str, int, int]:
    return curve.device_kind, curve.tensor_parallel, curve.cores


def _at_one_place(curves: Sequence[RunTimeCurve], place: tuple[str, int, int] | None) -> list[RunTimeCurve]:
    return [curve for curve in curves if _place(curve) == (place or _place(curves[0]))]
