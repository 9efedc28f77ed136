"""A pipeline of functions and models in worker processes."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.errors import TooLarge
from gearshift.gear import GearPlan
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.request import Answer, BulkWork, MissingNode
from gearshift.runtime.backends.local import LocalBackend
from gearshift.runtime.backends.ray import RayBackend
from gearshift.runtime.backends.workers_backend import WorkersBackend
from gearshift.runtime.service.passing import OutputPassing
from gearshift.runtime.service.service import Service
from tests.end_to_end.test_server import Server
from tests.graph_task import OUTPUTS, STOPPING, graph_plan, write_graph_plan, write_graph_task
from tests.often import first_short
from tests.stand_in_cluster import StandInCluster
from tests.workers import send_signal

LONGEST_S = 60.0
NONE = [-1.0, 0.0]
"""A pair that `split` leaves out."""


def serve(
    folder: Path,
    use: Callable[[Service, Any], Awaitable[Any]],
    *,
    check_s: float = 0.0,
    task: str = "",
    backend_of: Callable[..., WorkersBackend] = LocalBackend,
    **fan_out: Any,
) -> Any:
    async def main() -> Any:
        plan = graph_plan(**fan_out)
        tables = plan_tables(plan)
        backend = backend_of(tables, plan, operators=write_graph_task(folder, check_s=check_s, task=task))
        service = Service(tables, backend, passing=OutputPassing(plan, tables, OUTPUTS), metrics=METRICS())
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(service, backend)
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


METRICS = Metrics


def pairs(*rows: list[list[float]]) -> dict[str, np.ndarray]:
    return {"x": np.array([[value for pair in row for value in pair] for row in rows])}


def text_of(answer: Answer) -> list[str]:
    outputs: Any = answer.outputs
    return [one if isinstance(one, str) else one.decode() for one in outputs["text"].tolist()]


ALL_EVEN = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
MIXED = [[1.0, 2.0], [2.0, 2.0], [3.0, 4.0]]
FAILS = [[6.0, 7.0], [2.0, 2.0], [3.0, 4.0]]
EMPTY = [NONE, NONE, NONE]
BROKEN = [[666.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
WAITS = [[4.0, 1.0], [1.0, 1.0], [2.0, 1.0]]


def on_stand_in(tables: PlanTables, plan: GearPlan, **options: Any) -> RayBackend:
    return RayBackend(tables, plan, cluster=StandInCluster(), **options)


@pytest.mark.parametrize("backend_of", first_short([LocalBackend, on_stand_in]))
def test_rows_go_through_functions_branches_and_joins_in_real_workers(tmp_path: Path, backend_of: Any) -> None:
    async def use(service: Service, _: LocalBackend) -> list[Answer]:
        pipeline = service.pipelines["pairs"]
        return await asyncio.gather(
            *(pipeline.infer(pairs(row)) for row in (ALL_EVEN, MIXED, EMPTY, FAILS, BROKEN)),
            pipeline.infer(pairs(MIXED, EMPTY, ALL_EVEN)),
            pipeline.infer(pairs(MIXED, EMPTY, FAILS), bulk=BulkWork()),
            pipeline.infer(pairs(ALL_EVEN, BROKEN), bulk=BulkWork()),
        )

    even, mixed, empty, fails, broken, rows, bulk, broken_bulk = serve(tmp_path, use, backend_of=backend_of)
    assert text_of(even) == ["even even even"]
    assert text_of(mixed) == ["odd even odd 6 14"]
    assert text_of(empty) == ["nothing"]
    assert (text_of(fails), fails.outcome) == (["odd even odd 14"], "degraded")
    assert fails.missing == (MissingNode(node="check", row=0, reason="model 'check' failed on this sample"),)
    assert (broken.outcome, broken.errors) == ("failed", ("model 'split' failed on this sample",))
    assert text_of(rows) == ["odd even odd 6 14", "nothing", "even even even"]
    assert (text_of(bulk), bulk.outcome) == (["odd even odd 6 14", "nothing", "odd even odd 14"], "degraded")
    assert [(one.node, one.row, one.is_output) for one in bulk.missing] == [("check", 2, False)]
    assert (broken_bulk.outcome, broken_bulk.outputs) == ("failed", None)
    assert [answer.outcome for answer in (even, mixed, empty, rows)] == ["answered"] * 4
    assert sorted((item.node, item.model) for item in mixed.items) == [
        *[("check", "check")] * 2,
        ("join", "join"),
        *[("read", "read")] * 3,
        ("split", "split"),
    ]


def test_rows_that_leave_a_model_early_go_on_from_there(tmp_path: Path) -> None:
    async def use(service: Service, _: LocalBackend) -> Answer:
        return await service.pipelines["pairs"].infer(pairs(MIXED, ALL_EVEN))

    answer = serve(tmp_path, use, task=STOPPING)
    assert text_of(answer) == ["odd even odd 6 14", "even even even"]
    exits = sorted((item.row, item.exit_segment) for item in answer.items if item.node == "read")
    assert exits == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0), (1, 1)]


def test_more_rows_than_a_fan_out_takes_are_refused_or_cut_and_the_answer_says_so(tmp_path: Path) -> None:
    async def use(service: Service, _: LocalBackend) -> Any:
        try:
            return await service.pipelines["pairs"].infer(pairs(MIXED))
        except TooLarge as error:
            return str(error)

    for folder in ("refuses", "cuts"):
        (tmp_path / folder).mkdir()
    refused = serve(tmp_path / "refuses", use, most=2)
    assert refused.startswith("'split.parts' has 3 rows, and node 'read' takes 2")
    cut = serve(tmp_path / "cuts", use, most=2, beyond="cut")
    assert (text_of(cut), cut.outcome) == (["odd even 6"], "answered")
    assert [(one.node, one.row, one.rows) for one in cut.cut] == [("read", 0, 3)]


def test_a_request_is_answered_once_though_the_worker_of_a_branch_is_killed(tmp_path: Path) -> None:
    async def use(service: Service, backend: LocalBackend) -> list[list[Answer]]:
        pipeline, told = service.pipelines["pairs"], list[list[Answer]]()
        for row in (WAITS, ALL_EVEN, MIXED):
            answers: list[Answer] = []
            told.append(answers)
            pipeline.submit(pairs(row), answers.append)
        check = plan_tables(graph_plan()).replica_ids.index("check-0")
        while not service.router.running_lengths()[check]:
            await asyncio.sleep(0.005)
        send_signal(backend, check, signal.SIGKILL)
        while not all(told):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # a second answer would come by now
        assert pipeline.waiting == 0
        assert service.open_requests == 0
        return told

    waits, even, mixed = serve(tmp_path, use, check_s=0.3)
    assert [len(each) for each in (waits, even, mixed)] == [1, 1, 1]
    assert text_of(waits[0]) == ["odd even odd 10 6"]
    assert text_of(even[0]) == ["even even even"]
    assert text_of(mixed[0]) == ["odd even odd 6 14"]


def test_items_and_their_time_are_counted_by_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics(["pairs"])
    monkeypatch.setitem(globals(), "METRICS", lambda: metrics)
    serve(tmp_path, lambda service, _: service.pipelines["pairs"].infer(pairs(FAILS)))
    text = metrics.text().decode()
    for line in (
        'gearshift_node_items_total{model="read",node="read",operator="pairs",outcome="answered"} 3.0',
        'gearshift_node_items_total{model="",node="check",operator="pairs",outcome="failed"} 1.0',
        'gearshift_node_seconds_count{node="join",operator="pairs"} 1.0',
    ):
        assert line in text


# Behind a server -----------------------------------------------------------------------------------------------------


def ask(server: Server, *rows: list[list[float]]) -> tuple[int, Any]:
    x = [[value for pair in row for value in pair] for row in rows]
    tensor = {"name": "x", "datatype": "FP64", "shape": [len(x), 6], "data": x}
    request = urllib.request.Request(
        f"{server.url}/v2/models/pairs/infer",
        json.dumps({"inputs": [tensor]}).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=LONGEST_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_pipeline_is_served_from_a_plan_file_over_http(tmp_path: Path) -> None:
    server = Server(write_graph_plan(tmp_path, most=2), "local", {})
    try:
        server.url = server.until_it_says(r"serving pairs at (http://\S+) \(4 replicas on 2 devices\)")[1]
        with urllib.request.urlopen(f"{server.url}/v2/models/pairs", timeout=LONGEST_S) as response:
            metadata = json.loads(response.read())
        status, answer = ask(server, [[1.0, 2.0], NONE, [2.0, 2.0]], EMPTY)
        refused, error = ask(server, MIXED)
    finally:
        server.process.kill()
        server.wait()
    assert [(one["name"], one["shape"]) for one in metadata["inputs"]] == [("x", [-1, 6])]
    assert [one["name"] for one in metadata["outputs"]] == ["text"]
    assert (status, answer["outputs"][0]["data"]) == (200, ["odd even 6", "nothing"])
    assert refused == 413
    assert "'split.parts' has 3 rows, and node 'read' takes 2" in json.dumps(error)
