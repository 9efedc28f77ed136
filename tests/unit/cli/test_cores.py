"""The verbs around a plan whose gears split the cores of a host."""

import dataclasses
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import read_profile, write_profile
from gearshift.traces.read import write_trace
from tests.scaled_task import write_scaled_task
from tests.unit.cli.little import run
from tests.unit.planner.little import little_trace
from tests.worlds import on_core_counts, synthetic_profile

PLANNED = ("plan", "profile", "--trace", "t.csv", "--cores", 8, "--p95-ms", 200, "--ranges", 3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cores")
    profile = on_core_counts(synthetic_profile(models=2, samples=600, fastest_s=0.01), (1, 2, 4))
    write_profile(profile, folder / "profile")
    write_trace(little_trace(low_qps=20.0, high_qps=120.0), folder / "t.csv")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for accuracy in (0.74, 0.7):
            done = run(
                *PLANNED, "--accuracy", accuracy, "--out", f"{accuracy}.json", "--json", f"facts-{accuracy}.json"
            )
            assert done.exit_code == 0, done.output
            (folder / f"told-{accuracy}").write_text(done.output)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_tells_cores_and_core_seconds(place: Path) -> None:
    told, facts = (place / "told-0.74").read_text(), json.loads((place / "facts-0.74.json").read_text())
    assert "cores" in told
    assert "core-seconds" in told
    assert facts["pool_cores"] == 8
    assert facts["predicted"]["accuracy"] >= 0.74
    assert 0 < facts["predicted"]["core_s"] < 8 * 10


def test_simulate_predicts_the_core_seconds(place: Path) -> None:
    done = run("simulate", "0.74.json", "--trace", "t.csv", "--json", "-")
    planned = json.loads((place / "facts-0.74.json").read_text())["predicted"]["core_s"]
    assert json.loads(done.stdout)["core_s"] == pytest.approx(planned, rel=0.1)


def test_a_scaler_is_simulated_on_top_of_the_gears(place: Path) -> None:
    simulate = ("simulate", "0.74.json", "--trace", "t.csv", "--json", "-")
    scaler = ("--scaler", "exact", "--scaler-period-s", 0.1)
    gears, scaled = (json.loads(run(*simulate, *more).stdout) for more in ((), scaler))
    assert gears["core_s"] < scaled["core_s"] <= 8 * 11
    assert scaled["latency_s"]["p99"] < gears["latency_s"]["p99"]


def test_a_scaler_is_simulated_of_a_plan_whose_gears_have_no_cores(place: Path) -> None:
    text = (place / "0.74.json").read_bytes().replace(b'"pool_cores": 8', b'"pool_cores": null')
    (place / "old.json").write_bytes(text)
    simulate = ("simulate", "old.json", "--trace", "t.csv", "--json", "-")
    scaler = ("--scaler", "exact", "--scaler-period-s", 0.1)
    plain, tight, scaled = (
        json.loads(run(*simulate, *more).stdout) for more in ((), scaler, (*scaler, "--scaler-cores", 8))
    )
    assert plain["core_s"] is None
    assert tight["core_s"] < scaled["core_s"] <= 8 * 11
    assert scaled["latency_s"]["p99"] < plain["latency_s"]["p99"]


def test_scalers_to_be_compared_with_are_simulated_of_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scaled_task(tmp_path)
    (tmp_path / "t.csv").write_text("second,requests\n" + "".join(f"{second},20\n" for second in range(5)))
    monkeypatch.chdir(tmp_path)
    for scaler in ("replicas", "fa2", "vpa"):
        done = run("simulate", "plan.json", "--trace", "t.csv", "--scaler", scaler, "--slo-ms", 500, "--json", "-")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert 0 < found["core_s"] < 4 * 5  # the four that it begins with are too many
        assert found["share_late"] == 0


def test_constant_cores_are_simulated_with_their_core_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_scaled_task(tmp_path)
    (tmp_path / "t.csv").write_text("second,requests\n" + "".join(f"{second},20\n" for second in range(5)))
    monkeypatch.chdir(tmp_path)
    simulate = ("simulate", "plan.json", "--trace", "t.csv", "--slo-ms", 500, "--json", "-")
    plain = json.loads(run(*simulate).stdout)
    at_first = json.loads(run(*simulate, "--scaler", "static").stdout)
    assert plain["core_s"] is None
    assert at_first["core_s"] == pytest.approx(4 * 5, rel=0.02)
    assert at_first["latency_s"] == plain["latency_s"]
    by_cores = [json.loads(run(*simulate, "--scaler-cores", cores).stdout) for cores in (1, 2, 3, 4)]
    assert by_cores[-1] == at_first
    assert [round(one["core_s"] / 5) for one in by_cores] == [1, 2, 3, 4]
    means = [one["latency_s"]["mean"] for one in by_cores]
    assert means == sorted(means, reverse=True)
    done = run(*simulate, "--scaler-cores", 9)
    assert (done.exit_code, "is to have 9 cores, and was measured on up to 4" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--scaler-cores", 8), "the gears of the plan have cores of their own, and cannot have others"),
        (("--scaler", "exact", "--scaler-cores", 1), "cores, and replicas share 1; give more --scaler-cores"),
        (("--scaler", "fa2"), "fa2 knows one model on one worker, the plan has more"),
    ],
)
def test_a_scaler_that_cannot_be_simulated_is_one_sentence(place: Path, options: tuple[str, ...], says: str) -> None:
    done = run("simulate", "0.74.json", "--trace", "t.csv", *options)
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--scaler-margin", 0),
            "--scaler-margin is given, and no scaler; leave it out, or give --scaler exact, paper or replicas",
        ),
        (("--scaler-margin", 0.05, "--scaler-cores", 4), "--scaler-margin is given, and no scaler"),
        *(
            (("--scaler", scaler, "--scaler-margin", 0), f"which --scaler {scaler} does not read; leave it out")
            for scaler in ("static", "fa2", "vpa")
        ),
        (("--scaler-period-s", 2), "--scaler-period-s is given, and no scaler"),
        (("--scaler", "static", "--scaler-period-s", 2), "--scaler-period-s is given, which --scaler static does not"),
    ],
)
def test_an_option_that_no_scaler_reads_is_refused(place: Path, options: tuple[str, ...], says: str) -> None:
    done = run("simulate", "0.74.json", "--trace", "t.csv", *options)
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output


def test_a_plan_on_gpus_alone_is_said_to_keep_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_scaled_task(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("second,requests\n" + "".join(f"{second},20\n" for second in range(5)))
    profile = read_profile(tmp_path / "profile")
    curves = tuple(msgspec.structs.replace(curve, device_kind="cuda") for curve in profile.curves)
    profile = write_profile(dataclasses.replace(profile, curves=curves), tmp_path / "gpu")
    plan = read_plan("plan.json")
    devices = tuple(msgspec.structs.replace(device, kind="cuda") for device in plan.hardware.devices)
    on_gpu = msgspec.structs.replace(
        plan,
        hardware=msgspec.structs.replace(plan.hardware, devices=devices),
        profiles={"numbers": msgspec.structs.replace(plan.profile, path="gpu", sha256=profile.sha256)},
    )
    write_plan(on_gpu, tmp_path / "gpu.json")
    simulate = ("simulate", "gpu.json", "--trace", "t.csv", "--slo-ms", 500)
    for options in ((), ("--scaler", "static"), ("--scaler", "exact")):
        done = run(*simulate, *options, "--scaler-cores", 2)
        assert done.exit_code == 2, done.output
        assert "leave --scaler-cores out" in " ".join(done.output.split())
    assert run(*simulate, "--scaler", "static").exit_code == 0


def test_explain_says_what_a_more_accurate_cascade_would_take(place: Path) -> None:
    done = run("explain", "0.7.json", "--json", "explained.json")
    assert done.exit_code == 0, done.output
    explained = json.loads((place / "explained.json").read_text())
    assert all(found["cores"] for found in explained["ranges"])
    (needing, *_) = (f["next"] for f in explained["ranges"] if f["next"] and f["next"]["breaks"] == "cores")
    assert f"would take {needing['cores']} cores" in done.output
    refused = run("explain", "0.7.json", "--devices-too")
    assert (refused.exit_code, "not for a number of devices" in refused.output) == (2, True)


def test_diff_shows_cores_that_differ(place: Path) -> None:
    assert "both plans serve in the same way" in run("diff", "0.7.json", "0.7.json").output
    plan = read_plan(place / "0.7.json")
    text = (place / "0.7.json").read_bytes().replace(b'"pool_cores": 8', b'"pool_cores": 9')
    (place / "other.json").write_bytes(text)
    assert read_plan(place / "other.json").hardware.pool_cores == 9
    assert "pool_cores: 8 in a, 9 in b" in run("diff", "0.7.json", "other.json").output
    write_plan(plan, place / "same.json")
    assert "cores" in run("diff", "0.74.json", "same.json").output


def test_inspect_and_report_show_cores(place: Path) -> None:
    assert "cores" in run("inspect", "0.74.json").output
    assert run("report", "0.74.json", "--trace", "t.csv", "--out", "r.html").exit_code == 0
    page = (place / "r.html").read_text()
    assert "that share 8 cores" in page
    assert "<th>cores</th>" in page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--accuracy", 0.7, "--devices", 2), "--devices and --cores are both given; give one of them"),
        (("--accuracy", 0.7, "--planner", "single"), "--planner and --cores are both given"),
        (("--frontier",), "--frontier and --cores are both given"),
        ((), "the fewest cores need two objectives; give a latency and an accuracy"),
    ],
)
def test_what_cannot_be_planned_with_cores_is_one_sentence(place: Path, options: tuple[str, ...], says: str) -> None:
    done = run(*PLANNED, *options)
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output


def test_a_latency_out_of_reach_exits_with_3_and_offers_no_devices(place: Path) -> None:
    done = run("plan", "profile", "--trace", "t.csv", "--cores", 8, "--p95-ms", 5, "--accuracy", 0.7, "--ranges", 3)
    assert done.exit_code == 3
    assert "no cascade keeps 0.95 of requests within 5 ms on 8 cores" in " ".join(done.output.split())
    assert "--devices" not in done.output
