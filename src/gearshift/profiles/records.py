"""Import recorded predictions and run times into a profile, without running a model."""

from collections.abc import Sequence
from pathlib import Path

from gearshift.errors import InvalidInput, require
from gearshift.profiles.cells import OF_PREDICTIONS, OF_RUN_TIMES, text
from gearshift.profiles.curves import performance_models
from gearshift.profiles.doubts import doubts_about, doubts_about_run_times, require_some_right
from gearshift.profiles.performance_model import LEAST_BATCH_SIZES
from gearshift.profiles.profile import Profile, RunTimeCurve
from gearshift.profiles.recorded_predictions import recorded_predictions
from gearshift.profiles.recorded_run_times import recorded_curves
from gearshift.profiles.table import Table, read_table

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
