import numpy as np
import pytest

from gearshift.load_generator.replay_result import (
    LEAST_LIMIT_S,
    Effort,
    Lateness,
    RequestLog,
    empty_log,
    gear_shifts,
    lateness_of,
    limit_s,
    why_invalid,
)
from gearshift.result import LatencySummary

LATENCY = LatencySummary(mean=0.02, p50=0.01, p95=0.05, p99=0.1)


def late(p50_s: float = 0.0, p95_s: float = 0.0, p99_s: float = 0.0) -> Lateness:
    return Lateness(p50_s=p50_s, p95_s=p95_s, p99_s=p99_s, max_s=1.0, limit_s=0.01, share_over=0.0)


def log_of(due_s: list[float], sent_s: list[float], answered_s: list[float]) -> RequestLog:
    log = empty_log(np.array(due_s), np.zeros(len(due_s), dtype=np.int32))
    log.sent_s[:], log.answered_s[:] = sent_s, answered_s
    return log


def test_a_latency_bears_a_tenth_of_itself_and_never_less_than_the_timers_error() -> None:
    assert limit_s(0.2) == pytest.approx(0.02)
    assert limit_s(0.001) == LEAST_LIMIT_S
    assert limit_s(0.2, 0.003) == 0.003


@pytest.mark.parametrize(
    ("lateness", "name"), [(late(p50_s=0.0011), "p50"), (late(p95_s=0.0051), "p95"), (late(p99_s=0.0101), "p99")]
)
def test_lateness_beyond_what_a_percentile_bears_makes_the_run_invalid(lateness: Lateness, name: str) -> None:
    assert f"late at {name}, where a measured latency of" in why_invalid(
        lateness, LATENCY, Effort(), answered=9, processes=True
    )


def test_lateness_within_what_every_percentile_bears_is_valid() -> None:
    assert why_invalid(late(0.001, 0.005, 0.01), LATENCY, Effort(), answered=9, processes=True) == ""


def test_what_was_given_counts_instead_of_a_tenth() -> None:
    lateness = late(0.02, 0.02, 0.02)
    assert why_invalid(lateness, LATENCY, Effort(), answered=9, processes=True, largest_s=0.02) == ""
    assert "bears 1 ms" in why_invalid(lateness, LATENCY, Effort(), answered=9, processes=True, largest_s=0.001)


def test_without_an_answer_there_are_no_figures() -> None:
    assert "no request was answered" in why_invalid(late(), LATENCY, Effort(), answered=0, processes=True)


def test_the_remedy_is_what_would_help() -> None:
    lateness = late(p50_s=0.5)
    more = why_invalid(lateness, LATENCY, Effort(processes=2), answered=9, processes=True)
    assert more.endswith("give --processes 4, less load with --rate-scale, or cores of its own")
    assert "--processes" not in why_invalid(lateness, LATENCY, Effort(), answered=9, processes=False)
    waited = why_invalid(lateness, LATENCY, Effort(waited=7), answered=9, processes=True)
    assert waited.endswith("7 requests waited for a connection; give more --connections")


def test_lateness_is_from_due_to_sent_and_latency_from_due_to_answered() -> None:
    log = log_of([0.0, 1.0, 2.0], [0.0, 1.1, 2.4], [0.5, 1.5, 3.0])
    assert log.latency_s == pytest.approx([0.5, 0.5, 1.0])
    lateness = lateness_of(log, LATENCY)
    assert (lateness.p50_s, lateness.p95_s, lateness.max_s) == pytest.approx((0.1, 0.4, 0.4))
    assert lateness.limit_s == pytest.approx(0.01)
    assert lateness.share_over == pytest.approx(2 / 3)


def test_a_log_without_answers_holds_failures_alone() -> None:
    log = log_of([0.0], [0.0], [1.0])
    assert not log.answered.any()
    assert gear_shifts(log) == ()


def test_gears_change_in_the_order_of_answers() -> None:
    log = log_of([0.0, 0.1, 0.2, 0.3], [0.0, 0.1, 0.2, 0.3], [0.9, 0.4, 0.5, 0.6])
    log.gear[:] = [2, 0, 0, -1]
    assert gear_shifts(log) == ((0.4, 0), (0.9, 2))
