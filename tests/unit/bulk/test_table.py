"""Tables of any kind as streams, cut into chunks."""

import numpy as np
import pyarrow as pa
import pytest

from gearshift.bulk import table
from gearshift.bulk.table import CHUNK_ROWS, chunks_of, reader_of
from gearshift.errors import InvalidInput


class OfAnotherLibrary:
    """Such as a data frame of polars or pandas: its own type, and Arrow's stream."""

    def __init__(self, held: pa.Table) -> None:
        self._held = held

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._held.__arrow_c_stream__(requested_schema)


def test_tables_of_all_kinds_are_read():
    plain = pa.table({"a": [1, 2, 3]})
    for given in (plain, plain.to_reader(), plain.to_batches()[0], {"a": [1, 2, 3]}, {"a": np.array([1, 2, 3])}):
        assert reader_of(given).read_all().to_pylist() == plain.to_pylist()
    assert reader_of(OfAnotherLibrary(plain)).read_all().to_pylist() == plain.to_pylist()


def test_arrays_of_several_dimensions_are_nested_lists():
    read = reader_of({"x": np.arange(12).reshape(2, 2, 3)}).read_all()
    assert read["x"].to_pylist() == np.arange(12).reshape(2, 2, 3).tolist()


def test_what_is_no_table_is_refused():
    with pytest.raises(InvalidInput, match="int is no table; give an Arrow table"):
        reader_of(7)
    with pytest.raises(InvalidInput, match="column 'a' is no column"):
        reader_of({"a": [1, "b"]})


def test_chunks_have_at_most_so_many_rows_and_lose_none():
    batches = [pa.record_batch({"a": pa.array(range(n), pa.int64())}) for n in (0, 3, 5000, 0, 7, 2041)]
    chunks = list(chunks_of(pa.RecordBatchReader.from_batches(batches[0].schema, batches)))
    assert max(chunk.num_rows for chunk in chunks) <= CHUNK_ROWS
    assert pa.Table.from_batches(chunks)["a"].to_pylist() == pa.Table.from_batches(batches)["a"].to_pylist()


def test_small_batches_are_joined():
    batches = [pa.record_batch({"a": [n]}) for n in range(5000)]
    assert [chunk.num_rows for chunk in chunks_of(pa.RecordBatchReader.from_batches(batches[0].schema, batches))] == [
        2048,
        2048,
        904,
    ]


def test_large_rows_make_small_chunks(monkeypatch):
    monkeypatch.setattr(table, "CHUNK_BYTES", 1000)
    images = pa.record_batch({"a": pa.array([b"x" * 400] * 7)})
    chunks = list(chunks_of(pa.RecordBatchReader.from_batches(images.schema, [images])))
    assert [chunk.num_rows for chunk in chunks] == [2, 2, 2, 1]
