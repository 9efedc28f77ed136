"""How often a trace is at each load, metered or by Zipf's law, and the arrivals that a search simulates."""

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.planner.space.request import PlanRequest
from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS, arrival_rate_qps
from gearshift.workload import Trace

SELDOM_ABOVE = 0.998

_metered: WeakKeyDictionary[Trace, tuple[NDArray[np.float64], NDArray[np.int64]]] = WeakKeyDictionary()


def metered_loads(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Metered rates (windows,) of the trace, and the requests (windows,) in each window.

    A rate is in force during its window; during the first nothing is metered yet. Cached for each
    trace.
    """
    if trace not in _metered:
        _metered[trace] = _metered_loads(trace)
    return _metered[trace]


def _metered_loads(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    windows = int(trace.arrivals_ns[-1]) // METER_WINDOW_NS + 1
    ticks_ns = np.arange(1, windows + 1) * METER_WINDOW_NS
    seen = np.searchsorted(trace.arrivals_ns, ticks_ns, side="left")
    arrived = np.diff(seen, prepend=0)
    kept = np.minimum(seen, METER_KEEPS_ARRIVALS)
    oldest_ns = np.where(kept == METER_KEEPS_ARRIVALS, trace.arrivals_ns[seen - kept], 0)
    columns = (arrived[:-1].tolist(), kept[:-1].tolist(), oldest_ns[:-1].tolist(), ticks_ns[:-1].tolist())
    rates = [
        arrival_rate_qps(recent, METER_WINDOW_NS, keeps, oldest, tick)
        for recent, keeps, oldest, tick in zip(*columns, strict=True)
    ]
    return np.array([0.0, *rates]), arrived.astype(np.int64)


def shares_of_ranges(trace: Trace, upper_ends: NDArray[np.float64]) -> NDArray[np.float64]:
    return time_and_requests_of_ranges(trace, upper_ends)[1]


def time_and_requests_of_ranges(
    trace: Trace, upper_ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares (ranges,) of the trace's time and of its requests in each range."""
    rates, arrived = metered_loads(trace)
    ranges = np.searchsorted(upper_ends[:-1], rates, side="right")
    time = np.bincount(ranges, minlength=len(upper_ends)) / len(ranges)
    requests: NDArray[np.float64] = np.bincount(ranges, weights=arrived, minlength=len(upper_ends)) / arrived.sum()
    return time, requests


def seldom_exceeded_qps(trace: Trace) -> float:
    """The metered rate that at most a share `1 - SELDOM_ABOVE` of the requests exceed."""
    rates, arrived = metered_loads(trace)
    order = np.argsort(rates)
    below = np.cumsum(arrived[order])
    return float(rates[order][int(np.searchsorted(below, SELDOM_ABOVE * below[-1]))])


def range_weights(request: PlanRequest) -> NDArray[np.float64]:
    """Shares (ranges,) of time: as 1 / k for range k (appendix C.2), or the trace's."""
    upper_ends = request.upper_ends()
    if request.load == "trace":
        visited = np.searchsorted(upper_ends[:-1], request.trace.counts_per_second(), side="right")
        weights = np.bincount(visited, minlength=len(upper_ends)).astype(np.float64)
    else:
        weights = 1.0 / np.arange(1, len(upper_ends) + 1)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


MOST_REQUESTS = 20_000
PIECES = 8
LEAST_VISIT_S = 0.3
"""Three windows of the meter."""


def search_trace(request: PlanRequest) -> Trace:
    if request.load == "zipf":
        return zipf_trace(request.upper_ends(), seed=request.seed)
    return pieces_of(request.trace)


def pieces_of(trace: Trace, *, most: int = MOST_REQUESTS) -> Trace:
    """The trace, or if it has more than `most` requests, the middles of `PIECES` equal parts."""
    if len(trace) <= most:
        return trace
    part_ns = int(trace.duration_s * NS_PER_S) // PIECES
    piece_ns = part_ns * most // len(trace)
    part, within_ns = np.divmod(trace.arrivals_ns, part_ns)
    since_ns = within_ns - (part_ns - piece_ns) // 2
    kept = (part < PIECES) & (since_ns >= 0) & (since_ns < piece_ns)
    if not kept.any():
        return trace
    return Trace(part[kept] * piece_ns + since_ns[kept], PIECES * piece_ns / NS_PER_S)


def zipf_trace(upper_ends: NDArray[np.float64], *, seed: int, most: int = MOST_REQUESTS) -> Trace:
    """Visits to load ranges by Zipf's law, in random order, with Poisson arrivals.

    Range k is visited in proportion to 1 / k, at the middle of its load. A visit lasts a second,
    or less where that would be more than `most` requests.
    """
    generator = np.random.default_rng([seed, 3])
    ranges = len(upper_ends)
    middles_qps = upper_ends - upper_ends[0] / 2
    visits = np.maximum(1, np.rint(ranges / np.arange(1, ranges + 1))).astype(np.int64)
    visit_s = float(np.clip(most / (visits * middles_qps).sum(), LEAST_VISIT_S, 1.0))
    rate_qps = generator.permutation(np.repeat(middles_qps, visits))
    counts = generator.poisson(rate_qps * visit_s)
    counts[0] = max(1, counts[0])
    visit = np.repeat(np.arange(len(counts)), counts)
    arrivals_ns = np.sort((visit + generator.random(len(visit))) * visit_s * NS_PER_S).astype(np.int64)
    return Trace(arrivals_ns, len(counts) * visit_s)
