from dataclasses import dataclass, field

import numpy as np
import pytest

from benchmarks.pipelines.joint_front import Scores, exhaustively, greedily, jointly

pytestmark = pytest.mark.long


@dataclass
class Cell:
    latency_s: float


@dataclass
class FakeWorld:
    """Tuples hold up to a load that falls with their work."""

    scores: Scores
    devices: int = 100
    asked: list[tuple[int, ...]] = field(default_factory=list)

    def holds(self, chosen: tuple[int, ...], load_qps: float) -> bool:
        self.asked.append(chosen)
        return bool(self.scores.work_s[chosen] * load_qps <= 12)

    def cell(self, chosen: tuple[int, ...], load_qps: float) -> Cell:
        return Cell(float(self.scores.work_s[chosen] * load_qps))


@pytest.fixture
def scores() -> Scores:
    work_s = np.add.outer(np.array([1.0, 2, 4]), np.array([1.0, 3, 9]))
    accuracy = np.multiply.outer(np.array([0.7, 0.8, 0.9]), np.array([0.6, 0.8, 0.95]))
    return Scores(accuracy, work_s, ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2)))


def test_each_range_gets_the_most_accurate_tuple_that_holds(scores: Scores) -> None:
    ends = [0.5, 1.0, 2.0, 3.0, 6.0]
    assert jointly(FakeWorld(scores), scores, ends) == [(2, 2), (1, 2), (1, 1), (0, 1), (0, 0)]
    assert exhaustively(FakeWorld(scores), scores, ends) == [(2, 2), (1, 2), (1, 1), (0, 1), (0, 0)]


def test_bisection_asks_less_than_exhaustive_search(scores: Scores) -> None:
    bisected, exhaustive = FakeWorld(scores), FakeWorld(scores)
    jointly(bisected, scores, [3.0])
    exhaustively(exhaustive, scores, [3.0])
    assert len(bisected.asked) < len(exhaustive.asked)


def test_greedy_steps_lower_one_operator_at_a_time(scores: Scores) -> None:
    world = FakeWorld(scores)
    assert greedily(world, scores, [0.5, 1.0]) == [(2, 2), (2, 1)]  # (1, 2) would be more accurate
    assert world.asked == [(2, 2), (2, 2), (2, 1)]
