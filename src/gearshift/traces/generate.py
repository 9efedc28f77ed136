"""Traces made from a rate over time: steady, diurnal, bursty and stepped load."""

import hashlib
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.workload import Trace

Arrivals = Literal["uniform", "poisson"]
RateProfile = Callable[[NDArray[np.float64]], NDArray[np.float64]]

MOST_REQUESTS = 200_000_000
BIN_S = 0.05


def poisson_arrivals(
    rates_per_second: NDArray[np.float64], seed: int | np.random.Generator, *, bin_s: float = 1.0
) -> NDArray[np.int64]:
    """Arrivals (n,) in nanoseconds, sorted, of a Poisson process; n is random.

    `rates_per_second` holds one rate per bin of `bin_s` seconds. Raises `InvalidInput` for rates
    that are negative or not finite, and for more than `MOST_REQUESTS`.
    """
    generator = np.random.default_rng(seed)
    total = _expected_requests(rates_per_second, bin_s)
    n = int(generator.poisson(total))
    # Given their number, arrivals are sorted uniforms, which are normalised sums of exponentials:
    # no sorting is needed.
    levels: NDArray[np.float64] = np.cumsum(generator.standard_exponential(n + 1))
    return _at_levels(levels[:-1] * (total / levels[-1]), rates_per_second, bin_s)


def uniform_arrivals(rates_per_second: NDArray[np.float64], *, bin_s: float = 1.0) -> NDArray[np.int64]:
    """Arrivals (n,) in nanoseconds, evenly spread.

    The number up to any time is the expected number, rounded. Rates, bins and errors as in
    `poisson_arrivals`.
    """
    total = _expected_requests(rates_per_second, bin_s)
    levels: NDArray[np.float64] = np.arange(math.floor(total + 0.5), dtype=np.float64) + 0.5
    return _at_levels(levels, rates_per_second, bin_s)


def arrivals_of_rates(
    rates_per_second: NDArray[np.float64], arrivals: Arrivals, seed: int, *, bin_s: float = 1.0
) -> NDArray[np.int64]:
    if arrivals == "uniform":
        return uniform_arrivals(rates_per_second, bin_s=bin_s)
    require(arrivals == "poisson", f"arrivals is {arrivals!r}", remedy="use 'uniform' or 'poisson'")
    return poisson_arrivals(rates_per_second, seed, bin_s=bin_s)


def trace_of_rate(rate: RateProfile, duration_s: float, *, arrivals: Arrivals = "poisson", seed: int = 0) -> Trace:
    """Make a trace from a function `rate` of seconds (bins,) to requests per second (bins,).

    The rate is taken in the middle of bins of at most `BIN_S` seconds. Raises `InvalidInput` for a
    duration that is not positive and finite, for rates as `poisson_arrivals` does, and where no
    request results.
    """
    _positive("duration_s", duration_s)
    require(duration_s <= 1e7, f"duration_s is {duration_s:g}", remedy="give at most 10 million seconds")
    bins = max(1, math.ceil(duration_s / BIN_S - 1e-9))
    bin_s = duration_s / bins
    middles_s: NDArray[np.float64] = (np.arange(bins, dtype=np.float64) + 0.5) * bin_s
    rates = np.asarray(rate(middles_s), dtype=np.float64)
    times_ns = arrivals_of_rates(rates, arrivals, seed, bin_s=bin_s)
    require(
        len(times_ns) > 0,
        "the generated trace has no requests",
        remedy="raise the rate or the duration, or change seed",
    )
    return Trace(
        arrivals_ns=times_ns, duration_s=duration_s, sha256=hashlib.sha256(times_ns.astype("<i8").tobytes()).hexdigest()
    )


def steady(qps: float, duration_s: float, *, arrivals: Arrivals = "poisson", seed: int = 0) -> Trace:
    _positive("qps", qps)
    return trace_of_rate(lambda t: np.full_like(t, qps), duration_s, arrivals=arrivals, seed=seed)


def diurnal(
    low_qps: float,
    high_qps: float,
    duration_s: float,
    *,
    period_s: float | None = None,
    arrivals: Arrivals = "poisson",
    seed: int = 0,
) -> Trace:
    """A sine from `low_qps` to `high_qps` and back, starting low.

    `period_s` is by default the whole trace.
    """
    _low_high("low_qps", low_qps, "high_qps", high_qps)
    period = duration_s if period_s is None else period_s
    _positive("period_s", period)

    def rate(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return low_qps + (high_qps - low_qps) * _smooth(2 * t / period)

    return trace_of_rate(rate, duration_s, arrivals=arrivals, seed=seed)


def bursty(
    base_qps: float,
    peak_qps: float,
    duration_s: float,
    *,
    bursts: int = 2,
    burst_s: float | None = None,
    ramp_s: float | None = None,
    arrivals: Arrivals = "poisson",
    seed: int = 0,
) -> Trace:
    """`base_qps` with `bursts` to `peak_qps`, each in the middle of an equal part of the trace.

    A burst holds its peak for `burst_s` (default: a quarter of its part) between smooth ramps of
    `ramp_s` each (default: a quarter of `burst_s`). Raises `InvalidInput` where bursts would
    overlap.
    """
    _low_high("base_qps", base_qps, "peak_qps", peak_qps)
    _positive("duration_s", duration_s)
    require(bursts >= 1, f"bursts is {bursts}", remedy="give at least 1, or use a steady trace")
    part_s = duration_s / bursts
    hold_s = part_s / 4 if burst_s is None else burst_s
    _positive("burst_s", hold_s)
    rise_s = hold_s / 4 if ramp_s is None else ramp_s
    require(0 <= rise_s < math.inf, f"ramp_s is {rise_s}", remedy="give a finite number of seconds from 0")
    require(
        hold_s + 2 * rise_s <= part_s,
        f"{bursts} bursts of {hold_s:g} s with ramps of {rise_s:g} s do not fit into {duration_s:g} s",
        remedy="give fewer or shorter bursts, or a longer trace",
    )

    def rate(t: NDArray[np.float64]) -> NDArray[np.float64]:
        outside_s = np.abs(t % part_s - part_s / 2) - hold_s / 2  # how far before or after the peak; negative within
        height = 1 - np.clip(outside_s / rise_s, 0, 1) if rise_s > 0 else (outside_s <= 0).astype(np.float64)
        return base_qps + (peak_qps - base_qps) * _smooth(height)

    return trace_of_rate(rate, duration_s, arrivals=arrivals, seed=seed)


def step(
    before_qps: float,
    after_qps: float,
    duration_s: float,
    *,
    at_s: float | None = None,
    arrivals: Arrivals = "poisson",
    seed: int = 0,
) -> Trace:
    """`before_qps` until `at_s` (default: half the trace), then `after_qps`; either may be 0."""
    for name, qps in (("before_qps", before_qps), ("after_qps", after_qps)):
        require(0 <= qps < math.inf, f"{name} is {qps}", remedy="give a finite number from 0")
    at = duration_s / 2 if at_s is None else at_s
    require(0 <= at <= duration_s, f"at_s is {at:g}", remedy=f"give a time within the {duration_s:g} s of the trace")
    return trace_of_rate(
        lambda t: np.where(t < at, before_qps, after_qps).astype(np.float64), duration_s, arrivals=arrivals, seed=seed
    )


def _smooth(x: NDArray[np.float64]) -> NDArray[np.float64]:
    wave: NDArray[np.float64] = (1 - np.cos(np.pi * x)) / 2
    return wave


def _expected_requests(rates_per_second: NDArray[np.float64], bin_s: float) -> float:
    valid = np.isfinite(rates_per_second) & (rates_per_second >= 0)
    require(bool(valid.all()), "a rate is negative or not finite", remedy="give finite rates from 0")
    total = float(rates_per_second.sum() * bin_s)
    require_not_too_many(total)
    return total


def require_not_too_many(requests: float, *, where: str = "") -> None:
    require(
        requests <= MOST_REQUESTS,
        f"the trace has about {requests:.3g} requests, more than {MOST_REQUESTS // 1_000_000} million",
        where=where,
        remedy="cut a shorter window, or scale the rate down",
    )


def _at_levels(levels: NDArray[np.float64], rates_per_second: NDArray[np.float64], bin_s: float) -> NDArray[np.int64]:
    """Nanoseconds (n,) when the expected count of requests reaches each of sorted `levels` (n,)."""
    edges = np.concatenate([[0.0], np.cumsum(rates_per_second * bin_s)])
    first = np.searchsorted(levels, edges, side="left")
    first[0], first[-1] = 0, len(levels)
    counts = np.diff(first)
    rate, begin = np.repeat(rates_per_second, counts), np.repeat(edges[:-1], counts)
    within_s = (levels - begin) / np.where(rate > 0, rate, 1.0)
    bin_ends_ns = np.rint(np.arange(1, len(edges)) * (bin_s * NS_PER_S)).astype(np.int64)
    start_ns = np.repeat(np.concatenate([[0], bin_ends_ns[:-1]]), counts)
    times_ns: NDArray[np.int64] = start_ns + np.maximum(within_s * NS_PER_S, 0).astype(np.int64)
    np.minimum(times_ns, np.repeat(bin_ends_ns - 1, counts), out=times_ns)
    return times_ns


def _positive(name: str, value: float) -> None:
    require(0 < value < math.inf, f"{name} is {value}", remedy="give a positive, finite number")


def _low_high(low_name: str, low: float, high_name: str, high: float) -> None:
    require(0 <= low < math.inf, f"{low_name} is {low}", remedy="give a finite number from 0")
    _positive(high_name, high)
    require(low <= high, f"{low_name} is {low:g}, above {high_name} {high:g}", remedy="exchange them")
