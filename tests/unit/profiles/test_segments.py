"""Profiles of models that stop early: expected times, and the tables of batches that shrink."""

import math

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PART_A, PredictionRecords, Profile, RunTimeCurve, expected_curve
from gearshift.profiles.run_times import exits_of, expected_ns, run_times_ns
from tests.conformance.small import small_gear, small_plan

EXITS = np.array([[0, 0, 0, 1, 1, 0, 1, 1], [0] * 8])


def profile(exits: np.ndarray | None = EXITS) -> Profile:
    """`a` has segments of 10 ms + 2 ms a sample and of 20 ms + 6 ms a sample, `b` one of 5 ms."""
    sizes = (1, 2, 4)

    def curve(model: str, segment: int, base_s: float, sample_s: float, **more: float) -> RunTimeCurve:
        times = tuple(base_s + sample_s * size for size in sizes)
        return RunTimeCurve(model=model, segment=segment, batch_sizes=sizes, median_s=times, p95_s=times, **more)

    records = PredictionRecords(
        models=("a", "b"),
        quality=np.ones((2, 8)),
        certainty=np.ones((2, 8)),
        part=np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=np.int8),
        exit_segment=exits,
    )
    first = curve("a", 0, 0.010, 0.002, overhead_per_batch_s=0.001, overhead_per_request_s=0.0005)
    return Profile(
        operator="task", curves=(curve("a", 1, 0.020, 0.006), first, curve("b", 0, 0.005, 0.0)), predictions=records
    )


def test_a_batch_takes_on_average_what_its_samples_take_by_their_recorded_exits() -> None:
    whole = profile().curve("a", device_kind="cpu")
    generator = np.random.default_rng(0)
    for size, seconds in zip(whole.batch_sizes, whole.median_s, strict=True):
        left = (generator.random((200_000, size)) < 0.25).sum(axis=1)  # of part A one sample of four gets to segment 1
        drawn = 0.010 + 0.002 * size + np.where(left > 0, 0.020 + 0.006 * left, 0.0).mean()
        assert seconds == pytest.approx(drawn, rel=0.01)
    assert whole.overhead_per_batch_s == 0.001


def test_where_all_samples_go_through_a_batch_takes_all_segments() -> None:
    whole = profile(None).curve("a", device_kind="cpu")
    assert whole.median_s == pytest.approx([0.030 + 0.008 * size for size in whole.batch_sizes])


def test_the_expected_time_ends_at_the_smallest_largest_batch_of_all_segments() -> None:
    first, second = profile().segments("a", device_kind="cpu")
    shorter = msgspec.structs.replace(second, batch_sizes=(1, 3), median_s=(1.0, 1.0), p95_s=(1.0, 1.0))
    whole = expected_curve((first, shorter), (1.0, 0.5))
    assert whole.batch_sizes == (1, 2, 3)
    assert whole.median_s[2] == pytest.approx(0.016 + 1 - 0.5**3)


def test_whole_curves_have_one_for_each_model() -> None:
    assert [(c.model, c.segment) for c in profile().whole_curves] == [("a", 0), ("b", 0)]
    assert profile().whole_curves[0] == profile().curve("a", device_kind="cpu")


def test_batches_shrink_by_tables_of_segments_whose_sum_is_the_whole() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = small_plan(placed, small_gear(placed, "a b", (0.5,), largest=3))
    tables = plan_tables(plan)
    exits = exits_of(plan, tables, profile())
    assert exits is not None
    ms = 1_000_000
    assert exits.segment_ns[0].tolist() == [
        [0, 13.5 * ms, 16 * ms, 18.5 * ms],
        [0, 26 * ms, 32 * ms, 38 * ms],
    ]
    assert exits.segment_ns[1].tolist() == [[0, 5 * ms, 5 * ms, 5 * ms], [0] * 4]
    assert exits.exit_segment.tolist() == EXITS.tolist()
    assert (exits.segment_ns.sum(axis=1) == run_times_ns(plan, tables, profile())).all()
    expected = profile().curve("a", device_kind="cpu").table_ns()[:4]
    assert expected_ns(plan, tables, profile())[0].tolist() == expected.tolist()


def test_without_recorded_exits_all_samples_leave_after_the_last_segment() -> None:
    placed = {"a0": "d0", "b0": "d1"}
    plan = small_plan(placed, small_gear(placed, "a b", (0.5,), largest=3))
    exits = exits_of(plan, plan_tables(plan), profile(None))
    assert exits is not None
    assert exits.exit_segment.tolist() == [[1] * 8, [0] * 8]


def test_models_without_segments_have_no_exits() -> None:
    placed = {"b0": "d0"}
    plan = small_plan(placed, small_gear(placed, "b"))
    assert exits_of(plan, plan_tables(plan), profile()) is None


@pytest.mark.parametrize(("model", "exit"), [(0, 2), (1, 1), (0, -1)])
def test_exits_after_segments_that_were_not_measured_are_refused(model: int, exit: int) -> None:
    wrong = EXITS.copy()
    wrong[model, 3] = exit
    with pytest.raises(InvalidInput, match=f"samples leave model '{'ab'[model]}' after segments"):
        profile(wrong)


def test_a_gap_between_segments_is_refused() -> None:
    made = profile()
    with pytest.raises(InvalidInput, match="run times of model 'a' are of segments \\[1\\]"):
        Profile(operator="task", curves=(made.curves[0], made.curves[2]), predictions=made.predictions)


def test_the_cores_of_a_model_with_segments_cannot_be_scaled() -> None:
    with pytest.raises(InvalidInput, match="has learned caches, and its cores cannot be scaled"):
        profile().performance_model("a", device_kind="cpu")


def test_reach_is_of_part_a_alone() -> None:
    assert math.isclose(profile().predictions.reach("a", 2)[1], 0.25)
    assert (profile().predictions.part == PART_A).sum() == 4
