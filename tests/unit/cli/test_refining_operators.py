"""The verbs for a plan of two operators that refine."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.store import write_profile
from gearshift.traces.read import write_trace
from tests.unit.cli.little import run
from tests.unit.planner.several.worlds import CATS, DOGS, two_operators

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two profiles and traces, and a plan of both by `--policy refine`, with what was told."""
    folder = tmp_path_factory.mktemp("refining")
    for name, request in two_operators().requests.items():
        write_profile({"cats": CATS, "dogs": DOGS}[name], folder / name)
        write_trace(request.trace, folder / f"{name}.csv")
    done = planned(folder, "--worth", "dogs=2", "--policy", "refine", "--json", folder / "facts.json")
    assert done.exit_code == 0, done.output
    (folder / "told").write_text(done.output)
    return folder


def planned(place: Path, *options: object) -> Any:
    traces = [word for name in ("cats", "dogs") for word in ("--trace", f"{name}={place / name}.csv")]
    return run(
        "plan", place / "cats", place / "dogs", *traces, "--devices", 2, "--p95-ms", "cats=50", "--p95-ms", "dogs=100",
        "--ranges", 3, "--out", place / "plan.json", *options,
    )  # fmt: skip


def test_the_plan_says_of_each_operator_that_it_refines(place: Path) -> None:
    told, facts = (place / "told").read_text(), json.loads((place / "facts.json").read_text())
    for name in ("cats", "dogs"):
        assert f"{name}: refines while there is time" in told
        assert "share_by_time" in facts["pipelines"][name]["predicted"]
    assert (facts["planner"], facts["refines"]) == ("refine", True)
    assert facts["chosen_because"] == "rows are refined while there is time, as was asked for"
    assert read_plan(place / "plan.json").pipelines["dogs"].worth == 2


def test_each_pipeline_is_simulated_explained_inspected_and_reported(place: Path) -> None:
    plan = place / "plan.json"
    assert run("simulate", plan, "--json", place / "run.json").exit_code == 0
    for result in json.loads((place / "run.json").read_text())["pipelines"].values():
        assert result["share_by_time"] < 0.5
    explained = run("explain", plan)
    assert explained.exit_code == 0, explained.output
    assert explained.output.count("were answered with the first model because time ran out") == 2
    inspected = run("inspect", plan)
    assert inspected.exit_code == 0, inspected.output
    assert run("report", plan, "--out", place / "page.html").exit_code == 0
    assert "cats: refines while there is time" in (place / "page.html").read_text()


def test_plans_that_differ_in_worth_differ(place: Path) -> None:
    plan = read_plan(place / "plan.json")
    dogs = msgspec.structs.replace(plan.pipelines["dogs"], worth=3.0)
    write_plan(msgspec.structs.replace(plan, pipelines=plan.pipelines | {"dogs": dogs}), place / "other.json")
    assert "worth" in run("diff", place / "plan.json", place / "other.json").output


def test_operators_that_refine_are_compared_with_other_planners(place: Path) -> None:
    done = run(
        "compare", place / "cats", place / "dogs", "--trace", f"cats={place / 'cats.csv'}",
        "--trace", f"dogs={place / 'dogs.csv'}", "--devices", 2, "--p95-ms", "cats=50", "--p95-ms", "dogs=100",
        "--ranges", 3, "--planners", "refine", "--json", place / "compared.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "by time" in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "refine", "--p50-ms", 20], "--p50-ms is for one operator that is planned alone"),
        (["--policy", "refine", "--planner", "coordinate"], "planner 'coordinate' is named, and the policy refine"),
        (["--worth", "dogs=2"], "a worth is given, and plans of gears alone have none"),
        (["--policy", "refine", "--worth", "dogs=0"], "the worth is 0.0"),
        (["--policy", "refine", "--worth", "birds=2"], "--worth names operator 'birds', which is not planned"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(place: Path, options: list[object], message: str) -> None:
    done = planned(place, *options, "--out", place / "none.json")
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_an_accuracy_that_no_plan_reaches_is_infeasible_by_name(place: Path) -> None:
    done = planned(place, "--policy", "refine", "--accuracy", "dogs=0.999", "--out", place / "none.json")
    assert done.exit_code == 3
    assert "pipeline 'dogs'" in " ".join(done.output.split())
