"""Traces from CSV files.

One row is a request (`arrival_s`, `deadline_s`) or a second (`second,requests`).
"""

import codecs
import csv
import hashlib
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
from gearshift.support.files import PathLike, decoded, read_bytes, write_atomically
from gearshift.traces.generate import MOST_REQUESTS, Arrivals, arrivals_of_rates
from gearshift.workload import Reading, Trace

LONGEST_S = 10_000_000
LONGEST_DEADLINE_S = 86_400
_ACCESS_LOG = re.compile(r"\[\d\d/\w\w\w/\d{4}:\d\d:\d\d:\d\d")
_FORMS = "give a column `arrival_s` (seconds), and perhaps `deadline_s`, or the columns `second,requests`"
_COLUMNS = ("arrival_s",), ("arrival_s", "deadline_s"), ("second", "requests")
_OPTIONAL = "deadline_s"
_DEFAULTS = Reading(file_sha256="")
_OPTIONS = ("rate_scale", "start_s", "duration_s", "arrivals", "seed")
_ROWS_AT_ONCE = 1_000_000


def read_trace(
    path: PathLike,
    *,
    rate_scale: float = 1.0,
    start_s: float = 0.0,
    duration_s: float | None = None,
    arrivals: Arrivals = "poisson",
    seed: int = 0,
) -> Trace:
    """Read a trace from CSV; times count from `start_s`, up to the end of the last begun second.

    Column `arrival_s` holds sorted seconds since the trace began. `rate_scale` s turns each
    arrival into floor(s) copies, and one more with probability s - floor(s): the first at its
    instant, the others uniformly within half the gap to either neighbour, so that bursts stay
    bursts. `arrivals` is not used. An additional column `deadline_s` may give the seconds from
    arrival within which a request wants its answer; an empty field means none.

    Columns `second` (whole, rising) and `requests` (whole) hold counts; a missing second has none.
    Counts times `rate_scale` are rates per second: `uniform` spreads them evenly, with exactly
    rounded running totals; `poisson` draws Poisson arrivals at each second's rate.

    `start_s` and `duration_s` cut `[start_s, start_s + duration_s)` out of the file's own time.
    `sha256` covers the file's bytes and every option that changes the arrivals. Times are exact to
    the nanosecond up to 48 days.

    Raises `InvalidInput` for a file that is missing, empty, cut off or malformed (with the line),
    for a window outside of the trace, for a trace without requests, and for more than 200 million.
    """
    data = read_bytes(path, remedy="check the path of the trace")
    return _trace_of(
        Path(path), data, rate_scale=rate_scale, start_s=start_s, duration_s=duration_s, arrivals=arrivals, seed=seed
    )


def read_as_for(
    source: Reading | None,
    path: Path,
    *,
    the_same: bool,
    remedy: str = "check the path of the trace",
    **given: Any,
) -> Trace:
    """Read the trace in `path` with the options of `source`, except for those in `given`.

    Where it need not be `the_same` file, a file with other content is read by the defaults. Values
    of None in `given` count as not given.
    """
    data = read_bytes(path, remedy=remedy)
    as_for = source if source and (the_same or hashlib.sha256(data).hexdigest() == source.file_sha256) else _DEFAULTS
    how = {name: getattr(as_for, name) for name in _OPTIONS}
    return _trace_of(path, data, **how | {name: value for name, value in given.items() if value is not None})


def _trace_of(
    path: Path,
    data: bytes,
    *,
    rate_scale: float,
    start_s: float,
    duration_s: float | None,
    arrivals: Arrivals,
    seed: int,
) -> Trace:
    require(
        0 < rate_scale <= 1e9, f"rate_scale is {rate_scale}", remedy="give a positive number up to a thousand million"
    )
    rows = _read_rows(path, data)
    options: tuple[object, ...]
    left_ns = None
    if rows.columns[0] == "arrival_s":
        end_s, options = _check_arrivals(rows), (rate_scale, seed if rate_scale != 1 else 0)
        window = _window(path, start_s, duration_s, end_s)
        all_ns = np.rint(rows.values[:, 0] * NS_PER_S).astype(np.int64)
        first, times_ns = _cut_ns(all_ns, window)
        times_ns, rows_of = _scale_arrivals(
            times_ns, rate_scale, seed, path, window_ns=round((window[1] - window[0]) * NS_PER_S)
        )
        if len(rows.columns) > 1:
            left_ns = _check_deadlines(rows)[first + rows_of]
    else:
        end_s, options = _check_counts(rows), (rate_scale, arrivals, seed if arrivals == "poisson" else 0)
        window = _window(path, start_s, duration_s, end_s)
        times_ns = _arrivals_of_counts(rows, rate_scale, window, arrivals, seed)
    require(
        len(times_ns) > 0, "no requests are left", where=str(path), remedy="widen the window or raise the rate scale"
    )
    content = hashlib.sha256(data)
    return Trace(
        arrivals_ns=times_ns,
        duration_s=window[1] - window[0] if duration_s is None else duration_s,
        sha256=_fingerprint(content.digest(), (*options, start_s, duration_s)),
        reading=Reading(
            file_sha256=content.hexdigest(),
            rate_scale=rate_scale,
            start_s=start_s,
            duration_s=duration_s,
            arrivals=arrivals,
            seed=seed,
        ),
        left_ns=left_ns,
        of_counts=rows.columns[0] == "second",
    )


def write_trace(trace: Trace, path: PathLike) -> None:
    """Write arrivals, and deadlines if any, in seconds with nine decimals, whole or not at all."""
    left_ns = trace.left_ns
    parts = ["arrival_s\n" if left_ns is None else "arrival_s,deadline_s\n"]
    for begin in range(0, len(trace), _ROWS_AT_ONCE):
        chunk = slice(begin, begin + _ROWS_AT_ONCE)
        fields = [_seconds(trace.arrivals_ns[chunk])]
        if left_ns is not None:
            given = left_ns[chunk] < NO_DEADLINE_NS
            written = zip(_seconds(left_ns[chunk]), given.tolist(), strict=True)
            fields.append([text if has_one else "" for text, has_one in written])
        parts += [",".join(row) + "\n" for row in zip(*fields, strict=True)]
    write_atomically(path, "".join(parts).encode())


def _seconds(times_ns: NDArray[np.int64]) -> list[str]:
    seconds, rest = np.divmod(times_ns, NS_PER_S)
    return list(map("%d.%09d".__mod__, zip(seconds.tolist(), rest.tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class _Rows:
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


def _read_rows(path: Path, data: bytes) -> _Rows:
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
    return _Rows(path=path, data=data, columns=columns, values=_parse(path, body, names)[:, order])


def _no_header(first: str, names: tuple[str, ...], *, where: str) -> InvalidInput:
    shown = ", ".join(names)[:80]
    if _ACCESS_LOG.search(first):
        remedy = "count the requests of each second, as the guide on traces shows"
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
        fields = _fields(line)
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


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error:
        return []


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


def _check_arrivals(rows: _Rows) -> float:
    _check_times(rows)
    times = rows.values[:, 0]
    falls = np.concatenate([[False], np.diff(times) < 0])
    rows.check(0, falls, "is before the time above it", remedy="sort the rows by time")
    return float(np.floor(times[-1] + 0.5e-9)) + 1


def _check_deadlines(rows: _Rows) -> NDArray[np.int64]:
    seconds = rows.values[:, 1]
    remedy = f"give seconds from the arrival on, more than 0 and up to {LONGEST_DEADLINE_S}, or leave the field empty"
    rows.check(1, seconds < 0.5e-9, "is no time to answer in", remedy=remedy)
    rows.check(1, seconds > LONGEST_DEADLINE_S, "is more than a day", remedy=remedy)
    given = np.isfinite(seconds)
    return np.where(given, np.rint(np.where(given, seconds, 0.0) * NS_PER_S).astype(np.int64), NO_DEADLINE_NS)


def _check_counts(rows: _Rows) -> float:
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


def _check_times(rows: _Rows) -> None:
    times = rows.values[:, 0]
    rows.check(0, ~np.isfinite(times), "is not finite", remedy="give seconds since the trace began")
    rows.check(0, times < 0, "is negative", remedy="give seconds since the trace began")
    rows.check(
        0,
        times >= LONGEST_S,
        "is more than 10 million seconds",
        remedy="give seconds since the trace began, not since 1970, and cut longer traces",
    )


def _window(path: Path, start_s: float, duration_s: float | None, end_s: float) -> tuple[float, float]:
    where, remedy = str(path), f"stay within the {end_s:g} s of the trace"
    require(0 <= start_s < math.inf, f"start_s is {start_s}", where=where, remedy=remedy)
    require(start_s < end_s, f"start_s {start_s:g} is after the trace's end", where=where, remedy=remedy)
    if duration_s is None:
        return start_s, end_s
    require(0 < duration_s < math.inf, f"duration_s is {duration_s}", where=where, remedy=remedy)
    require(
        start_s + duration_s <= end_s * (1 + 1e-12),
        f"the window from {start_s:g} s to {start_s + duration_s:g} s ends after the trace",
        where=where,
        remedy=remedy,
    )
    return start_s, start_s + duration_s


def _cut_ns(times_ns: NDArray[np.int64], window: tuple[float, float]) -> tuple[int, NDArray[np.int64]]:
    start_ns, end_ns = (round(second * NS_PER_S) for second in window)
    first, last = np.searchsorted(times_ns, [start_ns, end_ns], side="left")
    return int(first), times_ns[first:last] - start_ns


def _scale_arrivals(
    times_ns: NDArray[np.int64], scale: float, seed: int, path: Path, *, window_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Scale the number of arrivals (n,), sorted; also the source of each; see `read_trace`."""
    if scale == 1 or len(times_ns) == 0:
        return times_ns, np.arange(len(times_ns))
    _check_number(len(times_ns) * scale, path)
    generator = np.random.default_rng(seed)
    whole = math.floor(scale)
    copies = whole + (generator.random(len(times_ns)) < scale - whole).astype(np.int64)
    extra = np.repeat(np.arange(len(times_ns)), np.maximum(copies - 1, 0))
    half_gaps = np.concatenate([[0.0], np.diff(times_ns) / 2, [0.0]])
    place = generator.uniform(-1, 1, len(extra))
    jitter = np.where(place < 0, place * half_gaps[extra], place * half_gaps[extra + 1])
    jittered = np.clip(times_ns[extra] + np.rint(jitter).astype(np.int64), 0, window_ns - 1)
    scaled_ns = np.concatenate([times_ns[copies >= 1], jittered])
    order = np.argsort(scaled_ns, kind="stable")
    return scaled_ns[order], np.concatenate([np.flatnonzero(copies >= 1), extra])[order]


def _arrivals_of_counts(
    rows: _Rows, scale: float, window: tuple[float, float], arrivals: Arrivals, seed: int
) -> NDArray[np.int64]:
    first, last = math.floor(window[0]), math.ceil(window[1])
    seconds = rows.values[:, 0].astype(np.int64)
    inside = (seconds >= first) & (seconds < last)
    rates = np.zeros(last - first)
    rates[seconds[inside] - first] = rows.values[inside, 1] * scale
    _check_number(float(rates.sum()), rows.path)
    times_ns = arrivals_of_rates(rates, arrivals, seed)
    return _cut_ns(times_ns, (window[0] - first, window[1] - first))[1]


def _check_number(requests: float, path: Path) -> None:
    require(
        requests <= MOST_REQUESTS,
        f"the trace has about {requests:.3g} requests, more than 200 million",
        where=str(path),
        remedy="cut a shorter window, or scale the rate down",
    )


def _fingerprint(content: bytes, options: tuple[object, ...]) -> str:
    return hashlib.sha256(content + repr(options).encode()).hexdigest()
