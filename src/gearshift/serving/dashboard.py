"""`gearshift dashboard`: the live page of a server elsewhere, on a port of this machine."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from gearshift.client.http_client import HttpClient
from gearshift.errors import NoAnswer
from gearshift.serving.door.origins import OwnNames
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_sockets
from gearshift.serving.http.attempts import Attempts, Routed, respond_error
from gearshift.serving.http.http_exchange import HttpExchange, Work, read_body
from gearshift.serving.http.routes import MOST_BODY_BYTES
from gearshift.serving.http.server import HttpServer
from gearshift.serving.operate.control import DRAIN_PATH, GEAR_PATH, SWAP_PATH
from gearshift.serving.operate.control_client import LONGEST_S, LONGEST_SWAP_S, key_in
from gearshift.serving.operate.promise import PROMISE_PATH
from gearshift.serving.pages.dashboard import dashboard_page
from gearshift.serving.pages.front_page import HTML
from gearshift.serving.pages.live import LIVE_PATH
from gearshift.serving.server import origin_of, signals_to
from gearshift.support.event_loop import loop_factory, run_in_own_loop
from gearshift.support.http import address_of, tls_context

AUTHORIZATION, LAST_EVENT_ID = b"authorization", b"last-event-id"
READ, STEERED = (LIVE_PATH, PROMISE_PATH), (GEAR_PATH, DRAIN_PATH, SWAP_PATH)
LONGEST_END_S = 1.0
Say = Callable[[str], None]

log = logging.getLogger(__name__)


def show_dashboard(
    url: str,
    *,
    key_file: Path | None = None,
    ca_file: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    say: Say = log.info,
) -> None:
    """Show the live page of the server at `url` at `host` and `port` (0: a free one) until SIGINT or SIGTERM.

    What the page reads is asked for with the first key in `key_file`; steering needs a key typed
    into the page.  Raises `InvalidInput` for a URL, key file or port that cannot be used.
    """
    tls = tls_context(ca_file) if address_of(url).secure else None
    key = None if key_file is None else key_in(key_file)

    async def main() -> None:
        signalled = asyncio.Event()
        async with HttpClient(url, tls=tls) as client:
            with signals_to(signalled.set), bound_sockets(host, port) as socks:
                server = HttpServer(_Passing(client, url, key).handler, ServerSettings(host=host, port=port))
                await server.start(*socks)
                try:
                    say(f"{url} is shown at {origin_of(socks[0])}/dashboard")
                    await signalled.wait()
                finally:
                    await server.stop(LONGEST_END_S)

    run_in_own_loop(main(), loop_factory=loop_factory())


class _Passing:
    """Gives the page, and passes on what it asks for."""

    def __init__(self, client: HttpClient, url: str, key: str | None) -> None:
        self._client, self._url, self._key = client, url, key
        self._names = OwnNames()
        self.handler = Routed(Attempts(lambda: True), self._route)

    def _route(self, exchange: HttpExchange) -> Work | None:
        self._names.require_known(exchange.headers)
        self._names.require_own_page(exchange.headers)
        reads = exchange.method in ("GET", "HEAD")
        if reads and exchange.path in ("/", "/dashboard"):
            page, headers = dashboard_page()
            exchange.respond(200, page, HTML, headers)
        elif reads and exchange.path in READ:
            return self._pass(exchange)
        elif exchange.method == "POST" and exchange.path in STEERED:
            read_body(exchange, MOST_BODY_BYTES, self._pass)
        else:
            respond_error(exchange, 404, f"there is nothing at {exchange.path[:200]!r}; the page is at /dashboard")
        return None

    async def _pass(self, exchange: HttpExchange) -> None:
        headers, steers = self._headers(exchange), exchange.method == "POST"
        request = self._client.request_bytes(
            "POST" if steers else "GET", exchange.path, exchange.take_body() if steers else b"", headers
        )
        within_s = LONGEST_SWAP_S if exchange.path == SWAP_PATH else LONGEST_S
        try:
            answer = await self._client.response_to(request, within_s=within_s)
        except NoAnswer as error:
            respond_error(exchange, 502, f"{self._url} gives no answer ({error})")
            return
        exchange.respond(answer.status, answer.body)

    def _headers(self, exchange: HttpExchange) -> Mapping[str, str]:
        """The page's own key goes before the file's, which is for reading alone.

        A server without keys lets nobody steer it through a proxy, which this is.
        """
        headers = {"Via": "1.1 gearshift-dashboard"}
        if (typed := exchange.headers.get(AUTHORIZATION)) is not None:
            headers["Authorization"] = typed.decode("latin-1")
        elif self._key is not None and exchange.method != "POST":
            headers["Authorization"] = f"Bearer {self._key}"
        if (after := exchange.headers.get(LAST_EVENT_ID)) is not None:
            headers["Last-Event-ID"] = after.decode("latin-1")
        return headers
