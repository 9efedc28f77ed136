"""The memory between nodes, and large fan-outs, in a service whose models run on the event loop itself."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import pytest
import uvloop

from gearshift.errors import DeadlinePassed
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.request import NO_DEADLINE_NS, Answer
from gearshift.runtime.backends.base import Batch, BatchEvents
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.router.flows import ITEM_BYTES, STEP_ITEMS
from gearshift.runtime.router.graph import Scope
from gearshift.runtime.service.passing import OutputPassing
from gearshift.runtime.service.service import Service
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.grpc.server import GrpcServer
from gearshift.serving.http.application import Application
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.operate.control import Control
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.grpc_status import SERVICE
from gearshift.v2.tensors import Limits
from tests.graph_task import INPUTS, OUTPUTS, graph_plan
from tests.unit.serving.http.test_application import Server

LONGEST_S = 120.0


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


def serve(
    use: Callable[[Service, OnTheLoop, Counting], Awaitable[Any]], *, late: Any = "answer", **options: Any
) -> Any:
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


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["answered", "failed", "cancelled", "late", "stopped"])
def test_nothing_is_held_once_a_request_has_ended(how: str) -> None:
    async def use(service: Service, backend: OnTheLoop, _: Counting) -> int:
        held, pipeline = service.held, service.pipeline
        backend.holds = {"read"}
        deadline_ns = pipeline.now_ns() + 50_000_000 if how == "late" else NO_DEADLINE_NS
        asked = asyncio.create_task(pipeline.infer(x(700), deadline_ns=deadline_ns))
        await until(lambda: held.held_bytes > 700 * ITEM_BYTES)
        if how == "failed":
            backend.fails = {"read"}
        if how == "cancelled":
            asked.cancel()
        elif how == "stopped":
            await service.stop()
        elif how != "late":
            backend.let_go()
        try:
            outcome = (await asked).outcome
            assert outcome == ("failed" if how in ("failed", "stopped") else "answered")
        except (DeadlinePassed, asyncio.CancelledError):
            assert how in ("late", "cancelled")
        backend.let_go()
        await until(lambda: how == "stopped" or not (service.router.unfinished or service.router.waiting))
        return held.held_bytes

    assert serve(use, late="refuse") == 0


@pytest.mark.parametrize("others", [True, False], ids=["others hold the room", "its own are too many"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_without_room_for_its_items_is_refused(protocol: str, others: bool) -> None:
    rows, most_bytes = (330, 700_000) if others else (1100, 1_000_000)

    async def use(service: Service, backend: OnTheLoop, _: Counting) -> tuple[str, str, str]:
        infer, open_before = service.pipeline.infer, 2 if others else 0
        backend.holds = {"split"}
        first_ns = service.pipeline.now_ns() + 10**9  # before the deadline of the one that comes by gRPC
        before = [asyncio.create_task(infer(x(rows), deadline_ns=first_ns)) for _ in range(open_before)]
        await asyncio.sleep(0)
        asked = asyncio.create_task(ASK[protocol](service, x(rows)))
        await until(lambda: service.open_requests > open_before)
        backend.let_go()
        backend.holds = {"read"}
        told = await asked
        assert not any(task.done() for task in before)
        for task in before:
            task.cancel()
        await asyncio.gather(*before, return_exceptions=True)
        await until(lambda: not service.router.unfinished)
        assert service.held.held_bytes == 0
        return told

    status, again, text = serve(use, most_waiting_bytes=most_bytes)
    if others:
        assert status in ("429", "RESOURCE_EXHAUSTED")
        assert int(again) >= 1
        assert "hold" in text
    else:
        assert status in ("413", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")
        assert again == ""
        assert f"at most {most_bytes} may be held; send fewer rows at once" in text


SERVED = Signature(name="pairs", inputs=INPUTS, outputs=OUTPUTS["join"])


async def ask_http(service: Service, inputs: dict[str, np.ndarray]) -> tuple[str, str, str]:
    application = Application(Handlers(Control(service), [SERVED], largest_body_bytes=1 << 20, metrics=Metrics()))
    tensor = {"name": "x", "datatype": "FP64", "shape": [1, 6], "data": inputs["x"].ravel().tolist()}
    server: Any = Server(application, service, None)  # type: ignore[arg-type]
    answer = await server.ask("POST", "/v2/models/pairs/infer", json.dumps({"inputs": [tensor]}).encode())
    return str(answer.status), answer.headers.get("retry-after", ""), answer.json()["error"]


async def ask_grpc(service: Service, inputs: dict[str, np.ndarray]) -> tuple[str, str, str]:
    settings = ServerSettings(grpc_port=0)
    options: dict[str, Any] = {"limits": Limits(), "metrics": Metrics(), "keys": None}
    server = GrpcServer(Control(service), [SERVED], settings=settings, **options)
    port = await server.start()
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP64", shape=[1, 6])
    raw = inputs["x"].astype("<f8").tobytes()
    message = pb.ModelInferRequest(model_name="pairs", inputs=[tensor], raw_input_contents=[raw])
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(f"/{SERVICE}/ModelInfer")(message.SerializeToString(), timeout=20)
    finally:
        await server.stop(0)
    error = refused.value
    pushback = dict(error.trailing_metadata()).get("grpc-retry-pushback-ms", "")
    return error.code().name, str(int(pushback) // 1000) if pushback else "", error.details() or ""


ASK = {"http": ask_http, "grpc": ask_grpc}
