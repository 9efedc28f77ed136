"""A graph on emulated devices: recorded tuples in place of data."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.errors import TooLarge
from gearshift.pipeline import When
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.tuples import OUTERMOST, JointRecords
from gearshift.request import Answer, Sample
from gearshift.runtime.backends.emulated import SAMPLE, EmulatedBackend
from gearshift.runtime.router.flows import CannotPass
from gearshift.runtime.service.recorded_passing import RecordedPassing, recorded_condition
from gearshift.runtime.service.service import Service
from tests.graph_task import MODELS, graph_plan

LONGEST_S = 20.0
SPLIT, READ, CHECK, JOIN = range(4)
LABELS = {"split": ["s0", "s1"], "read": ["even", "odd", "even"], "check": ["c0", "c1", "c2"], "join": ["j0", "j1"]}
ITEMS = [
    [(SPLIT, 0, OUTERMOST), *((READ, row, OUTERMOST) for row in range(3))],
    [(SPLIT, 1, OUTERMOST), (READ, 2, OUTERMOST)],
]
"""Node and row; each reading is followed by its check, within it, and the last item is that of the join."""


def profiles() -> dict[str, Profile]:
    return {operator: profile_of(operator, model) for operator, model in MODELS.items()}


def profile_of(operator: str, model: str) -> Profile:
    labels = LABELS[model]
    return Profile(
        operator=operator,
        curves=(RunTimeCurve(model=model, batch_sizes=(1, 8), median_s=(0.001, 0.002), p95_s=(0.001, 0.002)),),
        predictions=PredictionRecords(
            models=(model,),
            quality=np.ones((1, len(labels))),
            certainty=np.ones((1, len(labels))),
            part=(np.arange(len(labels)) % 2).astype(np.int8),
            prediction=np.array([labels]),
        ),
    )


def joint_records() -> JointRecords:
    items, begin = list[tuple[int, int, int]](), [0]
    for number, made in enumerate(ITEMS):
        readings = range(1, len(made))
        items += [*made, *((CHECK, made[place][1], place) for place in readings), (JOIN, number, OUTERMOST)]
        begin.append(len(items))
    node, row, parent = (np.array(column, dtype=np.int32) for column in zip(*items, strict=True))
    return JointRecords(
        nodes=("split", "read", "check", "join"),
        names=("a", "b"),
        begin=np.array(begin),
        node=node,
        row=row,
        parent=parent,
        part=np.array([0, 1], dtype=np.int8),
    )


def serve(use: Callable[[Service], Awaitable[Any]], **fan_out: Any) -> Any:
    async def main() -> Any:
        plan = graph_plan(**fan_out)
        tables = plan_tables(plan)
        passing = RecordedPassing(plan, tables, {"pairs": joint_records()})
        service = Service(tables, EmulatedBackend(tables, plan, profiles()), passing=passing)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(service)
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def tuples(*numbers: int) -> dict[str, np.ndarray]:
    return {SAMPLE: np.array(numbers)}


def of_node(answer: Answer, node: str) -> list[int]:
    """The rows of the request at whose node an item was answered."""
    return sorted(item.row for item in answer.items if item.node == node and not item.error)


def test_a_tuple_has_the_items_that_were_recorded_and_takes_the_branches_that_their_answers_do() -> None:
    answer = serve(lambda service: service.pipelines["pairs"].infer(tuples(0, 1)))
    assert answer.outputs["label"].tolist() == ["j0", "j1"]
    assert [of_node(answer, node) for node in ("split", "read", "check", "join")] == [
        [0, 1],
        [0, 0, 0, 1],
        [0],  # the only odd one
        [0, 1],
    ]


def test_a_tuple_that_is_not_recorded_fails_alone() -> None:
    async def use(service: Service) -> list[Answer]:
        pipeline = service.pipelines["pairs"]
        return await asyncio.gather(*(pipeline.infer(tuples(number)) for number in (0, 2)))

    answered, failed = serve(use)
    assert (answered.outcome, failed.outcome) == ("answered", "failed")
    assert failed.errors == ("tuple 2 is not recorded, there are tuples 0 to 1",)


def test_recorded_rows_are_refused_or_cut_as_the_node_says() -> None:
    async def use(service: Service) -> Any:
        return await service.pipelines["pairs"].infer(tuples(0))

    with pytest.raises(TooLarge, match="the tuple has 3 rows, and node 'read' takes 2"):
        serve(use, most=2)
    cut = serve(use, most=2, beyond="cut")
    assert of_node(cut, "read") == [0, 0]
    assert [(one.node, one.rows) for one in cut.cut] == [("read", 3)]


@pytest.mark.parametrize(
    ("when", "label", "holds"),
    [
        (When(output="kind", one_of=("a",)), "a", True),  # an output that was recorded as the prediction
        (When(output="certainty", at_least=0.4), "a", True),
        (When(output="count", at_least=2), "3", True),
        (When(output="count", at_least=2), "1", False),
    ],
)
def test_conditions_are_on_recorded_predictions_as_in_the_replay_of_joint_records(
    when: When, label: str, holds: bool
) -> None:
    sample = Sample(None, 0, 0, result={"label": np.array([label])}, certainty=0.5)  # type: ignore[arg-type]
    assert recorded_condition(when).holds(sample) is holds


def test_a_condition_on_numbers_needs_a_number() -> None:
    sample = Sample(None, 0, 0, result={"label": np.array(["a"])})  # type: ignore[arg-type]
    with pytest.raises(CannotPass, match="the output 'label' is no number"):
        recorded_condition(When(output="count", at_least=2)).holds(sample)
