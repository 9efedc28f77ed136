"""The verbs for a plan of two operators; the search has tests of its own."""

import json
from pathlib import Path

import msgspec
import pytest

from gearshift.hardware import identical_devices
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.several.coordinate import Coordination, together_in_order
from gearshift.planner.several.layouts import layouts_of
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.cascade_search import single_models
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import read_trace, write_trace
from gearshift.verbs.planning.sources import source_file, trace_file
from tests.unit.cli.little import run
from tests.unit.planner.several.worlds import CATS, DOGS, request_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two profiles and traces, a plan of both that no search made, and one of the first alone."""
    folder = tmp_path_factory.mktemp("several")
    requests = {}
    for profile in (CATS, DOGS):
        name = profile.operator
        path, trace = folder / f"{name}.csv", steady(50, 4, seed=1)
        written = write_profile(profile, folder / name)
        write_trace(trace, path)
        read = read_trace(path)
        requests[name] = request_of(
            written,
            latency_s=0.1,
            hardware=identical_devices(2),
            trace=read,
            profile_source=source_file(folder / name, folder / "both.json", written.sha256),
            trace_source=trace_file(path, folder / "both.json", read),
        )
    several = SeveralRequest(requests=requests)
    layout = layouts_of(several, {name: single_models(each) for name, each in requests.items()}, most=1)[0]
    guesses = Coordination(several, layout.placement, SoFar(requests["cats"]))
    guesses.guess_all(layout.tuples[0])
    both = msgspec.structs.replace(together_in_order(guesses.plans), planner="optimal")
    write_plan(both, folder / "both.json")
    write_plan(guesses.plans["cats"], folder / "cats.json")
    return folder


def test_all_traces_are_simulated_at_once(place: Path) -> None:
    done = run("simulate", place / "both.json", "--trace", f"dogs={place / 'cats.csv'}", "--json", place / "out.json")
    assert done.exit_code == 0, done.output
    found = json.loads((place / "out.json").read_text())["pipelines"]
    requests = len(read_trace(place / "cats.csv"))
    assert {name: result["requests"] for name, result in found.items()} == {"cats": requests, "dogs": requests}
    assert "cats: gear shifts: 0" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "--slo-ms", 5], "--slo-ms is given, which plans of several operators do not have"),
        (["simulate", "--trace", "t.csv"], "--trace t.csv names none of cats, dogs"),
        (["explain", "--devices-too"], "--devices-too is given, which plans of several operators do not have"),
        (["report", "--profile", "cats"], "--profile is given, which plans of graphs or several pipelines do not have"),
        (
            ["report", "--replay", "run.json"],
            "--replay: a page about graphs or several pipelines shows no measured run",
        ),
    ],
)
def test_what_takes_one_pipeline_says_so(place: Path, arguments: list[object], message: str) -> None:
    verb, *options = arguments
    done = run(verb, place / "both.json", *options)
    assert done.exit_code == 2
    assert message in done.output


def test_each_pipeline_is_inspected_and_told_apart(place: Path) -> None:
    done = run("inspect", place / "both.json")
    assert done.exit_code == 0, done.output
    for name in ("cats", "dogs"):
        assert f"Gears of {name}" in done.output
        assert f"profile of {name} {name}" in done.output
    told = run("diff", place / "both.json", place / "cats.json").output
    assert "pipeline dogs: only in a" in told
    assert "pipeline cats:" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace", "cats=cats.csv", "--p95-ms", 50], "no trace is given for operators ['dogs']"),
        (["--trace", "cats=cats.csv", "--trace", "dogs=dogs.csv", "--p95-ms", "birds=5"], "names operator 'birds'"),
        (["--trace", "cats=cats.csv", "--trace", "dogs=dogs.csv"], "no latency is given"),
        (["--trace", "cats=x", "--trace", "dogs=y", "--p95-ms", 5, "--frontier"], "--frontier is given"),
        (["--trace", "cats=x", "--trace", "dogs=y", "--p95-ms", 5, "--cores", 4], "--cores is given"),
        (
            ["--trace", "cats=x", "--trace", "dogs=y", "--p95-ms", 5, "--planner", "single"],
            "planner 'single' does not plan several operators; name one of optimal, apart,",
        ),
    ],
)
def test_a_plan_of_two_needs_what_each_needs(
    place: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], message: str
) -> None:
    monkeypatch.chdir(place)
    done = run("plan", "cats", "dogs", *options)
    assert done.exit_code == 2
    assert message in done.output


def test_planners_of_two_are_compared(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = run(
        *("compare", "cats", "dogs", "--trace", "cats=cats.csv", "--trace", "dogs=dogs.csv", "--devices", "2"),
        *("--p95-ms", "cats=50,100", "--p95-ms", "dogs=100,200", "--planners", "apart,coordinate", "--ranges", 2),
        *("--csv", tmp_path / "c.csv", "--json", tmp_path / "c.json", "--out", tmp_path / "c.html"),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["latencies_s"] == [0.1, 0.2]
    assert [run["error"] for run in found["runs"]] == [None] * 4
    assert found["runs"][0]["pipelines"]["cats"]["latency_objective_s"] == 0.05
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 1 + 4 * 3
    assert "dogs" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--p95-ms", "cats=50,100", "--p95-ms", "dogs=100"], "operators have different numbers of latencies"),
        (["--p95-ms", "cats=50,60", "--p95-ms", "dogs=100,100"], "two are the same; compare these apart"),
        (["--p95-ms", "50", "--planners", "single"], "planner 'single' does not plan several operators"),
        (["--p95-ms", "50", "--pipeline", "strips"], "--pipeline is given, and the profile is of one operator"),
    ],
)
def test_what_cannot_be_compared_of_two_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, options: list[object], told: str
) -> None:
    monkeypatch.chdir(place)
    done = run("compare", "cats", "dogs", "--trace", "cats=cats.csv", "--trace", "dogs=dogs.csv", *options)
    assert done.exit_code == 2
    assert told in done.output


def test_a_plan_of_two_by_a_baseline_says_so(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    asked = ["plan", "cats", "dogs", "--trace", "cats=cats.csv", "--trace", "dogs=dogs.csv", "--devices", 2]
    done = run(*asked, "--p95-ms", 100, "--ranges", 2, "--planner", "coordinate", "--out", tmp_path / "plan.json")
    assert done.exit_code == 0, done.output
    assert read_plan(tmp_path / "plan.json").planner == "coordinate"
    refused = run(*asked, "--p95-ms", 100, "--accuracy", 0.5, "--planner", "coordinate")
    assert "an accuracy is given, and planner 'coordinate' plans without" in refused.output
