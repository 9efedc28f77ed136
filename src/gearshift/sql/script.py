"""A file of SQL that is run on functions of a plan."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from gearshift.bulk.relations import NO_ROOM
from gearshift.errors import GearshiftError, InvalidInput, require
from gearshift.sql.functions import Registered, Stopped

LOOK_S = 0.1

Take = Callable[[pa.RecordBatchReader], None]
Told = Callable[[str, float], None]


def run_script(
    connection: duckdb.DuckDBPyConnection,
    registered: Registered,
    text: str,
    *,
    where: str,
    take: Take,
    told: Told,
    told_every_s: float = LOOK_S,
) -> None:
    """Run all statements of `text`, and give the result of the last to `take`.

    The query runs in a thread, so that Ctrl-C ends it at once. `told` hears of progress. Raises
    `InvalidInput` for what DuckDB cannot run, and what a pipeline raised.
    """
    raised: list[BaseException] = []

    def work() -> None:
        try:
            _run(connection, text, take)
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            raised.append(error)

    thread = threading.Thread(target=work, name="gearshift-query")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(told_every_s)
            words = f"{registered.rows:,} rows answered{NO_ROOM * registered.waits}"
            told(words, max(0.0, connection.query_progress()) / 100)
    except KeyboardInterrupt:
        while thread.is_alive():
            registered.interrupt()
            thread.join(LOOK_S)
        raise
    if raised:
        raise _plain(raised[0], registered, where)


def _run(connection: duckdb.DuckDBPyConnection, text: str, take: Take) -> None:
    statements = connection.extract_statements(text)
    require(len(statements) >= 1, "there is no statement", remedy="write a query that ends in a SELECT")
    for statement in statements[:-1]:
        connection.execute(statement).fetchall()
    relation = connection.sql(statements[-1])
    if relation is not None:  # a statement such as COPY has no result
        take(relation.to_arrow_reader())


def _plain(error: BaseException, registered: Registered, where: str) -> BaseException:
    """The error of a pipeline in place of the one that DuckDB made of it."""
    failed = next((function.error for function in registered.functions.values() if function.error is not None), None)
    if failed is not None and not isinstance(failed, Stopped) and isinstance(failed, GearshiftError):
        return failed
    if isinstance(error, duckdb.Error | pa.ArrowException):
        return InvalidInput(" ".join(str(error).split()), where=where)
    return error


# Results -------------------------------------------------------------------------------------------------------------


def write_csv(reader: pa.RecordBatchReader, path: Path) -> int:
    from pyarrow import csv

    return _written(reader, csv.CSVWriter(path, reader.schema))


def write_parquet(reader: pa.RecordBatchReader, path: Path) -> int:
    from pyarrow import parquet

    return _written(reader, parquet.ParquetWriter(path, reader.schema))


def _written(reader: pa.RecordBatchReader, to: Any) -> int:
    """Write all batches to a writer of pyarrow, and close it; the number of rows."""
    rows = 0
    with to as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def write_json_lines(reader: pa.RecordBatchReader, path: Path) -> int:
    import msgspec

    rows = 0
    with path.open("wb") as file:
        for batch in reader:
            file.write(msgspec.json.Encoder().encode_lines(batch.to_pylist()))
            rows += batch.num_rows
    return rows


FORMATS = {".csv": write_csv, ".parquet": write_parquet, ".jsonl": write_json_lines}


def require_format(path: Path) -> None:
    require(
        path.suffix in FORMATS,
        f"has the suffix {path.suffix!r}",
        where=str(path),
        remedy=f"use one of {', '.join(FORMATS)}",
    )
