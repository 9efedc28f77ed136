import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.planner.space.hosts import place_everywhere
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve


def profile_of(memory_bytes: list[int]) -> Profile:
    names = tuple(f"m{k}" for k in range(len(memory_bytes)))
    curves = [
        RunTimeCurve(model=name, batch_sizes=(1,), median_s=(0.001,), p95_s=(0.001,), memory_bytes=memory)
        for name, memory in zip(names, memory_bytes, strict=True)
    ]
    shape = (len(names), 2)
    records = PredictionRecords(
        models=names, quality=np.ones(shape), certainty=np.ones(shape), part=np.array([0, 1], dtype=np.int8)
    )
    return Profile(operator="task", curves=tuple(curves), predictions=records)


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=6),
    st.lists(st.integers(100, 300), min_size=1, max_size=5),
)
def test_no_devices_memory_is_exceeded(memory_bytes: list[int], devices: list[int]) -> None:
    hardware = Hardware(devices=tuple(Device(id=f"d{i}", memory_bytes=b) for i, b in enumerate(devices)))
    placement = place_everywhere(profile_of(memory_bytes), hardware)
    for device in hardware.devices:
        here = [replica.model for replica in placement.replicas if device.id in replica.device_ids]
        assert sum(memory_bytes[int(model[1:])] for model in here) <= device.memory_bytes
        assert len(set(here)) == len(here)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(100, 300))
def test_a_model_is_left_out_only_where_it_does_not_fit_beside_the_others(memory_bytes: list[int], size: int) -> None:
    placement = place_everywhere(profile_of(memory_bytes), identical_devices(1, memory_bytes=size))
    free = size - sum(memory_bytes[int(replica.model[1:])] for replica in placement.replicas)
    left_out = [b for k, b in enumerate(memory_bytes) if f"m{k}" not in placement.models]
    assert all(b > free for b in left_out)


def test_every_model_is_on_every_device_where_all_fit() -> None:
    placement = place_everywhere(profile_of([10, 20]), identical_devices(3, memory_bytes=30))
    assert {replica.id for replica in placement.replicas} == {f"m{m}@cpu-{d}" for m in (0, 1) for d in range(3)}


def test_a_model_that_found_no_room_goes_first_on_the_next_device() -> None:
    placement = place_everywhere(profile_of([10, 20]), identical_devices(2, memory_bytes=25))
    assert [replica.id for replica in placement.replicas] == ["m0@cpu-0", "m1@cpu-1"]


def test_where_no_model_fits_any_device_the_remedy_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"no model fits the memory of any device; plan for devices with more"):
        place_everywhere(profile_of([10]), identical_devices(2, memory_bytes=9))
