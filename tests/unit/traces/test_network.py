from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.request import NO_DEADLINE_NS
from gearshift.traces.network import NetworkTrace, Uplink, read_network
from gearshift.workload import Workload
from tests.often import often

S = 1_000_000_000


def network(*bytes_per_second: float) -> NetworkTrace:
    carried = np.concatenate([[0.0], np.cumsum(bytes_per_second)])
    return NetworkTrace(np.arange(len(carried), dtype=np.int64) * S, carried)


def sent(*times_ns: int, **more: object) -> Workload:
    arrivals = np.array(times_ns, dtype=np.int64)
    record = np.arange(len(arrivals), dtype=np.int32)
    return Workload(arrivals_ns=arrivals, record=record, duration_s=10.0, **more)  # type: ignore[arg-type]


def written(folder: Path, text: str) -> Path:
    path = folder / "lte.log"
    path.write_text(text)
    return path


def test_the_bandwidth_is_integrated_from_the_instant_of_sending() -> None:
    link = network(100, 200, 50)
    latency = link.communication_ns(np.array([0, S // 2, S + S // 2]), 100)
    assert latency.tolist() == [S, S // 2 + S // 4, S // 2]
    assert link.communication_ns(np.array([S // 2]), 275).tolist() == [round(2.0 * S)]


def test_while_nothing_is_carried_a_request_waits_and_after_the_end_the_trace_begins_anew() -> None:
    link = network(100, 0, 100)
    assert link.communication_ns(np.array([0]), 100).tolist() == [S]
    assert link.communication_ns(np.array([0]), 150).tolist() == [2 * S + S // 2]
    assert link.communication_ns(np.array([5 * S + S // 2]), 100).tolist() == [S]
    assert link.communication_ns(np.array([0]), 450).tolist() == [6 * S + S // 2]


@settings(derandomize=True, max_examples=often(60))
@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(any),
    st.lists(st.integers(0, 20 * S), min_size=1, max_size=20).map(sorted),
    st.floats(1, 5000),
)
def test_who_is_sent_later_never_arrives_earlier(rates: list[int], times: list[int], size: float) -> None:
    at = np.array(times, dtype=np.int64)
    latency = network(*rates).communication_ns(at, size)
    assert (latency >= 0).all()
    assert (np.diff(at + latency) >= -2).all()


def test_deadlines_count_from_sending_and_arrivals_from_the_last_byte() -> None:
    made = Uplink(network(100, 300), 150, 2.0).carry(sent(0, S))
    assert made.sent_ns.tolist() == [0, S]
    assert made.workload.arrivals_ns.tolist() == [S + 166_666_667, S + S // 2]
    assert made.workload.deadline_ns is not None
    assert made.workload.deadline_ns.tolist() == [2 * S, 3 * S]


def test_a_request_keeps_its_own_deadline_beside_the_slo_of_the_others() -> None:
    own = np.array([NO_DEADLINE_NS, 7 * S])
    made = Uplink(network(100, 300), 150, 2.0).carry(sent(0, S, deadline_ns=own)).workload
    assert made.deadline_ns is not None
    assert made.deadline_ns.tolist() == [2 * S, 7 * S]


def test_rows_of_one_request_stay_together_and_facts_stay_with_their_request() -> None:
    workload = sent(0, 0, S, continues=np.array([False, True, False]), priority=np.array([1, 1, 7]))
    made = Uplink(network(100, 300), 10, None).carry(workload).workload
    assert made.record.tolist() == [0, 1, 2]
    assert made.continues is not None
    assert made.continues.tolist() == [False, True, False]
    assert made.priority is not None
    assert made.priority.tolist() == [1, 1, 7]
    assert made.deadline_ns is None


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan"), float("inf"), 1e13])
def test_sizes_that_are_none_are_refused(size: float) -> None:
    with pytest.raises(InvalidInput, match="a request of"):
        Uplink(network(100), size).carry(sent(0))


def test_a_size_that_takes_years_is_refused() -> None:
    with pytest.raises(InvalidInput, match="under way for up to"):
        Uplink(network(100), 1e10).carry(sent(0))


def test_a_log_is_read_with_its_first_interval(tmp_path: Path) -> None:
    link = read_network(written(tmp_path, "9 725 51 3.7 1450 725\n9 1725 51 3.7 500 1000\n"))
    assert link.times_ns.tolist() == [0, 725_000_000, 1_725_000_000]
    assert link.carried_bytes.tolist() == [0, 1450, 1950]
    assert link.carried_bytes[-1] / link.duration_s == pytest.approx(1950 / 1.725)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("a b c d e f\n", "not a bandwidth trace"),
        ("1 2 3\n", "the lines have 3 numbers"),
        ("9 725 51 3 1450 725\n9 725 51 3 500 1000\n", "row 2: elapsed_ms does not rise"),
        ("9 725 51 3 -1 725\n", "row 1: bytes is negative"),
        ("9 725 51 3 1 0\n", "row 1: interval_ms is not positive"),
        ("9 725 51 3 nan 725\n", "row 1: a number is not finite"),
        ("9 725 51 3 0 725\n", "never carries anything"),
    ],
)
def test_other_files_are_refused_with_the_row(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read_network(written(tmp_path, text))
