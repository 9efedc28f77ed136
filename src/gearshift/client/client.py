"""Clients of a server of the Open Inference Protocol V2 over HTTP, such as `gearshift serve`."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from numpy.typing import ArrayLike

from gearshift.client.http_client import HttpClient
from gearshift.client.v2_client import (
    Call,
    ClientAnswer,
    ClientProtocol,
    HttpRequest,
    answer_in,
    error_in,
    offers_binary,
)
from gearshift.errors import NoAnswer, require
from gearshift.request import BulkWork
from gearshift.support.http import Connections, Failure, Response
from gearshift.support.of_process import OfProcess


class Client:
    """Client for one operator of a server; safe to share between threads and forked processes.

    Use it in a `with` block, or `close` it. `ca_file` holds the certificates to trust, where the
    system's are not enough. A call takes at most `longest_s`, and is tried up to `most_attempts`
    times: after 429 and 503 when `Retry-After` is over, and where the server could not be reached.
    A request that may have reached a model is sent again only where the server itself answers 503.
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
        self._protocol = ClientProtocol(url, operator, api_key, ca_file, longest_s, most_attempts)
        self._http = Connections(self._protocol.address, self._protocol.tls)
        self._binary: bool | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the client can still be used and opens new ones."""
        self._http.close()

    def infer(
        self,
        inputs: Mapping[str, ArrayLike] | Any,
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        outputs: Sequence[str] | None = None,
        bulk: BulkWork | None = None,
    ) -> ClientAnswer:
        """Ask for the answer to `inputs`, each of n rows, within `deadline_s` from now.

        `inputs` are arrays by name, or a data frame of pandas, polars or pyarrow.

        `outputs` names the outputs wanted; default: all. With `bulk` the request waits behind those without, and
        keeps the cascades that it asks for. Raises `InvalidInput` or a subclass for a
        request that does not fit, `QueueFull` or `NotReady` where the server still refuses it at
        the last attempt, `DeadlinePassed`, `NoAnswer` where no answer came, and `RequestFailed`.
        """
        call = Call(self._protocol, deadline_s)
        if self._binary is None:
            self._binary = offers_binary(self._ask(call, self._protocol.metadata_request))
        make = partial(self._protocol.infer_request, inputs, outputs, priority, call.deadline_s, self._binary, bulk)
        return answer_in(self._ask(call, make))

    def _ask(self, call: Call, make_request: Callable[[], HttpRequest]) -> Response:
        while True:
            try:
                response = self._exchange(make_request(), call)
                if response.status == 200:
                    return response
                pause_s = call.pause_s(error_in(response), response.headers.get("retry-after"))
            except NoAnswer as error:
                pause_s = call.pause_s(error)
            time.sleep(pause_s)

    def _exchange(self, request: HttpRequest, call: Call) -> Response:
        try:
            connection = self._http.connected(call.left_s)
        except OSError as error:
            call.left_s()  # raises where time is up
            raise self._protocol.unreachable(error) from None
        try:
            return self._http.exchange(
                connection, request.method, request.path, request.body, request.headers, call.left_s
            )
        except TimeoutError:
            raise call.late() from None
        except Failure as error:
            raise NoAnswer(f"the connection to {self._protocol.url} ended ({error})") from None


class AsyncClient:
    """`Client` for asyncio: many calls at a time on up to `connections` connections.

    Use it within one event loop. A call that is cancelled closes its connection, and its request
    leaves the server's queue.
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
        self._protocol = ClientProtocol(url, operator, api_key, ca_file, longest_s, most_attempts)
        self._http = HttpClient(url, tls=self._protocol.tls)
        self._turns = OfProcess(lambda: asyncio.Semaphore(connections))
        self._binary: bool | None = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; open requests fail."""
        self._http.close()

    async def infer(
        self,
        inputs: Mapping[str, ArrayLike] | Any,
        *,
        deadline_s: float | None = None,
        priority: int = 0,
        outputs: Sequence[str] | None = None,
        bulk: BulkWork | None = None,
    ) -> ClientAnswer:
        """As `Client.infer`."""
        call = Call(self._protocol, deadline_s)
        if self._binary is None:
            self._binary = offers_binary(await self._ask(call, self._protocol.metadata_request))
        make = partial(self._protocol.infer_request, inputs, outputs, priority, call.deadline_s, self._binary, bulk)
        return answer_in(await self._ask(call, make))

    async def _ask(self, call: Call, make_request: Callable[[], HttpRequest]) -> Response:
        while True:
            try:
                response = await self._exchange(make_request, call)
                if response.status == 200:
                    return response
                pause_s = call.pause_s(error_in(response), response.headers.get("retry-after"))
            except NoAnswer as error:
                pause_s = call.pause_s(error)
            await asyncio.sleep(pause_s)

    async def _exchange(self, make_request: Callable[[], HttpRequest], call: Call) -> Response:
        try:
            async with asyncio.timeout(call.left_s()), self._turns.own():
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
