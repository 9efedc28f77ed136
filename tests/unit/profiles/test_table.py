import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.profiles.profile import Profile
from gearshift.profiles.records import profile_from_records
from gearshift.profiles.store import read_profile, write_profile
from tests.often import often

PREDICTIONS: dict[str, Any] = {
    "sample": ["s1", "s1", "s2", "s2"],
    "model": ["small", "large", "small", "large"],
    "correct": [True, True, False, True],
    "certainty": [0.9, 0.8, 0.1, 0.7],
}
RUN_TIMES: dict[str, Any] = {
    "model": ["small", "small", "large", "large"],
    "batch_size": [1, 8, 1, 8],
    "seconds": [0.01, 0.02, 0.1, 0.4],
}
CSV_RUN_TIMES = "model,batch_size,seconds\nsmall,1,0.01\nsmall,8,0.02\nlarge,1,0.1\nlarge,8,0.4\n"


def write(folder: Path, predictions: Any = PREDICTIONS, run_times: Any = RUN_TIMES) -> Path:
    for name, content in (("predictions", predictions), ("runtimes", run_times)):
        table = content if isinstance(content, pa.Table) else pa.table(content)
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def read(folder: Path, **tables: Any) -> Profile:
    return profile_from_records(write(folder, **tables))


def refusal(folder: Path, **tables: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(folder, **tables)
    assert str(caught.value).startswith(str(folder))
    assert caught.value.remedy
    return str(caught.value).removeprefix(f"{folder}/")


def test_parquet_records_become_the_profile_that_csv_records_become(tmp_path: Path) -> None:
    from_parquet = read(tmp_path)
    (tmp_path / "csv").mkdir()
    rows = zip(*PREDICTIONS.values(), strict=True)
    lines = [",".join(PREDICTIONS), *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "csv" / "predictions.csv").write_text("\n".join(lines))
    (tmp_path / "csv" / "runtimes.csv").write_text(CSV_RUN_TIMES)
    from_csv = profile_from_records(tmp_path / "csv")
    shas = {write_profile(p, tmp_path / f"p{i}").sha256 for i, p in enumerate((from_parquet, from_csv))}
    assert len(shas) == 1


def test_one_file_may_be_csv_and_the_other_parquet(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "runtimes.parquet").unlink()
    (tmp_path / "runtimes.csv").write_text(CSV_RUN_TIMES)
    assert profile_from_records(tmp_path).curves[1].median_s == (0.1, 0.4)


@pytest.mark.parametrize("name", ["predictions", "runtimes"])
def test_both_forms_of_one_file_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.csv").write_text(CSV_RUN_TIMES)
    with pytest.raises(InvalidInput, match=f"there are both {name}.csv and {name}.parquet; keep the one that is right"):
        read(tmp_path)


def test_neither_form_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"predictions.csv: no such file; write predictions.csv with columns sample"):
        profile_from_records(tmp_path)


def test_categories_nulls_and_whole_numbers_as_floats_are_read(tmp_path: Path) -> None:
    models = pa.array(PREDICTIONS["model"]).dictionary_encode()
    predictions = {**PREDICTIONS, "model": models, "label": [3, 3, 4, 4], "prediction": [3.0, 3.0, 5.0, 4.0]}
    predictions["exit_segment"] = pa.array([None, 0, None, None], pa.int64())
    said = read(tmp_path, predictions=predictions).predictions
    assert said.label is not None
    assert said.label.tolist() == ["3", "4"]
    assert said.quality.tolist() == [[1, 0], [1, 1]]
    assert said.exit_segment is not None


@settings(deadline=None, max_examples=often(25))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20))
def test_numbers_survive_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, certainty: list[float]) -> None:
    n = len(certainty)
    predictions = {"sample": list(range(n)), "model": ["m"] * n, "correct": [1] * n, "certainty": certainty}
    folder = tmp_path_factory.mktemp("records")
    profile = read(folder, predictions=predictions, run_times={"model": ["m"], "batch_size": [1], "seconds": [1]})
    assert profile.predictions.certainty[0].tolist() == certainty


@pytest.mark.parametrize(
    ("column", "cells", "told"),
    [
        ("certainty", [0.9, float("nan"), 0.1, 0.7], "row 1, column 'certainty': the cell is 'nan', needs a finite"),
        ("certainty", [0.9, 0.8, None, 0.7], "row 2, column 'certainty': the cell is empty; fill it in"),
        ("correct", [1, 1, 0, 2], "row 3, column 'correct': the cell is '2'; give 0, 1, true, false, or a score"),
        ("model", ["small", "large", "small", None], "row 3, column 'model': the cell is empty"),
        ("sample", [1, 1, 1, 2], "row 2, column 'sample': sample '1' of model 'small' is there a second"),
        ("label", ["x", "y", "z", "z"], "row 1, column 'label': sample 's1' has label 'y' here and 'x' in row 0"),
        ("colour", [1, 2, 3, 4], "schema: column 'colour' is unknown; the columns are sample, model, certainty, and"),
        ("label", [[1], [1], [2], [2]], "column 'label': the column is of type list<element: int64>; write text, numb"),
        ("label", [b"a", b"a", b"b", b"b"], "column 'label': the column is of type binary"),
    ],
)  # fmt: skip
def test_predictions_that_cannot_be_used_name_row_and_column(
    tmp_path: Path, column: str, cells: list[Any], told: str
) -> None:
    told_place = refusal(tmp_path, predictions={**PREDICTIONS, column: cells}).removeprefix("predictions.parquet, ")
    assert told_place.startswith(told)


def test_the_index_that_pandas_writes_beside_the_columns_is_left_out(tmp_path: Path) -> None:
    indexed = {**PREDICTIONS, "__index_level_0__": [7, 8, 7, 8]}
    assert read(tmp_path, predictions=indexed).predictions.quality.shape == (2, 2)


@pytest.mark.parametrize(
    ("column", "cells", "told"),
    [
        ("seconds", [0.01, -1.0, 0.1, 0.4], "row 1, column 'seconds': the cell is '-1'; give seconds above 0"),
        ("batch_size", [1, 1, 1, 8], "row 1, column 'batch_size': batch size 1 of model 'small' is there a second"),
        ("memory_bytes", [7, 8, 1, 1], "row 1, column 'memory_bytes': model 'small' has memory_bytes 8 here and 7"),
        ("model", ["small", "small", "large", "huge"], "row 3, column 'model': model 'huge' has no predictions in pre"),
    ],
)  # fmt: skip
def test_run_times_that_cannot_be_used_name_row_and_column(
    tmp_path: Path, column: str, cells: list[Any], told: str
) -> None:
    assert refusal(tmp_path, run_times={**RUN_TIMES, column: cells}).startswith(f"runtimes.parquet, {told}")


def test_missing_and_doubled_columns_and_no_rows_are_told(tmp_path: Path) -> None:
    few = {name: cells for name, cells in PREDICTIONS.items() if name != "certainty"}
    assert refusal(tmp_path, predictions=few).startswith("predictions.parquet, schema: column 'certainty' is missing")
    doubled = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["model", "model"])
    assert refusal(tmp_path, predictions=doubled).startswith("predictions.parquet, schema: 2 things are wrong:")
    none = pa.table(PREDICTIONS).slice(0, 0)
    assert refusal(tmp_path, predictions=none).startswith(
        "predictions.parquet: there are columns, but there are no rows"
    )


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.98])
def test_a_broken_file_is_told(tmp_path: Path, cut: float) -> None:
    file = write(tmp_path) / "predictions.parquet"
    data = file.read_bytes()
    file.write_bytes(data[: int(cut * len(data))])
    with pytest.raises(InvalidInput, match=r"predictions\.parquet: no Parquet file that can be read .*write it again"):
        profile_from_records(tmp_path)


@settings(deadline=None, max_examples=often(50))
@given(st.binary(min_size=1, max_size=8), st.floats(0, 1))
def test_bytes_changed_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, thrown: bytes, position: float
) -> None:
    folder = write(tmp_path_factory.mktemp("thrown"))
    data = (folder / "predictions.parquet").read_bytes()
    at = int(position * (len(data) - len(thrown)))
    (folder / "predictions.parquet").write_bytes(data[:at] + thrown + data[at + len(thrown) :])
    try:
        profile_from_records(folder)
    except InvalidInput as error:
        assert str(error).startswith(str(folder))  # noqa: PT017  either way is right


def test_a_missing_library_says_which_extra_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidInput, match=r"predictions.parquet: needs pyarrow, .*pip install 'gearshift\[parquet\]'"):
        profile_from_records(tmp_path)


def test_places_of_one_file_stay_apart_from_file_to_stored_profile(tmp_path: Path) -> None:
    places = [("cpu", 1, 1), ("cpu", 2, 1), ("cuda-a", 1, 1), ("cuda-b", 1, 1), ("cuda-b", 1, 2)]
    rows = [
        {
            "model": model, "batch_size": size, "seconds": size * second, "seconds_p95": 2 * size * second,
            "device_kind": kind, "cores": cores, "tensor_parallel": parallel,
            "memory_bytes": {"cpu": 1000, "cuda-a": 2000, "cuda-b": 3000 + parallel}[kind],
        }
        for place, (kind, cores, parallel) in enumerate(places)
        for model, second in (("small", 0.1 + place), ("large", 0.5 + place))
        for size in (4, 1)
    ]  # fmt: skip
    write_profile(read(tmp_path, run_times=pa.Table.from_pylist(rows)), tmp_path / "profile")
    profile = read_profile(tmp_path / "profile")
    assert len(profile.curves) == 10
    for place, (kind, cores, parallel) in enumerate(places):
        curve = profile.curve("small", device_kind=kind, cores=cores, tensor_parallel=parallel)
        assert curve.batch_sizes == (1, 4)
        assert curve.median_s == pytest.approx((0.1 + place, 4 * (0.1 + place)))
        assert curve.p95_s == pytest.approx((2 * (0.1 + place), 8 * (0.1 + place)))
    assert profile.curve("large", device_kind="cuda-b", tensor_parallel=2).memory_bytes == 3002
    with pytest.raises(InvalidInput, match="no run times of model 'small' on device kind 'cuda-a' with 1 cores and"):
        profile.curve("small", device_kind="cuda-a", tensor_parallel=2)
