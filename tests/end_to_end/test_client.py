"""The package's own clients against a real server in a process of its own."""

import asyncio
import time
from collections.abc import Iterator

import numpy as np
import pytest

from gearshift import AsyncClient, Client
from gearshift.errors import DeadlinePassed, InvalidInput, NoAccess, NoAnswer, QueueFull, RequestFailed, UnknownModel
from tests.certificates import write_certificate
from tests.end_to_end.test_server import LONGEST_S, Server, body, post, serving, speak, until_metric
from tests.examples.test_documented_commands import free_port
from tests.little_task import closed, write_little_task

BUSY = r'gearshift_batches_total\{model="small",reason="full"\} 2.0'


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("task")) as server:
        yield server


def test_rows_are_answered_each_by_its_stage(server):
    with Client(server.url, "sums") as client:
        answer = client.infer({"x": np.array([[1.0, 2], [0, 4]])}, outputs=["sum", "by", "gearshift_stage"])
        assert {name: array.tolist() for name, array in answer.outputs.items()} == {
            "sum": [3, 4],
            "by": ["small", "large"],
            "gearshift_stage": [0, 1],
        }
        assert answer.parameters["outcome"] == "answered"
        assert client.infer({"x": [[1.0, 2.0]]}).outputs["sum"].tolist() == [3]


def test_many_are_asked_side_by_side(server):
    async def main():
        async with AsyncClient(server.url, "sums", connections=4) as client:
            answers = await asyncio.gather(*(client.infer({"x": [[1.0, n]]}) for n in range(100)))
        return [answer.outputs["sum"].tolist() for answer in answers]

    assert asyncio.run(main()) == [[n + 1] for n in range(100)]


def test_errors_of_the_server_are_those_of_the_package(server):
    with Client(server.url, "sums") as client:
        with pytest.raises(InvalidInput, match="input 'x': datatype is 'INT64', needs 'FP64'"):
            client.infer({"x": [[1, 2]]})
        with pytest.raises(InvalidInput, match="not finite"):
            client.infer({"x": [[float("nan"), 2]]})
        with pytest.raises(RequestFailed, match="id"):
            client.infer({"x": [[666.0, 2]]})
        assert client.infer({"x": [[1.0, 2.0]]}).outputs["sum"].tolist() == [3]
    with Client(server.url, "other") as client, pytest.raises(UnknownModel, match="no model 'other'"):
        client.infer({"x": [[1.0, 2]]})


def test_a_key_and_a_certificate_of_ones_own_are_used(tmp_path):
    (tmp_path / "keys").write_text("a-secret-of-the-client\n")
    certificate = write_certificate(tmp_path)

    async def main(url, **options):
        async with AsyncClient(url, "sums", **options) as client:
            return (await client.infer({"x": [[1.0, 2.0]]})).outputs["sum"].tolist()

    with serving(tmp_path, api_keys=str(tmp_path / "keys"), **certificate) as server:
        trusting = {"ca_file": certificate["tls_certificate"], "most_attempts": 1}
        with Client(server.url, "sums", api_key="a-secret-of-the-client", **trusting) as client:
            for _ in range(3):
                assert client.infer({"x": [[1.0, 2.0]]}).outputs["sum"].tolist() == [3]
            kept, another = client._http._kept(), client._http._kept()
            assert another is None
            kept.close()
        assert asyncio.run(main(server.url, api_key="a-secret-of-the-client", **trusting)) == [3]
        with Client(server.url, "sums", **trusting) as client, pytest.raises(NoAccess, match="key is needed"):
            client.infer({"x": [[1.0, 2.0]]})
        with Client(server.url, "sums", most_attempts=1) as client, pytest.raises(NoAnswer, match="certificate"):
            client.infer({"x": [[1.0, 2.0]]})
        with pytest.raises(NoAnswer, match="certificate"):
            asyncio.run(main(server.url, most_attempts=1))


def test_a_server_that_starts_is_waited_for(tmp_path):
    port = int(free_port())
    starting = Server(write_little_task(tmp_path), "local", {"port": port})
    try:
        with Client(f"http://127.0.0.1:{port}", "sums", most_attempts=1000) as client:
            assert client.infer({"x": [[1.0, 2.0]]}).outputs["sum"].tolist() == [3]
    finally:
        assert starting.end() == 0


def test_a_full_queue_is_tried_again_until_there_is_room(tmp_path):
    async def main(url, open_gate):
        async with AsyncClient(url, "sums", most_attempts=1000) as client:
            answers = await asyncio.gather(*(client.infer({"x": [[5.0, 0.3]]}) for _ in range(10)))
            assert len(answers) == 10
        async with AsyncClient(url, "sums", most_attempts=1) as client:
            calls = [asyncio.create_task(client.infer({"x": [[4.0, 0.0]]})) for _ in range(10)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            open_gate()
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(result) for result in results if isinstance(result, Exception)} == {QueueFull}

    with serving(tmp_path, most_waiting_requests=3) as server, closed(tmp_path) as open_gate:
        asyncio.run(main(server.url, open_gate))


def test_more_rows_than_may_wait_is_answered_whole_and_in_order(tmp_path):
    rows = [[1.0, float(number)] for number in range(19)]
    with serving(tmp_path, most_waiting_requests=18) as server, Client(server.url, "sums", most_attempts=1) as client:
        for given in (np.array(rows), rows * 10):
            answer = client.infer({"x": given})
            assert answer.outputs["sum"].tolist() == [number % 19 + 1 for number in range(len(given))]
        assert answer.parameters["outcome"] == "answered"


def test_a_deadline_that_passes_and_a_call_that_is_cancelled_take_their_requests_along(tmp_path):
    async def main(session, server, open_gate):
        async with AsyncClient(server.url, "sums") as client:
            await client.infer({"x": [[1.0, 2.0]]})
            slow = asyncio.create_task(post(session, server, body((4, 1))))
            await until_metric(session, server, BUSY)
            begun = time.monotonic()
            cancelled = asyncio.create_task(client.infer({"x": [[9.0, 0.0]]}))  # would kill the worker
            await until_metric(session, server, "gearshift_waiting_requests 1.0")
            cancelled.cancel()
            with pytest.raises(DeadlinePassed):
                await client.infer({"x": [[9.0, 0.0]]}, deadline_s=0.2)
            assert time.monotonic() - begun < LONGEST_S / 2
            await until_metric(session, server, 'outcome="cancelled"} [12].0')  # the other one perhaps refused before
            await until_metric(session, server, "gearshift_waiting_requests 0.0")
            open_gate()
            assert (await slow)[0] == 200

    with serving(tmp_path) as server, closed(tmp_path) as open_gate:
        speak(lambda session: main(session, server, open_gate))
