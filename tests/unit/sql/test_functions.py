"""Pipelines as functions of a real DuckDB: its traps, bad input, and interrupts."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import gearshift
import gearshift.sql
from gearshift.bulk.columns import Chunk
from gearshift.bulk.operator import Operator
from gearshift.errors import InvalidInput
from gearshift.model import TensorSpec
from gearshift.sql import Registered
from gearshift.sql.memo import keys_of
from tests.graph_task import write_graph_plan
from tests.little_task import closed, renamed, two_gear_plan, write_little_task

LONG_S = 60.0
WAITS = 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    write_little_task(folder, two_gear_plan)
    return folder


@pytest.fixture(scope="module")
def operator(folder: Path) -> Iterator[Operator]:
    with gearshift.open_operator(folder / "plan.json", label="sum") as operator:
        yield operator


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE points AS SELECT i, [2.0, i]::DOUBLE[] AS x FROM range(5000) r(i)")
        yield connection


@pytest.fixture
def sums(connection: duckdb.DuckDBPyConnection, operator: Operator) -> Registered:
    return gearshift.sql.register(connection, operator)


def one(connection: duckdb.DuckDBPyConnection, sql: str) -> object:
    ((value,),) = connection.execute(sql).fetchall()
    return value


def test_a_pipeline_is_a_struct_and_a_label(connection, sums):
    assert one(connection, "SELECT sums([2, 3])") == {"label": 5.0, "certainty": 1.0, "outcome": "answered"}
    assert one(connection, "SELECT sums_label([2, 3.5]::DECIMAL(4, 1)[])") == 5.5


def test_a_graph_is_a_function(connection, tmp_path):
    with gearshift.sql.register(connection, write_graph_plan(tmp_path), label="text", workers=1) as functions:
        asked = "SELECT pairs_label([1, 2, 2, 2, i, 4]) FROM (VALUES (3), (2), (666), (NULL)) t(i)"
        assert connection.execute(asked).fetchall() == [("odd even odd 6 14",), ("odd even even 6",), (None,), (None,)]
        assert functions.rows == 3


def test_a_function_in_select_and_where_runs_once(connection, sums):
    """DuckDB evaluates it twice; the second time its answers are remembered."""
    found = connection.execute(
        "SELECT count(*), sum(sums(x).label) FROM points WHERE sums_label(x) >= 2 AND sums(x).outcome = 'answered'"
    ).fetchall()
    assert found == [(5000, 2 * 5000 + sum(range(5000)))]
    assert sums.rows == 5000


def test_equal_inputs_run_once_in_a_query_and_again_in_the_next(connection, sums):
    for asked in (3, 6):
        assert one(connection, "SELECT sum(sums_label([2, i % 3])) FROM points") == sum(2 + i % 3 for i in range(5000))
        assert sums.rows == asked


def test_no_filter_is_pushed_to_where_the_function_runs_on_more_rows(connection, sums):
    """As it would be for a function without side effects, even below a materialised CTE."""
    few = "WITH few AS MATERIALIZED (SELECT x, i FROM points WHERE i % 50 = 0) SELECT count(*) FROM few"
    assert one(connection, f"{few} WHERE sums_label(x) < 1e9") == 100
    assert sums.rows == 100


def test_one_bad_row_costs_one_row(connection, sums):
    """Not the chunk, as exceptions that DuckDB turns into NULL would."""
    connection.execute("UPDATE points SET x = [666, 0] WHERE i = 7")
    found = "SELECT sums(x).outcome AS outcome, count(*), count(sums_label(x)) FROM points GROUP BY 1 ORDER BY 1"
    assert connection.execute(found).fetchall() == [("answered", 4999, 4999), ("failed", 1, 0)]


def test_null_gives_null_and_its_neighbours_their_answers(connection, sums):
    connection.execute("UPDATE points SET x = NULL WHERE i % 2 = 0")
    connection.execute("UPDATE points SET x = [2, NULL] WHERE i = 1")
    assert connection.execute(
        "SELECT count(sums(x)), count(sums_label(x)), sum(sums_label(x)) FROM points"
    ).fetchall() == [(2499, 2499, sum(2 + i for i in range(3, 5000, 2)))]
    assert one(connection, "SELECT sums(NULL)") is None
    assert one(connection, "SELECT sums_label(NULL)") is None


def test_a_list_of_another_length_is_a_bad_row(connection, sums):
    assert one(connection, "SELECT sums([2, 3, 4]).outcome") == "failed"


def test_an_empty_table_asks_nobody(connection, sums):
    assert connection.execute("SELECT sums(x) FROM points WHERE false").fetchall() == []
    assert connection.execute("CREATE TABLE none AS SELECT x, sums(x).label AS l FROM points LIMIT 0").fetchall() == [
        (0,)
    ]
    assert [name for name, *_ in connection.execute("DESCRIBE none").fetchall()] == ["x", "l"]
    assert sums.rows == 0


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_long_relations_run_through_with_little_remembered(connection, operator, monkeypatch, rows):
    monkeypatch.setitem(operator._answering._workers.batch_rows, "small", 2048)
    registered = gearshift.sql.register(connection, operator, memo_rows=5000)
    total = f"SELECT sum(sums_label([2, i])) FROM range({rows}) r(i) WHERE sums(x := [2, i]).certainty > 0"
    assert one(connection, total) == rows * (rows - 1) / 2 + 2 * rows
    assert registered.rows == rows


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT sums('a')", "the column has type string, and input 'x' is FP64; give numbers"),
        ("SELECT sums(1)", r"the column holds 1 elements in 1 rows, and input 'x' has shape \[-1, 2\]"),
        ("SELECT sums([1, 2], 3)", "does not support the supplied arguments"),
    ],
)
def test_bad_calls_are_told_and_the_connection_lives_on(connection, sums, sql, said):
    with pytest.raises(duckdb.Error, match=said):
        connection.execute(sql)
    assert one(connection, "SELECT sums_label([2, 3])") == 5


def test_a_name_that_is_taken_is_refused(connection, operator):
    with pytest.raises(InvalidInput, match="DuckDB has a function 'sum' already; give another name="):
        gearshift.sql.register(connection, operator, name="sum")
    assert one(connection, "SELECT sum(i) FROM points") == sum(range(5000))


def test_a_name_may_be_any_text(folder, tmp_path):
    plan = write_little_task(tmp_path, lambda sha256: renamed(two_gear_plan(sha256), "is-a-cat"))
    with duckdb.connect() as connection, gearshift.sql.register(connection, plan, label="sum", workers=1):
        assert one(connection, 'SELECT "is-a-cat_label"([2, 3])') == 5


def test_closed_functions_are_gone_and_can_be_registered_again(connection, folder):
    for _ in range(2):
        with gearshift.sql.register(connection, folder / "plan.json", label="sum", workers=1) as registered:
            assert one(connection, "SELECT sums_label([2, 3])") == 5
        with pytest.raises(duckdb.CatalogException):
            connection.execute("SELECT sums_label([2, 3])")
        registered.close()


def test_closing_after_the_connection_ends_the_workers(folder):
    connection = duckdb.connect()
    registered = gearshift.sql.register(connection, folder / "plan.json", label="sum", workers=1)
    connection.close()
    registered.close()


# Interrupts ----------------------------------------------------------------------------------------------------------


class Running:
    """A query in a thread, which has called the function."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sums: Registered, sql: str) -> None:
        called = threading.Event()
        (function,) = sums.functions.values()
        submit = function.operator.submit

        def noted(*arguments: object, **options: object) -> object:
            future = submit(*arguments, **options)  # type: ignore[arg-type]
            called.set()
            return future

        self.error: BaseException | None = None
        function.operator.submit = noted  # type: ignore[method-assign,assignment]
        try:
            self.thread = threading.Thread(target=self._run, args=(connection, sql))
            self.thread.start()
            assert called.wait(LONG_S)
        finally:
            del function.operator.submit

    def _run(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        try:
            connection.execute(sql).fetchall()
        except BaseException as error:  # noqa: BLE001
            self.error = error


def test_duckdbs_interrupt_waits_for_the_call(connection, sums, folder):
    with closed(folder) as open_gate:
        query = Running(connection, sums, f"SELECT sums(x) FROM (SELECT [{WAITS}, i] AS x FROM points)")
        connection.interrupt()
        query.thread.join(0.2)
        assert query.thread.is_alive()
        open_gate()
        query.thread.join(LONG_S)
    assert isinstance(query.error, duckdb.InterruptException)
    assert one(connection, "SELECT sums_label([2, 3])") == 5


def test_our_interrupt_does_not_wait_and_duckdb_lives_on(connection, sums, folder):
    with closed(folder):
        query = Running(connection, sums, f"SELECT sums(x) FROM (SELECT [{WAITS}, i] AS x FROM points)")
        sums.interrupt()
        query.thread.join(LONG_S)
        assert not query.thread.is_alive()
        assert isinstance(query.error, duckdb.Error)
        assert one(connection, "SELECT sums_label([2, 3])") == 5


CTRL_C = """
import os, signal, sys, threading
import duckdb, gearshift.sql
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
connection.execute("CREATE TABLE points AS SELECT [4.0, i]::DOUBLE[] AS x FROM range({rows}) r(i)")
with gearshift.sql.register(connection, sys.argv[1], label="sum") as sums:
    (function,) = sums.functions.values()
    def interrupt():
        while not function._calls.running:
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        connection.execute("SELECT sum(sums_label(x)) FROM points").fetchall()
    except (KeyboardInterrupt, RuntimeError, duckdb.Error) as error:
        print("ended by", type(error).__name__)
    print(connection.execute("SELECT sums_label([2, 3])").fetchall())
"""


@pytest.mark.long  # beside six others of 2,000,000 rows one process had not ended after a minute: not explained
@pytest.mark.parametrize("rows", [3000, 400_000])
def test_ctrl_c_ends_the_query_at_once_and_duckdb_lives_on(folder, rows):
    """With one thread of DuckDB that calls, and with several."""
    with closed(folder):
        done = subprocess.run(
            [sys.executable, "-c", CTRL_C.replace("{rows}", str(rows)), str(folder / "plan.json")],
            capture_output=True, text=True, timeout=LONG_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ended by"), done.stdout
    assert done.stdout.endswith("[(5.0,)]\n")


# The query's own connection ------------------------------------------------------------------------------------------


def test_a_stream_cannot_be_queried_on_its_own_connection_and_can_on_a_cursor(connection, operator):
    stream = gearshift.query(connection.sql("SELECT i, x FROM points"), operator)
    assert stream.schema.names == ["i", "x", "label", "certainty", "outcome"]
    with pytest.raises(duckdb.Error, match="open result"):
        connection.sql("SELECT count(*) FROM stream").fetchall()
    found = connection.cursor().sql("SELECT count(*), sum(label) FROM stream").fetchall()
    assert found == [(5000, 2 * 5000 + sum(range(5000)))]
    assert one(connection, "SELECT 1") == 1


def test_a_relation_of_duckdb_goes_through_at_relation_level(connection, operator):
    connection.execute("UPDATE points SET x = NULL WHERE i = 3")
    stream = gearshift.query(connection.sql("SELECT i, x FROM points ORDER BY i"), operator)
    answered = pa.Table.from_batches(list(stream))
    assert answered["label"].to_pylist() == [None if i == 3 else 2.0 + i for i in range(5000)]


def test_several_connections_share_an_operator(operator):
    with duckdb.connect() as first, duckdb.connect() as second:
        gearshift.sql.register(first, operator)
        gearshift.sql.register(second, operator, name="plus")
        assert one(first, "SELECT sums_label([2, 3])") == one(second, "SELECT plus_label([2, 3])") == 5


def test_each_cursor_of_a_database_has_functions_of_its_own(connection, operator):
    """As its threads do; those of one cursor stay when another's are dropped."""
    cursors = [connection.cursor() for _ in range(3)]
    registered = [gearshift.sql.register(cursor, operator) for cursor in cursors]
    of_all = "SELECT sum(sums_label(x)) FROM points WHERE i < 10"
    threads = [threading.Thread(target=lambda c=cursor: found.append(one(c, of_all))) for cursor in cursors]
    found: list[object] = []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert found == [65.0] * 3
    assert [each.rows for each in registered] == [10] * 3
    registered[0].close()
    assert one(cursors[1], of_all) == 65
    with pytest.raises(duckdb.CatalogException):
        one(cursors[0], of_all)
    gearshift.sql.register(cursors[0], operator)
    assert one(cursors[0], of_all) == 65


def test_texts_that_duckdb_gives_as_views_are_texts():
    """And a NULL among them is a missing text, where texts may be missing."""
    with duckdb.connect() as connection:
        connection.execute("SET produce_arrow_string_view = true; SET arrow_output_version = '1.4'")
        words = connection.sql(
            "SELECT * FROM (VALUES ('Bonn'), (NULL), ('a text that is longer')) t(word)"
        ).to_arrow_table()
    assert words.schema.field("word").type == pa.string_view()
    spec = TensorSpec(name="word", datatype="BYTES", shape=(-1,), missing=True)
    chunk = Chunk([words.column("word").combine_chunks()], (spec,))
    assert chunk.inputs["word"].tolist() == ["Bonn", None, "a text that is longer"]
    assert keys_of(chunk.inputs) == ["Bonn", None, "a text that is longer"]
