"""Traces from CSV files.

One row is a request (`arrival_s`, `deadline_s`) or a second (`second,requests`). Arrivals that
are not as requests came are warned of.
"""

import hashlib
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.request import NO_DEADLINE_NS
from gearshift.support.files import PathLike, read_bytes, write_atomically
from gearshift.traces.generate import Arrivals, arrivals_of_rates, require_not_too_many
from gearshift.traces.published import as_rows
from gearshift.traces.rows import TOKENS, Rows, check_arrivals, check_counts, check_deadlines, check_tokens, read_rows
from gearshift.workload import Reading, Trace

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
    arrival within which a request wants its answer; an empty field means none. The additional
    columns `prompt_tokens` and `output_tokens` give the tokens of language models; the published
    forms of `published.as_rows` have them too.

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
    how = Reading(
        file_sha256=hashlib.sha256(data).hexdigest(),
        rate_scale=rate_scale,
        start_s=start_s,
        duration_s=duration_s,
        arrivals=arrivals,
        seed=seed,
    )
    return _trace_of(Path(path), data, how)


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
    sha256 = hashlib.sha256(data).hexdigest()
    as_for = source if source and (the_same or sha256 == source.file_sha256) else Reading(file_sha256=sha256)
    chosen = {name: value for name, value in given.items() if value is not None}
    return _trace_of(path, data, msgspec.structs.replace(as_for, file_sha256=sha256, **chosen))


def _trace_of(path: Path, data: bytes, how: Reading) -> Trace:
    scale = how.rate_scale
    require(0 < scale <= 1e9, f"rate_scale is {scale}", remedy="give a positive number up to a thousand million")
    rows = read_rows(path, as_rows(path, data))
    of_counts = rows.columns[0] == "second"
    window = _window(path, how.start_s, how.duration_s, check_counts(rows) if of_counts else check_arrivals(rows))
    options: tuple[object, ...]
    left_ns = tokens = None
    if of_counts:
        times_ns = _arrivals_of_counts(rows, scale, window, how.arrivals, how.seed)
        options = scale, how.arrivals, how.seed if how.arrivals == "poisson" else 0
    else:
        times_ns, rows_of = _arrivals_of_rows(rows, scale, window, how.seed)
        left_ns = check_deadlines(rows)[rows_of] if "deadline_s" in rows.columns else None
        tokens = check_tokens(rows)[rows_of] if TOKENS[0] in rows.columns else None
        options = scale, how.seed if scale != 1 else 0
    require(
        len(times_ns) > 0, "no requests are left", where=str(path), remedy="widen the window or raise the rate scale"
    )
    options = *options, how.start_s, how.duration_s
    return Trace(
        arrivals_ns=times_ns,
        duration_s=window[1] - window[0] if how.duration_s is None else how.duration_s,
        sha256=hashlib.sha256(bytes.fromhex(how.file_sha256) + repr(options).encode()).hexdigest(),
        reading=how,
        left_ns=left_ns,
        of_counts=of_counts,
        prompt_tokens=None if tokens is None else tokens[:, 0],
        output_tokens=None if tokens is None else tokens[:, 1],
    )


def write_trace(trace: Trace, path: PathLike) -> None:
    """Write arrivals, and deadlines or tokens if any, in seconds with nine decimals, whole or not at all.

    Raises `InvalidInput` for a trace with both.
    """
    left_ns, tokens = trace.left_ns, (trace.prompt_tokens, trace.output_tokens)
    named = [name for name, column in zip(TOKENS, tokens, strict=True) if column is not None]
    require(not named or left_ns is None, "the trace has deadlines and tokens", remedy="leave one of them out")
    columns = ["arrival_s", *named, *([] if left_ns is None else ["deadline_s"])]
    parts = [",".join(columns) + "\n"]
    for begin in range(0, len(trace), _ROWS_AT_ONCE):
        chunk = slice(begin, begin + _ROWS_AT_ONCE)
        fields = [_seconds(trace.arrivals_ns[chunk])]
        if left_ns is not None:
            given = left_ns[chunk] < NO_DEADLINE_NS
            written = zip(_seconds(left_ns[chunk]), given.tolist(), strict=True)
            fields.append([text if has_one else "" for text, has_one in written])
        fields += [list(map(str, column[chunk].tolist())) for column in tokens if column is not None]
        parts += [",".join(row) + "\n" for row in zip(*fields, strict=True)]
    write_atomically(path, "".join(parts).encode())


def _seconds(times_ns: NDArray[np.int64]) -> list[str]:
    seconds, rest = np.divmod(times_ns, NS_PER_S)
    return list(map("%d.%09d".__mod__, zip(seconds.tolist(), rest.tolist(), strict=True)))


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


def _arrivals_of_rows(
    rows: Rows, scale: float, window: tuple[float, float], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Arrivals, and the row of each."""
    all_ns = np.rint(rows.values[:, 0] * NS_PER_S).astype(np.int64)
    first, times_ns = _cut_ns(all_ns, window)
    window_ns = round((window[1] - window[0]) * NS_PER_S)
    times_ns, rows_of = _scale_arrivals(times_ns, scale, seed, rows.path, window_ns=window_ns)
    return times_ns, first + rows_of


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
    require_not_too_many(len(times_ns) * scale, where=str(path))
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
    rows: Rows, scale: float, window: tuple[float, float], arrivals: Arrivals, seed: int
) -> NDArray[np.int64]:
    first, last = math.floor(window[0]), math.ceil(window[1])
    seconds = rows.values[:, 0].astype(np.int64)
    inside = (seconds >= first) & (seconds < last)
    rates = np.zeros(last - first)
    rates[seconds[inside] - first] = rows.values[inside, 1] * scale
    require_not_too_many(float(rates.sum()), where=str(rows.path))
    times_ns = arrivals_of_rates(rates, arrivals, seed)
    return _cut_ns(times_ns, (window[0] - first, window[1] - first))[1]


LEAST_STEP_S = 0.05
"""Shorter intervals between simultaneous arrivals cause no warning."""


def doubts_about_trace(trace: Trace) -> tuple[str, ...]:
    """Warn of arrivals that were stamped so coarsely that many fall on one instant."""
    instants, counts = np.unique(trace.arrivals_ns, return_counts=True)
    together = counts > 1
    share = counts[together].sum() / len(trace)
    if share < 0.5 or together.sum() < 2:
        return ()
    step_s = float(np.gcd.reduce(np.diff(instants[together]))) / NS_PER_S
    if step_s < LEAST_STEP_S:
        return ()
    return (
        f"{100 * share:.0f} % of the requests come at the same instants as others, up to {counts.max()} at once, as "
        f"times do that were stamped every {step_s:g} s: they are served as bursts; if they came spread out, give "
        "columns `second,requests` in place of `arrival_s`",
    )
