"""Measurements of one's own for a report: what `gearshift replay` printed with --json, or logged with --log."""

import csv
import io
from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.load_generator.replay_result import COLUMNS, DEGRADED, OUTCOMES, REFUSED
from gearshift.reporting.runs import Answers, RunSeries, series
from gearshift.result import ServingResult, summarise
from gearshift.support.files import PathLike, read_text


def read_measured(
    path: PathLike, name: str, *, slo_s: float | None, devices: int, of_gears: list[float] | None = None
) -> RunSeries:
    """The measured run in `path`; a log, a `.csv`, also gives its course over time. Raises `InvalidInput`.

    Of a log, latencies are judged by `slo_s`.
    """
    if Path(path).suffix == ".csv":
        return _of_log(path, name, slo_s, devices, of_gears)
    known = {field.encode_name for field in msgspec.structs.fields(ServingResult)}
    try:
        read = msgspec.json.decode(read_text(path))
        require(isinstance(read, dict), "is no object")
        result = msgspec.convert({key: value for key, value in read.items() if key in known}, ServingResult)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(
            f"is no replay: {error}",
            where=str(path),
            remedy="give what `gearshift replay --json FILE` wrote, or the .csv of its --log",
        ) from error
    return RunSeries(name=name, kind="measured", result=result)


def _of_log(path: PathLike, name: str, slo_s: float | None, devices: int, of_gears: list[float] | None) -> RunSeries:
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    require(
        bool(rows) and set(COLUMNS) <= set(rows[0]),
        "is no log of a replay",
        where=str(path),
        remedy=f"its columns are {', '.join(COLUMNS)}",
    )
    try:
        due_s, latency_s, answered_s, quality = (
            np.array([float(row[column] or "nan") for row in rows])
            for column in ("due_s", "latency_s", "answered_s", "quality")
        )
        outcome = np.array([OUTCOMES.index(row["outcome"]) for row in rows])
        gears = [(float(at), int(row["gear"])) for at, row in zip(answered_s, rows, strict=True) if row["gear"]]
        records = {row["record"] for row in rows}
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"is no log of a replay: {error}", where=str(path)) from error
    answered = outcome <= DEGRADED
    result = summarise(
        latency_s=latency_s[answered],
        quality=np.nan_to_num(quality[answered]),
        requests=len(rows),
        refused=int((outcome == REFUSED).sum()),
        degraded=int((outcome == DEGRADED).sum()),
        latency_objective_s=slo_s,
        duration_s=float(due_s.max()),
        devices=devices,
        utilisation={},
        independent_samples=len(records),
    )
    answers = Answers(
        arrivals_s=due_s,
        answered_s=due_s[answered],
        latency_s=latency_s[answered],
        quality=quality[answered],
        shifts=sorted(gears),
    )
    return series(name, "measured", result, answers, answers.latency_s, of_gears)
