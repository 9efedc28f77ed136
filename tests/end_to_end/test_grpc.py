"""A real server in a process of its own, spoken to over gRPC with the clients that others have written."""

import asyncio
import os
import queue
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.certificates import write_certificate
from tests.end_to_end.test_server import LONGEST_S, PAUSE_S, Server, serving, speak, until_metric
from tests.little_task import LOADING, closed, write_little_task

NO_SLOS = ("", "soon", "0", "-5", "0.0", "nan", "inf", "1e3", "5 ms", "1" * 16, "0x5")
BUSY = r'gearshift_batches_total\{model="small",reason="full"\} 1.0'


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("task"), grpc_port=0, largest_body_bytes=100_000) as server:
        yield server


@pytest.fixture
def client(server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.grpc) as client:
        yield client


def inputs(*rows: tuple[float, float]) -> list[Any]:
    tensor = triton.InferInput("x", [len(rows), 2], "FP64")
    tensor.set_data_from_numpy(np.array(rows, dtype=np.float64))
    return [tensor]


def request(*rows: tuple[float, float], **fields: Any) -> Any:
    """A request with typed contents, which the clients' own classes never send."""
    message = service_pb2.ModelInferRequest(model_name="sums", **fields)
    tensor = message.inputs.add(name="x", datatype="FP64", shape=[len(rows), 2])
    tensor.contents.fp64_contents.extend(value for row in rows for value in row)
    return message


def stub(channel: grpc.Channel) -> Any:
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def until(server: Server, pattern: str) -> None:
    speak(lambda session: until_metric(session, server, pattern))


def refused(call: Any, status: grpc.StatusCode, reason: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        call()
    assert caught.value.status() == str(status)
    assert reason in caught.value.message()


def test_rows_are_answered_each_by_its_stage(client):
    names = ["sum", "by", "gearshift_model", "gearshift_stage", "gearshift_certainty"]
    outputs = [triton.InferRequestedOutput(name) for name in names]
    answer = client.infer("sums", inputs((1, 2), (0, 4), (3, 3)), outputs=outputs, request_id="7", model_version="1")
    assert answer.as_numpy("sum").tolist() == [3, 4, 6]
    assert answer.as_numpy("by").tolist() == [b"small", b"large", b"small"]
    assert answer.as_numpy("gearshift_model").tolist() == [b"small", b"large", b"small"]
    assert answer.as_numpy("gearshift_stage").tolist() == [0, 1, 0]
    assert answer.as_numpy("gearshift_certainty").tolist() == [1, 1, 1]
    response = answer.get_response()
    assert (response.id, response.model_name, response.model_version) == ("7", "sums", "1")
    assert response.parameters["outcome"].string_param == "answered"
    assert response.parameters["gear"].int64_param == 0
    assert response.parameters["queue_s"].double_param >= 0
    assert response.parameters["run_s"].double_param > 0


def test_typed_contents_are_taken_too(server):
    with grpc.insecure_channel(server.grpc) as channel:
        answer = stub(channel).ModelInfer(request((1, 2), (0, 4)))
    assert np.frombuffer(answer.raw_output_contents[0]).tolist() == [3, 4]


def test_the_asyncio_client_is_served_side_by_side(server):
    async def main():
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            assert await client.is_server_ready()
            assert await client.is_server_live()
            assert await client.is_model_ready("sums")
            assert (await client.get_server_metadata()).name == "gearshift"
            assert (await client.get_model_metadata("sums")).name == "sums"
            assert (await client.get_model_config("sums")).config.name == "sums"
            assert [one.name for one in (await client.get_model_repository_index()).models] == ["sums"]
            assert [one.name for one in (await client.get_inference_statistics("sums")).model_stats] == ["sums"]
            answers = await asyncio.gather(*(client.infer("sums", inputs((1, n))) for n in range(20)))
        return [answer.as_numpy("sum").tolist() for answer in answers]

    assert asyncio.run(main()) == [[n + 1] for n in range(20)]


def test_the_server_and_its_model_say_what_they_are(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sums")
    assert client.is_model_ready("sums", "1")
    assert client.get_server_metadata().name == "gearshift"
    metadata = client.get_model_metadata("sums", as_json=True)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP64", "shape": ["-1", "2"]}]
    assert [output["name"] for output in metadata["outputs"]] == ["sum", "by"]
    assert metadata["versions"] == ["1"]
    config = client.get_model_config("sums").config
    assert [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input] == [("x", 12, [2])]
    assert [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.output] == [
        ("sum", 12, []),
        ("by", 13, []),
    ]
    assert config.max_batch_size > 0
    (model,) = client.get_model_repository_index().models
    assert (model.name, model.version, model.state) == ("sums", "1", "READY")


def test_loading_a_model_is_refused(client):
    refused(lambda: client.load_model("sums"), grpc.StatusCode.INVALID_ARGUMENT, "cannot be loaded")
    refused(lambda: client.unload_model("sums"), grpc.StatusCode.INVALID_ARGUMENT, "cannot be unloaded")


def test_statistics_count_what_was_answered(client):
    def counts() -> tuple[int, int, int]:
        (model,) = client.get_inference_statistics("sums").model_stats
        assert (model.name, model.version) == ("sums", "1")
        assert model.inference_stats.success.ns > 0
        return model.inference_count, model.inference_stats.success.count, model.inference_stats.fail.count

    client.infer("sums", inputs((1, 2)))
    rows, succeeded, failed = counts()
    client.infer("sums", inputs((1, 2), (3, 4)))
    with pytest.raises(InferenceServerException):
        client.infer("sums", inputs((666, 1)))
    assert counts() == (rows + 2, succeeded + 1, failed + 1)
    assert client.get_inference_statistics().model_stats[0].name == "sums"


def test_another_model_or_version_is_not_found(client):
    refused(lambda: client.is_model_ready("other"), grpc.StatusCode.NOT_FOUND, "no model 'other'")
    refused(lambda: client.get_model_metadata("other"), grpc.StatusCode.NOT_FOUND, "no model 'other'")
    refused(lambda: client.infer("other", inputs((1, 2))), grpc.StatusCode.NOT_FOUND, "no model 'other'")
    refused(lambda: client.infer("sums", inputs((1, 2)), "2"), grpc.StatusCode.NOT_FOUND, "no version '2'")


def wrong_type() -> list[Any]:
    tensor = triton.InferInput("x", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), dtype=np.float32))
    return [tensor]


@pytest.mark.parametrize(
    ("given", "options", "reason"),
    [
        ([], {}, "missing"),
        *((inputs((1, 2)), {"headers": {"x-slo-ms": slo}}, "header x-slo-ms") for slo in NO_SLOS),
        (wrong_type(), {}, "datatype is 'FP32'"),
        (inputs((1, float("nan"))), {}, "not finite"),
        (inputs((1, 2)) * 2, {}, "twice"),
        (inputs((1, 2)), {"priority": 2000}, "priority is 2000"),
        (inputs((1, 2)), {"timeout": -1}, "timeout is -1"),
        (inputs((1, 2)), {"timeout": 1 << 60}, f"timeout is {1 << 60}"),
        (inputs((1, 2)), {"outputs": [triton.InferRequestedOutput("product")]}, "output 'product'"),
        (inputs((1, 2)), {"outputs": [triton.InferRequestedOutput("by", class_count=1)]}, "classification"),
    ],
)
def test_bad_input_is_an_invalid_argument_with_field_and_reason(client, given, options, reason):
    refused(lambda: client.infer("sums", given, **options), grpc.StatusCode.INVALID_ARGUMENT, reason)


def test_the_reason_is_told_also_where_what_it_names_is_long(client):
    tensor = triton.InferInput("ü" * 20_000, [1, 2], "FP64")
    tensor.set_data_from_numpy(np.ones((1, 2)))
    refused(lambda: client.infer("sums", [tensor]), grpc.StatusCode.INVALID_ARGUMENT, "input 'ü")


def test_bytes_that_are_no_message_are_an_invalid_argument(server):
    with grpc.insecure_channel(server.grpc) as channel:
        for method in ("ModelInfer", "ModelMetadata"):
            call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
            with pytest.raises(grpc.RpcError) as caught:
                call(b"\xff\xff\xff")
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_over_the_bound_is_refused(client):
    rows = [(1.0, 1.0)] * 10_000
    refused(lambda: client.infer("sums", inputs(*rows)), grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max")


def test_compressed_messages_are_taken_within_the_same_bound(client):
    answer = client.infer("sums", inputs((1, 2)), compression_algorithm="gzip")
    assert answer.as_numpy("sum").tolist() == [3]
    zeros = inputs(*[(0.0, 0.0)] * 10_000)
    refused(
        lambda: client.infer("sums", zeros, compression_algorithm="gzip"),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "more than 100000 bytes once it is decompressed",
    )


def test_a_deadline_in_the_far_future_is_taken(server):
    with grpc.insecure_channel(server.grpc) as channel:
        assert stub(channel).ModelInfer(request((1, 2)), timeout=3e8).outputs


def test_a_row_that_fails_is_internal_and_no_internals_leave(server, client):
    with pytest.raises(InferenceServerException) as caught:
        client.infer("sums", inputs((666, 1)))
    assert caught.value.status() == str(grpc.StatusCode.INTERNAL)
    assert "secret" not in caught.value.message()
    server.until_it_says(re.search(r"\(id ([0-9a-f]+)\)", caught.value.message())[1])


def test_every_answer_carries_the_id_of_its_request(server):
    with grpc.insecure_channel(server.grpc) as channel:
        named = stub(channel).ModelInfer.with_call(request((1, 2)), metadata=[("x-request-id", "mine")])[1]
        made = stub(channel).ServerLive.with_call(service_pb2.ServerLiveRequest())[1]
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).ModelInfer(request((666, 1)), metadata=[("x-request-id", "find-me")])
    assert dict(named.trailing_metadata())["x-request-id"] == "mine"
    assert re.fullmatch("[0-9a-f]{12}", dict(made.trailing_metadata())["x-request-id"])
    assert dict(caught.value.trailing_metadata())["x-request-id"] == "find-me"
    assert caught.value.details().endswith("(id find-me)")
    server.until_it_says("request failed, id find-me: ")


def test_a_stream_answers_in_order_and_outlives_errors(client):
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for row in [(1, 2), (666, 1), (0, 4)]:
        client.async_stream_infer("sums", inputs(row))
    client.async_stream_infer("other", inputs((1, 2)))
    client.async_stream_infer("sums", inputs((5, 0.5)))
    received = [answers.get(timeout=LONGEST_S) for _ in range(5)]
    client.stop_stream()
    sums = [None if result is None else result.as_numpy("sum").tolist() for result, _ in received]
    assert sums == [[3], None, [4], None, [5.5]]
    assert "id" in received[1][1].message()
    assert "no model 'other'" in received[3][1].message()


def test_a_stream_says_that_each_answer_is_its_requests_last(client):
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("sums", inputs((1, 2)), request_id="7", enable_empty_final_response=True)
    result, error = answers.get(timeout=LONGEST_S)
    client.stop_stream()
    assert error is None
    assert result.as_numpy("sum").tolist() == [3]
    assert result.get_response().parameters["triton_final_response"].bool_param
    assert answers.empty()


def test_an_error_on_a_stream_names_its_request_and_is_its_last_answer(server):
    with grpc.insecure_channel(server.grpc) as channel:
        (answer,) = stub(channel).ModelStreamInfer(iter([request((666, 1), id="broken")]), timeout=LONGEST_S)
    assert answer.error_message
    assert answer.infer_response.id == "broken"
    assert answer.infer_response.parameters["triton_final_response"].bool_param


def test_a_stream_of_many_requests_answers_all(server):
    async def requests():
        for n in range(500):
            yield {"model_name": "sums", "inputs": inputs((1, n)), "request_id": str(n)}

    async def main():
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            return [
                (result.get_response().id, result.as_numpy("sum")[0])
                async for result, error in client.stream_infer(requests())
                if error is None
            ]

    assert asyncio.run(main()) == [(str(n), n + 1) for n in range(500)]


def test_with_keys_of_users_alone_nobody_may_administer(tmp_path):
    (tmp_path / "user").write_text("a-longer-user-key\n")
    with (
        serving(tmp_path, "emulated", grpc_port=0, api_keys=str(tmp_path / "user")) as server,
        triton.InferenceServerClient(server.grpc) as client,
    ):
        user, closed = {"x-api-key": "a-longer-user-key"}, grpc.StatusCode.PERMISSION_DENIED
        refused(lambda: client.load_model("sums", headers=user), closed, "administration is closed")
        refused(lambda: client.unload_model("sums", headers=user), closed, "--admin-keys")
        refused(lambda: client.load_model("sums"), grpc.StatusCode.UNAUTHENTICATED, "an API key is needed")


def test_only_those_with_a_key_may_ask_and_tls_keeps_it_secret(tmp_path):
    for name in ("user", "admin"):
        (tmp_path / name).write_text(f"a-longer-{name}-key\n")
    keys = {"api_keys": str(tmp_path / "user"), "admin_keys": str(tmp_path / "admin")}
    settings = {**keys, **write_certificate(tmp_path)}
    with (
        serving(tmp_path, grpc_port=0, **settings) as server,
        triton.InferenceServerClient(server.grpc, ssl=True, root_certificates=settings["tls_certificate"]) as client,
    ):
        denied = grpc.StatusCode.UNAUTHENTICATED
        user, admin = {"authorization": "Bearer a-longer-user-key"}, {"x-api-key": "a-longer-admin-key"}
        assert client.is_server_live()
        assert client.is_server_ready()
        refused(lambda: client.is_model_ready("sums"), denied, "an API key is needed")
        refused(lambda: client.infer("sums", inputs((1, 2)), headers={"x-api-key": "wrong"}), denied, "none that")
        for headers in (user, admin):
            assert client.infer("sums", inputs((1, 2)), headers=headers).as_numpy("sum").tolist() == [3]
        refused(lambda: client.load_model("sums", headers=user), denied, "an administration key is needed")
        refused(lambda: client.load_model("sums", headers=admin), grpc.StatusCode.INVALID_ARGUMENT, "cannot be loaded")
        answers: queue.Queue[Any] = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        assert answers.get(timeout=LONGEST_S)[1].status() == str(denied)
        client.stop_stream()
        with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
            stub(channel).ServerLive(service_pb2.ServerLiveRequest())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


# Deadlines, and clients that leave -----------------------------------------------------------------------------------


def test_a_request_past_its_deadline_leaves_its_queue(tmp_path):
    with (
        serving(tmp_path, grpc_port=0) as server,
        grpc.insecure_channel(server.grpc) as channel,
        closed(tmp_path) as open_gate,
    ):
        slow = stub(channel).ModelInfer.future(request((4, 1)))
        until(server, BUSY)
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).ModelInfer(request((9, 0)), timeout=1)  # would kill the worker
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        until(server, 'outcome="(cancelled|refused)"} 1.0')  # by the library, or before that by the router
        until(server, "gearshift_waiting_requests 0.0")
        open_gate()
        assert slow.result(LONGEST_S).id == ""


def test_a_deadline_that_cannot_be_kept_is_exceeded_at_once_and_counts_from_sending(client):
    exceeded = grpc.StatusCode.DEADLINE_EXCEEDED
    refused(lambda: client.infer("sums", inputs((9, 0)), headers={"x-slo-ms": "0.1"}), exceeded, "infeasible: ")
    sent = {"x-slo-ms": "900", "x-request-start": f"t={time.time() - 1:.6f}"}
    refused(lambda: client.infer("sums", inputs((9, 0)), headers=sent), exceeded, "infeasible: ")
    answer = client.infer("sums", inputs((1, 2)), headers=sent | {"x-slo-ms": "31000"}).get_response()
    assert 0 < answer.parameters["remaining_s"].double_param < 30


def test_two_deadlines_in_one_call_are_none(server):
    with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        stub(channel).ModelInfer(request((1, 2)), metadata=[("x-slo-ms", "30000"), ("x-slo-ms", "70000")])
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "header x-slo-ms: is '30000, 70000'" in caught.value.details()


@pytest.mark.parametrize("start", ["", "soon", "nan", "-5", "1" * 16, "t="])
def test_where_a_call_says_nothing_that_counts_of_when_it_was_sent_it_counts_from_its_arrival(client, start):
    headers = {"x-slo-ms": "30000", "x-request-start": start}
    answer = client.infer("sums", inputs((1, 2)), headers=headers).get_response()
    assert 0 < answer.parameters["remaining_s"].double_param < 30


def test_a_client_that_leaves_takes_its_waiting_requests_along(tmp_path):
    with (
        serving(tmp_path, grpc_port=0) as server,
        grpc.insecure_channel(server.grpc) as channel,
        closed(tmp_path) as open_gate,
    ):
        slow = stub(channel).ModelInfer.future(request((4, 1)))
        until(server, BUSY)
        call = stub(channel).ModelInfer.future(request((9, 0)))
        stream = stub(channel).ModelStreamInfer(iter([request((9, 0)), request((9, 0))]))
        until(server, "gearshift_waiting_requests 3.0")
        call.cancel()
        stream.cancel()
        until(server, 'outcome="cancelled"} 3.0')
        until(server, "gearshift_waiting_requests 0.0")
        open_gate()
        assert slow.result(LONGEST_S).id == ""


TOO_SOON_MS = ("x-slo-ms", "0.001")


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        pytest.param({}, {"timeout": LONGEST_S}, marks=pytest.mark.long),
        pytest.param({"timeout": 30_000_000}, {}, marks=pytest.mark.long),
        pytest.param({}, {"metadata": [("x-slo-ms", "30000")]}, marks=pytest.mark.long),
        ({"timeout": 1}, {"timeout": LONGEST_S, "metadata": [TOO_SOON_MS]}),
        pytest.param({"timeout": 30_000_000}, {"metadata": [TOO_SOON_MS]}, marks=pytest.mark.long),
        ({"priority": 1}, {}),
    ],
)
def test_the_first_deadline_that_is_given_and_priority_order_the_queue(tmp_path, parameters, options):
    with (
        serving(tmp_path, grpc_port=0) as server,
        grpc.insecure_channel(server.grpc) as channel,
        closed(tmp_path) as open_gate,
    ):
        finished: list[str] = []

        def send(name: str, message: Any, **options: Any) -> Any:
            call = stub(channel).ModelInfer.future(message, **options)
            call.add_done_callback(lambda _: finished.append(name))
            return call

        calls = [send("slow", request((4, 1)))]
        until(server, BUSY)
        calls += [send("patient", request((5, 0.05))) for _ in range(8)]
        until(server, "gearshift_waiting_requests 8.0")
        message = request((1, 1))
        for name, value in parameters.items():
            message.parameters[name].int64_param = value
        calls.append(send("urgent", message, **options))
        until(server, "gearshift_waiting_requests 9.0")
        open_gate()
        for call in calls:
            assert call.result(LONGEST_S)
        assert finished[-1] == "patient"


# Limits, faults and the end ------------------------------------------------------------------------------------------


def test_a_full_queue_exhausts_resources_and_says_when_to_come_back(tmp_path):
    with (
        serving(tmp_path, grpc_port=0, most_waiting_requests=3) as server,
        grpc.insecure_channel(server.grpc) as channel,
        closed(tmp_path) as open_gate,
    ):
        ended: queue.Queue[Any] = queue.Queue()
        calls = [stub(channel).ModelInfer.future(request((4, 1))) for _ in range(40)]
        for call in calls:
            call.add_done_callback(ended.put)
        ended.get(timeout=LONGEST_S)
        open_gate()
        codes = [call.exception(LONGEST_S) and call.code() for call in calls]
        assert set(codes) == {None, grpc.StatusCode.RESOURCE_EXHAUSTED}
        for call, code in zip(calls, codes, strict=True):
            assert code is None or ("grpc-retry-pushback-ms", "1000") in call.trailing_metadata()


def test_calls_and_metadata_over_the_bound_are_refused(tmp_path):
    bounds = {"most_grpc_calls": 1, "largest_header_bytes": 4000}
    with (
        serving(tmp_path, grpc_port=0, **bounds) as server,
        grpc.insecure_channel(server.grpc) as channel,
        closed(tmp_path) as open_gate,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).ServerLive(service_pb2.ServerLiveRequest(), metadata=[("x", "a" * 5000)])
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        slow = stub(channel).ModelInfer.future(request((4, 1)))
        until(server, BUSY)
        with pytest.raises(grpc.RpcError) as caught:
            stub(channel).ServerLive(service_pb2.ServerLiveRequest())
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        open_gate()
        assert slow.result(LONGEST_S)


def test_connections_over_the_bound_are_refused_and_one_that_closes_makes_room(tmp_path):
    def connect() -> grpc.Channel:
        return stack.enter_context(grpc.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1)]))

    def live(channel: grpc.Channel, *, wait: bool = False) -> bool:
        asked = service_pb2.ServerLiveRequest()
        return stub(channel).ServerLive(asked, wait_for_ready=wait, timeout=LONGEST_S).live

    with serving(tmp_path, grpc_port=0, most_connections=3) as server, ExitStack() as stack:
        taken = [connect() for _ in range(3)]
        assert all(live(channel) for channel in taken)
        host, port = server.grpc.split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port)), timeout=LONGEST_S) as sock:
                assert not sock.recv(1)
        one_too_many = connect()  # one alone, since it goes on trying
        with pytest.raises(grpc.RpcError) as caught:
            live(one_too_many)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert all(live(channel) for channel in taken)
        taken.pop().close()
        assert live(one_too_many, wait=True)
        assert all(live(channel) for channel in taken)


def test_connections_that_say_nothing_are_closed(tmp_path):
    with serving(tmp_path, grpc_port=0, longest_read_s=0.3, keep_alive_s=1) as server:
        host, port = server.grpc.split(":")
        with socket.create_connection((host, int(port)), timeout=LONGEST_S) as sock:
            while sock.recv(1000):
                pass
        with grpc.insecure_channel(server.grpc) as channel:
            states: queue.Queue[grpc.ChannelConnectivity] = queue.Queue()
            channel.subscribe(states.put)
            patient = {"wait_for_ready": True, "timeout": LONGEST_S}  # connecting may take longer than it may here
            assert stub(channel).ServerLive(service_pb2.ServerLiveRequest(), **patient).live
            while states.get(timeout=LONGEST_S) != grpc.ChannelConnectivity.READY:
                pass
            assert states.get(timeout=LONGEST_S) == grpc.ChannelConnectivity.IDLE
            assert stub(channel).ModelInfer(request((5, 1.5)), **patient).outputs


@pytest.mark.long
def test_a_poisonous_request_fails_and_the_server_lives_on(tmp_path):
    with serving(tmp_path, grpc_port=0) as server, triton.InferenceServerClient(server.grpc) as client:
        refused(lambda: client.infer("sums", inputs((9, 0))), grpc.StatusCode.INTERNAL, "ended")
        until_ready(client)
        (worker,) = server.workers()
        with closed(tmp_path, LOADING):
            os.kill(worker, signal.SIGKILL)
            until(server, 'gearshift_restarts_total{replica="small-0"} 3.0')
            refused(lambda: client.infer("sums", inputs((1, 2))), grpc.StatusCode.UNAVAILABLE, "no worker")
            assert not client.is_server_ready()
        until_ready(client)
        assert client.infer("sums", inputs((1, 2))).as_numpy("sum").tolist() == [3]
        assert server.end() == 0
        assert server.said[1:] == []


def until_ready(client: Any) -> None:
    end = time.monotonic() + LONGEST_S
    while not client.is_model_ready("sums"):
        assert time.monotonic() < end
        time.sleep(PAUSE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_answers_all_that_was_accepted_and_refuses_the_rest(tmp_path, number):
    with (
        serving(tmp_path, grpc_port=0) as server,
        grpc.insecure_channel(server.grpc) as channel,
        closed(tmp_path) as open_gate,
    ):
        calls = [stub(channel).ModelInfer.future(request((4, 1)))]
        until(server, BUSY)
        calls += [stub(channel).ModelInfer.future(request((5, 0.01))) for _ in range(20)]
        until(server, "gearshift_waiting_requests 20.0")
        server.process.send_signal(number)
        assert until_it_refuses(channel) == grpc.StatusCode.UNAVAILABLE
        open_gate()
        assert all(call.result(LONGEST_S) for call in calls)
        assert server.wait() == 0


def test_an_idle_stream_does_not_hold_up_the_end(tmp_path):
    with serving(tmp_path, grpc_port=0) as server, triton.InferenceServerClient(server.grpc) as client:
        answers: queue.Queue[Any] = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("sums", inputs((1, 2)))
        assert answers.get(timeout=LONGEST_S)[1] is None
        begun = time.monotonic()
        assert server.end() == 0
        assert time.monotonic() - begun < 15


@pytest.mark.long
def test_a_second_signal_ends_calls_at_once(tmp_path):
    with serving(tmp_path, grpc_port=0) as server, grpc.insecure_channel(server.grpc) as channel:
        slow = stub(channel).ModelInfer.future(request((5, 30)))
        until(server, BUSY)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert until_it_refuses(channel) == grpc.StatusCode.UNAVAILABLE
        server.process.send_signal(signal.SIGTERM)
        assert slow.exception(LONGEST_S) is not None
        assert server.wait() == 1
        assert time.monotonic() - begun < 15


def until_it_refuses(channel: grpc.Channel) -> grpc.StatusCode:
    while stub(channel).ServerReady(service_pb2.ServerReadyRequest()).ready:
        time.sleep(PAUSE_S)
    with pytest.raises(grpc.RpcError) as caught:
        stub(channel).ModelInfer(request((1, 2)))
    return caught.value.code()


@pytest.mark.long
def test_a_port_in_use_ends_the_server(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failing = Server(write_little_task(tmp_path), "local", {"grpc_port": port})
        failing.until_it_says(f"error: port {port} of 127.0.0.1 cannot be used for gRPC, or is in use; choose another")
        assert failing.wait() == 2
