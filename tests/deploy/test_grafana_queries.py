"""The queries of the dashboard for Grafana are PromQL, and ask for what each kind of server exports."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests import language_server
from tests.deploy.test_grafana import OWN_LABELS, board, expressions, panels
from tests.end_to_end.test_server import serving
from tests.processes import ended
from tests.two_language_models import SMALL_ALONE, cascade, language_profile, write_language_plan
from tests.unit.planner.joint.mixed import write_mixed

promql = pytest.importorskip("promql_parser")

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def exported_by(url: str) -> dict[str, set[str]]:
    """The names of samples that a server may give, with the labels of those that it gives now."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    labels: dict[str, set[str]] = {}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)", text, re.MULTILINE):
        parts = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        labels |= {name + part: set() for part in parts}
    for name, given in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        if name in labels:
            labels[name] |= set(re.findall(r"(\w+)=\"", given))
    return labels


def documented() -> dict[str, set[str]]:
    """The labels of each metric by its page; a server of several pipelines has `operator` on those with a star."""
    found: dict[str, set[str]] = {}
    for names, labels in re.findall(r"^\| (`gearshift_.*?) \| \w+ \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE):
        own = set(re.findall(r"`(\w+)`", labels)) | ({"operator"} if "*" in names else set())
        for name in re.findall(r"`(\w+)`", names):
            for part in ("", "_bucket", "_sum", "_count"):
                found[name + part] = found.get(name + part, set()) | own
    return found


class Asked(NamedTuple):
    """A metric in an expression, with the labels by which it is chosen and grouped."""

    name: str
    labels: frozenset[str]


def asked_in(expression: str) -> list[Asked]:
    parsed = promql.parse(expression.replace("$__rate_interval", "5m"))
    return list(_asked(parsed, frozenset()))


def _asked(node: Any, by: frozenset[str]) -> Iterator[Asked]:
    if isinstance(node, promql.VectorSelector):
        yield Asked(node.name, by | {matcher.name for matcher in node.matchers.matchers})
        return
    if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
        by = by | frozenset(node.modifier.labels)
    below = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    for each in [*below, *getattr(node, "args", ())]:
        if each is not None:
            yield from _asked(each, by)


@contextmanager
def of_one_operator(folder: Path) -> Iterator[str]:
    with serving(folder, "emulated") as server:
        yield server.url


READY = re.compile(r"serving .* at (http://[\d.:]+) ")


@contextmanager
def emulated(plan: Path) -> Iterator[str]:
    command = [sys.executable, "-P", "-m", "gearshift", "serve", str(plan), "--port", "0", "--backend", "emulated"]
    with ended(subprocess.Popen(command, stderr=subprocess.PIPE, text=True)) as server:
        assert server.stderr is not None
        try:
            yield next(found[1] for line in server.stderr if (found := READY.search(line)))
        finally:
            server.terminate()
            server.communicate(timeout=60)


@contextmanager
def of_a_graph_beside_an_operator(folder: Path) -> Iterator[str]:
    with emulated(write_mixed(folder, both=True)) as url:
        yield url


@contextmanager
def of_language_models(folder: Path) -> Iterator[str]:
    profile = language_profile(step_s=(0.002, 0.01), output_tokens=20)
    plan = write_language_plan(folder, [cascade(-0.5, 4), SMALL_ALONE], [0.0, 8.0], profile=profile)
    with language_server.serving(plan, "--backend", "emulated") as server:
        yield f"http://127.0.0.1:{server.port}"


OF_GRAPHS, OF_LANGUAGE = "Pipelines of several nodes", "Language models"
NOT_OF_LANGUAGE = {
    *("Past the deadline or the objective", "Time left to deadlines", "Predicted accuracy", "Devices busy"),
    *("Rows answered, by model", "Mean batch", "Run time of a batch, p95", "Load drift"),
    *("Run times against the profile", "Audited early answers", "Disagreement"),
}
"""Panels that are empty for a server of language models."""


def in_rows() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for panel in board()["panels"]:
        if panel["type"] == "row":
            found[panel["title"]] = []
        else:
            found[list(found)[-1]].append(panel)
    return found


def test_every_expression_is_promql_and_asks_for_labels_that_its_metrics_have() -> None:
    known = documented()
    asked = [each for expression in expressions() for each in asked_in(expression)]
    assert len({each.name for each in asked}) > 30
    wrong = [(each.name, each.labels - known[each.name] - OWN_LABELS) for each in asked]
    assert [each for each in wrong if each[1]] == []


def test_legends_name_labels_that_the_result_has() -> None:
    known = documented()
    for panel in panels():
        for target in panel["targets"]:
            parsed = promql.parse(target["expr"].replace("$__rate_interval", "5m"))
            kept = grouped_by(parsed)
            if kept is None:
                kept = set.intersection(*(known[each.name] for each in asked_in(target["expr"]))) | {"instance", "job"}
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert named <= kept, (panel["title"], named - kept)


def grouped_by(node: Any) -> set[str] | None:
    """The labels of an expression's result; None where it has those of its metric."""
    if isinstance(node, promql.AggregateExpr):
        return set() if node.modifier is None else set(node.modifier.labels)
    below = [getattr(node, name, None) for name in ("lhs", "expr")] + list(getattr(node, "args", ()))[-1:]
    found = next((each for each in below if each is not None), None)
    kept = None if found is None or isinstance(found, promql.MatrixSelector) else grouped_by(found)
    return kept if kept is None else kept - {"le"}


@pytest.mark.long
@pytest.mark.parametrize("kind", [of_one_operator, of_a_graph_beside_an_operator, of_language_models])
def test_a_server_exports_what_the_panels_for_its_kind_ask_for_with_the_documented_labels(
    kind: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with kind(tmp_path) as url:
        exported = exported_by(url)
    known = documented()
    undocumented = {name: labels - known[name] - {"le"} for name, labels in exported.items() if name in known}
    assert {name: labels for name, labels in undocumented.items() if labels} == {}
    empty = {
        row: {
            panel["title"]
            for panel in inside
            if not any({each.name for each in asked_in(target["expr"])} <= set(exported) for target in panel["targets"])
        }
        for row, inside in in_rows().items()
    }
    assert empty.pop(OF_LANGUAGE) == (
        set() if kind is of_language_models else {panel["title"] for panel in in_rows()[OF_LANGUAGE]}
    )
    of_graphs = {panel["title"] for panel in in_rows()[OF_GRAPHS]}
    assert empty.pop(OF_GRAPHS) in ([set()] if kind is of_a_graph_beside_an_operator else [set(), of_graphs])
    assert set().union(*empty.values()) == (NOT_OF_LANGUAGE if kind is of_language_models else set())


def test_alerts_are_promql_and_ask_for_labels_that_their_metrics_have() -> None:
    known = documented() | {"up": set()}
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len(rules) > 5
    for rule in rules:
        for each in asked_in(rule["expr"]):
            assert each.labels - known[each.name] - OWN_LABELS == set(), rule["alert"]
