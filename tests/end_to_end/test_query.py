"""`gearshift query`: SQL in a file, on a plan in process or on a server."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tests.end_to_end.test_server import serving
from tests.examples.test_documented_commands import free_port
from tests.graph_task import write_graph_plan
from tests.little_task import closed, write_little_task
from tests.often import first_short
from tests.processes import ended
from tests.unit.cli.little import run as verb

LONG_S = 60.0
QUERY = """
CREATE TABLE points AS SELECT i, [i % 2, i]::DOUBLE[] AS x FROM range(3000) r(i);
SELECT i, sums(x).label AS sum, sums(x).outcome AS outcome FROM points WHERE sums_label(x) >= 3 ORDER BY i
"""
EXPECTED = [{"i": i, "sum": float(i + i % 2), "outcome": "answered"} for i in range(2, 3000) if i + i % 2 >= 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    write_little_task(folder)
    (folder / "query.sql").write_text(QUERY)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gearshift", "query", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONG_S, check=False)


@pytest.mark.long
def test_the_result_is_shown_with_the_cascade_that_was_chosen(folder):
    done = run(folder, "query.sql", "--plan", "plan.json", "--label", "sum")
    assert done.returncode == 0, done.stderr
    assert "sums: small <0.5 > large; accuracy 100.0 %" in done.stdout
    assert f"{len(EXPECTED):,} rows, 40 shown; models answered 3,000" in done.stdout
    assert "loading models" in done.stderr


@pytest.mark.long
def test_a_graph_runs_in_process_with_the_cascade_of_each_node(tmp_path):
    write_graph_plan(tmp_path)
    (tmp_path / "query.sql").write_text("SELECT pairs_label([1, 2, 2, 2, 3, 4]) AS text")
    done = run(tmp_path, "query.sql", "--plan", "plan.json", "--label", "text")
    assert done.returncode == 0, done.stderr
    assert "odd even odd 6 14" in done.stdout
    assert "pairs: split split, read read, check check, join join; accuracy not recorded" in done.stdout


@pytest.mark.parametrize("suffix", first_short(["csv", "parquet", "jsonl"]))
def test_the_result_is_written_in_the_format_of_its_name(folder, suffix):
    done = run(folder, "query.sql", "--plan", "plan.json", "--label", "sum", "--out", f"r.{suffix}", "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rows"], told["rows_answered"], told["out"]) == (len(EXPECTED), 3000, f"r.{suffix}")
    path = folder / f"r.{suffix}"
    match suffix:
        case "csv":
            read = csv.read_csv(path)
        case "parquet":
            read = parquet.read_table(path)
        case _:
            read = pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])
    assert read.to_pylist() == EXPECTED


def test_a_server_answers_the_same(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    with serving(tmp_path) as server:
        done = verb("query", "query.sql", "--url", server.url, "--label", "sum", "--json", "-")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["data"] == EXPECTED
    assert told["pipelines"] == {"sums": None}


@pytest.mark.parametrize(
    ("sql", "arguments", "said"),
    first_short(
        [
            (
                "SELECT nope",
                ["--plan", "plan.json"],
                'error: bad.sql: Binder Error: Referenced column "nope" was not found',
            ),
            ("SELECT 1", [], "needs one of --plan and --url"),
            ("-- nothing", ["--plan", "plan.json"], "there is no statement; write a query that ends in a SELECT"),
            (
                "SELECT 1",
                ["--plan", "plan.json", "--out", "r.xlsx"],
                "has the suffix '.xlsx'; use one of .csv, .parquet",
            ),
            ("SELECT 1", ["--url", "http://127.0.0.1:PORT"], "cannot be reached"),
            ("SELECT sums('a')", ["--plan", "plan.json"], "error: the column has type string, and input 'x' is FP64"),
            ("SELECT 1", ["--plan", "plan.json", "--gear", "7"], "gear is 7, the plan has gears 0 to 0"),
        ],
        2,
    ),
)
def test_what_cannot_run_is_one_sentence(folder, monkeypatch, sql, arguments, said):
    (folder / "bad.sql").write_text(sql)
    monkeypatch.chdir(folder)
    done = verb("query", "bad.sql", "--label", "sum", *[each.replace("PORT", free_port()) for each in arguments])
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_ctrl_c_ends_it_while_a_model_runs(folder):
    (folder / "waits.sql").write_text("SELECT sum(sums_label([4.0, i])) FROM range(5000) r(i)")
    with closed(folder):
        command = [sys.executable, "-m", "gearshift", "query", "waits.sql", "--plan", "plan.json", "--label", "sum"]
        with ended(subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)) as query:
            assert query.stderr is not None
            assert "loading models" in query.stderr.readline()
            assert "0 rows answered" in query.stderr.readline()  # after some seconds of the query
            query.send_signal(signal.SIGINT)
            assert query.wait(LONG_S) == 130
            assert query.stderr.read().endswith("interrupted\n")
