"""The dashboard for Grafana has the form that Grafana loads."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "gearshift.json"
COLUMNS = 24
Whole = Annotated[int, msgspec.Meta(ge=0)]
PROMQL = {"sum", "min", "max", "avg", "by", "rate", "increase", "histogram_quantile"}
OWN_LABELS = {"job", "instance", "le"}
"""Those that Prometheus adds, and that of buckets."""


class Closed(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An object of Grafana's dashboard schema (kinds/dashboard/dashboard_kind.cue, 0.0), which admits no other fields.

    Fields that it has and this dashboard has not are left out; those without a default are required there, or it has a
    default that Grafana fills in.
    """


class Source(Closed):
    type: str
    uid: str


class GridPos(Closed):
    h: Annotated[int, msgspec.Meta(gt=0)]
    w: Annotated[int, msgspec.Meta(gt=0, le=COLUMNS)]
    x: Annotated[int, msgspec.Meta(ge=0, lt=COLUMNS)]
    y: Whole


class FieldConfig(Closed):
    unit: str
    min: float = 0
    max: float = 0
    decimals: float = 0
    custom: dict[str, Any] = {}


class FieldConfigSource(Closed):
    defaults: FieldConfig
    overrides: list[Any]


class Panel(Closed):
    type: Annotated[str, msgspec.Meta(min_length=1)]
    id: Whole
    title: str
    description: str
    datasource: Source
    gridPos: GridPos
    targets: list[dict[str, Any]]
    options: dict[str, Any]
    fieldConfig: FieldConfigSource


class Row(Closed):
    type: Literal["row"]
    id: Whole
    title: str
    gridPos: GridPos
    collapsed: bool
    panels: list[Panel]


class Query(msgspec.Struct, kw_only=True):
    name: str
    datasource: Source
    enable: bool
    iconColor: str


class Variable(msgspec.Struct, kw_only=True):
    name: str
    type: Literal["query", "adhoc", "constant", "datasource", "interval", "textbox", "custom", "system"]
    label: str
    query: str | dict[str, Any]
    datasource: Source | None = None


class Queries(Closed):
    list: list[Query]


class Variables(Closed):
    list: list[Variable]


class Times(Closed):
    from_: str = msgspec.field(name="from")
    to: str


class Board(Closed):
    title: str
    uid: Annotated[str, msgspec.Meta(min_length=8, max_length=40)]
    tags: list[str]
    schemaVersion: Annotated[int, msgspec.Meta(ge=0, lt=2**16)]
    version: Whole
    editable: bool
    time: Times
    refresh: str | Literal[False]
    timezone: str
    annotations: Queries
    templating: Variables
    panels: list[dict[str, Any]]


def board() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(BOARD.read_text())
    return made


def panels() -> list[dict[str, Any]]:
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return asked + [one["expr"] for one in board()["annotations"]["list"]]


def test_every_expression_chooses_servers_by_the_variables_and_its_brackets_match() -> None:
    variables = {f"${one['name']}" for one in board()["templating"]["list"]}
    for expression in expressions():
        metrics = len(re.findall(r"gearshift_\w+", expression))
        assert expression.count('{job=~"$job", instance=~"$instance"') == metrics
        assert set(re.findall(r"\$[a-z]+", expression)) <= variables
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing)
        words = re.findall(r"\b([a-z_]+)(?= ?\()", expression)
        assert set(words) <= PROMQL, expression


def test_fields_and_their_types_are_those_of_the_schema_that_grafana_publishes() -> None:
    made = msgspec.convert(board(), Board)
    kinds = [msgspec.convert(panel, Row if panel["type"] == "row" else Panel).type for panel in made.panels]
    assert {"row", "stat", "timeseries"} == set(kinds)


@pytest.mark.parametrize("wrong", [{"gridPos": {"h": 0, "w": 6, "x": 0, "y": 1}}, {"unknown": 1}, {"id": "2"}])
def test_a_panel_that_the_schema_does_not_admit_is_found(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(panels()[0] | wrong, Panel)


def test_panels_have_what_grafana_needs_and_no_two_overlap() -> None:
    made = board()
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(made)
    assert made["schemaVersion"] >= 36
    ids = [panel["id"] for panel in made["panels"]]
    assert len(ids) == len(set(ids))
    covered: list[tuple[int, set[tuple[int, int]]]] = []
    for panel in made["panels"]:
        at = panel["gridPos"]
        assert at["x"] >= 0 <= at["y"]
        assert at["x"] + at["w"] <= COLUMNS
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        covered.append((panel["id"], cells))
    assert [(a, b) for (a, one), (b, other) in combinations(covered, 2) if one & other] == []
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)) > 0
        assert panel["fieldConfig"]["defaults"]["unit"]
