import json
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.records import profile_from_records
from gearshift.verbs.records import records

LOG = """id,which,score,y,y_hat,n,latency,host
1,small,0.9,a,a,1,4
1,large,0.8,a,a,1,30
2,small,0.3,b,a,1,6
2,large,0.9,b,b,1,34
3,small,0.6,b,b,16,20
3,large,0.7,b,b,16,240
"""
COLUMNS = {
    "sample": "id",
    "model": "which",
    "certainty": "score",
    "label": "y",
    "prediction": "y_hat",
    "batch_size": "n",
    "seconds": "latency:ms",
}


def log(folder: Path, text: str = LOG, name: str = "log.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_log_with_other_columns_becomes_records_that_can_be_profiled(tmp_path: Path) -> None:
    made = records([log(tmp_path)], out=tmp_path / "out", columns=COLUMNS)
    assert (made.predictions, made.models, made.left_out) == (6, ("small", "large"), ("host",))
    profile = profile_from_records(tmp_path / "out")
    small = next(curve for curve in profile.curves if curve.model == "small")
    assert (small.batch_sizes, small.median_s, small.p95_s) == ((1, 16), (0.004, 0.020), (0.006, 0.020))
    assert profile.predictions.quality.mean(axis=1).tolist() == [pytest.approx(2 / 3), 1.0]


def test_logs_of_one_model_each_have_their_rows_numbered(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"certainty": 0.5, "ok": right}) + "\n" for right in (1, 0, 1))
    paths = {name: log(tmp_path, lines, f"{name}.jsonl") for name in ("small", "large")}
    records(paths, out=tmp_path / "out", columns={"correct": "ok"})
    written = (tmp_path / "out" / "predictions.csv").read_text().splitlines()
    assert written[:4] == ["sample,model,certainty,correct", "1,small,0.5,1", "2,small,0.5,0", "3,small,0.5,1"]
    assert not (tmp_path / "out" / "runtimes.csv").exists()


def test_parquet_is_read_too(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pyarrow.table({"model": ["a", "a"], "p": [0.5, 0.75], "correct": [True, False]}), tmp_path / "log.parquet"
    )
    records([tmp_path / "log.parquet"], out=tmp_path / "out", columns={"certainty": "p"})
    assert (tmp_path / "out" / "predictions.csv").read_text().splitlines()[2] == "2,a,0.75,False"


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"confidence": "score"}, "there is no column 'confidence' of records; use some of sample, model, certainty"),
        ({"certainty": "scores"}, "log.csv: has no column 'scores'; it has id, which, score, y"),
        ({"model": "which", "label": "y"}, "has no column certainty; say which it is with --map certainty=COLUMN"),
        ({"certainty": "score", "label": "y"}, "has no column model; .* or whose log it is with NAME="),
        ({"model": "which", "certainty": "score"}, "has no column correct, label or prediction"),
        (COLUMNS | {"seconds": "host"}, "column 'host' has 'x'; give numbers"),
    ],
)
def test_what_a_log_lacks_is_said(tmp_path: Path, columns: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        records([log(tmp_path, LOG.replace(",4\n", ",4,x\n"))], out=tmp_path / "out", columns=columns)


@pytest.mark.parametrize(("text", "told"), [("id,score\n", "there are no rows"), ('{"a": 1}\n{"a"', "no JSON object")])
def test_what_is_no_log_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        records([log(tmp_path, text)], out=tmp_path / "out", columns={})


def test_columns_that_only_some_lines_have_are_taken(tmp_path: Path) -> None:
    first, second = {"model": "m", "certainty": 0.5, "correct": 1}, {"batch_size": 1, "seconds": 0.01, "host": "a"}
    lines = json.dumps(first) + "\n" + json.dumps(first | second) + "\n"
    made = records([log(tmp_path, lines, "log.jsonl")], out=tmp_path / "out", columns={})
    assert (made.predictions, made.run_times, made.left_out) == (2, 1, ("host",))


def test_a_row_that_is_longer_than_the_header_is_named(tmp_path: Path) -> None:
    path = log(tmp_path, "model,certainty,correct\nm,0.5,1\nm,0.5,1,\n")
    with pytest.raises(InvalidInput, match=r"log\.csv, line 3: the row has more cells than the header"):
        records([path], out=tmp_path / "out", columns={})


def test_the_share_of_long_logs_that_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.verbs.records.TOLD_EVERY", 3)
    told: list[float] = []
    logs = [log(tmp_path), log(tmp_path, name="second.csv")]
    records(logs, out=tmp_path / "out", columns=COLUMNS, progress=lambda what, share: told.append(share))
    assert told == [0.25, 0.5, 0.75, 1.0]
