from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import gearshift
from gearshift.cascade import Cascade, ExpectedGain
from gearshift.errors import InvalidInput
from gearshift.gear import Gear, GearPlan, LoadRange, alone
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.plans.plan_diff import diff
from tests.two_language_models import ALONE, SMALL_ALONE, language_plan
from tests.unit.planner.fake import plan
from tests.unit.planner.little import little_request

PLAN = plan(little_request())
GEAR = PLAN.pipelines["task"].gears[0]
SMALL, LARGE = Cascade(models=("m0",)), Cascade(models=("m2",))
SMALL_LARGE = Cascade(models=("m0", "m2"), thresholds=(0.5,))


def gears(*parts: tuple[float, Cascade]) -> list[Gear]:
    ends: list[float | None] = [start for start, _ in parts[1:]]
    return [
        msgspec.structs.replace(
            GEAR, load_range=LoadRange(from_=start, to=end), cascades=alone("task", cascade), replicas=settings(cascade)
        )
        for (start, cascade), end in zip(parts, [*ends, None], strict=True)
    ]


def settings(cascade: Cascade) -> tuple[object, ...]:
    return tuple(
        msgspec.structs.replace(s, load_share=float(s.replica.split("@")[0] in cascade.models)) for s in GEAR.replicas
    )


def with_gears(made: Sequence[Gear]) -> GearPlan:
    operator = msgspec.structs.replace(PLAN.pipelines["task"], gears=tuple(made))
    return msgspec.structs.replace(PLAN, pipelines={"task": operator})


def test_a_plan_does_not_differ_from_itself() -> None:
    found = diff(PLAN, PLAN)
    assert found.same
    assert not found.origin
    assert found.predictions[0] == found.predictions[1] == PLAN.predictions["task"]


def test_an_objective_and_where_it_came_from_differ_by_field() -> None:
    operator = msgspec.structs.replace(PLAN.pipelines["task"], objective=Objective(latency_s=0.5, accuracy=0.8))
    found = diff(PLAN, msgspec.structs.replace(PLAN, pipelines={"task": operator}, planner="other"))
    assert {c.what: (c.a, c.b) for c in found.objective} == {"latency_s": (0.03, 0.5), "accuracy": (None, 0.8)}
    assert [(c.what, c.a, c.b) for c in found.origin] == [("planner", "fake", "other")]
    assert not found.same


def test_devices_and_replicas_differ_by_where_they_are() -> None:
    found = diff(PLAN, plan(little_request(devices=2)))
    assert [(c.what, c.a) for c in found.hardware] == [("cpu-1", None)]
    assert {c.what: (c.a, c.b) for c in found.placement} == {f"m{k} on cpu-1": (None, 1) for k in range(3)}
    assert identical_devices(2).devices[1].id == "cpu-1"


def test_ranges_are_laid_over_each_other_and_alike_neighbours_joined() -> None:
    a = with_gears(gears((0, LARGE), (100, LARGE), (200, SMALL)))
    b = with_gears(gears((0, LARGE), (50, SMALL), (300, SMALL)))
    (change,) = diff(a, b).gears
    assert (change.load_range.from_, change.load_range.to) == (50, 200)
    assert (change.a.cascade, change.b.cascade) == (LARGE, SMALL)


@pytest.mark.parametrize("field", ["largest_batch_size", "minimum_queue_length"])
def test_settings_of_replicas_in_use_differ_and_those_of_others_do_not(field: str) -> None:
    def changed(used: bool) -> GearPlan:
        rows = [msgspec.structs.replace(s, **{field: 3}) if (s.load_share > 0) == used else s for s in GEAR.replicas]
        return with_gears([msgspec.structs.replace(GEAR, replicas=tuple(rows))])

    assert len(diff(PLAN, changed(True)).gears) == 1
    assert diff(PLAN, changed(False)).same


def ordered(gains: Sequence[float] = (0.2, 0.1), **settings: object) -> GearPlan:
    """The plan with its gear ordered by gain, and the gains of its models."""
    gear = msgspec.structs.replace(gears((0.0, SMALL_LARGE))[0], order="gain", **settings)
    gain = ExpectedGain(kept="m0", later="m2", certainty=(0.0, 1.0), gain=tuple(gains))
    pipeline = msgspec.structs.replace(PLAN.pipelines["task"], gears=(gear,), gains=(gain,))
    return msgspec.structs.replace(PLAN, pipelines={"task": pipeline})


def test_a_plan_and_the_same_ordered_by_gain_differ() -> None:
    found = diff(with_gears(gears((0.0, SMALL_LARGE))), ordered())
    assert not found.same
    assert [(change.a.order, change.b.order) for change in found.gears] == [(UNSET, "gain")]


@pytest.mark.parametrize(
    "other", [{"answer_by_margin_s": 0.004}, {"refine_for": "rows"}, {"gains": (0.3, 0.1)}], ids=lambda o: next(iter(o))
)
def test_plans_that_refine_differ_by_margin_aim_and_gains(other: dict[str, Any]) -> None:
    assert not diff(ordered(), ordered(**other)).same
    assert diff(ordered(**other), ordered(**other)).same


def test_settings_of_refinement_that_are_left_out_equal_their_defaults() -> None:
    assert diff(ordered(), ordered(answer_by_margin_s=0.0, refine_for="gain")).same


def test_gains_that_no_gear_reads_make_no_difference() -> None:
    plain, unread = with_gears(gears((0.0, SMALL_LARGE))), ordered()
    pipeline = msgspec.structs.replace(unread.pipeline, gears=plain.pipeline.gears)
    assert diff(plain, msgspec.structs.replace(unread, pipelines={"task": pipeline})).same


def test_plans_of_language_models_differ_by_ranges_of_their_load() -> None:
    one = language_plan([ALONE])
    found = diff(one, language_plan([ALONE, SMALL_ALONE], [0.0, 8.0]))
    assert [(change.load_range.from_, change.a.cascade, change.b.cascade) for change in found.gears] == [
        (8.0, ALONE, SMALL_ALONE)
    ]
    assert diff(one, one).same


def test_loads_in_different_units_are_not_compared() -> None:
    found = diff(language_plan([ALONE]), language_plan([SMALL_ALONE], load_unit="queued_tokens"))
    assert not found.gears
    assert [(one.what, one.b) for one in found.objective] == [("load_unit", "queued_tokens")]
    assert not found.same


def test_a_plan_of_language_models_is_not_compared_with_one_of_others() -> None:
    with pytest.raises(InvalidInput, match="plan is of models of rows, and the second of language models; give two"):
        gearshift.diff(PLAN, language_plan([ALONE]))


def test_replicas_of_engines_differ_by_what_they_hold() -> None:
    made = language_plan([ALONE])
    small, *rest = made.placement.replicas
    placement = msgspec.structs.replace(
        made.placement, replicas=(msgspec.structs.replace(small, kv_tokens=2000), *rest)
    )
    found = diff(made, msgspec.structs.replace(made, placement=placement))
    assert [one.what for one in found.placement] == [
        "small on small-0",
        "small on small-0 with 2,000 tokens of context",
    ]
