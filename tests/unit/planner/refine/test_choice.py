"""Which plan a policy chooses, and what it says of that."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.contract.planner import Planner
from gearshift.planner.refine.choice import is_better, plan_by_policy, price_of_used
from gearshift.planner.space.request import PlanRequest, silent
from gearshift.planner.what_if import request_of
from gearshift.plans.plan_file import encode_plan, read_plan, write_plan
from gearshift.plans.prices import priced
from tests.unit.planner.refine.worlds import request


def asked(count: int = 1, policy: Any = "best", **objective: Any) -> PlanRequest:
    return replace(request(count), policy=policy, objective=Objective(**{"latency_s": 0.02} | objective))


@cache
def best() -> GearPlan:
    return planners.plan("single", asked())


def because(made: GearPlan) -> str:
    assert made.pipeline.asked is not None
    assert isinstance(made.pipeline.asked.chosen_because, str)
    return made.pipeline.asked.chosen_because


def test_the_better_plan_says_both_accuracies() -> None:
    assert best().pipeline.refines
    told = re.fullmatch(
        r"rows are refined while there is time: (\S+) % are right with refining, (\S+) with gears alone, replayed .*",
        because(best()),
    )
    assert told is not None
    assert float(told[1]) > float(told[2]) + 1


def test_a_plan_that_refines_is_not_taken_where_it_is_less_accurate_on_part_b() -> None:
    gears = planners.plan("single", request(1))
    ((name, told),) = gears.predictions.items()
    assert is_better(best(), gears, request(1))
    surer = msgspec.structs.replace(gears, predictions={name: msgspec.structs.replace(told, accuracy=1.0)})
    assert not is_better(best(), surer, request(1)), "though it is more accurate on part A"


def test_a_plan_keeps_its_policy_and_the_reason_in_its_file(tmp_path: Path) -> None:
    write_plan(best(), tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again.pipeline.asked == best().pipeline.asked
    assert (again.pipeline.asked and again.pipeline.asked.policy) == "best"
    alone = planners.plan("single", request(1))
    assert alone.pipeline.asked is not None
    assert b"chosen_because" not in encode_plan(alone)


def test_neighbours_of_a_plan_that_a_policy_chose_are_planned_as_it_was_made() -> None:
    assert request_of(best(), request(1).profile, request(1).trace).policy == "gears"


def test_where_no_plan_refines_the_reason_is_the_refusal() -> None:
    one_model = asked()
    only = msgspec.structs.replace(
        one_model.hardware.devices[0], memory_bytes=request(1).profile.curves[0].memory_bytes
    )
    made = planners.plan("single", replace(one_model, hardware=replace_devices(one_model, only)))
    assert not made.pipeline.refines
    told = "the plan has gears alone, as none that refines was found: no two models, the second more accurate, fit"
    assert because(made).startswith(told)


def replace_devices(given: PlanRequest, *devices: Any) -> Any:
    return msgspec.structs.replace(given.hardware, devices=devices)


@pytest.mark.long
def test_where_gears_have_no_plan_the_refusal_is_said_too() -> None:
    made = planners.plan("single", asked(3, accuracy=0.75))
    assert made.pipeline.refines
    told = "rows are refined while there is time, as planner 'single' has no plan: 3 devices cannot carry"
    assert because(made).startswith(told)


def test_a_policy_that_only_refines_says_that_it_was_asked_for() -> None:
    made = planners.plan("single", asked(policy="refine"))
    assert because(made) == "rows are refined while there is time, as was asked for"


@pytest.mark.long
def test_with_both_objectives_the_cheaper_plan_wins() -> None:
    given = asked(3, accuracy=0.7)
    made, gears = planners.plan("single", given), planners.plan("single", replace(given, policy="gears"))
    assert price_of_used(made) < price_of_used(gears)
    assert because(made).endswith(": 1 device keeps both objectives with refining, 3 with gears alone")


def test_cheaper_gears_win_over_a_more_accurate_plan_that_refines() -> None:
    one = planners.plan("single", asked(policy="gears"))
    on_one = Planner(name="on-one", best_within=lambda so_far: one, undominated=lambda so_far: [one])
    made, told = plan_by_policy(on_one, asked(2, accuracy=0.8), progress=silent)
    assert made.planner == "on-one"
    assert told == "the plan has gears alone: 2 devices keep both objectives with refining, 1 with gears alone"


def stopped(what: str, share: float) -> None:
    """Ctrl-C at the first replay of a plan that refines."""
    if what.startswith("replaying plans that refine"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("early", [False, True])
def test_ctrl_c_leaves_the_plan_of_gears_that_was_found_before(early: bool) -> None:
    one = msgspec.structs.replace(planners.plan("single", asked(policy="gears")), unfinished=early)
    on_one = Planner(name="on-one", best_within=lambda so_far: one, undominated=lambda so_far: [one])
    made, told = plan_by_policy(on_one, asked(), progress=silent if early else stopped)
    assert (made.planner, made.unfinished) == ("on-one", True)
    assert told == "the plan has gears alone, as the search was ended before one that refines was found"


def test_prices_are_told_where_all_devices_have_one() -> None:
    given = asked(2, accuracy=0.8)
    refining = replace(given, hardware=priced(given.hardware, 2.5))
    one = planners.plan("single", replace(asked(policy="gears"), hardware=priced(request(1).hardware, 2.5)))
    on_one = Planner(name="on-one", best_within=lambda so_far: one, undominated=lambda so_far: [one])
    told = plan_by_policy(on_one, refining, progress=silent)[1]
    assert told.endswith(": devices for 5 an hour keep both objectives with refining, for 2.5 with gears alone")


@pytest.mark.parametrize("budget_s", [None, 600.0])
def test_the_fewest_devices_of_both_policies_record_the_budget_that_was_asked_for(budget_s: float | None) -> None:
    given = replace(asked(accuracy=0.6), budget_s=budget_s)
    made = planners.fewest("single", given).pipeline.asked
    assert made is not None
    assert (made.policy, made.budget_s, made.objective) == ("best", budget_s, given.objective)


@pytest.mark.long
def test_the_fewest_devices_of_both_policies_are_the_cheaper_ones() -> None:
    made = planners.fewest("single", asked(accuracy=0.85))
    assert (made.pipeline.refines, len(made.hardware.devices)) == (True, 2)
    assert ": 2 devices keep both objectives" in because(made)
    assert made.pipeline.asked is not None
    assert made.pipeline.asked.objective == asked(accuracy=0.85).objective


@pytest.mark.long
def test_two_kinds_of_plans_that_are_certified_share_what_may_be_wrong() -> None:
    made = planners.plan("optimal", asked(accuracy=0.72, confidence=0.9))
    assert made.pipeline.objective.confidence == 0.9
    once = planners.plan("refine", asked(policy="gears", accuracy=0.7575, confidence=0.9))
    assert once.pipeline.refines, "alone it is sure enough"
    with pytest.raises(Infeasible):
        planners.plan("optimal", asked(accuracy=0.7575, confidence=0.9))


@pytest.mark.parametrize("changed", [{"policy": "best"}, {"policy": "refine"}, {"objective": Objective(median_s=0.01)}])
def test_plans_of_cores_take_neither_a_policy_nor_a_median(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="and cores are both given"):
        planners.on_cores(replace(request(1), **changed))
