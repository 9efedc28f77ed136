"""Write the log of a replay to a CSV or Parquet file, one row per request."""

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gearshift.errors import require
from gearshift.load_generator.replay_result import OUTCOMES, UNKNOWN, RequestLog
from gearshift.support.extras import load_extra
from gearshift.support.files import require_writable, written_atomically

ROWS_AT_ONCE = 10_000
COLUMNS = (
    *("due_s", "sent_s", "answered_s", "latency_s", "outcome", "status"),
    *("gear", "model", "stage", "quality", "record"),
)


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
