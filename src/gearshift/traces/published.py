"""Published traces of language models, as rows of `arrival_s,prompt_tokens,output_tokens`.

Azure's (`TIMESTAMP,ContextTokens,GeneratedTokens`), Mooncake's as JSON lines (`timestamp`,
`input_length`, `output_length`) or as CSV (`timestamp_ms,input_tokens,output_tokens`), and
BurstGPT's (`Timestamp`, `Request tokens`, `Response tokens`), each beside columns of other names.
Requests without an answer are left out, as nothing is known of them.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import UNREADABLE, numbered_lines
from gearshift.traces.stamps import in_unit, stamp_ns

Names = tuple[str, str, str]


class Form(NamedTuple):
    """The columns of a published form: a time, and the tokens of prompts and of answers.

    Times are numbers of `unit_ns`, else as clocks write them, and taken to the microsecond.
    """

    names: Names
    unit_ns: int = 0
    of_json: bool = False

    def time_ns(self, text: str) -> int:
        return in_unit(text, self.unit_ns) if self.unit_ns else stamp_ns(text) // 1000 * 1000


FORMS = (
    Form(("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    Form(("timestamp_ms", "input_tokens", "output_tokens"), 1_000_000),
    Form(("Timestamp", "Request tokens", "Response tokens"), NS_PER_S),
    Form(("timestamp", "input_length", "output_length"), 1_000_000, of_json=True),
)


def as_rows(path: Path, data: bytes) -> bytes:
    """The same trace in Gearshift's columns; data of another form stays as it is.

    Times count from the first request. Raises `InvalidInput` for a line that cannot be read.
    """
    first = data.partition(b"\n")[0].decode("utf-8", "replace").strip("\ufeff\r ")
    of_json = first.startswith("{")
    columns = set(re.findall(r'"([^"]*)" *:', first) if of_json else (name.strip(' "') for name in first.split(",")))
    form = next((one for one in FORMS if one.of_json == of_json and columns.issuperset(one.names)), None)
    if form is None:
        return data
    lines = (_json_lines if of_json else _csv_lines)(path, data, form)
    rows = [_row(path, row, form, number) for number, row in lines]
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


def _csv_lines(path: Path, data: bytes, form: Form) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace")), skipinitialspace=True)
    try:
        for row in reader:
            if any((value or "").strip() for value in row.values() if isinstance(value, str)):
                yield reader.line_num, row
    except csv.Error as error:
        remedy = "close every quote, and leave out cells of more than 100,000 characters"
        raise InvalidInput(f"is no table of commas ({error})", where=str(path), remedy=remedy) from None


def _json_lines(path: Path, data: bytes, form: Form) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in numbered_lines(data):
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except UNREADABLE:
            raise _no_request(path, number, line.decode("utf-8", "replace"), form) from None


def _row(path: Path, row: Mapping[str, Any], form: Form, line: int) -> tuple[int, int, int]:
    time, *tokens = form.names
    try:
        prompt, output = (int(float(row[name])) for name in tokens)
        if min(prompt, output) < 0:
            raise ValueError
        return form.time_ns(str(row[time]).strip()), prompt, output
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError):
        raise _no_request(path, line, ",".join(str(row.get(name)) for name in form.names), form) from None


def _no_request(path: Path, line: int, shown: str, form: Form) -> InvalidInput:
    remedy = f"give a time and whole numbers of tokens, as in the column {form.names[0]}"
    return InvalidInput(f"{shown[:80]!r} is no request", where=f"{path}, line {line}", remedy=remedy)
