import numpy as np

from gearshift.traces.doubts import doubts_about_trace
from gearshift.traces.generate import bursty, steady
from gearshift.workload import Trace


def stamped_every(step_s: float, trace: Trace) -> Trace:
    step_ns = round(step_s * 1e9)
    return Trace(arrivals_ns=trace.arrivals_ns // step_ns * step_ns, duration_s=trace.duration_s)


def test_arrivals_that_were_stamped_in_whole_seconds_are_told() -> None:
    (told,) = doubts_about_trace(stamped_every(1.0, steady(50, 20, seed=1)))
    assert "100 % of the requests come at the same instants as others" in told
    assert "stamped every 1 s" in told
    assert "`second,requests`" in told


def test_coarse_stamps_are_told_in_a_window_that_begins_between_them() -> None:
    whole = stamped_every(60.0, steady(5, 600, seed=1))
    cut = whole.arrivals_ns[whole.arrivals_ns >= 90_000_000_000] - 90_000_000_000
    (told,) = doubts_about_trace(Trace(arrivals_ns=cut, duration_s=510))
    assert "stamped every 60 s" in told


def test_arrivals_as_they_came_are_not_told() -> None:
    assert doubts_about_trace(bursty(60, 250, 20, bursts=2, seed=1)) == ()


def test_stamps_in_milliseconds_are_fine_however_many_share_one() -> None:
    assert doubts_about_trace(stamped_every(0.001, steady(5_000, 5, seed=1))) == ()


def test_seldom_requests_that_share_no_instant_are_fine() -> None:
    assert doubts_about_trace(Trace(arrivals_ns=np.arange(20) * 1_000_000_000, duration_s=20)) == ()
