import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from gearshift.errors import InvalidInput
from gearshift.load_generator import request_log
from gearshift.load_generator.replay_result import OUTCOMES, RequestLog, empty_log
from gearshift.load_generator.request_log import COLUMNS, require_log_path, write_request_log

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
    monkeypatch.setattr(request_log, "ROWS_AT_ONCE", rows_at_once)
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
    monkeypatch.setattr(request_log, "ROWS_AT_ONCE", 2)
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
