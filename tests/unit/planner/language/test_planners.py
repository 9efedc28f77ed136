import dataclasses

import numpy as np
import pytest

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Metric, Objective
from gearshift.planner import planners
from gearshift.planner.contract.planner import BEST, OutOfTime
from gearshift.planner.language.request import LanguageRequest
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.profile import PART_B
from gearshift.reporting.language.words import ended_early_text
from gearshift.simulator.engines.simulate_language import simulate_language
from tests.language_profiles import bursty_trace, language_profile
from tests.often import first_short


def request(
    latency_s: float | None = 0.3, *, metric: Metric = "ttft", devices: int = 1, **fields: object
) -> LanguageRequest:
    accuracy = fields.pop("accuracy", None)
    return LanguageRequest(
        profile=language_profile(),
        trace=bursty_trace(1, 15, seconds=10),
        hardware=identical_devices(devices, kind="gpu", memory_bytes=30_000_000),
        objective=Objective(latency_s=latency_s, accuracy=accuracy, metric=metric),  # type: ignore[arg-type]
        most_candidates=6,
        most_gears=3,
        most_tried=12,
        **fields,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def plans() -> dict[str, GearPlan]:
    return {name: planners.plan(name, request()) for name in planners.for_("tokens")}


def late(made: GearPlan, asked: LanguageRequest, seed: int) -> float:
    tables = engine_tables(made, asked.profile)
    run = simulate_language(tables, asked.profile, asked.workload(PART_B, seed=seed))
    return float((run.ttft_ns / 1e9 > asked.latency_s).mean())


def test_plans_of_all_planners_keep_the_objective_on_part_b(plans: dict[str, GearPlan]) -> None:
    for name, made in plans.items():
        assert made.planner == name
        assert np.mean([late(made, request(), seed) for seed in range(3)]) <= 0.05
        assert made.predictions["chat"].share_late <= 0.05
        assert made.pipeline.load_unit == "drain_s"


def test_no_baseline_is_better_on_part_a(plans: dict[str, GearPlan]) -> None:
    asked = request()
    answers = asked.profile.answers

    def on_a(made: GearPlan) -> float:
        tables = engine_tables(made, asked.profile)
        runs = [simulate_language(tables, asked.profile, asked.workload(0, seed=seed)) for seed in range(3)]
        return float(np.mean([answers.quality[run.model, run.workload.record].mean() for run in runs]))

    best = on_a(plans["optimal"])
    assert all(on_a(plans[name]) <= best + 1e-9 for name in ("single", "static-cascade", "model-switching"))


def test_baselines_are_what_they_are_called(plans: dict[str, GearPlan]) -> None:
    gears = {name: made.pipeline.gears for name, made in plans.items()}
    assert len(gears["single"]) == len(gears["static-cascade"]) == 1
    assert all(len(gear.cascade.models) == 1 for name in ("single", "model-switching") for gear in gears[name])


@pytest.mark.parametrize("unit", first_short(["outstanding_requests", "queued_tokens"]))
def test_ranges_may_be_in_other_units(unit: str) -> None:
    asked = request(load_unit=unit)
    made = planners.plan("optimal", asked)
    assert made.pipeline.load_unit == unit
    assert late(made, asked, 0) <= 0.05


@pytest.mark.parametrize(("metric", "limit_s"), [("per_token", 0.02), ("total", 2.0)])
def test_other_times_may_be_bounded(metric: Metric, limit_s: float) -> None:
    made = planners.plan("static-cascade", request(limit_s, metric=metric))
    tokens = made.predictions["chat"].tokens
    assert getattr(tokens, f"{metric}_s").p95 <= limit_s
    assert made.pipeline.objective.metric == metric


@pytest.mark.long
def test_what_is_not_feasible_names_a_latency_that_is() -> None:
    with pytest.raises(Infeasible) as caught:
        planners.plan("optimal", request(0.001))
    nearest = caught.value.nearest_latency_s
    assert nearest is not None
    made = planners.plan("optimal", request(nearest))
    assert made.predictions["chat"].share_late <= 0.05


@pytest.mark.long
def test_for_a_quality_the_fastest_plan_that_has_it() -> None:
    made = planners.plan("static-cascade", request(None, accuracy=0.7))
    assert made.predictions["chat"].accuracy >= 0.7
    assert made.pipeline.objective.accuracy == 0.7
    with pytest.raises(Infeasible, match="no cascade has a quality"):
        planners.plan("static-cascade", request(None, accuracy=0.99))


def test_a_quality_that_a_latency_does_not_allow_is_told() -> None:
    with pytest.raises(Infeasible, match="the best quality is") as caught:
        planners.plan("single", request(0.3, accuracy=0.95))
    assert caught.value.nearest_accuracy is not None


def test_the_fewest_devices_with_both() -> None:
    asked = request(0.3, accuracy=0.75)
    made = planners.fewest("static-cascade", asked, most=4)
    count = len(made.hardware.devices)
    assert made.predictions["chat"].accuracy >= 0.75
    if count > 1:
        fewer = dataclasses.replace(asked, hardware=identical_devices(count - 1, kind="gpu", memory_bytes=30_000_000))
        with pytest.raises(Infeasible):
            planners.plan("static-cascade", fewer)


def test_a_frontier_rises() -> None:
    found = planners.frontier("static-cascade", request(None))
    points = [(made.predictions["chat"].latency_s.p95, made.predictions["chat"].accuracy) for made in found]
    assert len(points) >= 2
    assert points == sorted(points)
    assert [quality for _, quality in points] == sorted(quality for _, quality in points)


@pytest.mark.long
def test_a_search_that_is_cut_short_gives_its_best() -> None:
    asked, told = request(), list[str]()

    def interrupt(what: str, share: float) -> None:
        told.append(what)
        if len(told) == 4:
            raise KeyboardInterrupt

    made = planners.plan("optimal", asked, progress=interrupt)
    assert made.unfinished
    assert made.predictions["chat"].share_late <= 0.05
    told.clear()
    with pytest.raises(KeyboardInterrupt):  # as a comparison wants it, to end as a whole
        planners.named("optimal", "tokens").plan(asked, progress=interrupt, keeps_at_ctrl_c=False)


def cut_short(asked: LanguageRequest, at: str, times: int, *, planner: str = "static-cascade") -> GearPlan:
    """The plan where the budget is spent once progress has told `at` so many times."""
    told = list[str]()

    def out_of_time(what: str, share: float) -> None:
        told.append(what)
        if at in what and sum(at in each for each in told) == times:
            raise OutOfTime

    return planners.plan(planner, asked, progress=out_of_time)


def test_a_plan_that_the_budget_cut_short_is_marked_and_words_say_so() -> None:
    made = cut_short(request(budget_s=1e6), BEST, 1)
    assert made.unfinished
    assert "ended early" in ended_early_text(made)
    assert "--budget-s" in ended_early_text(made)


def test_a_plan_that_was_cut_short_before_it_had_the_accuracy_asked_for_is_refused() -> None:
    with pytest.raises(Infeasible, match=r"the best quality is .* where the search was ended early, not 0\.95"):
        cut_short(request(0.3, accuracy=0.95, budget_s=1e6), BEST, 1)


@pytest.mark.long
def test_the_fastest_plan_so_far_that_has_the_accuracy_is_kept_where_the_search_is_cut_short() -> None:
    made = cut_short(request(None, accuracy=0.7, budget_s=1e6), "planning for", 10)
    assert made.unfinished
    assert made.predictions["chat"].accuracy >= 0.7
    assert made.pipeline.objective.accuracy == 0.7


def test_a_budget_that_is_too_small_says_so() -> None:
    with pytest.raises(Infeasible, match="budget"):
        planners.plan("optimal", request(budget_s=1e-6))


def test_unknown_planners_and_no_objective_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no planner 'best'"):
        planners.plan("best", request())
    with pytest.raises(InvalidInput, match="there is no objective"):
        planners.plan("optimal", request(None))
