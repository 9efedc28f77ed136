"""The forms of logs whose lines are requests: a form is a row of `FORMS`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gearshift.support.decoding import csv_cells
from gearshift.traces.logs.containers import contained
from gearshift.traces.logs.lines import TIMES, Form, Head, Line, Read, line_of
from gearshift.traces.stamps import stamp_ns


def by_pattern(pattern: re.Pattern[str], *, of_container: bool = False) -> Callable[[Head], Read]:
    """Lines in which the pattern's groups are time, method, path and status.

    With `of_container` the stamp that a container's runtime put before the line counts, as it is finer.
    """

    def read(text: str) -> Line:
        found_ns, inner = contained(text)
        found = pattern.search(inner)
        if found is None:
            raise ValueError(text)
        time, method, path, status = found.groups()
        time_ns = stamp_ns(time) if found_ns is None or not of_container else found_ns
        return Line(time_ns, method or "", path or "", status)

    return lambda head: read


def by_place(begin: re.Pattern[str], least: int, places: Mapping[str, int]) -> Callable[[Head], Read]:
    """Lines of words and quoted texts, at least so many: those at `places` are fields."""

    def read(text: str) -> Line:
        inner = contained(text)[1]
        parts = _QUOTED.findall(inner)
        if begin.match(inner) is None or len(parts) < least:
            raise ValueError(text)
        found = {name: parts[place].strip('"') for name, place in places.items() if place < len(parts)}
        return line_of({name: part for name, part in found.items() if part != "-"}, None)

    return lambda head: read


def json_lines(head: Head) -> Read:
    """Lines of objects; one that holds a line of an access log or of JSON, as containers' logs do, is that."""

    def read(text: str) -> Line:
        found_ns, inner = contained(text)
        fields = _object(inner)
        if found_ns is not None and not any(name.strip().lower() in TIMES for name in fields):
            fields["time"] = found_ns
        line = line_of(fields, head.time_field)
        written = next((line.fields[name] for name in _WRITTEN if isinstance(line.fields.get(name), str)), "")
        if line.path or not written:
            return line
        found = _ACCESS.search(written)
        if found is not None:
            _, method, path, status = found.groups()
            return line._replace(method=method or "", path=path or "", status=status)
        if written.startswith("{"):
            try:
                return line_of(fields | _object(written), head.time_field)
            except ValueError:
                return line
        return line

    return read


def _object(text: str) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(text) from error
    if not isinstance(fields, dict):
        raise ValueError(text)
    return fields


def table(head: Head) -> Read:
    mark = mark_of(head.lines)
    names = csv_cells(head.lines[0], mark)

    def read(text: str) -> Line:
        row = csv_cells(text, mark)
        if len(row) != len(names):
            raise ValueError(text)
        return line_of(dict(zip(names, row, strict=True)), head.time_field)

    return read


def mark_of(lines: Sequence[str]) -> str:
    """What parts the columns of a table."""
    return next((mark for mark in "\t;," if mark in lines[0]), ",")


_WORD, _REST = r'[^\s"\\]*+(?:\\.[^\s"\\]*+)*+', r'[^"\\]*+(?:\\.[^"\\]*+)*+'
_REQUEST = rf'"(?:(?=[^\s"])({_WORD}) ({_WORD}){_REST}|{_REST})"'
"""In quotes; possessive throughout, as matching a line that was cut would take time in its square."""
_ACCESS = re.compile(rf"\[(\d\d/\w{{3}}/\d{{4}}:[\d:]++(?: [+-]\d{{4}})?)\] {_REQUEST} (\d{{3}})")
_ENVOY = re.compile(rf"^\[(\d{{4}}-\d\d-\d\dT[^\]]++)\] {_REQUEST} (\d+)")
_BALANCER = re.compile(r"^(?:https?|h2|grpcs?|wss?) \d{4}-\d\d-\d\dT\S+ \S+ \S+:\d+ ")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
_WRITTEN = "log", "message", "msg", "line", "textpayload"
"""Fields that may have a line of an access log, or of JSON, as a container wrote it."""

FORMS = (
    Form("an access log", by_pattern(_ACCESS, of_container=True), stamped_at_end=True),  # Apache's and nginx's
    Form("Envoy's access log", by_pattern(_ENVOY)),
    Form(  # AWS' application load balancer's, which may lack when the request was created
        "a load balancer's log", by_place(_BALANCER, 13, {"start": 21, "date": 1, "elb_status_code": 8, "request": 12})
    ),
    Form("JSON lines", json_lines),
    Form("a W3C extended log", "gearshift.traces.logs.extended:extended_lines", stamped_at_end=True),
    Form("a table", table, names_first=True),
)
"""Where several can read the same number of lines, the first does."""
