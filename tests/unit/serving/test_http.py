"""The application spoken to without a socket, over emulated devices."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.observability.metrics import Metrics
from gearshift.plan_tables import plan_tables
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, EmulatedBackend, emulated_outputs
from gearshift.runtime.service import Service
from gearshift.serving.http import Application
from tests.little_task import little_plan, little_profile

LONGEST_S = 20.0
INFER = "/v2/models/sums/infer"


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """An application, and how it is asked."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def ask(
        self, method: str, path: str, body: bytes | list[bytes] = b"", headers: dict[str, str] | None = None
    ) -> Response:
        """The answer to a request whose body comes in one part, or in several."""
        parts = [body] if isinstance(body, bytes) else body
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        messages[-1]["more_body"] = False
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        given = {"content-length": str(len(body))} if isinstance(body, bytes) else {}
        pairs = [(name.encode(), value.encode()) for name, value in (given | (headers or {})).items()]
        await self.application({"type": "http", "method": method, "path": path, "headers": pairs}, receive, send)
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Response(sent[0]["status"], answered, b"".join(message["body"] for message in sent[1:]))

    async def infer(self, body: Any, headers: dict[str, str] | None = None) -> Response:
        return await self.ask("POST", INFER, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)


def serve(use: Callable[[Server], Awaitable[Any]], *, service: dict[str, Any] | None = None, **options: Any) -> Any:
    """What `use` answers of a server with these options."""

    async def main() -> Any:
        plan, profile, metrics = little_plan(""), little_profile(), Metrics()
        tables = plan_tables(plan, "sums")
        running = Service(tables, EmulatedBackend(tables, plan, profile), metrics=metrics, **(service or {}))
        application = Application(
            running,
            "sums",
            inputs=EMULATED_INPUTS,
            outputs=emulated_outputs(profile),
            **({"largest_body_bytes": 1 << 20, "metrics": metrics} | options),
        )
        await running.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(Server(application))
        finally:
            await running.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def samples(*numbers: int, **fields: Any) -> dict[str, Any]:
    tensor = {"name": "sample", "datatype": "INT64", "shape": [len(numbers)], "data": list(numbers)}
    return {"inputs": [tensor], **fields}


def binary_samples(*numbers: int, **fields: Any) -> tuple[bytes, dict[str, str]]:
    """A request with a binary tensor: its body, and the header that cuts it."""
    data = np.array(numbers, dtype="<i8").tobytes()
    parameters = {"binary_data_size": len(data)}
    tensor = {"name": "sample", "datatype": "INT64", "shape": [len(numbers)], "parameters": parameters}
    text = json.dumps({"inputs": [tensor], **fields}).encode()
    return text + data, {"inference-header-content-length": str(len(text))}


def test_a_binary_request_is_answered_in_binary_where_it_asks_for_it():
    body, headers = binary_samples(0, 1, parameters={"binary_data_output": True})
    response = serve(lambda server: server.infer(body, headers))
    header_bytes = int(response.headers["inference-header-content-length"])
    names = [output["name"] for output in json.loads(response.body[:header_bytes])["outputs"]]
    assert names == ["quality", "label"]
    assert np.frombuffer(response.body[header_bytes:][:16], "<f8").tolist() == [1, 1]
    assert response.body.endswith(b"\7\0\0\0small-0\7\0\0\0large-1")
    assert response.headers["content-type"] == "application/octet-stream"


def test_a_binary_request_is_answered_in_json_where_it_asks_for_nothing():
    response = serve(lambda server: server.infer(*binary_samples(0, 1)))
    assert response.headers["content-type"] == "application/json"
    assert response.json()["outputs"][1]["data"] == ["small-0", "large-1"]


@pytest.mark.parametrize("length", ["", "-1", "1e3", "nothing", "9" * 30])
def test_a_header_length_that_is_no_number_is_400(length):
    body, _ = binary_samples(0)
    response = serve(lambda server: server.infer(body, {"inference-header-content-length": length}))
    assert response.status == 400
    assert "header inference-header-content-length" in response.json()["error"]
