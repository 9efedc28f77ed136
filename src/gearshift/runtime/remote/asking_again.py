"""Whether and when a request that an endpoint did not answer is sent again."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gearshift.models.config import RemoteSettings
from gearshift.runtime.remote.endpoint import Asked, Endpoint, Reply
from gearshift.support.retry_after import asked_pause_s

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
