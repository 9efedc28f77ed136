import math
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import GIB, Device, Hardware, identical_devices


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"id": ""}, "a device's id is empty"),
        ({"id": "d", "memory_bytes": 0}, "device 'd' has 0 bytes of memory, needs more than 0"),
        ({"id": "d", "cores": 0}, "device 'd' has 0 cores, needs at least 1"),
        ({"id": "d", "price_per_hour": -1.0}, "device 'd' has price_per_hour -1.0, needs a finite number from 0"),
        ({"id": "d", "price_per_hour": math.nan}, "device 'd' has price_per_hour nan, needs a finite number from 0"),
        ({"id": "d", "price_per_hour": math.inf}, "device 'd' has price_per_hour inf, needs a finite number from 0"),
    ],
)
def test_a_device_that_cannot_be_names_itself_and_the_value(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Device(**fields)
    assert str(caught.value) == sentence


def test_hardware_without_devices_is_refused() -> None:
    with pytest.raises(InvalidInput, match="hardware has no devices, needs at least one"):
        Hardware(devices=())


def test_two_devices_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"device ids are not unique: \['x', 'x', 'y'\]"):
        Hardware(devices=(Device(id="x"), Device(id="y"), Device(id="x")))


def test_identical_devices_differ_in_their_number_alone() -> None:
    hardware = identical_devices(3, kind="gpu", memory_bytes=GIB, cores=2)
    assert [device.id for device in hardware.devices] == ["gpu-0", "gpu-1", "gpu-2"]
    assert {(d.kind, d.memory_bytes, d.cores, d.node) for d in hardware.devices} == {("gpu", GIB, 2, "local")}


def test_cores_of_hardware_are_those_of_its_devices_together() -> None:
    assert Hardware(devices=(Device(id="x", cores=2), Device(id="y", cores=3))).cores == 5


def test_no_devices_asked_for_names_the_remedy() -> None:
    with pytest.raises(InvalidInput, match="0 devices asked for; ask for at least one"):
        identical_devices(0)


def test_devices_share_at_least_the_cores_that_they_begin_with() -> None:
    devices = (Device(id="x"), Device(id="y", cores=2))
    assert Hardware(devices=devices, pool_cores=3).pool_cores == 3
    for pool in (2, 0, 5000):
        with pytest.raises(InvalidInput, match=f"pool_cores is {pool}, and devices begin with 3"):
            Hardware(devices=devices, pool_cores=pool)
