"""A plan served and simulated at once, and what is said of the two."""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from gearshift.clock import WallClock
from gearshift.errors import InvalidInput
from gearshift.objective import Objective
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import write_profile
from gearshift.reporting.shown import shown_of
from gearshift.serving.operate.control_client import Operator
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from gearshift.verbs.common.inputs import plan_and_profiles
from gearshift.verbs.rows.replay import source_of
from gearshift.verbs.rows.validate import Errors, Validation, server_began_ns
from gearshift.verbs.validate import validate
from tests.little_task import PROJECT, little_plan, little_profile, under_other_names, write_little_task
from tests.unit.cli.little import run

ANY = "1000000"
"""Milliseconds that no generator is late."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    write_little_task(folder)
    write_trace(steady(100, 1, seed=1), folder / "t.csv")
    return folder


@pytest.fixture(scope="module")
def validation(made: Path) -> Validation:
    return validate(made / "plan.json", made / "t.csv", backend="emulated", largest_lateness_s=1000.0)


def test_what_was_sent_is_simulated_and_told_on_the_clock_of_the_replay(validation: Validation) -> None:
    run, workload = validation.replay, validation.simulation.workload
    order = np.argsort(run.log.sent_s, kind="stable")
    assert workload.record.tolist() == run.log.record[order].tolist()
    np.testing.assert_array_equal(workload.arrivals_ns, np.rint(1e9 * run.log.sent_s[order]))
    assert workload.duration_s == pytest.approx(1.0)
    assert validation.predicted.requests == validation.measured.requests == len(run.log)


@pytest.mark.long
def test_a_pipeline_under_another_name_than_its_operators_is_served_and_asked(made: Path) -> None:
    write_plan(under_other_names(read_plan(made / "plan.json")), made / "shop.json")
    run = validate(made / "shop.json", made / "t.csv", backend="emulated", largest_lateness_s=1000.0)
    assert run.measured.requests == run.predicted.requests > 50
    assert run.measured.share_refused == 0


def test_a_report_draws_predicted_and_measured_load_at_the_same_seconds(made: Path, validation: Validation) -> None:
    plan, profiles = plan_and_profiles(made / "plan.json")
    runs = [("gear plan", validation.simulation)], [("gear plan", validation.replay)]
    shown = shown_of(plan, profiles["sums"], simulations=runs[0], replays=runs[1])
    predicted, measured = shown.runs
    assert predicted.course is not None
    assert measured.course is not None
    assert predicted.course.seconds == measured.course.seconds
    assert predicted.course.load_qps == measured.course.load_qps


def test_what_the_generator_is_late_is_part_of_both_latencies(validation: Validation) -> None:
    log, simulation = validation.replay.log, validation.simulation
    order = np.argsort(log.sent_s, kind="stable")
    waited_s = (simulation.finished_ns - simulation.workload.arrivals_ns) / 1e9
    assert simulation.latency_s == pytest.approx(waited_s + log.lateness_s[order])
    assert validation.measured.latency_s.mean == pytest.approx((log.answered_s - log.due_s).mean())
    assert log.lateness_s.min() >= 0


def test_when_a_servers_clock_began_is_told_by_its_quickest_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock(origin_ns=time.monotonic_ns() - 5_000_000_000)
    waits_s = iter((0.3, 0.0, 0.3, 0.3, 0.3))

    def status(_: Operator) -> SimpleNamespace:
        uptime_s = clock.now_ns() / 1e9
        time.sleep(next(waits_s))
        return SimpleNamespace(uptime_s=uptime_s)

    monkeypatch.setattr(Operator, "status", status)
    assert abs(server_began_ns("http://127.0.0.1:9") - clock.origin_ns) < 100_000_000


def test_errors_are_positive_where_too_much_was_predicted(validation: Validation) -> None:
    predicted, measured, errors = validation.predicted, validation.measured, validation.errors
    for name in ("p50", "p95", "p99"):
        ratio = getattr(predicted.latency_s, name) / getattr(measured.latency_s, name)
        assert getattr(errors, name) == pytest.approx(ratio - 1)
    assert errors.share_late == predicted.share_late - measured.share_late
    assert errors.accuracy == predicted.accuracy - measured.accuracy == 0
    assert set(errors.models) == {"small", "large"}
    assert [model.samples_per_request for model in errors.models.values()] == [0, 0]
    assert validation.replay.runs["small"].samples == measured.requests


@pytest.mark.long
def test_server_and_simulation_refuse_as_much_of_what_is_too_much(tmp_path: Path) -> None:
    slow = little_profile()
    curves = tuple(msgspec.structs.replace(c, median_s=tuple(40 * s for s in c.median_s)) for c in slow.curves)
    profile = write_profile(replace(slow, curves=curves), tmp_path / "profile")
    plan = little_plan(profile.sha256)
    operator = msgspec.structs.replace(plan.pipelines["sums"], objective=Objective(latency_s=2.0))
    write_plan(msgspec.structs.replace(plan, pipelines={"sums": operator}), tmp_path / "plan.json")
    run = validate(tmp_path / "plan.json", steady(120, 4, seed=2), backend="emulated", largest_lateness_s=1000.0)
    assert run.predicted.share_refused > 0.3
    assert abs(run.errors.share_refused) < 0.03
    assert run.measured.latency_s.p95 < 2.0


def test_no_answer_comes_sooner_than_any_in_the_simulation(validation: Validation) -> None:
    """Sockets take time, and the simulation of these records has none."""
    log, simulation = validation.replay.log, validation.simulation
    simulated_s = (simulation.finished_ns - simulation.workload.arrivals_ns) / 1e9
    assert (log.answered_s - log.sent_s).min() > simulated_s.min()


def test_bounds_hold_in_both_directions(validation: Validation) -> None:
    def broken(p95: float, late: float, accuracy: float) -> list[str]:
        errors = Errors(
            p50=9, p95=p95, p99=9, share_late=late, share_degraded=0, share_refused=0, accuracy=accuracy, models={}
        )
        made = Validation(
            predicted=validation.predicted, measured=validation.measured, errors=errors,
            split=validation.split, overheads=validation.overheads,
            simulation=validation.simulation, replay=validation.replay,
        )  # fmt: skip
        return made.broken(within=0.05, within_points=0.01)

    assert broken(0.05, -0.01, 0.01) == []
    assert broken(-0.06, 0, 0) == ["p95 is off by -6.0 %"]
    assert broken(0.06, 0.02, -0.02) == [
        "p95 is off by +6.0 %",
        "the share late is off by +2.00 points",
        "accuracy is off by -2.00 points",
    ]
    assert validation.broken(within=None, within_points=None) == []


# The command line ----------------------------------------------------------------------------------------------------


def verb(made: Path, *arguments: str) -> tuple[int, dict[str, object], str]:
    """Exit code, JSON and what people are told."""
    done = run(*arguments, "--trace", made / "t.csv", "--largest-lateness-ms", ANY, "--json", made / "out.json")
    return done.exit_code, json.loads((made / "out.json").read_text()), done.stdout


def test_validate_prints_signed_errors_and_ends_with_0_where_no_bound_is_broken(made: Path) -> None:
    bounds = ["--within", "100%", "--within-points", "100"]
    code, content, told = verb(made, "validate", str(made / "plan.json"), "--backend", "emulated", *bounds)
    assert code == 0
    assert content.keys() == {
        *(
            "predicted",
            "measured",
            "errors",
            "split",
            "overheads",
            "lateness_s",
            "failed",
            "valid",
            "why_invalid",
            "warnings",
        ),
    }
    assert content["valid"] is True
    assert "predicted too much" in told
    assert max(len(line) for line in told.splitlines()) <= 130


def test_a_bound_that_is_broken_has_an_exit_code_of_its_own(made: Path) -> None:
    plan = str(made / "plan.json")
    code, _, told = verb(made, "validate", plan, "--backend", "emulated", "--within", "0.0001%")
    assert code == 5
    assert "not within: p95 is off by " in told


@pytest.mark.parametrize("option", ["--within=no", "--within=-5%", "--within=nan%", "--within-points=0"])
def test_a_bound_that_is_none_is_refused(made: Path, option: str) -> None:
    done = run("validate", made / "plan.json", "--trace", made / "t.csv", option)
    assert done.exit_code == 2
    assert f"{option.split('=', maxsplit=1)[0]} is" in done.stderr


def test_a_plan_is_replayed_within_the_process_without_sockets(made: Path) -> None:
    code, content, told = verb(
        made, "replay", str(made / "plan.json"), "--emulated", "--log", str(made / "log.csv"), "--slo-ms", "1000"
    )
    assert code == 0
    assert content["accuracy"] == 1
    assert content["devices"] == 1
    assert content["models"].keys() == {"small", "large"}  # type: ignore[attr-defined]
    assert "us of processor a request" in told
    rows = [row.split(",") for row in (made / "log.csv").read_text().splitlines()[1:]]
    assert len(rows) == content["requests"]
    assert {(row[7], row[8]) for row in rows} == {("small", "0"), ("large", "1")}


def test_a_plan_within_the_process_gets_its_requests_over_a_network(made: Path) -> None:
    (made / "network.log").write_text("9 1000 51.0 3.7 1000000 1000\n")
    network = ["--network", str(made / "network.log"), "--request-kb", "300", "--slo-ms", "10000"]
    _, passed, _ = verb(made, "replay", str(made / "plan.json"), "--emulated", *network, "--deadline-ms", "200")
    assert passed["share_refused"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "--emulated"],
        pytest.param(["validate", "--backend", "emulated"], marks=pytest.mark.long),
    ],
)
def test_a_measurement_that_is_not_valid_has_an_exit_code_of_its_own(made: Path, arguments: list[str]) -> None:
    name, *options = arguments
    done = run(
        name, made / "plan.json", *options, "--trace", made / "t.csv", "--largest-lateness-ms", "0.000001",
        "--json", made / "out.json",
    )  # fmt: skip
    assert done.exit_code == 4
    assert "not valid: the generator sent" in done.stdout
    assert json.loads((made / "out.json").read_text())["valid"] is False


def test_what_is_neither_a_plan_nor_a_url_is_refused(made: Path) -> None:
    done = run("replay", "127.0.0.1:8000", "--trace", made / "t.csv")
    assert done.exit_code == 2
    assert "127.0.0.1:8000: is neither a plan file nor a URL; give http://HOST:PORT" in done.stderr


def test_a_key_is_read_from_its_file_and_told_nobody(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (made / "keys.txt").write_text("# of the generator\nsecret-key\nanother\n")
    done = run(
        "replay", "http://127.0.0.1:9", "--trace", made / "t.csv", "--profile", made / "profile", "--emulated",
        "--key-file", made / "keys.txt", "--json", "-",
    )  # fmt: skip
    assert done.exit_code == 2
    assert "cannot be reached" in done.stderr
    assert "secret" not in done.output
    monkeypatch.setenv("GEARSHIFT_KEY_FILE", str(made / "nowhere"))
    done = run("replay", "http://127.0.0.1:9", "--trace", made / "t.csv")
    assert "nowhere: cannot be read" in done.stderr


# Samples -------------------------------------------------------------------------------------------------------------


def test_samples_without_labels_are_judged_by_what_the_strongest_model_answered(tmp_path: Path) -> None:
    (tmp_path / "gearshift.toml").write_text(PROJECT)
    task = "import gearshift, numpy as np\ndef samples():\n    return gearshift.Samples({'x': np.zeros((10, 2))})\n"
    (tmp_path / "task.py").write_text(task)
    source = source_of(little_profile(), tmp_path, project=tmp_path, emulated=False)
    assert [source.label(3), source.label(4)] == ["large-3", "large-4"]


def test_an_imported_profile_names_the_way_to_replay_it() -> None:
    imported = Profile(
        operator="sums", curves=little_profile().curves, predictions=little_profile().predictions, project=None
    )
    with pytest.raises(InvalidInput, match=r"imported and names no project.*--emulated"):
        source_of(imported, Path(), project=None, emulated=False)


# Deadlines of a trace ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate",),
        ("replay", "--emulated", "--largest-lateness-ms", ANY),
        ("validate", "--backend", "emulated", "--largest-lateness-ms", ANY),
    ],
)
def test_deadlines_of_a_trace_decide_in_simulation_and_served(made: Path, arguments: tuple[str, ...]) -> None:
    """Half of the requests want their answer sooner than any model has one."""
    rows = "".join(f"{0.02 * i:.2f},{'0.0001' if i % 2 else '5'}\n" for i in range(50))
    (made / "deadlines.csv").write_text("arrival_s,deadline_s\n" + rows)
    name, *options = arguments
    out = made / "deadlines.json"
    done = run(name, made / "plan.json", "--trace", made / "deadlines.csv", *options, "--json", out)
    assert done.exit_code == 0, done.output
    told = json.loads(out.read_text())
    for result in (told["predicted"], told["measured"]) if name == "validate" else (told,):
        assert result["share_refused"] == result["share_late"] == 0.5
