"""Import recorded predictions and run times into a profile, without running a model."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.profiles import cells
from gearshift.profiles.cells import OF_PREDICTIONS, OF_RUN_TIMES, text
from gearshift.profiles.curves import performance_models
from gearshift.profiles.doubts import doubts_about, doubts_about_run_times, require_some_right
from gearshift.profiles.performance_model import LEAST_BATCH_SIZES
from gearshift.profiles.profile import Profile, RunTimeCurve
from gearshift.profiles.recorded_predictions import recorded_predictions
from gearshift.profiles.table import Table, read_table
from gearshift.result import percentile

PREDICTIONS = "predictions"
RUN_TIMES = "runtimes"


def profile_from_records(
    folder: Path, *, operator: str = "default", seed: int = 0, raw_run_times: bool = False
) -> Profile:
    """Build a profile from `predictions` and `runtimes` in `folder`, each a CSV or Parquet file.

    `predictions` has columns sample, model, certainty and correct (0, 1, true, false, or a score
    in [0, 1]); optionally label, prediction, output_tokens, exit_segment. Without correct, an
    answer is correct where prediction is the class of label, and without label where it equals the
    strongest model's. `runtimes` has columns model, batch_size and seconds (the median);
    optionally device_kind, cores, tensor_parallel, segment, memory_bytes, seconds_p95. With
    `raw_run_times` each of its rows is one batch; median and p95 are computed per size.

    Raises `InvalidInput` with file, line (or row) and column of missing, duplicate or out-of-range
    values, for all columns of a file at once, and where no model is right on any sample.
    """
    require(folder.is_dir(), "there is no such folder of records", where=str(folder), remedy="check the path")
    predictions = read_table(
        folder / PREDICTIONS,
        required=("sample", "model", "certainty"),
        optional=("correct", "label", "prediction", "output_tokens", "exit_segment"),
        columns="sample, model, correct, certainty",
    )
    run_times = read_table(
        folder / RUN_TIMES,
        required=("model", "batch_size", "seconds"),
        optional=("device_kind", "cores", "tensor_parallel", "segment", "memory_bytes", "seconds_p95"),
        columns="model, batch_size, seconds",
    )
    predictions.require_cells(OF_PREDICTIONS)
    run_times.require_cells(OF_RUN_TIMES)
    _require_same_models(predictions, run_times)
    curves = recorded_curves(run_times, raw=raw_run_times)
    records = recorded_predictions(predictions, curves, seed)
    require_some_right(records, where=str(predictions.path))
    return Profile(
        operator=operator,
        curves=curves,
        predictions=records,
        warnings=(*doubts_about(records), *doubts_about_run_times(curves)),
        performance=performance_models(_of_enough_sizes(curves)),
        certainty="recorded",
        notes={"source": "records"},
    )


def _of_enough_sizes(curves: Sequence[RunTimeCurve]) -> list[RunTimeCurve]:
    """Keep the curves of models with enough batch sizes, over all core counts, for a fit."""
    sizes: dict[tuple[object, ...], set[int]] = {}
    places = [(c.model, c.device_kind, c.tensor_parallel, c.segment) for c in curves]
    for place, curve in zip(places, curves, strict=True):
        sizes.setdefault(place, set()).update(curve.batch_sizes)
    return [c for place, c in zip(places, curves, strict=True) if len(sizes[place]) >= LEAST_BATCH_SIZES]


def _require_same_models(predictions: Table, run_times: Table) -> None:
    for table, other, lacking in (
        (predictions, run_times, f"run times in {run_times.path.name}"),
        (run_times, predictions, f"predictions in {predictions.path.name}"),
    ):
        names = table.parsed("model", text)
        known = set(other.columns["model"])
        row = next((row for row, name in enumerate(names) if name not in known), None)
        if row is not None:
            raise InvalidInput(
                f"model {names[row]!r} has no {lacking}",
                where=table.where(row, "model"),
                remedy="add them, or leave the model out of both files",
            )


@dataclass(frozen=True, slots=True)
class _Place:
    model: str
    device_kind: str
    tensor_parallel: int
    cores: int
    segment: int


@dataclass(frozen=True, slots=True)
class _Run:
    row: int
    seconds: float
    seconds_p95: float
    memory_bytes: int


def recorded_curves(table: Table, *, raw: bool) -> tuple[RunTimeCurve, ...]:
    require(
        not raw or "seconds_p95" not in table.columns,
        "seconds_p95 is given, and rows are single batches",
        where=str(table.path),
        remedy="leave the column out, or --raw-run-times",
    )
    sizes = table.parsed("batch_size", cells.SIZE)
    seconds = table.parsed("seconds", cells.seconds)
    p95 = cells.optional_column(table, "seconds_p95", cells.seconds, 0.0)
    memory = cells.optional_column(table, "memory_bytes", cells.WHOLE, 0)
    runs: dict[_Place, dict[int, list[_Run]]] = {}
    for row, (place, size) in enumerate(zip(_places(table), sizes, strict=True)):
        run = _Run(row, seconds[row], p95[row] or seconds[row], memory[row])
        before = runs.setdefault(place, {}).setdefault(size, [])
        if before and not raw:
            raise InvalidInput(
                f"batch size {size} of model {place.model!r} is there a second time, after "
                f"{table.place(before[0].row)}",
                where=table.where(row, "batch_size"),
                remedy="keep one row, with the median, or say --raw-run-times where each row is one batch",
            )
        if run.seconds_p95 < run.seconds:
            raise InvalidInput(
                f"seconds_p95 is {p95[row]:g}, less than the median, seconds, of {seconds[row]:g}",
                where=table.where(row, "seconds_p95"),
                remedy="give the 95th percentile of the same runs",
            )
        before.append(run)
    _require_one_memory(table, runs)
    _require_all_segments(table, runs)
    return tuple(_curve(place, runs[place]) for place in runs)


def _places(table: Table) -> list[_Place]:
    columns = zip(
        table.parsed("model", cells.text),
        cells.optional_column(table, "device_kind", cells.text, "cpu"),
        cells.optional_column(table, "tensor_parallel", cells.COUNT, 1),
        cells.optional_column(table, "cores", cells.COUNT, 1),
        cells.optional_column(table, "segment", cells.WHOLE, 0),
        strict=True,
    )
    return [_Place(*row) for row in columns]


def _curve(place: _Place, runs: dict[int, list[_Run]]) -> RunTimeCurve:
    ordered = [runs[size] for size in sorted(runs)]
    medians = [percentile(np.array([run.seconds for run in same]), 0.50) for same in ordered]
    return RunTimeCurve(
        model=place.model,
        device_kind=place.device_kind,
        tensor_parallel=place.tensor_parallel,
        cores=place.cores,
        segment=place.segment,
        batch_sizes=tuple(sorted(runs)),
        median_s=tuple(medians),
        p95_s=tuple(percentile(np.array([run.seconds_p95 for run in same]), 0.95) for same in ordered),
        memory_bytes=ordered[0][0].memory_bytes,
    )


def _require_one_memory(table: Table, runs: dict[_Place, dict[int, list[_Run]]]) -> None:
    first: dict[tuple[str, str, int], _Run] = {}
    for place, curve in runs.items():
        for run in itertools.chain.from_iterable(curve.values()):
            before = first.setdefault((place.model, place.device_kind, place.tensor_parallel), run)
            if run.memory_bytes != before.memory_bytes:
                raise InvalidInput(
                    f"model {place.model!r} has memory_bytes {run.memory_bytes} here and {before.memory_bytes} in "
                    f"{table.place(before.row)}",
                    where=table.where(run.row, "memory_bytes"),
                    remedy="give the same bytes, those of one replica, in every row of the model",
                )


def _require_all_segments(table: Table, runs: dict[_Place, dict[int, list[_Run]]]) -> None:
    segments: dict[tuple[str, str, int, int], dict[int, int]] = {}
    for place, curve in runs.items():
        key = (place.model, place.device_kind, place.tensor_parallel, place.cores)
        segments.setdefault(key, {})[place.segment] = next(iter(curve.values()))[0].row
    for key, rows in segments.items():
        missing = next((segment for segment in range(len(rows)) if segment not in rows), None)
        if missing is not None:
            raise InvalidInput(
                f"model {key[0]!r} has run times of segments {sorted(rows)}, but not of segment {missing}",
                where=table.where(rows[max(rows)], "segment"),
                remedy="number segments from 0 without gaps; a model without learned caches has segment 0 only",
            )
