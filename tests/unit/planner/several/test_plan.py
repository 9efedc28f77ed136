"""Two operators on two devices: planned together, after one another, and what is refused."""

import dataclasses
from collections.abc import Iterator

import msgspec
import pytest

from gearshift.errors import Infeasible, InvalidInput
from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner.baselines.one_gear import SINGLE
from gearshift.planner.contract.planner import SoFar
from gearshift.planner.search.plan_search import holds_every_range
from gearshift.planner.several import layouts, plan
from gearshift.planner.several.coordinate import Coordination, beside, together_in_order
from gearshift.planner.several.plan import PLANNER, plans_on_own_devices
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.beside import part_of
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PART_B
from gearshift.simulator.simulate import simulate
from gearshift.workload import draw_workload, merge_workloads
from tests.unit.planner.several.worlds import CATS, DOGS, operator, request_of, two_operators

SEVERAL = two_operators(ranges=2)


@pytest.fixture(autouse=True, scope="module")
def few_drafts() -> Iterator[None]:
    """One division of the devices' time: how many are tried changes how good a plan is, and nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "FILLS", (0.7,))
        patch.setattr(layouts, "PREFERRED", ())
        patch.setattr(plan, "LAYOUTS", 1)
        yield


@pytest.fixture(scope="module")
def made() -> GearPlan:
    return PLANNER.plan(SEVERAL)


@pytest.fixture(scope="module")
def added() -> tuple[GearPlan, GearPlan]:
    """A plan of cats alone, which has little to do, and the same with dogs added."""
    quiet = two_operators(ranges=2)
    cats = dataclasses.replace(quiet.requests["cats"], trace=quiet.requests["dogs"].trace)
    alone = SINGLE.plan(cats)
    return alone, PLANNER.plan(SeveralRequest(requests={"cats": cats, "dogs": quiet.requests["dogs"]}, fixed=alone))


def test_each_operator_is_a_pipeline_of_its_own_gears(made: GearPlan) -> None:
    assert list(made.pipelines) == ["cats", "dogs"]
    assert {model.split("-")[0] for model in made.placement.models} == {"cats", "dogs"}
    assert len(plan_tables(made).pipelines) == 2
    for name, pipeline in made.pipelines.items():
        assert pipeline.objective == SEVERAL.requests[name].objective
        assert pipeline.asked is not None
        assert pipeline.planned_load is not None
        for gear in pipeline.gears:
            assert all(model.startswith(name) for model in gear.cascade.models)


def test_all_traces_at_once_keep_each_latency_as_predicted(made: GearPlan) -> None:
    requests = SEVERAL.requests
    drawn = [draw_workload(r.trace, r.profile.predictions.indices(PART_B), seed=0) for r in requests.values()]
    run = simulate(made, {name: request.profile for name, request in requests.items()}, merge_workloads(drawn))
    for name, request in requests.items():
        result = run.result(SEVERAL.together, latency_objective_s=request.latency_s, pipeline=name)
        assert result.share_late <= 0.05
        assert made.predictions[name].share_late <= 0.05
        assert result.accuracy == pytest.approx(made.predictions[name].accuracy, abs=0.02)


def test_each_range_holds_while_the_others_have_the_95th_percentile_of_their_load(made: GearPlan) -> None:
    plans = {name: part_of(made, [name]) for name in made.pipelines}
    for name, one in plans.items():
        among = beside(SEVERAL, plans, name, kept=set(plans))
        assert among.loads_qps.keys() == plans.keys() - {name}
        assert holds_every_range(one, dataclasses.replace(SEVERAL.requests[name], beside=among))


@pytest.mark.long
def test_together_is_no_less_accurate_than_each_on_devices_of_its_own(made: GearPlan) -> None:
    so_far = SoFar(next(iter(SEVERAL.requests.values())))
    accuracies = []
    for plans in (plans_on_own_devices(SEVERAL, so_far), {name: part_of(made, [name]) for name in made.pipelines}):
        found = Coordination(SEVERAL, together_in_order(plans).placement, so_far)
        assert found.begin_with(plans)
        accuracies.append(found.accuracy)
    assert accuracies[0] <= accuracies[1]


@pytest.mark.long
def test_the_same_request_gives_the_same_plan(made: GearPlan) -> None:
    assert msgspec.json.encode(PLANNER.plan(two_operators(ranges=2))) == msgspec.json.encode(made)


@pytest.mark.long
def test_an_operator_is_added_to_a_plan_that_stays_as_it_is(added: tuple[GearPlan, GearPlan]) -> None:
    alone, both = added
    assert list(both.pipelines) == ["cats", "dogs"]
    assert part_of(both, ["cats"]).pipelines == alone.pipelines
    assert part_of(both, ["cats"]).placement == part_of(alone, ["cats"]).placement
    assert both.predictions["dogs"].share_late <= 0.05
    assert both.predictions["cats"].share_late <= 0.05


@pytest.mark.long
@pytest.mark.parametrize("name", ["cats", "dogs"])
def test_too_much_load_is_infeasible_and_names_the_pipeline_the_range_and_the_bottleneck(name: str) -> None:
    several = two_operators(devices=1)
    requests = {
        each: dataclasses.replace(r, max_qps=9e3) if each == name else r for each, r in several.requests.items()
    }
    with pytest.raises(Infeasible, match=f"pipeline '{name}'") as why:
        PLANNER.plan(SeveralRequest(requests=requests))
    assert why.value.load_range.startswith("[6000")
    assert why.value.bottleneck.startswith(name)
    assert why.value.device == "cpu-0"


def test_an_accuracy_out_of_reach_of_one_operator_is_infeasible() -> None:
    several = two_operators()
    asked = dataclasses.replace(several.requests["dogs"], objective=Objective(latency_s=0.1, accuracy=0.999))
    with pytest.raises(Infeasible, match="pipeline 'dogs': no cascade"):
        PLANNER.plan(SeveralRequest(requests={**several.requests, "dogs": asked}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"objective": Objective(accuracy=0.8)}, "operator 'cats': no latency is given"),
        ({"objective": Objective(latency_s=0.1, accuracy=0.5, confidence=0.9)}, "operator 'cats': a confidence"),
        ({"hardware": Hardware(devices=(Device(id="host"),), pool_cores=4)}, "operator 'cats': several operators"),
    ],
)
def test_what_several_operators_cannot_have_is_refused(changed: dict[str, object], message: str) -> None:
    cats = dataclasses.replace(SEVERAL.requests["cats"], **changed)
    with pytest.raises(InvalidInput, match=message):
        SeveralRequest(requests={**SEVERAL.requests, "cats": cats})


def test_two_operators_cannot_have_a_model_of_one_name() -> None:
    again = dataclasses.replace(CATS, operator="more")
    requests = {each.operator: request_of(each, latency_s=0.1, hardware=identical_devices(1)) for each in (CATS, again)}
    with pytest.raises(InvalidInput, match="both have a model 'cats-m0'"):
        PLANNER.plan(SeveralRequest(requests=requests))


def test_where_memory_is_scarce_each_operator_has_a_model_somewhere() -> None:
    several, gib = two_operators(), 1 << 30
    hardware = identical_devices(2, memory_bytes=2 * gib)
    large = [operator(p.operator, fastest_s=p.curves[0].median_s[0], memory_bytes=gib) for p in (CATS, DOGS)]
    candidates = {}
    requests = {
        profile.operator: dataclasses.replace(several.requests[profile.operator], profile=profile, hardware=hardware)
        for profile in large
    }
    several = SeveralRequest(requests=requests)
    for name, request in requests.items():
        space = plan.SearchSpace(lambda what, share: None, lambda: None)
        candidates[name] = space.candidates(request, space.fitting(request))
    for layout in layouts.layouts_of(several, candidates, most=2):
        held = {replica.model.split("-")[0] for replica in layout.placement.replicas}
        assert held == {"cats", "dogs"}
        by_device = [sum(d in r.device_ids for r in layout.placement.replicas) for d in ("cpu-0", "cpu-1")]
        assert max(by_device) <= 2
