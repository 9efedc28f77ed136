"""The real `tritonclient`, plain and asyncio, unchanged against a real server."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

from tests.end_to_end.test_server import Server, serving

ROWS = np.array([[1, 2], [0, 4], [3, 3]], dtype=np.float64)
FACTS = ["gearshift_model", "gearshift_stage", "gearshift_certainty", "gearshift_exit_segment"]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("task"), most_rows=50_000) as server:
        yield server


@pytest.fixture
def client(server) -> Iterator[triton.InferenceServerClient]:
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    yield client
    client.close()


def rows(array: np.ndarray = ROWS, *, binary: bool = True) -> list[triton.InferInput]:
    tensor = triton.InferInput("x", list(array.shape), "FP64")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return [tensor]


def asked(*names: str, binary: bool) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def text(array: np.ndarray) -> list[str]:
    """BYTES are `bytes` where they came in binary, and `str` where they came in JSON."""
    return [item.decode() if isinstance(item, bytes) else item for item in array.tolist()]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_rows_are_answered_with_who_answered_them(client, binary_in, binary_out):
    outputs = asked("sum", "by", *FACTS, binary=binary_out)
    answer = client.infer("sums", rows(binary=binary_in), outputs=outputs, request_id="7", priority=2, timeout=10**8)
    assert answer.as_numpy("sum").tolist() == [3, 4, 6]
    assert text(answer.as_numpy("by")) == ["small", "large", "small"]
    assert text(answer.as_numpy("gearshift_model")) == ["small", "large", "small"]
    assert answer.as_numpy("gearshift_stage").tolist() == [0, 1, 0]
    assert answer.as_numpy("gearshift_certainty").tolist() == [1, 1, 1]
    assert answer.as_numpy("gearshift_exit_segment").tolist() == [0, 0, 0]
    response = answer.get_response()
    assert response["id"] == "7"
    parameters = response["parameters"]
    assert (parameters["gear"], parameters["outcome"]) == (0, "answered")
    assert parameters["queue_s"] >= 0
    assert parameters["run_s"] > 0


def test_all_outputs_come_in_binary_when_none_is_named(client):
    answer = client.infer("sums", rows())
    assert answer.as_numpy("sum").tolist() == [3, 4, 6]
    assert answer.as_numpy("by").tolist() == [b"small", b"large", b"small"]
    assert answer.get_output("sum")["parameters"] == {"binary_data_size": 24}


@pytest.mark.long
def test_a_large_binary_tensor_crosses_whole(client):
    generator = np.random.default_rng(0)
    array = generator.integers(1, 4, (50_000, 2)).astype(np.float64)
    answer = client.infer("sums", rows(array), outputs=asked("sum", binary=True))
    np.testing.assert_array_equal(answer.as_numpy("sum"), array.sum(axis=1))


@pytest.mark.parametrize("request_algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", ["gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(client, request_algorithm, response_algorithm):
    array = np.full((5_000, 2), 2.0)
    answer = client.infer(
        "sums",
        rows(array),
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=response_algorithm,
    )
    np.testing.assert_array_equal(answer.as_numpy("sum"), array.sum(axis=1))


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("sums")
    assert client.is_model_ready("sums", "1")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("sums")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 2]}]
    assert [output["name"] for output in metadata["outputs"]] == ["sum", "by"]


def test_index_configuration_and_statistics(client):
    assert client.get_model_repository_index() == [{"name": "sums", "version": "1", "state": "READY", "reason": ""}]
    assert client.get_model_config("sums")["input"] == [{"name": "x", "data_type": "TYPE_FP64", "dims": [2]}]
    before, after = [], []
    for counts in (before, after):
        (statistics,) = client.get_inference_statistics("sums", "1")["model_stats"]
        counts += [statistics["inference_count"], statistics["inference_stats"]["success"]["count"]]
        client.infer("sums", rows())
    assert after == [before[0] + 3, before[1] + 1]


@pytest.mark.parametrize("verb", ["load_model", "unload_model"])
def test_a_single_model_is_neither_loaded_nor_unloaded(client, verb):
    with pytest.raises(triton.InferenceServerException, match="on its own") as raised:
        getattr(client, verb)("sums")
    assert raised.value.status() == "400"


@pytest.mark.parametrize(
    ("model", "array", "status", "reason"),
    [
        ("other", ROWS, "404", "there is no model 'other'"),
        ("sums", np.ones((1, 3)), "400", "shape is"),
        ("sums", np.full((1, 2), np.nan), "400", "not finite"),
        ("sums", np.full((1, 2), 666.0), "500", "id "),
    ],
)
def test_errors_come_with_status_and_reason(client, model, array, status, reason):
    with pytest.raises(triton.InferenceServerException) as raised:
        client.infer(model, rows(array))
    assert raised.value.status() == status
    assert reason in raised.value.message()


def test_many_at_once_through_asyncio(server):
    async def main() -> list[Any]:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            assert await client.is_server_ready()
            requests = (client.infer("sums", rows(np.full((1, 2), float(n)))) for n in range(20, 70))
            return await asyncio.gather(*requests)

    answers = asyncio.run(main())
    assert [answer.as_numpy("sum").tolist() for answer in answers] == [[2 * n] for n in range(20, 70)]


def test_asyncio_asks_for_all_else_too(server):
    async def main() -> None:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            assert await client.is_server_live()
            assert await client.is_model_ready("sums")
            assert (await client.get_server_metadata())["name"] == "gearshift"
            assert (await client.get_model_metadata("sums", "1"))["versions"] == ["1"]
            assert (await client.get_model_config("sums"))["name"] == "sums"
            assert [entry["name"] for entry in await client.get_model_repository_index()] == ["sums"]
            assert (await client.get_inference_statistics())["model_stats"][0]["name"] == "sums"
            outputs = asked("sum", *FACTS, binary=True)
            answer = await client.infer("sums", rows(), outputs=outputs, request_compression_algorithm="gzip")
            assert answer.as_numpy("sum").tolist() == [3, 4, 6]
            assert text(answer.as_numpy("gearshift_model")) == ["small", "large", "small"]
            with pytest.raises(triton.InferenceServerException, match="on its own"):
                await client.load_model("sums")

    asyncio.run(main())


@pytest.mark.long
def test_keys_are_sent_as_headers(tmp_path):
    (tmp_path / "keys").write_text("a-longer-user-key\n")
    with serving(tmp_path, backend="emulated", api_keys=str(tmp_path / "keys")) as server:
        client = triton.InferenceServerClient(server.url.removeprefix("http://"))
        assert client.is_server_ready()
        with pytest.raises(triton.InferenceServerException, match="an API key is needed") as raised:
            client.get_server_metadata()
        assert raised.value.status() == "401"
        assert client.get_server_metadata(headers={"Authorization": "Bearer a-longer-user-key"})["name"] == "gearshift"
        client.close()
