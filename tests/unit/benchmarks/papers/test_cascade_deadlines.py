"""What `benchmarks/papers/cascade_deadlines.py` measures with, on a made-up world."""

import numpy as np

from benchmarks.papers.cascade_deadlines import (
    AWARE,
    SCALED,
    SPONGE,
    Outcome,
    crowds,
    made_up,
    make_case,
    not_dominated,
    outcomes,
    traces,
)


def test_the_threshold_keeps_the_accuracy_that_it_promises_at_the_least_forwarding() -> None:
    world = made_up(0.002, 4000)
    least, forwarded = world.threshold()
    own = world.part == 0
    (small, large), sure = world.quality[:, own], world.certainty[0, own]

    def accuracy(threshold: float) -> float:
        return float(np.where(sure < threshold, large, small).mean())

    assert accuracy(least) >= large.mean() - 0.002 > accuracy(least - 0.01)
    assert forwarded == (sure < least).mean()


def test_crowds_come_at_four_times_the_rate_for_a_third_of_each_minute() -> None:
    sent_s = crowds(10.0, 120.0) / 1e9
    assert len(sent_s) == 1200
    counts = [np.count_nonzero((sent_s >= begin) & (sent_s < begin + 20)) for begin in (0, 20, 40)]
    assert counts[0] / 4 == counts[1] == counts[2] == 100


def test_under_a_flash_crowd_the_cascade_that_knows_deadlines_is_best() -> None:
    world = made_up(0.002, 2000)
    few, many = outcomes(world, make_case("flash crowds", world, traces(None)["flash crowds"], 1.4, 20.0))
    assert few[AWARE].cores <= few[SPONGE].cores
    for found in (few, many):
        assert not_dominated(found) == []
        assert found[AWARE].in_time > 0.95
        assert max(other.in_time for name, other in found.items() if name not in (AWARE, SCALED)) < 0.8
        assert found[AWARE].degraded > 0


def test_the_scaled_cascade_holds_fewer_cores_where_fewer_will_do() -> None:
    world = made_up(0.002, 2000)
    few, _ = outcomes(world, make_case("4G bus", world, traces(None)["4G bus"], 0.3, 20.0))
    assert few[SCALED].cores < few[SPONGE].cores
    assert few[SCALED].in_time > 0.99


def test_where_another_is_better_that_is_said() -> None:
    found = {AWARE: Outcome(4, 1.0, 0.90), SPONGE: Outcome(4, 0.9, 0.91)}
    assert not_dominated(found) == [f"right: 91.00% of {SPONGE} against 90.00%"]
