"""Prediction records from a table of recorded predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.models.classes import class_name
from gearshift.profiles import cells
from gearshift.profiles.curves import strongest_model
from gearshift.profiles.doubts import require_common_class
from gearshift.profiles.profile import PredictionRecords, RunTimeCurve, split_parts
from gearshift.profiles.table import Table

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
