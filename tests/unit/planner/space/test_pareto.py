import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.planner.space.pareto import undominated

FEW = st.integers(0, 5)
POINTS = st.lists(st.tuples(FEW, FEW), max_size=15)


@given(POINTS)
def test_what_is_left_out_is_what_another_equals_in_one_and_beats_in_the_other(points: list[tuple[int, int]]) -> None:
    def beaten(point: tuple[int, int]) -> bool:
        return any(p != point and p[0] <= point[0] and p[1] >= point[1] for p in points)

    kept = undominated(points)
    assert {points[i] for i in kept} == {point for point in points if not beaten(point)}
    assert len({points[i] for i in kept}) == len(kept)


@given(POINTS)
def test_what_is_kept_comes_by_rising_latency_and_accuracy(points: list[tuple[int, int]]) -> None:
    kept = [points[i] for i in undominated(points)]
    assert kept == sorted(kept)
    assert [accuracy for _, accuracy in kept] == sorted(accuracy for _, accuracy in kept)


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([], []),
        ([(1.0, 0.5), (1.0, 0.5)], [0]),
        ([(2.0, 0.9), (1.0, 0.5)], [1, 0]),
        ([(1.0, 0.5), (1.0, 0.6)], [1]),
        ([(1.0, 0.5), (2.0, 0.5)], [0]),
        ([(3.0, 0.7), (1.0, 0.8), (2.0, 0.6)], [1]),
    ],
)
def test_of_equal_points_the_first_stays(points: list[tuple[float, float]], kept: list[int]) -> None:
    assert undominated(points) == kept
