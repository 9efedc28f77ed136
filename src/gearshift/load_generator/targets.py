"""Targets of a load generator: the protocol `Target`, and its implementation for HTTP."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from gearshift.client.http_client import HttpClient
from gearshift.client.v2_client import (
    ClientProtocol,
    HttpRequest,
    answer_in,
    error_in,
    offers_binary,
    require_seconds,
    server_name,
)
from gearshift.errors import InvalidInput, NoAnswer, require
from gearshift.load_generator.counters import Counters, counters_in
from gearshift.load_generator.stamp import headers_of, stamped
from gearshift.model import Arrays
from gearshift.support.extras import load_extra
from gearshift.v2.binary import INFERENCE_HEADER
from gearshift.v2.tensors import SERVER_NAME

MOST_CONNECTIONS = 8192
DEFAULT_CONNECTIONS = 2048
LONGEST_S = 30.0
REACH_WITHIN_S = 5.0
MODEL, STAGE = "gearshift_model", "gearshift_stage"
"""Outputs of a Gearshift server: which model answered, and after how many others."""
GIVE_A_KEY = "name a file that holds one with --key-file"


class Sending(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests are sent to any target.

    At most `connections` requests are open at a time; each is given up `longest_s` after it was
    sent.  `facts` asks a Gearshift server for the model and the stage that answered.
    """

    connections: int = DEFAULT_CONNECTIONS
    longest_s: float = LONGEST_S
    binary: bool = False
    deadline_s: float | None = None
    priority: int = 0
    facts: bool = False
    api_key: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        connections, priority = self.connections, self.priority
        require(
            1 <= connections <= MOST_CONNECTIONS,
            f"connections is {connections}",
            remedy=f"give 1 to {MOST_CONNECTIONS}",
        )
        require_seconds("longest_s", self.longest_s)
        require_seconds("deadline_s", self.deadline_s)
        require(0 <= priority <= 1000, f"priority is {priority}", remedy="give 1 (most urgent) to 1000, or 0")

    def outputs(self, output: str, *, ours: bool) -> list[str]:
        return [output, MODEL, STAGE] if self.facts and ours else [output]


class Reply(NamedTuple):
    """The result of an exchange: an HTTP status or its equal, and the output or an error text."""

    status: int
    text: str = ""
    answered: object = None
    gear: int | None = None
    degraded: bool = False
    model: str | None = None
    stage: int | None = None


class Target(Protocol):
    """Where requests go: call `open` first, `close` last, and encode before sending load."""

    where: str
    encoded_deadline_s: float | None
    """The deadline that `encode` writes into each request; None if none is encoded."""

    async def open(self) -> None:
        """Connect; raises `InvalidInput` if nothing answers, or not to this client."""
        ...

    def encode(self, inputs: Arrays) -> Any:
        """Return a request for one sample; it can be sent any number of times."""
        ...

    async def exchange(
        self, request: Any, within_s: float, sent_unix_s: float | None = None, deadline_s: float | None = None
    ) -> Reply:
        """Send a request and return the reply.

        Raises `NoAnswer` if none arrives in `within_s`, `InvalidInput` if it makes no sense.
        `sent_unix_s` tells the server when the request was sent, `deadline_s` how long after that
        it is due, if no deadline was encoded.
        """
        ...

    async def counters(self) -> Counters:
        """Return the server's counters; empty if it has none."""
        ...

    async def close(self) -> None:
        """Close all connections; may be called without `open`."""
        ...


def target_at(url: str, operator: str, output: str, sending: Sending) -> Target:
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("grpc", "grpcs"):
        load_extra("grpc", extra="grpc", where=url)
        from gearshift.load_generator.grpc_target import GrpcTarget

        return GrpcTarget(url, operator, output, sending)
    return HttpTarget(url.rstrip("/"), operator, output, sending)


def answered_with(
    outputs: Mapping[str, Sequence[Any]], output: str, *, gear: int | None, outcome: str, where: str
) -> Reply:
    """Return the reply of an answer; raises `InvalidInput` unless `output` has one value."""
    values = outputs.get(output, ())
    if len(values) != 1:
        raise InvalidInput(
            f"the answer has no output {output!r} of one value",
            where=where,
            remedy=f"replay against an operator that answers one {output!r} per row",
        )
    model, stage = outputs.get(MODEL), outputs.get(STAGE)
    return Reply(
        200, "", values[0], gear, outcome == "degraded", model[0] if model else None, stage[0] if stage else None
    )


def unreachable(where: str, why: object) -> InvalidInput:
    return InvalidInput(
        f"cannot be reached ({why})",
        where=where,
        remedy="start it with `gearshift serve`, or give the URL as http://HOST:PORT",
    )


# HTTP --------------------------------------------------------------------------------------------


class _Output(msgspec.Struct, frozen=True):
    name: str
    data: list[Any] | None = None


class _Parameters(msgspec.Struct, frozen=True):
    gear: int | None = None
    outcome: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    outputs: list[_Output]
    parameters: _Parameters | None = None


_answers = msgspec.json.Decoder(_Answer)


class HttpTarget:
    """A V2 server over HTTP, in JSON or with binary tensors."""

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
        if headers := headers_of(sent_unix_s, deadline_s):
            request = stamped(request, headers)
        response = await self._client.response_to(request, within_s=within_s)
        if response.status != 200:
            return Reply(response.status, response.body[:300].decode("utf-8", "replace").strip())
        if INFERENCE_HEADER in response.headers:
            whole = answer_in(response)
            values = {name: array.reshape(-1).tolist() for name, array in whole.outputs.items()}
            gear, outcome = whole.parameters.get("gear"), whole.parameters.get("outcome")
        else:
            try:
                answer = _answers.decode(response.body)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise InvalidInput(
                    f"the answer is no V2 JSON ({error})", where=self.where, remedy="replay against a V2 server"
                ) from None
            values = {output.name: output.data or [] for output in answer.outputs}
            parameters = answer.parameters or _Parameters()
            gear, outcome = parameters.gear, parameters.outcome
        return answered_with(values, self._output, gear=gear, outcome=outcome or "answered", where=self.where)

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
