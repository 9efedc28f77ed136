from dataclasses import replace

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.profiles.doubts import (
    doubts_about,
    doubts_about_number,
    doubts_about_run_times,
    require_common_class,
    require_some_right,
)
from gearshift.profiles.profile import PredictionRecords, RunTimeCurve


def records(label: list[str] | None, *predictions: list[str], quality: object = None) -> PredictionRecords:
    said = np.array(predictions)
    truth = said[-1] if label is None else np.array(label)
    return PredictionRecords(
        models=("small", "large")[: len(predictions)],
        quality=(said == truth).astype(float) if quality is None else np.array(quality, dtype=float),
        certainty=np.ones(said.shape) * np.arange(said.shape[1]),
        part=np.arange(said.shape[1], dtype=np.int8) % 2,
        labelled=label is not None,
        label=None if label is None else truth,
        prediction=said,
    )


def test_predictions_that_fit_the_labels_raise_no_doubt() -> None:
    assert doubts_about(records(["a", "b", "a"], ["a", "a", "b"], ["a", "b", "b"])) == ()


def test_a_model_that_answers_one_class_alone_is_told() -> None:
    told = doubts_about(records(["a", "b", "a"], ["a", "a", "a"]))
    assert told[0] == "model 'small' answers 'a' to all 3 samples"
    assert doubts_about(records(["a", "a"], ["a", "a"])) == ()
    assert doubts_about(records(None, ["a", "a"], ["a", "a"])) == ()


def test_without_labels_a_constant_model_is_told_where_others_are_not() -> None:
    assert doubts_about(records(None, ["a", "a"], ["a", "b"])) == ("model 'small' answers 'a' to all 2 samples",)


def test_a_model_that_is_never_right_is_told_with_an_example() -> None:
    told = doubts_about(records(["a", "b"], ["b", "a"], ["a", "b"]))
    assert told == ("model 'small' is right on no sample: sample 0 is labelled 'a', it answers 'b'",)


def test_classes_that_one_side_alone_has_are_told_with_their_share() -> None:
    told = doubts_about(records(["a", "b", "c", "a"], ["a", "B", "a", "a"]))
    assert told == (
        "model 'small' never answers 'b', 'c', which the labels of 50.0 % of the samples are",
        "model 'small' answers 'B', which no label is, to 25.0 % of the samples",
    )


def test_rare_classes_are_not_told() -> None:
    label = ["a", "b"] * 100
    assert doubts_about(records([*label, "c"], [*label, "d"])) == ()


def test_what_another_judge_has_judged_is_not_doubted() -> None:
    assert doubts_about(records(["a long text", "b"], ["another", "b"], quality=[[0.7, 1.0]])) == ()


def test_long_and_unprintable_values_are_told_short_and_printable() -> None:
    (told,) = doubts_about(records(["a", "b"], ["\udcff" + 100 * "x", "b"]))[1:]
    assert told.isascii()
    assert len(told) < 150


def test_nothing_right_anywhere_is_refused_with_an_example() -> None:
    with pytest.raises(InvalidInput, match="no model is right on any sample, for example sample 0 is labelled 'a'"):
        require_some_right(records(["a", "b"], ["b", "a"], ["b", "a"]), where="here")
    require_some_right(records(["a", "b"], ["b", "a"], ["a", "a"]), where="here")


def test_a_model_without_any_class_of_the_labels_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no output of model 'm' .* for example 'tech' and 'Tech'"):
        require_common_class("m", np.array(["Tech"]), np.array(["tech"]), where="here")


def labelled(certainty: np.ndarray, right: np.ndarray) -> PredictionRecords:
    return PredictionRecords(
        models=("m",),
        quality=right[None].astype(float),
        certainty=certainty[None],
        part=np.arange(len(right), dtype=np.int8) % 2,
    )


def test_a_certainty_that_is_higher_where_answers_are_wrong_is_told() -> None:
    generator = np.random.default_rng(0)
    right = generator.random(400) < 0.8
    entropy = generator.random(400) + ~right
    (told,) = doubts_about(labelled(entropy, right))
    assert told.startswith("model 'm' is more certain where it is wrong than where it is right")
    assert doubts_about(labelled(-entropy, right)) == ()
    assert doubts_about(labelled(generator.random(400), right)) == ()


def test_a_certainty_that_never_differs_is_told() -> None:
    right = np.arange(100) % 4 > 0
    assert doubts_about(labelled(np.full(100, 0.9), right)) == (
        "model 'm' is as certain of all samples, so that it can only be the last of a cascade",
    )


def timed(*seconds: float) -> RunTimeCurve:
    sizes = (1, 8, 16)[: len(seconds)]
    return RunTimeCurve(model="m", batch_sizes=sizes, median_s=seconds, p95_s=seconds)


def test_batches_that_get_faster_as_they_grow_are_told() -> None:
    (told,) = doubts_about_run_times((timed(0.0048, 0.0013, 0.0011),))
    assert told == (
        "model 'm' takes 0.0048 s for a batch of 1 and 0.0011 s for one of 16: `seconds` are of the whole batch, "
        "not of a sample"
    )


def test_batches_that_take_as_long_whatever_their_size_are_fine() -> None:
    assert doubts_about_run_times((timed(0.010, 0.0099, 0.0097), timed(0.1))) == ()


def test_run_times_that_seem_to_be_milliseconds_are_told() -> None:
    (told,) = doubts_about_run_times((timed(120, 300),))
    assert told == "model 'm' takes 120 s for a batch of 1: if these are milliseconds, write seconds"


def test_samples_too_few_for_an_accuracy_are_told_with_what_they_leave_open() -> None:
    (told,) = doubts_about_number(labelled(np.arange(3.0), np.array([False, True, False])))
    assert told == (
        "3 samples are too few for accuracies to mean much: plans are chosen on 2 of them and judged on 1, and with 1 "
        "an accuracy of 33.3 % may be anything from 3 to 91 %; bring some hundreds"
    )


def test_the_more_accurate_models_are_the_fewer_samples_are_enough() -> None:
    mostly_right, half_right = np.arange(60) % 20 > 0, np.arange(60) % 2 > 0
    assert doubts_about_number(labelled(np.arange(60.0), mostly_right)) == ()
    assert len(doubts_about_number(labelled(np.arange(60.0), half_right))) == 1


def test_the_smaller_part_decides_whether_samples_are_too_few() -> None:
    records = labelled(np.arange(400.0), np.arange(400) % 5 > 0)
    assert doubts_about_number(records) == ()
    assert len(doubts_about_number(replace(records, part=(np.arange(400) < 10).astype(np.int8)))) == 1
