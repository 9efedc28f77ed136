"""The arrivals for a search's simulations: the trace, parts of a long one, or by Zipf's law."""

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.planner.space.request import PlanRequest
from gearshift.workload import Trace

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
