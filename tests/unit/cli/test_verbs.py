import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import gearshift.cli.main
from gearshift.cli.common.tables import results_table
from gearshift.cli.main import VERBS, main_group
from gearshift.errors import InvalidInput
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import write_profile
from gearshift.result import LatencySummary
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from gearshift.verbs.common.inputs import workload_of
from gearshift.verbs.planning.hardware import profiled_devices
from tests.unit.cli.little import planned_in, run
from tests.worlds import synthetic_profile

RESULT_NAMES = {
    "accuracy",
    "accuracy_interval",
    "latency_s",
    "share_late",
    "share_refused",
    "goodput_qps",
    "requests",
    "devices",
    "utilisation",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile, a trace and a plan."""
    folder = tmp_path_factory.mktemp("with a space")
    return planned_in(folder, "--ranges", 4, "--json", folder / "planned.json")


def test_every_verb_has_help_that_names_json() -> None:
    for verb in VERBS:
        command = main_group.get_command(click.Context(main_group), verb)
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        for part in parts:
            assert "--json" in run(*filter(None, (verb, part)), "--help").output


def test_plan_reports_under_the_agreed_names(made: Path) -> None:
    planned = json.loads((made / "planned.json").read_text())
    assert {"planner", "planning_s", "objective", "devices", "predicted"} <= planned.keys()
    assert planned["predicted"].keys() >= RESULT_NAMES


def test_a_plan_names_its_profile_relative_to_itself(made: Path) -> None:
    plan = read_plan(made / "plan.json")
    assert (plan.profile.path, plan.trace.path) == ("profile", "t.csv")
    assert plan.pipelines["task"].objective.latency_s == 0.1


def test_json_to_standard_output_leaves_nothing_else_there(made: Path) -> None:
    done = run("simulate", made / "plan.json", "--trace", made / "t.csv", "--json", "-")
    result = json.loads(done.stdout)
    assert result.keys() >= RESULT_NAMES
    assert result["latency_s"].keys() == {"mean", "p50", "p95", "p99"}
    assert result["share_late"] <= 0.05


def test_simulation_over_a_network_counts_latency_from_sending(made: Path) -> None:
    log = made / "lte.log"
    log.write_text("".join(f"0 {1000 * i} 51 3 1000000 1000\n" for i in range(1, 61)))
    found = {}
    by_network = ["--network", log, "--request-kb", 100, "--slo-ms"]  # which takes 100 ms
    for name, network in (("near", []), ("far", [*by_network, 180]), ("never", [*by_network, 90])):
        run("simulate", made / "plan.json", "--trace", made / "t.csv", *network, "--json", made / f"{name}.json")
        found[name] = json.loads((made / f"{name}.json").read_text())
    assert found["far"]["share_late"] == 0
    assert found["never"]["share_late"] == 1
    assert found["far"]["latency_s"]["p50"] == pytest.approx(found["near"]["latency_s"]["p50"] + 0.1, abs=0.02)
    assert found["far"]["requests"] == found["near"]["requests"]


def test_inspect_prints_a_plan_and_a_profile(made: Path) -> None:
    assert "Gears of task" in run("inspect", made / "plan.json").output
    assert "m2" in run("inspect", made / "profile").output


def test_report_writes_a_page(made: Path) -> None:
    done = run("report", made / "plan.json", "--trace", made / "t.csv", "--out", made / "r.html")
    assert done.exit_code == 0, done.output
    assert (made / "r.html").read_text().startswith("<!doctype html>")


def test_doctor_counts_cores() -> None:
    assert json.loads(run("doctor", "--json", "-").stdout)["cores"] >= 1


@pytest.mark.long
def test_doctor_compiles_the_simulator_into_the_cache(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "gearshift", "doctor", "--warm"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compiling the simulator of refinement" in done.stderr
    assert list(tmp_path.rglob("*.nbc"))


def test_init_does_not_overwrite(tmp_path: Path) -> None:
    assert run("init", tmp_path).exit_code == 0
    again = run("init", tmp_path)
    assert again.exit_code == 2
    assert "there is such a file already; choose another folder" in again.stderr


@pytest.mark.long
def test_an_infeasible_objective_exits_with_3_and_names_a_feasible_one(made: Path, tmp_path: Path) -> None:
    def plan(p95_ms: float) -> Result:
        return run(
            "plan", made / "profile", "--trace", made / "t.csv", "--p95-ms", p95_ms, "--ranges", 1,
            "--rate-scale", 10, "--out", tmp_path / "plan.json", "--json", tmp_path / "error.json",
        )  # fmt: skip

    done = plan(0.7)  # m0 alone takes 0.6
    assert done.exit_code == 3
    assert not (tmp_path / "plan.json").exists()
    error: dict[str, Any] = json.loads((tmp_path / "error.json").read_text())["error"]
    assert error["kind"] == "infeasible"
    assert error["bottleneck"] == "m0"
    assert error["load_range"]
    assert f"--p95-ms {error['nearest_latency_s'] * 1e3:.4g}" in done.stderr
    assert plan(error["nearest_latency_s"] * 1e3).exit_code == 0


BAD: dict[str, tuple[list[str], str]] = {
    "no objective": (
        ["plan", "profile", "--trace", "t.csv"],
        "no objective is given; give --p95-ms, --accuracy or --frontier",
    ),
    "two objectives": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "5", "--latency-ms", "5"],
        "--p95-ms and --latency-ms are both given",
    ),
    "confidence alone": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "5", "--confidence", "0.9"],
        "--confidence is given without --accuracy; give both",
    ),
    "no such devices": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "5", "--devices", "four.json"],
        "four.json: no such file",
    ),
    "negative objective": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "-5"],
        "--p95-ms is -5; give a positive number of milliseconds",
    ),
    "no memory": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "50", "--memory-gib", "0"],
        "--memory-gib is 0; give a positive number of GiB",
    ),
    "network without a size": (
        ["simulate", "plan.json", "--trace", "t.csv", "--network", "lte.log"],
        "one of --network and --request-kb is missing; give both, or neither",
    ),
    "moved profile": (
        ["simulate", "plan.json", "--trace", "t.csv", "--profile", "nowhere"],
        "nowhere: there is no such profile folder; name the folder of the plan's profile with --profile",
    ),
    "moved profile of a server": (
        ["serve", "plan.json", "--profile", "nowhere"],
        "nowhere: there is no such profile folder; name the folder of the plan's profile with --profile",
    ),
    "profile of a server without a plan": (
        ["replay", "http://127.0.0.1:1", "--trace", "t.csv", "--profile", "nowhere"],
        "nowhere: there is no such profile folder; name the folder of the plan's profile with --profile; a server of "
        "models without a plan has it in `--keep FOLDER`, as FOLDER/profile",
    ),
    "folder as plan": (["explain", "profile"], "profile: is a folder, needs a file; name one file in it"),
    "folder to write a plan to": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "50", "--out", "profile"],
        "profile: is a folder, needs a file; choose another place",
    ),
    "impossible accuracy": (
        ["plan", "profile", "--trace", "t.csv", "--accuracy", "2"],
        "accuracy is 2.0; give a number from 0 to 1",
    ),
    "no devices": (
        ["plan", "profile", "--trace", "t.csv", "--p95-ms", "50", "--devices", "0"],
        "0 devices asked for; ask for 1 to 10000",
    ),
    "no profile": (["plan", "nowhere", "--trace", "t.csv", "--p95-ms", "50"], "nowhere"),
    "no trace": (["plan", "profile", "--trace", "nowhere.csv", "--p95-ms", "50"], "nowhere.csv: no such file"),
    "no plan": (["simulate", "nowhere.json", "--trace", "t.csv"], "nowhere.json: no such file"),
    "not a plan": (["inspect", "t.csv"], "t.csv: JSON is malformed"),
    "empty plan": (["inspect", "empty.json"], "empty.json: the file is empty"),
    "truncated plan": (["inspect", "cut.json"], "cut.json: Input data was truncated"),
    "misspelt key": (["inspect", "misspelt.json"], "misspelt.json: Object contains unknown field `sead`"),
    "newer schema": (
        ["inspect", "newer.json"],
        "newer.json: schema_version is 3, this version of gearshift reads 1",
    ),
    "another profile": (
        ["simulate", "plan.json", "--trace", "t.csv", "--profile", "other"],
        "the plan was made from another profile",
    ),
    "no project": (["profile", "nowhere.toml"], "nowhere.toml: no such file; make one with `gearshift init`"),
    "folder without project": (["profile", "."], "gearshift.toml: no such file; make one with `gearshift init`"),
    "taken folder": (["profile", "nowhere.toml", "--out", "."], ", which is no part of a profile"),
    "taken folder for records": (
        ["profile", "--from-records", "nowhere", "--out", "."],
        ", which is no part of a profile",
    ),
    "no server": (["replay", "http://127.0.0.1:9", "--trace", "t.csv", "--emulated"], "cannot be reached"),
    **{
        f"deadline of {ms}": (
            ["replay", "http://127.0.0.1:9", "--trace", "t.csv", "--deadline-ms", ms],
            f"--deadline-ms is {float(ms)}; give more than 0, up to 86400000",
        )
        for ms in ("-1", "0", "nan", "1e300")
    },
    "scaler's period": (
        ["serve", "plan.json", "--scaler-period-s", "nan"],
        "--scaler-period-s is nan, needs 0.05 to 3600",
    ),
    "simulated scaler's period": (
        ["simulate", "plan.json", "--trace", "t.csv", "--scaler", "exact", "--scaler-period-s", "nan"],
        "--scaler-period-s is nan, needs 0.01 to 3600",
    ),
    "port": (["serve", "plan.json", "--port", "-1"], "--port is -1, needs 0 to 65535"),
    "half of TLS": (
        ["serve", "plan.json", "--tls-key", "key.pem"],
        "of --tls-certificate and --tls-key one is missing; give both, or neither",
    ),
    "latency objective of a replay": (
        ["replay", "http://127.0.0.1:9", "--trace", "t.csv", "--slo-ms", "-1"],
        "--slo-ms is -1; give a positive number of milliseconds",
    ),
}


@pytest.mark.parametrize(("arguments", "told"), BAD.values(), ids=BAD.keys())
def test_bad_input_exits_with_2_and_one_sentence(
    made: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(made)
    whole = (made / "plan.json").read_bytes()
    (made / "empty.json").write_bytes(b"")
    (made / "cut.json").write_bytes(whole[: len(whole) // 2])
    (made / "misspelt.json").write_bytes(whole.replace(b'"seed"', b'"sead"'))
    (made / "newer.json").write_bytes(whole.replace(b'"schema_version": 2', b'"schema_version": 3'))
    if not (made / "other").exists():
        write_profile(synthetic_profile(models=3, samples=400, seed=9), made / "other")
    done = run(*arguments)
    assert done.exit_code == 2
    assert told in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["plan", "profile"], "Missing option '--trace'"),
        (["plan", "profile", "--trice", "t.csv"], "No such option"),
        (["plan", "profile", "--trace", "t.csv", "--seed", "-1"], "-1 is not in the range x>=0"),
        (["profile", "--seed", "-1"], "-1 is not in the range x>=0"),
        *(
            (
                ["profile", "--cores", cores],
                f"'--cores': {cores!r} is no list of whole numbers; give some from 1 on, as",
            )
            for cores in ("x", "1,,2", "")
        ),
        (["serve", "plan.json", "--lost-stage", "wait"], "'wait' is not one of 'degrade', 'refuse'"),
        (["serv"], "there is no verb 'serv'; did you mean serve"),
    ],
)
def test_a_command_line_that_cannot_be_parsed_is_also_written_as_json(arguments: list[str], told: str) -> None:
    done = run(*arguments, "--json", "-")
    assert done.exit_code == 2
    assert told in done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "usage"
    assert told in error["message"]


def test_an_unwritable_json_file_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("doctor", "--json", tmp_path / "file" / "x.json")
    assert done.exit_code == 2
    assert done.stderr.count("cannot be written") == 1


def test_an_environment_variable_is_named_after_its_option(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEARSHIFT_SIMULATE_TRACE", str(made / "t.csv"))
    monkeypatch.setenv("GEARSHIFT_SIMULATE_JSON", "-")
    done = CliRunner().invoke(main_group, ["simulate", str(made / "plan.json")], auto_envvar_prefix="GEARSHIFT")
    assert json.loads(done.stdout).keys() >= RESULT_NAMES


def test_a_device_without_memory_is_refused() -> None:
    profile = synthetic_profile(models=1, samples=10)
    for memory_bytes in (0, -1):
        with pytest.raises(InvalidInput, match=f"memory_bytes is {memory_bytes}; give a positive number of bytes"):
            profiled_devices(profile, 1, memory_bytes=memory_bytes)
    assert profiled_devices(profile, 1).devices[0].memory_bytes >= 1 << 30


@pytest.mark.parametrize("share_refused", [0.0, 0.5])
@pytest.mark.parametrize("share_degraded", [0.0, 0.25])
def test_a_result_fits_80_columns_with_all_its_digits(made: Path, share_refused: float, share_degraded: float) -> None:
    predicted = read_plan(made / "plan.json").predictions["task"]
    latency = LatencySummary(mean=0.999, p50=0.999, p95=100.25, p99=100.25)
    result = msgspec.structs.replace(
        predicted, requests=123456, accuracy=1.0, latency_s=latency, share_late=1.0, share_refused=share_refused,
        share_degraded=share_degraded, goodput_qps=12345.6,
    )  # fmt: skip
    console = Console(width=80, file=io.StringIO())
    console.print(results_table("Predicted for the trace", [("gear plan", result)]))
    title, header, row = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert title.strip() == "Predicted for the trace, 123456 requests"
    assert ("refused" in header) == (share_refused > 0)
    assert ("degraded" in header) == ("25.0 %" in row) == (share_degraded > 0)
    assert row.split()[-1] == "12345.6/s"
    assert "…" not in header + row


def test_a_bug_is_one_sentence_and_a_file(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr("gearshift.cli.offline.doctor.doctor", broken)
    done = run("doctor")
    assert done.exit_code == 70
    path = Path(done.stderr.split("; see ")[1].strip())
    assert "oops" in path.read_text()
    path.unlink()


def test_simulation_and_replay_draw_the_same_samples(made: Path) -> None:
    profile = synthetic_profile(models=3, samples=400)
    first = workload_of(profile, steady(60, 5, seed=1), seed=3)
    again = workload_of(profile, steady(60, 5, seed=1), seed=3)
    assert np.array_equal(first.record, again.record)
    assert set(profile.predictions.part[first.record]) == {1}


def test_overheads_that_were_measured_are_shown_wherever_they_count(tmp_path: Path) -> None:
    profile = synthetic_profile(models=2, samples=400)
    first, *others = profile.curves
    first = msgspec.structs.replace(first, overhead_per_batch_s=0.00075, overhead_per_request_s=0.0001)
    write_profile(replace(profile, curves=(first, *others), front_end_s=0.025), tmp_path / "profile")
    write_trace(steady(20, 2, seed=1), tmp_path / "t.csv")
    plan = tmp_path / "plan.json"
    trace = ["--trace", tmp_path / "t.csv"]
    for arguments in (
        ("inspect", tmp_path / "profile"),
        ("plan", tmp_path / "profile", *trace, "--p95-ms", 300, "--ranges", 2, "--out", plan),
        ("simulate", plan, *trace),
    ):
        done = run(*arguments, "--json", tmp_path / "out.json")
        assert "part of every prediction: 25 ms a request in the front end; 0.75 ms " in done.stdout
        told = json.loads((tmp_path / "out.json").read_text())["overheads"]
        assert told["front_end_s"] == 0.025
        assert told["per_batch_s"][first.model] == 0.00075
        assert told["per_sample_s"][first.model] == 0.0001


def test_where_no_overheads_were_measured_none_are_shown(tmp_path: Path) -> None:
    profile = synthetic_profile(models=2, samples=400)
    curves = tuple(msgspec.structs.replace(curve, overhead_per_batch_s=0.0) for curve in profile.curves)
    write_profile(replace(profile, curves=curves), tmp_path / "profile")
    assert "measured outside the models" not in run("inspect", tmp_path / "profile").stdout


@pytest.mark.parametrize("verb", ["inspect", "simulate", "explain", "report", "serve", "validate"])
def test_a_plan_with_two_cascades_in_a_gear_is_refused_in_one_sentence(made: Path, tmp_path: Path, verb: str) -> None:
    plan = read_plan(made / "plan.json")
    (name,) = plan.pipelines
    gears = [msgspec.structs.replace(g, cascades={name: (g.cascade, g.cascade)}) for g in plan.pipelines[name].gears]
    pipeline = msgspec.structs.replace(plan.pipelines[name], gears=tuple(gears))
    source = msgspec.structs.replace(plan.profile, path=str(made / plan.profile.path))
    trace = msgspec.structs.replace(plan.trace, path=str(made / plan.trace.path))
    fields = {"pipelines": {name: pipeline}, "profiles": {name: source}, "traces": {name: trace}}
    write_plan(msgspec.structs.replace(plan, **fields), tmp_path / "two.json")
    done = run(verb, tmp_path / "two.json")
    assert done.exit_code == 2
    assert re.search("this version of gearshift does not serve|and one is needed here", done.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_verb_ends_it_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before = {one: signal.signal(one, signal.SIG_DFL) for one in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(gearshift.cli.main, "main_group", lambda **_: signal.raise_signal(number))
    try:
        with pytest.raises(KeyboardInterrupt) as ended:
            gearshift.cli.main.main()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert ended.value.args == (number,)
