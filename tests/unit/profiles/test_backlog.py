import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.plans.plan_file import read_plan
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.backlog import MOST_WHERE_NONE, Backlog, backlog_of
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.profiles.store import read_profile
from gearshift.result import summarise
from tests.conformance.small import refining, small_gear, small_plan
from tests.graph_task import graph_plan, recorded_profiles, recorded_tuples
from tests.little_task import little_profile, two_gear_plan
from tests.scaled_task import scaled_plan, scaled_profile, write_scaled_cascade
from tests.two_tasks import two_task_plan

ONE = {"a0": "d0"}
PART = (np.arange(10) % 2).astype(np.int8)


def profile(run_ms: dict[str, tuple[float, float]], *, forwarded: float = 0.5, router_s: float = 0.0) -> Profile:
    """Models with times of batches of 1 and 2; `a` is certain of all samples but a share."""
    certainty = np.ones((len(run_ms), 10))
    certainty[0, : round(10 * forwarded)] = 0.0
    curves = tuple(
        RunTimeCurve(model=model, batch_sizes=(1, 2), median_s=(one / 1e3, two / 1e3), p95_s=(one / 1e3, two / 1e3))
        for model, (one, two) in run_ms.items()
    )
    records = PredictionRecords(
        models=tuple(run_ms), quality=np.ones((len(run_ms), 10)), certainty=certainty, part=PART
    )
    return Profile(operator="task", curves=curves, predictions=records, router_s=router_s)


def backlog(plan: GearPlan, measured: Profile) -> Backlog:
    return backlog_of(plan, plan_tables(plan), measured)


def with_objective(plan: GearPlan, latency_s: float | None) -> GearPlan:
    operator = msgspec.structs.replace(plan.pipelines["task"], objective=Objective(latency_s=latency_s, accuracy=0.5))
    return msgspec.structs.replace(plan, pipelines={"task": operator})


def test_as_many_may_wait_as_are_answered_within_most_of_the_objective_behind_the_batch_that_runs() -> None:
    plan = small_plan(ONE, small_gear(ONE, "a", largest=1))
    # Of 100 ms 80 are used: 10 for the sample that runs, 10 for each that waits.
    assert backlog(plan, profile({"a": (10, 10)})) == Backlog(7, 100.0)
    assert backlog(plan, profile({"a": (10, 10)}, router_s=0.02)).most_waiting == 3


def test_batches_are_as_large_as_those_that_wait_make_them() -> None:
    assert backlog(small_plan(ONE, small_gear(ONE, "a", largest=2)), profile({"a": (10, 10)})) == Backlog(14, 200.0)
    # A batch of two would take 50 ms, and another 50 behind it would be too late; of one it is 20 and 20.
    assert backlog(small_plan(ONE, small_gear(ONE, "a", largest=2)), profile({"a": (20, 50)})).most_waiting == 1


def test_more_devices_carry_more_and_what_is_forwarded_is_work_too() -> None:
    two = {"a0": "d0", "a1": "d1"}
    assert backlog(small_plan(two, small_gear(two, "a", largest=1)), profile({"a": (10, 10)})) == Backlog(14, 200.0)
    shared = {"a0": "d0", "b0": "d0"}
    plan = small_plan(shared, small_gear(shared, "a b", (0.5,), largest=1))
    # Half of the samples wait twice, and so for 4/3 of the average: 20 + 4/3 * 2 * 20 ms.
    assert backlog(plan, profile({"a": (10, 10), "b": (20, 20)})) == Backlog(2, 50.0)
    apart = {"a0": "d0", "b0": "d1"}
    plan = small_plan(apart, small_gear(apart, "a b", (0.5,), largest=1))
    assert backlog(plan, profile({"a": (10, 10), "b": (20, 20)})) == Backlog(6, 100.0)


def test_where_rows_are_refined_only_screening_is_work_behind_half_a_batch_that_refines() -> None:
    shared = {"a0": "d0", "b0": "d0"}
    plan = refining(small_plan(shared, small_gear(shared, "a b", (0.5,), largest=1)), {0.0: 0.5, 0.5: 0.0})
    # Of 100 ms 80 are used: 20 for what is left of the batch that refines, 10 for each that waits.
    assert backlog(plan, profile({"a": (10, 10), "b": (40, 40)})) == Backlog(6, 100.0)
    apart = {"a0": "d0", "b0": "d1"}
    plan = refining(small_plan(apart, small_gear(apart, "a b", (0.5,), largest=1)), {0.0: 0.5, 0.5: 0.0})
    assert backlog(plan, profile({"a": (10, 10), "b": (40, 40)})) == Backlog(7, 100.0)


def test_the_gear_of_the_highest_loads_decides() -> None:
    placed = {"a0": "d0", "b0": "d0"}
    gears = small_gear(placed, "b", load=(0, 10), largest=1), small_gear(placed, "a", load=(10, None), largest=1)
    assert backlog(small_plan(placed, *gears), profile({"a": (10, 10), "b": (40, 40)})).most_waiting == 7


def test_no_fewer_than_waited_on_the_plans_own_trace_nor_than_start_a_batch() -> None:
    plan, measured = small_plan(ONE, small_gear(ONE, "a", largest=1)), profile({"a": (10, 10)})
    nobody = np.zeros(0)
    predicted = summarise(
        latency_s=nobody, quality=nobody, requests=1, refused=1, latency_objective_s=None, duration_s=1.0, devices=1,
        utilisation={}, most_waiting=31,
    )  # fmt: skip
    assert backlog(msgspec.structs.replace(plan, predictions={"task": predicted}), measured).most_waiting == 38
    slow = small_plan(ONE, small_gear(ONE, "a", largest=2, minimum=2, wait_ms=1))
    assert backlog(slow, profile({"a": (90, 90)})).most_waiting == 2
    assert backlog(plan, profile({"a": (90, 90)})).most_waiting == 1


def test_without_a_latency_objective_as_many_as_are_answered_in_seconds() -> None:
    plan = with_objective(small_plan(ONE, small_gear(ONE, "a", largest=1)), None)
    assert backlog(plan, profile({"a": (10, 10)})).most_waiting == 799
    assert backlog(plan, profile({"a": (0.01, 0.01)})).most_waiting == MOST_WHERE_NONE


def test_a_scaler_gives_more_cores_which_carry_more(tmp_path: Path) -> None:
    write_scaled_cascade(tmp_path, devices=1, cores=1)
    plan, measured = read_plan(tmp_path / "plan.json"), read_profile(tmp_path / "profile")
    tables = plan_tables(plan)
    few, many = (backlog_of(plan, tables, measured, scaler_cores=cores) for cores in (None, 4))
    assert many.capacity_qps > 1.5 * few.capacity_qps
    assert many.most_waiting > few.most_waiting


def test_each_of_several_pipelines_has_its_own_bound() -> None:
    plan = two_task_plan("", "")
    sums, numbers = little_profile(), scaled_profile((1,))
    both = dataclasses.replace(sums, curves=sums.curves + numbers.curves, predictions=both_predictions(sums, numbers))
    tables = plan_tables(plan)
    alone = {name: backlog_of(plan, tables, both, pipeline=name) for name in ("sums", "numbers")}
    assert alone["sums"] == backlog(two_gear_plan(""), sums)
    assert alone["numbers"] == backlog(scaled_plan("", cores=1), numbers)
    with pytest.raises(InvalidInput, match="no pipeline 'other'; name one of sums, numbers"):
        backlog_of(plan, tables, both, pipeline="other")


def test_a_graph_counts_the_items_that_recorded_requests_visit() -> None:
    plan, profiles = graph_plan(), recorded_profiles()
    tables, joint = plan_tables(plan), {"pairs": recorded_tuples(profiles)}
    once = backlog_of(plan, tables, profiles)
    visited = backlog_of(plan, tables, profiles, joint=joint)
    # Batches of 8 take 2 ms. A row has 1, 19 / 8 and 1 items on the first device, in place of 3.
    assert once.capacity_qps / visited.capacity_qps == pytest.approx((2 + 19 / 8) / 3, rel=0.01)
    # One request of 8 has no rows: those that pass all three queues wait for 24/23 of the average.
    assert once.most_waiting / visited.most_waiting == pytest.approx((2 + 19 / 8) / 3 * 24 / 23, rel=0.01)


def both_predictions(one: Profile, other: Profile) -> PredictionRecords:
    certainty = np.concatenate([np.tile(one.predictions.certainty, 2), other.predictions.certainty])
    part = other.predictions.part
    return PredictionRecords(
        models=one.models + other.models, quality=np.ones_like(certainty), certainty=certainty, part=part
    )
