import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gearshift.models.certainty import (
    BUILT_IN,
    agreement,
    built_in,
    highest_probability,
    mean_token_log_probability,
    negative_entropy,
    softmax,
    top_two_difference,
)

scores = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 6)), elements=st.floats(0, 1))


@given(scores)
def test_the_top_two_difference_is_that_of_the_sorted_row(rows: np.ndarray) -> None:
    ordered = np.sort(rows, axis=1)
    assert np.array_equal(top_two_difference(rows), ordered[:, -1] - ordered[:, -2])


def test_a_tie_has_no_top_two_difference() -> None:
    assert top_two_difference(np.array([[0.4, 0.4, 0.2]])).tolist() == [0.0]


def test_the_highest_probability_is_the_largest_score() -> None:
    assert highest_probability(np.array([[0.2, 0.7, 0.1], [0.5, 0.3, 0.2]])).tolist() == [0.7, 0.5]


def test_entropy_is_zero_for_a_sure_row_and_log_n_for_an_even_one() -> None:
    assert negative_entropy(np.array([[1.0, 0.0], [0.5, 0.5]])) == pytest.approx([0.0, -np.log(2)])


def test_padding_does_not_count_in_the_mean_of_tokens() -> None:
    assert mean_token_log_probability(np.array([[-1.0, -3.0], [-1.0, np.nan]])).tolist() == [-2.0, -1.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32, np.float64])
def test_softmax_gives_probabilities_of_scores_of_any_type_and_size(dtype: type) -> None:
    made = softmax(np.array([[0, 100], [3, 3]], dtype=dtype))
    assert made[0] == pytest.approx([0, 1])
    assert made[1].tolist() == [0.5, 0.5]
    assert made.dtype == (np.float64 if np.dtype(dtype).itemsize == 8 else np.float32)


def test_agreement_is_the_share_of_the_most_common_vote() -> None:
    assert agreement(np.array([["a", "a", "b", "c"], ["a", "a", "a", "a"]])).tolist() == [0.5, 1.0]
    assert agreement(np.array([["1", "1.0", b"1", " 1"]], dtype=object)).tolist() == [1.0]


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_built_in_certainty_gives_one_double_per_row(name: str, dtype: type) -> None:
    certainty = built_in(name)(np.array([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]], dtype=dtype))
    assert (certainty.shape, certainty.dtype) == ((3,), np.float64)


@pytest.mark.parametrize("name", ["top_two_difference", "highest_probability", "negative_entropy"])
def test_a_surer_row_has_a_higher_certainty(name: str) -> None:
    sure, unsure = built_in(name)(np.array([[0.9, 0.05, 0.05], [0.4, 0.3, 0.3]]))
    assert sure > unsure


@pytest.mark.parametrize("name", ["top_two_difference", "highest_probability", "negative_entropy"])
def test_a_row_of_nan_leaves_the_other_rows_as_they_are(name: str) -> None:
    bad, good = built_in(name)(np.array([[np.nan, np.nan], [0.75, 0.25]]))
    assert np.isnan(bad)
    assert np.isfinite(good)
