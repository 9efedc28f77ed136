"""The client side of V2 over HTTP without network access: requests, answers, retries."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gearshift.errors import (
    DeadlinePassed,
    Forbidden,
    GearshiftError,
    InvalidInput,
    NoAccess,
    NoAnswer,
    NotAcceptable,
    NotReady,
    QueueFull,
    RequestFailed,
    SwapFailed,
    TooLarge,
    UnknownModel,
    require,
)
from gearshift.model import datatype_of, in_own_order
from gearshift.request import BulkWork
from gearshift.support.frames import FrameKind, columns_of, frame_of
from gearshift.support.http import Response, address_of, asked_pause_s, tls_context
from gearshift.v2.binary import BULK_HEADER, INFERENCE_HEADER, binary_tensor, read_answer

BINARY_EXTENSION = "binary_tensor_data"
ERRORS: dict[int, type[GearshiftError]] = {
    error.http_status: error
    for error in (
        *(InvalidInput, NoAccess, Forbidden, UnknownModel, NotAcceptable, SwapFailed),
        *(TooLarge, QueueFull, NotReady, DeadlinePassed),
    )
}
"""Error by HTTP status other than 200; all others raise `RequestFailed`."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
"""Pauses between attempts, doubling, if the server does not say how long to wait."""
LONGEST_CALL_S = 86_400


def require_seconds(name: str, seconds: float | None) -> None:
    require(
        seconds is None or 0 < seconds <= LONGEST_CALL_S,
        f"{name} is {seconds}",
        remedy=f"give more than 0, up to {LONGEST_CALL_S}",
    )


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """Outputs by name, each of n rows, and parameters: `gear`, `queue_s`, `run_s`, `outcome`."""

    outputs: dict[str, NDArray[Any]]
    parameters: dict[str, Any]

    def frame(self, kind: FrameKind = "pandas") -> Any:
        """The outputs as a data frame; `scores` (n, classes) become columns scores.0, scores.1, ...

        Raises `InvalidInput` where the library is not installed.
        """
        return frame_of(kind, self.outputs, where="the answer as a data frame")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request without its destination."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class ClientProtocol:
    """Builds requests and errors for `Client` and `AsyncClient`; sends nothing."""

    def __init__(
        self,
        url: str,
        operator: str,
        api_key: str | None,
        ca_file: Path | str | None,
        longest_s: float,
        most_attempts: int,
    ) -> None:
        require_seconds("longest_s", longest_s)
        require(most_attempts >= 1, f"most_attempts is {most_attempts}, needs at least 1")
        require(
            api_key is None or (api_key.isascii() and api_key.isprintable()), "api_key holds what no header can carry"
        )
        self.url = url
        self.address = address_of(url)
        self.tls = tls_context(ca_file) if self.address.secure else None
        self.longest_s, self.most_attempts = longest_s, most_attempts
        self._path = f"/v2/models/{quote(operator, safe='')}/infer"
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    def unreachable(self, reason: object) -> NoAnswer:
        return NoAnswer(f"{self.url} cannot be reached ({reason}); is the server running?", sent=False)

    def get(self, path: str) -> HttpRequest:
        return HttpRequest("GET", path, b"", self._headers)

    def metadata_request(self) -> HttpRequest:
        return self.get("/v2")

    def infer_request(
        self,
        inputs: Mapping[str, ArrayLike] | Any,
        outputs: Sequence[str] | None,
        priority: int,
        deadline_s: Callable[[], float | None],
        binary: bool,
        bulk: BulkWork | None = None,
    ) -> HttpRequest:
        """Return an inference request; raises `InvalidInput` for inputs it cannot express.

        `deadline_s` returns the time left until the deadline, if there is one.
        """
        buffers: list[bytes | memoryview] = []
        content: dict[str, Any] = {
            "inputs": [_tensor(name, values, buffers if binary else None) for name, values in _columns(inputs).items()],
            "parameters": {"priority": priority, "binary_data_output": binary},
        }
        if bulk is not None:
            content["parameters"]["bulk"] = True
            content["parameters"] |= {k: v for k, v in msgspec.structs.asdict(bulk).items() if v is not None}
        if (left_s := deadline_s()) is not None:
            content["parameters"]["timeout"] = max(1, round(left_s * 1e6))
        if outputs is not None:
            content["outputs"] = [{"name": name} for name in outputs]
        head = msgspec.json.encode(content)
        headers = self._headers if bulk is None else {**self._headers, BULK_HEADER: "true"}
        if binary:
            headers = {**headers, "Content-Type": "application/octet-stream", INFERENCE_HEADER: str(len(head))}
        return HttpRequest("POST", self._path, b"".join([head, *buffers]), headers)


def _columns(inputs: Any) -> Mapping[str, ArrayLike]:
    found = columns_of(inputs)
    return inputs if found is None else found


def _tensor(name: str, values: ArrayLike, buffers: list[bytes | memoryview] | None) -> dict[str, Any]:
    try:
        array = in_own_order(np.asarray(values))
        if buffers is None or (array.dtype.kind == "O" and any(value is None for value in array.flat)):
            return json_tensor(name, array)
        return binary_tensor(name, array, buffers)
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(str(error), where=f"input {name!r}", remedy="give an array of numbers or text") from None


def json_tensor(name: str, array: NDArray[Any]) -> dict[str, object]:
    """Return a V2 input with flat data; raises `InvalidInput` if JSON cannot carry it."""
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise InvalidInput(f"a value of input {name!r} is infinite", remedy="leave its row out")
    datatype = datatype_of(array)
    values = array.reshape(-1).tolist()  # NaN and None are written as null
    if datatype == "BYTES":
        values = [None if value is None else _text(name, value) for value in values]
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": values}


def _text(name: str, value: object) -> str:
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
        text.encode()
    except UnicodeError:
        raise InvalidInput(
            f"input {name!r} holds what is no UTF-8 text", remedy="JSON requests carry text and numbers alone"
        ) from None
    return text


# Answers -----------------------------------------------------------------------------------------


class _Metadata(msgspec.Struct):
    name: str | None = None
    extensions: list[str] | None = None


class _Error(msgspec.Struct):
    error: str


def answer_in(response: Response) -> ClientAnswer:
    try:
        return ClientAnswer(*read_answer(response.body, response.headers))
    except ValueError as error:
        raise RequestFailed(f"the answer is none of the V2 protocol ({error})") from None


def offers_binary(response: Response) -> bool:
    return BINARY_EXTENSION in (_metadata(response).extensions or ())


def server_name(response: Response) -> str:
    return _metadata(response).name or ""


def _metadata(response: Response) -> _Metadata:
    try:
        return msgspec.json.decode(response.body, type=_Metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Metadata()


def error_in(response: Response) -> GearshiftError:
    try:
        text = msgspec.json.decode(response.body, type=_Error).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = f"the server answered with status {response.status}"
    return ERRORS.get(response.status, RequestFailed)(text)


# Attempts ----------------------------------------------------------------------------------------


class Call:
    """The time and the attempts that one call may use."""

    def __init__(self, protocol: ClientProtocol, deadline_s: float | None) -> None:
        require_seconds("deadline_s", deadline_s)
        self._protocol = protocol
        self._has_deadline = deadline_s is not None
        self._longest_s = min(protocol.longest_s, deadline_s or protocol.longest_s)
        self._end_s = time.monotonic() + self._longest_s
        self._attempts = 0

    def left_s(self) -> float:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise self.late()
        return left_s

    def deadline_s(self) -> float | None:
        return self.left_s() if self._has_deadline else None

    def late(self) -> GearshiftError:
        text = f"{self._protocol.url} did not answer within {self._longest_s:g} s"
        return DeadlinePassed(text) if self._has_deadline else NoAnswer(text)

    def pause_s(self, error: GearshiftError, retry_after: str | None = None) -> float:
        """Return the pause before the next attempt; raises `error` if there is to be none."""
        self._attempts += 1
        again = isinstance(error, QueueFull | NotReady) or (isinstance(error, NoAnswer) and not error.sent)
        pause_s = asked_pause_s(retry_after or "")
        if pause_s is None:
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._attempts - 1))
        if not again or self._attempts >= self._protocol.most_attempts or time.monotonic() + pause_s >= self._end_s:
            raise error
        return pause_s
