"""Measurements of one's own for a report: what `gearshift replay` printed with --json, or logged with --log."""

from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.load_generator.replay_result import COLUMNS, DEGRADED, OUTCOMES, REFUSED
from gearshift.reporting.runs import Answers, Course, RunSeries, in_force, series
from gearshift.result import ServingResult, summarise
from gearshift.support.decoding import UNREADABLE, csv_rows, why_unreadable
from gearshift.support.files import LARGEST_JSON_BYTES, PathLike, read_text


def read_measured(
    path: PathLike, name: str, *, slo_s: float | None, devices: int, of_gears: list[float] | None = None
) -> RunSeries:
    """The measured run in `path` and its course over time, where it has one. Raises `InvalidInput`.

    `of_gears` are the accuracies that the plan predicts for its gears. Of a log, latencies are judged by `slo_s`.
    """
    if Path(path).suffix == ".csv":
        return _of_log(path, name, slo_s, devices, of_gears)
    known = {field.encode_name for field in msgspec.structs.fields(ServingResult)}
    try:
        read = msgspec.json.decode(read_text(path, most_bytes=LARGEST_JSON_BYTES))
        require(isinstance(read, dict), "is no object")
        result = msgspec.convert({key: value for key, value in read.items() if key in known}, ServingResult)
        course = msgspec.convert(read.get("over_time"), Course | None)
    except UNREADABLE as error:
        raise InvalidInput(
            f"is no replay: {why_unreadable(error)}",
            where=str(path),
            remedy="give what `gearshift replay --json FILE` wrote, or the .csv of its --log",
        ) from error
    by_gear = None
    if course is not None and of_gears is not None:
        by_gear = in_force(list(zip(course.seconds, course.gear, strict=True)), of_gears, course)
    return RunSeries(name=name, kind="measured", result=result, course=course, in_force=by_gear)


def _of_log(path: PathLike, name: str, slo_s: float | None, devices: int, of_gears: list[float] | None) -> RunSeries:
    remedy = f"its columns are {', '.join(COLUMNS)}"
    rows = csv_rows(read_text(path), where=str(path), remedy=remedy)
    known = bool(rows) and set(COLUMNS) <= set(rows[0])
    require(known, "is no log of a replay", where=str(path), remedy=remedy)
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
