"""A graph, replayed and validated: predicted and measured by the items that each recorded request visits."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from gearshift.verbs.replay import replay
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from tests.end_to_end.test_server import Server
from tests.graph_task import REQUESTS, recorded_quality, write_recorded_graph
from tests.often import first_short
from tests.unit.cli.little import run

ANY = "1000000"
"""Milliseconds that no generator is late."""
ANY_S = 1000.0
QUALITY = np.array([recorded_quality(request) for request in REQUESTS])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    write_trace(steady(40, 2, seed=1), folder / "trace.csv")
    write_recorded_graph(folder, trace="trace.csv")
    return folder


@pytest.fixture(scope="module")
def server(made: Path) -> Iterator[Server]:
    server = Server(made / "plan.json", "local", {"grpc_port": 0})
    try:
        said = server.until_it_says(r"serving pairs at (http://\S+) and grpc://(\S+) \(4 replicas on 2 devices\)")
        server.url, server.grpc = said[1], said[2]
        yield server
    finally:
        server.process.kill()
        server.wait()


def test_records_have_right_and_wrong_requests() -> None:
    assert QUALITY.tolist() == [1, 0, 0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("emulated", [False, True])
def test_whole_requests_are_judged_by_the_items_that_they_visit(made: Path, emulated: bool) -> None:
    done = replay(made / "plan.json", emulated=emulated, largest_lateness_s=ANY_S)
    assert set(done.log.record.tolist()) == {1, 3, 5, 7}, "part B"
    assert done.log.quality.tolist() == QUALITY[done.log.record].tolist()
    assert done.result.share_refused == done.failed == 0


@pytest.mark.parametrize("way", first_short(["http", "grpc", "binary", "two processes"], 2))
def test_a_server_s_answers_are_judged_alike_whatever_the_way(made: Path, server: Server, way: str) -> None:
    url = f"grpc://{server.grpc}" if way == "grpc" else server.url
    processes = 2 if way == "two processes" else 1
    done = replay(
        url,
        made / "trace.csv",
        made / "profile",
        largest_lateness_s=ANY_S,
        binary=way == "binary",
        processes=processes,
    )
    assert done.log.quality.tolist() == QUALITY[done.log.record].tolist()
    assert len(done.log) > 40


@pytest.mark.long
def test_a_trace_by_name_finds_the_pipeline_in_the_folder_of_profiles(made: Path, server: Server) -> None:
    done = replay(server.url, {"pairs": made / "trace.csv"}, profile=made / "profile", largest_lateness_s=ANY_S)
    assert done["pairs"].log.quality.tolist() == QUALITY[done["pairs"].log.record].tolist()


def test_samples_other_than_the_recorded_are_refused(tmp_path: Path) -> None:
    write_trace(steady(40, 1, seed=1), tmp_path / "trace.csv")
    plan, task = write_recorded_graph(tmp_path, trace="trace.csv"), tmp_path / "task.py"
    task.write_text(
        task.read_text() + "\ndef samples():\n    import gearshift\n    return gearshift.Samples(np.ones((2, 6)))\n"
    )
    done = run("replay", plan)
    assert (done.exit_code, "pipeline 'pairs' has 2 samples, and 8 were recorded" in done.output) == (2, True)
    (tmp_path / "profile" / "pairs" / "tuples.csv").unlink()
    done = run("validate", plan)
    assert (done.exit_code, "pipeline 'pairs' has no joint records" in done.output) == (2, True)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["emulated", "local"])
def test_a_graph_is_predicted_and_measured_by_the_same_items(made: Path, backend: str) -> None:
    one: Validation = validate(made / "plan.json", backend=backend, largest_lateness_s=ANY_S)  # type: ignore[arg-type]
    record = one.simulation.workload.record
    assert one.predicted.requests == one.measured.requests == len(record)
    assert one.predicted.accuracy == one.measured.accuracy == pytest.approx(QUALITY[record].mean())
    assert {model: error.samples_per_request for model, error in one.errors.models.items()} == pytest.approx(
        dict.fromkeys(("split", "read", "check", "join"), 0.0)
    )
    assert one.predicted.latency_s.p50 > 0.003
    assert one.measured.latency_s.p50 > 0.001


@pytest.mark.long
def test_the_command_tells_a_graph_as_any_pipeline(made: Path) -> None:
    options = ("--backend", "emulated", "--largest-lateness-ms", ANY, "--duration-s", "1", "--json", made / "told.json")
    done = run("validate", made / "plan.json", *options, "--within-points", "0.1")
    assert done.exit_code == 0, done.output
    told = json.loads((made / "told.json").read_text())
    assert told["errors"]["accuracy"] == 0
    assert told["predicted"]["requests"] == told["measured"]["requests"] > 20
