"""The verbs around planning, with language models and a planner that searches little."""

import csv
import json
from pathlib import Path

import msgspec
import pytest

from gearshift.cli.common.output import Output
from gearshift.cli.common.view import Compared
from gearshift.cli.views.tokens.compare import show
from gearshift.planner.language.compared.compare import LanguageComparison, LanguageRun
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.profiles.engines.store import write_language_profile
from gearshift.reporting.drawing.page import html_page
from gearshift.reporting.language.page import tokens_sections, tokens_shown
from gearshift.traces.read import write_trace
from tests.language_profiles import bursty_trace, language_profile
from tests.language_server import serving
from tests.two_language_models import ALONE, SMALL_ALONE, language_plan
from tests.unit.cli.little import run

FOLDER = "chat-profile"
FAILED = {"kind": "infeasible", "message": "no"}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile, a trace, and a plan of them."""
    place = tmp_path_factory.mktemp("language")
    write_language_profile(place / FOLDER, language_profile())
    write_trace(bursty_trace(1, 10, seconds=6), place / "trace.csv")
    result = run("plan", place / FOLDER, "--trace", place / "trace.csv", *ASKED, "--out", place / "plan.json")
    assert result.exit_code == 0, result.output
    assert "TTFT p95" in result.output
    return place


ASKED = ("--ttft-p95-ms", "300", "--planner", "static-cascade", "--memory-gib", "0.028")


def test_a_plan_file_holds_gears_by_outstanding_work(planned: Path) -> None:
    made = read_plan(planned / "plan.json")
    assert made.pipeline.load_unit == "drain_s"
    assert made.pipeline.objective.metric == "ttft"
    assert made.profile.path == FOLDER
    assert made.trace.path == "trace.csv"
    assert all(int(replica.kv_tokens) > 0 for replica in made.placement.replicas)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["simulate", "explain", "inspect"])
def test_verbs_take_the_plan_by_itself(verb: str, planned: Path) -> None:
    result = run(verb, planned / "plan.json", "--json", planned / f"{verb}.json")
    assert result.exit_code == 0, result.output
    assert "quality" in result.output
    told = json.loads((planned / f"{verb}.json").read_text())
    assert {"simulate": "tokens", "explain": "certainty_worth", "inspect": "pipelines"}[verb] in told


def test_explain_says_that_a_plan_was_cut_short(planned: Path) -> None:
    made = read_plan(planned / "plan.json")
    asked = msgspec.structs.replace(made.pipeline.asked, budget_s=5.0)  # type: ignore[type-var]
    pipelines = {made.name: msgspec.structs.replace(made.pipeline, asked=asked)}
    write_plan(msgspec.structs.replace(made, pipelines=pipelines, unfinished=True), planned / "cut.json")
    result = run("explain", planned / "cut.json")
    assert result.exit_code == 0, result.output
    assert "ended early: this is the best so far" in " ".join(result.output.split())
    assert "its budget was 5 s" in " ".join(result.output.split())


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `planned`, with one request of eight that is longer than every context."""
    place = tmp_path_factory.mktemp("beyond")
    write_language_profile(place / FOLDER, language_profile(context_tokens=150))
    rows = [f"{i},20,{200 if i == 3 else 10}" for i in range(8)]
    (place / "trace.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    tells_what_is_left_out("plan", place / FOLDER, "--trace", place / "trace.csv", *ASKED, "--out", place / "plan.json")
    return place


def tells_what_is_left_out(*words: object) -> None:
    result = run(*words)
    assert result.exit_code == 0, result.output
    told = "1 of 8 requests have more than the 150 tokens of the longest context, and are left out"
    assert told in " ".join(result.output.split())


def test_requests_that_no_context_holds_are_told_and_left_out(beyond: Path) -> None:
    tells_what_is_left_out("simulate", beyond / "plan.json", "--json", beyond / "simulated.json")
    assert json.loads((beyond / "simulated.json").read_text())["requests"] == 7


@pytest.mark.long
def test_all_verbs_leave_out_the_requests_that_no_context_holds(beyond: Path) -> None:
    plan, profile, trace = beyond / "plan.json", beyond / FOLDER, beyond / "trace.csv"
    tells_what_is_left_out("explain", plan, "--json", beyond / "explained.json")
    assert json.loads((beyond / "explained.json").read_text())["replayed"]["requests"] == 7
    tells_what_is_left_out("report", plan, "--out", beyond / "report.html")
    asked = ("--ttft-p95-ms", "300", "--planners", "single", "--memory-gib", "0.028")
    tells_what_is_left_out("compare", profile, "--trace", trace, *asked, "--json", beyond / "runs.json")
    assert json.loads((beyond / "runs.json").read_text())["runs"][0]["predicted"]["requests"] == 7
    tells_what_is_left_out("validate", plan, "--backend", "emulated", "--json", beyond / "validated.json")
    validated = json.loads((beyond / "validated.json").read_text())
    assert (validated["predicted"]["requests"], validated["measured"]["requests"]) == (7, 7)
    assert validated["replay"]["left_out"] == 1
    with serving(plan, "--backend", "emulated") as server:
        sent = ("--profile", profile, "--trace", trace, "--json", beyond / "replayed.json")
        tells_what_is_left_out("replay", server.url, *sent)
    replayed = json.loads((beyond / "replayed.json").read_text())
    assert (replayed["result"]["requests"], replayed["left_out"]) == (7, 1)


def test_a_plan_has_a_page_of_its_own(planned: Path) -> None:
    result = run("report", planned / "plan.json", "--out", planned / "report.html")
    assert result.exit_code == 0, result.output
    page = (planned / "report.html").read_text()
    assert "tokens were shown to clients" in page
    assert "What happens over the trace" in page


def test_two_plans_are_told_apart(planned: Path) -> None:
    one, other = planned / "one.json", planned / "other.json"
    for path, starts in ((one, [0.0]), (other, [0.0, 8.0])):
        write_plan(language_plan([ALONE, SMALL_ALONE][: len(starts)], starts), path)
    result = run("diff", one, other)
    assert result.exit_code == 0, result.output
    assert "Gears that differ" in result.output
    assert "8 requests" in result.output


def test_a_profile_is_inspected(planned: Path) -> None:
    result = run("inspect", planned / FOLDER)
    assert result.exit_code == 0, result.output
    assert "tokens/s" in result.output


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--p95-ms", "300"), "which plans of language models do not have; give --ttft-p95-ms, --per-token-p95-ms, "),
        (("--ttft-p95-ms", "300", "--total-p95-ms", "900"), "--ttft-p95-ms and --total-p95-ms are both given"),
        (("--ttft-p95-ms", "300", "--metric", "total"), "metric and ttft_s are both given"),
        (("--ttft-p95-ms", "300", "--planner", "coordinate"), "'coordinate' does not make plans of language models"),
        (("--ttft-p95-ms", "300", "--cores", "2"), "cores is given, which plans of language models do not have"),
        ((), "no objective is given"),
    ],
)
def test_what_does_not_go_with_language_models_is_refused(words: tuple[str, ...], problem: str, planned: Path) -> None:
    result = run("plan", planned / FOLDER, "--trace", planned / "trace.csv", *words)
    assert result.exit_code == 2, result.output
    assert problem in result.output


def test_what_is_feasible_is_named_as_a_flag(planned: Path) -> None:
    words = ("--ttft-p95-ms", "1", "--planner", "single", "--memory-gib", "0.028")
    result = run("plan", planned / FOLDER, "--trace", planned / "trace.csv", *words, "--out", planned / "other.json")
    assert result.exit_code == 3, result.output
    assert "--ttft-p95-ms" in result.output


def test_other_verbs_say_what_they_lack(planned: Path) -> None:
    result = run("simulate", planned / "plan.json", "--scaler", "exact")
    assert result.exit_code == 2
    assert "--scaler is given" in result.output


def test_planners_are_compared_on_the_time_that_is_asked_for(planned: Path) -> None:
    words = ("--total-p95-ms", "2000,1", "--planners", "single", "--devices", planned / "gpu.json")
    (planned / "gpu.json").write_text('{"devices": [{"id": "gpu-0", "kind": "gpu", "memory_bytes": 30000000}]}')
    files = ("--csv", planned / "runs.csv", "--out", planned / "compared.html")
    result = run("compare", planned / FOLDER, "--trace", planned / "trace.csv", *words, *files)
    assert result.exit_code == 0, result.output
    assert "total time p95" in result.output
    rows = list(csv.DictReader((planned / "runs.csv").read_text().splitlines()))
    assert [(row["metric"], row["limit_s"]) for row in rows] == [("total", "0.001"), ("total", "2.0")]
    assert 0 < float(rows[1]["reached_s"]) <= 2
    assert rows[0]["error"] != ""
    assert "Frontier on 1 device" in (planned / "compared.html").read_text()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "no time is given; give one of --ttft-p95-ms, --per-token-p95-ms, --total-p95-ms"),
        (("--ttft-p95-ms", "3", "--total-p95-ms", "9"), "--ttft-p95-ms and --total-p95-ms are both given"),
        (("--total-p95-ms", "0"), "--total-p95-ms is 0"),
        (("--total-p95-ms", "9", "--grid-csv", "x"), "--grid-csv is given"),
    ],
)
def test_a_comparison_needs_one_time(words: tuple[str, ...], problem: str, planned: Path) -> None:
    result = run("compare", planned / FOLDER, "--trace", planned / "trace.csv", *words)
    assert result.exit_code == 2, result.output
    assert problem in result.output


@pytest.mark.long
def test_a_frontier_is_of_the_time_that_is_asked_for(planned: Path) -> None:
    words = ("--frontier", "--metric", "total", "--planner", "single", "--memory-gib", "0.028")
    out = planned / "frontier"
    result = run("plan", planned / FOLDER, "--trace", planned / "trace.csv", *words, "--out", out)
    assert result.exit_code == 0, result.output
    objectives = [read_plan(path).pipeline.objective for path in sorted(out.glob("*.json"))]
    assert {one.metric for one in objectives} == {"total"}
    assert [one.latency_s for one in objectives] == sorted(one.latency_s or 0.0 for one in objectives)


@pytest.mark.long
def test_a_plan_tells_its_cost_and_that_of_other_numbers_of_devices(planned: Path, tmp_path: Path) -> None:
    asked = ("plan", planned / FOLDER, "--trace", planned / "trace.csv", *ASKED, "--out", tmp_path / "plan.json")
    result = run(*asked, "--price-per-hour", 2.5, "--what-if", "--json", tmp_path / "facts.json")
    assert result.exit_code == 0, result.output
    facts = json.loads((tmp_path / "facts.json").read_text())
    count = facts["devices"]
    assert facts["price_per_hour"] == 2.5 * count
    assert facts["price_per_million"] > 0
    assert [one["devices"] for one in facts["what_if"]] == [
        n for n in range(count - 2, count + 3) if n > 0 and n != count
    ]
    assert f"{2.5 * count:.2f} an hour at 2.50 each" in result.output
    assert "1 more" in result.output[result.output.index("Devices and cost") :]
    assert run("inspect", tmp_path / "plan.json").output.count("an hour") == 1
    profile = language_profile()
    page = html_page("", "", tokens_sections(tokens_shown(read_plan(tmp_path / "plan.json"), profile), profile))
    assert "<dt>an hour costs</dt>" in page
    assert ">1 more</th>" in page


def test_a_comparison_has_columns_of_money_where_prices_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    priced = LanguageRun(planner="optimal", devices=2, limit_s=0.3, planning_s=1.0, price_per_hour=5.0, error=FAILED)
    for one, shown in ((priced, True), (msgspec.structs.replace(priced, price_per_hour=None), False)):
        found = LanguageComparison(metric="ttft", percentile=0.95, runs=(one,), worth=())
        show(Output(None), found, Compared([], None, None, {}))
        told = capsys.readouterr().out
        assert ("an hour" in told, "5.00" in told) == (shown, shown)


@pytest.mark.parametrize("verb", ["plan", "compare"])
def test_a_profile_that_is_missing_is_named_before_options_are_judged(tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path / "none", "--trace", tmp_path / "trace.csv", "--ttft-p95-ms", "300")
    assert result.exit_code != 0
    assert "there is no such profile folder" in " ".join(result.output.split())
