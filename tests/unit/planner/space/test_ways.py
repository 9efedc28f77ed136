import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import GIB, Device, Hardware, identical_devices
from gearshift.planner.space.hosts import (
    bytes_per_device,
    bytes_side_by_side,
    device_seconds,
    narrowest_ways,
    nowhere,
    replica_on,
    ways,
)
from gearshift.verbs.planning.hardware import profiled_devices
from tests.unit.planner.spanning import CURVES, curve, nodes, spanning_profile


def device(*, gib: int) -> Device:
    return Device(id="d", kind="gpu", memory_bytes=gib * GIB)


def test_ways_are_those_profiled_on_such_devices_narrow_ones_first() -> None:
    profile = spanning_profile(CURVES[::-1])
    found = [(c.model, c.tensor_parallel) for c in ways(profile, kind="gpu", cores=1)]
    assert found == [("m0", 1), ("m0", 2), ("m1", 2), ("m1", 4)]
    assert [(c.model, c.tensor_parallel) for c in ways(profile, kind="old", cores=1)] == [("m0", 1), ("m1", 2)]
    assert ways(profile, kind="gpu", cores=2) == []


def test_degrees_other_than_1_2_4_and_8_are_no_ways() -> None:
    profile = spanning_profile((curve("m0", 0.1, degree=3), curve("m0", 0.1, degree=8), curve("m1", 0.1)))
    assert [c.tensor_parallel for c in ways(profile, kind="gpu", cores=1)] == [8, 1]


@pytest.mark.parametrize(("gib", "degrees"), [(40, {"m0": 1, "m1": 2}), (19, {"m0": 1, "m1": 4}), (9, {"m0": 2})])
def test_the_narrowest_way_is_the_first_whose_parts_fit(gib: int, degrees: dict[str, int]) -> None:
    found = narrowest_ways(spanning_profile(), device(gib=gib))
    assert {model: way.tensor_parallel for model, way in found.items()} == degrees


def test_each_device_holds_its_part_of_a_replica_rounded_up() -> None:
    assert bytes_per_device(curve("m0", 0.1, degree=4, gib=40)) == 10 * GIB
    assert bytes_per_device(msgspec.structs.replace(CURVES[3], memory_bytes=5)) == 3


def test_a_device_that_holds_all_models_holds_parts_of_those_that_span() -> None:
    assert bytes_side_by_side(spanning_profile(), kind="gpu", cores=1) == (10 + 20) * GIB
    assert bytes_side_by_side(spanning_profile(), kind="tpu", cores=1) == 0
    assert profiled_devices(spanning_profile(), 4).devices[0].memory_bytes == (10 + 20) * GIB


def test_a_request_to_a_replica_takes_the_time_of_all_its_devices() -> None:
    assert device_seconds(curve("m1", 0.4, degree=2)) == pytest.approx(0.8)


def test_a_replica_names_its_devices() -> None:
    made = replica_on(CURVES[3], nodes(2).devices)
    assert (made.id, made.model, made.tensor_parallel) == ("m1@n0/0+n0/1", "m1", 2)
    assert made.device_ids == ("n0/0", "n0/1")


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        (nodes(2, gib=1), "no model fits the memory of any device"),
        (identical_devices(2, kind="tpu"), "no run times on devices of these kinds and cores: tpu with 1"),
    ],
)
def test_why_no_model_runs_anywhere_is_said(hardware: Hardware, reason: str) -> None:
    error = nowhere(spanning_profile(), hardware)
    assert isinstance(error, InvalidInput)
    assert reason in str(error)
    assert error.remedy
