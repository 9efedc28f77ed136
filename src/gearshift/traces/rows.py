"""The rows of a trace's CSV file as numbers, checked; a fault names its line."""

import codecs
import io
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, how_to_write, require
from gearshift.request import NO_DEADLINE_NS
from gearshift.support.decoding import csv_cells
from gearshift.support.files import decoded
from gearshift.traces.generate import MOST_REQUESTS

LONGEST_S = 10_000_000
LONGEST_DEADLINE_S = 86_400
MOST_TOKENS = 100_000_000
_ACCESS_LOG = re.compile(r"\[\d\d/\w\w\w/\d{4}:\d\d:\d\d:\d\d")
_FORMS = (
    "give a column `arrival_s` (seconds), and perhaps `deadline_s`, or `prompt_tokens` and `output_tokens`, or the "
    "columns `second,requests`"
)
TOKENS = ("prompt_tokens", "output_tokens")
_COLUMNS = ("arrival_s",), ("arrival_s", "deadline_s"), ("arrival_s", *TOKENS), ("second", "requests")
_OPTIONAL = "deadline_s"


@dataclass(frozen=True, slots=True)
class Rows:
    """The numbers (rows, columns) below a header, columns in canonical order, and their source."""

    path: Path
    data: bytes
    columns: tuple[str, ...]
    values: NDArray[np.float64]

    def complain(self, row: int, what: str, *, field: str, remedy: str) -> InvalidInput:
        line = _line_of_row(self.data, row)
        if row == len(self.values) - 1 and not self.data.endswith(b"\n"):
            remedy += " (the file does not end with a line end: it may be cut off)"
        return InvalidInput(what, where=f"{self.path}, line {line}, field {field!r}", remedy=remedy)

    def check(self, column: int, bad: NDArray[np.bool_], what: str, *, remedy: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            value = self.values[row, column]
            raise self.complain(row, f"{value:.12g} {what}", field=self.columns[column], remedy=remedy)


def read_rows(path: Path, data: bytes) -> Rows:
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = decoded(data, where=str(path)).encode()
    head, _, body = data.partition(b"\n")
    first = head.decode("utf-8", "replace")
    names = tuple(name.strip(" \t\r\"'") for name in first.split(","))
    columns = next((form for form in _COLUMNS if sorted(form) == sorted(names)), None)
    if columns is None:
        raise _no_header(first, names, where=f"{path}, line 1")
    require(bool(body.strip()), "there are no rows under the header", where=str(path), remedy=_FORMS)
    require(
        body.count(b"\n") <= MOST_REQUESTS,
        "the trace has more than 200 million rows",
        where=str(path),
        remedy="cut the file into shorter traces",
    )
    order = [names.index(name) for name in columns]
    return Rows(path=path, data=data, columns=columns, values=_parse(path, body, names)[:, order])


def _no_header(first: str, names: tuple[str, ...], *, where: str) -> InvalidInput:
    shown = ", ".join(names)[:80]
    if _ACCESS_LOG.search(first):
        remedy = "make a trace of it with `gearshift trace FILE`"
        return InvalidInput(f"this is an access log, and no trace: {shown!r}", where=where, remedy=remedy)
    if all(map(_is_number, names)):
        return InvalidInput(f"there is no header, but {shown!r}", where=where, remedy=f"put one first: {_FORMS}")
    if any(mark in first for mark in ";\t|") and "," not in first:
        return InvalidInput(f"the header has no commas: {shown!r}", where=where, remedy="separate columns with commas")
    return InvalidInput(f"the columns are {shown!r}", where=where, remedy=_FORMS)


def _parse(path: Path, body: bytes, names: tuple[str, ...]) -> NDArray[np.float64]:
    text = io.TextIOWrapper(io.BytesIO(body), encoding="utf-8", errors="replace")
    optional: Any = {names.index(_OPTIONAL): _or_none} if _OPTIONAL in names else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = np.loadtxt(
                text, delimiter=",", quotechar='"', comments=None, ndmin=2, dtype=np.float64, converters=optional
            )
            if values.shape[1] == len(names):
                return values
    except (ValueError, UserWarning):
        pass
    lines = body.decode("utf-8", "replace").splitlines()
    raise _first_malformed(path, lines, names, cut=not body.endswith(b"\n"))


def _first_malformed(path: Path, lines: list[str], names: tuple[str, ...], *, cut: bool) -> InvalidInput:
    for i, line in enumerate(lines):
        if not line:
            continue
        where, hint = f"{path}, line {i + 2}", "; the file may be cut off" if cut and i == len(lines) - 1 else ""
        fields = csv_cells(line)
        if len(fields) != len(names):
            what = f"{line[:80]!r} is not {'a number' if len(names) == 1 else 'two fields'}"
            in_parts = line if (len(names), len(fields)) == (1, 2) else ""
            return InvalidInput(what, where=where, remedy=how_to_write(in_parts, otherwise="mend the line") + hint)
        for name, field in zip(names, fields, strict=True):
            if not _is_number(field, _or_none if name == _OPTIONAL else _plain):
                otherwise = "write seconds, or leave the field empty" if name == _OPTIONAL else "mend the line"
                return InvalidInput(
                    f"{field[:80]!r} is not a number",
                    where=where if len(names) == 1 else f"{where}, field {name!r}",
                    remedy=how_to_write(field, otherwise=otherwise) + hint,
                )
    return InvalidInput("the rows cannot be read as numbers", where=str(path), remedy=_FORMS)


def _plain(text: str) -> float:
    """Parse a number strictly: not forms that only Python accepts, such as 1_0."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _or_none(text: str) -> float:
    if not text.strip():
        return math.nan
    if not math.isfinite(number := _plain(text)):
        raise ValueError(text)
    return number


def _is_number(text: str, read: Callable[[str], float] = _plain) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _line_of_row(data: bytes, row: int) -> int:
    """The line (from 1) of data row `row` (from 0); empty lines count as lines but not as rows."""
    lines = data.decode("utf-8", "replace").splitlines()
    filled = (i for i, line in enumerate(lines[1:], start=2) if line)
    return next((number for i, number in enumerate(filled) if i == row), len(lines))


def check_arrivals(rows: Rows) -> float:
    _check_times(rows)
    times = rows.values[:, 0]
    falls = np.concatenate([[False], np.diff(times) < 0])
    rows.check(0, falls, "is before the time above it", remedy="sort the rows by time")
    return float(np.floor(times[-1] + 0.5e-9)) + 1


def check_deadlines(rows: Rows) -> NDArray[np.int64]:
    seconds = rows.values[:, 1]
    remedy = f"give seconds from the arrival on, more than 0 and up to {LONGEST_DEADLINE_S}, or leave the field empty"
    rows.check(1, seconds < 0.5e-9, "is no time to answer in", remedy=remedy)
    rows.check(1, seconds > LONGEST_DEADLINE_S, "is more than a day", remedy=remedy)
    given = np.isfinite(seconds)
    return np.where(given, np.rint(np.where(given, seconds, 0.0) * NS_PER_S).astype(np.int64), NO_DEADLINE_NS)


def check_tokens(rows: Rows) -> NDArray[np.int64]:
    """The tokens (rows, 2) of prompts and of answers."""
    for column in (1, 2):
        tokens = rows.values[:, column]
        remedy = f"give a whole number from 1 to {MOST_TOKENS}"
        usable = (tokens >= 1) & (tokens <= MOST_TOKENS) & (tokens == np.floor(tokens))
        rows.check(column, ~usable, "is no number of tokens", remedy=remedy)
    return rows.values[:, 1:].astype(np.int64)


def check_counts(rows: Rows) -> float:
    _check_times(rows)
    seconds, counts = rows.values.T
    rows.check(0, seconds != np.floor(seconds), "is not a whole second", remedy="give one row per whole second")
    steps = np.concatenate([[1.0], np.diff(seconds)])
    rows.check(0, steps == 0, "is there twice", remedy="give each second once")
    rows.check(0, steps < 0, "is before the second above it", remedy="sort the rows by second")
    rows.check(1, ~np.isfinite(counts), "is not finite", remedy="give a whole number from 0")
    rows.check(1, counts > MOST_REQUESTS, "is more than 200 million requests", remedy="check the count")
    rows.check(1, counts < 0, "is negative", remedy="give a whole number from 0")
    rows.check(1, counts != np.floor(counts), "is not a whole number of requests", remedy="give a whole number from 0")
    return float(seconds[-1]) + 1


def _check_times(rows: Rows) -> None:
    times = rows.values[:, 0]
    rows.check(0, ~np.isfinite(times), "is not finite", remedy="give seconds since the trace began")
    rows.check(0, times < 0, "is negative", remedy="give seconds since the trace began")
    rows.check(
        0,
        times >= LONGEST_S,
        "is more than 10 million seconds",
        remedy="give seconds since the trace began, not since 1970, and cut longer traces",
    )
