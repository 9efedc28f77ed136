"""The tuple for a relation: a gear's, the cheapest that is accurate enough, or one with a certificate."""

import pytest

from gearshift.bulk.tuple_choice import choose_tuple
from gearshift.cascade import Cascade
from gearshift.errors import InvalidInput
from gearshift.gear import GearPlan, LoadRange, ReplicaSettings
from gearshift.placement import Placement, Replica
from gearshift.planner.joint.candidates import candidates_of
from gearshift.planner.joint.request import PipelineRequest
from gearshift.result import share_bound
from tests.unit.planner.joint.strips import strips

MODELS = ("cut", "small", "large", "add")
LARGE = {"split": Cascade(models=("cut",)), "read": Cascade(models=("large",)), "join": Cascade(models=("add",))}


@pytest.fixture(scope="module")
def request_() -> PipelineRequest:
    return strips(latency_s=0.1)


@pytest.fixture(scope="module")
def plan(request_: PipelineRequest) -> GearPlan:
    """One gear, of the large model alone."""
    replicas = tuple(Replica(id=model, model=model, device_ids=("cpu-0",)) for model in MODELS)
    settings = [ReplicaSettings(replica=model, load_share=float(model != "small")) for model in MODELS]
    gear = request_.gear(LoadRange(from_=0), LARGE, settings)
    return request_.plan(Placement(replicas=replicas), [gear])


def test_without_an_objective_of_accuracy_it_is_the_gear_of_the_lowest_load(plan, request_):
    found = choose_tuple(plan, "strips", request_.profiles, request_.records)
    assert found.cascades == LARGE
    assert 0.9 < found.accuracy < 1
    unknown = choose_tuple(plan, "strips", request_.profiles, None)
    assert (unknown.cascades, unknown.accuracy) == (LARGE, None)


def test_the_cheapest_tuple_of_an_accuracy_is_that_of_the_joint_front(plan, request_):
    for accuracy in (0.75, 0.9):
        found = choose_tuple(plan, "strips", request_.profiles, request_.records, accuracy=accuracy)
        cheapest = next(one for one in candidates_of(request_) if one.quality >= accuracy)
        assert found.cascades == cheapest.cascades


def test_a_certificate_holds_on_part_b_and_costs_more(plan, request_):
    asked = (plan, "strips", request_.profiles, request_.records)
    plain, certified = (choose_tuple(*asked, accuracy=0.8, confidence=c) for c in (None, 0.95))
    assert certified.at_least >= 0.8
    assert certified.work_s >= plain.work_s
    trials = len(request_.records.indices(1))
    wrong = round((1 - certified.accuracy) * trials)
    assert certified.at_least == pytest.approx(share_bound(wrong, trials, 0.95))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accuracy": 0.999}, "no cascades of the nodes give pipeline 'strips' accuracy 0.999: the best have 0.9"),
        ({"accuracy": 0.92, "confidence": 0.9999}, "cannot be certified at confidence 0.9999: .* requests of part B"),
        ({"accuracy": 0.9, "gear": 0}, "accuracy 0.9 and gear 0 are both given"),
        ({"gear": 1}, "gear is 1, the plan has gears 0 to 0"),
    ],
)
def test_what_cannot_be_had_is_refused(plan, request_, options, said):
    with pytest.raises(InvalidInput, match=said):
        choose_tuple(plan, "strips", request_.profiles, request_.records, **options)


def test_an_accuracy_needs_joint_records(plan, request_):
    with pytest.raises(InvalidInput, match="pipeline 'strips' has no joint records"):
        choose_tuple(plan, "strips", request_.profiles, None, accuracy=0.9)
