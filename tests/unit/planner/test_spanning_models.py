"""All planners where a model runs only as a replica over several devices of a node."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gearshift.cascade import Cascade
from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner import planners
from gearshift.planner.baselines.restricted import exclusive_placement
from gearshift.planner.contract.ladder import fewest_devices
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.planner.space.hosts import bytes_per_device, place_everywhere
from gearshift.planner.space.request import PlanRequest
from gearshift.workload import Trace
from tests.often import first_short, often
from tests.unit.planner.little import little_trace
from tests.unit.planner.spanning import CURVES, curve, mixed, nodes, spanning_profile, spanning_request

NAMES = sorted(set(planners.for_()) - {"refine"})
"""Plans that refine have no replicas that span devices, which `plans/served.py` refuses."""
QUICK = ["coordinate", "single", "static-cascade"]
LIGHT: dict[str, Any] = {"trace": little_trace(low_qps=1, high_qps=2), "max_qps": 4.0}
"""What two replicas of m1 carry alone."""
ONLY_ON_GPU = tuple(c for c in CURVES if (c.model, c.device_kind) != ("m1", "old"))


def check(made: GearPlan, request: PlanRequest) -> None:
    """Memory per device, nodes, measured ways and load shares are as promised."""
    devices = {d.id: d for d in made.hardware.devices}
    held = dict.fromkeys(devices, 0)
    for replica in made.placement.replicas:
        on = [devices[d] for d in replica.device_ids]
        way = request.profile.curve(
            replica.model, device_kind=on[0].kind, tensor_parallel=replica.tensor_parallel, cores=replica.cores
        )
        assert len(on) == replica.tensor_parallel
        assert len({(d.node, d.kind) for d in on}) == 1
        for device in on:
            held[device.id] += bytes_per_device(way)
    assert all(held[d] <= devices[d].memory_bytes for d in devices)
    model_of = {r.id: r.model for r in made.placement.replicas}
    for gear in made.pipelines[request.profile.operator].gears:
        total = dict.fromkeys(made.placement.models, 0.0)
        for settings_ in gear.replicas:
            total[model_of[settings_.replica]] += settings_.load_share
        assert total == pytest.approx({m: float(m in gear.cascade.models) for m in total})


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_every_planner_uses_the_model_that_spans_devices(name: str) -> None:
    request = spanning_request(**LIGHT)
    made = planners.plan(name, request)
    check(made, request)
    assert {r.tensor_parallel for r in made.placement.replicas if r.model == "m1"} == {2}
    assert made.predictions["task"].share_late <= 0.05


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_every_planner_has_a_frontier_that_reaches_the_model_that_spans_devices(name: str) -> None:
    request = spanning_request(ranges=2, **LIGHT)
    made = planners.frontier(name, request)
    for each in made:
        check(each, request)
    assert "m1" in made[-1].placement.models


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_a_model_profiled_on_one_kind_is_placed_on_that_kind_alone(name: str) -> None:
    request = spanning_request(profile=spanning_profile(ONLY_ON_GPU), hardware=mixed(), ranges=2, **LIGHT)
    made = planners.plan(name, request)
    check(made, request)
    assert all(d.startswith("n0/") for r in made.placement.replicas if r.model == "m1" for d in r.device_ids)
    assert "m1" in made.placement.models


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_a_model_that_spans_more_devices_than_a_node_has_is_left_out(name: str) -> None:
    made = planners.plan(name, spanning_request(hardware=nodes(1, 1, 1, 1), ranges=2))
    assert made.placement.models == ("m0",)


@pytest.mark.parametrize("name", first_short(NAMES, 2))
def test_devices_on_which_nothing_was_profiled_are_a_clear_error(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"hardware: .*(no run times on devices of these kinds|no model fits)"):
        planners.plan(name, spanning_request(hardware=nodes(2, kind="tpu")))


@pytest.mark.parametrize("name", first_short([name for name in NAMES if name != "static-cascade"], 2))
def test_too_much_load_is_said_even_where_nothing_was_profiled_on_the_first_device(name: str) -> None:
    tpu = nodes(1, kind="tpu").devices
    hardware = Hardware(devices=(*(msgspec.structs.replace(d, id="tpu", node="other") for d in tpu), *nodes(2).devices))
    with pytest.raises(Infeasible, match=r"3 devices cannot carry .* could"):
        planners.plan(name, spanning_request(hardware=hardware, trace=little_trace(low_qps=50, high_qps=100), ranges=2))


@pytest.mark.parametrize("name", ["coordinate", "single", "static-cascade", "placement-heuristic"])
def test_the_fewest_devices_begin_where_some_model_fits(name: str) -> None:
    wide = spanning_profile((curve("m0", 0.1, gib=10, degree=2), curve("m1", 0.4, gib=40, degree=2)))
    request = spanning_request(profile=wide, ranges=2, **LIGHT)
    asked = replace(request, objective=Objective(latency_s=2.0, accuracy=0.6))
    made = fewest_devices(planners.named(name), asked, most=8)
    assert len(made.hardware.devices) == 2


def test_every_pair_of_devices_has_each_model_where_all_fit() -> None:
    placement = place_everywhere(spanning_profile(), nodes(4))
    assert sorted(r.id for r in placement.replicas) == [
        "m0@n0/0",
        "m0@n0/1",
        "m0@n0/2",
        "m0@n0/3",
        "m1@n0/0+n0/1",
        "m1@n0/2+n0/3",
    ]


def test_where_one_model_at_a_time_fits_both_find_a_place() -> None:
    placement = place_everywhere(spanning_profile(), nodes(4, gib=24))
    assert [r.id for r in placement.replicas] == ["m0@n0/0", "m0@n0/1", "m1@n0/2+n0/3"]


def test_models_that_do_not_fit_together_get_devices_of_their_own() -> None:
    """m1 carries 5 requests/s on two devices, as half of them reach it; m0 carries 10 on one."""
    cascade = Cascade(models=("m0", "m1"), thresholds=(0.5,))
    candidate = CandidateCascade(cascade=cascade, accuracy=0.8, work_s=0.1, reach=(1.0, 0.5))
    placement, qps = exclusive_placement(spanning_profile(), nodes(6, gib=24), candidate)
    assert [(r.model, len(r.device_ids)) for r in placement.replicas] == [
        ("m1", 2),
        ("m0", 1),
        ("m1", 2),
        ("m0", 1),
    ]
    assert qps == 10


# In any world ---------------------------------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Two models of any width on nodes of one kind, in any of which a model may find no room."""
    curves = [
        curve(model, seconds, degree=degree, gib=draw(st.integers(1, 12)) * degree)
        for model, seconds in (("m0", 0.1), ("m1", 0.4))
        for degree in draw(st.sets(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=2))
    ]
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    times_s = np.sort(generator.random(draw(st.integers(5, 60))) * 6)
    return spanning_request(
        profile=spanning_profile(tuple(curves)),
        trace=Trace((times_s * 1e9).astype(np.int64), 6.0),
        hardware=nodes(*draw(st.lists(st.integers(1, 9), min_size=1, max_size=2)), gib=draw(st.integers(6, 24))),
        objective=Objective(latency_s=draw(st.sampled_from([0.5, 2.0]))),
        ranges=draw(st.integers(1, 3)),
    )


def examples(count: int) -> Any:
    return settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def check_any(name: str, request: PlanRequest) -> None:
    try:
        made = planners.plan(name, request)
    except Infeasible:
        return
    except InvalidInput as error:
        assert "no model fits" in str(error)  # noqa: PT017 - that no model fits anywhere is allowed
        return
    check(made, request)


@pytest.mark.parametrize("name", QUICK)
@examples(often(24))
@given(requests())
def test_memory_and_shares_are_as_promised_whatever_spans_what(name: str, request: PlanRequest) -> None:
    check_any(name, request)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
@examples(8)
@given(requests())
def test_memory_and_shares_are_as_promised_by_the_slower_planners_too(name: str, request: PlanRequest) -> None:
    check_any(name, request)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@examples(40)
@given(requests())
def test_memory_and_shares_are_as_promised_in_many_worlds(name: str, request: PlanRequest) -> None:
    check_any(name, request)


@examples(often(60))
@given(requests())
def test_models_everywhere_never_exceed_memory(request: PlanRequest) -> None:
    try:
        placement = place_everywhere(request.profile, request.hardware)
    except InvalidInput:
        return
    ways = {(c.model, c.tensor_parallel): c for c in request.profile.curves}
    for device in request.hardware.devices:
        here = [r for r in placement.replicas if device.id in r.device_ids]
        assert sum(bytes_per_device(ways[r.model, r.tensor_parallel]) for r in here) <= device.memory_bytes
        assert len({r.model for r in here}) == len(here)
