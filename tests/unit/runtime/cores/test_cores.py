import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.runtime.backends.local import assign_cores, cores_beside_engines, router_cores


def test_devices_get_disjoint_cores_from_the_highest_downward():
    hardware = Hardware(devices=(Device(id="a"), Device(id="b", cores=2)))
    assert assign_cores(hardware, [0, 1, 4, 5, 7]) == {"a": {7}, "b": {5, 4}}
    assert router_cores(hardware, [0, 1, 4, 5, 7]) == {0, 1}


def test_the_router_shares_the_cores_where_devices_need_them_all():
    assert router_cores(identical_devices(2), [0, 1]) == {0, 1}


def test_more_cores_than_there_are_is_refused_with_a_remedy():
    with pytest.raises(InvalidInput, match=r"needs 3 cores for devices .* has 2; .*--backend emulated"):
        assign_cores(identical_devices(3), [0, 1])


def test_remote_devices_take_no_processors():
    hardware = Hardware(
        devices=(Device(id="here"), Device(id="there", kind="remote", cores=64), Device(id="too", kind="remote-eu"))
    )
    assert hardware.cores == 1
    assert assign_cores(hardware, [0, 1]) == {"here": {1}, "there": frozenset(), "too": frozenset()}
    assert router_cores(hardware, [0, 1]) == {0}


@pytest.mark.parametrize(
    ("kinds", "left"),
    [(["cpu", "remote"], {0, 1}), (["cpu"] * 3, {0, 1, 2}), (["cuda", "cpu"], None), (["remote"], None)],
)
def test_engines_of_language_models_leave_the_others_where_all_run_on_processors(kinds, left):
    hardware = Hardware(devices=tuple(Device(id=f"d{i}", kind=kind) for i, kind in enumerate(kinds)))
    ids = [device.id for device in hardware.devices]
    assert cores_beside_engines(hardware, ids, [0, 1, 2]) == left


def test_devices_whose_engines_run_elsewhere_already_leave_their_processors():
    hardware = Hardware(devices=(Device(id="started"), Device(id="at a URL")))
    assert cores_beside_engines(hardware, ["started"], [0, 1, 2]) == {0, 1}
    assert cores_beside_engines(hardware, [], [0, 1, 2]) is None
