"""What flows along edges, on scopes made by hand: a strip of pictures, each with boxes, each with text."""

from typing import Any

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.model import TensorSpec
from gearshift.pipeline import NO_SCOPE, Edge, FanOut, Node, When
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Request, Sample
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.router.graph import Flow, Scope
from gearshift.runtime.router.pipeline import Pipeline
from gearshift.runtime.service.passing import Condition, OutputPassing
from tests.graph_task import graph_plan

PICTURE, BOX, READ, GATHER, OUT = range(5)
NODES = {
    "picture": Node(operator="split", fan_out=FanOut(per_row="strip", most=2, beyond="cut")),
    "box": Node(operator="reader", inputs={"box": "picture.boxes"}, fan_out=FanOut(per_row="picture.boxes", most=2)),
    "read": Node(operator="checker", inputs={"sure": "box.certainty", "brightness": "picture.mean", "user": "user"}),
    "gather": Node(operator="join", inputs={"texts": "read.text", "mean": "picture.mean"}, fan_in=True),
    "out": Node(operator="out", inputs={"pages": "gather.page", "texts": "read.text"}, fan_in=True),
}
EDGES = (
    Edge(from_="picture", to="box"),
    Edge(from_="box", to="read"),
    Edge(from_="read", to="gather"),
    Edge(from_="gather", to="out"),
)
OUTPUTS = {
    "reader": (TensorSpec(name="label", datatype="BYTES", shape=(-1,)),),
    "checker": (TensorSpec(name="text", datatype="BYTES", shape=(-1,)),),
}


def nested_plan() -> GearPlan:
    """Two fan-outs, one within the other, and what closes each."""
    plan = graph_plan()
    pairs = plan.pipelines["pairs"]
    models = {"split": "split", "reader": "read", "checker": "check", "join": "join", "out": "out"}
    (gear,) = pairs.gears
    cascade = gear.cascades["split"][0]
    cascades = {
        name: (msgspec.structs.replace(cascade, models=(models[node.operator],)),) for name, node in NODES.items()
    }
    replicas = [
        *plan.placement.replicas,
        msgspec.structs.replace(plan.placement.replicas[0], id="out-0", model="out"),
    ]
    settings = [*gear.replicas, msgspec.structs.replace(gear.replicas[0], replica="out-0")]
    gear = msgspec.structs.replace(gear, cascades=cascades, replicas=tuple(settings))
    return msgspec.structs.replace(
        plan,
        placement=msgspec.structs.replace(plan.placement, replicas=tuple(replicas)),
        pipelines={"pairs": msgspec.structs.replace(pairs, nodes=NODES, edges=EDGES, output="out", gears=(gear,))},
        profiles=plan.profiles | {"out": plan.profiles["join"]},
    )


PLAN = nested_plan()
TABLES = plan_tables(PLAN)
REQUEST = Request(id=1, operator="pairs", arrived_ns=0)


def passing() -> OutputPassing:
    return OutputPassing(PLAN, TABLES, OUTPUTS)


def outermost(**payload: Any) -> Scope:
    row = Sample(REQUEST, 0, 0, {name: np.array(value) for name, value in payload.items()})
    return Scope(Flow(row, Pipeline(plan_tables(nested_plan()))), None, NO_SCOPE, 0, {})


def rows_in(scope: Scope, opener: int, count: int) -> list[Scope]:
    scope.rows[opener] = [Scope(scope.flow, scope, opener, row, {}) for row in range(count)]
    return scope.rows[opener]


def answer(scope: Scope, node: int, certainty: float = 1.0, **result: Any) -> None:
    arrays = {name: np.array([value], dtype=object if value == str(value) else None) for name, value in result.items()}
    scope.results[node] = Sample(REQUEST, 0, 9, result=arrays, certainty=certainty, node=node)


def strip() -> tuple[Scope, list[Scope]]:
    """Two pictures of three; the second has two boxes, the first none."""
    root = outermost(strip=[[[1, 2], [3, 4], [5, 6]]], user=["me"])
    pictures = rows_in(root, PICTURE, 2)
    for scope, boxes in zip(pictures, ([], [7, 8]), strict=True):
        scope.results[PICTURE] = Sample(
            REQUEST, 0, 1, result={"mean": np.array([1.5]), "boxes": np.array([boxes], dtype=np.int64)}
        )
        for box, inner in enumerate(rows_in(scope, BOX, len(boxes))):
            answer(inner, BOX, certainty=0.5 + box / 4)
    return root, pictures


def test_a_fan_out_takes_its_rows_of_a_tensor_of_the_request_and_cuts_what_is_too_many() -> None:
    root, pictures = strip()
    assert passing().rows(PICTURE, root) == 2
    assert root.flow.row.cut == ((PICTURE, 3),)
    payload = passing().payload(PICTURE, pictures[1])
    assert payload["strip"].tolist() == [[3, 4]]
    assert payload["user"].tolist() == ["me"]


def test_a_fan_out_within_another_takes_rows_of_the_item_around_it() -> None:
    _, (first, second) = strip()
    assert [passing().rows(BOX, scope) for scope in (first, second)] == [0, 2]
    inner = second.rows[BOX][1]
    assert passing().payload(BOX, inner)["box"].tolist() == [8]


def test_a_node_takes_outputs_of_its_own_scope_of_those_around_it_and_of_the_request() -> None:
    _, (_, second) = strip()
    payload = passing().payload(READ, second.rows[BOX][1])
    assert {name: array.tolist() for name, array in payload.items()} == {
        "sure": [0.75],
        "brightness": [1.5],
        "user": ["me"],
    }


def test_a_join_gets_lists_of_the_rows_that_have_an_answer() -> None:
    root, (first, second) = strip()
    left, right = second.rows[BOX]
    answer(left, READ, text="a")
    right.results[READ] = None  # it failed, and is not required
    assert passing().payload(GATHER, second)["texts"].tolist() == [["a"]]
    assert passing().payload(GATHER, second)["mean"].tolist() == [1.5]
    none = passing().payload(GATHER, first)["texts"]
    assert (none.shape, none.dtype) == ((1, 0), np.dtype(object))
    answer(second, GATHER, page="a!")
    payload = passing().payload(OUT, root)
    assert payload["pages"].tolist() == [["a!"]]
    assert payload["texts"].tolist() == [["a"]]  # of all boxes of all pictures


def test_what_is_missing_is_left_out_and_a_node_without_any_input_cannot_run() -> None:
    _, (_, second) = strip()
    inner = second.rows[BOX][0]
    inner.results[BOX] = None
    assert "sure" not in passing().payload(READ, inner)
    inner.flow.row.payload = {}
    second.results[PICTURE] = None
    with pytest.raises(CannotPass, match="node 'read' has none of its inputs"):
        passing().payload(READ, inner)
    with pytest.raises(CannotPass, match=r"node 'box' has no 'picture.boxes' to take rows of"):
        passing().rows(BOX, second)


def test_rows_of_different_shapes_make_no_list() -> None:
    _, (_, second) = strip()
    for width, scope in enumerate(second.rows[BOX], start=1):
        scope.results[READ] = Sample(REQUEST, 0, 1, result={"text": np.zeros((1, width))})
    with pytest.raises(CannotPass, match="the rows of 'text' have different shapes"):
        passing().payload(GATHER, second)


def test_too_many_rows_are_refused_by_a_fan_out_that_cuts_nothing() -> None:
    _, (_, second) = strip()
    second.results[PICTURE] = Sample(REQUEST, 0, 1, result={"boxes": np.zeros((1, 3))})
    with pytest.raises(CannotPass, match=r"too_many_rows: 'picture.boxes' has 3 rows, and node 'box' takes 2"):
        passing().rows(BOX, second)


@pytest.mark.parametrize(
    ("when", "result", "holds"),
    [
        (When(output="label", one_of=("a", "b")), {"label": b"b"}, True),
        (When(output="label", one_of=("a",)), {"label": "b"}, False),
        (When(output="label", one_of=(3,)), {"label": 3}, True),
        (When(output="label", one_of=(3,)), {"label": "3"}, True),
        (When(output="certainty", at_least=0.5), {}, True),
        (When(output="certainty", at_least=0.51), {}, False),
        (When(output="score", at_least=2), {"score": 2.0}, True),
        (When(output="score", at_least=2), {"score": 1}, False),
    ],
)
def test_a_condition_is_on_a_label_a_number_or_the_certainty(when: When, result: Any, holds: bool) -> None:
    arrays = {name: np.array([value], dtype=object) for name, value in result.items()}
    assert Condition(when).holds(Sample(REQUEST, 0, 0, result=arrays, certainty=0.5)) is holds


@pytest.mark.parametrize(
    ("when", "result", "why"),
    [
        (When(output="label", one_of=("a",)), {}, "the answer has no output 'label'"),
        (When(output="label", one_of=("a",)), {"label": np.array([["a", "b"]])}, "the output 'label' has 2 values"),
        (When(output="label", at_least=1), {"label": np.array(["a"])}, "the output 'label' is no number"),
    ],
)
def test_a_condition_on_something_else_cannot_be_decided(when: When, result: Any, why: str) -> None:
    with pytest.raises(CannotPass, match=why):
        Condition(when).holds(Sample(REQUEST, 0, 0, result=result))


def test_a_condition_on_an_output_that_is_not_declared_is_refused_with_those_there_are() -> None:
    pairs = PLAN.pipelines["pairs"]
    first, second, *others = pairs.edges
    second = msgspec.structs.replace(second, when=When(output="kind", one_of=("a",)))
    plan = msgspec.structs.replace(
        PLAN, pipelines={"pairs": msgspec.structs.replace(pairs, edges=(first, second, *others))}
    )
    with pytest.raises(
        InvalidInput, match=r"from 'box' to 'read' has a condition on 'kind', and node 'box' answers 'label'"
    ):
        OutputPassing(plan, plan_tables(plan), OUTPUTS)


def test_an_input_that_is_no_declared_output_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"node 'gather' takes 'read.text', and node 'read' answers 'words'"):
        OutputPassing(PLAN, TABLES, {"checker": (TensorSpec(name="words", datatype="BYTES", shape=(-1,)),)})
