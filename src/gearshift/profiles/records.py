"""Import recorded predictions and run times into a profile, without running a model."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.models.classes import class_name
from gearshift.profiles import cells
from gearshift.profiles.cells import OF_PREDICTIONS, OF_RUN_TIMES, text
from gearshift.profiles.curves import performance_models, strongest_model
from gearshift.profiles.doubts import (
    doubts_about,
    doubts_about_number,
    doubts_about_run_times,
    require_common_class,
    require_some_right,
)
from gearshift.profiles.performance_model import LEAST_BATCH_SIZES
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve, split_parts
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
        warnings=(*doubts_about(records), *doubts_about_number(records), *doubts_about_run_times(curves)),
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


class _Place(NamedTuple):
    model: str
    device_kind: str
    tensor_parallel: int
    cores: int
    segment: int


class _Run(NamedTuple):
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
        **place._asdict(),
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


LARGEST_TEXT_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class _Grid:
    """The rows of `predictions` as a full grid: `rows` (models, samples) are table row numbers."""

    table: Table
    models: tuple[str, ...]
    samples: tuple[str, ...]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, table: Table) -> "_Grid":
        models, model_of = _codes(table.parsed("model", cells.text))
        samples, sample_of = _codes(table.parsed("sample", cells.text))
        pair = sample_of * len(models) + model_of
        order = np.argsort(pair, kind="stable")
        ordered = pair[order]
        doubled = np.flatnonzero(ordered[1:] == ordered[:-1])
        if len(doubled):
            first, second = order[doubled[0]], order[doubled[0] + 1]
            raise InvalidInput(
                f"sample {samples[sample_of[first]]!r} of model {models[model_of[first]]!r} is there a second time, "
                f"after {table.place(first)}",
                where=table.where(int(second), "sample"),
                remedy="keep one row for each sample and model",
            )
        missing = len(models) * len(samples) - len(table)
        if missing:
            gaps = np.flatnonzero(ordered != np.arange(len(ordered)))
            sample, model = divmod(int(gaps[0]) if len(gaps) else len(ordered), len(models))
            more = f", and {missing - 1} more pairs are missing" if missing > 1 else ""
            raise InvalidInput(
                f"sample {samples[sample]!r} has no row for model {models[model]!r}{more}",
                where=table.where(int(np.flatnonzero(sample_of == sample)[0]), "model"),
                remedy="give every sample one row for every model, or leave the sample out",
            )
        require(
            len(samples) >= 2,
            "there is one sample, and plans need some to choose on and others to confirm on",
            where=str(table.path),
            remedy="record at least two samples, better thousands",
        )
        return cls(table, tuple(models), tuple(samples), order.reshape(len(samples), len(models)).T)

    def numbers(self, values: Sequence[Any], dtype: type[np.generic]) -> NDArray[Any]:
        return np.array(values, dtype=dtype)[self.rows]

    def classes(self, column: str) -> NDArray[np.str_]:
        written = self.table.columns[column]
        names = {cell: class_name(cell) for cell in set(written)}
        said = [names[cell] for cell in written]
        words, codes = _codes(said)
        longest = max(words, key=len)
        if 4 * len(longest) * len(said) > LARGEST_TEXT_BYTES:
            raise InvalidInput(
                f"texts of up to {len(longest)} characters are too long to keep for {len(said)} rows",
                where=self.table.where(said.index(longest), column),
                remedy="shorten them (a hash of each will do), or leave the column out and give `correct`",
            )
        return np.array(words, dtype=np.str_)[codes[self.rows]]


def recorded_predictions(table: Table, curves: tuple[RunTimeCurve, ...], seed: int) -> PredictionRecords:
    grid = _Grid.of(table)
    label = _label(grid) if "label" in table.columns else None
    prediction = grid.classes("prediction") if "prediction" in table.columns else None
    tokens = None
    if "output_tokens" in table.columns:
        tokens = grid.numbers(table.parsed("output_tokens", cells.WHOLE), np.int64)
    exits = _exit_segments(grid, curves) if "exit_segment" in table.columns else None
    return PredictionRecords(
        models=grid.models,
        quality=_judged(grid, label, prediction, curves, exits),
        certainty=grid.numbers(table.parsed("certainty", cells.number), np.float64),
        part=split_parts(np.arange(len(grid.samples)), seed),
        labelled="correct" in table.columns or label is not None,
        label=label,
        prediction=prediction,
        output_tokens=tokens,
        exit_segment=exits,
    )


def _label(grid: _Grid) -> NDArray[np.str_]:
    grid.table.parsed("label", cells.text)
    labels = grid.classes("label")
    differing = np.argwhere(labels != labels[0])
    if len(differing):
        model, sample = differing[0]
        row = int(grid.rows[model, sample])
        raise InvalidInput(
            f"sample {grid.samples[sample]!r} has label {cells.shown(str(labels[model, sample]))} here and "
            f"{cells.shown(str(labels[0, sample]))} in {grid.table.place(grid.rows[0, sample])}",
            where=grid.table.where(row, "label"),
            remedy="give a sample the same label in all its rows",
        )
    return np.asarray(labels[0])


def _judged(
    grid: _Grid,
    label: NDArray[np.str_] | None,
    prediction: NDArray[np.str_] | None,
    curves: tuple[RunTimeCurve, ...],
    exits: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """Quality (models, samples): recorded, or agreement with the label or the strongest model."""
    if "correct" in grid.table.columns:
        quality = grid.numbers(grid.table.parsed("correct", cells.quality), np.float64)
        if label is not None and prediction is not None and np.isin(quality, (0.0, 1.0)).all():
            _require_agreement(grid, quality, prediction == label)
        return quality
    if prediction is None:
        raise InvalidInput(
            "there is no column 'correct', and no column 'prediction' to judge instead",
            where=f"{grid.table.path}, header",
            remedy="add correct, or label and prediction, or prediction alone to compare with the strongest model",
        )
    by_model = None if exits is None else dict(zip(grid.models, exits, strict=True))
    truth = label if label is not None else prediction[grid.models.index(strongest_model(curves, by_model))]
    if label is not None:
        for model, names in zip(grid.models, prediction, strict=True):
            require_common_class(model, names, label, where=f"{grid.table.path}, columns 'label' and 'prediction'")
    return np.asarray(prediction == truth, dtype=np.float64)


def _require_agreement(grid: _Grid, quality: NDArray[np.float64], equal: NDArray[np.bool_]) -> None:
    differing = np.argwhere((quality == 1.0) != equal)
    if len(differing):
        model, sample = differing[0]
        row = int(grid.rows[model, sample])
        shown = {name: cells.shown(grid.table.columns[name][row]) for name in ("correct", "label", "prediction")}
        raise InvalidInput(
            f"correct is {shown['correct']}, but label is {shown['label']} and prediction is {shown['prediction']}",
            where=grid.table.where(row, "correct"),
            remedy="correct the row, or leave out column correct or column label",
        )


def _exit_segments(grid: _Grid, curves: tuple[RunTimeCurve, ...]) -> NDArray[np.int64]:
    last = {model: max(c.segment for c in curves if c.model == model) for model in grid.models}
    given = cells.optional_column(grid.table, "exit_segment", cells.WHOLE, -1)
    models = grid.table.columns["model"]
    segments = [last[model] if segment < 0 else segment for model, segment in zip(models, given, strict=True)]
    row = next((row for row, segment in enumerate(segments) if segment > last[models[row]]), None)
    if row is not None:
        raise InvalidInput(
            f"exit segment {segments[row]} of model {models[row]!r} is past its last, {last[models[row]]}",
            where=grid.table.where(row, "exit_segment"),
            remedy="add run times of that segment, or correct it",
        )
    return np.asarray(grid.numbers(segments, np.int64))


def _codes(values: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct values in order of appearance, and the index of each of `values` (n,) in them."""
    index: dict[str, int] = {}
    codes = [index.setdefault(value, len(index)) for value in values]
    return list(index), np.array(codes, dtype=np.int64)
