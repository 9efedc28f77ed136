from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.profiles.profile import Profile
from gearshift.profiles.records import profile_from_records

PREDICTIONS = """\
sample,model,correct,certainty
s1,small,1,0.9
s1,large,1,0.8
s2,small,0,0.1
s2,large,1,0.7
"""
RUN_TIMES = """\
model,batch_size,seconds
small,1,0.01
small,8,0.02
large,1,0.1
large,8,0.4
"""


def write(folder: Path, predictions: str | bytes = PREDICTIONS, run_times: str | bytes = RUN_TIMES) -> Path:
    for name, content in (("predictions.csv", predictions), ("runtimes.csv", run_times)):
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read(folder: Path, predictions: str | bytes = PREDICTIONS, run_times: str | bytes = RUN_TIMES) -> Profile:
    return profile_from_records(write(folder, predictions, run_times))


def refusal(folder: Path, predictions: str | bytes = PREDICTIONS, run_times: str | bytes = RUN_TIMES) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(folder, predictions, run_times)
    assert str(caught.value).startswith(str(folder))
    assert caught.value.remedy
    return str(caught.value).removeprefix(f"{folder}/")


def with_columns(names: str, *rows: str) -> str:
    """The four pairs with further columns."""
    lines = PREDICTIONS.splitlines()
    return "\n".join([f"{lines[0]},{names}", *(f"{a},{b}" for a, b in zip(lines[1:], rows, strict=True))]) + "\n"


# What is read


def test_records_become_a_profile(tmp_path: Path) -> None:
    profile = profile_from_records(write(tmp_path), operator="pets")
    assert (profile.operator, profile.models, profile.project) == ("pets", ("small", "large"), None)
    assert profile.predictions.quality.tolist() == [[1, 0], [1, 1]]
    assert profile.predictions.certainty.tolist() == [[0.9, 0.1], [0.8, 0.7]]
    assert profile.predictions.labelled
    assert sorted(profile.predictions.part.tolist()) == [0, 1]


def test_run_times_become_curves_with_defaults(tmp_path: Path) -> None:
    small, large = read(tmp_path).curves
    assert (small.batch_sizes, small.median_s, small.p95_s) == ((1, 8), (0.01, 0.02), (0.01, 0.02))
    assert (large.device_kind, large.cores, large.tensor_parallel, large.segment, large.memory_bytes) == (
        "cpu",
        1,
        1,
        0,
        0,
    )


def test_optional_run_time_columns_are_read(tmp_path: Path) -> None:
    head = "model,batch_size,seconds,device_kind,cores,tensor_parallel,memory_bytes,seconds_p95\n"
    curve = read(tmp_path, run_times=f"{head}large,1,.1,gpu,2,4,9e9,.2\nsmall,1,.1,gpu,2,4,5,\n").curves[0]
    assert (curve.device_kind, curve.cores, curve.tensor_parallel, curve.memory_bytes) == ("gpu", 2, 4, 9_000_000_000)
    assert curve.p95_s == (0.2,)


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    head, *rows = PREDICTIONS.splitlines()
    _, *times = RUN_TIMES.splitlines()
    profile = read(tmp_path, "\n".join([head, *rows[::-1]]), "\n".join(["model,batch_size,seconds", *times[::-1]]))
    assert profile.models == ("large", "small")
    assert profile.predictions.quality.tolist() == [[1, 1], [0, 1]]
    assert profile.curves[0].batch_sizes == (1, 8)


def test_a_byte_order_mark_crlf_blank_lines_and_spaces_after_commas_are_fine(tmp_path: Path) -> None:
    text = PREDICTIONS.replace(",", ", ").replace("\n", "\r\n\r\n")
    assert read(tmp_path, b"\xef\xbb\xbf" + text.encode()).predictions.quality.tolist() == [[1, 0], [1, 1]]


def test_text_in_quotes_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    text = with_columns("prediction", '"a, ""b""\nc"', "x", "x", "x")
    prediction = read(tmp_path, text).predictions.prediction
    assert prediction is not None
    assert prediction[0, 0] == 'a, "b"\nc'


@pytest.mark.parametrize(
    ("cell", "quality"),
    [("true", 1), ("False", 0), ("TRUE", 1), ("1.0", 1), ("0.25", 0.25)],
)
def test_correct_may_be_a_truth_or_a_score(tmp_path: Path, cell: str, quality: float) -> None:
    assert read(tmp_path, PREDICTIONS.replace("s1,small,1", f"s1,small,{cell}")).predictions.quality[0, 0] == quality


def test_output_tokens_are_read(tmp_path: Path) -> None:
    tokens = read(tmp_path, with_columns("output_tokens", "5", "6", "7.0", "8")).predictions.output_tokens
    assert tokens is not None
    assert tokens.tolist() == [[5, 7], [6, 8]]


def test_an_empty_exit_segment_means_the_last(tmp_path: Path) -> None:
    times = "model,batch_size,seconds,segment\nsmall,1,.1,0\nsmall,1,.1,1\nlarge,1,.5,\n"
    exits = read(tmp_path, with_columns("exit_segment", "", "", "0", ""), times).predictions.exit_segment
    assert exits is not None
    assert exits.tolist() == [[1, 0], [0, 0]]


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(allow_nan=False, allow_infinity=False)), min_size=2, max_size=20))
def test_numbers_survive_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bool, float]]
) -> None:
    assume(any(correct for correct, _ in rows))
    lines = [f"{i},m,{int(correct)},{certainty!r}" for i, (correct, certainty) in enumerate(rows)]
    text = "\n".join(["sample,model,correct,certainty", *lines])
    profile = read(tmp_path_factory.mktemp("records"), text, "model,batch_size,seconds\nm,1,1\n")
    assert profile.predictions.certainty[0].tolist() == [certainty for _, certainty in rows]
    assert profile.predictions.quality[0].tolist() == [float(correct) for correct, _ in rows]


def judged_by_label(label: str, prediction: str) -> str:
    """Records of one model, that is right on the second sample and perhaps on the first."""
    return f"sample,model,label,prediction,certainty\ns1,m,{label},{prediction},0.5\ns2,m,right,right,0.5\n"


@pytest.mark.parametrize(
    ("label", "prediction"), [("1", "1.0"), ("true", "True"), ("a", '"a "'), ("0.5", "0.50"), ("1", "True")]
)
def test_classes_may_be_written_differently(tmp_path: Path, label: str, prediction: str) -> None:
    judged = read(tmp_path, judged_by_label(label, prediction), "model,batch_size,seconds\nm,1,1\n")
    assert judged.predictions.quality.tolist() == [[1, 1]]
    assert len(judged.warnings) == 1, "but that there are two samples"


def test_a_class_that_no_label_is_is_a_warning(tmp_path: Path) -> None:
    judged = read(tmp_path, judged_by_label("tech", "Tech"), "model,batch_size,seconds\nm,1,1\n")
    assert judged.predictions.quality.tolist() == [[0, 1]]
    assert judged.warnings[1] == "model 'm' answers 'Tech', which no label is, to 50.0 % of the samples"


def test_predictions_that_never_are_a_label_are_refused(tmp_path: Path) -> None:
    text = judged_by_label("tech", "Tech").replace("right,right", "spam,Spam")
    told = refusal(tmp_path, text, "model,batch_size,seconds\nm,1,1\n")
    assert "no output of model 'm' is ever a value that the labels have, for example 'tech' and 'Tech'" in told


def test_records_in_which_nothing_is_right_are_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path, PREDICTIONS.replace(",1,0", ",0,0"))
    assert told == "predictions.csv: no model is right on any sample; check how they were judged"


def test_the_same_seed_gives_the_same_parts(tmp_path: Path) -> None:
    lines = [f"{i},m,1,0.5" for i in range(100)]
    folder = write(tmp_path, "\n".join(["sample,model,correct,certainty", *lines]), "model,batch_size,seconds\nm,1,1\n")
    parts = [profile_from_records(folder, seed=seed).predictions.part.tolist() for seed in (1, 1, 2)]
    assert parts[0] == parts[1] != parts[2]
    assert sum(parts[0]) == 50


# What is right


def test_label_and_prediction_give_correct(tmp_path: Path) -> None:
    text = "sample,model,certainty,label,prediction\na,small,.5,x,x\na,large,.5,x,x\nb,small,.5,y,x\nb,large,.5,y,y\n"
    predictions = read(tmp_path, text).predictions
    assert predictions.quality.tolist() == [[1, 0], [1, 1]]
    assert predictions.labelled
    assert predictions.label is not None
    assert predictions.label.tolist() == ["x", "y"]


def test_prediction_alone_is_compared_with_the_strongest_model(tmp_path: Path) -> None:
    text = "sample,model,certainty,prediction\na,small,.5,x\na,large,.5,x\nb,small,.5,x\nb,large,.5,y\n"
    predictions = read(tmp_path, text).predictions
    assert predictions.quality.tolist() == [[1, 0], [1, 1]]
    assert not predictions.labelled


def test_nothing_to_judge_by_is_refused(tmp_path: Path) -> None:
    text = "sample,model,certainty,label\na,small,.5,x\na,large,.5,x\nb,small,.5,y\nb,large,.5,y\n"
    assert "no column 'correct', and no column 'prediction'" in refusal(tmp_path, text)


def test_correct_that_contradicts_label_and_prediction_names_the_row(tmp_path: Path) -> None:
    told = refusal(tmp_path, with_columns("label,prediction", "x,x", "x,x", "y,y", "y,y"))
    assert told.startswith("predictions.csv, line 4, column 'correct': correct is '0', but label is 'y' and prediction")


def test_run_times_on_several_core_counts_are_fitted_where_there_are_sizes_enough(tmp_path: Path) -> None:
    rows = [f"small,{c},{b},{0.01 * (1 + b) / c}" for c in (1, 2) for b in (1, 4, 16)]
    rows += [f"large,{c},{b},{0.1 * (1 + b) / c}" for c in (1, 2) for b in (1, 4)]
    profile = read(tmp_path, run_times="\n".join(["model,cores,batch_size,seconds", *rows]) + "\n")
    assert {(model.model, model.cores) for model in profile.performance} == {("small", (1, 2))}


def test_scores_need_not_follow_from_label_and_prediction(tmp_path: Path) -> None:
    text = with_columns("label,prediction", "x,X.", "x,x", "y,z", "y,y").replace("s2,small,0", "s2,small,0.4")
    assert read(tmp_path, text).predictions.quality.tolist() == [[1, 0.4], [1, 1]]


def test_one_sample_with_two_labels_names_both_rows(tmp_path: Path) -> None:
    told = refusal(tmp_path, with_columns("label", "x", "y", "z", "z"))
    assert told.startswith("predictions.csv, line 3, column 'label': sample 's1' has label 'y' here and 'x' in line 2")


# Cells that cannot be used


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("s1,large,1,0.8", "s1,large,1,nan", "line 3, column 'certainty': the cell is 'nan', needs a finite number"),
        ("s1,large,1,0.8", "s1,large,1,-inf", "line 3, column 'certainty': the cell is '-inf', needs a finite number"),
        ("s1,large,1,0.8", "s1,large,1,1e999", "line 3, column 'certainty': the cell is '1e999'"),
        ("s1,large,1,0.8", "s1,large,1,1_0", "line 3, column 'certainty': the cell is '1_0'"),
        ("s1,large,1,0.8", "s1,large,1,", "line 3, column 'certainty': the cell is empty; fill it in"),
        ("s1,large,1,0.8", "s1,large,1,high", "line 3, column 'certainty': the cell is 'high'"),
        ("s1,large,1,0.8", "s1,large,NaN,0.8", "line 3, column 'correct': the cell is 'NaN'"),
        ("s1,large,1,0.8", "s1,large,2,0.8", "line 3, column 'correct': the cell is '2'; give 0, 1, true, false"),
        ("s1,large,1,0.8", "s1,large,-1,0.8", "line 3, column 'correct': the cell is '-1'"),
        ("s1,large,1,0.8", "s1,large,yes,0.8", "line 3, column 'correct': the cell is 'yes'"),
        ("s1,large,1,0.8", "s1,large,,0.8", "line 3, column 'correct': the cell is empty"),
        ("s1,large,1,0.8", "s1,,1,0.8", "line 3, column 'model': the cell is empty"),
        ("s1,large,1,0.8", ",large,1,0.8", "line 3, column 'sample': the cell is empty"),
    ],
)
def test_a_prediction_that_cannot_be_used_names_line_and_column(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert refusal(tmp_path, PREDICTIONS.replace(old, new)).startswith(f"predictions.csv, {place}")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("small,8,0.02", "small,8,0", "line 3, column 'seconds': the cell is '0'; give seconds above 0"),
        ("small,8,0.02", "small,8,-0.1", "line 3, column 'seconds': the cell is '-0.1'"),
        ("small,8,0.02", "small,8,nan", "line 3, column 'seconds': the cell is 'nan'"),
        ("small,8,0.02", "small,8,1e7", "line 3, column 'seconds': the cell is '1e7'"),
        ("small,8,0.02", "small,8,20 ms", "line 3, column 'seconds': the cell is '20 ms'"),
        ("small,8,0.02", "small,0,0.02", "line 3, column 'batch_size': the cell is '0'; give a whole number from 1"),
        ("small,8,0.02", "small,2.5,0.02", "line 3, column 'batch_size': the cell is '2.5'; give a whole number"),
        ("small,8,0.02", "small,99999999,0.02", "line 3, column 'batch_size': the cell is '99999999'"),
        ("small,8,0.02", "small,,0.02", "line 3, column 'batch_size': the cell is empty"),
        (
            "small,8,0.02",
            "small,1,0.02",
            "line 3, column 'batch_size': batch size 1 of model 'small' is there a second",
        ),
    ],
)
def test_a_run_time_that_cannot_be_used_names_line_and_column(tmp_path: Path, old: str, new: str, place: str) -> None:
    assert refusal(tmp_path, run_times=RUN_TIMES.replace(old, new)).startswith(f"runtimes.csv, {place}")


@pytest.mark.parametrize(
    ("column", "cells", "told"),
    [
        ("cores", "0 1 1 1", "line 2, column 'cores': the cell is '0'"),
        ("tensor_parallel", "1 1.5 1 1", "line 3, column 'tensor_parallel': the cell is '1.5'"),
        ("memory_bytes", "-1 1 1 1", "line 2, column 'memory_bytes': the cell is '-1'"),
        (
            "memory_bytes",
            "7 8 1 1",
            "line 3, column 'memory_bytes': model 'small' has memory_bytes 8 here and 7 in line 2",
        ),
        ("segment", "0 2 0 0", "line 3, column 'segment': model 'small' has run times of segments [0, 2], but not of"),
        ("segment", "0 0 1 1", "line 4, column 'segment': model 'large' has run times of segments [1], but not of"),
        ("seconds_p95", "1 .001 1 1", "line 3, column 'seconds_p95': seconds_p95 is 0.001, less than the median"),
    ],
)
def test_an_optional_run_time_column_is_checked(tmp_path: Path, column: str, cells: str, told: str) -> None:
    head, *rows = RUN_TIMES.splitlines()
    text = "\n".join([f"{head},{column}", *(f"{a},{b}" for a, b in zip(rows, cells.split(), strict=True))])
    assert refusal(tmp_path, run_times=text).startswith(f"runtimes.csv, {told}")


@pytest.mark.parametrize(
    ("column", "cells", "told"),
    [
        ("output_tokens", "1 2 3.5 4", "line 4, column 'output_tokens': the cell is '3.5'"),
        ("output_tokens", "1 2 -3 4", "line 4, column 'output_tokens': the cell is '-3'"),
        (
            "exit_segment",
            "0 1 0 0",
            "line 3, column 'exit_segment': exit segment 1 of model 'large' is past its last, 0",
        ),
    ],
)
def test_an_optional_prediction_column_is_checked(tmp_path: Path, column: str, cells: str, told: str) -> None:
    assert refusal(tmp_path, with_columns(column, *cells.split())).startswith(f"predictions.csv, {told}")


def test_texts_too_long_to_keep_name_the_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.profiles.records.LARGEST_TEXT_BYTES", 100)
    told = refusal(tmp_path, with_columns("prediction", "a", "b", "long text", "c"))
    assert told.startswith("predictions.csv, line 4, column 'prediction': texts of up to 9 characters are too long")


# Rows that are missing or too many


def test_all_columns_that_are_wrong_are_told_at_once(tmp_path: Path) -> None:
    told = refusal(tmp_path, PREDICTIONS.replace("sample,model,correct,certainty", "id,model,correct,score"))
    assert "columns 'id', 'score' are unknown" in told
    assert "columns 'sample', 'certainty' are missing" in told


def test_the_first_cells_of_all_columns_that_are_wrong_are_told_at_once(tmp_path: Path) -> None:
    told = refusal(tmp_path, PREDICTIONS.replace("s1,large,1,0.8", 's1,large,95,"0,8"').replace("0.7", "71 %"))
    assert "line 3, column 'correct': the cell is '95'; write 0.95 for 95 %" in told
    assert "line 3, column 'certainty': the cell is '0,8', needs a finite number (as 1 more are)" in told
    assert "write a point for the decimal comma: 0.8" in told


def test_single_batches_become_median_and_p95_where_that_is_asked_for(tmp_path: Path) -> None:
    rows = "".join(f"small,8,{0.02 + 0.001 * i}\n" for i in range(1, 20))
    folder = write(tmp_path, run_times=RUN_TIMES + rows)
    with pytest.raises(InvalidInput, match="say --raw-run-times where each row is one batch"):
        profile_from_records(folder)
    curve = profile_from_records(folder, raw_run_times=True).curve("small", device_kind="cpu")
    assert curve.batch_sizes == (1, 8)
    assert (curve.median_s[1], curve.p95_s[1]) == (pytest.approx(0.029), pytest.approx(0.038))


def test_a_percentile_beside_single_batches_is_refused(tmp_path: Path) -> None:
    text = "model,batch_size,seconds,seconds_p95\nsmall,1,1,1\nlarge,1,1,1\n"
    with pytest.raises(InvalidInput, match="seconds_p95 is given, and rows are single batches"):
        profile_from_records(write(tmp_path, run_times=text), raw_run_times=True)


def test_batches_that_get_faster_as_they_grow_are_a_warning(tmp_path: Path) -> None:
    warnings = read(tmp_path, run_times=RUN_TIMES.replace("small,8,0.02", "small,8,0.002")).warnings
    assert any("`seconds` are of the whole batch" in sentence for sentence in warnings)


def test_a_missing_pair_names_the_sample_and_the_model(tmp_path: Path) -> None:
    told = refusal(tmp_path, PREDICTIONS.replace("s1,large,1,0.8\n", ""))
    assert told.startswith("predictions.csv, line 2, column 'model': sample 's1' has no row for model 'large';")


def test_missing_pairs_at_the_end_are_counted(tmp_path: Path) -> None:
    told = refusal(tmp_path, PREDICTIONS.replace("s2,large,1,0.7\n", "s3,small,1,0.7\n"))
    assert "sample 's2' has no row for model 'large', and 1 more pairs are missing" in told


def test_a_doubled_pair_names_both_lines(tmp_path: Path) -> None:
    told = refusal(tmp_path, PREDICTIONS + "s1,large,0,0.5\n")
    assert told.startswith(
        "predictions.csv, line 6, column 'sample': sample 's1' of model 'large' is there a second time"
    )
    assert "after line 3" in told


def test_a_model_without_run_times_is_named(tmp_path: Path) -> None:
    told = refusal(tmp_path, run_times=RUN_TIMES.replace("large", "huge"))
    assert told.startswith("predictions.csv, line 3, column 'model': model 'large' has no run times in runtimes.csv")


def test_a_model_without_predictions_is_named(tmp_path: Path) -> None:
    told = refusal(tmp_path, run_times=RUN_TIMES + "huge,1,1\n")
    assert told.startswith("runtimes.csv, line 6, column 'model': model 'huge' has no predictions in predictions.csv")


def test_a_single_sample_is_too_few(tmp_path: Path) -> None:
    assert "there is one sample" in refusal(tmp_path, "\n".join(PREDICTIONS.splitlines()[:3]))


# Files that cannot be read


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": the file is empty"),
        ("\n\n", ": the file is empty"),
        ("sample,model,correct,certainty\n", ": there is a header, but there are no rows"),
        ("sample,model,correct\na,b,1\n", ", line 1: column 'certainty' is missing; add it"),
        (PREDICTIONS.replace("certainty", "confidence"), ", line 1: 2 things are wrong:"),
        (PREDICTIONS.replace("\n", ",x\n"), ", line 1: column 'x' is unknown; the columns are"),
        (PREDICTIONS.replace("correct", "model"), ", line 1: column 'model' is there twice"),
        (PREDICTIONS.replace(",", ";"), ", line 1: the header has no commas"),
        (PREDICTIONS.replace("s1,large,1,0.8", "s1,large,1"), ", line 3: the row has 3 cells up to column 'correct'"),
        (PREDICTIONS.replace("s1,large,1,0.8", "s1,large,1,0,8"), ", line 3: the row has 5 cells"),
        (PREDICTIONS[: -len(",0.7\n")], ", line 5: the row has 3 cells up to column 'correct', but the header has 4;"),
        (PREDICTIONS.replace("s1,large", '"s1"x,large'), ", line 3: the row that begins here is wrongly quoted"),
        (PREDICTIONS.replace("s1,large", '"s1,large'), ", line 3: the row that begins here is wrongly quoted"),
        (b"sample,model,correct,certainty\ns1,\xff,1,1\n", ", line 2: not UTF-8 text"),
        (PREDICTIONS.encode("utf-16-le"), ", line 1: 2 things are wrong:"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, text: str | bytes, told: str) -> None:
    assert refusal(tmp_path, text).startswith(f"predictions.csv{told}")


def test_a_line_cut_short_at_the_end_of_the_file_is_told_as_such(tmp_path: Path) -> None:
    assert "cut short" in refusal(tmp_path, PREDICTIONS[: -len(",0.7\n")])


def test_lines_are_counted_through_quoted_line_ends_and_blank_lines(tmp_path: Path) -> None:
    text = with_columns("prediction", '"a\nb"', "x", "x", "x").replace("s2,small,0,0.1", "\ns2,small,0,bad")
    assert refusal(tmp_path, text).startswith("predictions.csv, line 6, column 'certainty': the cell is 'bad'")


@pytest.mark.parametrize("name", ["predictions.csv", "runtimes.csv"])
def test_a_missing_file_says_which_columns_it_has(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    with pytest.raises(InvalidInput, match=f"{name}: no such file; write {name} with columns"):
        profile_from_records(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="elsewhere: there is no such folder of records"):
        profile_from_records(tmp_path / "elsewhere")


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_bytes_thrown_in_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, thrown: bytes, position: int
) -> None:
    data = PREDICTIONS.encode()
    folder = write(tmp_path_factory.mktemp("thrown"), data[:position] + thrown + data[position:])
    with suppress(InvalidInput):
        assert np.isfinite(profile_from_records(folder).predictions.certainty).all()
