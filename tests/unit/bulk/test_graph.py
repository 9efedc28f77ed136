"""Tables through a graph in process: real worker processes, and answers as at a server."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

import gearshift
from gearshift.bulk.answers import ANSWERED, DEGRADED, REFUSED, Answers
from gearshift.bulk.graph import GraphRun
from gearshift.bulk.operator import Operator
from gearshift.bulk.stages import Ran
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.model import Arrays
from gearshift.pipeline import Edge, When
from tests.graph_task import MODELS, OUTPUTS, graph_plan, write_graph_plan

NONE = [-1.0, 0.0]
"""A pair that `split` leaves out."""

ROWS = {
    "all even": ([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], "even even even", "answered"),
    "mixed": ([[1.0, 2.0], [2.0, 2.0], [3.0, 4.0]], "odd even odd 6 14", "answered"),
    "an optional node fails": ([[6.0, 7.0], [2.0, 2.0], [3.0, 4.0]], "odd even odd 14", "degraded"),
    "no rows": ([NONE, NONE, NONE], "nothing", "answered"),
    "two rows": ([NONE, [1.0, 2.0], [2.0, 2.0]], "odd even 6", "answered"),
    "a required node fails": ([[666.0, 0.0], [1.0, 1.0], [1.0, 1.0]], None, "failed"),
}


def table(rows: list[list[list[float]]]) -> dict[str, np.ndarray]:
    return {"x": np.array(rows).reshape(len(rows), 6)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    write_graph_plan(folder)
    return folder


@pytest.fixture(scope="module")
def pairs(folder: Path) -> Iterator[Operator]:
    with gearshift.open_operator(folder / "plan.json", label="text", workers=1) as operator:
        yield operator


def test_rows_go_through_functions_conditions_fan_outs_and_joins(pairs):
    made = gearshift.map(table([row for row, _, _ in ROWS.values()]), pairs)
    assert made["label"].to_pylist() == [text for _, text, _ in ROWS.values()]
    assert made["outcome"].to_pylist() == [outcome for _, _, outcome in ROWS.values()]


def test_many_rows_keep_their_order_over_chunks(pairs):
    each = [ROWS["mixed"], ROWS["two rows"], ROWS["no rows"]] * 700
    made = gearshift.map(table([row for row, _, _ in each]), pairs)
    assert made["label"].to_pylist() == [text for _, text, _ in each]


def test_more_rows_than_a_fan_out_takes_fail_or_are_cut(tmp_path):
    for beyond, label, outcome in (("refuse", None, "failed"), ("cut", "odd even 6", "answered")):
        plan = write_graph_plan(tmp_path, most=2, beyond=beyond)
        made = gearshift.map(table([ROWS["mixed"][0]]), plan, label="text", workers=1)
        assert made.select(["label", "outcome"]).to_pylist() == [{"label": label, "outcome": outcome}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accuracy": 0.9}, "pipeline 'pairs' has no joint records"),
        ({"cascade": Cascade(models=("read",))}, "a cascade is given, and pipeline 'pairs' has several nodes"),
        ({"gear": 1}, "gear is 1, the plan has gears 0 to 0"),
        ({"label": "sum"}, "pipeline 'pairs' has no output 'sum'; give label=, one of text"),
    ],
)
def test_what_a_graph_cannot_be_asked_for_is_refused(folder, options, said):
    with pytest.raises(InvalidInput, match=said):
        gearshift.open_operator(folder / "plan.json", **{"label": "text", **options})


# Without processes: models that answer by a function of their inputs.


class Models:
    """Answers as the task's functions do; `late_after` calls, it is too late."""

    def __init__(self, late_after: int = 99) -> None:
        self.calls: list[tuple[str, int]] = []
        self._late_after = late_after

    def is_late(self) -> bool:
        return len(self.calls) >= self._late_after

    async def run(self, model: str, inputs: Arrays, rows: int) -> Ran:
        self.calls.append((model, rows))
        result = np.empty(rows, dtype=object)
        for row in range(rows):
            result[row] = self._answer(model, {name: array[row : row + 1] for name, array in inputs.items()})
        none = np.zeros(0, dtype=np.int64)
        return Ran(np.arange(rows), result, np.ones(rows), none, none)

    def _answer(self, model: str, one: Arrays) -> Arrays:
        if model == "split":
            parts = one["x"].reshape(-1, 2)
            return {"parts": parts[parts[:, 0] >= 0][None]}
        if model == "read":
            total = one["pair"].sum(axis=1)
            return {
                "label": np.array(["even" if total[0] % 2 == 0 else "odd"]),
                "sum": total,
                "first": one["pair"][:, 0],
            }
        if model == "check":
            return {"double": 2 * one["sums"]}
        return {"text": np.array([" ".join(one["labels"][0].tolist())])}


def run(plan: GearPlan, rows: list[list[list[float]]], models: Models) -> Answers:
    cascades = {name: Cascade(models=(MODELS[node.operator],)) for name, node in plan.pipelines["pairs"].nodes.items()}
    graph = GraphRun(plan, "pairs", cascades, OUTPUTS, "text")
    return asyncio.run(graph.answer(table(rows), len(rows), models, models.is_late))


def test_items_of_all_rows_run_together_and_only_where_edges_are_live():
    models = Models()
    answers = run(graph_plan(), [ROWS["mixed"][0], ROWS["all even"][0], ROWS["two rows"][0]], models)
    assert answers.outcome.tolist() == [ANSWERED] * 3
    assert models.calls == [("split", 3), ("read", 8), ("check", 3), ("join", 1), ("join", 1), ("join", 1)]


def test_late_rows_are_refused_and_nothing_more_of_them_runs():
    models = Models(late_after=1)
    assert run(graph_plan(), [ROWS["mixed"][0]], models).outcome.tolist() == [REFUSED]
    assert models.calls == [("split", 1)]


def test_a_row_that_no_edge_leads_to_the_output_is_degraded_without_label():
    plan = graph_plan()
    pipeline = plan.pipelines["pairs"]
    never = Edge(from_="split", to="read")
    nodes = {name: node for name, node in pipeline.nodes.items() if name in ("split", "read")}
    nodes["read"] = msgspec.structs.replace(nodes["read"], inputs={"pair": "x"}, fan_out=None)
    never = msgspec.structs.replace(never, when=When(output="certainty", at_least=2.0))
    pipeline = msgspec.structs.replace(
        pipeline,
        nodes=nodes,
        edges=(never,),
        output="read",
        gears=tuple(
            msgspec.structs.replace(gear, cascades={name: gear.cascades[name] for name in nodes})
            for gear in pipeline.gears
        ),
    )
    settings = tuple(
        msgspec.structs.replace(one, load_share=float(one.replica in ("split-0", "read-0")))
        for one in pipeline.gears[0].replicas
    )
    pipeline = msgspec.structs.replace(
        pipeline, gears=tuple(msgspec.structs.replace(gear, replicas=settings) for gear in pipeline.gears)
    )
    profiles = {name: plan.profiles[name] for name in ("split", "reader")}
    plan = msgspec.structs.replace(plan, pipelines={"pairs": pipeline}, profiles=profiles)
    cascades = {name: Cascade(models=(MODELS[node.operator],)) for name, node in nodes.items()}
    models = Models()
    graph = GraphRun(plan, "pairs", cascades, OUTPUTS, "label")
    answers = asyncio.run(graph.answer(table([ROWS["mixed"][0]]), 1, models, models.is_late))
    assert answers.outcome.tolist() == [DEGRADED]
    assert answers.has_label.tolist() == [False]
    assert models.calls == [("split", 1)]
