import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from gearshift.errors import InvalidInput
from gearshift.load_generator import replay_result
from gearshift.load_generator.replay_result import (
    COLUMNS,
    LEAST_LIMIT_S,
    OUTCOMES,
    Effort,
    Lateness,
    RequestLog,
    empty_log,
    gear_shifts,
    lateness_of,
    limit_s,
    require_log_path,
    why_invalid,
    write_request_log,
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


NAMES = "due_s,sent_s,answered_s,latency_s,outcome,status,gear,model,stage,quality,record"


def log() -> RequestLog:
    """An answered request, a degraded one, and one that was refused."""
    made = empty_log(np.array([0.0, 0.25, 0.5]), np.array([7, 8, 9], dtype=np.int32))
    made.sent_s[:] = [0.001, 0.25, 0.5]
    made.answered_s[:] = [0.1, 0.75, 0.501]
    made.outcome[:] = [OUTCOMES.index(name) for name in ("answered", "degraded", "refused")]
    made.status[:] = [200, 200, 429]
    made.gear[:2], made.model[:2], made.stage[:2], made.quality[:2] = [2, 0], [1, 0], [0, 1], [1.0, 0.5]
    made.models.extend(["plain", 'odd, "one"'])
    return made


@pytest.mark.parametrize("rows_at_once", [1, 2, 10_000])
def test_a_csv_has_a_row_for_every_request_and_nothing_where_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(replay_result, "ROWS_AT_ONCE", rows_at_once)
    write_request_log(log(), tmp_path / "log.csv")
    text = (tmp_path / "log.csv").read_text()
    assert text.splitlines()[0] == NAMES == ",".join(COLUMNS)
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert rows == [
        ["0.0", "0.001", "0.1", "0.1", "answered", "200", "2", 'odd, "one"', "0", "1.0", "7"],
        ["0.25", "0.25", "0.75", "0.5", "degraded", "200", "0", "plain", "1", "0.5", "8"],
        ["0.5", "0.5", "0.501", "0.001", "refused", "429", "", "", "", "", "9"],
    ]


def test_parquet_holds_what_the_csv_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_result, "ROWS_AT_ONCE", 2)
    write_request_log(log(), tmp_path / "log.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "log.parquet")
    assert table.column_names == list(COLUMNS)
    columns = table.to_pydict()
    assert columns["model"] == ['odd, "one"', "plain", None]
    assert columns["gear"] == [2, 0, None]
    assert columns["quality"] == [1.0, 0.5, None]
    assert columns["outcome"] == ["answered", "degraded", "refused"]
    assert columns["latency_s"] == [0.1, 0.5, 0.001]


@pytest.mark.parametrize(
    ("name", "told"), [("log.txt", "name it .csv or .parquet"), ("file/log.csv", "cannot be written")]
)
def test_a_place_for_no_log_is_refused_before_anything_is_sent(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=told):
        require_log_path(tmp_path / name)


def test_an_older_log_stays_where_a_new_one_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("old")
    broken = log()
    broken.models.clear()
    with pytest.raises(IndexError):
        write_request_log(broken, tmp_path / "log.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    assert (tmp_path / "log.csv").read_text() == "old"
