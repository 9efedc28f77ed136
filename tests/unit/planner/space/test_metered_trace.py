import numpy as np
import pytest

from gearshift.planner.space.metered import pieces_of, search_trace, zipf_trace
from gearshift.planner.space.request import equal_ranges
from gearshift.workload import Trace
from tests.unit.planner.little import little_request, little_trace


def even_trace(*, qps: int, seconds: int) -> Trace:
    return Trace(np.arange(qps * seconds, dtype=np.int64) * (10**9 // qps), float(seconds))


def test_a_search_sees_the_traces_own_load_by_default() -> None:
    request = little_request()
    assert search_trace(request) is request.trace
    assert search_trace(little_request(load="trace", trace=request.trace)) is request.trace


def test_of_a_long_trace_a_search_sees_pieces_at_the_same_rate() -> None:
    pieces = pieces_of(even_trace(qps=100, seconds=80), most=800)
    assert len(pieces) == pytest.approx(800, abs=8)
    assert pieces.mean_qps == pytest.approx(100, rel=0.01)
    assert pieces.duration_s == pytest.approx(8)


def test_pieces_are_the_middles_of_equal_parts() -> None:
    """One request per second; of each 10 s the middle one is kept."""
    trace = Trace(np.arange(80, dtype=np.int64) * 10**9 + 5, 80.0)
    assert pieces_of(trace, most=8).arrivals_ns.tolist() == [k * 10**9 + 5 * 10**8 + 5 for k in range(8)]


def test_a_long_trace_that_pieces_miss_is_seen_whole() -> None:
    trace = Trace(np.zeros(100, dtype=np.int64), 80.0)
    assert pieces_of(trace, most=10) is trace


def test_by_zipfs_law_range_k_is_visited_as_often_as_1_over_k() -> None:
    trace = zipf_trace(equal_ranges(1000.0, 10), seed=0)
    counts = trace.counts_per_second()
    visits = [int(((counts >= 100 * k) & (counts < 100 * (k + 1))).sum()) for k in range(10)]
    assert sum(visits) == 10 + 5 + 3 + 2 + 2 + 2 + 1 + 1 + 1 + 1
    assert visits[0] == pytest.approx(10, abs=1)
    assert visits[1] == pytest.approx(5, abs=2)


def test_visits_are_shorter_where_the_load_is_high() -> None:
    assert zipf_trace(equal_ranges(10_000.0, 10), seed=0, most=50_000).duration_s < 28
    assert len(zipf_trace(equal_ranges(10_000.0, 10), seed=0, most=50_000)) == pytest.approx(50_000, rel=0.02)


def test_zipfs_trace_follows_from_the_seed() -> None:
    ends = equal_ranges(50.0, 4)
    assert np.array_equal(zipf_trace(ends, seed=1).arrivals_ns, zipf_trace(ends, seed=1).arrivals_ns)
    assert not np.array_equal(zipf_trace(ends, seed=1).arrivals_ns, zipf_trace(ends, seed=2).arrivals_ns)


def test_a_trace_of_one_request_is_seen_whole() -> None:
    trace = Trace(np.zeros(1, dtype=np.int64), 1.0)
    assert search_trace(little_request(trace=trace)) is trace
    assert len(little_trace()) < 20_000
