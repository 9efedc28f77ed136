"""One report for every kind of plan."""

from pathlib import Path

import msgspec
import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.plans.plan_file import write_plan
from gearshift.profiles.engines.store import write_language_profile
from gearshift.profiles.store import write_profile
from tests.graph_task import graph_plan
from tests.little_task import little_plan, little_profile
from tests.two_language_models import ALONE, language_plan, language_profile


def rows(folder: Path) -> GearPlan:
    return little_plan(write_profile(little_profile(), folder / "profile").sha256)


def graph(folder: Path) -> GearPlan:
    return graph_plan()


def tokens(folder: Path) -> GearPlan:
    return language_plan([ALONE], profile_sha256=write_language_profile(folder / "profile", language_profile()).sha256)


def written(made: GearPlan, folder: Path) -> Path:
    """A plan that names no trace."""
    traces = {name: msgspec.structs.replace(source, path="") for name, source in made.traces.items()}
    write_plan(msgspec.structs.replace(made, traces=traces), folder / "plan.json")
    return folder / "plan.json"


@pytest.mark.parametrize(
    ("kind", "heading"), [(rows, "How it works"), (graph, "The graph of pairs"), (tokens, "How it works")]
)
def test_every_kind_of_plan_has_a_page_which_says_where_nothing_was_simulated(
    kind: object, heading: str, tmp_path: Path
) -> None:
    assert callable(kind)
    made = kind(tmp_path)
    page = gearshift.report(written(made, tmp_path), tmp_path / "page.html").read_text()
    assert f"<title>Gear plan for {made.name}</title>" in page
    assert f"<h2>{heading}</h2>" in page
    assert "<p>Without a trace nothing was simulated.</p>" in page


@pytest.mark.parametrize("kind", [graph, tokens])
def test_a_measured_run_is_refused_where_no_page_shows_it(kind: object, tmp_path: Path) -> None:
    assert callable(kind)
    plan = written(kind(tmp_path), tmp_path)
    with pytest.raises(InvalidInput, match=r"replay is given, which plans of .* do not have; use"):
        gearshift.report(plan, tmp_path / "page.html", replay=tmp_path / "run.json")
