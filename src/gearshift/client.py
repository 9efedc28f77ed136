"""Clients of a server that speaks the Open Inference Protocol V2 over HTTP, such as `gearshift serve`."""

import asyncio
import http.client
import select
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gearshift.errors import (
    DeadlinePassed,
    GearshiftError,
    InvalidInput,
    NoAccess,
    NoAnswer,
    NotReady,
    QueueFull,
    RequestFailed,
    TooLarge,
    UnknownModel,
    require,
)
from gearshift.model import DATATYPES
from gearshift.runtime.transport import datatype_named
from gearshift.serving.http_client import HttpClient, Response, address_of
from gearshift.serving.sources import json_tensor
from gearshift.serving.v2_binary import BinaryTensors, read_tensor, write_tensor

BINARY_EXTENSION = "binary_tensor_data"
INFERENCE_HEADER = "inference-header-content-length"
ERRORS: dict[int, type[GearshiftError]] = {
    error.http_status: error
    for error in (InvalidInput, NoAccess, UnknownModel, TooLarge, QueueFull, NotReady, DeadlinePassed)
}
"""What a status other than 200 raises; all others raise `RequestFailed`."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
"""Between attempts where the server does not say how long to wait: twice as long each time."""


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """Outputs by name, each of n rows, and how they were made: `gear`, `queue_s`, `run_s`, `outcome`."""

    outputs: dict[str, NDArray[Any]]
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Request:
    """One HTTP request, apart from where it is sent."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class _Protocol:
    """What both clients say and understand; sends nothing."""

    def __init__(
        self,
        url: str,
        operator: str,
        api_key: str | None,
        ca_file: Path | str | None,
        longest_s: float,
        most_attempts: int,
    ) -> None:
        require(longest_s > 0, f"longest_s is {longest_s}, needs more than 0")
        require(most_attempts >= 1, f"most_attempts is {most_attempts}, needs at least 1")
        require(
            api_key is None or (api_key.isascii() and api_key.isprintable()), "api_key holds what no header can carry"
        )
        self.url = url
        self.address = address_of(url)
        self.tls = _tls(ca_file) if self.address.secure else None
        self.longest_s, self.most_attempts = longest_s, most_attempts
        self._path = f"/v2/models/{quote(operator, safe='')}/infer"
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    def unreachable(self, reason: object) -> NoAnswer:
        """That no connection could be made."""
        return NoAnswer(f"{self.url} cannot be reached ({reason}); is the server running?", sent=False)

    def metadata_request(self) -> _Request:
        """A request for what the server is."""
        return _Request("GET", "/v2", b"", self._headers)

    def infer_request(
        self,
        inputs: Mapping[str, ArrayLike],
        outputs: Sequence[str] | None,
        priority: int,
        call: "_Call",
        binary: bool,
    ) -> _Request:
        """A request for an inference; raises `InvalidInput` for inputs that have no form in the protocol."""
        buffers: list[bytes | memoryview] = []
        content: dict[str, Any] = {
            "inputs": [_tensor(name, values, buffers if binary else None) for name, values in inputs.items()],
            "parameters": {"priority": priority, "binary_data_output": binary},
        }
        if call.has_deadline:
            content["parameters"]["timeout"] = max(1, round(call.left_s() * 1e6))
        if outputs is not None:
            content["outputs"] = [{"name": name} for name in outputs]
        head = msgspec.json.encode(content)
        headers = self._headers
        if binary:
            headers = {**headers, "Content-Type": "application/octet-stream", INFERENCE_HEADER: str(len(head))}
        return _Request("POST", self._path, b"".join([head, *buffers]), headers)


def _tls(ca_file: Path | str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError too
        raise InvalidInput(
            f"no certificates can be read ({error})", where=str(ca_file), remedy="name a PEM file"
        ) from None


def _tensor(name: str, values: ArrayLike, buffers: list[bytes | memoryview] | None) -> dict[str, Any]:
    """An input in the words of the protocol; its data is put at the end of `buffers`, if there are any."""
    try:
        array = np.asarray(values)
        if buffers is None:
            return json_tensor(name, array)
        datatype = datatype_named(array.dtype)
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(str(error), where=f"input {name!r}", remedy="give an array of numbers or text") from None
    buffers.append(write_tensor(array))
    size = {"binary_data_size": len(buffers[-1])}
    return {"name": name, "shape": array.shape, "datatype": datatype, "parameters": size}


# Answers -------------------------------------------------------------------------------------------------------------


class _Output(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any] = []
    parameters: dict[str, Any] = {}


class _Answer(msgspec.Struct):
    outputs: list[_Output]
    parameters: dict[str, Any] = {}


class _Metadata(msgspec.Struct):
    extensions: list[str] = []


class _Error(msgspec.Struct):
    error: str


def _answer_in(response: Response) -> ClientAnswer:
    """Raises `RequestFailed` where it is none of the protocol's."""
    try:
        head_bytes = int(response.headers.get(INFERENCE_HEADER, len(response.body)))
        answer = msgspec.json.decode(response.body[:head_bytes], type=_Answer)
        binary = BinaryTensors(memoryview(response.body)[head_bytes:])
        return ClientAnswer({output.name: _array(output, binary) for output in answer.outputs}, answer.parameters)
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise RequestFailed(f"the answer is none of the V2 protocol ({error})") from None


def _array(output: _Output, binary: BinaryTensors) -> NDArray[Any]:
    where = f"output {output.name!r}"
    size_bytes = output.parameters.get("binary_data_size")
    if size_bytes is not None:
        return read_tensor(binary.take(size_bytes, where), output.shape, output.datatype, where).copy()
    return np.array(output.data, dtype=DATATYPES[output.datatype]).reshape(output.shape)


def _offers_binary(response: Response) -> bool:
    try:
        return BINARY_EXTENSION in msgspec.json.decode(response.body, type=_Metadata).extensions
    except msgspec.MsgspecError:
        return False


def _error_in(response: Response) -> GearshiftError:
    try:
        text = msgspec.json.decode(response.body, type=_Error).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = f"the server answered with status {response.status}"
    return ERRORS.get(response.status, RequestFailed)(text)


# Attempts ------------------------------------------------------------------------------------------------------------


class _Call:
    """The time and the attempts that one call has."""

    def __init__(self, protocol: _Protocol, deadline_s: float | None) -> None:
        require(deadline_s is None or deadline_s > 0, f"deadline_s is {deadline_s}, needs more than 0")
        self._protocol = protocol
        self.has_deadline = deadline_s is not None
        self._longest_s = min(protocol.longest_s, deadline_s or protocol.longest_s)
        self._end_s = time.monotonic() + self._longest_s
        self._attempts = 0

    def left_s(self) -> float:
        """What is left of the time; raises when that is nothing."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise self.late()
        return left_s

    def late(self) -> GearshiftError:
        """That time is up."""
        text = f"{self._protocol.url} did not answer within {self._longest_s:g} s"
        return DeadlinePassed(text) if self.has_deadline else NoAnswer(text)

    def pause_s(self, error: GearshiftError, retry_after: str | None = None) -> float:
        """How long to wait before the next attempt; raises `error` where there is to be none."""
        self._attempts += 1
        again = isinstance(error, QueueFull | NotReady) or (isinstance(error, NoAnswer) and not error.sent)
        if retry_after is not None and retry_after.isdigit():
            pause_s = float(retry_after)
        else:
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._attempts - 1))
        if not again or self._attempts >= self._protocol.most_attempts or time.monotonic() + pause_s >= self._end_s:
            raise error
        return pause_s


class Client:
    """Asks one operator of a server; may be used by several threads.  Use it in a `with` block, or `close` it.

    `ca_file` holds the certificates to trust, where those of the system are not enough.  A call takes at most
    `longest_s`, and is tried up to `most_attempts` times: after 429 and 503 when `Retry-After` is over, and where the
    server could not be reached.  What may have reached a model is not sent again.
    """

    def __init__(
        self,
        url: str,
        operator: str,
        *,
        api_key: str | None = None,
        ca_file: Path | str | None = None,
        longest_s: float = 60.0,
        most_attempts: int = 8,
    ) -> None:
        self._protocol = _Protocol(url, operator, api_key, ca_file, longest_s, most_attempts)
        self._free: list[http.client.HTTPConnection] = []
        self._binary: bool | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client can still be used and opens new ones."""
        while self._free:
            self._free.pop().close()

    def infer(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        outputs: Sequence[str] | None = None,
    ) -> ClientAnswer:
        """The answer to `inputs`, each of n rows, within `deadline_s` from now; all outputs unless some are named.

        Raises `InvalidInput` or a kind of it for a request that does not fit, `QueueFull` or `NotReady` where the
        server refuses it to the end, `DeadlinePassed`, `NoAnswer` where there is none, and `RequestFailed`.
        """
        call = _Call(self._protocol, deadline_s)
        if self._binary is None:
            self._binary = _offers_binary(self._ask(call, self._protocol.metadata_request))
        make = partial(self._protocol.infer_request, inputs, outputs, priority, call, self._binary)
        return _answer_in(self._ask(call, make))

    def _ask(self, call: _Call, make_request: Callable[[], _Request]) -> Response:
        while True:
            try:
                response = self._exchange(make_request(), call)
                if response.status == 200:
                    return response
                pause_s = call.pause_s(_error_in(response), response.headers.get("retry-after"))
            except NoAnswer as error:
                pause_s = call.pause_s(error)
            time.sleep(pause_s)

    def _exchange(self, request: _Request, call: _Call) -> Response:
        connection = self._connection(call)
        try:
            connection.request(
                request.method, self._protocol.address.prefix + request.path, request.body, request.headers
            )
            response = _read(connection, call)
        except TimeoutError:
            connection.close()
            raise call.late() from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(f"the connection to {self._protocol.url} ended ({error})") from None
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            self._free.append(connection)
        return response

    def _connection(self, call: _Call) -> http.client.HTTPConnection:
        """A connected one: kept, unless the server has closed it, or new."""
        while (kept := self._kept()) is not None:
            if not _readable(kept):
                kept.sock.settimeout(call.left_s())
                return kept
            kept.close()
        address, tls = self._protocol.address, self._protocol.tls
        if tls is None:
            new = http.client.HTTPConnection(address.host, address.port, timeout=call.left_s())
        else:
            new = http.client.HTTPSConnection(address.host, address.port, timeout=call.left_s(), context=tls)
        try:
            new.connect()
        except OSError as error:
            new.close()
            call.left_s()  # raises where time is up
            raise self._protocol.unreachable(error) from None
        return new

    def _kept(self) -> http.client.HTTPConnection | None:
        try:
            return self._free.pop()
        except IndexError:
            return None


def _readable(connection: http.client.HTTPConnection) -> bool:
    """Whether there is something to read on an idle connection, which is its end."""
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return bool(poller.poll(0))


def _read(connection: http.client.HTTPConnection, call: _Call) -> Response:
    """The whole answer; each part must come before the call's time is up."""
    sock = connection.sock  # the connection forgets it where it will not be kept
    with connection.getresponse() as response:
        parts = []
        while part := response.read1():
            parts.append(part)
            sock.settimeout(call.left_s())
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Response(response.status, headers, b"".join(parts))


class AsyncClient:
    """As `Client`, for asyncio: many calls at a time on up to `connections` connections, within one event loop.

    A call that is cancelled closes its connection, and its request leaves the server's queue.
    """

    def __init__(
        self,
        url: str,
        operator: str,
        *,
        api_key: str | None = None,
        ca_file: Path | str | None = None,
        longest_s: float = 60.0,
        most_attempts: int = 8,
        connections: int = 100,
    ) -> None:
        require(connections >= 1, f"connections is {connections}, needs at least 1")
        self._protocol = _Protocol(url, operator, api_key, ca_file, longest_s, most_attempts)
        self._http = HttpClient(url, connections=connections, tls=self._protocol.tls)
        self._turns = asyncio.Semaphore(connections)
        self._binary: bool | None = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; what is not answered yet fails."""
        self._http.close()

    async def infer(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        outputs: Sequence[str] | None = None,
    ) -> ClientAnswer:
        """As `Client.infer`."""
        call = _Call(self._protocol, deadline_s)
        if self._binary is None:
            self._binary = _offers_binary(await self._ask(call, self._protocol.metadata_request))
        make = partial(self._protocol.infer_request, inputs, outputs, priority, call, self._binary)
        return _answer_in(await self._ask(call, make))

    async def _ask(self, call: _Call, make_request: Callable[[], _Request]) -> Response:
        while True:
            try:
                response = await self._exchange(make_request, call)
                if response.status == 200:
                    return response
                pause_s = call.pause_s(_error_in(response), response.headers.get("retry-after"))
            except NoAnswer as error:
                pause_s = call.pause_s(error)
            await asyncio.sleep(pause_s)

    async def _exchange(self, make_request: Callable[[], _Request], call: _Call) -> Response:
        try:
            async with asyncio.timeout(call.left_s()), self._turns:
                request = make_request()
                sent = self._http.request_bytes(request.method, request.path, request.body, request.headers)
                return await self._http.response_to(sent, within_s=call.left_s())
        except TimeoutError:
            raise call.late() from None
        except NoAnswer as error:
            call.left_s()  # raises where time is up
            if error.sent:
                raise NoAnswer(f"the connection to {self._protocol.url} ended ({error})") from None
            raise self._protocol.unreachable(error) from None
