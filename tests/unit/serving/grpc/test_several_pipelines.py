"""One server of two pipelines, over gRPC."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from gearshift.serving.door.bounds import limits_of
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.grpc.server import GrpcServer
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.grpc_status import SERVICE
from tests.unit.serving.several import SeveralServer, serve_several

BOTH = ("sums", "numbers")


def request(name: str, *numbers: int) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="sample", datatype="INT64", shape=[len(numbers)])
    raw = np.array(numbers, dtype=np.int64).tobytes()
    return pb.ModelInferRequest(model_name=name, inputs=[tensor], raw_input_contents=[raw])


def over_grpc(folder: Path, use: Any) -> Any:
    """The result of `use`, which is given what calls a method with a message and a kind of answer."""

    async def main(server: SeveralServer) -> Any:
        settings = ServerSettings(grpc_port=0)
        served = GrpcServer(
            server.control,
            server.task.signatures,
            settings=settings,
            limits=limits_of(settings),
            metrics=server.metrics,
            keys=None,
        )
        port = await served.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

                async def call(method: str, asked: Any, answer: Any) -> Any:
                    try:
                        return await channel.unary_unary(
                            f"/{SERVICE}/{method}",
                            request_serializer=type(asked).SerializeToString,
                            response_deserializer=answer.FromString,
                        )(asked)
                    except grpc.aio.AioRpcError as error:
                        return error.code().name, error.details()

                return await use(server, call)
        finally:
            await served.stop(0)

    return serve_several(folder, main)


def test_requests_go_to_the_pipeline_that_they_name(tmp_path: Path) -> None:
    async def use(_: SeveralServer, call: Any) -> list[Any]:
        asked = [request(name, 2, 3) for name in BOTH * 2]
        return await asyncio.gather(*(call("ModelInfer", one, pb.ModelInferResponse) for one in asked))

    answers = over_grpc(tmp_path, use)
    assert [answer.model_name for answer in answers] == list(BOTH * 2)
    texts = [b"".join(answer.raw_output_contents) for answer in answers]
    assert all(
        (b"small-2" in text) == (answer.model_name == "sums") for text, answer in zip(texts, answers, strict=True)
    )


def test_a_name_that_is_not_served_is_refused_and_holds_nothing(tmp_path: Path) -> None:
    async def use(server: SeveralServer, call: Any) -> Any:
        said = await call("ModelInfer", request("other", 1), pb.ModelInferResponse)
        assert server.service.held.all_held_bytes == 0
        return said

    code, text = over_grpc(tmp_path, use)
    assert (code, "this server has ['numbers', 'sums']" in text) == ("NOT_FOUND", True)


def test_metadata_and_readiness_are_of_each(tmp_path: Path) -> None:
    async def use(server: SeveralServer, call: Any) -> None:
        await call("ModelInfer", request("numbers", 1, 2), pb.ModelInferResponse)
        every = await call("ModelStatistics", pb.ModelStatisticsRequest(), pb.ModelStatisticsResponse)
        assert [(one.name, one.inference_count) for one in every.model_stats] == [("sums", 0), ("numbers", 2)]
        index = await call("RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse)
        assert [one.name for one in index.models] == list(BOTH)
        for name in BOTH:
            told = await call("ModelMetadata", pb.ModelMetadataRequest(name=name), pb.ModelMetadataResponse)
            assert told.name == name
            config = await call("ModelConfig", pb.ModelConfigRequest(name=name), pb.ModelConfigResponse)
            assert config.config.max_batch_size == server.service.pipelines[name].most_waiting
            ready = await call("ModelReady", pb.ModelReadyRequest(name=name), pb.ModelReadyResponse)
            assert ready.ready
        (net,) = [number for number in range(3) if server.task.tables.model_of(number) == "net"]
        server.service.driver.replicas_lost([net], "was killed")
        states = [await call("ModelReady", pb.ModelReadyRequest(name=name), pb.ModelReadyResponse) for name in BOTH]
        assert [state.ready for state in states] == [True, False]

    over_grpc(tmp_path, use)
