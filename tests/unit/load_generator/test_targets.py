"""What each target sends, and what it makes of what comes back."""

import asyncio
import contextlib
import json
from typing import Any

import grpc
import numpy as np
import pytest
from aiohttp import web

from gearshift.errors import InvalidInput, NoAnswer
from gearshift.load_generator.grpc_target import GrpcTarget
from gearshift.load_generator.http_target import HttpTarget, target_at
from gearshift.load_generator.targets import Counters, ModelRuns, Reply, Sending, answered_with, counters_in
from gearshift.observability.metrics import Metrics
from gearshift.policies.batching import FULL
from gearshift.v2.grpc_messages_pb2 import ModelInferRequest, ModelInferResponse
from gearshift.v2.grpc_status import RETRY_PUSHBACK_MS, SERVICE

INPUTS = {"x": np.array([[1.5, 2.0]], dtype=np.float32), "text": np.array(["a"], dtype=object)}
URGENT = Sending(deadline_s=0.25, priority=3)


def http(sending: Sending) -> tuple[str, dict[str, Any], bytes]:
    """Head, JSON and bytes after it of a request over HTTP."""
    head, body = HttpTarget("http://127.0.0.1:1", "op", "label", sending).encode(INPUTS).split(b"\r\n\r\n", 1)
    size = next(
        (int(line.split(b": ")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"inference-header")),
        None,
    )
    return head.decode(), json.loads(body[:size]), body[size:]


def test_deadline_priority_and_key_go_with_every_http_request() -> None:
    head, content, _ = http(Sending(deadline_s=0.25, priority=3, api_key="secret"))
    assert content["parameters"] == {"priority": 3, "timeout": 250_000, "binary_data_output": False}
    assert "\r\nAuthorization: Bearer secret\r\n" in f"{head}\r\n"
    assert "timeout" not in http(Sending())[1]["parameters"]


def test_binary_tensors_follow_the_json() -> None:
    _, content, data = http(Sending(binary=True))
    assert [tensor["parameters"]["binary_data_size"] for tensor in content["inputs"]] == [8, 5]
    assert data == np.array([1.5, 2.0], dtype="<f4").tobytes() + b"\x01\0\0\0a"


def test_a_grpc_request_says_the_same() -> None:
    target = target_at("grpc://127.0.0.1:1", "op", "label", URGENT)
    assert isinstance(target, GrpcTarget)
    message = ModelInferRequest.FromString(target.encode(INPUTS))
    assert message.model_name == "op"
    assert [(t.name, t.datatype, list(t.shape)) for t in message.inputs] == [
        ("x", "FP32", [1, 2]),
        ("text", "BYTES", [1]),
    ]
    assert list(message.raw_input_contents) == [np.array([1.5, 2.0], dtype="<f4").tobytes(), b"\x01\0\0\0a"]
    assert message.parameters["timeout"].int64_param == 250_000
    assert message.parameters["priority"].int64_param == 3
    assert [output.name for output in message.outputs] == ["label"]


def test_typed_contents_of_another_server_are_read() -> None:
    answer = ModelInferResponse()
    answer.outputs.add(name="label", datatype="INT64", shape=[1]).contents.int64_contents.append(7)
    target = GrpcTarget("grpc://127.0.0.1:1", "op", "label", Sending())
    assert target.values_of(answer) == {"label": [7]}
    answer.raw_output_contents.extend([b"", b""])
    with pytest.raises(InvalidInput, match="2 raw contents"):
        target.values_of(answer)


@pytest.mark.parametrize("values", [{}, {"label": []}, {"label": [1, 2]}, {"other": [1]}])
def test_an_answer_without_the_one_value_asked_for_is_refused(values: dict[str, list[int]]) -> None:
    with pytest.raises(InvalidInput, match="op: the answer has no output 'label' of one value"):
        answered_with(values, "label", gear=None, outcome="answered", where="op")


def test_a_reply_tells_the_model_and_stage_where_they_are_there() -> None:
    values = {"label": ["yes"], "gearshift_model": ["large"], "gearshift_stage": [2]}
    reply = answered_with(values, "label", gear=1, outcome="degraded", where="op")
    assert reply == Reply(200, answered="yes", gear=1, degraded=True, model="large", stage=2)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"deadline_s": 0.0}, "deadline_s is 0.0; give more than 0, up to 86400"),
        ({"deadline_s": float("nan")}, "deadline_s is nan; give more than 0, up to 86400"),
        ({"priority": 1001}, "priority is 1001"),
        ({"longest_s": float("inf")}, "longest_s is inf; give more than 0, up to 86400"),
    ],
)
def test_a_way_of_sending_that_makes_no_sense_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Sending(**fields)


def called(code: grpc.StatusCode, trailing: tuple[tuple[str, str], ...]) -> Reply:
    """What comes of a call that a server ends with this status."""

    async def run() -> Reply:
        async def abort(request: bytes, context: Any) -> bytes:
            await context.abort(code, "why", trailing)
            return b""

        methods = {name: grpc.unary_unary_rpc_method_handler(abort) for name in ("ServerMetadata", "ModelInfer")}
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        target = GrpcTarget(f"grpc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", "op", "label", Sending())
        await server.start()
        try:
            with contextlib.suppress(InvalidInput):
                await target.open()
            return await target.exchange(b"", 5.0)
        finally:
            await target.close()
            await server.stop(0)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 400),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 504),
        (grpc.StatusCode.UNIMPLEMENTED, 404),
        (grpc.StatusCode.ABORTED, 500),
    ],
)
def test_a_status_of_grpc_is_the_one_of_http_that_means_the_same(code: grpc.StatusCode, status: int) -> None:
    assert called(code, ()) == Reply(status, "why")


def test_unavailable_is_a_refusal_where_the_server_says_so_and_a_broken_connection_else() -> None:
    assert called(grpc.StatusCode.UNAVAILABLE, ((RETRY_PUSHBACK_MS, "1000"),)) == Reply(503, "why")
    with pytest.raises(NoAnswer, match="why"):
        called(grpc.StatusCode.UNAVAILABLE, ())


def opened(metadata: object, **sending: Any) -> list[str]:
    """The outputs that are asked of a server that says this of itself."""

    async def run() -> list[str]:
        async def handler(request: web.Request) -> web.Response:
            return web.json_response(metadata)

        application = web.Application()
        application.router.add_get("/v2", handler)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        target = HttpTarget(f"http://127.0.0.1:{runner.addresses[0][1]}", "op", "label", Sending(**sending))
        try:
            await target.open()
            content = json.loads(target.encode({"x": INPUTS["x"]}).split(b"\r\n\r\n", 1)[1])
            return [output["name"] for output in content["outputs"]]
        finally:
            await target.close()
            await runner.cleanup()

    return asyncio.run(run())


def test_facts_are_asked_of_a_gearshift_server_alone() -> None:
    assert opened({"name": "gearshift"}, facts=True) == ["label", "gearshift_model", "gearshift_stage"]
    assert opened({"name": "gearshift"}) == ["label"]
    assert opened({"name": "triton"}, facts=True) == ["label"]
    assert opened(["no metadata"], facts=True) == ["label"]


def test_a_server_that_takes_no_bytes_is_not_sent_any() -> None:
    with pytest.raises(InvalidInput, match="takes no binary tensors"):
        opened({"name": "other", "extensions": []}, binary=True)


def test_members_of_a_servers_metadata_that_are_null_count_as_left_out() -> None:
    assert opened({"name": None, "extensions": None}, facts=True) == ["label"]


def metrics(batches: list[int]) -> Counters:
    """What is read of a server that ran batches of these sizes, each for 0.25 s on one device."""
    counted = Metrics()
    for size in batches:
        counted.batch_started("small", size, FULL)
        counted.batch_finished("small", ["cpu-0"], 0.25)
    return counters_in(counted.text().decode())


def test_what_ran_between_two_readings_is_their_difference() -> None:
    before, after = metrics([4]), metrics([4, 2, 3])
    assert after.runs_since(before) == {"small": ModelRuns(batches=2, samples=5, run_s=0.5)}
    assert after.busy_since(before) == {"cpu-0": 0.5}


def test_a_server_that_counts_nothing_of_this_tells_nothing() -> None:
    other = counters_in("# TYPE requests counter\nrequests_total 3\n")
    assert other == Counters()
    assert other.runs_since(Counters()) == {}


def test_what_is_no_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match="could not convert"):
        counters_in("requests_total many\n")
