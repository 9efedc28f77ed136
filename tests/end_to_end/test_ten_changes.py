"""What CONTRIBUTING.md says of new things: a toy of each, one file and one line, is added to a copy and used."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import gearshift
from gearshift.plans.plan_file import read_plan, write_plan
from tests.little_task import write_little_task
from tests.scaled_task import write_scaled_task

pytestmark = pytest.mark.long

PACKAGE = Path(gearshift.__file__).parent
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
LONGEST_S = 280.0


class Change(NamedTuple):
    """The new `line` of the module `table`, which stands below the line `below`, and the new file, if there is one."""

    table: str
    below: str
    line: str
    file: str = ""
    text: str = ""


class Changed(NamedTuple):
    """A folder with a little task, where a copy of the package with the change is used."""

    place: Path
    source: Path

    def python(self, *arguments: str) -> str:
        """What a program of the copy says; it has to end well."""
        environment = os.environ | {"PYTHONPATH": str(self.source), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.place, env=environment, capture_output=True, text=True,
            timeout=LONGEST_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def gearshift(self, *words: str) -> str:
        return self.python("-m", "gearshift", *words)


def changed(folder: Path, change: Change) -> Changed:
    source, place = folder / "source", folder / "place"
    package = source / "gearshift"
    shutil.copytree(PACKAGE, package)
    if change.file:
        assert not (package / change.file).exists(), f"{change.file} is there already"
        (package / change.file).write_text(change.text)
    table = package / change.table
    lines = table.read_text().splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if line.strip() == change.below]
    assert len(found) == 1, f"{change.table} has the line {change.below!r} {len(found)} times, and should have it once"
    indent = re.match(" *", lines[found[0]])[0]
    if change.below.endswith(("(", "[", "{")):
        indent += "    "
    lines.insert(found[0] + 1, f"{indent}{change.line}\n")
    table.write_text("".join(lines))
    place.mkdir()
    write_little_task(place)
    (place / "t.csv").write_text("second,requests\n" + "".join(f"{second},20\n" for second in range(5)))
    return Changed(place, source)


def test_a_certainty(tmp_path: Path) -> None:
    change = Change(
        "models/certainty.py",
        '"agreement": f"{HERE}:agreement",',
        '"toy": "gearshift.models.toy:first_score",',
        "models/toy.py",
        "def first_score(scores):\n    return scores[:, 0].astype('float64')\n",
    )
    copy = changed(tmp_path, change)
    (copy.place / "gearshift.toml").write_text("""
operator = "signs"
samples = "scores.py:samples"
certainty = "toy"
[models.small]
load = "scores.py:model"
[models.large]
load = "scores.py:model"
[profile]
batch_sizes = [1, 4]
repeats = 3
""")
    (copy.place / "scores.py").write_text("""
import gearshift
import numpy as np

def samples():
    x = np.linspace(0.1, 0.9, 40).astype(np.float32)
    return gearshift.Samples(inputs={"x": x}, labels=(x < 0.5).astype(int))

def model():
    return lambda x: np.stack([x, 1 - x], axis=1)
""")
    copy.python("-c", "import gearshift; gearshift.profile(out='signs')")
    assert "certainty is toy" in copy.gearshift("inspect", "signs")
    program = "import gearshift; print(sorted(gearshift.inspect('signs').predictions.certainty[0])[0])"
    assert float(copy.python("-c", program)) == pytest.approx(0.1)


def test_a_planner(tmp_path: Path) -> None:
    change = Change(
        "planner/planners.py",
        '"single": f"{HERE}.baselines.one_gear:SINGLE",',
        '"toy": f"{HERE}.baselines.toy",',
        "planner/baselines/toy.py",
        """
from gearshift.planner.baselines.one_gear import planner
from gearshift.planner.space.cascade_search import single_models

PLANNER = planner("toy", lambda request: single_models(request)[:1])
""",
    )
    copy = changed(tmp_path, change)
    words = ("--trace", "t.csv", "--p95-ms", "100", "--policy", "gears")
    copy.gearshift("plan", "profile", *words, "--planner", "toy", "--out", "toy.json")
    made = read_plan(copy.place / "toy.json")
    assert (made.planner, {str(gear.cascade) for gear in made.pipeline.gears}) == ("toy", {"small"})
    assert "toy" in copy.gearshift("plan", "--help")


def test_a_scaler(tmp_path: Path) -> None:
    change = Change(
        "simulator/compared/table.py",
        "SCALERS = {",
        '"toy": Simulated(f"{HERE}.toy:Toy"),',
        "simulator/compared/toy.py",
        """
from gearshift.simulator.compared.scalers import Bounded

class Toy(Bounded):
    def setting(self, seen):
        return self.first(2)
""",
    )
    copy = changed(tmp_path, change)
    write_scaled_task(copy.place)
    words = ("simulate", "plan.json", "--trace", "t.csv", "--slo-ms", "500", "--scaler", "toy", "--json", "-")
    found = msgspec.json.decode(copy.gearshift(*words, "--scaler-period-s", "0.1"))
    assert found["core_s"] == pytest.approx(2 * 5, abs=0.5)
    assert "toy" in copy.gearshift("simulate", "--help")


def test_a_column_of_a_profile(tmp_path: Path) -> None:
    change = Change(
        "cli/common/tables.py",
        '"model": lambda _, curve: curve.model,',
        '"toy": lambda profile, curve: f"{profile.operator} in {max(curve.p95_s):g} s",',
    )
    told = changed(tmp_path, change).gearshift("inspect", "profile")
    assert " toy " in told
    assert "sums in 0.002 s" in told
    assert "sums in 0.008 s" in told


def test_an_http_route(tmp_path: Path) -> None:
    change = Change(
        "serving/http/routes.py",
        "SERVER = (",
        'Route(path="/toy", handler="gearshift.serving.http.toy:toy", summary="A toy"),',
        "serving/http/toy.py",
        "def toy(handlers, exchange):\n    exchange.respond(200, b'a ' + exchange.path[1:].encode())\n",
    )
    program = """
from pathlib import Path
from urllib.request import urlopen
from gearshift.serving.operate.child_server import ChildServer

with ChildServer(Path("plan.json"), "--backend", "emulated") as server:
    for path in ("/toy", "/openapi.json"):
        print(urlopen(server.url + path, timeout=60).read().decode())
"""
    answer, described = changed(tmp_path, change).python("-c", program).splitlines()
    assert answer == "a toy"
    assert msgspec.json.decode(described)["paths"]["/toy"]["get"]["summary"] == "A toy"


def test_an_engine_kind(tmp_path: Path) -> None:
    change = Change(
        "verbs/kinds/registry.py",
        "PLACES = (",
        'f"{HERE}.toy:Toys",',
        "verbs/kinds/toy.py",
        """
from gearshift.plans.plan_file import read_plan
from gearshift.verbs.kinds.kind import Inputs, Kind

class Toys(Kind):
    name = "toys"
    shapes = {"one": "plans of toys"}
    lacks = {"one": {"explain": {"devices_too": "ask a real plan"}}}

    def has_plan(self, plan):
        return plan.planner == "toy"

    def inputs(self, plan, **given):
        return Inputs(plan, read_plan(plan), None)

    def inspect(self, path):
        return {"toys": len(read_plan(path).placement.replicas)}

    def explain(self, inputs, traces, **how):
        return {name: f"{len(trace)} toys" for name, trace in traces.items()}
""",
    )
    copy = changed(tmp_path, change)
    toy = msgspec.structs.replace(read_plan(copy.place / "plan.json"), planner="toy")
    write_plan(toy, copy.place / "toy.json")
    assert msgspec.json.decode(copy.gearshift("inspect", "toy.json")) == {"toys": 2}
    told = copy.gearshift("explain", "toy.json", "--trace", "t.csv", "--json", "-")
    assert msgspec.json.decode(told)["sums"].endswith(" toys")
    assert "replicas on 1 device" in copy.gearshift("inspect", "plan.json")
    refused = "import gearshift; gearshift.explain('toy.json', devices_too=True)"
    with pytest.raises(AssertionError, match="devices_too is given, which plans of toys do not have"):
        copy.python("-c", refused)
    with pytest.raises(AssertionError, match="toys have no `diff`"):
        copy.gearshift("diff", "toy.json", "toy.json")


def test_a_form_of_logs(tmp_path: Path) -> None:
    change = Change(
        "traces/logs/forms.py",
        "FORMS = (",
        'Form("a toy log", "gearshift.traces.logs.toy:toy_lines"),',
        "traces/logs/toy.py",
        """
from gearshift.traces.logs.lines import line_of

def toy_lines(head):
    if not head.lines[0].startswith("toy"):
        return None
    return lambda text: line_of(dict(zip(("toy", "time", "method", "path"), text.split("|"), strict=True)), None)
""",
    )
    copy = changed(tmp_path, change)
    stamps = [f"2026-01-01T00:00:{second:02d}Z" for second in range(10)]
    (copy.place / "toy.log").write_text("".join(f"toy|{stamp}|POST|/v2/toy\n" for stamp in stamps))
    words = ("trace", "toy.log", "--path", "/v2", "--method", "POST", "--json", "-")
    found = msgspec.json.decode(copy.gearshift(*words))
    assert (found["kind"], found["requests"]) == ("a toy log", 10)


def test_a_chart(tmp_path: Path) -> None:
    change = Change(
        "reporting/run_charts.py",
        "CHARTS = [",
        '"gearshift.reporting.toy:toy_chart",',
        "reporting/toy.py",
        """
from gearshift.reporting.drawing import scales
from gearshift.reporting.drawing.charts import Chart, Line, Panel

def toy_chart(shown):
    line = Line("toys", [0.0, 1.0], [0.0, 2.0], "var(--toy)")
    panel = Panel("toys", scales.exact(0.0, 1.0), scales.linear([0.0, 2.0]), (line,))
    return Chart("toy", f"Toys of {shown.name}", "They rise.", "time (s)", (panel,))
""",
    )
    copy = changed(tmp_path, change)
    made = read_plan(copy.place / "plan.json")
    traces = {name: msgspec.structs.replace(source, path="") for name, source in made.traces.items()}
    write_plan(msgspec.structs.replace(made, traces=traces), copy.place / "plan.json")
    copy.gearshift("report", "plan.json", "--out", "page.html")
    page = (copy.place / "page.html").read_text()
    assert "<h2>Toys of sums</h2>" in page
    assert "var(--toy)" in page


def test_a_verb(tmp_path: Path) -> None:
    change = Change(
        "cli/main.py",
        "VERBS = {",
        '"toy": ("data", "Say which toys there are."),',
        "cli/data/toy.py",
        """
import click
from gearshift.cli.common.output import verb

@click.command("toy")
@verb
def command(output):
    output.json(["ball"])
    output.say("there is a ball")
""",
    )
    copy = changed(tmp_path, change)
    assert copy.gearshift("toy") == "there is a ball\n"
    assert msgspec.json.decode(copy.gearshift("toy", "--json", "-")) == ["ball"]
    assert "Say which toys there are." in copy.gearshift("--help")


def test_the_files_of_a_policy_beyond_gears_are_there() -> None:
    row = next(row for row in CONTRIBUTING.read_text().splitlines() if row.startswith("| a policy beyond gears |"))
    named = re.findall(r"`([\w/]+\.py)`", row)
    assert len(named) > 5
    assert [name for name in named if not (PACKAGE / name).exists()] == []
