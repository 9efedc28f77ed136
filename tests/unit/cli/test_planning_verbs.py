"""The verbs around planning, with a planner that answers at once where the search plays no part."""

import csv
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import gearshift
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan, SourceFile
from gearshift.models.config import read_project
from gearshift.models.loaded_from import LoadedFrom, settings_of
from gearshift.planner import planners
from gearshift.planner.contract.planner import Planner
from gearshift.planner.space.request import PlanRequest, Progress
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.plans.plan_folder import read_plans
from gearshift.profiles.store import read_profile, write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import read_trace, write_trace
from gearshift.verbs.common.inputs import trace_for, workload_of
from gearshift.verbs.plan import plan_frontier
from tests.little_task import under_other_names
from tests.unit.cli.little import planned_in, run
from tests.unit.planner import fake
from tests.unit.simulator.compared.test_cocktail import independent_profile
from tests.worlds import synthetic_profile


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile, a trace and a plan by the default planner."""
    return planned_in(tmp_path_factory.mktemp("with a space"), "--ranges", 3)


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with all of `made`, in which the default planner is the fake one."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(planners.for_(), "optimal", "tests.unit.planner.fake")
    fake.asked.clear()
    return tmp_path


def test_what_a_profile_warns_of_is_told_again(place: Path) -> None:
    odd = "model 'm0' answers '1' to all 400 samples"
    write_profile(dataclasses.replace(synthetic_profile(models=3, samples=400), warnings=(odd,)), place / "profile")
    asked = ["plan", "profile", "--trace", "t.csv", "--planner", "optimal"]
    for options in (["--p95-ms", 100], ["--frontier"]):
        done = run(*asked, *options, "--json", "facts.json")
        assert f"warning: {odd}\n" in done.output
        assert json.loads((place / "facts.json").read_text())["warnings"] == [odd]
    assert f"warning: {odd}\n" in run("inspect", "profile").output


def test_a_model_that_was_replaced_since_profiling_is_told(place: Path) -> None:
    (place / "models.py").write_text("")
    (place / "gearshift.toml").write_text('operator = "o"\nsamples = "m.py:s"\n[models.m0]\nload = "models.py:m"\n')
    project = read_project(place / "gearshift.toml")
    before = LoadedFrom(model="m0", settings=settings_of(project, "m0"), files={"models.py": "as profiled"})
    made = dataclasses.replace(
        synthetic_profile(models=3, samples=400), loaded_from=(before,), project="../gearshift.toml"
    )
    write_profile(made, place / "profile")
    done = run("plan", "profile", "--trace", "t.csv", "--p95-ms", 100, "--json", "facts.json")
    assert "warning: model 'm0' may have been replaced since profiling: models.py changed" in done.output
    assert "models.py changed" in json.loads((place / "facts.json").read_text())["warnings"][0]


def test_arrivals_stamped_in_whole_seconds_are_told_by_every_verb_that_reads_them(place: Path) -> None:
    (place / "coarse.csv").write_text("arrival_s\n" + "".join(f"{s}\n" * 20 for s in range(5)))
    planned = run("plan", "profile", "--trace", "coarse.csv", "--p95-ms", 100, "--json", "facts.json")
    assert "stamped every 1 s" in planned.stderr
    assert "stamped every 1 s" in json.loads((place / "facts.json").read_text())["warnings"][0]
    assert "stamped every 1 s" in run("simulate", "plan.json", "--trace", "coarse.csv").stderr


@pytest.mark.parametrize("verb", ["plan", pytest.param("compare", marks=pytest.mark.long)])
def test_a_plan_for_the_trace_alone_is_told_as_that(place: Path, verb: str) -> None:
    asked = [verb, "profile", "--trace", "t.csv", "--p95-ms", 100]
    asked += ["--planners", "single", "--jobs", 1] if verb == "compare" else []
    told = "the objective is kept on this trace alone"
    assert told in run(*asked, "--scope", "trace").output
    assert told not in run(*asked).output


def test_a_plan_costs_the_price_of_its_devices_and_what_if_shows_others_in_a_table_and_in_the_report(
    place: Path,
) -> None:
    asked = ["plan", "profile", "--trace", "t.csv", "--p95-ms", 100, "--devices", 2, "--price-per-hour", 0.25]
    done = run(*asked, "--what-if", "--json", "facts.json")
    assert done.exit_code == 0, done.output
    assert "0.50 an hour at 0.25 each" in done.output
    table = done.output[done.output.index("Devices and cost") :]
    shown = re.findall(r"^(1 fewer|this plan|. more) +(\d+) +([\d.]+) ", table, re.MULTILINE)
    assert [row[1:] for row in shown] == [("1", "0.25"), ("2", "0.50"), ("3", "0.75"), ("4", "1.00")], table
    facts = json.loads((place / "facts.json").read_text())
    assert facts["price_per_hour"] == 0.5
    assert facts["price_per_million"] == pytest.approx(0.5 / 3600 / facts["predicted"]["goodput_qps"] * 1e6, rel=0.05)
    assert [one["devices"] for one in facts["what_if"]] == [1, 3, 4]
    assert run("report", "plan.json", "--out", "r.html").exit_code == 0
    page = (place / "r.html").read_text()
    assert "One device more, and one fewer" in page
    for name in ("1 fewer", "this plan", "1 more", "2 more"):
        assert f">{name}</th>" in page


def test_without_a_price_no_verb_says_what_a_plan_costs(place: Path) -> None:
    asked = ["plan", "profile", "--trace", "t.csv", "--p95-ms", 100, "--devices", 2, "--what-if"]
    done = run(*asked, "--json", "facts.json")
    assert done.exit_code == 0, done.output
    shown = done.output + run("inspect", "plan.json").output
    assert "1 fewer" in shown
    for word in ("an hour", "a million", "each with m1, 2"):
        assert word not in shown
    facts = json.loads((place / "facts.json").read_text())
    assert (facts["price_per_hour"], facts["price_per_million"]) == (None, None)
    assert run("report", "plan.json", "--out", "r.html").exit_code == 0
    page = (place / "r.html").read_text()
    assert "an hour" not in page
    assert ">1 fewer</th>" in page


def test_the_closing_line_and_with_two_objectives_the_first_say_how_many_devices_it_takes(place: Path) -> None:
    done = run("plan", "profile", "--trace", "t.csv", "--p95-ms", 50, "--accuracy", 0.8, "--devices", 2)
    assert done.exit_code == 0, done.output
    count = len(read_plan(place / "plan.json").hardware.devices)
    noun = "device" if count == 1 else "devices"
    assert done.stdout.startswith(f"{count} {noun}")
    assert f"wrote plan.json ({count} {noun}) after" in done.stdout.splitlines()[-1]


def test_what_if_is_refused_where_nothing_else_is_planned(place: Path) -> None:
    for options, told in ((["--frontier"], "--frontier and --what-if"), (["--p95-ms", 9, "--cores", 2], "--what-if")):
        done = run("plan", "profile", "--trace", "t.csv", *options, "--what-if")
        assert done.exit_code == 2
        assert told in done.output


def test_a_measurement_of_ones_own_stands_beside_the_prediction(place: Path) -> None:
    facts = msgspec.to_builtins(read_plan(place / "plan.json").predictions["task"]) | {
        "valid": True,
        "accuracy": 0.4321,
    }
    (place / "measured.json").write_text(json.dumps(facts))
    done = run("report", "plan.json", "--replay", "measured.json", "--out", "r.html")
    assert done.exit_code == 0, done.output
    page = (place / "r.html").read_text()
    assert page.index('<tr class="predicted">') < page.index('<tr class="measured">')
    assert "<td>43.2 %</td>" in page
    assert "Nothing here is measured" not in page


def test_every_option_reaches_the_planner(place: Path) -> None:
    done = run(
        "plan", "profile", "--trace", "t.csv", "--latency-ms", 50, "--percentile", 0.99, "--accuracy", 0.8,
        "--confidence", 0.9, "--load", "zipf", "--budget-s", 7, "--ranges", 5, "--max-qps", 90, "--devices", 3,
        "--scope", "trace", "--least-margin", 1.5, "--seed", 4, "--planner", "optimal",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (request,) = fake.asked
    objective = request.objective
    assert (objective.latency_s, objective.percentile, objective.scope) == (0.05, 0.99, "trace")
    assert (objective.accuracy, objective.confidence) == (0.8, 0.9)
    assert (request.load, request.budget_s, request.ranges, request.max_qps) == ("zipf", 7, 5, 90)
    assert (request.least_margin, request.seed, len(request.hardware.devices)) == (1.5, 4, 3)


def test_progress_shows_the_best_plan_so_far(place: Path) -> None:
    assert "best so far: accuracy 0.8" in run("plan", "profile", "--trace", "t.csv", "--p95-ms", 50).stderr


def test_two_objectives_without_devices_ask_for_the_fewest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fewest_devices(planner: Planner, request: PlanRequest, *, most: int, progress: Progress) -> GearPlan:
        assert (planner.name, request.objective.accuracy, request.latency_s) == ("single", 0.8, 0.05)
        return fake.made(request, 2, latency_s=0.04)

    monkeypatch.setattr("gearshift.planner.contract.ladder.fewest_devices", fewest_devices)
    asked = ("plan", "profile", "--trace", "t.csv", "--p95-ms", 50, "--accuracy", 0.8)
    assert run(*asked, "--planner", "single").exit_code == 0
    assert read_plan(place / "plan.json").predictions["task"].accuracy == 0.87
    assert run(*asked, "--devices", 1).exit_code == 0
    assert read_plan(place / "plan.json").predictions["task"].accuracy == 0.8


def test_devices_may_be_a_file_of_several_kinds(place: Path) -> None:
    (place / "hardware.toml").write_text('[[devices]]\nid = "a"\n[[devices]]\nid = "b"\nprice_per_hour = 2.5\n')
    arguments = ("plan", "profile", "--trace", "t.csv", "--p95-ms", 50, "--devices", "hardware.toml")
    assert run(*arguments).exit_code == 0
    found = [(d.id, d.price_per_hour) for d in read_plan(place / "plan.json").hardware.devices]
    assert found == [("a", UNSET), ("b", 2.5)]
    both = run(*arguments, "--memory-gib", 1)
    assert both.exit_code == 2
    assert "memory and a hardware file are both given" in both.stderr


def test_a_frontier_is_a_folder_of_plans_and_a_list_of_them(place: Path) -> None:
    done = run("plan", "profile", "--trace", "t.csv", "--frontier", "--json", "-")
    listed = json.loads(done.stdout)["plans"]
    assert [entry["plan"] for entry in listed] == [f"plans/plan-00{k}.json" for k in range(3)]
    for entry in listed:
        assert {"planner", "planning_s", "objective", "devices", "predicted"} <= entry.keys()
    plans = read_plans(place / "plans")
    assert len(plans) == 3
    assert {plan.profile.path for plan in plans.values()} == {"../profile"}
    assert fake.asked[0].objective.latency_s is None


@pytest.mark.parametrize(
    "given", [("--p95-ms", 50), ("--latency-ms", 50), ("--accuracy", 0.9), ("--confidence", 0.95)], ids=lambda g: g[0]
)
def test_an_objective_beside_a_frontier_is_refused(place: Path, given: tuple[str, float]) -> None:
    done = run("plan", "profile", "--trace", "t.csv", "--frontier", *given)
    assert done.exit_code == 2
    name = given[0]
    assert f"{name} and --frontier are both given" in done.stderr
    assert f"; leave {name} out, or --frontier to plan for it" in done.stderr
    assert not fake.asked


@pytest.mark.parametrize("name", ["latency_s", "accuracy", "confidence"])
def test_an_objective_for_a_frontier_is_refused_from_python(place: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is given for a frontier.*; leave it out, or call `plan`"):
        plan_frontier("profile", "t.csv", **{name: 0.5})
    assert not fake.asked


def test_a_frontier_may_be_at_another_percentile(place: Path) -> None:
    assert run("plan", "profile", "--trace", "t.csv", "--frontier", "--percentile", 0.9).exit_code == 0
    assert fake.asked[0].objective.percentile == 0.9


def test_a_folder_that_is_no_frontier_is_refused_before_the_search(place: Path) -> None:
    done = run("plan", "profile", "--trace", "t.csv", "--frontier", "--out", "profile")
    assert done.exit_code == 2
    assert "which is no plan of a frontier, and would be replaced" in done.stderr
    assert not fake.asked


def test_what_is_infeasible_comes_with_command_lines_that_are_feasible(place: Path) -> None:
    done = run(
        "plan", "profile", "--trace", "t.csv", "--devices", 1, "--p95-ms", 5, "--accuracy", 0.88,
        "--out", "a plan.json", "--json", "e.json",
    )  # fmt: skip
    assert done.exit_code == 3
    commands = json.loads((place / "e.json").read_text())["error"]["commands"]
    assert [line.removeprefix("try: ") for line in done.stderr.splitlines() if line.startswith("try: ")] == commands
    rest = "--out 'a plan.json' --json e.json"
    assert commands == [
        f"gearshift plan profile --trace t.csv --devices 1 --p95-ms 12.35 --accuracy 0.8765 {rest}",
    ]
    assert run(*shlex.split(commands[0])[1:]).exit_code == 0


def test_a_suggested_command_line_works(place: Path) -> None:
    done = run("plan", "profile", "--trace", "t.csv", "--latency-ms", 5, "--percentile", 0.9, "--devices", 2)
    (first, *_) = [line.removeprefix("try: ") for line in done.stderr.splitlines() if line.startswith("try: ")]
    assert run(*shlex.split(first)[1:]).exit_code == 0
    assert fake.asked[-1].objective.percentile == 0.9
    assert len(fake.asked[-1].hardware.devices) == 2


@pytest.fixture
def scaled(place: Path) -> Path:
    """A folder with the plan `p.json`, made for three of the trace's five seconds at twice its rate."""
    window = ("--rate-scale", 2, "--start-s", 1, "--duration-s", 3, "--seed", 4)
    done = run("plan", "profile", "--trace", "t.csv", "--p95-ms", 100, *window, "--out", "p.json")
    assert done.exit_code == 0, done.output
    return place


def test_verbs_read_the_plans_trace_as_it_was_read_for_the_plan(scaled: Path) -> None:
    requests = len(fake.asked[0].trace)
    assert len(read_trace(Path("t.csv"))) != requests
    explained = run("explain", "p.json", "--json", "-")
    assert json.loads(explained.stdout)["replayed"]["requests"] == requests
    assert json.loads(explained.stdout)["same_trace"]
    assert "the trace is read as for the plan: --rate-scale 2 --start-s 1 --duration-s 3" in explained.stderr
    for named in ((), ("--trace", "t.csv")):
        simulated = run("simulate", "p.json", *named, "--json", "-")
        assert json.loads(simulated.stdout)["requests"] == requests
        assert run("report", "p.json", *named).stdout.startswith("the trace is read as for the plan: --rate-scale 2")
    assert len(trace_for(read_plan(scaled / "p.json"), "p.json").arrivals_ns) == requests


def test_what_is_given_goes_before_what_the_plan_was_made_with(scaled: Path) -> None:
    whole = ("--rate-scale", 1, "--start-s", 0, "--duration-s", 5)
    simulated = run("simulate", "p.json", *whole, "--json", "-")
    assert json.loads(simulated.stdout)["requests"] == len(read_trace(Path("t.csv")))
    assert "read as for the plan" not in simulated.stderr


def test_another_trace_is_read_as_it_is_and_a_changed_one_is_told(scaled: Path) -> None:
    write_trace(steady(50, 4, seed=2), scaled / "u.csv")
    simulated = run("simulate", "p.json", "--trace", "u.csv", "--json", "-")
    assert json.loads(simulated.stdout)["requests"] == len(read_trace(Path("u.csv")))
    assert "the plan" not in simulated.stderr
    shutil.copy("u.csv", "t.csv")
    assert "t.csv has changed since the plan was made from it" in run("simulate", "p.json").stdout
    (scaled / "t.csv").unlink()
    gone = run("simulate", "p.json")
    assert gone.exit_code == 2
    assert "t.csv: no such file; name the plan's trace with --trace" in gone.stderr


def test_python_hears_that_a_plans_trace_has_changed(scaled: Path, caplog: pytest.LogCaptureFixture) -> None:
    gearshift.simulate("p.json")
    gearshift.simulate("p.json", read_trace("t.csv"))
    assert not caplog.messages
    write_trace(steady(50, 4, seed=2), scaled / "t.csv")
    gearshift.simulate("p.json")
    assert caplog.messages == ["t.csv has changed since the plan was made from it"]


def test_a_plan_that_does_not_say_how_its_trace_was_read_is_told(
    scaled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = read_plan(scaled / "p.json")
    unread = msgspec.structs.replace(plan, traces={"task": msgspec.structs.replace(plan.trace, reading=None)})
    write_plan(unread, scaled / "old.json")
    told = "the plan does not say how t.csv was read for it"
    for options in ((), ("--trace", "t.csv"), ("--seed", 4)):
        for verb in ("simulate", "report", "explain"):
            assert told in run(verb, "old.json", *options).stdout, (verb, options)
    window = ("--rate-scale", 2, "--start-s", 1, "--duration-s", 3)
    same = run("simulate", "old.json", *window, "--seed", 4, "--json", "-")
    assert json.loads(same.stdout) == json.loads(run("simulate", "p.json", "--json", "-").stdout)
    assert told not in same.stderr
    gearshift.simulate("old.json", read_trace("t.csv", rate_scale=2, start_s=1, duration_s=3, seed=4))
    assert not caplog.messages
    gearshift.simulate("old.json")
    (message,) = caplog.messages
    assert message.startswith(told)


def test_samples_are_drawn_alike_from_python_and_from_the_command_line(scaled: Path) -> None:
    for options, given in (((), {}), (("--seed", 9), {"seed": 9})):
        commanded = json.loads(run("simulate", "p.json", *options, "--json", "-").stdout)
        profile = read_profile(scaled / "profile")
        simulated = gearshift.simulate("p.json", **given).result(profile, latency_objective_s=0.1)
        assert commanded["accuracy"] == simulated.accuracy
        assert commanded["latency_s"]["mean"] == simulated.latency_s.mean
    drawn, same, other = (
        workload_of(profile, read_trace("t.csv", seed=9), **given).record.tolist()
        for given in ({}, {"seed": 9}, {"seed": 0})
    )
    assert drawn == same != other


def test_explain_answers_per_range(made: Path) -> None:
    done = run("explain", made / "plan.json", "--json", made / "e.json")
    assert done.exit_code == 0, done.output
    explained = json.loads((made / "e.json").read_text())
    assert explained.keys() == {
        *("planner", "asked", "objective", "limit_s", "ranges", "replayed", "same_trace", "neighbours"),
    }
    assert explained["same_trace"]
    assert len(explained["ranges"]) == len(read_plan(made / "plan.json").pipelines["task"].gears)
    assert explained["ranges"][0].keys() == {"gear", "load_range", "cascade", "predicted", "cores", "next", "unplaced"}
    assert "At the upper end of each range" in done.stdout
    assert "devices busy: cpu-0" in done.stdout


@pytest.mark.long
def test_explain_says_which_models_a_better_cascade_lacks_and_what_was_asked(made: Path, tmp_path: Path) -> None:
    asked = ("plan", made / "profile", "--trace", made / "t.csv", "--planner", "single", "--ranges", 2)
    assert run(*asked, "--p95-ms", 5, "--out", tmp_path / "p.json").exit_code == 0
    told = run("explain", tmp_path / "p.json").stdout
    assert "no cascade is more accurate" not in told
    assert "which are on no device: there is room for" in told
    assert "asked for" not in told
    accurate = (*asked[:4], "--ranges", 2, "--accuracy", 0.75, "--out", tmp_path / "a.json", "--json", "-")
    planned = json.loads(run(*accurate).stdout)
    assert (planned["asked"]["latency_s"], planned["asked"]["accuracy"]) == (None, 0.75)
    found_ms = planned["objective"]["latency_s"] * 1e3
    told = run("explain", tmp_path / "a.json").stdout
    assert told.startswith(f"asked for accuracy of at least 75.0 %, and made for p95 within {found_ms:.3g}")


def test_explain_takes_another_trace_and_a_moved_profile(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "plan.json", tmp_path)
    alone = run("explain", tmp_path / "plan.json")
    assert alone.exit_code == 2
    assert "name the folder of the plan's profile with --profile" in alone.stderr
    write_trace(steady(50, 5, seed=2), tmp_path / "u.csv")
    done = run("explain", tmp_path / "plan.json", "--profile", made / "profile", "--trace", tmp_path / "u.csv")
    assert done.exit_code == 0, done.output
    assert "this is not the trace that the plan was made from" in done.stdout


def test_explain_tells_what_other_numbers_of_devices_give(place: Path) -> None:
    done = run("explain", "plan.json", "--devices-too")
    assert done.exit_code == 0, done.output
    assert "with 2 devices: accuracy 80.0 %, p95 100 ms" in done.stdout


@pytest.mark.long
def test_without_labels_every_verb_says_what_accuracy_is(place: Path) -> None:
    profile = synthetic_profile(models=2, samples=100)
    records = dataclasses.replace(profile.predictions, labelled=False)
    write_profile(dataclasses.replace(profile, predictions=records), place / "profile")
    told = "there are no labels: accuracy is agreement with the strongest model"
    asked = ("profile", "--trace", "t.csv", "--p95-ms", 50)
    assert told in run("plan", *asked).stdout
    assert told in run("explain", "plan.json").stdout
    compared = run("compare", *asked, "--planners", "single", "--ranges", 2, "--out", "c.html")
    assert told in compared.stdout
    assert told.capitalize() in (place / "c.html").read_text()


def test_diff_says_in_words_and_in_json_what_differs(place: Path) -> None:
    assert run("plan", "profile", "--trace", "t.csv", "--p95-ms", 50, "--devices", 2, "--out", "b.json").exit_code == 0
    done = run("diff", "plan.json", "b.json", "--json", "d.json")
    assert done.exit_code == 0, done.output
    for line in ("planner: optimal in a, fake in b", "latency_s: 0.1 in a, 0.05 in b", "device cpu-1: only in b"):
        assert line in done.stdout
    assert "Gears that differ" in done.stdout
    found = json.loads((place / "d.json").read_text())
    assert found.keys() == {
        "same",
        "origin",
        "objective",
        "hardware",
        "placement",
        "gears",
        "predictions",
        "pool_cores",
    }
    assert not found["same"]
    assert {"load_range", "a", "b"} == found["gears"][0].keys()
    assert "both plans serve in the same way" in run("diff", "b.json", "b.json").stdout


def test_serve_chooses_from_a_folder_and_says_where_it_cannot(place: Path) -> None:
    assert run("plan", "profile", "--trace", "t.csv", "--frontier").exit_code == 0
    for arguments, told in (
        (("plans",), "plans: is a folder of plans; choose one of them with --p95-ms or --accuracy"),
        (("plans", "--p95-ms", 5), "none of its plans meets the objective: their lowest p95 is 11 ms"),
        (("plans", "--accuracy", 2), "accuracy is 2.0; give a number from 0 to 1"),
        (("plans", "--p95-ms", -5), "--p95-ms is -5; give a positive number of milliseconds"),
        (("plan.json", "--p95-ms", 5), "plan.json: is one plan, and an objective chooses from a folder of plans"),
        (("plan.json", "--openai"), "--openai is given, which plans of one operator do not have; leave it out: KServe"),
        (("nothing", "--p95-ms", 5), "nothing: no such file"),
        (("profile", "--p95-ms", 5), "profile: there is no plan (plan-*.json) in it, and no model"),
        (("profile",), "make plans with `gearshift plan --frontier`, or name models"),
    ):
        done = run("serve", *arguments)
        assert done.exit_code == 2
        assert told in done.stderr
    chosen = run("serve", "plans", "--p95-ms", 25, "--profile", "nowhere")  # ends where it would begin to serve
    assert "chose plans/plan-001.json" in chosen.stdout
    assert "nowhere: there is no such profile folder" in chosen.stderr


def test_compare_writes_all_runs_and_a_failed_one_is_a_row(made: Path, tmp_path: Path) -> None:
    done = run(
        "compare", made / "profile", "--trace", made / "t.csv", "--devices", "1", "--p95-ms", "0.01,100", "--ranges", 2,
        "--planners", "single", "--accuracies", "0.7,0.99", "--baselines", "", "--jobs", 2,
        "--csv", tmp_path / "c.csv", "--out", tmp_path / "c.html", "--json", tmp_path / "c.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader((tmp_path / "c.csv").read_text().splitlines()))
    assert [float(row["latency_objective_s"]) for row in rows] == [1e-5, 0.1]
    assert "no model answers a request within 0.01 ms" in rows[0]["error"]
    assert float(rows[1]["latency_p95_s"]) <= 0.1
    found = json.loads((tmp_path / "c.json").read_text())
    assert [run["error"] is None for run in found["runs"]] == [False, True]
    assert [cell["devices"] for cell in found["grid"]] == [None, 1, None, None]
    assert (tmp_path / "c.html").read_text().startswith("<!doctype html>")
    assert "Fewest devices" in done.stdout
    assert "single, 1, 10 µs: no model answers" in done.stdout


@pytest.mark.long
def test_compare_takes_hardware_files_memory_scope_and_percentile_and_writes_its_grid(
    made: Path, tmp_path: Path
) -> None:
    asked = ("compare", made / "profile", "--trace", made / "t.csv", "--planners", "optimal,single", "--ranges", 2)
    (tmp_path / "two.toml").write_text('[[devices]]\nid = "a"\n[[devices]]\nid = "b"\n')
    done = run(
        *asked, "--devices", f"1,{tmp_path / 'two.toml'}", "--latency-ms", "6,20", "--percentile", 0.9,
        "--scope", "trace", "--accuracies", "0.8,0.99",
        "--grid-csv", tmp_path / "grid.csv", "--json", tmp_path / "c.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "c.json").read_text())
    assert (found["percentile"], found["device_counts"]) == (0.9, [1, 2])
    assert all(run["predicted"]["devices"] == run["devices"] for run in found["runs"] if run.get("predicted"))
    cells = list(csv.DictReader((tmp_path / "grid.csv").read_text().splitlines()))
    assert [(c["planner"], float(c["accuracy"])) for c in cells[:2]] == [("optimal", 0.8), ("single", 0.8)]
    assert [c["devices"] for c in cells] == [str(c["devices"] or "") for c in found["grid"]]
    assert {c["devices"] for c in cells if c["accuracy"] == "0.99"} == {""}
    small = run(*asked, "--p95-ms", "50", "--memory-gib", 0.1)
    assert "optimal, 1, 50 ms: hardware: no model fits the memory of any device" in small.stdout
    twice = run(*asked, "--p95-ms", "50", "--devices", f"2,{tmp_path / 'two.toml'}")
    assert "two hardwares of 2 devices; compare them apart" in twice.stderr


@pytest.mark.long
def test_compare_has_a_column_for_cocktail_where_the_profile_has_predictions(made: Path, tmp_path: Path) -> None:
    write_profile(independent_profile(), tmp_path / "profile")
    done = run(
        "compare", tmp_path / "profile", "--trace", made / "t.csv", "--devices", "1", "--p95-ms", "50", "--ranges", 2,
        "--planners", "single,cocktail+", "--accuracies", "0.85,0.95", "--json", tmp_path / "c.json",
        "--csv", tmp_path / "c.csv", "--out", tmp_path / "c.html",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "c.json").read_text())
    assert (found["planners"], found["columns"]) == (["single"], ["single", "cocktail+"])
    assert found["baselines"] == ["single", "cocktail+"]
    assert [cell["devices"] for cell in found["grid"]] == [1, 1.0, None, 3.0]
    assert [run["planner"] for run in found["runs"]] == ["single", "cocktail+", "cocktail+"]
    assert "single  cocktail+" in done.stdout
    assert "Cocktail+ adds and removes devices" in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--p95-ms", "a,b"), "--p95-ms is 'a,b'; give numbers between commas"),
        (("--p95-ms", "50", "--devices", "1.5"), "1.5: no such file"),
        ((), "no latency is given; give --p95-ms"),
        (("--p95-ms", "50", "--latency-ms", "50"), "--p95-ms and --latency-ms are both given; give one of them"),
        (("--p95-ms", "50", "--percentile", "0.9"), "--p95-ms and --percentile are both given"),
        (("--latency-ms", "50", "--percentile", "2"), "percentile is 2.0; give a number between 0 and 1"),
        (("--p95-ms", "50", "--memory-gib", "-1"), "--memory-gib is -1; give a positive number of GiB"),
        (("--p95-ms", "50", "--planners", "optimal,nobody"), "there is no planner 'nobody'; name one of"),
        (("--p95-ms", "50", "--devices", "0"), "0 devices asked for"),
        (("--p95-ms", "50,-50"), "--p95-ms is -50; give a positive number of milliseconds"),
        (("--p95-ms", "50", "--budget-s", "0"), "--budget-s is 0; give a positive number of seconds"),
        (("--p95-ms", "50", "--accuracies", "0.5,2"), "accuracy is 2.0; give a number from 0 to 1"),
        (("--p95-ms", "50", "--csv", "."), ".: is a folder, needs a file; choose another place"),
        (("--p95-ms", "50", "--planners", "cocktail+"), "Cocktail+ needs recorded predictions of at most 12 models"),
    ],
)
def test_compare_refuses_what_it_cannot_compare(made: Path, arguments: tuple[str, ...], told: str) -> None:
    done = run("compare", made / "profile", "--trace", made / "t.csv", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    "sent", [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.long) for one in (signal.SIGTERM, signal.SIGKILL))]
)
def test_compare_leaves_no_process_and_no_file_when_it_is_ended(
    made: Path, tmp_path: Path, sent: signal.Signals
) -> None:
    command = [
        *(sys.executable, "-m", "gearshift", "compare", str(made / "profile"), "--trace", str(made / "t.csv")),
        *(
            "--planners",
            "optimal",
            "--p95-ms",
            "40,50,60,70,80",
            "--jobs",
            "2",
            "--csv",
            "c.csv",
            "--out",
            "c.html",
            "--json",
            "c.json",
        ),
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    children = wait_for_children(process.pid, 2)
    if sent is signal.SIGINT:
        os.killpg(process.pid, sent)  # as a terminal does
    else:
        process.send_signal(sent)
    _, said = process.communicate(timeout=30)
    assert process.returncode == (130 if sent is signal.SIGINT else -sent)
    assert sent is not signal.SIGINT or b"Traceback" not in said
    left = {file.name: file.read_text() for file in tmp_path.iterdir()}
    if sent is signal.SIGINT:  # which --json tells
        assert json.loads(left.pop("c.json"))["error"]["kind"] == "interrupted"
    assert not left
    until = time.monotonic() + 20
    while any(alive(pid) for pid in children):
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_for_children(pid: int, count: int) -> list[int]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
        if len(children) >= count:
            return children
        time.sleep(0.02)
    raise AssertionError("no processes were started")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_plan_that_names_no_trace_needs_one(place: Path) -> None:
    nowhere = msgspec.structs.replace(read_plan(place / "plan.json"), traces={"task": SourceFile(path="", sha256="")})
    write_plan(nowhere, place / "x.json")
    for verb in ("explain", "simulate", "validate", "replay"):
        done = run(verb, "x.json")
        assert done.exit_code == 2
        assert "x.json: the plan names no trace; give one with --trace" in done.stderr
    told = run("report", "x.json").stdout
    assert told.startswith("the plan names no trace, so the page has no simulation")
    url = run("replay", "http://127.0.0.1:9")
    says = "http://127.0.0.1:9: no trace is given; give one with --trace: a URL names none"
    assert says in url.stderr
    with pytest.raises(InvalidInput, match=says):
        gearshift.replay("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"planner": "single"}, "planner and cores are both given"),
        ({"fewest": True}, "fewest and cores are both given"),
        ({"devices": 2}, "devices and cores are both given"),
    ],
)
def test_what_cores_would_leave_out_of_account_is_refused_from_python(
    place: Path, asked: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        gearshift.plan("profile", "t.csv", cores=4, latency_s=0.1, accuracy=0.8, **asked)
    with pytest.raises(InvalidInput, match="cores are given for a frontier"):
        plan_frontier("profile", "t.csv", cores=4)
    assert not fake.asked


def test_the_first_line_of_plan_and_inspect_says_what_is_needed(place: Path) -> None:
    (place / "hw.toml").write_text(
        '[[devices]]\nid = "a"\nprice_per_hour = 0.5\n[[devices]]\nid = "b"\nprice_per_hour = 3\n'
    )
    done = run("plan", "profile", "--trace", "t.csv", "--p95-ms", 50, "--devices", "hw.toml", "--json", "p.facts")
    said = (
        "p95 50 ms (45 to 55 ms); accuracy 80.0 % (79.0 to 81.0 %); "
        "2 devices, each with m1, 3.50 an hour (9.72 a million requests); "
    )
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"{said}m2 alone (")
    facts = json.loads((place / "p.facts").read_text())
    assert facts["price_per_hour"] == 3.5
    assert f"would need {facts['largest_alone']['devices']} device" in first
    assert run("inspect", "plan.json").stdout.splitlines()[0] == said.removesuffix("; ")
    assert run("report", "plan.json").exit_code == 0
    assert "<dt>an hour costs</dt><dd>3.50<small>" in (place / "report.html").read_text()


@pytest.mark.parametrize("ended_by", [KeyboardInterrupt(), InvalidInput("it does not fit")])
def test_a_plan_that_is_made_is_told_whatever_ends_what_the_largest_model_would_need(
    place: Path, monkeypatch: pytest.MonkeyPatch, ended_by: BaseException
) -> None:
    def ended(*_: object) -> None:
        raise ended_by

    monkeypatch.setattr("gearshift.cli.views.rows.plan.largest_alone", ended)
    done = run("plan", "profile", "--trace", "t.csv", "--p95-ms", 50, "--json", "p.facts")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].startswith("p95 50 ms (45 to 55 ms); accuracy ")
    assert "wrote plan.json" in done.stdout
    assert json.loads((place / "p.facts").read_text())["largest_alone"] is None


def test_latencies_are_named_by_the_percentile_that_was_asked_for(made: Path, tmp_path: Path) -> None:
    plan = read_plan(made / "plan.json")
    operator = plan.pipelines["task"]
    objective = msgspec.structs.replace(operator.objective, percentile=0.99)
    pipelines = {"task": msgspec.structs.replace(operator, objective=objective)}
    write_plan(msgspec.structs.replace(plan, pipelines=pipelines), tmp_path / "p.json")
    lines = run("inspect", tmp_path / "p.json").stdout.splitlines()
    assert lines[0].startswith("p99 ")
    header = lines[2].split()
    assert (header[0], "p99" in header, "p95" in header) == ("gear", True, False)


def test_a_plan_under_other_names_than_its_operators_is_read_by_all_verbs(place: Path) -> None:
    write_plan(under_other_names(read_plan(place / "plan.json")), place / "shop.json")
    verbs = {"inspect": [], "simulate": ["--trace", "t.csv"], "explain": [], "report": [], "diff": ["plan.json"]}
    for verb, options in verbs.items():
        done = run(verb, "shop.json", *options)
        assert done.exit_code == 0, f"{verb}: {done.output}"
