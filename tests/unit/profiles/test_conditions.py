import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.pipeline import When
from gearshift.profiles.conditions import holds, holds_for_classes
from gearshift.profiles.profile import PredictionRecords


def recorded(prediction: list[list[str]] | None) -> PredictionRecords:
    return PredictionRecords(
        models=("a", "b"),
        quality=np.ones((2, 3)),
        certainty=np.array([[0.1, 0.5, 0.9], [0.4, 0.6, 0.5]]),
        part=np.array([0, 1, 0], dtype=np.int8),
        prediction=None if prediction is None else np.array(prediction),
    )


def test_a_condition_on_certainty_needs_no_predictions() -> None:
    met = holds(When(output="certainty", at_least=0.5), recorded(None))
    assert met.tolist() == [[False, True, True], [False, True, True]]


def test_a_class_is_one_of_some_in_whatever_form_it_was_written() -> None:
    records = recorded([["1", "0", "cat"], ["dog", "1", "1"]])
    met = holds(When(output="label", one_of=(1, "cat")), records)
    assert met.tolist() == [[True, False, True], [False, True, True]]


def test_a_class_that_is_a_number_is_compared_as_one() -> None:
    met = holds_for_classes(When(output="count", at_least=2), np.array(["1", "2", "10"]))
    assert met.tolist() == [False, True, True]


def test_a_class_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="output 'count' compares numbers, and a recorded prediction is 'cat'"):
        holds_for_classes(When(output="count", at_least=2), np.array(["1", "cat"]))


def test_a_condition_on_classes_needs_predictions() -> None:
    with pytest.raises(InvalidInput, match="output 'label' needs recorded predictions"):
        holds(When(output="label", one_of=("cat",)), recorded(None))
