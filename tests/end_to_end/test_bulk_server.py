"""Whole tables at a running server, by its URL."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gearshift
from gearshift.bulk.operator import Operator
from gearshift.client.client import Client
from gearshift.errors import InvalidInput, NoAccess, NoAnswer, UnknownModel
from tests.end_to_end.test_server import LONGEST_S, PAUSE_S, Server, get, serving
from tests.examples.test_documented_commands import free_port
from tests.little_task import closed, two_gear_plan

FAILS, WAITS = 666.0, 4.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("task")


@pytest.fixture(scope="module")
def server(folder) -> Iterator[Server]:
    with serving(folder) as server:
        yield server


@pytest.fixture(scope="module")
def sums(server) -> Iterator[Operator]:
    with gearshift.open_operator(server.url, label="by") as operator:
        yield operator


def test_rows_are_answered_as_by_the_plan(server):
    table = {"x": np.array([[1.0, 2], [0, 4]])}
    made = gearshift.map(table, server.url, "sums", label="sum")
    assert made.select(["label", "certainty", "outcome"]).to_pylist() == [
        {"label": 3, "certainty": 1, "outcome": "answered"},
        {"label": 4, "certainty": 1, "outcome": "answered"},
    ]


def test_one_bad_row_costs_one_row(sums):
    x = np.ones((1000, 2))
    x[3, 0], x[555, 0], x[777, 1] = FAILS, FAILS, np.nan  # the server refuses NaN before a model sees it
    outcomes = gearshift.map({"x": x}, sums)["outcome"].to_pylist()
    assert {i: outcome for i, outcome in enumerate(outcomes) if outcome != "answered"} == {
        3: "failed",
        555: "failed",
        777: "failed",
    }


def test_null_rows_and_tables_without_rows_are_not_sent(server, sums):
    def received() -> str:
        return next(line for line in get(server, "/metrics")[1].splitlines() if line.startswith("gearshift_requests"))

    before = received()
    empty = pa.array([None, None], pa.list_(pa.float64()))
    assert gearshift.map(pa.table({"x": empty}), sums)["label"].to_pylist() == [None, None]
    assert len(gearshift.map(pa.table({"x": empty.slice(0, 0)}), sums)) == 0
    assert received() == before


def test_rows_that_would_be_late_are_refused(folder, server, sums):
    with closed(folder):
        made = gearshift.map({"x": np.array([[WAITS, 1.0]])}, sums, deadline_s=0.2)
    assert made["outcome"].to_pylist() == ["refused"]
    assert made["label"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 2}, "workers is given, and the models are those of a server"),
        ({"label": "by", "gear": 1}, "gear is 1, the plan has gear 0 alone"),
        ({"label": "by", "accuracy": 0.9}, "no gear of the plan reaches accuracy 0.9: the plan predicts none"),
        ({"label": "label"}, "pipeline 'sums' has no output 'label'; give label=, one of sum, by"),
    ],
)
def test_what_a_server_does_not_do_is_refused(server, options, said):
    with pytest.raises(InvalidInput, match=said):
        gearshift.map({"x": [[1.0, 2.0]]}, server.url, **options)


def test_servers_that_are_not_there_or_serve_something_else_are_told(server, tmp_path):
    with pytest.raises(NoAnswer, match=r"cannot be reached .*is the server running"):
        gearshift.map({"x": [[1.0, 2.0]]}, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(UnknownModel, match="other"):
        gearshift.map({"x": [[1.0, 2.0]]}, server.url, "other")


def test_a_key_is_sent(tmp_path):
    (tmp_path / "keys").write_text("a-secret-of-the-client\n")
    with serving(tmp_path, api_keys=str(tmp_path / "keys")) as server:
        table = {"x": [[1.0, 2.0]]}
        made = gearshift.map(table, server.url, "sums", label="sum", api_key="a-secret-of-the-client")
        assert made["label"].to_pylist() == [3]
        with pytest.raises(NoAccess):
            gearshift.map(table, server.url, "sums", label="sum")


def test_a_server_that_goes_away_ends_the_query_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("gearshift.bulk.server.LONGEST_AWAY_S", 0.5)
    with serving(tmp_path) as server, gearshift.open_operator(server.url, label="sum") as operator:
        stream = gearshift.query({"x": np.ones((100_000, 2))}, operator)
        stream.read_next_batch()
        server.process.kill()
        server.process.wait()
        with pytest.raises(NoAnswer):
            stream.read_all()


# Beside online requests -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_gears(tmp_path_factory) -> Iterator[Server]:
    """Gear 1, from 50 requests/s on, is `small` alone; gear 0 goes on to `large`."""
    settings = {"make_plan": two_gear_plan, "most_waiting_requests": 200}
    with serving(tmp_path_factory.mktemp("task"), **settings) as server:
        yield server


def test_bulk_work_keeps_its_tuple_and_moves_no_gear(two_gears):
    table = {"x": np.zeros((2000, 2))}  # of which `small` is certain of none
    labels = {gear: gearshift.map(table, two_gears.url, label="by", gear=gear)["label"] for gear in (0, 1)}
    assert {gear: set(column.to_pylist()) for gear, column in labels.items()} == {0: {"large"}, 1: {"small"}}
    status = json.loads(get(two_gears, "/v2/gearshift/status")[1])
    assert (status["gear"], status["load"], status["rate_qps"]) == (0, 0.0, 0.0)
    lines = get(two_gears, "/metrics")[1].splitlines()
    assert 'gearshift_bulk_rows_total{operator="sums",outcome="answered"} 4000.0' in lines
    assert 'gearshift_requests_total{operator="sums",outcome="answered"} 0.0' in lines


def test_an_online_request_is_answered_before_bulk_work_that_came_first(two_gears):
    table = {"x": np.array([[WAITS, 1.0]] + [[1.0, 1.0]] * 3000)}
    with (
        closed(two_gears.folder) as let_go,
        ThreadPoolExecutor() as threads,
        Client(two_gears.url, "sums") as client,
    ):
        bulk = threads.submit(gearshift.map, table, two_gears.url, label="by", gear=1)
        while bulk_rows(two_gears) == 0:
            time.sleep(PAUSE_S)
        online = threads.submit(client.infer, {"x": [[1.0, 2.0]]})
        while json.loads(get(two_gears, "/v2/gearshift/status")[1])["waiting"] == 0:
            time.sleep(PAUSE_S)
        let_go()
        assert online.result(LONGEST_S).outputs["sum"].tolist() == [3.0]
        assert not bulk.done()
        assert bulk.result(LONGEST_S)["outcome"].unique().to_pylist() == ["answered"]


def test_bulk_work_waits_for_room_and_goes_on_or_ends_at_its_deadline(two_gears, monkeypatch):
    monkeypatch.setattr("gearshift.bulk.relations.TELL_EVERY_S", 0.02)
    more_than_fits, told = {"x": np.array([[WAITS, 1.0]] * 500)}, list[str]()
    with closed(two_gears.folder) as let_go, ThreadPoolExecutor() as threads:
        bulk = threads.submit(
            gearshift.map,
            more_than_fits,
            two_gears.url,
            label="by",
            gear=1,
            progress=lambda what, share: told.append(what),
        )
        while not any("no room" in what for what in told):
            time.sleep(PAUSE_S)
        late = gearshift.map({"x": np.ones((10, 2))}, two_gears.url, label="by", gear=1, deadline_s=0.3)
        assert late["outcome"].unique().to_pylist() == ["refused"]
        let_go()
        assert bulk.result(LONGEST_S)["outcome"].unique().to_pylist() == ["answered"]


@pytest.mark.long
def test_bulk_work_that_waits_for_long_is_asked_again_and_keeps_its_deadline(two_gears, monkeypatch):
    def withdrawn() -> int:
        lines = get(two_gears, "/metrics")[1].splitlines()
        return sum(float(line.split()[1]) for line in lines if "bulk_rows_total" in line and "cancelled" in line)

    before = withdrawn()
    with closed(two_gears.folder) as let_go, ThreadPoolExecutor() as threads:
        monkeypatch.setattr("gearshift.bulk.server.LONGEST_CALL_S", 0.5)
        waits = {"x": np.array([[WAITS, 1.0]])}
        bulk = threads.submit(gearshift.map, waits, two_gears.url, label="by", gear=1, deadline_s=LONGEST_S)
        while withdrawn() == before:
            time.sleep(PAUSE_S)
        monkeypatch.undo()
        let_go()
        assert bulk.result(LONGEST_S)["outcome"].to_pylist() == ["answered"]


@pytest.mark.long
def test_front_ends_pass_bulk_work_on(tmp_path):
    with serving(tmp_path, make_plan=two_gear_plan, front_ends=2) as server:
        made = gearshift.map({"x": np.zeros((300, 2))}, server.url, label="by", gear=1)
        assert set(made["label"].to_pylist()) == {"small"}
        with pytest.raises(UnknownModel, match="gear is 7, the plan has gears 0 to 1"):
            gearshift.map({"x": np.zeros((300, 2))}, server.url, label="by", gear=7)


def bulk_rows(server: Server) -> int:
    """Rows of bulk work that are open."""
    return json.loads(get(server, "/v2/gearshift/status")[1])["open_requests"]
