"""Two pipelines of one plan, served with a trace each and simulated at once."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET

from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from gearshift.verbs.replay import replay
from gearshift.verbs.rows.validate import Validation
from gearshift.verbs.validate import validate
from tests.two_tasks import refined, write_two_tasks
from tests.unit.cli.little import run

pytestmark = pytest.mark.long

ANY = "1000000"
"""Milliseconds that no generator is late."""
QPS = {"sums": 100.0, "numbers": 20.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_two_tasks(folder, edge_qps=1e6)
    for number, (name, qps) in enumerate(QPS.items()):
        write_trace(steady(qps, 2, seed=number), folder / f"{name}.csv")
    return folder


@pytest.fixture(scope="module")
def validated(made: Path) -> dict[str, Validation]:
    traces = {name: made / f"{name}.csv" for name in QPS}
    return validate(made / "plan.json", traces, backend="emulated", largest_lateness_s=1000.0)


def test_each_pipeline_is_predicted_and_measured_by_its_own_requests(validated: dict[str, Validation]) -> None:
    for name, one in validated.items():
        assert one.predicted.requests == one.measured.requests == len(one.replay.log)
        assert one.measured.requests == pytest.approx(2 * QPS[name], rel=0.4)
        assert one.errors.accuracy == pytest.approx(0.0)
        assert one.simulation.workload.record.tolist() == sorted_records(one)
        assert one.predicted.latency_s.p50 > 0
    assert list(validated["sums"].errors.models) == ["large", "small"]
    assert list(validated["numbers"].errors.models) == ["net"]
    assert validated["numbers"].errors.models["net"].samples_per_request == 0


def sorted_records(one: Validation) -> list[int]:
    log = one.replay.log
    return log.record[log.sent_s.argsort(kind="stable")].tolist()


def test_the_load_of_one_is_in_the_latency_of_the_other(made: Path, validated: dict[str, Validation]) -> None:
    """Both share a device, so that `sums` waits for batches of `net`, which take 24 ms and more."""
    alone = replay(made / "plan.json", {"sums": made / "sums.csv"}, model="sums", emulated=True)
    assert list(alone) == ["sums"]
    assert alone["sums"].result.latency_s.p95 < validated["sums"].measured.latency_s.p95
    assert validated["sums"].predicted.latency_s.p95 > 0.02


def test_the_command_tells_both_and_names_what_is_not_within(made: Path) -> None:
    traces = [option for name in QPS for option in ("--trace", f"{name}={made / name}.csv")]
    options = ("--backend", "emulated", "--largest-lateness-ms", ANY, "--duration-s", "1")
    done = run("validate", made / "plan.json", *traces, *options, "--within", "0.001%", "--json", made / "told.json")
    assert done.exit_code == 5, done.output
    assert "not within: numbers: p95 is off by" in done.output
    told = json.loads((made / "told.json").read_text())["pipelines"]
    assert {name: one["measured"]["requests"] > 0 for name, one in told.items()} == {"sums": True, "numbers": True}


def test_a_replay_tells_each_pipeline_and_one_is_named_by_model(made: Path) -> None:
    traces = [option for name in QPS for option in ("--trace", f"{name}={made / name}.csv")]
    options = ("--emulated", "--largest-lateness-ms", ANY, "--duration-s", "1", "--json", "-")
    both = json.loads(run("replay", made / "plan.json", *traces, *options).stdout)["pipelines"]
    assert list(both) == ["sums", "numbers"]
    one = json.loads(run("replay", made / "plan.json", *traces[:2], "--model", "sums", *options).stdout)["pipelines"]
    assert list(one) == ["sums"]
    assert one["sums"]["requests"] == both["sums"]["requests"]
    wrong = run("replay", made / "plan.json", "--trace", f"other={made}/sums.csv", *options)
    assert (wrong.exit_code, "names none of sums, numbers" in wrong.output) == (2, True)
    many = run("replay", made / "plan.json", *traces, *options, "--processes", "2")
    assert (many.exit_code, "sent by one process" in many.output) == (2, True)


def test_pipelines_that_refine_are_served_as_they_are_predicted(made: Path) -> None:
    """The latency leaves time for all rows, so that which model answers does not go by how fast the machine is."""
    write_plan(refined(read_plan(made / "plan.json")), made / "refined.json")
    traces = {name: made / f"{name}.csv" for name in QPS}
    found = validate(made / "refined.json", traces, backend="emulated", largest_lateness_s=1000.0)
    assert list(found["sums"].errors.models) == ["large", "small"]
    for one in found.values():
        assert one.predicted.share_by_time == 0
        assert one.measured.share_by_time is UNSET, "no answer was given by time"
        assert one.errors.accuracy == pytest.approx(0.0)
        assert all(error.samples_per_request == 0 for error in one.errors.models.values())
