"""Attempt the steps of answering a request, and answer their errors."""

import asyncio
from collections.abc import Callable
from typing import Any

from gearshift.errors import GearshiftError, NoAccess, TooLarge, TooLargeInside
from gearshift.serving.http.http_exchange import BEARER, CLOSE, Headers, HttpExchange, Work, error_body

Refusal = tuple[int, str, Headers, str | None, str | None]
"""Status, text and further headers of an error answer, and for OpenAI's API `code` and `param`."""

RETRY_AFTER = (b"retry-after", b"1")
LONGEST_TEXT = 2000
"""Characters of an error's text."""


class Attempts:
    """Steps that need not wait are plain functions; those that wait return a coroutine.

    `accepting` says whether the server takes requests; else a refused client's connection ends.
    """

    def __init__(self, accepting: Callable[[], bool]) -> None:
        self._accepting = accepting
        self._waiting: set[asyncio.Task[None]] = set()

    def attempt(self, exchange: HttpExchange, step: Callable[..., Work | None], *given: Any) -> None:
        """Do a step and answer its errors; an internal one as an id that the log explains.

        The error is not kept: its traceback holds the frames, and so the request.
        """
        work, refusal = None, None
        try:
            work = step(exchange, *given)
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            refusal = self._refusal(exchange, error)
        if refusal is not None:  # outside `except`: answering may begin the next request
            respond_error(exchange, *refusal)
        elif work is not None:
            task = asyncio.get_running_loop().create_task(self._wait(exchange, work))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _wait(self, exchange: HttpExchange, work: Work) -> None:
        refusal = None
        try:
            await work
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            refusal = self._refusal(exchange, error)
        if refusal is not None:
            respond_error(exchange, *refusal)

    def _refusal(self, exchange: HttpExchange, error: Exception) -> Refusal:
        extra: Headers = ()
        text = exchange.text_of(error, LONGEST_TEXT)
        if not isinstance(error, GearshiftError):
            return 500, text, extra, None, None
        if isinstance(error, TooLarge) and not isinstance(error, TooLargeInside):
            extra = (CLOSE,)
        elif isinstance(error, NoAccess):
            extra = (BEARER,)
        elif error.retry_after_s is not None:
            again = (RETRY_AFTER[0], b"%d" % error.retry_after_s)
            extra = (again,) if self._accepting() else (again, CLOSE)
        return error.http_status, text, extra, error.code, error.param


class Routed:
    """A `connections.Handler`: `route` answers a request whose head has arrived, or says what is then to be done."""

    def __init__(self, attempts: Attempts, route: Callable[[HttpExchange], Work | None]) -> None:
        self._attempt, self._answer = attempts.attempt, route

    def begun(self, exchange: HttpExchange) -> None:
        """Errors in the head are answered now; the body may still be missing."""
        self._attempt(exchange, self._answer)

    def measured(self, exchange: HttpExchange, part_bytes: int) -> None:
        if exchange.measure is not None:
            self._attempt(exchange, _measure, part_bytes)

    def completed(self, exchange: HttpExchange) -> None:
        if exchange.then is not None:
            self._attempt(exchange, exchange.then)


def _measure(exchange: HttpExchange, part_bytes: int) -> None:
    if exchange.measure is not None:
        exchange.measure(part_bytes)


def respond_error(
    exchange: HttpExchange,
    status: int,
    text: str,
    extra: Headers = (),
    code: str | None = None,
    param: str | None = None,
) -> None:
    exchange.respond(status, error_body(exchange.path, status, text, code, param), extra=extra)
