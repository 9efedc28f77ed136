"""`gearshift plan` for a graph; the search has tests of its own."""

import json
from pathlib import Path

import pytest
from msgspec import UNSET

from gearshift.plans.plan_file import read_plan
from gearshift.profiles.pipelines.profile_folder import Profiles, RecordedPipeline, write_profiles
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from tests.unit.cli.little import run
from tests.unit.planner.joint.strips import EDGES, NODES, TUPLES, strips
from tests.worlds import synthetic_profile


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the profile of a pipeline, a trace that is too fast for its best models, and a plan."""
    folder, request = tmp_path_factory.mktemp("graph"), strips(latency_s=0.03, qps=100.0)
    write_profiles(
        Profiles(
            operators=dict(request.profiles),
            pipelines={"strips": RecordedPipeline(output="join", nodes=NODES, edges=EDGES, requests=TUPLES)},
            tuples={"strips": request.records},
        ),
        folder / "profile",
    )
    write_trace(request.trace, folder / "t.csv")
    (folder / "facts.json").write_text(json.dumps(planned(folder, "plan.json")))
    return folder


def planned(place: Path, name: str, *options: object) -> dict[str, object]:
    done = run(
        "plan", place / "profile", "--trace", place / "t.csv", "--p95-ms", 30, "--devices", 2, "--ranges", 4,
        "--out", place / name, "--json", "-", *options,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts: dict[str, object] = json.loads(done.stdout)
    return facts


def test_a_plan_chooses_unless_it_is_asked_not_to(place: Path) -> None:
    assert json.loads((place / "facts.json").read_text())["gears_that_choose"]
    assert planned(place, "plain.json", "--without-replanning")["gears_that_choose"] == 0
    assert any(gear.timed is not UNSET for gear in read_plan(place / "plan.json").pipeline.gears)


@pytest.mark.parametrize("split", ["equal", "proportional"])
def test_a_baseline_by_budgets_has_one_gear_that_chooses(place: Path, split: str) -> None:
    facts = planned(place, "budgets.json", "--budgets", split)
    assert facts["planner"] == f"budgets-{split}"
    assert (facts["gears"], facts["gears_that_choose"]) == (1, 1)


def test_a_planned_pipeline_is_simulated_as_it_was_predicted(place: Path) -> None:
    predicted = json.loads((place / "facts.json").read_text())["predicted"]
    for trace in [(), ("--trace", place / "t.csv"), ("--trace", f"strips={place / 't.csv'}")]:
        done = run("simulate", place / "plan.json", *trace, "--json", "-")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout) == predicted
    (place / "moved").mkdir()
    (place / "profile" / "strips" / "tuples.csv").rename(place / "moved" / "tuples.csv")
    refused = run("simulate", place / "plan.json")
    (place / "moved" / "tuples.csv").rename(place / "profile" / "strips" / "tuples.csv")
    assert "pipeline 'strips' has no joint records" in refused.output


def test_options_of_pipelines_are_refused_for_one_operator(tmp_path: Path) -> None:
    write_profile(synthetic_profile(models=2, samples=100), tmp_path / "profile")
    write_trace(steady(60, 5, seed=1), tmp_path / "t.csv")
    done = run("plan", tmp_path / "profile", "--trace", tmp_path / "t.csv", "--budgets", "equal")
    assert done.exit_code != 0
    assert "--budgets is given, which plans of one operator do not have" in done.output
