"""Published traces of language models, as rows of `arrival_s,prompt_tokens,output_tokens`.

Azure's (`TIMESTAMP,ContextTokens,GeneratedTokens`), Mooncake's as JSON lines (`timestamp`,
`input_length`, `output_length`) or as CSV (`timestamp_ms,input_tokens,output_tokens`), and
BurstGPT's (`Timestamp`, `Request tokens`, `Response tokens`), each beside columns of other names.
Requests without an answer are left out, as nothing is known of them.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import UNREADABLE

NS_PER_MS = 1_000_000

Names = tuple[str, str, str]


def of_clock(text: str) -> int:
    """Nanoseconds since 1970, to the microsecond; without a zone in UTC."""
    at = datetime.fromisoformat(text)
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1) * 1000


def of_ms(text: str) -> int:
    return round(float(text) * NS_PER_MS)


def of_s(text: str) -> int:
    return round(float(text) * NS_PER_S)


FORMS: dict[Names, Callable[[str], int]] = {
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"): of_clock,
    ("timestamp_ms", "input_tokens", "output_tokens"): of_ms,
    ("Timestamp", "Request tokens", "Response tokens"): of_s,
}
"""The columns of each form: its time, and the tokens of prompts and of answers; and how a time is read."""
OF_LINES: Names = ("timestamp", "input_length", "output_length")
"""The fields of Mooncake's JSON lines, whose times are in milliseconds."""


def as_rows(path: Path, data: bytes) -> bytes:
    """The same trace in Gearshift's columns; data of another form stays as it is.

    Times count from the first request. Raises `InvalidInput` for a line that cannot be read.
    """
    first = data.partition(b"\n")[0]
    if first.startswith(b"{") and all(name.encode() in first for name in OF_LINES):
        return _converted(path, _json_lines(path, data), OF_LINES, of_ms)
    header = first.decode("utf-8", "replace").strip("\ufeff\r ").split(",")
    names = next((form for form in FORMS if set(form) <= {name.strip(' "') for name in header}), None)
    return data if names is None else _converted(path, _csv_lines(path, data), names, FORMS[names])


def _csv_lines(path: Path, data: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace")), skipinitialspace=True)
    try:
        for row in reader:
            if any((value or "").strip() for value in row.values() if isinstance(value, str)):
                yield reader.line_num, row
    except csv.Error as error:
        remedy = "close every quote, and leave out cells of more than 100,000 characters"
        raise InvalidInput(f"is no table of commas ({error})", where=str(path), remedy=remedy) from None


def _json_lines(path: Path, data: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except UNREADABLE:
                raise _no_request(path, number, line.decode("utf-8", "replace"), OF_LINES) from None
            yield number, row


def _converted(
    path: Path, lines: Iterator[tuple[int, Mapping[str, Any]]], names: Names, time_ns: Callable[[str], int]
) -> bytes:
    rows = [_row(path, row, names, time_ns, number) for number, row in lines]
    answered = sorted(row for row in rows if row[1] > 0 and row[2] > 0)
    require(
        bool(answered) or not rows,
        f"none of its {len(rows)} requests has tokens of both prompt and answer",
        where=str(path),
        remedy="give a trace with answers",
    )
    first_ns = answered[0][0] if answered else 0
    written = [f"{(at_ns - first_ns) / NS_PER_S:.9f},{prompt},{output}\n" for at_ns, prompt, output in answered]
    return ("arrival_s,prompt_tokens,output_tokens\n" + "".join(written)).encode()


def _row(
    path: Path, row: Mapping[str, Any], names: Names, time_ns: Callable[[str], int], line: int
) -> tuple[int, int, int]:
    time, *tokens = names
    try:
        prompt, output = (int(float(row[name])) for name in tokens)
        if min(prompt, output) < 0:
            raise ValueError
        return time_ns(str(row[time]).strip()), prompt, output
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        raise _no_request(path, line, ",".join(str(row.get(name)) for name in names), names) from None


def _no_request(path: Path, line: int, shown: str, names: Names) -> InvalidInput:
    remedy = f"give a time and whole numbers of tokens, as in the column {names[0]}"
    return InvalidInput(f"{shown[:80]!r} is no request", where=f"{path}, line {line}", remedy=remedy)
