"""Functions of DuckDB that run a pipeline."""

import contextlib
import itertools
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any, Unpack

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gearshift.bulk.answers import NULL, Answers
from gearshift.bulk.background import Calls, result_of
from gearshift.bulk.columns import Chunk, answer_columns, label_type
from gearshift.bulk.opening import Opening
from gearshift.bulk.operator import Operator, open_operator, pipelines_of
from gearshift.errors import GearshiftError, InvalidInput, require
from gearshift.gear import GearPlan
from gearshift.sql.ctrl_c import AtCtrlC
from gearshift.sql.memo import MEMO_ROWS, Memos, keys_of
from gearshift.support.files import PathLike

NAMES = ("label", "certainty", "outcome")
INNER = "gearshift_run_{}_{}"
"""DuckDB has such functions by database, and not by connection as its macros: each registration has its own."""
LABEL_FORM = "{}_label"

_SQL_TYPES = {
    **{pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.float32(): "FLOAT", pa.float64(): "DOUBLE"},
    **{pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT"},
    **{pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT"},
}


_registrations = itertools.count(1)

_HOW: Any = {"type": "arrow", "null_handling": "special", "side_effects": True}
"""With side effects, no filter is pushed to where it would run on more rows, or none be saved."""


class Stopped(GearshiftError):
    """A query was interrupted while a pipeline ran for it."""

    kind = "interrupted"


class Function:
    """One pipeline as the body of an Arrow function: `call(*inputs, query)` for up to 2,048 rows."""

    def __init__(self, operator: Operator, memo_rows: int, *, name: str, owns: bool) -> None:
        self.inner = INNER.format(name, next(_registrations))
        self.operator, self.owns_operator = operator, owns
        self._memos = Memos(memo_rows)
        self._kind = label_type(operator.label)
        self._calls = Calls()
        self._open: dict[object, int] = {}  # the queries of the calls that run
        self._stopped: set[int] = set()
        self.rows = 0
        """Rows that were answered, without those that a memo knew."""
        self.error: BaseException | None = None
        """The last error, which DuckDB only quotes."""

    @property
    def sql_type(self) -> str:
        return f"STRUCT(label {_SQL_TYPES[self._kind]}, certainty DOUBLE, outcome VARCHAR)"

    def call(self, *columns: pa.ChunkedArray) -> pa.StructArray:
        try:
            return self._answered(columns)
        except BaseException as error:
            self.error = error
            raise

    def _answered(self, columns: Sequence[pa.ChunkedArray]) -> pa.StructArray:
        *inputs, query = [_whole(column) for column in columns]
        chunk = Chunk(inputs, self.operator.inputs)
        known = Answers.none_yet(0)
        if len(chunk.usable):
            number = query[0].as_py()
            memo = self._memos.of(number)
            known = memo.answers(keys_of(chunk.inputs), lambda rows: self._run(chunk, rows, number))
        answers = chunk.whole(known)
        made = answer_columns(answers, self._kind)
        return pa.StructArray.from_arrays(made, names=NAMES, mask=pa.array(answers.outcome == NULL))

    def stop_calls(self) -> None:
        """End all calls at once, with an error, and those that other threads begin for the same queries."""
        self._stopped |= set(self._open.values())
        stopped, self._calls = self._calls, Calls()
        self.operator.stop(stopped)

    def _run(self, chunk: Chunk, rows: NDArray[np.int64], query: int) -> Answers:
        whole = len(rows) == len(chunk.usable)
        inputs = chunk.inputs if whole else {name: array[rows] for name, array in chunk.inputs.items()}
        calls, call = self._calls, object()  # in this order: what is stopped after this line, stops by `calls`
        self._open[call] = query
        try:
            if query in self._stopped:
                raise CancelledError
            answers = result_of(self.operator.submit(inputs, len(rows), calls=calls))
        except CancelledError:
            raise Stopped("the query was stopped") from None
        finally:
            del self._open[call]
        self.rows += len(rows)
        return answers


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class Registered:
    """The functions of a connection; use it in a `with` block, or `close` it, which drops them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, functions: dict[str, Function]) -> None:
        self._connection, self.functions = connection, functions
        self._at_ctrl_c = AtCtrlC(self._stop_calls)
        self._at_ctrl_c.install()

    def __enter__(self) -> "Registered":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def rows(self) -> int:
        """Rows that the pipelines answered so far."""
        return sum(function.rows for function in self.functions.values())

    @property
    def waits(self) -> bool:
        """Whether rows wait because a server has no room for them now."""
        return any(function.operator.waits for function in self.functions.values())

    def interrupt(self) -> None:
        """Stop the connection's query at once, from any thread; the connection can be used again.

        `connection.interrupt()` alone waits for the calls that run.
        """
        self._stop_calls()
        self._connection.interrupt()

    def _stop_calls(self) -> None:
        for function in self.functions.values():
            function.stop_calls()

    def close(self) -> None:
        self._at_ctrl_c.remove()
        for name, function in self.functions.items():
            with contextlib.suppress(duckdb.Error):  # the connection may be closed
                for macro in (name, LABEL_FORM.format(name)):
                    self._connection.execute(f"DROP MACRO IF EXISTS temp.{quoted(macro)}")
                self._connection.remove_function(function.inner)
            if function.owns_operator:
                function.operator.close()
        self.functions = {}


def register(
    connection: duckdb.DuckDBPyConnection,
    plan: GearPlan | PathLike | Operator,
    pipeline: str | None = None,
    *,
    name: str | None = None,
    memo_rows: int = MEMO_ROWS,
    **options: Unpack[Opening],
) -> Registered:
    """Add functions to a DuckDB connection for the pipelines of a plan, or of a server by its URL.

    `NAME(input, ...)` is a struct of `label`, `certainty` and `outcome`, `NAME_label(input, ...)`
    the label alone. A name is the pipeline's, or `name` for a single one. Within a query (or a
    transaction) each input runs once, as long as its answer is among the last `memo_rows`. A NULL
    gives NULL, and a row that a model fails on the outcome `failed`. `options` are those of
    `gearshift.open_operator`. Close what this returns to end the workers.
    """
    if isinstance(plan, Operator):
        operators = [plan]
    else:
        access = {key: options.get(key) for key in ("api_key", "ca_file")}
        names = [pipeline] if pipeline is not None else pipelines_of(plan, **access)  # type: ignore[arg-type]
        operators = _opened(plan, names, options)
    registered = Registered(connection, {})
    try:
        require(name is None or len(operators) == 1, "name is given, and there are several pipelines")
        for operator in operators:
            of_sql = name or operator.pipeline
            registered.functions[of_sql] = Function(operator, memo_rows, name=of_sql, owns=operator is not plan)
        for of_sql, function in registered.functions.items():
            _create(connection, of_sql, function)
    except BaseException:
        registered.close()
        raise
    return registered


def _opened(plan: GearPlan | PathLike, names: Sequence[str], options: Opening) -> list[Operator]:
    with contextlib.ExitStack() as opened:
        operators = [opened.enter_context(open_operator(plan, name, **options)) for name in names]
        opened.pop_all()
    return operators


def _create(connection: duckdb.DuckDBPyConnection, name: str, function: Function) -> None:
    """The function itself gets the query's number, too: the macros around it add that."""
    for form in (name, LABEL_FORM.format(name)):
        known = "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = lower(?)"
        ((found,),) = connection.execute(known, [form]).fetchall()
        require(found == 0, f"DuckDB has a function {form!r} already", remedy="give another name=")
    inner = function.inner
    try:
        connection.create_function(inner, function.call, None, function.sql_type, **_HOW)
        inputs = ", ".join(quoted(spec.name) for spec in function.operator.inputs)
        call = f"{quoted(inner)}({inputs}, txid_current())"
        connection.execute(f"CREATE TEMP MACRO {quoted(name)}({inputs}) AS {call}")
        connection.execute(f"CREATE TEMP MACRO {quoted(LABEL_FORM.format(name))}({inputs}) AS ({call}).label")
    except duckdb.Error as error:
        raise InvalidInput(f"DuckDB does not take function {name!r} ({error})") from error


def quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
