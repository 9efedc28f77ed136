"""Write and parse sending times and deadlines in HTTP headers or gRPC metadata."""

import logging
import re
import time
from typing import NamedTuple

from gearshift.clock import NS_PER_S
from gearshift.observability.deadline_metrics import DeadlineMetrics
from gearshift.request import NO_DEADLINE_NS
from gearshift.v2.tensors import timeout_us_of_slo

REQUEST_START = "x-request-start"
SLO_MS = "x-slo-ms"
DEFAULT_TRUST_S = 2.0

_START = re.compile(r"(?:t=)?([0-9]{1,19})(?:\.([0-9]{1,9})[0-9]{0,9})?", re.ASCII)
_UNITS = ((10**11, NS_PER_S), (10**14, 10**6), (10**17, 10**3))
"""Proxies write s, ms or us; the magnitude of a current Unix time shows which."""

log = logging.getLogger(__name__)


class Told(NamedTuple):
    """What the head of a request says: when it was sent, on the service's clock, and how long it may take (0: any)."""

    sent_ns: int | None = None
    slo_us: int = 0

    def deadline_ns(self, now_ns: int, timeout_us: int = 0) -> int:
        """By the body's timeout, if that is given, else by the head."""
        return deadline_ns_of(self.sent_ns, now_ns, timeout_us or self.slo_us)


NOTHING_TOLD = Told()


class SendingTimes:
    """Trusts `x-request-start` within `trust_s` of this machine's clock.

    Otherwise arrival counts as sending, which is counted by reason (`malformed`, `clock`) and
    logged once.
    """

    def __init__(self, trust_s: float = DEFAULT_TRUST_S, metrics: DeadlineMetrics | None = None) -> None:
        self._trust_ns = round(trust_s * NS_PER_S)
        self._metrics = metrics or DeadlineMetrics()
        self._said: set[str] = set()

    def told(self, start: str | None, slo_ms: str | None, now_ns: int) -> Told:
        """Read both headers; raises `InvalidInput` for a time that makes no sense."""
        return Told(self.sent_ns(start, now_ns), 0 if slo_ms is None else timeout_us_of_slo(slo_ms))

    def count_distrust(self, reason: str) -> None:
        self._metrics.untrusted.labels(reason).inc()

    def sent_ns(self, start: str | None, now_ns: int, unix_ns: int | None = None) -> int | None:
        """Return the sending time on the service's clock; None if absent or not trusted.

        The head arrived at `now_ns` on that clock, at `unix_ns` in Unix time.
        """
        if start is None:
            return None
        told_ns = unix_ns_of(start)
        if told_ns is None:
            self._distrust("malformed", f"is no time: {start[:40]!r}")
            return None
        travelled_ns = (time.time_ns() if unix_ns is None else unix_ns) - told_ns
        if abs(travelled_ns) > self._trust_ns:
            ago_s = travelled_ns / NS_PER_S
            self._distrust("clock", f"is {ago_s:.3f} s ago by this machine's clock; see --trust-clock-s")
            return None
        return now_ns - max(0, travelled_ns)

    def _distrust(self, reason: str, what: str) -> None:
        self.count_distrust(reason)
        if reason not in self._said:
            self._said.add(reason)
            log.warning("header %s %s; arrival counts as sent, here and whenever this is so again", REQUEST_START, what)


def unix_ns_of(start: str) -> int | None:
    """Parse Unix time such as `t=1700000000.123`; `t=` is optional, units may be s, ms or us."""
    match = _START.fullmatch(start.strip())
    if match is None:
        return None
    whole, fraction = int(match[1]), match[2] or ""
    unit_ns = next((unit for below, unit in _UNITS if whole < below), 1)
    return whole * unit_ns + int(fraction.ljust(9, "0")) * unit_ns // NS_PER_S


def timing_headers(sent_unix_s: float | None, deadline_s: float | None) -> list[tuple[str, str]]:
    """Return the headers that tell when a request was sent, as proxies write it, and its deadline."""
    headers = []
    if sent_unix_s is not None:
        headers.append((REQUEST_START, f"t={sent_unix_s:.6f}"))
    if deadline_s is not None:
        headers.append((SLO_MS, f"{1e3 * deadline_s:.6f}"))
    return headers


def refused_before_it_ran(text: str) -> bool:
    """Whether this text of a 504 says that Gearshift refused the request without running it."""
    return "infeasible: " in text or "expired_in_queue: " in text


def deadline_ns_of(sent_ns: int | None, now_ns: int, limit_us: int) -> int:
    """Return the deadline `limit_us` after sending, else after now; a limit of 0 means none."""
    if limit_us == 0:
        return NO_DEADLINE_NS
    return (now_ns if sent_ns is None else sent_ns) + limit_us * 1000
