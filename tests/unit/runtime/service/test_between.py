"""The memory between nodes, and large fan-outs, in a service whose models run on the event loop itself."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.errors import DeadlinePassed, QueueFull, TooLarge
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.request import Answer, Sample
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.flows import ITEM_BYTES, STEP_ITEMS
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.service.passing import OutputPassing
from gearshift.runtime.service.room import Client
from gearshift.runtime.service.service import Service
from tests.graph_task import OUTPUTS, graph_plan

LONGEST_S = 120.0
FAILS = 13.0
"""A sum on which `join` fails."""


def answer_of(model: str, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """As the functions and models of `tests/graph_task.py`; `split` makes as many pairs as `x` says."""
    if model == "split":
        rows = int(given["x"][0, 0])
        return {"parts": np.full((1, rows, 2), given["x"][0, 1])}
    if model == "read":
        sums = given["pair"].sum(axis=1)
        return {"label": np.array(["odd"], dtype=object), "sum": sums, "first": given["pair"][:, 0]}
    if model == "check":
        return {"double": 2 * given["sums"]}
    labels, doubled = given["labels"][0], given["doubled"][0]
    return {"text": np.array([f"{len(labels)} {doubled.sum():g}"], dtype=object)}


class OnTheLoop:
    """Runs each batch on a later turn of the event loop; keeps back those of models that it `holds`."""

    def __init__(self, tables: PlanTables) -> None:
        self._tables, self.held = tables, list[Batch]()
        self.holds: set[str] = set()
        self.fails: set[str] = set()
        self.events: BatchEvents

    async def start(self, events: BatchEvents) -> None:
        self.events = events
        for replica in range(len(self._tables.replica_ids)):
            events.replica_ready(replica)

    def run(self, batch: Batch) -> None:
        if self._tables.model_of(batch.replica) in self.holds:
            self.held.append(batch)
        else:
            asyncio.get_running_loop().call_soon(self._finish, batch)

    def let_go(self) -> None:
        self.holds.clear()
        while self.held:
            self.run(self.held.pop())

    def _finish(self, batch: Batch) -> None:
        model = self._tables.model_of(batch.replica)
        for sample in batch.samples:
            if sample.over:
                continue
            if model in self.fails:
                sample.error = f"model {model!r} failed on this sample"
            else:
                payload: Any = sample.payload
                sample.certainty, sample.result = 1.0, answer_of(model, payload)
        self.events.samples_finished(batch, batch.samples)
        self.events.batch_finished(batch)

    async def stop(self) -> None: ...


class Counting(OutputPassing):
    """Counts the items that are made on each turn of the event loop."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.turn, self.made = 0, Counter[int]()

    def payload(self, node: int, scope: Scope) -> Any:
        self.made[self.turn] += 1
        return super().payload(node, scope)

    def next_turn(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.next_turn)


def serve(use: Callable[[Service, OnTheLoop, Counting], Awaitable[Any]], *, late: Any = "answer", **options: Any) -> Any:
    async def main() -> Any:
        plan = graph_plan(most=1_000_000)
        tables = plan_tables(plan)
        backend, passing = OnTheLoop(tables), Counting(plan, tables, OUTPUTS)
        service = Service(tables, backend, passing=passing, deadlines=DeadlineRules(tables, late=late), **options)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(service, backend, passing)
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def x(rows: int, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"x": np.array([[float(rows), value, 0, 0, 0, 0]])}


def text_of(answer: Answer) -> str:
    outputs: Any = answer.outputs
    return str(outputs["text"][0])


@pytest.mark.parametrize("rows", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_large_fan_out_gives_way_to_other_requests(rows: int) -> None:
    async def use(service: Service, _: OnTheLoop, passing: Counting) -> list[str]:
        infer, order = service.pipeline.infer, list[str]()

        async def ask(rows: int) -> None:
            order.append(text_of(await infer(x(rows))))

        passing.next_turn()
        large = asyncio.create_task(ask(rows))
        while passing.made.total() < rows // 4:
            await asyncio.sleep(0)
        await ask(2)
        await large
        assert max(passing.made.values()) <= STEP_ITEMS + 16
        assert passing.made.total() == 2 * rows + 2 + 6
        while service.held.held_bytes:
            await asyncio.sleep(0)
        return order

    assert serve(use, most_waiting_bytes=1 << 30) == ["2 8", f"{rows} {4 * rows}"]
