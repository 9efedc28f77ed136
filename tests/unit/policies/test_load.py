from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.load import METER_KEEPS_ARRIVALS, METER_WINDOW_NS, arrival_rate_qps

MS = 1_000_000


def test_the_window_is_100_ms_or_the_last_30_arrivals() -> None:
    assert (METER_WINDOW_NS, METER_KEEPS_ARRIVALS) == (100 * MS, 30)


def test_when_30_arrivals_came_within_100_ms_the_window_is_100_ms() -> None:
    assert arrival_rate_qps(45, METER_WINDOW_NS, 30, 950 * MS, 1000 * MS) == 450.0


def test_when_30_arrivals_took_longer_the_window_reaches_back_to_the_first_of_them() -> None:
    assert arrival_rate_qps(3, METER_WINDOW_NS, 30, 0, 1000 * MS) == 30.0


def test_when_30_arrivals_took_exactly_100_ms_both_windows_agree() -> None:
    assert arrival_rate_qps(30, METER_WINDOW_NS, 30, 900 * MS, 1000 * MS) == 300.0


def test_before_30_arrivals_the_window_reaches_back_to_the_beginning_of_the_run() -> None:
    assert arrival_rate_qps(2, METER_WINDOW_NS, 5, 0, 250 * MS) == 20.0


def test_without_arrivals_the_rate_is_zero() -> None:
    assert arrival_rate_qps(0, METER_WINDOW_NS, 0, 0, 100 * MS) == 0.0
    assert arrival_rate_qps(0, METER_WINDOW_NS, 0, 0, 900 * MS) == 0.0


def test_in_silence_the_rate_falls_as_the_kept_arrivals_grow_old() -> None:
    rates = [arrival_rate_qps(0, METER_WINDOW_NS, 30, 0, now_ms * MS) for now_ms in (200, 400, 800)]
    assert rates == [150.0, 75.0, 37.5]


@settings(deadline=None, derandomize=True)
@given(st.integers(10, 5000), st.integers(3, 40))
def test_a_steady_stream_is_metered_at_its_rate(rate_qps: int, ticks: int) -> None:
    now_ns = ticks * METER_WINDOW_NS
    gap_ns = 10**9 // rate_qps
    arrivals = list(range(0, now_ns, gap_ns))
    recent = sum(now_ns - METER_WINDOW_NS <= at for at in arrivals)
    kept = arrivals[-METER_KEEPS_ARRIVALS:]
    oldest_ns = kept[0] if len(kept) == METER_KEEPS_ARRIVALS else 0
    metered = arrival_rate_qps(recent, METER_WINDOW_NS, len(kept), oldest_ns, now_ns)
    within = 1 / min(len(kept), max(recent, METER_KEEPS_ARRIVALS))
    assert abs(metered - rate_qps) <= rate_qps * within * 1.1
