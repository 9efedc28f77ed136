"""How often a trace is at each load: metered by the server's own rule, or by Zipf's law."""

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

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
