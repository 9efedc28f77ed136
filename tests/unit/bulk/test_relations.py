"""Whole tables through a plan in process, with real worker processes."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gearshift
from gearshift.bulk.operator import Operator
from gearshift.bulk.relations import MOST_IN_FLIGHT
from gearshift.errors import InvalidInput, ModelFailed
from tests.little_task import closed, two_gear_plan, write_little_task

KILLS, FAILS, UNKNOWN, WAITS = 9.0, 666.0, 13.0, 4.0
LONG_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    write_little_task(folder, two_gear_plan)
    return folder


@pytest.fixture(scope="module")
def sums(folder: Path) -> Iterator[Operator]:
    with gearshift.open_operator(folder / "plan.json", label="sum") as operator:
        yield operator


def points(first: list[float]) -> dict[str, np.ndarray]:
    return {"x": np.array([[one, 1.0] for one in first]).reshape(-1, 2)}


def pids(operator: Operator) -> list[int]:
    return [seat.pid for seat in operator._answering._workers.seats]  # type: ignore[attr-defined]


def test_each_row_has_label_certainty_and_outcome(sums):
    made = gearshift.map(points([0, 2, 1]), sums)
    assert made.schema.names == ["x", "label", "certainty", "outcome"]
    assert made["label"].to_pylist() == [1, 3, 2]
    assert made["outcome"].to_pylist() == ["answered"] * 3


def test_a_named_gear_and_another_output_count(folder):
    for gear, answers in ((0, ["large", "small"]), (1, ["small", "small"])):
        made = gearshift.map(points([0, 2]), folder / "plan.json", gear=gear, label="by", workers=1)
        assert made["label"].to_pylist() == answers


@pytest.mark.long
def test_one_bad_row_costs_one_row(sums):
    first = [1.0] * 5000
    first[17], first[2050], first[4000] = FAILS, UNKNOWN, KILLS
    made = gearshift.map(points(first), sums)
    outcomes = made["outcome"].to_pylist()
    assert [i for i, outcome in enumerate(outcomes) if outcome != "answered"] == [17, 2050, 4000]
    assert {outcomes[i] for i in (17, 2050, 4000)} == {"failed"}
    assert made["label"].null_count == made["certainty"].null_count == 3


def test_null_rows_give_null(sums):
    table = pa.table({"x": pa.array([[1.0, 2.0], None, [3.0, 4.0]])})
    answers = gearshift.map(table, sums).select(["label", "certainty", "outcome"]).to_pylist()
    assert answers[1] == {"label": None, "certainty": None, "outcome": None}
    assert [one["label"] for one in answers] == [3, None, 7]


def test_a_table_without_rows_asks_nobody(sums):
    made = gearshift.map(pa.table({"x": pa.array([], pa.list_(pa.float64()))}), sums)
    assert made.schema.names == ["x", "label", "certainty", "outcome"]
    assert len(made) == 0
    nulls = gearshift.map(pa.table({"x": pa.array([None, None], pa.list_(pa.float64()))}), sums)
    assert nulls["label"].to_pylist() == [None, None]


def test_other_columns_stay_and_names_can_be_told(sums):
    table = pa.table({"id": ["a", "b"], "point": [[1.0, 2.0], [3.0, 4.0]], "label": ["p", "q"]})
    made = gearshift.map(table, sums, columns={"x": "point"}, prefix="sum_")
    assert made["id"].to_pylist() == ["a", "b"]
    assert made["sum_label"].to_pylist() == [3, 7]


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ({"y": [1]}, {}, "the table has no column 'x', from which pipeline 'sums' takes input 'x'"),
        ({"x": [[1.0, 2.0]]}, {"columns": {"z": "x"}}, "pipeline 'sums' has no input 'z'; use x"),
        ({"x": [[1.0, 2.0]], "label": [1]}, {}, "the table has a column 'label' already; give another prefix="),
        ({"x": [[1.0, 2.0]]}, {"deadline_s": -1}, "deadline_s is -1"),
        ({"x": ["a"]}, {}, "give numbers"),
    ],
)
def test_tables_that_do_not_fit_are_refused(sums, table, options, said):
    with pytest.raises(InvalidInput, match=said):
        gearshift.map(table, sums, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"label": "price"}, "pipeline 'sums' has no output 'price'; give label=, one of sum, by"),
        ({"pipeline": "other"}, "there is no pipeline 'other'; name one of sums"),
        ({"workers": 0}, "workers is 0"),
        ({"api_key": "k"}, "api_key is given, and no URL"),
    ],
)
def test_plans_that_cannot_be_opened_are_refused(folder, options, said):
    with pytest.raises(InvalidInput, match=said):
        gearshift.map(points([1]), folder / "plan.json", **{"label": "sum", **options})


def test_a_model_that_cannot_be_loaded_is_told(tmp_path):
    """Both workers fail, and the second may while the first one's end is waited for; each is reaped."""
    plan = write_little_task(tmp_path)
    (tmp_path / "task.py").write_text("def small(): raise OSError('no weights')\nlarge = samples = small\n")
    for _ in range(3):
        with pytest.raises(ModelFailed, match="no weights"):
            gearshift.map(points([1]), plan, label="sum", workers=2)
        gc.collect()  # a process that nobody waited for gives a warning here


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_long_relations_are_streamed_with_so_many_chunks_in_flight(sums, monkeypatch, rows):
    """What was taken from the relation is never far ahead of what was answered."""
    monkeypatch.setitem(sums._answering._workers.batch_rows, "small", 2048)
    taken = answered = most = 0
    batch = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(np.ones(2 * 2000), 2)})

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken, most
        for _ in range(rows // 2000):
            taken += 2000
            most = max(most, taken - answered)
            yield batch

    for part in gearshift.query(pa.RecordBatchReader.from_batches(batch.schema, batches()), sums):
        answered += part.num_rows
    assert answered == rows
    assert most <= (MOST_IN_FLIGHT + 3) * 2048


@pytest.mark.long
def test_streams_that_are_not_read_to_the_end_leave_no_worker(folder):
    operator = gearshift.open_operator(folder / "plan.json", label="sum", workers=1)
    (worker,) = pids(operator)
    stream = gearshift.query(points([1.0] * 10_000), operator)
    stream.read_next_batch()
    del operator, stream
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_what_is_cancelled_ends_at_once_and_the_next_is_answered(folder, sums):
    with closed(folder):
        waiting = sums.submit(points([WAITS, 1.0]), 2)
        begun = time.monotonic()
        waiting.cancel()
        with pytest.raises(CancelledError):
            waiting.result()
        assert gearshift.map(points([2.0] * 5000), sums)["label"].to_pylist() == [3.0] * 5000
        assert time.monotonic() - begun < LONG_S


def test_after_the_deadline_rows_are_refused(folder, sums):
    with closed(folder) as open_gate:
        threading.Timer(0.3, open_gate).start()
        made = gearshift.map(points([WAITS] * 6 + [0.0] * 5000), sums, deadline_s=0.05)
    outcomes = made["outcome"].to_pylist()
    assert set(outcomes) <= {"answered", "degraded", "refused"}
    assert outcomes[-1] in ("degraded", "refused")


def test_a_closed_operator_says_so(folder):
    operator = gearshift.open_operator(folder / "plan.json", label="sum", workers=1)
    operator.close()
    operator.close()
    with pytest.raises(InvalidInput, match="pipeline 'sums' was closed"):
        gearshift.map(points([1]), operator)


def test_progress_is_told(folder, sums):
    told: list[tuple[str, float]] = []
    table = pa.table({"x": [[1.0, 2.0]] * 4096})
    gearshift.map(table, sums, progress=lambda what, share: told.append((what, share)))
    assert [one for one in dict.fromkeys(told) if one[1] > 0] == [
        ("2,048 rows answered", 0.5),
        ("4,096 rows answered", 1.0),
    ]


CTRL_C = """
import os, signal, sys
import duckdb, gearshift, numpy as np
x = np.array([[4.0, i] for i in range(5000)])
with gearshift.open_operator(sys.argv[1], label="sum") as operator, duckdb.connect() as connection:
    submit, asked = operator.submit, []
    def interrupted(*arguments):
        asked.append(submit(*arguments))
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)  # handled before the caller gets the future
        return asked[-1]
    operator.submit = interrupted
    try:
        gearshift.map({"x": x}, operator)
    except KeyboardInterrupt:
        print("interrupted")
    print(gearshift.map({"x": np.ones((2, 2))}, operator)["label"].to_pylist(), connection.sql("SELECT 1").fetchall())
"""


@pytest.mark.long
def test_ctrl_c_ends_a_run_at_once_and_the_next_is_answered(folder):
    with closed(folder):
        done = subprocess.run(
            [sys.executable, "-c", CTRL_C, str(folder / "plan.json")],
            capture_output=True, text=True, timeout=LONG_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "interrupted\n[2.0, 2.0] [(1,)]\n"
