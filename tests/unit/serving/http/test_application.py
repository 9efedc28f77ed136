"""The application spoken to over a connection without a socket, over emulated devices."""

import asyncio
import gc
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import NO_DEADLINE_NS, Request
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, EmulatedBackend, emulated_outputs
from gearshift.runtime.faults.retries import Retries
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.serving.door import open_exchanges
from gearshift.serving.door.keys import Keys, read_keys
from gearshift.serving.door.signature import Signature
from gearshift.serving.http.application import Application
from gearshift.serving.http.connection import Connection
from gearshift.serving.http.connections import Connections, Handler
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.operate.control import Control
from gearshift.v2.bodies import InferRequest
from tests.little_task import little_plan, little_profile
from tests.unit.serving.wire import Response, Wire, answered

Options = dict[str, Any]
LONGEST_S = 20.0
INFER = "/v2/models/sums/infer"


class RememberingBackend(EmulatedBackend):
    """Emulated devices that remember which requests they have run."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.requests: list[Request] = []

    def run(self, batch: Batch) -> None:
        self.requests += [sample.request for sample in batch.samples if sample.request not in self.requests]
        super().run(batch)


class Server:
    """What answers, how it is asked, and what lies behind it."""

    def __init__(self, handler: Handler, service: Service, backend: RememberingBackend) -> None:
        self.handler, self.service, self.backend = handler, service, backend
        self.client = "127.0.0.1"

    def connect(self, **bounds: Any) -> tuple[Connection, Wire]:
        """A connection to what answers, and what is on its other end."""
        connection, wire = Connection(Connections(handler=self.handler, **bounds)), Wire(self.client)
        connection.connection_made(wire)
        return connection, wire

    in_one_piece = False

    async def ask(
        self, method: str, path: str, body: bytes | list[bytes] = b"", headers: dict[str, str] | None = None
    ) -> Response:
        """The answer to a request whose body comes in one part, or in several."""
        chunked = isinstance(body, list)
        given = {"transfer-encoding": "chunked"} if chunked else {"content-length": str(len(body))}
        given["host"] = "127.0.0.1"
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in (given | (headers or {})).items()),
        ]
        connection, wire = self.connect()
        parts = ["\r\n".join([*lines, "", ""]).encode()]
        parts += [b"%x\r\n%b\r\n" % (len(part), part) for part in [*body, b""]] if chunked else [body]
        for piece in [b"".join(parts)] if self.in_one_piece else parts:
            connection.data_received(piece)
        try:
            return await answered(wire)
        finally:
            connection.connection_lost(None)

    async def infer(self, body: Any, headers: dict[str, str] | None = None) -> Response:
        return await self.ask("POST", INFER, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)


@asynccontextmanager
async def no_door(
    application: Application, _service: dict[str, Any], _options: dict[str, Any]
) -> AsyncIterator[Handler]:
    """The application itself answers."""
    yield application


door = no_door
"""What stands between clients and the application; `test_front_ends` puts a front end there."""


@pytest.fixture(autouse=True, params=[False, True], ids=["in-pieces", "in-one-piece"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "in_one_piece", request.param)


def serve(use: Callable[[Server], Awaitable[Any]], *, service: dict[str, Any] | None = None, **options: Any) -> Any:
    """What `use` answers of a server with these options."""

    async def main() -> Any:
        plan, profile, metrics = little_plan(""), little_profile(), Metrics()
        tables = plan_tables(plan)
        backend = RememberingBackend(tables, plan, profile)
        running = Service(tables, backend, metrics=metrics, **(service or {}))
        access = {name: options[name] for name in ("keys", "names") if name in options}
        handled = {name: value for name, value in options.items() if name not in access}
        handlers = Handlers(
            Control(running),
            [Signature(name="sums", inputs=EMULATED_INPUTS, outputs=emulated_outputs(profile))],
            **({"largest_body_bytes": 1 << 20, "metrics": metrics} | handled),
        )
        application = Application(handlers, **access)
        await running.start()
        try:
            async with asyncio.timeout(LONGEST_S), door(application, service or {}, options) as handler:
                return await use(Server(handler, running, backend))
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


def test_a_client_that_asks_alike_again_and_again_is_answered_each_time_what_it_asks_for():
    async def use(server: Server) -> list[Any]:
        connection, wire = server.connect()
        said = []
        for data in ("[0, 1]", "[1, 0]", "[0, 1", "[true, 0]", "[1, 1, 1]", "[0, 0]"):
            body = b'{"inputs": [{"name": "sample", "datatype": "INT64", "shape": [2], "data": %b}]}' % data.encode()
            head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (INFER.encode(), len(body))
            connection.data_received(head + body)
            response = await answered(wire)
            said.append(response.json()["outputs"][1]["data"] if response.status == 200 else response.status)
        connection.connection_lost(None)
        return said

    small, large = "small-0", "large-1"
    assert serve(use) == [[small, large], [large, small], 400, 400, 400, [small, small]]


def carried(fields: dict[str, Any], headers: dict[str, str] | None = None, **options: Any) -> Request:
    """The request that reached a device."""

    async def use(server: Server) -> Request:
        assert (await server.infer(samples(0, parameters=fields), headers)).status == 200
        return server.backend.requests[0]

    return serve(use, service={"pipelines": {"sums": PipelineOptions(**options)}})


def within_s(request: Request) -> float:
    return (request.deadline_ns - request.arrived_ns) / 1e9


@pytest.mark.parametrize(
    ("fields", "headers", "seconds"),
    [
        ({"timeout": 5_000_000}, {}, 5),
        ({"timeout": 5_000_000}, {"x-slo-ms": "9000"}, 5),
        ({"timeout": 0}, {"x-slo-ms": "9000.5"}, 9.0005),
        ({}, {"x-slo-ms": "9000"}, 9),
    ],
)
def test_the_deadline_is_the_first_that_is_given(fields, headers, seconds):
    request = carried(fields, headers, answer_within_s=60.0)
    assert seconds - 1 < within_s(request) <= seconds
    assert request.answer_by_ns == request.arrived_ns + 60 * 10**9


def test_the_operators_deadline_is_the_last_resort_and_does_not_count_in_queues():
    request = carried({}, answer_within_s=60.0)
    assert request.answer_by_ns == request.arrived_ns + 60 * 10**9
    assert request.deadline_ns == NO_DEADLINE_NS


def test_without_any_deadline_there_is_none():
    request = carried({})
    assert request.deadline_ns == request.answer_by_ns == NO_DEADLINE_NS


@pytest.mark.parametrize(("given", "carries"), [(1, 1), (1000, 1000), (0, 7), (None, 7)])
def test_priority_0_or_none_is_the_operators_default(given, carries):
    fields = {} if given is None else {"priority": given}
    assert carried(fields, default_priority=7).priority == carries


@pytest.mark.parametrize(
    "slo", ["", "0", "-5", "0.0", "nan", "inf", "1e3", "5 ms", "\u0665", "1" * 16, "0x5", "4503599627371"]
)
def test_an_slo_that_makes_no_sense_is_400(slo):
    response = serve(lambda server: server.infer(samples(0), {"x-slo-ms": slo}))
    assert response.status == 400
    assert "header x-slo-ms" in response.json()["error"]
    assert "above 0 and up to 4503599627370" in response.json()["error"]


def test_blanks_around_a_header_are_no_part_of_it():
    assert 8 < within_s(carried({}, {"x-slo-ms": " 9000\t "})) <= 9


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout": -1},
        {"timeout": "soon"},
        {"timeout": 0.5},
        {"timeout": True},
        {"timeout": 1 << 60},
        {"priority": -1},
        {"priority": 1001},
        {"priority": "high"},
    ],
)
def test_a_timeout_or_priority_that_makes_no_sense_is_400_and_named(fields):
    response = serve(lambda server: server.infer(samples(0, parameters=fields)))
    assert response.status == 400
    assert next(iter(fields)) in response.json()["error"]


def test_while_a_request_waits_its_arrays_are_held_by_what_runs_it_alone():
    async def use(server: Server) -> list[InferRequest]:
        waiting = asyncio.create_task(server.infer(samples(0)))
        await asyncio.sleep(0)
        held = [one for one in gc.get_objects() if type(one) is InferRequest and one.inputs]
        assert (await waiting).status == 200
        return held

    assert serve(use) == []


PREDICT = "/predict/sums"


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"sample": 3}, {"quality": 1.0, "label": "large-3"}),
        ([{"sample": "4"}], [{"quality": 1.0, "label": "small-4"}]),
    ],
)
def test_plain_records_are_answered_with_records(body, answer):
    response = serve(lambda server: server.ask("POST", PREDICT, json.dumps(body).encode()))
    assert (response.status, response.json()) == (200, answer)
    assert response.headers["x-gearshift-outcome"] == "answered"


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (b"{", {}, 400, "no JSON"),
        (b"{}", {}, 400, "field 'sample': is missing; send {\"sample\":1}"),
        (b'{"sample": 1.5}', {}, 400, "needs a whole number"),
        (b'{"sample": 1}', {"x-slo-ms": "soon"}, 400, "x-slo-ms"),
        (b" " * (64 << 10) + b"{}", {}, 413, "bytes"),
        (b'{"sample": 10}', {}, 500, ""),
    ],
)
def test_records_that_make_no_sense_are_refused_with_a_reason(body, headers, status, says):
    response = serve(lambda server: server.ask("POST", PREDICT, body, headers))
    assert response.status == status
    assert says in response.json()["error"]


def test_the_pages_name_what_is_served_and_load_nothing_from_elsewhere():
    async def use(server: Server) -> list[Response]:
        return [await server.ask("GET", path) for path in ("/", "/docs")]

    front, docs = serve(use)
    assert (front.status, front.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "curl http://HOST/predict/sums -d &#x27;{&quot;sample&quot;:1}&#x27;" in front.body.decode()
    assert "POST /predict/sums" in docs.body.decode()
    for page in (front, docs):
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "http://" not in page.body.decode().replace("http://HOST", "")
        assert "<script" not in page.body.decode()


@pytest.mark.parametrize("path", ["/v2", "/v2/models/sums", "/v2/models/sums/config", "/livez", "/openapi.json"])
@pytest.mark.parametrize("ending", ["/", "//", "/?verbose=1"])
def test_slashes_at_the_end_of_a_path_change_nothing(path, ending):
    async def use(server: Server) -> list[tuple[int, bytes]]:
        return [
            (answer.status, answer.body) for answer in [await server.ask("GET", path + end) for end in ("", ending)]
        ]

    plain, slashed = serve(use)
    assert plain == slashed
    assert plain[0] == 200


@pytest.mark.parametrize("path", ["/metrics/", "/v2/gearshift/status/"])
def test_the_paths_of_operators_count_only_as_they_are_written(path):
    assert serve(lambda server: server.ask("GET", path)).status == 404


@pytest.mark.parametrize("path", ["/v2/models/stats", "/v2/models/sums/stats", "/v2/models/sums/versions/1/stats"])
def test_statistics_tell_what_was_answered_and_what_failed(path):
    async def use(server: Server) -> Any:
        await server.infer(samples(0, 1))
        await server.infer(samples(2))
        await server.infer(samples(10))
        return (await server.ask("GET", path)).json()

    (statistics,) = serve(use)["model_stats"]
    assert (statistics["name"], statistics["version"]) == ("sums", "1")
    assert statistics["inference_count"] == 3
    assert statistics["execution_count"] == 4  # sample 1 went on to the second model
    assert statistics["last_inference"] > 1.7e12
    took = statistics["inference_stats"]
    assert (took["success"]["count"], took["fail"]["count"], took["queue"]["count"]) == (2, 1, 3)
    assert took["success"]["ns"] >= 6_000_000
    assert took["fail"]["ns"] >= 1_000_000
    assert took["compute_infer"]["count"] == 4
    assert took["compute_infer"]["ns"] >= 7_000_000  # three batches of 1 ms and one of 4 ms are profiled


def test_statistics_of_nothing_are_zeros():
    (statistics,) = serve(lambda server: server.ask("GET", "/v2/models/stats")).json()["model_stats"]
    assert statistics["last_inference"] == statistics["inference_count"] == 0
    assert all(took == {"count": 0, "ns": 0} for took in statistics["inference_stats"].values())


@pytest.mark.usefixtures("lost_for_good")
@pytest.mark.parametrize("refuse", [False, True])
def test_a_lost_stage_is_degraded_or_503_with_retry_after(refuse):
    async def use(server: Server) -> tuple[Response, Response]:
        server.backend.lose(0)
        return await server.infer(samples(0)), await server.infer(samples(0, 1))

    retries = Retries(("large", "small"), refuse_lost_stage=refuse)
    sure, unsure = serve(use, service={"retries": retries})
    assert (sure.status, sure.json()["parameters"]["outcome"]) == (200, "answered")
    if refuse:
        assert (unsure.status, unsure.headers["retry-after"]) == (503, "1")
        assert unsure.json()["error"] == "no worker of model 'large' is running; try again later"
    else:
        assert (unsure.status, unsure.json()["parameters"]["outcome"]) == (200, "degraded")


@pytest.mark.usefixtures("lost_for_good")
@pytest.mark.parametrize(("body", "ready_only"), [(b"", False), (b"{}", False), (b'{"ready":true}', True)])
def test_the_index_names_the_operator_and_its_state(body, ready_only):
    async def use(server: Server) -> Any:
        before = (await server.ask("POST", "/v2/repository/index", body)).json()
        server.backend.lose(0)
        assert (await server.ask("POST", "/v2/repository/index", body)).json() == before, "the first stage answers"
        server.backend.lose(1)
        return before, (await server.ask("POST", "/v2/repository/index", body)).json()

    ready, lost = serve(use)
    assert ready == [{"name": "sums", "version": "1", "state": "READY", "reason": ""}]
    if ready_only:
        assert lost == []
    else:
        assert lost[0]["state"] == "UNAVAILABLE"
        assert "worker" in lost[0]["reason"]


@pytest.mark.parametrize(("body", "status"), [(b"[]", 400), (b"\xff", 400), (b'{"ready":1}', 400), (b" " * 5000, 413)])
def test_a_request_for_the_index_that_makes_no_sense_is_refused(body, status):
    assert serve(lambda server: server.ask("POST", "/v2/repository/index", body)).status == status


@pytest.mark.parametrize("verb", ["load", "unload"])
@pytest.mark.parametrize("model", ["sums", "other"])
def test_a_single_model_is_neither_loaded_nor_unloaded(verb, model):
    response = serve(lambda server: server.ask("POST", f"/v2/repository/models/{model}/{verb}"))
    assert response.status == 400
    assert f"cannot be {verb}ed on its own" in response.json()["error"]


def test_the_configuration_has_dimensions_without_rows():
    config = serve(lambda server: server.ask("GET", "/v2/models/sums/config")).json()
    assert config["input"] == [{"name": "sample", "data_type": "TYPE_INT64", "dims": []}]
    assert [output["data_type"] for output in config["output"]] == ["TYPE_FP64", "TYPE_STRING"]
    assert config["max_batch_size"] == 10_000


@pytest.mark.parametrize(("encoding", "squeeze"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_request_is_read_and_cut_where_it_was_before(encoding, squeeze):
    body, headers = binary_samples(0, 1)
    response = serve(lambda server: server.infer(squeeze(body), headers | {"content-encoding": encoding}))
    assert response.json()["outputs"][1]["data"] == ["small-0", "large-1"]


def test_a_body_over_the_bound_once_decompressed_is_413():
    bomb = gzip.compress(b" " * (64 << 20))
    response = serve(lambda server: server.infer(bomb, {"content-encoding": "gzip"}))
    assert response.status == 413
    assert "connection" not in response.headers
    assert "once it is decompressed" in response.json()["error"]


def test_what_is_no_http_behind_a_request_that_is_refused_later_is_400_all_the_same(caplog):
    async def main(server: Server) -> bytes:
        connection, wire = server.connect()
        head = f"POST {INFER} HTTP/1.1\r\nhost: [::1]\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nwrong"
        connection.data_received(head.encode() + b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 1000 + b"no HTTP\r\n\r\n")
        while not wire.ended:
            await asyncio.sleep(0)
        connection.connection_lost(None)
        return bytes(wire.written)

    answers = serve(main).split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == [400, *[200] * 1000, 400]
    assert "fault" not in caplog.text


def test_the_text_of_a_refusal_is_bounded():
    body = {"inputs": [{"name": "n" * 100_000, "datatype": "INT64", "shape": [1], "data": [1]}]}
    response = serve(lambda server: server.infer(body))
    assert response.status == 400
    assert len(response.body) < 3000


def test_a_full_queue_says_when_there_is_room():
    async def use(server: Server) -> tuple[int, str]:
        work = [asyncio.ensure_future(server.infer(samples(*range(10)))) for _ in range(3)]
        while server.service.pipeline.room.waiting < 20:
            await asyncio.sleep(0)
        refused = await server.infer(samples(*range(10)))
        await asyncio.gather(*work)
        return refused.status, refused.headers["retry-after"]

    status, seconds = serve(
        use, service={"pipelines": {"sums": PipelineOptions(most_waiting_requests=25, capacity_qps=1.0)}}
    )
    assert status == 429
    assert int(seconds) >= 5


def test_bulk_work_is_let_in_while_online_room_is_full():
    bulk = samples(*range(5), parameters={"bulk": True})

    async def use(server: Server) -> list[int]:
        online = [asyncio.ensure_future(server.infer(samples(0))) for _ in range(60)]
        told = asyncio.ensure_future(server.infer(bulk, {"x-gearshift-bulk": "true"}))
        untrue = asyncio.ensure_future(server.infer(samples(0), {"x-gearshift-bulk": "true"}))
        assert 429 in [response.status for response in await asyncio.gather(*online)]
        return [(await each).status for each in (told, untrue)]

    full = {"sums": PipelineOptions(most_waiting_requests=10)}
    assert serve(use, service={"pipelines": full}) == [200, 429]


def test_decompressed_bytes_count_among_those_that_are_held():
    large = gzip.compress(json.dumps(samples(0)).encode() + b" " * 100_000)

    async def use(server: Server) -> list[int]:
        plain = json.dumps(samples(1)).encode()
        with server.service.pipeline.reading(0) as reading:
            reading.hold(20 * len(plain))
            refused = await server.infer(large, {"content-encoding": "gzip"})
        served = await server.infer(large, {"content-encoding": "gzip"})
        larger = await server.infer(gzip.compress(b" " * 200_000), {"content-encoding": "gzip"})
        return [refused.status, served.status, larger.status]

    assert serve(use, service={"most_waiting_bytes": 102_000}) == [429, 200, 413]


GZIPPED = {"content-encoding": "gzip"}
NO_SUCH_INPUT = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}'
ENDED: dict[str, tuple[int, str, str, Any, dict[str, str]]] = {
    "answered": (200, "POST", INFER, json.dumps(samples(0)).encode(), {}),
    "answered once decompressed": (200, "POST", INFER, gzip.compress(json.dumps(samples(0)).encode()), GZIPPED),
    "no JSON": (400, "POST", INFER, b"{", {}),
    "no such input": (400, "POST", INFER, NO_SUCH_INPUT, {}),
    "data that does not fit": (400, "POST", INFER, json.dumps(samples(0)).replace("[0]", '["0"]').encode(), {}),
    "a tensor that ends early": (400, "POST", INFER, b'{"inputs": []}', {"inference-header-content-length": "99"}),
    "not compressed as it says": (400, "POST", INFER, b"x", GZIPPED),
    "compressed, and data that does not fit": (400, "POST", INFER, gzip.compress(b'{"inputs": 1}'), GZIPPED),
    "too large once decompressed": (413, "POST", INFER, gzip.compress(b" " * (2 << 20)), GZIPPED),
    "too large": (413, "POST", INFER, b" " * (2 << 20), {}),
    "too large in parts": (413, "POST", INFER, [b" " * (1 << 20)] * 2, {}),
    "a deadline that is none": (400, "POST", INFER, json.dumps(samples(0)).encode(), {"x-slo-ms": "soon"}),
    "a gear that is none": (400, "POST", "/v2/gearshift/gear", b'{"pin": 99}', {}),
    "no swap": (400, "POST", "/v2/gearshift/swap", b'{"plan": "x"}', {}),
    "another method": (405, "PUT", INFER, b"{}", {}),
    "another path": (404, "POST", "/v3", b"{}", {}),
}  # fmt: skip


def kept() -> list[object]:
    """Requests and errors since the freeze; by type alone, as some objects act when they are asked what they are."""
    return [found for found in gc.get_objects() if issubclass(type(found), (HttpExchange, BaseException))]


@pytest.mark.parametrize(("status", "method", "path", "body", "headers"), ENDED.values(), ids=ENDED)
def test_a_request_is_forgotten_without_a_collection(status, method, path, body, headers):
    async def use(server: Server) -> tuple[int, list[object]]:
        gc.collect()
        gc.disable()
        gc.freeze()
        try:
            response = await server.ask(method, path, body, headers)
            await asyncio.sleep(0)  # for what a task leaves behind
            return response.status, kept()
        finally:
            gc.enable()

    assert serve(use) == (status, [])


@pytest.mark.parametrize(("rows", "compressed"), [(10, False), (2000, True)])
def test_large_answers_are_compressed_for_those_who_accept_it(rows, compressed):
    async def use(server: Server) -> tuple[Response, Response]:
        body = samples(*[number % 10 for number in range(rows)])
        return await server.infer(body, {"accept-encoding": "gzip"}), await server.infer(body)

    answered, plain = serve(use)
    assert "content-encoding" not in plain.headers
    assert ("content-encoding" in answered.headers) == compressed
    if compressed:
        assert len(answered.body) < len(plain.body) / 5
        assert answered.headers["vary"] == "accept-encoding"
        answered = Response(200, {}, gzip.decompress(answered.body))
    assert answered.json()["outputs"] == plain.json()["outputs"]


@pytest.fixture
def keys(tmp_path) -> Keys | None:
    for name in ("user", "admin"):
        (tmp_path / name).write_text(f"a-longer-{name}-key\n")
    return read_keys(str(tmp_path / "user"), str(tmp_path / "admin"))


ANYBODY = ["/livez", "/readyz", "/v2/health/live", "/v2/health/ready", "/dashboard"]
USERS = ["/v2", "/metrics", "/v2/models/sums", "/v2/models/sums/ready", "/v2/models/stats", "/nothing"]


@pytest.mark.parametrize("key", [None, "no-key", "a-longer-user-key", "a-longer-admin-key"])
def test_all_but_health_and_the_live_page_need_a_key(keys, key):
    headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def use(server: Server) -> tuple[list[int], list[int]]:
        open_to_all = [(await server.ask("GET", path, headers=headers)).status for path in ANYBODY]
        locked = [(await server.ask("GET", path, headers=headers)).status for path in USERS]
        return open_to_all, [*locked, (await server.infer(samples(0), headers)).status]

    open_to_all, locked = serve(use, keys=keys)
    assert open_to_all == [200] * len(ANYBODY)
    assert locked == ([200] * 5 + [404, 200] if key in ("a-longer-user-key", "a-longer-admin-key") else [401] * 7)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_browser_without_a_key_gets_a_form_for_it(keys, path):
    def asked(**headers: str) -> Response:
        return serve(lambda server: server.ask("GET", path, headers=headers), keys=keys)

    page = asked(accept="text/html,*/*")
    assert (page.status, page.headers["content-type"][:9]) == (401, "text/html")
    assert b"<form>" in page.body
    assert b"sums" not in page.body
    assert asked().headers["content-type"] == "application/json"
    whole = asked(accept="text/html", authorization="Bearer a-longer-user-key")
    assert (whole.status, b"sums" in whole.body) == (200, True)


def revoke(path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_text("another-longer-key\n")
    new.rename(path)


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
def test_a_request_whose_key_is_revoked_is_401_whatever_it_waits_for(keys, tmp_path, monkeypatch, path):
    monkeypatch.setattr(open_exchanges, "LOOK_S", 0.01)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-api-key: a-longer-user-key\r\ncontent-length: 100\r\n\r\n"

    async def use(server: Server) -> tuple[Response, bool]:
        connection, wire = server.connect()
        connection.data_received(head.encode())
        while not keys.open:
            await asyncio.sleep(0)
        revoke(tmp_path / "user")
        response = await answered(wire)
        connection.connection_lost(None)
        return response, wire.ended

    response, ended = serve(use, keys=keys)
    assert (response.status, response.headers["connection"], ended) == (401, "close", True)
    assert "no longer" in response.json()["error"]


def test_a_request_that_waits_for_its_answer_gives_its_place_up_when_its_key_is_revoked(keys, tmp_path, monkeypatch):
    monkeypatch.setattr(open_exchanges, "LOOK_S", 0.01)
    headers = {"x-api-key": "a-longer-user-key"}

    async def use(server: Server) -> tuple[int, int]:
        server.backend.run = lambda batch: None  # it never ends
        asked = asyncio.ensure_future(server.infer(samples(*[0] * 200), headers))
        while not server.service.pipeline.waiting:
            await asyncio.sleep(0)
        revoke(tmp_path / "user")
        response = await asked
        return response.status, server.service.pipeline.waiting

    assert serve(use, keys=keys) == (401, 0)


def test_a_request_with_a_key_is_forgotten_without_a_collection(keys):
    async def use(server: Server) -> tuple[int, list[object]]:
        gc.collect()
        gc.disable()
        gc.freeze()
        try:
            response = await server.infer(samples(0), {"x-api-key": "a-longer-user-key"})
            await asyncio.sleep(0)  # for what a task leaves behind
            return response.status, kept()
        finally:
            gc.enable()

    assert serve(use, keys=keys) == (200, [])


def test_a_server_may_have_no_live_page():
    async def use(server: Server) -> list[Response]:
        return [await server.ask("GET", path) for path in ("/dashboard", "/openapi.json", "/", "/v2/gearshift/live")]

    page, description, front, live = serve(use, has_dashboard=False)
    assert (page.status, live.status) == (404, 200)
    assert b"/dashboard" not in description.body + front.body


def test_a_refused_key_is_401_with_a_sentence(keys, caplog):
    response = serve(lambda server: server.infer(samples(0), {"x-api-key": "guessed"}), keys=keys)
    assert response.status == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"] == "an API key is needed, and the key that was sent is none that this server knows"
    assert "guessed" not in caplog.text


@pytest.mark.parametrize(("key", "status"), [("a-longer-user-key", 401), ("a-longer-admin-key", 400)])
def test_administration_needs_its_own_key(keys, key, status):
    path = "/v2/repository/models/sums/unload"
    assert serve(lambda server: server.ask("POST", path, headers={"x-api-key": key}), keys=keys).status == status
