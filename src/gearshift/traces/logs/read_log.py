"""A trace from a log, of whatever kind it is found to be."""

import gzip
import io
import math
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import csv_cells
from gearshift.support.files import PathLike, open_to_read
from gearshift.traces.generate import MOST_REQUESTS
from gearshift.traces.logs.extended import MARK
from gearshift.traces.logs.forms import FORMS, mark_of
from gearshift.traces.logs.lines import RATES, TIMES, Form, Head, Line, Read, counted_by, number_of, uncounted_in
from gearshift.traces.logs.series import grid_counts, minute_counts, prometheus_counts
from gearshift.traces.rows import LONGEST_S

STANDARD_INPUT = "-"
_LONGEST_LINE = 1 << 16
_MOST_PATHS = 10_000
_LOOKED_AT = 64
_TOLD_EVERY = 20_000
_LARGEST_ANSWER = 128 << 20
"""Bytes of an answer of Prometheus, which is held whole; one of 11,000 points for each of 100 series has 30 MB."""
_SMALL_BYTES, _MOST_TIMES = 4 << 20, 400
"""A log that unpacks to more times its size, and more than this, has one line again and again."""
UNREADABLE_LINE = (ValueError, OverflowError, RecursionError)
_PROMETHEUS = b'"resultType"'
_LEAST_MINUTES = 60
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogRead:
    """Requests found in a log: their times, or where these are not known their number in each second.

    `skipped` lines were not of the kind, the first of them `first_skipped`; `left_out` were not
    asked for. `paths` has the number of requests for each path, up to 10,000 of them. Where the log has
    numbers of requests, `counted_by` is their column and `step_s` the time that each is of; where such a
    column is not used, `uncounted` says why. Rates of Prometheus are missing for `gap_s`.
    """

    kind: str
    arrivals_ns: NDArray[np.int64] | None
    counts: NDArray[np.int64]
    stamped_at_end: bool = False
    skipped: int = 0
    first_skipped: str = ""
    left_out: int = 0
    paths: Mapping[str, int]
    counted_by: str = ""
    step_s: float = 0.0
    uncounted: str = ""
    gap_s: float = 0.0

    @property
    def requests(self) -> int:
        return int(self.counts.sum())

    def csv(self) -> bytes:
        """The trace's file: `arrival_s`, or `second,requests` for times in whole seconds."""
        if self.arrivals_ns is None:
            rows = "".join(f"{second},{self.counts[second]}\n" for second in np.flatnonzero(self.counts))
            last = len(self.counts) - 1
            end = "" if self.counts[last] else f"{last},0\n"
            return f"second,requests\n{rows}{end}".encode()
        seconds, rest = np.divmod(self.arrivals_ns, NS_PER_S)
        return (
            "arrival_s\n" + "".join(map("%d.%09d\n".__mod__, zip(seconds.tolist(), rest.tolist(), strict=True)))
        ).encode()


def read_log(
    path: PathLike,
    *,
    time_field: str | None = None,
    path_prefix: str | None = None,
    method: str | None = None,
    status: str | None = None,
    where: Mapping[str, str] | None = None,
    whole_seconds: bool = False,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> LogRead:
    """Read the requests of a log; `-` is standard input, and a name that ends in `.gz` is unpacked.

    Known are access logs of nginx, Apache and what writes like them, of Envoy and of AWS' load
    balancer, and W3C extended logs (IIS, CloudFront), also after the stamps of a container's runtime;
    JSON lines (as of Caddy) and CSV with a column of times, which `time_field` names where it is called
    otherwise, of requests or with a column of their numbers (`requests`) or rates (`rps`) at equal
    steps; answers of Prometheus to a range query; and the counts by the minute of Azure Functions.
    `path_prefix`, `method`, `status` (as 200 or 2xx) and `where` (field: value, of JSON and CSV)
    choose requests. With `whole_seconds`, or where all times are in whole seconds, the trace has counts.

    `progress` is told the share that is read.

    Raises `InvalidInput` for a file that is missing or of no known kind, and where nothing is left.
    """
    name = "standard input" if path == STANDARD_INPUT else str(path)
    with _opened(path) as file:
        head = file.peek(1 << 16)
        require(bool(head.strip()), "the file is empty", where=name)
        if head.lstrip().startswith(b"{") and _PROMETHEUS in head:
            content = file.read(_LARGEST_ANSWER + 1)
            what = f"the answer is larger than {_LARGEST_ANSWER >> 20} MiB"
            require(len(content) <= _LARGEST_ANSWER, what, where=name, remedy="query a shorter range, or fewer series")
            counts, gap_s = prometheus_counts(content, name)
            return LogRead(kind="Prometheus", arrivals_ns=None, counts=counts, paths={}, gap_s=gap_s)
        lines = _told(_lines(file), file, path, progress)
        first = list(islice(lines, _LOOKED_AT))
        minutes = _minute_columns(first[0])
        if minutes:
            return _of_minutes(first, lines, minutes, name, where or {})
        chosen = _Chosen(path_prefix, method, status, where or {})
        return _of_lines(_form_of(Head(first, time_field), name), lines, chosen, name, whole_seconds)


@dataclass(frozen=True, slots=True)
class _Chosen:
    path_prefix: str | None
    method: str | None
    status: str | None
    where: Mapping[str, str]

    def has(self, line: Line) -> bool:
        if self.path_prefix is not None and not line.path.startswith(self.path_prefix):
            return False
        if self.method is not None and line.method.upper() != self.method.upper():
            return False
        if self.status is not None and not _is_status(line.status, self.status):
            return False
        return all(str(line.fields.get(name.lower(), "")) == value for name, value in self.where.items())


def _is_status(status: str, asked: str) -> bool:
    return len(status) == len(asked) and all(a in ("x", "X", s) for s, a in zip(status, asked, strict=True))


@contextmanager
def _opened(path: PathLike) -> Iterator[io.BufferedReader]:
    if path == STANDARD_INPUT:
        yield io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False))
        return
    try:
        raw: io.BufferedReader = io.BufferedReader(open_to_read(path))
        with raw:
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw)) if str(path).endswith(".gz") else raw
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(
            f"the log cannot be read: {reason}", where=str(path), remedy="check the path, and that the file is whole"
        ) from error


def _told(
    lines: Iterator[str], file: io.BufferedReader, path: PathLike, progress: Callable[[str, float], None]
) -> Iterator[str]:
    """The same lines; every so many, progress tells the share of the file's bytes that is read."""
    whole = 0 if path == STANDARD_INPUT else max(1, Path(path).stat().st_size)
    packed = getattr(file.raw, "fileobj", None)  # of a .gz, whose own bytes count
    for number, line in enumerate(lines, start=1):
        if number % _TOLD_EVERY == 0:
            _require_log(file, packed, path)
            progress(f"reading {path}", (file if packed is None else packed).tell() / whole if whole else 0.0)
        yield line


def _require_log(file: io.BufferedReader, packed: Any, path: PathLike) -> None:
    """Raise `InvalidInput` for a small file that holds lines for hours."""
    usual = packed is None or file.tell() < max(_SMALL_BYTES, _MOST_TIMES * packed.tell())
    what = f"it unpacks to more than {_MOST_TIMES} times its size, as no log does"
    require(usual, what, where=str(path), remedy="give the log itself")


def _lines(file: io.BufferedReader) -> Iterator[str]:
    """Lines that are not empty, each cut at 64 KiB, so that no file is held whole."""
    while part := file.readline(_LONGEST_LINE):
        rest = part
        while rest and not rest.endswith(b"\n") and (rest := file.readline(_LONGEST_LINE)):
            pass
        text = part.decode("utf-8", "replace").lstrip("\ufeff").strip()
        if text:
            yield text


class _Found(NamedTuple):
    """The form of a log, what reads its lines, and those of them that were looked at."""

    form: Form
    read: Read
    first: Sequence[str]


def _form_of(head: Head, name: str) -> _Found:
    """The form that reads most of the first lines."""
    readers = [(form, form.of(head)) for form in FORMS]
    found = [_Found(form, read, head.lines[form.names_first :]) for form, read in readers if read is not None]
    best, readable = max(((one, len(_Tally().all(one))) for one in found), key=lambda pair: pair[1])
    if readable * 2 <= sum(not line.startswith(MARK) for line in best.first) or readable == 0:
        _refuse_table(head, name)
        raise InvalidInput(
            f"this is no log of a known kind; it begins: {head.lines[0][:80]!r}",
            where=name,
            remedy="give an access log, or JSON lines or CSV with a column of times (`--time` names it)",
        )
    return best


def _refuse_table(head: Head, where: str) -> None:
    """Raise `InvalidInput` that says what is wrong with the times of a table, where it looks like one."""
    names, row = (csv_cells(line, mark_of(head.lines)) for line in (*head.lines, "")[:2])
    if len(names) < 2 or len(row) != len(names):
        return
    columns = {column.strip().lower(): cell for column, cell in zip(names, row, strict=True)}
    wanted = [head.time_field.lower()] if head.time_field else [column for column in TIMES if columns.get(column)]
    if wanted and wanted[0] in columns:
        raise InvalidInput(
            f"the column {wanted[0]!r} has {columns[wanted[0]][:40]!r}, which is no time that can be read",
            where=where,
            remedy="write times as 2025-11-03 09:59:30, or as seconds since 1970",
        )
    raise InvalidInput(
        f"no column of times is known among {', '.join(map(repr, (one[:40] for one in names[:20])))}",
        where=where,
        remedy="name the column of times with --time",
    )


@dataclass(slots=True)
class _Tally:
    """Counts the lines that are no requests, and the requests that were not asked for."""

    skipped: int = 0
    first_skipped: str = ""
    left_out: int = 0

    def read(self, lines: Iterable[str], read: Callable[[str], T]) -> Iterator[tuple[str, T]]:
        for line in lines:
            try:
                found = read(line)
            except UNREADABLE_LINE:
                if not line.startswith(MARK):  # a note, as a header of a W3C extended log
                    self.skipped += 1
                    self.first_skipped = self.first_skipped or line[:80]
                continue
            yield line, found

    def all(self, found: _Found) -> list[Line]:
        return [one for _, one in self.read(found.first, found.read)]


def _of_lines(found: _Found, lines: Iterator[str], chosen: _Chosen, name: str, whole_seconds: bool) -> LogRead:
    times, numbers = array("q"), array("d")
    judged = _Tally().all(found)
    counted, (unread, cell) = counted_by(judged), uncounted_in(judged)
    paths: Counter[str] = Counter()
    tally = _Tally()

    def counting(line: str) -> tuple[Line, float]:
        read = found.read(line)
        return read, number_of(read, counted) if counted else 1.0

    for line, (read, number) in tally.read(chain(found.first, lines), counting):
        path = read.path.partition("?")[0]
        if path and (path in paths or len(paths) < _MOST_PATHS):
            paths[path] += 1
        if not chosen.has(read):
            tally.left_out += 1
            continue
        require(len(times) < MOST_REQUESTS, "the log has more than 200 million requests", where=name, remedy="cut it")
        times.append(read.time_ns)
        require(
            math.isfinite(number),
            f"a number in {counted!r} is infinite: {line[:80]}",
            where=name,
            remedy="leave it out",
        )
        if counted:
            numbers.append(number)
    if not times:
        offered = ", ".join(f"{path} ({count})" for path, count in paths.most_common(3))
        raise InvalidInput(
            f"no request is left of {tally.left_out}" + (f"; the paths are {offered}" if offered else ""),
            where=name,
            remedy="choose by other values",
        )
    on_grid = grid_counts(times, numbers, name, rates=counted in RATES) if counted else None
    if on_grid is not None:
        require(bool(on_grid.counts.any()), f"all of {counted!r} are 0", where=name, remedy="give another log")
        return LogRead(
            kind="counts",
            arrivals_ns=None,
            counts=on_grid.counts,
            paths={},
            counted_by=counted,
            step_s=on_grid.step_s,
            **asdict(tally),
        )
    arrivals_ns = np.sort(np.array(times, dtype=np.int64))
    arrivals_ns -= arrivals_ns[0] // NS_PER_S * NS_PER_S
    require(
        arrivals_ns[-1] < LONGEST_S * NS_PER_S,
        "the log is longer than 10 million seconds",
        where=name,
        remedy="cut it, or look for a time that is far from the others",
    )
    counts = np.bincount(arrivals_ns // NS_PER_S)
    in_seconds = whole_seconds or not (arrivals_ns % NS_PER_S).any()
    return LogRead(
        kind=found.form.name,
        arrivals_ns=None if in_seconds else arrivals_ns,
        counts=counts,
        stamped_at_end=found.form.stamped_at_end,
        paths=paths,
        uncounted=_uncounted(counted, unread, cell, times),
        **asdict(tally),
    )


def _uncounted(counted: str, unread: str, cell: str, times: Sequence[int]) -> str:
    """Why each row is one request though a column has a name of numbers of requests; nothing without one."""
    if counted and len(times) == 1:
        return f"{counted!r} is not used, as one row does not say how long a time its number is of"
    if counted:
        return f"{counted!r} is not used, as the times are at no equal steps of a second or more"
    return f"{unread!r} is not used, as {cell[:40]!r} is no number of requests" if unread else ""


def _minute_columns(head: str) -> list[int]:
    """The places of the columns 1, 2, ... of a table by the minute, as Azure Functions publish them."""
    names = csv_cells(head, ",")
    places = [place for place, name in enumerate(names) if name.strip().isdigit()]
    wanted = [str(minute) for minute in range(1, len(places) + 1)]
    return places if len(places) >= _LEAST_MINUTES and [names[place].strip() for place in places] == wanted else []


def _of_minutes(
    first: list[str], lines: Iterator[str], minutes: list[int], name: str, where: Mapping[str, str]
) -> LogRead:
    names = [one.strip().lower() for one in csv_cells(first[0], ",")]
    total, rows, tally = np.zeros(len(minutes)), 0, _Tally()

    def counted(line: str) -> tuple[dict[str, str], NDArray[np.float64]]:
        row = csv_cells(line, ",")
        return dict(zip(names, row, strict=True)), np.array([float(row[place] or 0) for place in minutes])

    for _, (fields, counts) in tally.read(chain(first[1:], lines), counted):
        if any(fields.get(field.lower()) != value for field, value in where.items()):
            tally.left_out += 1
            continue
        rows += 1
        total += counts
    require(rows > 0 and total.sum() > 0, "no request is left", where=name, remedy="choose by other values")
    return LogRead(
        kind="counts by the minute",
        arrivals_ns=None,
        counts=minute_counts(total, name),
        paths={},
        **asdict(tally),
    )
