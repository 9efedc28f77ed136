"""The result of a replay: a log of every request, also as a file, the generator's lateness, and the figures."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require
from gearshift.load_generator.targets import ModelRuns
from gearshift.request import Outcome
from gearshift.result import LatencySummary, ServingResult, percentiles
from gearshift.support.extras import load_extra
from gearshift.support.files import require_writable, written_atomically
from gearshift.support.numbers import milliseconds

NO_ANSWER = 0
UNKNOWN = -1
"""Gear, model or stage of a request without an answer, or whose answer does not give it."""
OUTCOMES: tuple[Outcome, ...] = ("answered", "degraded", "late", "refused", "failed")
ANSWERED, DEGRADED, LATE, REFUSED, FAILED = range(len(OUTCOMES))
LEAST_LIMIT_S = 0.0005
SHARE_OF_LATENCY = 0.1
ROWS_AT_ONCE = 10_000
COLUMNS = (
    *("due_s", "sent_s", "answered_s", "latency_s", "outcome", "status"),
    *("gear", "model", "stage", "quality", "record"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """The course of each request, all (n,), in workload order; seconds since the replay began.

    `due_s` is the instant given by the workload, `sent_s` when the generator began to send,
    `answered_s` when the whole answer had arrived or the request was given up.  `outcome` indexes
    `OUTCOMES`.  `status` is HTTP's, over gRPC the equivalent one, `NO_ANSWER` if the connection
    failed.  `model` indexes `models`; it, `stage` and `gear` may be `UNKNOWN`, and `quality` is
    NaN, if the request was not answered or the answer does not give it.  `by_time` marks answers
    that were given because time to refine ended.  `wrong` contains the
    first answer judged wrong, in words.
    """

    due_s: NDArray[np.float64]
    record: NDArray[np.int32]
    sent_s: NDArray[np.float64]
    answered_s: NDArray[np.float64]
    outcome: NDArray[np.int8]
    status: NDArray[np.int16]
    gear: NDArray[np.int32]
    model: NDArray[np.int16]
    stage: NDArray[np.int16]
    quality: NDArray[np.float64]
    by_time: NDArray[np.bool_]
    models: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.due_s)

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which requests (n,) got a whole answer, including degraded ones."""
        whole: NDArray[np.bool_] = self.outcome <= DEGRADED
        return whole

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Seconds (n,) from the due instant to the whole answer, whatever its status."""
        return self.answered_s - self.due_s

    @property
    def lateness_s(self) -> NDArray[np.float64]:
        """Seconds (n,) from the due instant to the start of sending."""
        return self.sent_s - self.due_s


def empty_log(due_s: NDArray[np.float64], record: NDArray[np.int32]) -> RequestLog:
    n = len(due_s)
    return RequestLog(
        due_s=due_s,
        record=record,
        sent_s=np.zeros(n),
        answered_s=np.zeros(n),
        outcome=np.full(n, FAILED, dtype=np.int8),
        status=np.full(n, NO_ANSWER, dtype=np.int16),
        gear=np.full(n, UNKNOWN, dtype=np.int32),
        model=np.full(n, UNKNOWN, dtype=np.int16),
        stage=np.full(n, UNKNOWN, dtype=np.int16),
        quality=np.full(n, np.nan),
        by_time=np.zeros(n, dtype=np.bool_),
    )


# Validity ----------------------------------------------------------------------------------------


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds late the generator sent; `share_over` were later than `limit_s`."""

    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float
    limit_s: float
    share_over: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The generator's cost: processes, processor seconds, requests that waited for a connection.

    `began_ns` is instant 0 of the workload on this machine's monotonic clock.
    """

    processes: int = 1
    processor_s: float = 0.0
    waited: int = 0
    began_ns: int = 0


def limit_s(latency_s: float, largest_s: float | None = None) -> float:
    """Return the allowed lateness for a latency: `largest_s`, else a tenth, at least 0.5 ms.

    Latency counts from the due instant, so it includes lateness: at least nine tenths of the
    reported latency is the server's.  System timers and one event loop need half a millisecond.
    """
    return max(LEAST_LIMIT_S, SHARE_OF_LATENCY * latency_s) if largest_s is None else largest_s


def lateness_of(log: RequestLog, latency: LatencySummary, largest_s: float | None = None) -> Lateness:
    late_s = log.lateness_s
    p50_s, p95_s, p99_s = percentiles(late_s, (0.50, 0.95, 0.99))
    limit = limit_s(latency.p99, largest_s)
    return Lateness(
        p50_s=p50_s,
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=float(late_s.max()),
        limit_s=limit,
        share_over=float(np.mean(late_s > limit)),
    )


def why_invalid(
    lateness: Lateness,
    latency: LatencySummary,
    effort: Effort,
    *,
    answered: int,
    processes: bool,
    largest_s: float | None = None,
) -> str:
    """Say why the figures are missing or not the server's, and a remedy; "" if valid.

    `processes`: whether more processes could help.
    """
    if not answered:
        return "no request was answered, so that there is no latency to tell; see the server's log for why"
    for name, late_s, measured_s in (
        ("p50", lateness.p50_s, latency.p50),
        ("p95", lateness.p95_s, latency.p95),
        ("p99", lateness.p99_s, latency.p99),
    ):
        if late_s > limit_s(measured_s, largest_s):
            why = (
                f"the generator sent {milliseconds(late_s)} late at {name}, where a measured latency of "
                f"{milliseconds(measured_s)} bears {milliseconds(limit_s(measured_s, largest_s))}"
            )
            if effort.waited:
                return f"{why}, and {effort.waited} requests waited for a connection; give more --connections"
            more = f"--processes {2 * effort.processes}, " if processes else ""
            return f"{why}; give {more}less load with --rate-scale, or cores of its own"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A measured run.  It is `valid` if the generator kept the schedule, else see `why_invalid`.

    `gears` lists each change of gear between answers: seconds and the new gear.  `runs` are the
    batches and samples of each model, if the server reports them.
    """

    result: ServingResult
    log: RequestLog
    lateness: Lateness
    effort: Effort
    why_invalid: str
    failed: int
    gears: tuple[tuple[float, int], ...]
    runs: Mapping[str, ModelRuns]

    @property
    def valid(self) -> bool:
        return not self.why_invalid

    @property
    def warnings(self) -> tuple[str, ...]:
        quality = self.log.quality[self.log.answered]
        if len(quality) == 0 or quality.any():
            return ()
        example = "".join(f", for example {wrong}" for wrong in self.log.wrong[:1])
        return (f"no answer is right{example}; check that samples and labels are those of the profile",)

    def as_json(self) -> dict[str, object]:
        """Return the figures under the names that `simulate` uses, and their validity."""
        facts: dict[str, object] = msgspec.to_builtins(self.result)
        return facts | {
            "failed": self.failed,
            "lateness_s": self.lateness,
            "processes": self.effort.processes,
            "processor_s": self.effort.processor_s,
            "valid": self.valid,
            "why_invalid": self.why_invalid,
            "warnings": self.warnings,
            "gears": self.gears,
            "models": self.runs,
        }


def gear_shifts(log: RequestLog) -> tuple[tuple[float, int], ...]:
    """Return (seconds, gear) for each change of gear, in order of arrival of answers."""
    known = np.flatnonzero(log.gear != UNKNOWN)
    done_s = log.answered_s[known]
    order = np.argsort(done_s, kind="stable")
    times, gears = done_s[order], log.gear[known][order]
    changes = np.flatnonzero(np.diff(gears, prepend=UNKNOWN))
    return tuple((float(times[i]), int(gears[i])) for i in changes)


# The log as a file --------------------------------------------------------------------------------


def require_log_path(path: Path) -> None:
    """Raise `InvalidInput` if a log could not be written to `path`; call it before sending."""
    require_writable(path)
    require(
        path.suffix in (".csv", ".parquet"), "is no kind of log", where=str(path), remedy="name it .csv or .parquet"
    )
    if path.suffix == ".parquet":
        load_extra("pyarrow", extra="parquet", where=str(path))


def write_request_log(log: RequestLog, path: Path) -> None:
    """Write the log to `.csv` or `.parquet`, whole or not at all; unknown values are empty.

    Rows are made in blocks, so that memory does not grow with the log.
    """
    require_log_path(path)
    with written_atomically(path) as file:
        if path.suffix == ".parquet":
            _write_parquet(log, file)
        else:
            _write_csv(log, file)


def _parts(log: RequestLog) -> Iterator[dict[str, list[Any]]]:
    for begin in range(0, len(log), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        due_s, answered_s = log.due_s[rows], log.answered_s[rows]
        yield {
            "due_s": due_s.round(9).tolist(),
            "sent_s": log.sent_s[rows].round(9).tolist(),
            "answered_s": answered_s.round(9).tolist(),
            "latency_s": (answered_s - due_s).round(9).tolist(),
            "outcome": [OUTCOMES[code] for code in log.outcome[rows].tolist()],
            "status": log.status[rows].tolist(),
            "gear": [None if gear == UNKNOWN else gear for gear in log.gear[rows].tolist()],
            "model": [None if model == UNKNOWN else log.models[model] for model in log.model[rows].tolist()],
            "stage": [None if stage == UNKNOWN else stage for stage in log.stage[rows].tolist()],
            "quality": [None if math.isnan(value) else value for value in log.quality[rows].tolist()],
            "record": log.record[rows].tolist(),
        }


def _write_csv(log: RequestLog, file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for part in _parts(log):
        writer.writerows(zip(*(part[name] for name in COLUMNS), strict=True))
    text.detach()  # flush without closing the file: the caller opened it


def _write_parquet(log: RequestLog, file: BinaryIO) -> None:
    import pyarrow
    import pyarrow.parquet

    kinds = dict.fromkeys(COLUMNS, pyarrow.float64()) | {
        **dict.fromkeys(("outcome", "model"), pyarrow.string()),
        **dict.fromkeys(("status", "gear", "stage", "record"), pyarrow.int32()),
    }
    schema = pyarrow.schema(list(kinds.items()))
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for part in _parts(log):
            writer.write_table(pyarrow.table(part, schema=schema))
