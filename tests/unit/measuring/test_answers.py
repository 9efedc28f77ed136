import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.measuring.answers import records_from_answers
from gearshift.model import Predicted
from gearshift.models.samples import Samples


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
