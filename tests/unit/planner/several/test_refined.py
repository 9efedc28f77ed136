"""Two operators that refine on the same devices."""

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.planner import Planner
from gearshift.planner.evaluate.assemble import with_pipeline
from gearshift.planner.explain_together import explain_together
from gearshift.planner.refine.way import Way
from gearshift.planner.several.refined import PLANNER as REFINE
from gearshift.planner.several.refined import PairsTogether, accuracy_of, plan_several_by_policy, run_of, tuples_of
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.beside import part_of
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.workload import Trace
from tests.unit.planner.several.worlds import two_operators

SEVERAL = two_operators()


@cache
def tuples() -> list[PairsTogether]:
    return list(tuples_of(SEVERAL))


@cache
def made() -> GearPlan:
    return REFINE.plan(SEVERAL)


def with_one_model(profile: Profile) -> Profile:
    """The profile with its first model alone."""
    (model, *_), records = profile.models, profile.predictions
    rows = records.rows((model,))
    one = replace(records, models=(model,), quality=records.quality[rows], certainty=records.certainty[rows])
    return replace(profile, curves=tuple(c for c in profile.curves if c.model == model), predictions=one)


def test_the_level_rises_with_the_load_of_any_operator() -> None:
    refining = max(tuples(), key=lambda each: each.promise(Way()))
    sizes = refining.sizes(Way())
    loads = [{"cats": cats, "dogs": dogs} for cats, dogs in ((10.0, 10.0), (400.0, 10.0), (400.0, 300.0))]
    levels = [refining.level(qps, sizes) for qps in loads]
    assert levels == sorted(levels)
    assert levels[0] < levels[-1]


def test_where_all_rows_can_be_refined_the_level_is_that_of_no_gain() -> None:
    for refining in tuples():
        assert refining.level({"cats": 0.1, "dogs": 0.1}, refining.sizes(Way())) == 0.0


def test_no_batch_is_longer_than_the_shortest_latency_allows() -> None:
    refining = tuples()[0]
    for name, sizes in refining.sizes(Way(longest=0.5)).items():
        curves = refining.pairs[name].curves
        assert all(curves[replica].seconds(size) <= 0.025 for replica, size in sizes.items() if size > 1)


def test_an_operator_with_one_model_screens_alone() -> None:
    cats = SEVERAL.requests["cats"]
    few = SeveralRequest(
        requests={"cats": replace(cats, profile=with_one_model(cats.profile)), "dogs": SEVERAL.requests["dogs"]}
    )
    for refining in tuples_of(few):
        plan = refining.plan(Way())
        assert [gear.cascade.models for gear in plan.pipelines["cats"].gears] == [refining.pairs["cats"].models] * 3
        assert plan.pipelines["cats"].refines
        assert len(refining.pairs["dogs"].models) == 2


def test_a_plan_that_refines_takes_no_other_operator_and_is_added_to_none() -> None:
    plan = part_of(tuples()[0].plan(Way()), ["cats"])
    with pytest.raises(InvalidInput, match="operators are added to plans of gears"):
        SeveralRequest(requests=SEVERAL.requests, fixed=plan)
    gears = tuple(
        msgspec.structs.replace(gear, order=UNSET, answer_by_margin_s=UNSET, refine_for=UNSET)
        for gear in plan.pipeline.gears
    )
    ordinary = with_pipeline(plan, gears=gears)
    with pytest.raises(InvalidInput, match="operators that refine are planned together"):
        REFINE.plan(SeveralRequest(requests=SEVERAL.requests, fixed=ordinary))


def test_an_operator_of_more_worth_has_more_of_its_rows_refined() -> None:
    cats, dogs = (SeveralRequest(requests=SEVERAL.requests, worth={name: 5.0}) for name in ("cats", "dogs"))
    loads = {"cats": 400.0, "dogs": 300.0}
    for of_cats, of_dogs in zip(tuples_of(cats), tuples_of(dogs), strict=True):
        plans = [refining.plan(Way()) for refining in (of_cats, of_dogs)]
        assert [plan.pipelines["cats"].worth for plan in plans] == [5.0, UNSET]
        sure, unsure = (plan.pipelines["cats"].gears[-1].cascade.thresholds for plan in plans)
        assert sure >= unsure
        shares = [
            refining.rows[1]["cats"][: refining.reached(loads, refining.sizes(Way()))].sum()
            for refining in (of_cats, of_dogs)
        ]
        assert shares[0] >= shares[1]


@cache
def shorter() -> SeveralRequest:
    """Four seconds of the traces, in two ranges."""
    requests = {
        name: replace(one, trace=Trace(one.trace.arrivals_ns[one.trace.arrivals_ns < 4e9], 4.0), policy="best")
        for name, one in two_operators(ranges=2).requests.items()
    }
    return SeveralRequest(requests=requests, worth={"cats": 2.0})


@cache
def soon_made() -> GearPlan:
    return planners.plan("refine", shorter())


def test_a_planner_that_refines_says_that_it_was_asked_for() -> None:
    for pipeline in soon_made().pipelines.values():
        assert pipeline.asked is not None
        assert pipeline.asked.chosen_because == "rows are refined while there is time, as was asked for"


def test_explain_has_each_model_alone_in_place_of_cascades_that_refine() -> None:
    profiles = {name: one.profile for name, one in shorter().requests.items()}
    traces = {name: one.trace for name, one in shorter().requests.items()}
    for name, explained in explain_together(soon_made(), profiles, {}, traces).pipelines.items():
        assert [one.models[name] for one in explained.alone] == list(profiles[name].models)
        accuracies = [one.predicted.accuracy for one in explained.alone if one.predicted is not None]
        assert len(accuracies) == len(explained.alone), [one.reason for one in explained.alone]
        assert accuracies[0] < accuracies[-1]


def test_ctrl_c_leaves_the_plan_of_gears_that_was_found_before() -> None:
    gears = msgspec.structs.replace(soon_made(), planner="optimal")

    def stopped(what: str, share: float) -> None:
        if what.startswith("replaying plans that refine"):
            raise KeyboardInterrupt

    for early in (False, True):
        found = msgspec.structs.replace(gears, unfinished=early)
        made = plan_several_by_policy(
            Planner(name="optimal", best_within=lambda _, found=found: found), shorter(), progress=stopped
        )
        assert (made.planner, made.unfinished) == ("optimal", True)
        assert all(
            one.asked is not None
            and str(one.asked.chosen_because).endswith("as the search was ended before one that refines was found")
            for one in made.pipelines.values()
        )


def test_the_budget_ends_a_comparison_of_pairs() -> None:
    requests = {name: replace(one, budget_s=1e-9) for name, one in shorter().requests.items()}
    with pytest.raises(Infeasible, match="within the budget"):
        REFINE.plan(SeveralRequest(requests=requests))


@pytest.mark.long
def test_all_traces_at_once_keep_each_latency_as_predicted() -> None:
    run = run_of(SEVERAL, made(), part=PART_B, seed=0)
    for name, request in SEVERAL.requests.items():
        result = run.result(SEVERAL.together, latency_objective_s=request.latency_s, pipeline=name)
        assert result.share_late <= 0.05
        assert result.accuracy == pytest.approx(made().predictions[name].accuracy, abs=0.02)


@pytest.mark.long
def test_every_pipeline_refines_and_every_gear_has_its_prediction() -> None:
    assert made().planner == "refine"
    for name, pipeline in made().pipelines.items():
        assert all(gear.order == "gain" and gear.predicted is not None for gear in pipeline.gears)
        assert pipeline.asked is not None
        assert pipeline.planned_load is not None
        assert made().predictions[name].share_by_time is not UNSET


@pytest.mark.long
def test_an_accuracy_that_is_not_reached_is_refused_by_name() -> None:
    dogs = SEVERAL.requests["dogs"]
    strict = replace(dogs, objective=Objective(latency_s=dogs.latency_s, accuracy=0.999))
    with pytest.raises(Infeasible, match="pipeline 'dogs'"):
        REFINE.plan(SeveralRequest(requests={**SEVERAL.requests, "dogs": strict}))


@pytest.mark.long
def test_the_better_policy_is_the_more_accurate_over_all_requests_and_says_so_in_each_pipeline() -> None:
    requests = {name: replace(one, policy="best") for name, one in SEVERAL.requests.items()}
    several = SeveralRequest(requests=requests)
    best, gears = planners.plan("optimal", several), planners.plan("optimal", SEVERAL)
    right = {made: accuracy_of(several, plan, part=PART_A) for made, plan in (("refine", made()), ("gears", gears))}
    assert best.planner == ("refine" if right["refine"] - right["gears"] >= 5e-4 else "optimal")
    told = {pipeline.asked.chosen_because for pipeline in best.pipelines.values() if pipeline.asked is not None}
    assert len(told) == 1
    assert "over all operators" in str(told.pop())


@pytest.mark.long
def test_explain_says_the_share_by_time_of_each_pipeline() -> None:
    profiles = {name: one.profile for name, one in SEVERAL.requests.items()}
    traces = {name: one.trace for name, one in SEVERAL.requests.items()}
    explained = explain_together(made(), profiles, {}, traces)
    for name, pipeline in explained.pipelines.items():
        assert pipeline.replayed.share_by_time is not UNSET
        assert [found.predicted for found in pipeline.ranges] == [g.predicted for g in made().pipelines[name].gears]
        assert all(found.next is None for found in pipeline.ranges)


def test_the_rows_of_all_operators_stand_in_one_order_of_gain() -> None:
    for refining in tuples():
        gains, parts = refining.rows
        assert np.all(np.diff(gains) <= 0)
        assert all(part.sum() == pytest.approx(1.0) for part in parts.values())
