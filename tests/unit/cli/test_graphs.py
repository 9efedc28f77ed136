"""The verbs for plans of graphs; what they compute has tests of its own."""

import json
from pathlib import Path

import msgspec
import pytest

from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.reporting.drawing.page import html_page
from gearshift.reporting.rows_page import pipelines_sections
from gearshift.reporting.shown import shown_of_each
from tests.little_task import write_little_task
from tests.unit.cli.little import run
from tests.unit.planner.joint.mixed import write_mixed
from tests.unit.reporting.test_rows_page import figures


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed(tmp_path_factory.mktemp("graph"), both=False)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed(tmp_path_factory.mktemp("both"), both=True)


def test_a_graph_is_simulated_with_its_recorded_requests(graph: Path) -> None:
    done = run("simulate", graph, "--trace", graph.parent / "cats.csv", "--json", graph.parent / "out.json")
    assert done.exit_code == 0, done.output
    found = json.loads((graph.parent / "out.json").read_text())
    assert found["requests"] > 500
    assert 0.7 < found["accuracy"] < 1


def test_a_graph_is_explained_by_tuples_and_nodes(graph: Path) -> None:
    done = run("explain", graph, "--json", graph.parent / "out.json")
    assert done.exit_code == 0, done.output
    assert "strips, at the upper end of each range" in done.output
    assert "node read (model" in done.output
    assert "Nodes of strips" in done.output
    found = json.loads((graph.parent / "out.json").read_text())
    assert found["pipelines"]["strips"]["flow"]["edges"][0] == {"from": "split", "to": "read", "when": "", "rows": 1.0}


@pytest.mark.long
def test_each_of_several_pipelines_is_explained(both: Path) -> None:
    done = run("explain", both)
    assert done.exit_code == 0, done.output
    for name in ("strips", "cats"):
        assert f"{name}, at the upper end of each range" in done.output


@pytest.mark.parametrize("options", [["--devices-too"], ["--profile", "profile"]])
def test_what_is_for_one_node_is_refused(graph: Path, options: list[str]) -> None:
    done = run("explain", graph, *options)
    assert done.exit_code == 2
    assert f"{options[0]} is given, which plans of a pipeline of several nodes do not have" in done.output


def test_a_graph_without_joint_records_is_refused_with_the_place(tmp_path: Path) -> None:
    plan = write_mixed(tmp_path, both=False)
    (tmp_path / "profile" / "strips" / "tuples.csv").unlink()
    done = run("explain", plan)
    assert done.exit_code == 2
    assert "pipeline 'strips' has no joint records" in done.output


def test_a_report_draws_the_graph_with_conditions_rows_and_time(graph: Path) -> None:
    done = run("report", graph, "--out", graph.parent / "report.html")
    assert done.exit_code == 0, done.output
    page = (graph.parent / "report.html").read_text()
    assert "The graph of strips" in page
    assert page.count("marker-end") == 2
    assert "3 items a request" in page
    assert "3 a request" in page
    assert "small &lt;0.05 &gt; large" in page
    drawn = figures(page)
    assert list(drawn) == ["day-1-0", "day-1-1", "day-1-2", "latency-1-0"]  # no gear has a predicted accuracy
    (load,), (accuracy,) = drawn["day-1-0"], drawn["day-1-1"]
    assert len(load["x"]) == len(accuracy["x"]) == 20  # a second each
    assert all("requests/s" in text for text in load["text"])
    assert "What happens over the trace: strips" in page


@pytest.mark.long
def test_a_report_of_several_pipelines_has_a_graph_of_each(both: Path) -> None:
    done = run("report", both, "--out", both.parent / "report.html")
    assert done.exit_code == 0, done.output
    drawn = figures((both.parent / "report.html").read_text())
    assert [one for one in drawn if "day" in one and one.endswith("-0")] == ["day-1-0", "day-2-0"]
    page = (both.parent / "report.html").read_text()
    assert [page.count(f"The graph of {name}</h2>") for name in ("strips", "cats")] == [1, 1]


def test_a_graph_is_inspected(graph: Path) -> None:
    done = run("inspect", graph)
    assert done.exit_code == 0, done.output
    assert "Gears of strips" in done.output


def test_plans_of_a_graph_are_compared_by_the_cascades_of_their_nodes(graph: Path) -> None:
    assert "both plans serve in the same way" in run("diff", graph, graph).output
    plan = read_plan(graph)
    (name,) = plan.pipelines
    first, *others = plan.pipelines[name].gears
    settings = [
        msgspec.structs.replace(each, largest_batch_size=each.largest_batch_size + 1) for each in first.replicas
    ]
    changed = msgspec.structs.replace(first, replicas=tuple(settings))
    pipelines = {name: msgspec.structs.replace(plan.pipelines[name], gears=(changed, *others))}
    write_plan(msgspec.structs.replace(plan, pipelines=pipelines), graph.parent / "changed.json")
    told = run("diff", graph, graph.parent / "changed.json").output
    assert f"read: {first.cascades['read'][0]}" in " ".join(told.split())
    assert "Gears that differ" in told


@pytest.mark.parametrize("verb", ["simulate", "explain", "report", "validate"])
def test_the_trace_of_the_only_pipeline_may_have_its_name_and_is_given_once(verb: str, tmp_path: Path) -> None:
    plan = write_little_task(tmp_path)
    told = run(verb, plan, "--trace", f"sums={tmp_path / 'none.csv'}")
    assert f"{tmp_path / 'none.csv'}: " in told.stderr
    assert "sums=" not in told.stderr
    twice = run(verb, plan, "--trace", "a.csv", "--trace", "b.csv")
    assert "--trace is given 2 times, for one pipeline; leave all but one out" in twice.stderr


def test_a_graph_is_planned_by_greedy_steps_if_asked(graph: Path) -> None:
    folder = graph.parent
    done = run(
        *("plan", folder / "profile", "--trace", folder / "strips.csv", "--p95-ms", 50, "--devices", 2, "--ranges", 2),
        *("--planner", "greedy", "--out", folder / "greedy.json"),
    )
    assert done.exit_code == 0, done.output
    made = read_plan(folder / "greedy.json")
    assert (made.planner, made.predictions["strips"].share_late <= 0.05) == ("greedy", True)


@pytest.mark.long
def test_planners_of_a_graph_are_compared_in_tables_files_and_a_page(graph: Path, tmp_path: Path) -> None:
    folder = graph.parent
    done = run(
        *("compare", folder / "profile", "--trace", folder / "strips.csv", "--p95-ms", "0.1,50", "--devices", "2"),
        *("--planners", "greedy,apart", "--ranges", 2, "--accuracies", "0.5,1", "--jobs", 2),
        *("--csv", tmp_path / "c.csv", "--grid-csv", tmp_path / "g.csv", "--out", tmp_path / "c.html"),
        *("--json", tmp_path / "c.json"),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["planners"] == found["baselines"] == ["greedy", "apart"]
    outcomes = [(one["planner"], one["latency_objective_s"], one["error"] is None) for one in found["runs"]]
    assert outcomes == [("greedy", 1e-4, False), ("greedy", 0.05, True), ("apart", 1e-4, False), ("apart", 0.05, True)]
    assert "greedy, 2, 0.1 ms: the tuple of least work misses 0.1 ms" in done.output
    assert "Hypervolume" in done.output
    assert [cell["devices"] for cell in found["grid"] if cell["accuracy"] == 1] == [None] * 4
    assert "Planners for strips" in (tmp_path / "c.html").read_text()
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 5
    assert len((tmp_path / "g.csv").read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("verb", "options", "told"),
    [
        ("plan", ["--planner", "single"], "does not make plans of a pipeline of several nodes; name one of joint,"),
        ("plan", ["--planner", "greedy", "--budgets", "equal"], "budgets are given, and planner 'greedy' plans with"),
        ("plan", ["--planner", "apart", "--accuracy", 0.5], "operators that are planned apart promise none"),
        ("compare", ["--planners", "optimal"], "planner 'optimal' plans no pipeline of several nodes"),
        ("compare", ["--pipeline", "cats"], "the profile has no pipeline 'cats'; name one of strips"),
        ("compare", ["--budget-s", 5], "--budget-s is given, which plans of a pipeline of several nodes do not have"),
        ("compare", ["--scope", "trace"], "--scope is given, which plans of a pipeline of several nodes do not have"),
        ("compare", ["--accuracies", "0.5,2"], "accuracy is 2.0; give a number from 0 to 1"),
    ],
)
def test_what_plans_no_graph_is_refused(graph: Path, verb: str, options: list[object], told: str) -> None:
    done = run(verb, graph.parent / "profile", "--trace", graph.parent / "strips.csv", "--p95-ms", 50, *options)
    assert done.exit_code == 2
    assert told in done.output


def test_a_planner_of_graphs_is_refused_for_one_operator(graph: Path) -> None:
    cats = graph.parent / "profile" / "cats"
    done = run("plan", cats, "--trace", graph.parent / "cats.csv", "--p95-ms", 50, "--planner", "greedy")
    assert done.exit_code == 2
    assert "planner 'greedy' does not make plans of one operator" in done.output


@pytest.mark.long
def test_the_plan_of_a_graph_tells_its_cost_and_that_of_other_numbers_of_devices(graph: Path, tmp_path: Path) -> None:
    asked = ("plan", graph.parent / "profile", "--trace", graph.parent / "strips.csv", "--p95-ms", 50, "--ranges", 2)
    asked = (*asked, "--devices", 2, "--planner", "greedy", "--price-per-hour", 0.5, "--what-if")
    asked = (*asked, "--out", tmp_path / "plan.json")
    done = run(*asked, "--json", tmp_path / "facts.json")
    assert done.exit_code == 0, done.output
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["price_per_hour"] == 1.0
    assert facts["price_per_million"] > 0
    assert [(one["devices"], one["price_per_hour"]) for one in facts["what_if"]] == [(1, 0.5), (3, 1.5), (4, 2.0)]
    assert "1.00 an hour at 0.50 each" in done.output
    assert "1 more" in done.output[done.output.index("Devices and cost") :]
    made = read_plan(tmp_path / "plan.json")
    page = html_page("", "", pipelines_sections(made, shown_of_each(made, {})))
    assert "<dt>an hour costs</dt><dd>1.00<small>" in page
    assert ">1 more</th>" in page


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--what-if", "--devices", "hw.toml"], "--what-if is given, and --devices names a file"),
        (["--what-if", "--with", "plan.json"], "--what-if is given, which plans of several operators do not have"),
    ],
)
def test_where_no_other_number_of_devices_is_planned_for_it_is_said(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hw.toml").write_text('[[devices]]\nid = "a"\n')
    done = run("plan", graph.parent / "profile", "--trace", graph.parent / "cats.csv", "--p95-ms", 400, *options)
    assert done.exit_code == 2
    assert told in done.output
