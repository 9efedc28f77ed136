"""Tables of any kind as streams of Arrow record batches, cut into chunks."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gearshift.errors import InvalidInput

CHUNK_ROWS = 2048
CHUNK_BYTES = 16 << 20


def reader_of(table: Any) -> pa.RecordBatchReader:
    """A stream of any table: Arrow, DuckDB, pandas, polars, or arrays and lists by column.

    Raises `InvalidInput` for anything else.
    """
    match table:
        case pa.RecordBatchReader():
            return table
        case pa.Table():
            return table.to_reader()
        case pa.RecordBatch():
            return pa.RecordBatchReader.from_batches(table.schema, [table])
        case Mapping():
            return pa.table({str(name): _column(str(name), values) for name, values in table.items()}).to_reader()
    if hasattr(table, "to_arrow_reader"):  # a relation of DuckDB
        return table.to_arrow_reader(CHUNK_ROWS)
    if hasattr(table, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(table)
    raise InvalidInput(
        f"{type(table).__name__} is no table",
        remedy="give an Arrow table, a data frame of pandas or polars, a DuckDB relation, or arrays by column name",
    )


def _column(name: str, values: Any) -> pa.Array:
    array = np.asarray(values) if not isinstance(values, pa.Array | pa.ChunkedArray | list | tuple) else values
    if not isinstance(array, np.ndarray) or array.ndim == 1:
        try:
            return pa.array(array) if not isinstance(array, pa.Array | pa.ChunkedArray) else array
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInput(f"column {name!r} is no column ({error})", remedy="give values of one kind") from None
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def chunks_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Record batches of up to `CHUNK_ROWS` rows and about `CHUNK_BYTES`, without empty ones."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        for part in _cut(batch):
            if gathered and (rows + part.num_rows > CHUNK_ROWS or size + part.nbytes > CHUNK_BYTES):
                yield _joined(gathered)
                gathered, rows, size = [], 0, 0
            gathered.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if gathered:
        yield _joined(gathered)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    each = max(1, min(CHUNK_ROWS, CHUNK_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, each):
        yield batch.slice(start, each)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
