"""A V2 server over HTTP as the target of a load generator, and the choice of a target by its URL."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from gearshift.client.http_client import HttpClient
from gearshift.client.v2_client import (
    ClientProtocol,
    HttpRequest,
    answer_in,
    error_in,
    offers_binary,
    server_name,
)
from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.load_generator.targets import (
    GIVE_A_KEY,
    REACH_WITHIN_S,
    Counters,
    Reply,
    Sending,
    Target,
    answered_with,
    counters_in,
    unreachable,
)
from gearshift.model import Arrays
from gearshift.serving.door.deadline_headers import timing_headers
from gearshift.support.extras import load_extra
from gearshift.v2.binary import INFERENCE_HEADER
from gearshift.v2.tensors import SERVER_NAME


class _Output(msgspec.Struct, frozen=True):
    name: str
    data: list[Any] | None = None


class _Parameters(msgspec.Struct, frozen=True):
    gear: int | None = None
    outcome: str | None = None
    reason: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    outputs: list[_Output]
    parameters: _Parameters | None = None


_answers = msgspec.json.Decoder(_Answer)


class HttpTarget:
    def __init__(self, base: str, operator: str, output: str, sending: Sending) -> None:
        self._protocol = ClientProtocol(base, operator, sending.api_key, sending.ca_file, sending.longest_s, 1)
        self._client = HttpClient(base, tls=self._protocol.tls)
        self._base, self._output, self._sending = base, output, sending
        self.encoded_deadline_s = sending.deadline_s
        self._ours = False
        self.where = f"{base}/v2/models/{operator}/infer"

    async def open(self) -> None:
        try:
            response = await self._client.response_to(self._bytes(self._protocol.get("/v2")), within_s=REACH_WITHIN_S)
        except NoAnswer as error:
            raise unreachable(self._base, error) from None
        if response.status == 401:
            raise InvalidInput(str(error_in(response)), where=self._base, remedy=GIVE_A_KEY)
        self._ours = server_name(response) == SERVER_NAME
        binary = self._sending.binary
        require(not binary or offers_binary(response), "takes no binary tensors", where=self._base)

    def encode(self, inputs: Arrays) -> bytes:
        outputs = self._sending.outputs(self._output, ours=self._ours)
        sending = self._sending
        return self._bytes(
            self._protocol.infer_request(inputs, outputs, sending.priority, lambda: sending.deadline_s, sending.binary)
        )

    async def exchange(
        self, request: bytes, within_s: float, sent_unix_s: float | None = None, deadline_s: float | None = None
    ) -> Reply:
        for name, value in timing_headers(sent_unix_s, deadline_s):
            request = request.replace(b"\r\n", f"\r\n{name}: {value}\r\n".encode(), 1)
        response = await self._client.response_to(request, within_s=within_s)
        if response.status != 200:
            return Reply(response.status, response.body[:300].decode("utf-8", "replace").strip())
        if INFERENCE_HEADER in response.headers:
            whole = answer_in(response)
            values = {name: array.reshape(-1).tolist() for name, array in whole.outputs.items()}
            gear, outcome, reason = (whole.parameters.get(name) for name in ("gear", "outcome", "reason"))
        else:
            try:
                answer = _answers.decode(response.body)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise InvalidInput(
                    f"the answer is no V2 JSON ({error})", where=self.where, remedy="replay against a V2 server"
                ) from None
            values = {output.name: output.data or [] for output in answer.outputs}
            parameters = answer.parameters or _Parameters()
            gear, outcome, reason = parameters.gear, parameters.outcome, parameters.reason
        return answered_with(
            values, self._output, gear=gear, outcome=outcome or "answered", where=self.where, reason=reason
        )

    async def counters(self) -> Counters:
        try:
            request = self._bytes(self._protocol.get("/metrics"))
            response = await self._client.response_to(request, within_s=REACH_WITHIN_S)
            return counters_in(response.body.decode()) if response.status == 200 else Counters()
        except (NoAnswer, ValueError):
            return Counters()

    async def close(self) -> None:
        self._client.close()

    def _bytes(self, request: HttpRequest) -> bytes:
        return self._client.request_bytes(request.method, request.path, request.body, request.headers)


def target_at(url: str, operator: str, output: str, sending: Sending) -> Target:
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("grpc", "grpcs"):
        load_extra("grpc", extra="grpc", where=url)
        from gearshift.load_generator.grpc_target import GrpcTarget

        return GrpcTarget(url, operator, output, sending)
    return HttpTarget(url.rstrip("/"), operator, output, sending)
