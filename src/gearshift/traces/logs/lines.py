"""One line of a log as a request: its time, and what it asked for, by the names that fields have in many logs."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, NamedTuple

from gearshift.clock import NS_PER_S
from gearshift.traces.stamps import LATEST_NS, in_unit, stamp_ns

TIMES = (
    "timestamp", "@timestamp", "time", "ts", "datetime", "date_time", "time_local", "time_iso8601", "msec",
    "start_time", "starttime", "start", "request_time_utc", "eventtime", "arrival", "arrival_s", "arrived_at",
    "created_at", "date", "timestamp_ms", "end_timestamp", "time_unix_nano", "second", "startutc", "timestamp_us",
    "timestamp_ns", "ts_ms", "ts_us", "ts_ns", "timestamp(ms)", "__realtime_timestamp",
)  # fmt: skip
_UNITS_NS = {"_ms": 1_000_000, "(ms)": 1_000_000, "_us": 1_000, "_ns": 1, "_nano": 1}
PATHS = (
    "path", "uri", "request_uri", "url", "request", "target", "route", "http_path", "cs-uri-stem", ":path", "cs-uri",
    "requestpath", "request.uri", "request.path", "request.url", "req.url", "url.path", "url.original", "http.target",
    "http.path", "http.url", "httprequest.requesturl", "requestcontext.http.path",
)  # fmt: skip
METHODS = (
    "method", "request_method", "verb", "http_method", "cs-method", ":method", "requestmethod", "request.method",
    "req.method", "http.request.method", "http.method", "httprequest.requestmethod", "requestcontext.http.method",
)  # fmt: skip
STATUSES = (
    "status", "status_code", "response_code", "elb_status_code", "code", "sc-status", "downstreamstatus",
    "response.status", "res.statuscode", "http.response.status_code", "http.status_code", "httprequest.status",
)  # fmt: skip
_DEEPEST = 4
COUNTS = "requests", "request_count", "num_requests", "hits", "invocations", "count"
RATES = "requests_per_second", "requests/s", "req/s", "rps", "qps"
_NONE = "", "null", "none", "n/a"
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


class Line(NamedTuple):
    """`begins` is whether the time is when the request came; access logs give when its answer left."""

    time_ns: int
    method: str = ""
    path: str = ""
    status: str = ""
    fields: Mapping[str, Any] = {}


Read = Callable[[str], Line]
"""Raises `ValueError` for a line that is none of its form."""


class Head(NamedTuple):
    """What a form is told from: the first lines of a log, and the name of its column of times if it is given."""

    lines: Sequence[str]
    time_field: str | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """`reader` makes what reads lines, None where the head shows that the log has another form; it may be named.

    `stamped_at_end` is whether times are those of answers, `names_first` whether the first line has the columns' names.
    """

    name: str
    reader: Callable[[Head], Read | None] | str
    stamped_at_end: bool = False
    names_first: bool = False

    def of(self, head: Head) -> Read | None:
        read: Read | None = (resolve_name(self.reader) if isinstance(self.reader, str) else self.reader)(head)
        return read


def path_of(url: str) -> str:
    """The path of a URL or of a request's target."""
    _, scheme, rest = url.partition("://")
    return "/" + rest.partition("/")[2] if scheme else url


def line_of(fields: Mapping[str, Any], time_field: str | None) -> Line:
    lower = {name.strip().lower(): value for name, value in fields.items()}
    if any(isinstance(value, dict) for value in lower.values()):
        lower = dict(_flat(lower, "", _DEEPEST))
    named = time_field.lower() if time_field else next((n for n in TIMES if lower.get(n) not in (None, "")), "")
    if lower.get(named) in (None, ""):
        raise ValueError(fields)
    unit_ns = next((ns for mark, ns in _UNITS_NS.items() if named.endswith(mark)), 0)
    if named == "timestamp" and "hash_ids" in lower:  # Mooncake's
        unit_ns = 1_000_000
    time_ns = in_unit(str(lower[named]), unit_ns) if unit_ns else stamp_ns(str(lower[named]))
    if named == "end_timestamp" and lower.get("duration"):
        time_ns -= stamp_ns(str(lower["duration"]))
    if named == "ts" and "request.uri" in lower and isinstance(lower.get("duration"), float):  # Caddy's
        time_ns -= round(max(0.0, lower["duration"]) * NS_PER_S)
    if not 0 <= time_ns < LATEST_NS:
        raise ValueError(fields)
    request = str(first_of(lower, PATHS) or "")
    method, space, rest = request.partition(" ")
    path = rest.partition(" ")[0] if space else request
    given = first_of(lower, METHODS)
    return Line(
        time_ns, str(given or (method if space else "")), path_of(path), str(first_of(lower, STATUSES) or ""), lower
    )


def _flat(fields: Mapping[str, Any], before: str, deepest: int) -> Iterator[tuple[str, Any]]:
    """The fields of objects within others by names with dots, as `request.uri` of Caddy and `httpRequest.status`."""
    for name, value in fields.items():
        if not isinstance(value, dict):
            yield before + name, value
        elif deepest:
            yield from _flat({key.lower(): one for key, one in value.items()}, f"{before}{name}.", deepest - 1)


def counted_by(lines: Sequence[Line]) -> str:
    """The column that has the number or the rate of requests in each of these lines; else nothing."""
    return next((name for name in COUNTS + RATES if lines and not any(_no_number(line, name) for line in lines)), "")


def uncounted_in(lines: Sequence[Line]) -> tuple[str, str]:
    """A column with the name of one that counts, in all of these lines, and its first cell that is no number."""
    named = (name for name in COUNTS + RATES if lines and all(name in line.fields for line in lines))
    found = ((name, str(line.fields[name])) for name in named for line in lines if _no_number(line, name))
    return next(found, ("", ""))


def _no_number(line: Line, name: str) -> bool:
    try:
        return number_of(line, name) < 0
    except ValueError:
        return True


def number_of(line: Line, name: str) -> float:
    """Raises `ValueError` where the line has no number there; a cell that is empty, null or NaN is 0."""
    if name not in line.fields:
        raise ValueError(line)
    cell = "" if line.fields[name] is None else str(line.fields[name]).strip()
    if cell.lower() in _NONE:
        return 0.0
    number = float(cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell)
    return 0.0 if math.isnan(number) else number


def first_of(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)
