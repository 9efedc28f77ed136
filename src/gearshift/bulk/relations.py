"""Relations through an operator: chunks in flight, answers in order."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, Unpack

import pyarrow as pa

from gearshift.bulk.answers import Answers
from gearshift.bulk.background import Calls, result_of
from gearshift.bulk.columns import OUTCOME_TYPE, Chunk, answer_columns, label_type
from gearshift.bulk.opening import Opening, opened
from gearshift.bulk.operator import Operator, open_operator
from gearshift.bulk.table import chunks_of, reader_of
from gearshift.client.v2_client import require_seconds
from gearshift.errors import InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.support.files import PathLike

MOST_IN_FLIGHT = 16
TELL_EVERY_S = 1.0
NO_ROOM = "; the server has no room for more, waiting"

Progress = Callable[[str, float], None]
Rows = Callable[[int], None]


def map(
    table: Any,
    plan: GearPlan | PathLike | Operator,
    pipeline: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    prefix: str = "",
    deadline_s: float | None = None,
    progress: Progress = lambda what, share: None,
    **options: Unpack[Opening],
) -> pa.Table:
    """The table with the columns `label`, `certainty` and `outcome` of a pipeline's answers.

    `table` is anything that Arrow can read: Arrow itself, a data frame of pandas or polars, a
    DuckDB relation, or arrays by column name. `plan` is a plan, the URL of a server, or an
    operator opened with `open_operator`, whose options are the others. All rows go through one
    cascade: neither meter nor gears apply. A row with a NULL has no answer; a row that a model
    fails on has the outcome `failed`, and costs no other row its answer. After `deadline_s`, rows
    keep the answer they have (`degraded`), or have none (`refused`).
    """
    total = len(table) if isinstance(table, pa.Table | pa.RecordBatch) else None
    done = 0

    reader = reader_of(table)
    with opened(plan, pipeline, **options) as operator:

        def told(rows: int) -> None:
            nonlocal done
            done += rows
            progress(f"{done:,} rows answered{NO_ROOM * operator.waits}", done / total if total else 0.0)

        answered = through(operator, reader, columns=columns, prefix=prefix, deadline_s=deadline_s, rows_done=told)
        return answered.read_all()


def query(
    relation: Any,
    plan: GearPlan | PathLike | Operator,
    pipeline: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    prefix: str = "",
    deadline_s: float | None = None,
    **options: Unpack[Opening],
) -> pa.RecordBatchReader:
    """As `map`, as a stream: up to 16 chunks of 2,048 rows are asked for ahead of the reader.

    Memory is bounded, however long the relation is. Streams can be read one from another, so that
    several pipelines work at the same time. DuckDB can query the stream, but not on the connection
    that `relation` belongs to: take a `cursor()` of that.
    """
    reader = reader_of(relation)
    operator = plan if isinstance(plan, Operator) else open_operator(plan, pipeline, **options)
    return through(operator, reader, columns=columns, prefix=prefix, deadline_s=deadline_s)


def through(
    operator: Operator,
    reader: pa.RecordBatchReader,
    *,
    columns: Mapping[str, str] | None = None,
    prefix: str = "",
    deadline_s: float | None = None,
    rows_done: Rows = lambda rows: None,
) -> pa.RecordBatchReader:
    """The rows of `reader` with the columns `label`, `certainty` and `outcome`, as they are answered.

    Up to `MOST_IN_FLIGHT` chunks are asked for ahead of the one that is read. `columns` names the
    column of each input, by default that of its name; `prefix` comes before the new columns' names.
    """
    require_seconds("deadline_s", deadline_s)
    places = places_of(operator, reader.schema, columns or {})
    schema = with_answers(operator, reader.schema, prefix)
    batches = _answered(operator, reader, places, schema, deadline_s, rows_done)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _answered(
    operator: Operator,
    reader: pa.RecordBatchReader,
    places: Sequence[int],
    schema: pa.Schema,
    deadline_s: float | None,
    rows_done: Rows,
) -> Iterator[pa.RecordBatch]:
    end_s = None if deadline_s is None else time.monotonic() + deadline_s
    flight: deque[tuple[pa.RecordBatch, Chunk, Future[Answers]]] = deque()
    calls = Calls()

    def landed() -> pa.RecordBatch:
        batch, chunk, future = flight[0]
        while not wait([future], TELL_EVERY_S).done:
            rows_done(0)
        new = answer_columns(chunk.whole(result_of(future)), schema.field(len(batch.schema)).type)
        flight.popleft()
        rows_done(batch.num_rows)
        return pa.RecordBatch.from_arrays([*batch.columns, *new], schema=schema)

    try:
        for batch in chunks_of(reader):
            chunk = Chunk([batch.column(place) for place in places], operator.inputs)
            flight.append((batch, chunk, operator.submit(chunk.inputs, len(chunk.usable), end_s, calls)))
            if len(flight) == MOST_IN_FLIGHT:
                yield landed()
        while flight:
            yield landed()
    finally:
        operator.stop(calls)


def places_of(operator: Operator, schema: pa.Schema, columns: Mapping[str, str]) -> list[int]:
    """The column of each input, by number; raises `InvalidInput` where there is none."""
    inputs = [spec.name for spec in operator.inputs]
    for name in columns:
        require(name in inputs, f"pipeline {operator.pipeline!r} has no input {name!r}", remedy=_one_of(inputs))
    places = []
    for name in inputs:
        column = columns.get(name, name)
        found = schema.get_all_field_indices(column)
        if len(found) != 1:
            raise InvalidInput(
                f"the table has {'no' if not found else 'more than one'} column {column!r}, from which pipeline "
                f"{operator.pipeline!r} takes input {name!r}",
                remedy=f"name its column, as in columns={{{name!r}: {(schema.names or ['image'])[0]!r}}}",
            )
        places += found
    return places


def with_answers(operator: Operator, schema: pa.Schema, prefix: str) -> pa.Schema:
    new = {"label": label_type(operator.label), "certainty": pa.float64(), "outcome": OUTCOME_TYPE}
    for name, kind in new.items():
        require(
            f"{prefix}{name}" not in schema.names,
            f"the table has a column {prefix + name!r} already",
            remedy="give another prefix=, or rename it",
        )
        schema = schema.append(pa.field(f"{prefix}{name}", kind))
    return schema


def _one_of(names: Sequence[str]) -> str:
    return f"use {', '.join(names)}"
