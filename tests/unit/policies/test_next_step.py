from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.policies.next_step import ANSWER, NOT_IN_CASCADE, next_step
from tests.often import often

MODELS = [4, 2, 7]
THRESHOLDS = [0.5, 0.8, 0.0]


def after(stage: int, certainty: float, visited: int = 0) -> int:
    return next_step(stage, certainty, visited, 3, MODELS, THRESHOLDS, 0)


def bits(*models: int) -> int:
    return sum(1 << model for model in models)


def test_a_certainty_at_its_threshold_answers() -> None:
    assert after(0, 0.5, bits(4)) == ANSWER


def test_a_certainty_below_its_threshold_goes_to_the_next_stage() -> None:
    assert after(0, 0.4999, bits(4)) == 2
    assert after(1, 0.79, bits(4, 2)) == 7


def test_each_stage_has_its_own_threshold() -> None:
    assert after(0, 0.6, bits(4)) == ANSWER
    assert after(1, 0.6, bits(2)) == 7


def test_the_last_stage_always_answers() -> None:
    assert after(2, -1e9, bits(4, 2, 7)) == ANSWER


def test_a_model_that_is_not_in_the_cascade_answers() -> None:
    assert after(NOT_IN_CASCADE, -1e9, bits(3)) == ANSWER


def test_a_stage_that_was_visited_is_passed_over() -> None:
    assert after(0, 0.0, bits(4, 2)) == 7


def test_when_all_later_stages_were_visited_the_sample_answers() -> None:
    assert after(0, 0.0, bits(4, 2, 7)) == ANSWER


def test_earlier_stages_are_never_gone_back_to() -> None:
    assert after(1, 0.0, bits(2)) == 7


def test_a_gears_row_is_read_from_its_base() -> None:
    stage_models, thresholds = [9, 9, 9, *MODELS], [9.0, 9.0, 9.0, *THRESHOLDS]
    assert next_step(0, 0.4, bits(4), 3, stage_models, thresholds, 3) == 2
    assert next_step(0, 0.6, bits(4), 3, stage_models, thresholds, 3) == ANSWER


def test_the_unused_end_of_a_gears_row_is_not_read() -> None:
    assert next_step(0, 0.0, bits(4, 2), 2, [4, 2, -1], [0.5, 0.0, 0.0], 0) == ANSWER


@settings(deadline=None, derandomize=True, max_examples=often(300))
@given(st.permutations(range(5)), st.integers(1, 5), st.integers(-1, 4), st.integers(0, 31), st.floats(0, 1))
def test_a_sample_goes_to_the_first_later_stage_that_it_has_not_visited(
    order: list[int], stages: int, stage: int, visited: int, certainty: float
) -> None:
    stage = min(stage, stages - 1)
    got = next_step(stage, certainty, visited, stages, order[:stages], [0.5] * stages, 0)
    fresh = [model for model in order[stage + 1 : stages] if not visited >> model & 1]
    forwards = stage != NOT_IN_CASCADE and certainty < 0.5 and fresh
    assert got == (fresh[0] if forwards else ANSWER)
