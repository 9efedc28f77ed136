from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.workload import Trace, Workload, draw_workload, varying_run_factors

S = 1_000_000_000


def a_workload(arrivals_ns: list[int], **columns: Any) -> Workload:
    fields: dict[str, Any] = {"record": np.zeros(len(arrivals_ns), dtype=np.int32)}
    fields |= {name: np.array(column) for name, column in columns.items()}
    return Workload(arrivals_ns=np.array(arrivals_ns, dtype=np.int64), duration_s=10.0, **fields)


@pytest.mark.parametrize(
    ("arrivals_ns", "duration_s", "sentence"),
    [
        ([], 1.0, "the trace has no requests"),
        ([-1, 5], 1.0, "the trace has a negative time"),
        ([5, 4], 1.0, "the trace's times are not sorted"),
        ([0, 2 * S], 1.5, "the trace's last arrival is after its duration of 1.5 s"),
    ],
)
def test_a_trace_that_cannot_be_says_why(arrivals_ns: list[int], duration_s: float, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Trace(np.array(arrivals_ns, dtype=np.int64), duration_s)
    assert str(caught.value) == sentence


def test_a_trace_counts_the_requests_of_each_whole_or_begun_second() -> None:
    trace = Trace(np.array([0, S - 1, S, 3 * S]), 3.5)
    assert trace.counts_per_second().tolist() == [2, 1, 0, 1]
    assert Trace(np.array([0, 2 * S]), 2.0).counts_per_second().tolist() == [1, 0, 1]


def test_the_peak_of_a_trace_is_its_busiest_second() -> None:
    assert Trace(np.array([0, S, S, S + 1, 2 * S]), 3.0).peak_qps == 3.0


def test_the_mean_rate_of_a_trace_counts_its_silence_too() -> None:
    assert Trace(np.array([0, S]), 8.0).mean_qps == 0.25


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"record": [0]}, "workload has 2 arrivals, but record has another length"),
        ({"deadline_ns": [1, 2, 3]}, "workload has 2 arrivals, but deadline_ns has another length"),
        ({"priority": [1]}, "workload has 2 arrivals, but priority has another length"),
        ({"continues": [False]}, "workload has 2 arrivals, but continues has another length"),
        ({"continues": [True, False]}, "rows of one request must arrive together"),
        ({"continues": [False, True]}, "rows of one request must arrive together"),
        ({"deadline_ns": [1, (1 << 62) + 1]}, "a deadline is after the end of time"),
        ({"priority": [0, 1]}, "priorities must be 1 to 1000"),
        ({"priority": [1, 1001]}, "priorities must be 1 to 1000"),
        ({"run_factors": []}, "factors of run times must be positive, and there must be one"),
        ({"run_factors": [1, 0]}, "factors of run times must be positive, and there must be one"),
    ],
)
def test_a_workload_that_cannot_be_says_why(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        a_workload([0, 1], **columns)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("arrivals_ns", [[5, 0], [-5, 0]])
def test_a_workload_whose_times_are_not_sorted_or_negative_is_refused(arrivals_ns: list[int]) -> None:
    with pytest.raises(InvalidInput):
        a_workload(arrivals_ns)


def test_rows_of_one_request_that_arrive_together_are_a_workload() -> None:
    assert len(a_workload([0, 1, 1], continues=[False, False, True])) == 3


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 200), st.integers(1, 30), st.integers(0, 9))
def test_every_recorded_sample_is_drawn_equally_often_give_or_take_one(n: int, records: int, seed: int) -> None:
    trace = Trace(np.arange(n, dtype=np.int64), 1.0)
    drawn = draw_workload(trace, np.arange(100, 100 + records, dtype=np.int32), seed=seed).record
    counts = np.bincount(drawn - 100, minlength=records)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1


def test_the_same_seed_draws_the_same_samples_and_another_seed_others() -> None:
    trace, records = Trace(np.arange(50, dtype=np.int64), 1.0), np.arange(50, dtype=np.int32)
    first, again, other = (draw_workload(trace, records, seed=seed).record.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_no_recorded_samples_to_draw_from_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there are no recorded samples to draw from"):
        draw_workload(Trace(np.array([0]), 1.0), np.array([], dtype=np.int32), seed=0)


def test_run_factors_have_median_1_and_the_deviation_that_is_asked_for() -> None:
    drawn = np.log(varying_run_factors(0.1, seed=3))
    assert np.median(drawn) == pytest.approx(0.0, abs=0.002)
    assert drawn.std() == pytest.approx(0.1, rel=0.02)
    assert varying_run_factors(0.1, seed=3).tolist() == np.exp(drawn).tolist()
    assert varying_run_factors(0.1, seed=4).tolist() != np.exp(drawn).tolist()
