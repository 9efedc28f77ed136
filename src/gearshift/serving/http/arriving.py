"""Requests for answers as they arrive, of any protocol: their trace, what they say of time, and the room for bodies."""

import asyncio
from collections.abc import Callable
from functools import partial

from gearshift.observability.tracing import Tracing
from gearshift.runtime.service.room import Reading
from gearshift.serving.door.deadline_headers import REQUEST_START, SLO_MS, SendingTimes, Told
from gearshift.serving.http.http_exchange import HttpExchange, Work, length_within, read_body

SLO_HEADER, START_HEADER = SLO_MS.encode(), REQUEST_START.encode()

Then = Callable[[Told, Reading, HttpExchange], Work | None]


class Arriving:
    """What all handlers of a server share.

    `large` is held while a large body is read or written, one at a time in the whole server, so
    that the event loop runs between its steps.
    """

    def __init__(self, *, largest_body_bytes: int, times: SendingTimes, tracing: Tracing | None) -> None:
        self.largest_body_bytes, self.tracing, self._times = largest_body_bytes, tracing, times
        self.large = asyncio.Lock()

    def trace(self, exchange: HttpExchange, pipeline: str) -> None:
        if self.tracing is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers.items()}
            route = {"http.request.method": exchange.method, "http.route": exchange.path}
            exchange.span = self.tracing.begin(pipeline, headers, **route)

    def told(self, exchange: HttpExchange, now_ns: Callable[[], int]) -> Told:
        """Raises `InvalidInput` for a deadline that makes no sense."""
        head = exchange.headers
        start, slo_ms = (head[name].decode("latin-1") if name in head else None for name in (START_HEADER, SLO_HEADER))
        return self._times.told(start, slo_ms, now_ns())

    def read(self, exchange: HttpExchange, told: Told, room: Callable[[int], Reading], then: Then) -> None:
        """Have the body read into the room that there is for its announced bytes, and call `then` with all of it.

        Raises `NotReady`, `QueueFull` or `TooLarge`.
        """
        reading = room(length_within(exchange, self.largest_body_bytes) or 0)
        exchange.release = reading.close
        read_body(exchange, self.largest_body_bytes, partial(then, told, reading), reading)
