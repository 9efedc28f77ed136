"""Plans that refine while there is time, on pages and in tables."""

import msgspec
import numpy as np
import pytest

from gearshift.gear import GearPlan, GearPrediction
from gearshift.planner.compare import Run
from gearshift.reporting.comparison import runs_of
from gearshift.reporting.gear_rows import gear_rows
from gearshift.reporting.headline import refinement_in_words
from gearshift.reporting.shown import answered_by, range_points, shown_of
from gearshift.simulator.simulate import Simulation, simulate
from gearshift.workload import Trace, Workload
from tests.little_task import little_plan, little_profile, refining_plan
from tests.unit.reporting.test_rows_page import page_of

PROFILE = little_profile()
GEAR = GearPrediction(load_qps=1.0, accuracy=0.9, latency_p95_s=0.1, share_late=0.0, utilisation=0.5)
WORKLOAD = Workload(
    arrivals_ns=np.arange(200, dtype=np.int64) * 20_000_000, record=np.arange(200, dtype=np.int32) % 2, duration_s=4.0
)
TRACE = Trace(WORKLOAD.arrivals_ns, 4.0)


def predicted(plan: GearPlan) -> tuple[GearPlan, Simulation]:
    """The plan with predictions for the trace."""
    run = simulate(plan, PROFILE, WORKLOAD)
    result = run.result(PROFILE, latency_objective_s=plan.pipeline.objective.latency_s)
    return msgspec.structs.replace(plan, predictions={plan.name: result}), run


@pytest.fixture(scope="module")
def hurried() -> tuple[GearPlan, Simulation]:
    """Rows have no time at all to be refined, so that the small model answers everything."""
    return predicted(refining_plan(PROFILE.sha256, margin_s=10.0))


def answered(plan: GearPlan, run: Simulation | None) -> dict[str, float]:
    gear = msgspec.structs.replace(plan.pipeline.gears[0], predicted=GEAR)
    pipeline = msgspec.structs.replace(plan.pipeline, gears=(gear,))
    (row,) = range_points(msgspec.structs.replace(plan, pipelines={"sums": pipeline}), "sums", PROFILE, run)
    return dict(row.answered)


def test_shares_of_a_plan_that_refines_are_those_of_the_simulation(hurried: tuple[GearPlan, Simulation]) -> None:
    plan, run = hurried
    by_thresholds = answered_by(plan.pipeline.gears[0].cascade, PROFILE)
    assert by_thresholds["large"] > 0.2
    assert answered(plan, run) == {"small": 1.0}
    assert answered(plan, None) == {}
    assert answered(little_plan(PROFILE.sha256), run) == by_thresholds


def test_the_page_says_that_a_plan_refines_with_its_median_and_the_share_by_time(
    hurried: tuple[GearPlan, Simulation],
) -> None:
    plan, run = hurried
    page = page_of(shown_of(plan, PROFILE, simulations=[("gear plan", run)], trace=TRACE))
    assert "This plan refines while there is time" in page
    assert "<dt>p50</dt>" in page
    assert "<th>by time</th>" in page
    gears, _ = predicted(little_plan(PROFILE.sha256))
    assert "refines" not in page_of(shown_of(gears, PROFILE, trace=TRACE))


def test_the_terminal_says_that_a_plan_refines_with_its_median(hurried: tuple[GearPlan, Simulation]) -> None:
    (told,) = refinement_in_words(hurried[0])
    assert told.startswith("refines while there is time: half of the requests take up to ")
    assert told.endswith(" are answered with what they had when time ran out")
    assert refinement_in_words(little_plan("")) == []


def test_gears_that_refine_are_marked() -> None:
    assert gear_rows(refining_plan(""), "sums")[0].cascade.endswith(", refined")
    assert not gear_rows(little_plan(""), "sums")[0].cascade.endswith(", refined")


def test_a_comparison_has_a_column_of_medians_and_where_something_refines_the_share_by_time(
    hurried: tuple[GearPlan, Simulation],
) -> None:
    result = hurried[0].predictions["sums"]
    run = Run(planner="a", devices=1, latency_objective_s=1.0, planning_s=1.0, predicted=result)
    assert runs_of([run]).titles[-5:-1] == ["p50", "p95", "late", "by time"]
    plain = msgspec.structs.replace(run, predicted=msgspec.structs.replace(result, share_by_time=msgspec.UNSET))
    assert runs_of([plain]).titles[-4:-1] == ["p50", "p95", "late"]
