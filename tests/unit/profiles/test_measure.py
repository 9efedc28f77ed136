import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.model import Predicted
from gearshift.models.samples import Samples
from gearshift.profiles.measure import (
    curve_from_timings,
    fit_overheads,
    records_from_answers,
    strongest_model,
    strongest_of,
)
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve


def answer(labels: object, certainty: object = None) -> Predicted:
    values = np.asarray(labels)
    sure = np.full(len(values), 0.5) if certainty is None else np.asarray(certainty, dtype=np.float64)
    return Predicted({"label": values}, sure)


def samples(labels: object, groups: object = None) -> Samples:
    return Samples(
        np.zeros((4, 2)),
        None if labels is None else np.asarray(labels),
        None if groups is None else np.asarray(groups),
    )


def curve(
    model: str, seconds: float, *, sizes: tuple[int, ...] = (1,), kind: str = "cpu", segment: int = 0
) -> RunTimeCurve:
    times = tuple(seconds * size for size in sizes)
    return RunTimeCurve(model=model, batch_sizes=sizes, median_s=times, p95_s=times, device_kind=kind, segment=segment)


# Run-time curves


def test_a_curve_holds_the_median_and_p95_by_the_one_percentile_rule() -> None:
    runs = np.arange(1, 21) / 100
    measured = curve_from_timings("m", [1], [runs], device_kind="gpu", cores=2, memory_bytes=7)
    assert (measured.median_s, measured.p95_s) == ((0.10,), (0.19,))
    assert (measured.device_kind, measured.cores, measured.memory_bytes) == ("gpu", 2, 7)


def test_a_curve_is_made_of_plain_numbers() -> None:
    measured = curve_from_timings("m", [np.int64(1)], [np.array([0.5])], overhead_per_batch_s=np.float64(0.1))
    assert {type(v) for v in (measured.batch_sizes[0], measured.median_s[0], measured.overhead_per_batch_s)} == {
        int,
        float,
    }


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [([], "batch size 4 was never run"), ([0.0], "took no positive time"), ([np.nan], "took no positive time")],
)
def test_runs_without_a_time_name_the_model_and_the_batch_size(runs: list[float], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=f"run times of model 'm'.*{sentence}"):
        curve_from_timings("m", [4], [np.array(runs)])


# Overheads


@given(st.floats(0, 0.1), st.floats(0, 0.01))
def test_overheads_on_a_line_are_found(per_batch: float, per_request: float) -> None:
    sizes = [1, 2, 4, 8]
    run = [np.full(5, 0.01 * size) for size in sizes]
    trip = [r + per_batch + per_request * size for r, size in zip(run, sizes, strict=True)]
    assert fit_overheads(sizes, trip, run) == pytest.approx((per_batch, per_request), abs=1e-12)


def test_one_disturbed_batch_size_does_not_bend_the_line() -> None:
    sizes = [1, 2, 4, 8, 16]
    trip = [np.array([0.01 + 0.001 * size]) for size in sizes]
    trip[2] += 5.0
    run = [np.zeros(1)] * 5
    assert fit_overheads(sizes, trip, run) == pytest.approx((0.01, 0.001), abs=1e-3)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_overheads_are_never_negative(differences: list[float]) -> None:
    sizes = [2**i for i in range(len(differences))]
    overheads = fit_overheads(sizes, [np.array([d]) for d in differences], [np.zeros(1)] * len(sizes))
    assert min(overheads) >= 0


def test_a_single_batch_size_gives_an_overhead_per_batch_only() -> None:
    assert fit_overheads([8], [np.array([0.3])], [np.array([0.1])]) == (pytest.approx(0.2), 0.0)


# The strongest model


def test_the_strongest_model_is_the_slowest_at_the_largest_batch_all_can_run() -> None:
    steep = RunTimeCurve(model="steep", batch_sizes=(1, 8), median_s=(0.001, 1.0), p95_s=(0.001, 1.0))
    assert strongest_model([steep, curve("flat", 0.01)]) == "flat"
    assert strongest_model([steep, curve("flat", 0.01, sizes=(1, 8))]) == "steep"


def test_models_are_compared_on_the_device_kind_that_all_were_measured_on() -> None:
    curves = [curve("small", 0.1, kind="cpu"), curve("small", 0.01, kind="gpu"), curve("large", 0.05, kind="gpu")]
    assert strongest_model(curves) == "large"


def test_segments_of_a_model_are_added_up() -> None:
    curves = [curve("cached", 0.04), curve("cached", 0.04, segment=1), curve("plain", 0.06)]
    assert strongest_model(curves) == "cached"


def test_segments_count_as_often_as_samples_get_there() -> None:
    curves = [curve("cached", 0.04), curve("cached", 0.04, segment=1), curve("plain", 0.06)]
    assert strongest_model(curves, {"cached": np.array([0, 0, 0, 1])}) == "plain"
    assert strongest_model(curves, {"cached": np.array([0, 1, 1, 1])}) == "cached"


# Records


def test_quality_is_whether_the_output_label_equals_the_label() -> None:
    records = records_from_answers(
        ["a", "b"], {"a": answer([0, 1, 1, 0]), "b": answer([0, 1, 2, 2])}, samples([0, 1, 2, 2]), 0
    )
    assert records.quality.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert records.labelled
    assert records.prediction is not None
    assert records.prediction[0].tolist() == ["0", "1", "1", "0"]
    assert records.label is not None
    assert records.label.tolist() == ["0", "1", "2", "2"]


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [
        ([0.0, 1.0, 1.0, 0.0], [0, 1, 1, 0]),
        ([True, False, True, False], [1, 0, 1, 0]),
        (["a", "é", "a", "é"], np.array([b"a", "é".encode(), b"a", "é".encode()], dtype=object)),
        (np.array([1, 2, 1, 2], dtype=np.uint8), np.array([1, 2, 1, 2], dtype=np.int64)),
    ],
)
def test_equal_values_of_different_types_are_equal(labels: object, outputs: object) -> None:
    records = records_from_answers(["a"], {"a": answer(outputs)}, samples(labels), 0)
    assert records.quality.tolist() == [[1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("labelled", "among", "strongest"),
    [
        (True, ("quick", "slow", "worse"), "slow"),
        (True, ("quick", "worse"), "quick"),
        (False, ("quick", "slow", "worse"), "worse"),
    ],
)
def test_the_strongest_is_the_most_accurate_where_there_are_labels(
    labelled: bool, among: tuple[str, ...], strongest: str
) -> None:
    records = PredictionRecords(
        models=("quick", "slow", "worse"),
        quality=np.array([[1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 1.0]]),
        certainty=np.ones((3, 4)),
        part=np.array([0, 0, 0, 1], dtype=np.int8),
        labelled=labelled,
    )
    curves = (curve("quick", 0.01), curve("slow", 0.02), curve("worse", 0.03))
    assert strongest_of(Profile(operator="o", curves=curves, predictions=records), among) == strongest


def test_without_labels_quality_is_agreement_with_the_strongest_model() -> None:
    answers = {"a": answer([0, 1, 1, 0]), "b": answer([0, 1, 2, 2])}
    records = records_from_answers(["a", "b"], answers, samples(None), 0, strongest="b")
    assert records.quality.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert not records.labelled
    assert records.label is None


def test_text_labels_beside_integer_outputs_are_refused_with_an_example() -> None:
    with pytest.raises(
        InvalidInput, match="no output of model 'a' is ever a value that the labels have, for example 'cat' and '0'"
    ):
        records_from_answers(["a"], {"a": answer([0, 1, 1, 0])}, samples(["cat", "dog", "cat", "dog"]), 0)


def test_outputs_that_never_are_a_label_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no output of model 'a' is ever a value that the labels have"):
        records_from_answers(["a"], {"a": answer([0, 1, 1, 0])}, samples([10, 11, 11, 10]), 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_certainty_that_is_not_finite_names_the_model_and_how_many(bad: float) -> None:
    answers = {"a": answer([0, 1, 0, 1]), "b": answer([0, 1, 0, 1], [0.5, bad, bad, 0.5])}
    with pytest.raises(InvalidInput, match="model 'b': the certainty of 2 of 4 samples is NaN or infinite"):
        records_from_answers(["a", "b"], answers, samples([0, 1, 0, 1]), 0)


def test_a_model_without_an_output_label_names_its_outputs() -> None:
    said = Predicted({"boxes": np.zeros((4, 4))}, np.ones(4))
    with pytest.raises(InvalidInput, match=r"model 'a': its outputs are \['boxes'\].*--from-records"):
        records_from_answers(["a"], {"a": said}, samples([0, 1, 0, 1]), 0)


def test_answers_for_fewer_samples_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"output 'label' has shape \(3,\) for 4 samples"):
        records_from_answers(["a"], {"a": answer([0, 1, 1])}, samples([0, 1, 0, 1]), 0)


def test_groups_stay_in_one_part() -> None:
    records = records_from_answers(["a"], {"a": answer([0, 1, 0, 1])}, samples([0, 1, 0, 1], ["x", "x", "y", "y"]), 0)
    assert records.part[0] == records.part[1] != records.part[2] == records.part[3]
