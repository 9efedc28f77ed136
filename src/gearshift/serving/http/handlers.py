"""Answer HTTP requests about the whole server: metadata, administration, health and metrics."""

import math
from collections.abc import Callable, Sequence

from gearshift.errors import InvalidInput
from gearshift.observability.glance import Glance
from gearshift.observability.journal import Journal
from gearshift.observability.metrics import CONTENT_TYPE, Metrics
from gearshift.observability.recent_events import RecentEvents
from gearshift.observability.tracing import Tracing
from gearshift.serving.door import metadata
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.signature import Signature
from gearshift.serving.http.arriving import Arriving
from gearshift.serving.http.attempts import RETRY_AFTER, Attempts
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.http.inference import ModelHandlers, ReadMetrics
from gearshift.serving.operate.control import Control, decode
from gearshift.serving.operate.promise import Promise
from gearshift.serving.operate.swap import SwapBody, Swaps
from gearshift.serving.pages.dashboard import dashboard_page
from gearshift.serving.pages.front_page import HEADERS, HTML
from gearshift.serving.pages.live import EVENT_STREAM, Live
from gearshift.v2 import json as v2_json
from gearshift.v2 import tensors as v2

ACCEPT, LAST_EVENT_ID = b"accept", b"last-event-id"


class Handlers:
    """Answers to HTTP requests about the server; `models` are those about each of its pipelines.

    Bounds are in bytes.
    """

    def __init__(
        self,
        control: Control,
        served: Sequence[Signature],
        *,
        largest_body_bytes: int,
        limits: v2.Limits = v2_json.DEFAULT_LIMITS,
        metrics: ReadMetrics | None = None,
        tracing: Tracing | None = None,
        swaps: Swaps | None = None,
        times: SendingTimes | None = None,
        events: RecentEvents | None = None,
        promise: Callable[[], Promise] | None = None,
        live: Live | None = None,
        has_dashboard: bool = True,
    ) -> None:
        self.has_dashboard = has_dashboard
        self._control, self._swaps = control, swaps
        self._events, self._promise = events or RecentEvents(Journal()), promise or (lambda: Promise(pipelines=[]))
        self._live = live or Live(control, lambda _: Glance(outcomes={}, latency=[]), self._events)
        self._metrics: ReadMetrics = metrics or Metrics([each.name for each in served])
        self.attempts = Attempts(lambda: control.accepting)
        arriving = Arriving(largest_body_bytes=largest_body_bytes, times=times or SendingTimes(), tracing=tracing)
        self.models = [
            ModelHandlers(control, each, self.attempts, arriving, limits=limits, metrics=self._metrics)
            for each in served
        ]
        self._server_metadata = v2_json.encode(metadata.server_metadata())
        self.description = b"{}"
        """The server's own description; `Application` sets it and the pages, which knows routes and keys."""
        self.front_page = self.docs_page = b""

    def server(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._server_metadata)

    def statistics(self, exchange: HttpExchange) -> None:
        totals = {name: self._metrics.totals(name) for name in self._control.pipelines}
        exchange.respond(200, v2_json.encode(metadata.statistics(totals)))

    def index(self, exchange: HttpExchange) -> None:
        ready_only = v2_json.wants_ready_only(exchange.take_body())
        index = metadata.repository_index(self._control.ready_by_name(), ready_only=ready_only)
        exchange.respond(200, v2_json.encode(index))

    def status(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.status()))

    def gear(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.pin_or_free(exchange.take_body())))

    def drain(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.drain_or_not(exchange.take_body())))

    async def swap(self, exchange: HttpExchange) -> None:
        asked = decode(exchange.take_body(), SwapBody)
        if self._swaps is None:
            raise InvalidInput("this server cannot change its plan", remedy="use `gearshift serve`")
        exchange.respond(200, v2_json.encode(await self._swaps.swap(asked)))

    def describe(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self.description)

    def front(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self.front_page, HTML, HEADERS)

    def docs(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self.docs_page, HTML, HEADERS)

    def dashboard(self, exchange: HttpExchange) -> None:
        page, headers = dashboard_page()
        exchange.respond(200, page, HTML, headers)

    def events(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._events.as_json())

    def live(self, exchange: HttpExchange) -> None:
        after_s = _seconds_in(exchange.headers.get(LAST_EVENT_ID, b""))
        streams = exchange.method == "GET" and EVENT_STREAM in exchange.headers.get(ACCEPT, b"")
        if streams and exchange.client.takes_streams and not self._live.full:
            self._live.show(exchange, after_s)
        else:
            exchange.respond(200, self._live.as_json(after_s))

    def promise(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._promise()))

    def alive(self, exchange: HttpExchange) -> None:
        exchange.respond(200, b'{"live":true}')

    def ready(self, exchange: HttpExchange) -> None:
        if self._control.ready:  # which models lack replicas is for operators, and anybody may ask this
            exchange.respond(200, b'{"ready":true,"degraded":true}' if self._control.degraded else b'{"ready":true}')
        else:
            exchange.respond(503, b'{"ready":false}', extra=[RETRY_AFTER])

    def metrics(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._metrics.text(), content_type=CONTENT_TYPE.encode())

    def refuse_load(self, exchange: HttpExchange) -> None:
        metadata.refuse_loading("load")

    def refuse_unload(self, exchange: HttpExchange) -> None:
        metadata.refuse_loading("unload")


def _seconds_in(text: bytes) -> float:
    """The Unix time that a client has looks up to; 0, and so all, where it names none."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
