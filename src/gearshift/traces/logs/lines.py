"""One line of a log as a request: its time, and what it asked for."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from gearshift.traces.logs.stamps import LATEST_NS, stamp_ns

TIMES = (
    "timestamp", "@timestamp", "time", "ts", "datetime", "date_time", "time_local", "time_iso8601", "msec",
    "start_time", "starttime", "start", "request_time_utc", "eventtime", "arrival", "arrival_s", "arrived_at",
    "created_at", "date", "timestamp_ms", "end_timestamp", "time_unix_nano", "second",
)  # fmt: skip
PATHS = "path", "uri", "request_uri", "url", "request", "target", "route", "http_path", "cs-uri-stem", ":path"
METHODS = "method", "request_method", "verb", "http_method", "cs-method", ":method"
STATUSES = "status", "status_code", "response_code", "elb_status_code", "code", "sc-status"
COUNTS = "requests", "request_count", "num_requests", "hits", "invocations", "count"
RATES = "requests_per_second", "requests/s", "req/s", "rps", "qps"
_WORD, _REST = r'[^\s"\\]*+(?:\\.[^\s"\\]*+)*+', r'[^"\\]*+(?:\\.[^"\\]*+)*+'
_REQUEST = rf'"(?:(?=[^\s"])({_WORD}) ({_WORD}){_REST}|{_REST})"'
"""In quotes; possessive throughout, as matching a line that was cut would take time in its square."""
_ACCESS = re.compile(rf"\[(\d\d/\w{{3}}/\d{{4}}:[\d:]++(?: [+-]\d{{4}})?)\] {_REQUEST} (\d{{3}})")
_ENVOY = re.compile(rf"^\[(\d{{4}}-\d\d-\d\dT[^\]]++)\] {_REQUEST} (\d+)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_ALB = re.compile(r"^(?:https?|h2|grpcs?|wss?) \d{4}-\d\d-\d\dT\S+ \S+ \S+:\d+ ")
_NONE = "", "null", "none", "n/a"
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_ALB_STATUS, _ALB_REQUEST, _ALB_CREATED = 8, 12, 21


class Line(NamedTuple):
    """`begins` is whether the time is when the request came; access logs give when its answer left."""

    time_ns: int
    method: str = ""
    path: str = ""
    status: str = ""
    fields: Mapping[str, Any] = {}


Read = Callable[[str], Line]
"""Raises `ValueError` for a line that is none of its kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of log; `stamped_at_end` is whether its times are those of answers."""

    name: str
    read: Read
    stamped_at_end: bool = False


def access_line(text: str) -> Line:
    """Apache's and nginx's Common and Combined formats."""
    found = _ACCESS.search(text)
    if found is None:
        raise ValueError(text)
    time, method, path, status = found.groups()
    return Line(stamp_ns(time), method or "", path or "", status)


def envoy_line(text: str) -> Line:
    found = _ENVOY.search(text)
    if found is None:
        raise ValueError(text)
    time, method, path, status = found.groups()
    return Line(stamp_ns(time), method or "", path or "", status)


def alb_line(text: str) -> Line:
    """A line of AWS' application load balancer; the request's creation where it is written."""
    if _ALB.match(text) is None:
        raise ValueError(text)
    parts = _QUOTED.findall(text)
    if len(parts) <= _ALB_REQUEST:
        raise ValueError(text)
    method, _, rest = parts[_ALB_REQUEST].strip('"').partition(" ")
    created = parts[_ALB_CREATED] if len(parts) > _ALB_CREATED else "-"
    time_ns = stamp_ns(parts[1] if created == "-" else created)
    return Line(time_ns, method, path_of(rest.partition(" ")[0]), parts[_ALB_STATUS])


def path_of(url: str) -> str:
    """The path of a URL or of a request's target."""
    _, scheme, rest = url.partition("://")
    return "/" + rest.partition("/")[2] if scheme else url


def json_line(time_field: str | None) -> Read:
    def read(text: str) -> Line:
        try:
            fields = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(text) from error
        if not isinstance(fields, dict):
            raise ValueError(text)
        return line_of(fields, time_field)

    return read


def row_line(names: Sequence[str], time_field: str | None, split: Callable[[str], list[str]]) -> Read:
    """Lines of a table whose columns have `names`."""

    def read(text: str) -> Line:
        cells = split(text)
        if len(cells) != len(names):
            raise ValueError(text)
        return line_of(dict(zip(names, cells, strict=True)), time_field)

    return read


def line_of(fields: Mapping[str, Any], time_field: str | None) -> Line:
    lower = {name.strip().lower(): value for name, value in fields.items()}
    named = time_field.lower() if time_field else next((n for n in TIMES if lower.get(n) not in (None, "")), "")
    if lower.get(named) in (None, ""):
        raise ValueError(fields)
    in_ms = named.endswith("_ms") or (named == "timestamp" and "hash_ids" in lower)  # Mooncake's
    time_ns = round(float(str(lower[named])) * 1e6) if in_ms else stamp_ns(str(lower[named]))
    if named == "end_timestamp" and lower.get("duration"):
        time_ns -= stamp_ns(str(lower["duration"]))
    if not 0 <= time_ns < LATEST_NS:
        raise ValueError(fields)
    request = str(first_of(lower, PATHS) or "")
    method, space, rest = request.partition(" ")
    path = rest.partition(" ")[0] if space else request
    given = first_of(lower, METHODS)
    return Line(
        time_ns, str(given or (method if space else "")), path_of(path), str(first_of(lower, STATUSES) or ""), lower
    )


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
