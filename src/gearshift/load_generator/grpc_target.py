"""A V2 server over gRPC as the target of a load generator."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError

from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.load_generator.targets import (
    GIVE_A_KEY,
    REACH_WITHIN_S,
    Counters,
    Reply,
    Sending,
    answered_with,
    unreachable,
)
from gearshift.model import Arrays
from gearshift.serving.door.deadline_headers import timing_headers
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.binary import read_tensor, write_tensor
from gearshift.v2.grpc_status import RETRY_PUSHBACK_MS, SERVICE, STATUS
from gearshift.v2.grpc_tensors import from_contents
from gearshift.v2.packing import datatype_named
from gearshift.v2.tensors import SERVER_NAME

OF_THE_SERVER = RETRY_PUSHBACK_MS
"""Trailing metadata that a Gearshift server's UNAVAILABLE has, and a failed connection does not.
"""
HTTP_STATUS = {code: status for status, code in STATUS.items()} | {grpc.StatusCode.UNIMPLEMENTED: 404}
"""The equivalent HTTP status; 500 for all others."""


class GrpcTarget:
    """Unary calls of `ModelInfer` on one channel with raw tensors; `grpcs://` uses TLS.

    Calls have no deadline of their own: it is sent as the parameter `timeout`, as over HTTP.
    """

    def __init__(self, url: str, operator: str, output: str, sending: Sending) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if not parts.hostname or port is None:
            raise InvalidInput("this is no URL of a server", where=url, remedy="give it as grpc://HOST:PORT")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self._address, self._secure = f"{host}:{port}", parts.scheme == "grpcs"
        self._operator, self._output, self._sending = operator, output, sending
        self.encoded_deadline_s = sending.deadline_s
        self._metadata = () if sending.api_key is None else (("authorization", f"Bearer {sending.api_key}"),)
        self._channel: Any = None
        self._infer: Any = None
        self._ours = False
        self.where = f"{url} {operator}"

    async def open(self) -> None:
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),  # as over HTTP: measure the server
        ]
        if self._secure:
            self._channel = grpc.aio.secure_channel(self._address, self._credentials(), options)
        else:
            self._channel = grpc.aio.insecure_channel(self._address, options)
        self._infer = self._method("ModelInfer", pb.ModelInferResponse)
        ask = self._method("ServerMetadata", pb.ServerMetadataResponse)
        try:
            answer = await ask(b"", timeout=REACH_WITHIN_S, metadata=self._metadata)
            self._ours = answer.name == SERVER_NAME
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise InvalidInput(str(error.details()), where=self._address, remedy=GIVE_A_KEY) from None
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise unreachable(self._address, error.details()) from None

    def _credentials(self) -> Any:
        if self._sending.ca_file is None:
            return grpc.ssl_channel_credentials()
        try:
            return grpc.ssl_channel_credentials(Path(self._sending.ca_file).read_bytes())
        except OSError as error:
            raise InvalidInput(
                f"no certificates can be read ({error})", where=self._sending.ca_file, remedy="name a PEM file"
            ) from None

    def _method(self, name: str, answered: Any) -> Any:
        return self._channel.unary_unary(f"/{SERVICE}/{name}", None, answered.FromString)

    def encode(self, inputs: Arrays) -> bytes:
        tensor, asked = pb.ModelInferRequest.InferInputTensor, pb.ModelInferRequest.InferRequestedOutputTensor
        sending = self._sending
        message = pb.ModelInferRequest(
            model_name=self._operator,
            inputs=[tensor(name=n, datatype=datatype_named(a.dtype), shape=a.shape) for n, a in inputs.items()],
            outputs=[asked(name=name) for name in sending.outputs(self._output, ours=self._ours)],
            raw_input_contents=[bytes(write_tensor(array)) for array in inputs.values()],
        )
        if sending.priority:
            message.parameters["priority"].int64_param = sending.priority
        if sending.deadline_s is not None:
            message.parameters["timeout"].int64_param = max(1, round(sending.deadline_s * 1e6))
        data: bytes = message.SerializeToString()
        return data

    async def exchange(
        self, request: bytes, within_s: float, sent_unix_s: float | None = None, deadline_s: float | None = None
    ) -> Reply:
        timing = timing_headers(sent_unix_s, deadline_s)
        try:
            async with asyncio.timeout(within_s):
                answer = await self._infer(request, metadata=(*self._metadata, *timing))
        except TimeoutError:
            raise NoAnswer("no answer in time") from None
        except DecodeError as error:
            raise InvalidInput(f"the answer is no ModelInferResponse ({error})", where=self.where) from None
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and OF_THE_SERVER not in (error.trailing_metadata() or ()):
                raise NoAnswer(str(error.details())) from None
            return Reply(HTTP_STATUS.get(error.code(), 500), str(error.details()))
        parameters = answer.parameters
        return answered_with(
            self.values_of(answer),
            self._output,
            gear=parameters["gear"].int64_param if "gear" in parameters else None,
            outcome=parameters["outcome"].string_param if "outcome" in parameters else "answered",
            where=self.where,
            reason=parameters["reason"].string_param if "reason" in parameters else None,
        )

    def values_of(self, answer: pb.ModelInferResponse) -> dict[str, list[Any]]:
        """Return every output's values, flat; raises `InvalidInput` if they do not fit."""
        raw = answer.raw_output_contents
        require(
            len(raw) in (0, len(answer.outputs)), f"{len(raw)} raw contents are no outputs' values", where=self.where
        )
        values = {}
        for number, tensor in enumerate(answer.outputs):
            shape, datatype, where = list(tensor.shape), tensor.datatype, f"output {tensor.name!r}"
            if raw:
                array = read_tensor(memoryview(raw[number]), shape, datatype, where)
            else:
                array = from_contents(tensor.contents, shape, datatype, where)
            values[tensor.name] = array.reshape(-1).tolist()
        return values

    async def counters(self) -> Counters:
        """Return none: gRPC does not report them."""
        return Counters()

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
