import dataclasses

import msgspec
import pytest

from gearshift.gear import GearPlan
from gearshift.hardware import Device, Hardware
from gearshift.objective import Asked, Objective
from gearshift.planner import largest_alone as module
from gearshift.planner.baselines.one_gear import SINGLE
from gearshift.planner.contract.ladder import devices_like
from gearshift.planner.evaluate import steady_state
from gearshift.planner.largest_alone import largest_alone
from tests.unit.planner import fake
from tests.unit.planner.little import PROFILE, little_request, little_trace
from tests.worlds import synthetic_profile


def planned(objective: Objective, **changed: object) -> GearPlan:
    return fake.made(little_request(objective=objective, **changed), 0, latency_s=0.05)


@pytest.mark.parametrize("scope", ["every-range", "trace"])
def test_so_many_devices_do_for_the_largest_model_and_one_fewer_does_not(scope: str) -> None:
    objective = Objective(latency_s=0.05, scope=scope)  # type: ignore[arg-type]
    found = largest_alone(planned(objective), PROFILE, little_trace())
    assert (found.model, found.why, found.price_per_hour) == ("m2", "", None)
    assert found.devices is not None
    assert found.devices > 1
    assert found.accuracy == pytest.approx(0.88, abs=0.03)


def test_as_many_hold_as_the_planner_of_one_model_needs() -> None:
    objective = Objective(latency_s=0.05)
    devices = largest_alone(planned(objective), PROFILE, little_trace()).devices or 0
    assert uses_the_largest(devices)
    assert not uses_the_largest(devices - 1)


def uses_the_largest(devices: int) -> bool:
    """Whether one model at all loads can be the largest, planned with the same margin."""
    request = little_request(latency_s=0.05, devices=devices, ranges=4)
    margin = dataclasses.replace(request, max_qps=1.15 * float(request.upper_ends()[-1]))
    return SINGLE.plan(margin).pipelines["task"].gears[0].cascade.models == ("m2",)


def test_the_devices_are_like_the_first_that_suits_the_model_and_so_is_their_price() -> None:
    hardware = Hardware(devices=(Device(id="a", kind="other"), Device(id="cpu-0", price_per_hour=2.5)))
    made = msgspec.structs.replace(planned(Objective(latency_s=0.05)), hardware=hardware)
    found = largest_alone(made, PROFILE, little_trace())
    assert found.devices is not None
    assert found.price_per_hour == 2.5 * found.devices


def test_a_model_that_is_slower_than_the_objective_is_helped_by_no_device() -> None:
    found = largest_alone(planned(Objective(latency_s=0.001)), PROFILE, little_trace())
    assert (found.devices, found.price_per_hour) == (None, None)
    assert found.why == "m2 alone is too slow for this latency on any number of devices"


def test_without_a_device_that_suits_it_and_on_shared_cores_nothing_is_known() -> None:
    made = planned(Objective(latency_s=0.05))
    elsewhere = synthetic_profile(models=3, samples=100, device_kind="cuda")
    assert "runs on none of these devices" in largest_alone(made, elsewhere, little_trace()).why
    pooled = msgspec.structs.replace(made, hardware=Hardware(devices=made.hardware.devices, pool_cores=4))
    assert "is not known" in largest_alone(pooled, PROFILE, little_trace()).why


def test_no_more_devices_are_simulated_than_are_ever_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(Objective(latency_s=0.05))
    operator = made.pipelines["task"]
    asked = Asked(objective=operator.objective, ranges=1, most_candidates=6, max_qps=1e7)
    far = msgspec.structs.replace(made, pipelines={"task": msgspec.structs.replace(operator, asked=asked)})
    tried: list[int] = []

    def counted(hardware: Hardware, count: int) -> Hardware:
        tried.append(count)
        return devices_like(hardware, count)

    monkeypatch.setattr(module, "devices_like", counted)
    monkeypatch.setattr(steady_state, "SAMPLES", 12 * 1024)  # enough that 1,024 devices fall behind
    assert largest_alone(far, PROFILE, little_trace()).why == "m2 alone would need more than 1024 devices"
    assert tried == [1024]
