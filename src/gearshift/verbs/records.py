"""Make records of logs whose columns have other names."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gearshift.errors import InvalidInput, require
from gearshift.profiles.records import PREDICTIONS, RUN_TIMES
from gearshift.profiles.table import PARQUET_SUFFIX
from gearshift.result import percentile
from gearshift.support.decoding import UNREADABLE, why_unreadable
from gearshift.support.extras import load_extra
from gearshift.support.files import PathLike, read_bytes, read_text, write_atomically
from gearshift.verbs.common.inputs import Progress, silent

OF_PREDICTIONS = ("sample", "model", "certainty", "correct", "label", "prediction", "output_tokens", "exit_segment")
OF_RUN_TIMES = ("device_kind", "cores", "tensor_parallel", "segment", "memory_bytes")
JUDGED = ("correct", "label", "prediction")
COLUMNS = (*OF_PREDICTIONS, *OF_RUN_TIMES, "batch_size", "seconds")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MOST_SHOWN = 20
TOLD_EVERY = 20_000
Row = Mapping[str, Any]


class RecordsMade(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of each file that was written, the models in them, and the columns of the logs that were left out."""

    predictions: int
    run_times: int
    models: tuple[str, ...]
    left_out: tuple[str, ...]


def records(
    logs: Mapping[str, PathLike] | Sequence[PathLike],
    *,
    out: PathLike,
    columns: Mapping[str, str],
    progress: Progress = silent,
) -> RecordsMade:
    """Write `predictions.csv` and `runtimes.csv` into the folder `out`, from logs with a row for each answer.

    `logs` are CSV, Parquet or JSON lines, as a mapping by the model that wrote each, or a sequence
    where a column says which model answered. `columns` maps a column of records (see
    docs/reference/records.md) to the log's; others keep their names. `seconds` may name a unit,
    such as "latency:ms". Without `sample`, rows are numbered for each model, in the order of the
    log. Run times are written where there are `batch_size` and `seconds`: median and p95 by size.

    Raises `InvalidInput` for a file or column that is missing, and for numbers that are none.
    """
    unknown = sorted(columns.keys() - set(COLUMNS))
    require(not unknown, f"there is no column {', '.join(map(repr, unknown))} of records", remedy=_KNOWN)
    named = logs.items() if isinstance(logs, Mapping) else [("", path) for path in logs]
    require(bool(named), "no log is given", remedy="name a file")
    answers, times, left_out = list[Row](), list[Row](), dict[str, None]()
    counted: dict[str, int] = {}
    for read, (model, path) in enumerate(named):
        rows = _rows(Path(path))
        names = dict.fromkeys(name for row in rows for name in row)
        taken = _taken(names, columns, where=str(path), has_model=bool(model))
        left_out |= dict.fromkeys(name for name in names if name not in taken.values())
        for number, row in enumerate(rows, start=1):
            if number % TOLD_EVERY == 0:
                progress(f"reading {path}", (read + number / len(rows)) / len(named))
            made: dict[str, Any] = {name: row.get(column) for name, column in taken.items()}
            who = made["model"] = model or _text(made["model"])
            counted[who] = counted.get(who, 0) + 1
            made.setdefault("sample", counted[who])
            answers.append(made)
            if "seconds" in taken and "batch_size" in taken:
                times.append(made)
    return _written(answers, _run_times(times, columns.get("seconds", "")), Path(out), tuple(counted), tuple(left_out))


_KNOWN = f"use some of {', '.join(COLUMNS)}"


def _taken(row: Collection[str], columns: Mapping[str, str], *, where: str, has_model: bool) -> dict[str, str]:
    """The log's column of each column of records that it has."""
    given = {name: _without_unit(name, column) for name, column in columns.items()}
    missing = [column for column in given.values() if column not in row]
    shown = ", ".join(list(row)[:MOST_SHOWN])
    require(not missing, f"has no column {missing[0]!r}" if missing else "", where=where, remedy=f"it has {shown}")
    taken = given | {name: name for name in COLUMNS if name in row and name not in given}
    needed = ["certainty"] if has_model else ["model", "certainty"]
    lacking = [name for name in needed if name not in taken]
    if not lacking and not any(name in taken for name in JUDGED):
        lacking = ["correct"]
    remedy = f"say which it is with --map {lacking[0] if lacking else ''}=COLUMN; it has {shown}"
    if lacking == ["model"]:
        remedy = f"say which it is with --map model=COLUMN, or whose log it is with NAME={where}; it has {shown}"
    named = "correct, label or prediction" if lacking == ["correct"] else ", ".join(lacking)
    require(not lacking, f"has no column {named}", where=where, remedy=remedy)
    return taken


def _without_unit(name: str, column: str) -> str:
    before, colon, unit = column.rpartition(":")
    return before if name == "seconds" and colon and unit in UNITS else column


def _run_times(rows: Sequence[Row], seconds: str) -> list[list[object]]:
    """Median and p95 of the rows of each model, size and place."""
    unit = UNITS.get(seconds.rpartition(":")[2], 1.0) if ":" in seconds else 1.0
    by_size: dict[tuple[object, ...], list[float]] = {}
    for row in rows:
        if _text(row["seconds"]) and _text(row["batch_size"]):
            key = (row["model"], _text(row["batch_size"]), *(_text(row.get(name)) for name in OF_RUN_TIMES))
            by_size.setdefault(key, []).append(_number(row["seconds"], seconds or "seconds") * unit)
    return [
        [*key[:2], f"{percentile(np.array(each), 0.5):.9g}", f"{percentile(np.array(each), 0.95):.9g}", *key[2:]]
        for key, each in by_size.items()
    ]


def _number(value: object, column: str) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise InvalidInput(f"column {column!r} has {value!r}", remedy="give numbers") from None


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _written(
    answers: Sequence[Row], times: Sequence[Sequence[object]], out: Path, models: tuple[str, ...], left: tuple[str, ...]
) -> RecordsMade:
    used = [name for name in OF_PREDICTIONS if any(name in row for row in answers)]
    out.mkdir(parents=True, exist_ok=True)
    rows = [[_text(row.get(name)) for name in used] for row in answers]
    write_atomically(out / f"{PREDICTIONS}.csv", _csv(used, rows))
    if times:
        filled = [place for place, name in enumerate(OF_RUN_TIMES) if any(row[4 + place] for row in times)]
        header = ["model", "batch_size", "seconds", "seconds_p95", *(OF_RUN_TIMES[place] for place in filled)]
        kept = [[*row[:4], *(row[4 + place] for place in filled)] for row in times]
        write_atomically(out / f"{RUN_TIMES}.csv", _csv(header, kept))
    return RecordsMade(predictions=len(rows), run_times=len(times), models=models, left_out=left)


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == PARQUET_SUFFIX:
        parquet = load_extra("pyarrow.parquet", extra="parquet", where=str(path))
        pyarrow = load_extra("pyarrow", extra="parquet", where=str(path))
        try:
            rows = parquet.ParquetFile(pyarrow.BufferReader(read_bytes(path))).read().to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise InvalidInput(f"no Parquet file that can be read ({reason})", where=str(path)) from None
    else:
        text = read_text(path)
        rows = _json_lines(text, path) if text.lstrip().startswith("{") else _csv_rows(text, path)
    require(bool(rows), "there are no rows", where=str(path), remedy="give a log with a row for each answer")
    return list(rows)


def _json_lines(text: str, path: Path) -> list[dict[str, Any]]:
    try:
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in text.splitlines() if line.strip()]
    except UNREADABLE as error:
        remedy = "give one object for each answer, each on a line"
        raise InvalidInput(
            f"a line is no JSON object ({why_unreadable(error)})", where=str(path), remedy=remedy
        ) from None


def _csv_rows(text: str, path: Path) -> list[dict[str, Any]]:
    mark = next((mark for mark in ",;\t" if mark in text.partition("\n")[0]), ",")
    reader, rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=mark), list[dict[str, Any]]()
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            require(None not in row, "the row has more cells than the header", where=where, remedy="name every column")
            rows.append(row)
        return rows
    except csv.Error as error:
        raise InvalidInput(f"is wrongly quoted ({error})", where=str(path), remedy="close every quote") from None
