"""Worlds at the limits of what can be asked: every planner answers each with a plan that is right for it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from gearshift.errors import GearshiftError
from gearshift.gear import Gear, GearPlan
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.explain import explain
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_diff import diff
from gearshift.plans.plan_file import encode_plan, read_plan
from gearshift.profiles.profile import Profile
from gearshift.workload import Trace
from tests.often import first_short
from tests.unit.planner.little import PROFILE, little_request, little_trace

RECORDS = PROFILE.predictions
BIG_BYTES = 1 << 40
DEVICE_BYTES = 1 << 30
UNCONFIRMED = ("coordinate", "frontier")
"""Planners that do not hold every plan against the trace."""


def request(**changed: Any) -> PlanRequest:
    fields: dict[str, Any] = {
        "trace": little_trace(low_qps=60, high_qps=120),
        "latency_s": 0.05,
        "ranges": 2,
        "most_candidates": 4,
    }
    return little_request(**(fields | changed))


def answering(quality: NDArray[np.float64], certainty: NDArray[np.float64]) -> Profile:
    """The little world's models with other answers."""
    return dataclasses.replace(PROFILE, predictions=dataclasses.replace(RECORDS, quality=quality, certainty=certainty))


def gears_of(made: GearPlan) -> tuple[Gear, ...]:
    return made.pipelines["task"].gears


def models_of(made: GearPlan) -> set[str]:
    return {model for gear in gears_of(made) for model in gear.cascade.models}


def the_fastest_is_the_best() -> PlanRequest:
    return request(profile=answering(RECORDS.quality[::-1], RECORDS.certainty[::-1]))


def two_are_identical() -> PlanRequest:
    twins = answering(RECORDS.quality[[0, 0, 2]], RECORDS.certainty[[0, 0, 2]])
    first, _, last = PROFILE.curves
    return request(profile=dataclasses.replace(twins, curves=(first, msgspec.structs.replace(first, model="m1"), last)))


def the_slowest_guesses() -> PlanRequest:
    guesses, doubts = np.random.default_rng(0).random((2, 1, RECORDS.quality.shape[1]))
    quality = np.concatenate([RECORDS.quality[:2], np.round(guesses)])
    return request(profile=answering(quality, np.concatenate([RECORDS.certainty[:2], doubts])))


def one_fits_no_device() -> PlanRequest:
    *others, last = PROFILE.curves
    curves = (*others, msgspec.structs.replace(last, memory_bytes=BIG_BYTES))
    return request(
        profile=dataclasses.replace(PROFILE, curves=curves), hardware=identical_devices(2, memory_bytes=DEVICE_BYTES)
    )


def all_certainties_are_equal() -> PlanRequest:
    return request(profile=answering(RECORDS.quality, np.zeros_like(RECORDS.certainty)))


def there_are_no_labels() -> PlanRequest:
    return request(profile=dataclasses.replace(PROFILE, predictions=dataclasses.replace(RECORDS, labelled=False)))


def one_second() -> PlanRequest:
    return request(trace=Trace(np.arange(0, 10**9, 10**7), 1.0))


def one_request() -> PlanRequest:
    return request(trace=Trace(np.array([0]), 1.0))


def a_peak_of_a_thousand_times_the_mean() -> PlanRequest:
    """A request every ten seconds, and 300 in one of the 3,000 seconds."""
    times_s = np.sort(np.concatenate([np.arange(0.5, 3000, 30), 1500 + np.linspace(0, 0.999, 300)]))
    return request(trace=Trace((times_s * 1e9).astype(np.int64), 3000.0))


LIMITS: dict[Callable[[], PlanRequest], Callable[[GearPlan], bool]] = {
    the_fastest_is_the_best: lambda made: models_of(made) == {"m0"},
    two_are_identical: lambda made: not any({"m0", "m1"} <= set(gear.cascade.models) for gear in gears_of(made)),
    the_slowest_guesses: lambda made: all(gear.cascade.models[0] != "m2" for gear in gears_of(made)),
    one_fits_no_device: lambda made: "m2" not in made.placement.models,
    # Refining gains without any certainty, too: what time is left goes to some requests.
    all_certainties_are_equal: lambda made: (
        made.pipelines["task"].refines or all(len(gear.cascade.models) == 1 for gear in gears_of(made))
    ),
    there_are_no_labels: lambda made: made.predictions["task"].accuracy > 0.6,
    one_second: lambda made: made.predictions["task"].requests == 100,
    one_request: lambda made: made.predictions["task"].requests == 1,
    a_peak_of_a_thousand_times_the_mean: lambda made: made.predictions["task"].requests == 400,
}
"""What to ask, and what is right then."""


def each_planner(limit: Callable[[], PlanRequest], short: bool) -> list[Any]:
    """The limit for every planner, of which `make test` asks all or the default one."""
    return [
        pytest.param(
            planner,
            limit,
            id=f"{planner}-{limit.__name__}",
            marks=[pytest.mark.long] * (not short and planner != planners.DEFAULT),
        )
        for planner in planners.for_()
    ]


@pytest.mark.parametrize(
    ("planner", "limit"), [case for limit in LIMITS for case in each_planner(limit, limit is one_fits_no_device)]
)
def test_a_limit_is_planned_for(planner: str, limit: Callable[[], PlanRequest], tmp_path: Any) -> None:
    asked = limit()
    if planner == "refine" and limit is the_fastest_is_the_best:  # it has pairs alone, so `best` must leave it out
        planner, asked = planners.DEFAULT, dataclasses.replace(asked, policy="best")
    made = planners.plan(planner, asked)
    assert LIMITS[limit](made)
    predicted = made.predictions["task"]
    assert predicted.share_late <= 0.05 or planner in UNCONFIRMED
    (tmp_path / "plan.json").write_bytes(encode_plan(made))
    assert read_plan(tmp_path / "plan.json") == made


@pytest.mark.long
@pytest.mark.parametrize(
    "planner", [pytest.param(p, marks=pytest.mark.long if p != planners.DEFAULT else ()) for p in planners.for_()]
)
def test_a_thousand_devices_are_planned_for(planner: str) -> None:
    hardware = identical_devices(1024, memory_bytes=DEVICE_BYTES)
    made = planners.plan(planner, request(hardware=hardware))
    assert made.predictions["task"].devices == 1024
    assert made.predictions["task"].share_late <= 0.05


@pytest.mark.parametrize("planner", first_short(list(planners.for_()), 3))
def test_where_no_model_fits_any_device_it_says_so(planner: str) -> None:
    hardware = identical_devices(2, memory_bytes=1000)
    with pytest.raises(GearshiftError, match="no model fits the memory of any device"):
        planners.plan(planner, request(hardware=hardware))


@pytest.mark.parametrize("planner", first_short(list(planners.for_()), 3))
def test_more_load_than_one_device_carries_is_told(planner: str) -> None:
    with pytest.raises(GearshiftError) as caught:
        planners.plan(planner, request(trace=Trace(np.arange(0, 10**9, 10**5), 1.0)))
    facts = caught.value.facts()
    assert facts["kind"] == "infeasible"
    assert facts["bottleneck"] == "m0"
    assert facts["load_range"].endswith(", inf)")


# The other verbs ------------------------------------------------------------------------------------------------------

CHEAP = (one_request, one_second, a_peak_of_a_thousand_times_the_mean)
"""Limits of the trace, all on one device."""
CHEAPEST = [
    pytest.param(limit, id=limit.__name__, marks=[pytest.mark.long] * (limit is not one_second)) for limit in CHEAP
]
SLOW_FRONTIERS = ("model-switching", "optimal", "placement-heuristic", "refine")


@pytest.mark.parametrize("limit", CHEAPEST)
@pytest.mark.parametrize(
    "planner", [pytest.param(p, marks=pytest.mark.long if p in SLOW_FRONTIERS else ()) for p in planners.for_()]
)
def test_a_limit_has_a_frontier(planner: str, limit: Callable[[], PlanRequest]) -> None:
    asked = dataclasses.replace(limit(), objective=Objective())
    plans = planners.frontier(planner, asked)
    assert plans
    assert all(LIMITS[limit](made) for made in plans)
    latencies = [made.predictions["task"].latency_s.p95 for made in plans]
    assert all(0 < latency_s < 10 for latency_s in latencies)
    assert len({encode_plan(made) for made in plans}) == len(plans)


@pytest.mark.parametrize("limit", CHEAPEST)
@pytest.mark.parametrize("devices_too", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_limit_is_explained(limit: Callable[[], PlanRequest], devices_too: bool) -> None:
    asked = limit()
    made = planners.plan("optimal", asked)
    explained = explain(made, asked.profile, asked.trace, devices_too=devices_too)
    assert [part.cascade for part in explained.ranges] == [str(gear.cascade) for gear in gears_of(made)]
    assert explained.replayed.requests == len(asked.trace)
    assert explained.same_trace
    assert [neighbour.devices for neighbour in explained.neighbours] == ([2] if devices_too else [])
    assert all(neighbour.predicted for neighbour in explained.neighbours)


@pytest.mark.parametrize("limit", CHEAPEST)
def test_what_differs_at_a_limit_is_told(limit: Callable[[], PlanRequest]) -> None:
    asked = limit()
    made, other = planners.plan("optimal", asked), planners.plan("single", asked)
    assert diff(made, made).same
    told = diff(made, other)
    assert [(change.what, change.a, change.b) for change in told.origin][:1] == [("planner", "optimal", "single")]
    assert told.predictions == (made.predictions["task"], other.predictions["task"])
