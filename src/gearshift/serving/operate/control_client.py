"""A client for administration: status, gears, drain and swap."""

from pathlib import Path
from typing import TypeVar

import msgspec

from gearshift.client.http_client import HttpClient
from gearshift.client.v2_client import error_in
from gearshift.errors import NoAnswer, require
from gearshift.runtime.router.status import Status
from gearshift.serving.operate.control import DRAIN_PATH, GEAR_PATH, STATUS_PATH, SWAP_PATH, DrainBody, GearBody
from gearshift.serving.operate.swap import SwapBody, SwapResult
from gearshift.support.event_loop import run_in_own_loop
from gearshift.support.files import read_text
from gearshift.support.http import Response, address_of, tls_context

LONGEST_S = 30.0
LONGEST_SWAP_S = 4 * 3600.0

Answered = TypeVar("Answered")


class Operator:
    """Steers the server at `url` with the key in `key_file`, trusting certificates in `ca_file`.

    Raises `NoAnswer` if the server cannot be reached, and its refusals as their own errors.
    """

    def __init__(self, url: str, *, key_file: Path | None = None, ca_file: Path | None = None) -> None:
        self._url = url
        self._tls = tls_context(ca_file) if address_of(url).secure else None
        self._headers = {} if key_file is None else {"Authorization": f"Bearer {key_in(key_file)}"}

    def status(self) -> Status:
        return self._ask("GET", STATUS_PATH, b"", Status)

    def pin(self, gear: int | None, pipeline: str | None = None) -> Status:
        """Keep `gear` of a pipeline at any load; None lets the load choose again.

        Without a name, of the server's only pipeline.
        """
        return self._ask("POST", GEAR_PATH, msgspec.json.encode(GearBody(pin=gear, pipeline=pipeline)), Status)

    def drain(self, *, undo: bool = False) -> Status:
        return self._ask("POST", DRAIN_PATH, msgspec.json.encode(DrainBody(undo=undo)), Status)

    def swap(self, asked: SwapBody) -> SwapResult:
        """Put another plan in force; return when the old one is unloaded."""
        return self._ask("POST", SWAP_PATH, msgspec.json.encode(asked), SwapResult, asked.shadow_s + LONGEST_SWAP_S)

    def _ask(self, method: str, path: str, body: bytes, kind: type[Answered], within_s: float = LONGEST_S) -> Answered:
        response = run_in_own_loop(self._response(method, path, body, within_s))
        if response.status != 200:
            raise error_in(response)
        try:
            return msgspec.json.decode(response.body, type=kind)
        except msgspec.MsgspecError as error:
            raise NoAnswer(f"{self._url} answered, but not as a server of gearshift does ({error})") from None

    async def _response(self, method: str, path: str, body: bytes, within_s: float) -> Response:
        async with HttpClient(self._url, tls=self._tls) as client:
            try:
                request = client.request_bytes(method, path, body, self._headers)
                return await client.response_to(request, within_s=within_s)
            except NoAnswer as error:
                remedy = "" if error.sent else "; is the server running?"
                raise NoAnswer(f"{self._url} gives no answer ({error}){remedy}") from None


def key_in(path: Path) -> str:
    lines = [line.strip() for line in read_text(path, remedy="name a file with a key").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    require(bool(keys), "holds no key", where=str(path), remedy="write a key on a line of its own")
    require(keys[0].isascii() and keys[0].isprintable(), "holds a line that is no key", where=str(path))
    return keys[0]
