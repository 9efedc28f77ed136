"""Requests per second from series of rates or counts: Prometheus, and counts by the minute."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.support.decoding import decode_json
from gearshift.traces.generate import MOST_REQUESTS
from gearshift.traces.rows import LONGEST_S

Floats = NDArray[np.float64]

GAP = 1.5
"""So many steps between two values are no step: others between them are missing."""
JITTER = 0.1
"""The share of a step over which stamps may lie about its multiples."""


class _Series(msgspec.Struct):
    values: list[tuple[float, str | float | None]]
    metric: dict[str, str] = {}


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Data


class _OnGrid(NamedTuple):
    counts: NDArray[np.int64]
    step_s: float


class Exported(NamedTuple):
    """Requests (seconds,), and for how long a series of rates had no value."""

    counts: NDArray[np.int64]
    gap_s: float


def prometheus_counts(content: bytes, where: str) -> Exported:
    """Requests from the answer to a range query, its series added up.

    Values are requests per second, as `rate(...)` gives; each holds for one step at most, so that where values
    are missing there are no requests. A metric whose name ends in `_total` counts requests, and begins anew
    where it falls; what it counted while values are missing is spread over that time. A value that is
    no number (NaN, null) or infinite is missing.
    """
    said, remedy = "this is no answer of Prometheus to a range query: ", "keep the body of GET /api/v1/query_range"
    series = decode_json(content, _Answer, where=where, remedy=remedy, said=said).data.result
    found = [(one.metric.get("__name__", "").endswith("_total"), *_points(one, where)) for one in series]
    found = [(counter, times, values) for counter, times, values in found if len(times) >= 2]
    require(len(found) > 0, "no series has two values", where=where, remedy="query a range, with a step in seconds")
    step_s = float(np.quantile(np.concatenate([np.diff(times) for _, times, _ in found]), 0.1))
    begins = min(times[0] for _, times, _ in found)
    rates, gap_s = np.zeros(0), 0.0
    for counter, times, values in found:
        if counter:
            per_s = np.where(np.diff(values) >= 0, np.diff(values), values[1:]) / np.diff(times)
        else:
            gap_s = max(gap_s, float((np.diff(times) - step_s)[np.diff(times) > GAP * step_s].sum()))
            times, per_s = _with_gaps(times, values[:-1], step_s)
        mine = _by_second(times - begins, per_s, where)
        most = max(len(mine), len(rates))
        rates = np.pad(rates, (0, most - len(rates))) + np.pad(mine, (0, most - len(mine)))
    return Exported(whole(rates, where), gap_s)


def _points(series: _Series, where: str) -> tuple[Floats, Floats]:
    """The times and values of a series, without missing ones."""
    try:
        values = np.array([np.nan if value is None else float(value) for _, value in series.values], dtype=np.float64)
    except ValueError as error:
        raise InvalidInput(f"a value is no number: {error}", where=where, remedy="query numbers") from error
    times = np.array([time for time, _ in series.values], dtype=np.float64)
    require(bool((np.diff(times) > 0).all()), "the times of a series do not rise", where=where)
    known = np.isfinite(values)
    return times[known], values[known]


def _with_gaps(times: Floats, per_s: Floats, step_s: float) -> tuple[Floats, Floats]:
    """Rates and the times between them, with a rate of 0 one step after each value that none follows in time."""
    ends = np.flatnonzero(np.diff(times) > GAP * step_s)
    return np.insert(times, ends + 1, times[ends] + step_s), np.insert(per_s, ends + 1, 0.0)


def minute_counts(minutes: Sequence[float] | Floats, where: str) -> NDArray[np.int64]:
    """Requests (seconds,) from requests in each minute, spread evenly over its seconds."""
    return whole(np.repeat(np.asarray(minutes, dtype=np.float64) / 60, 60), where)


def grid_counts(times_ns: Sequence[int], values: Sequence[float], where: str, *, rates: bool) -> _OnGrid | None:
    """Requests (seconds,) where each value is of the time from its stamp to the next, evenly spread.

    Stamps lie at multiples of a step, or less than a tenth of it off; values of one step are added up. A
    step without a value has none. `rates` are per second. None where stamps lie otherwise, or closer than
    a second.
    """
    since_ns = np.asarray(times_ns, dtype=np.int64)
    since_ns = since_ns - since_ns.min()
    found = _steps(np.unique(since_ns))
    if found is None:
        return None
    require(since_ns.max() < LONGEST_S * NS_PER_S, "it is longer than 10 million seconds", where=where, remedy="cut it")
    step_s, places = found[0] / NS_PER_S, found[1]
    numbers = places[np.searchsorted(np.unique(since_ns), since_ns)]
    per_step = np.bincount(numbers, weights=values) * (step_s if rates else 1.0)
    until = np.concatenate([[0.0], np.cumsum(per_step)])
    seconds = np.arange(int(np.ceil(len(per_step) * step_s)) + 1)
    return _OnGrid(whole(np.diff(np.interp(seconds, np.arange(len(until)) * step_s, until)), where), step_s)


def _steps(stamps: NDArray[np.int64]) -> tuple[float, NDArray[np.int64]] | None:
    """The step of these rising stamps, which begin at 0, in nanoseconds, and the number of each stamp's step."""
    if len(stamps) < 2:
        return None
    gaps = np.diff(stamps)
    begins = np.concatenate([[True], gaps > 2 * JITTER * np.quantile(gaps, 0.9)])  # else it is the same step again
    between = np.diff(stamps[begins])
    one = float(np.median(between[between < 1.5 * between.min()]))
    places = np.concatenate([[0], np.cumsum(np.rint(between / one))])[np.cumsum(begins) - 1]
    step = stamps[-1] / places[-1]
    in_seconds = max(1.0, np.rint(step / NS_PER_S)) * NS_PER_S
    for each in (in_seconds, step):
        away = stamps - places * each
        if each >= NS_PER_S and np.ptp(away) <= JITTER * each:
            return float(each), places.astype(np.int64)
    return None


def whole(rates: Floats, where: str) -> NDArray[np.int64]:
    """Whole numbers whose running totals are those of `rates`, rounded."""
    require(bool((rates >= 0).all()), "a rate is negative", where=where, remedy="give rates of requests")
    total = np.cumsum(rates)
    require(total[-1] <= MOST_REQUESTS, "there are more than 200 million requests", where=where, remedy="cut the file")
    return np.diff(np.rint(total), prepend=0.0).astype(np.int64)


def _by_second(times: Floats, per_s: Floats, where: str) -> Floats:
    """The mean rate in each second, where `per_s[i]` holds from `times[i]` to the next."""
    require(times[-1] <= LONGEST_S, "the series is longer than 10 million seconds", where=where, remedy="cut it")
    until = np.concatenate([[0.0], np.cumsum(per_s * np.diff(times))])
    seconds = np.arange(int(np.ceil(times[-1])) + 1)
    return np.diff(np.interp(seconds, times, until))
