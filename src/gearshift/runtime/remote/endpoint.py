"""Blocking, bounded exchanges with one HTTP server, without redirects; failed ones again."""

import logging
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from gearshift.models.remote_settings import AUTHORIZATION, RemoteSettings
from gearshift.runtime.remote.masking import Mask
from gearshift.support.http import Connections, Failure, address_of, asked_pause_s, left_until, tls_context
from gearshift.support.of_process import OfProcess

LONGEST_TOLD = 300
LONGEST_END_S = 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request; `path` is appended to the endpoint's."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer, header names in lower case; or a `failure` in words.

    A `passing` failure may succeed later. Without an answer the status is 0.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    failure: str = ""
    passing: bool = False


class Endpoint:
    """Connections to the server of `settings`, at most `most_requests`; verifies TLS, no proxies.

    `where` is the field of the project file; `directory` its folder. Raises `InvalidInput` if the
    key's variable is not set or the trusted certificates cannot be read.
    """

    def __init__(self, settings: RemoteSettings, directory: Path, where: str) -> None:
        self._settings = settings
        parts = urlsplit(settings.url)
        self._query = f"?{parts.query}" if parts.query else ""
        self._url = settings.shown_url
        self._heard = False
        """Whether there has ever been an answer."""
        address = address_of(settings.url)
        ca_file = settings.ca_file
        trusted = None if ca_file is None else directory / ca_file
        tls = tls_context(trusted, where=f"{where}.ca_file", named=f" from {ca_file!r}") if address.secure else None
        self._http = Connections(address, tls, settings.largest_answer_bytes)
        self._key = settings.key(f"{where}.api_key_env")
        self.mask = Mask(self._key, *(value for _, value in parse_qsl(parts.query)), query=self._query)
        self._threads = OfProcess(lambda: ThreadPoolExecutor(settings.most_requests, thread_name_prefix="remote"))

    def ask(self, requests: Sequence[Asked], within_s: float | None = None) -> list[Reply]:
        """The replies to `requests`, within `within_s` or `longest_s`; later ones are failures."""
        left_s = self._settings.longest_s if within_s is None else within_s
        end_s = time.monotonic() + left_s
        futures = [self._threads.own().submit(self._exchange, request, end_s) for request in requests]
        there, _ = wait(futures, timeout=left_s)
        self._cut_off(futures)
        return [future.result() if future in there else self._late() for future in futures]

    def close(self) -> None:
        """Close all kept connections; threads end when their exchanges are over."""
        self._threads.own().shutdown(wait=False)
        self._http.close()

    def told(self, reply: Reply) -> str:
        """The failure of `reply` as text, without the key and the query string."""
        if reply.failure:
            return reply.failure
        again = ", and redirects are not followed" if 300 <= reply.status < 400 else ""
        if (asked_s := asked_pause_s(reply.headers.get("retry-after", ""))) is not None:
            again = f" and asks to wait {asked_s:.0f} s"
        said = self.mask(reply.body)[: 4 * LONGEST_TOLD]  # a secret that is cut in two would not be found
        text = " ".join(said.decode(errors="replace").split())
        printable = "".join(character for character in text if character.isprintable())[:LONGEST_TOLD]
        return f"{self._url} answered with status {reply.status}{again}: {printable}"

    def _cut_off(self, futures: Sequence["Future[Reply]"]) -> None:
        """Shut down sockets of unfinished exchanges, so that the threads waiting on them end."""
        for future in futures:
            future.cancel()
        if all(future.done() for future in futures):
            return
        self._http.cut_off()
        wait(futures, timeout=LONGEST_END_S)

    def _exchange(self, request: Asked, end_s: float) -> Reply:
        left_s = left_until(end_s)
        try:
            connection, target = self._http.connected(left_s), request.path + self._query
            answer = self._http.exchange(
                connection, request.method, target, request.body, self._headers(request), left_s
            )
        except TimeoutError:
            return self._late()
        except (*Failure, ValueError) as error:
            if time.monotonic() >= end_s:
                return self._late()
            passing = self._heard and not isinstance(error, ssl.SSLCertVerificationError)
            told = self.mask.text(str(error))
            return Reply(failure=f"{self._url} gave no answer ({type(error).__name__}: {told})", passing=passing)
        self._heard = True
        if answer.too_large:
            most = self._settings.largest_answer_bytes
            return Reply(answer.status, failure=f"{self._url} answered with more than {most} bytes")
        return Reply(answer.status, answer.headers, answer.body)

    def _late(self) -> Reply:
        text = f"{self._url} did not answer within {self._settings.longest_s:g} s"
        return Reply(failure=text, passing=True)

    def _headers(self, request: Asked) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **self._settings.headers, **request.headers}
        if self._key is None:
            return headers
        header = self._settings.api_key_header
        bearer = header.lower() == AUTHORIZATION.lower()
        return {**headers, header: f"Bearer {self._key}" if bearer else self._key}


PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that are not about the request: the same one may be answered later."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LATER = 0.1
"""Requested pauses are lengthened by up to this share, so that clients do not return together."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """The most attempts, and the longest time from the first to the last of them."""

    most_attempts: int
    longest_s: float


def pause_s(attempts: int, asked_s: float | None, spent_s: float, patience: Patience, draw: float) -> float | None:
    """Seconds to wait before the next attempt; None if there is to be none.

    `attempts` have been made in `spent_s`, `asked_s` is the pause that the endpoint asked for, and
    `draw` is from 0 to 1. Without a requested pause, each one is twice as long as the one before.
    """
    if attempts >= patience.most_attempts:
        return None
    if asked_s is None:
        longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempts - 1))
        pause = longest_s * (1 + draw) / 2
    else:
        pause = asked_s * (1 + LATER * draw)
    return pause if spent_s + pause <= patience.longest_s else None


class Asking:
    """Requests to an endpoint, repeated while they fail temporarily and patience lasts.

    Failed requests are repeated together. `waited_s` is the time of profiling beyond the longest
    round of each call: that time belongs to no run of the model.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: RemoteSettings,
        *,
        profiling: bool,
        passing: frozenset[int] = PASSING,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint, self._passing, self._pause, self._profiling = endpoint, passing, pause, profiling
        self._longest_s = settings.longest_s
        if profiling:
            self._patience = Patience(settings.most_attempts, settings.longest_asking_s)
        else:
            self._patience = Patience(settings.most_attempts_served, settings.longest_s)
        self._generator = random.Random(0)
        self.waited_s = 0.0

    def ask(self, requests: Sequence[Asked]) -> list[Reply]:
        begun_s = round_begun_s = time.monotonic()
        replies = self._endpoint.ask(requests)
        longest_round_s, attempts = time.monotonic() - begun_s, 1
        while failed := [i for i, reply in enumerate(replies) if self._may_pass(reply)]:
            spent_s = time.monotonic() - begun_s
            asked = [asked_pause_s(replies[i].headers.get("retry-after", "")) for i in failed]
            asked_s = max((one for one in asked if one is not None), default=None)
            wait_s = pause_s(attempts, asked_s, spent_s, self._patience, self._generator.random())
            if wait_s is None:
                break
            log.warning(
                "%d of %d requests failed and are sent again in %.1f s (attempt %d of %d): %s",
                len(failed), len(requests), wait_s, attempts + 1, self._patience.most_attempts,
                self._endpoint.told(replies[failed[0]]),
            )  # fmt: skip
            self._pause(wait_s)
            round_begun_s = time.monotonic()
            within_s = self._longest_s if self._profiling else self._longest_s - (round_begun_s - begun_s)
            for i, reply in zip(failed, self._endpoint.ask([requests[i] for i in failed], within_s), strict=True):
                replies[i] = reply
            longest_round_s = max(longest_round_s, time.monotonic() - round_begun_s)
            attempts += 1
        if self._profiling:
            self.waited_s += time.monotonic() - begun_s - longest_round_s
        return replies

    def _may_pass(self, reply: Reply) -> bool:
        return reply.passing if reply.failure else reply.status in self._passing
