"""Measurements of one's own for a report: what `gearshift replay` printed with --json, or logged with --log."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.load_generator.replay_result import COLUMNS, DEGRADED, OUTCOMES, REFUSED, Replay
from gearshift.reporting.runs import (
    MOST_BINS,
    Answers,
    LatencyQuantiles,
    RunSeries,
    gear_series,
    in_force,
    measured_series,
    series,
)
from gearshift.result import ServingResult, summarise
from gearshift.support.decoding import UNREADABLE, csv_rows, why_unreadable
from gearshift.support.files import LARGEST_JSON_BYTES, PathLike, read_text


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A measured run over time, in bins of `bin_s` from each of `seconds` (n,) on, and its latencies.

    `load_qps`, `p95_s`, `accuracy` and `gear` (n,) are of the requests that were due then; p95 and
    accuracy are unknown where there were too few. `latency_s` (k,) are those at the shares `share` (k,)
    of the answered requests.
    """

    bin_s: float
    seconds: list[float]
    load_qps: list[float]
    p95_s: list[float | None]
    accuracy: list[float | None]
    gear: list[int]
    share: list[float]
    latency_s: list[float]

    def __post_init__(self) -> None:
        n = len(self.seconds)
        fits = all(len(each) == n for each in (self.load_qps, self.p95_s, self.accuracy, self.gear))
        if not (fits and 0 < n <= MOST_BINS + 1 and self.bin_s > 0 and len(self.share) == len(self.latency_s)):
            raise ValueError("its course over time has arrays of different lengths")
        if min(self.gear) < 0:
            raise ValueError("its course over time has a gear below 0")


def course_of(run: Replay) -> Course:
    """The course of a replay, as `gearshift replay --json` writes it under `over_time`."""
    made = measured_series("", run)
    seconds, quantiles = np.asarray(made.seconds), made.latency_quantiles
    unknown = np.full(len(seconds), np.nan)
    p95_s, accuracy = (unknown if each is None else each for each in (made.p95_s, made.accuracy))
    return Course(
        bin_s=made.bin_s,
        seconds=seconds.tolist(),
        load_qps=np.asarray(made.load_qps).tolist(),
        p95_s=p95_s.tolist(),
        accuracy=accuracy.tolist(),
        gear=gear_series(run.gears, seconds).tolist(),
        share=[] if quantiles is None else quantiles.share.tolist(),
        latency_s=[] if quantiles is None else quantiles.latency_s.tolist(),
    )


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
    run = RunSeries(name=name, kind="measured", result=result)
    return run if course is None else _over_time(run, course, of_gears)


def _over_time(run: RunSeries, course: Course, of_gears: list[float] | None) -> RunSeries:
    seconds, accuracy, p95_s, load_qps = (
        np.array(each, dtype=np.float64) for each in (course.seconds, course.accuracy, course.p95_s, course.load_qps)
    )
    shifts = list(zip(course.seconds, course.gear, strict=True))
    return replace(
        run,
        seconds=seconds,
        bin_s=course.bin_s,
        load_qps=load_qps,
        in_force=None if of_gears is None else in_force(shifts, of_gears, seconds, course.bin_s),
        accuracy=accuracy,
        p95_s=p95_s,
        latency_quantiles=LatencyQuantiles(share=np.array(course.share), latency_s=np.array(course.latency_s)),
    )


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
