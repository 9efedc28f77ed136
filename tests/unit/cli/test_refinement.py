"""`--policy` and `--p50-ms` at the command line: what is planned, refused and said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.shared.worlds import arrivals, devices
from gearshift import plan
from gearshift.errors import InvalidInput
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import write_profile
from gearshift.support.numbers import milliseconds
from gearshift.traces.read import write_trace
from tests.unit.cli.little import run
from tests.unit.planner.refine.worlds import request

BECAUSE = "rows are refined while there is time: "


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile, a trace, and the better plan of both policies."""
    folder = tmp_path_factory.mktemp("refinement")
    write_profile(request(1).profile, folder / "profile")
    write_trace(request(1).trace, folder / "t.csv")
    done = planned(folder, "--policy", "best", "--p50-ms", 8, "--json", folder / "facts.json")
    assert done.exit_code == 0, done.output
    (folder / "told").write_text(done.output)
    return folder


def planned(place: Path, *options: object) -> Any:
    return run(
        "plan", place / "profile", "--trace", place / "t.csv", "--planner", "single", "--p95-ms", 20,
        "--ranges", 4, "--out", place / "plan.json", *options,
    )  # fmt: skip


def test_the_better_policy_says_why_in_words_and_in_facts(place: Path) -> None:
    told, facts = " ".join((place / "told").read_text().split()), json.loads((place / "facts.json").read_text())
    assert facts["chosen_because"].startswith(BECAUSE)
    assert facts["chosen_because"] in told
    assert (facts["refines"], facts["planner"]) == (True, "refine")


def test_the_plan_tells_python_why_it_was_chosen(place: Path) -> None:
    asked = read_plan(place / "plan.json").pipeline.asked
    assert asked is not None
    assert asked.policy == "best"
    assert str(asked.chosen_because).startswith(BECAUSE)


def test_a_median_that_was_asked_for_is_shown_where_the_objective_is(place: Path) -> None:
    told = (place / "told").read_text()
    p50_s = read_plan(place / "plan.json").predictions["task"].latency_s.p50
    assert f"p50 {milliseconds(p50_s)}, p95 " in told
    assert run("report", place / "plan.json", "--out", place / "report.html").exit_code == 0
    assert "p95 within 20 ms and p50 within 8 ms" in (place / "report.html").read_text()


def test_explain_repeats_the_median_that_was_asked_for(tmp_path: Path, place: Path) -> None:
    made = read_plan(place / "plan.json")
    longer = msgspec.structs.replace(made.pipeline.objective, latency_s=0.03)
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    write_plan(with_pipeline(made, objective=longer), tmp_path / "plan.json")
    told = " ".join(run("explain", tmp_path / "plan.json").output.split())
    assert ", refined " in told
    assert "asked for p95 within 20 ms and p50 within 8 ms, and made for p95 within 30 ms and p50 within 8 ms" in told


def test_a_plan_that_refines_says_so_without_a_policy(tmp_path: Path, place: Path) -> None:
    done = planned(place, "--planner", "refine", "--out", tmp_path / "plan.json")
    assert "refines while there is time" in done.output
    alone = planned(place, "--out", tmp_path / "plan.json")
    assert "while there is time" not in alone.output


@pytest.mark.parametrize(("flag", "value"), [("--policy", "best"), ("--p50-ms", 10)])
def test_cores_are_refused_beside_refinement(place: Path, flag: str, value: object) -> None:
    done = run(
        "plan", place / "profile", "--trace", place / "t.csv", "--cores", 4, "--p95-ms", 20, "--accuracy", 0.5,
        flag, value,
    )  # fmt: skip
    assert done.exit_code == 2
    assert f"{flag} and --cores are both given" in done.output


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"median_s": 0.01}, "median_s is given, which plans of several operators do not have"),
        ({"policy": "refine", "planner": "apart", "accuracy": {"task": 0.5}}, "planner 'apart' plans without"),
        ({"policy": "best", "beside": "plan.json"}, "operators that refine are planned together"),
        ({"worth": {"task": 2.0}}, "plans of gears alone have none"),
    ],
)
def test_plans_of_several_operators_refuse_from_python_what_goes_with_gears_alone_or_with_one(
    given: dict[str, Any], message: str
) -> None:
    one = request(1)
    with pytest.raises(InvalidInput, match=message):
        plan([one.profile], {"task": one.trace}, latency_s={"task": 0.02}, **given)


def profile_of(name: str) -> Profile:
    """The world's profile of an operator and models of names of its own."""
    one = request(1).profile
    return replace(
        one,
        operator=name,
        curves=tuple(msgspec.structs.replace(curve, model=name + curve.model) for curve in one.curves),
        predictions=replace(one.predictions, models=tuple(name + model for model in one.predictions.models)),
    )


@pytest.mark.parametrize("given", [{"policy": "gears"}, {"median_s": None}])
def test_plans_of_several_operators_take_the_gears_that_they_have_anyway(given: dict[str, object]) -> None:
    names = "a", "b"
    made = plan(
        [profile_of(name) for name in names],
        dict.fromkeys(names, arrivals(np.array([20, 20]))),
        latency_s=dict.fromkeys(names, 0.5),
        devices=devices(2, models_each=5),
        planner="apart",
        ranges=1,
        **given,  # type: ignore[arg-type]
    )
    assert sorted(made.pipelines) == ["a", "b"]
