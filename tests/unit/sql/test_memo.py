"""What a query has answered already."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.bulk.answers import Answers
from gearshift.sql.memo import LONGEST_KEY, MOST_QUERIES, Memo, Memos, keys_of
from tests.often import often


class Doubling:
    """Answers twice each number; notes which it was asked for."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = np.array(numbers, dtype=np.int64)
        self.asked: list[int] = []

    def __call__(self, rows: NDArray[np.int64]) -> Answers:
        self.asked += self._numbers[rows].tolist()
        answers = Answers.none_yet(len(rows))
        answers.keep(np.arange(len(rows)), 2 * self._numbers[rows], np.ones(len(rows)))
        return answers


def doubled(memo: Memo, numbers: list[int]) -> tuple[list[int], list[int]]:
    run = Doubling(numbers)
    answers = memo.answers(keys_of({"n": np.array(numbers, dtype=np.int64)}), run)
    assert answers.label is not None
    return answers.label.tolist(), run.asked


def test_an_input_runs_once_in_a_call_and_in_later_ones():
    memo = Memo()
    assert doubled(memo, [1, 2, 1, 3]) == ([2, 4, 2, 6], [1, 2, 3])
    assert doubled(memo, [3, 4, 1]) == ([6, 8, 2], [4])
    assert doubled(memo, [4, 4]) == ([8, 8], [])


def test_the_last_rows_are_remembered_and_older_ones_forgotten():
    memo = Memo(rows=4)
    doubled(memo, [1, 2, 3])
    doubled(memo, [4, 5])
    assert doubled(memo, [1, 2, 3, 4, 5]) == ([2, 4, 6, 8, 10], [])
    doubled(memo, [6, 7, 8])
    assert doubled(memo, [1]) == ([2], [1])


@settings(max_examples=often(100))
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), max_size=9), st.integers(1, 12))
def test_answers_are_right_however_little_is_remembered(calls, rows):
    memo = Memo(rows)
    for numbers in calls:
        answers, asked = doubled(memo, numbers)
        assert answers == [2 * number for number in numbers]
        assert len(asked) == len(set(asked))


def test_two_threads_with_the_same_inputs_both_have_answers():
    memo, both = Memo(), threading.Barrier(2)

    class Meeting(Doubling):
        def __call__(self, rows: NDArray[np.int64]) -> Answers:
            both.wait(10)
            return super().__call__(rows)

    made: list[list[int]] = []

    def call() -> None:
        answers = memo.answers(keys_of({"n": np.array([1, 2, 3])}), Meeting([1, 2, 3]))
        assert answers.label is not None
        made.append(answers.label.tolist())

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [[2, 4, 6]] * 2
    assert doubled(memo, [7, 8]) == ([14, 16], [7, 8])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_numbers_have_a_key_for_each_row(dtype):
    keys = keys_of({"x": np.array([[0, 1], [1, 0], [0, 1]], dtype=dtype)})
    assert keys[0] == keys[2] != keys[1]


def test_long_and_several_inputs_have_short_keys():
    long = "a" * (LONGEST_KEY + 1)
    texts = np.array([long, long + "b", "a", b"\xff"], dtype=object)
    keys = keys_of({"t": texts, "x": np.zeros((4, 100))})
    assert len(set(keys)) == 4
    assert all(len(part) <= LONGEST_KEY for key in keys for part in key)  # type: ignore[attr-defined]


def test_each_query_has_its_own_and_only_the_last_are_kept():
    memos = Memos()
    first = memos.of(1)
    assert memos.of(1) is first
    for query in range(2, MOST_QUERIES + 1):
        assert memos.of(query) is not first
    assert memos.of(1) is first
    memos.of(100)
    memos.of(101)
    assert memos.of(2) is not first


def test_a_missing_text_is_a_key_as_any_other():
    """It is as long as an empty text and is no empty text, in one column, among several, and beside a long one."""
    texts = np.array(["a", None, "", None], dtype=object)
    assert keys_of({"t": texts}) == ["a", None, "", None]
    assert len(set(keys_of({"t": texts, "n": np.arange(4)}))) == 4
    long = np.array([None, "a" * 2 * LONGEST_KEY], dtype=object)
    keys = keys_of({"t": long})
    assert keys[0] is None
    assert isinstance(keys[1], bytes)
    memo = Memo()
    run = Doubling([1, 2, 3, 2])
    answers = memo.answers(keys_of({"t": texts}), run)
    assert answers.label is not None
    assert (answers.label.tolist(), run.asked) == ([2, 4, 6, 4], [1, 2, 3])
