"""Times as logs write them, to nanoseconds since 1970."""

import math
from datetime import UTC, datetime
from functools import lru_cache

from gearshift.clock import NS_PER_S

LATEST_NS = 1 << 62
"""In the year 2116."""
_EPOCH_UNITS = (1e11, NS_PER_S), (1e14, 1_000_000), (1e17, 1_000), (math.inf, 1)
"""Numbers below each bound are seconds, milliseconds, microseconds and nanoseconds: true from 1973 to 5138."""


def stamp_ns(text: str) -> int:
    """The time that `text` says; without a zone it is taken as UTC. Raises `ValueError`.

    ISO 8601, also with slashes, `03/Nov/2025:09:59:30 +0100` of access logs, and numbers since 1970 or, where they are
    small, since the log began.
    """
    found_ns = _unbounded_ns(text.strip())
    if not 0 <= found_ns < LATEST_NS:
        raise ValueError(text)
    return found_ns


def _unbounded_ns(text: str) -> int:
    if not text[:1].isdigit() and text[:1] not in "-.":
        raise ValueError(text)
    if len(text) > 12 and text[2] == "/":
        return _access_log_s(text) * NS_PER_S
    if text[4:5] == "/" and text[7:8] == "/":  # 2025/11/03 09:59:30, of Caddy and of logs of errors
        text = text.replace("/", "-", 2)
    whole, point, fraction = text.partition(".")
    if whole.isascii() and whole.isdigit() and (not point or fraction.isdigit()):
        return _number_ns(int(whole), fraction)
    if text.replace("e", "").replace("+", "").replace(".", "").isdigit():
        return round(float(text) * _unit_ns(float(text)))
    return _iso_ns(text)


def _number_ns(whole: int, fraction: str) -> int:
    """Exact: a float of seconds since 1970 is not, to the nanosecond."""
    unit_ns = _unit_ns(whole)
    return whole * unit_ns + (round(unit_ns * int(fraction) / 10 ** len(fraction)) if fraction else 0)


def in_unit(text: str, unit_ns: int) -> int:
    """Exact for whole numbers: a float is not, to the nanosecond."""
    whole = text.strip()
    return int(whole) * unit_ns if whole.isascii() and whole.isdigit() else round(float(whole) * unit_ns)


def _unit_ns(number: float) -> int:
    return next((unit_ns for bound, unit_ns in _EPOCH_UNITS if number < bound), 1)


@lru_cache(maxsize=1024)
def _access_log_s(text: str) -> int:
    form = "%d/%b/%Y:%H:%M:%S %z" if " " in text else "%d/%b/%Y:%H:%M:%S"
    return _seconds(datetime.strptime(text, form))


def _iso_ns(text: str) -> int:
    head, zone = (text[:-1], "Z") if text.endswith(("Z", "z")) else _split_zone(text)
    head, _, fraction = head.replace(",", ".").partition(".")
    if fraction and not (fraction.isascii() and fraction.isdigit()):
        raise ValueError(text)
    nanoseconds = int(fraction[:9].ljust(9, "0")) if fraction else 0
    return _iso_s(head, zone) * NS_PER_S + nanoseconds


@lru_cache(maxsize=1024)
def _iso_s(head: str, zone: str) -> int:
    return _seconds(datetime.fromisoformat(head + zone))


def _split_zone(text: str) -> tuple[str, str]:
    for sign in "+-":
        place = text.rfind(sign)
        if place > len("2025-11-03"):
            return text[:place].rstrip(), text[place:]
    return text, ""


def _seconds(time: datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
