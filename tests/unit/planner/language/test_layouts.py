import dataclasses

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.placement import Placement
from gearshift.planner.language.layouts import layouts
from tests.language_profiles import MODELS, engine_of, language_profile

MB = 1_000_000


def told(placements: list[Placement]) -> set[tuple[tuple[str, tuple[str, ...]], ...]]:
    return {tuple(sorted((one.model, one.device_ids) for one in each.replicas)) for each in placements}


def test_on_one_device_every_set_of_models_that_fits() -> None:
    found = layouts(language_profile(), identical_devices(1, kind="gpu", memory_bytes=30 * MB), memory_share=1.0)
    sets = {tuple(sorted(one.model for one in each.replicas)) for each in found}
    assert sets == {
        ("small",), ("middle",), ("large",), ("middle", "small"), ("large", "small"), ("large", "middle"),
        ("large", "middle", "small"),
    }  # fmt: skip
    assert len(found) == 3 + 2 * 4  # with others beside, memory is parted in two ways


def test_memory_beside_weights_is_for_contexts() -> None:
    profile = language_profile()
    hardware = identical_devices(1, kind="gpu", memory_bytes=30 * MB)
    large = next(one for one in layouts(profile, hardware, memory_share=0.9) if told([one]) == told([one]) and
                 [r.model for r in one.replicas] == ["large"])  # fmt: skip
    assert large.replicas[0].kv_tokens == (27 * MB - 9 * MB) // 8000 // 16 * 16
    both = [one for one in layouts(profile, hardware, memory_share=0.9) if len(one.replicas) == 2]
    for placement in both:
        weights = {"small": 1, "middle": 5, "large": 9}
        used = sum(weights[one.model] * MB for one in placement.replicas)
        kv = {"small": 1000, "middle": 2000, "large": 8000}
        used += sum(int(one.kv_tokens) * kv[one.model] for one in placement.replicas)  # type: ignore[arg-type]
        assert 27 * MB - 16 * 11_000 <= used <= 27 * MB


def test_models_that_leave_no_room_for_a_context_are_not_placed_together() -> None:
    found = layouts(language_profile(), identical_devices(1, kind="gpu", memory_bytes=11 * MB), memory_share=1.0)
    assert ("large",) in {tuple(one.model for one in each.replicas) for each in found}
    assert all(len(each.replicas) == 1 or "large" not in each.models for each in found)


def test_like_devices_are_not_told_apart() -> None:
    profile = language_profile(memory_known=False)
    found = layouts(profile, identical_devices(2, kind="gpu"), memory_share=0.9)
    assert len(found) == 6  # three alike, three mixed: memory is not known, so each has a device of its own
    assert all(len(each.replicas) == 2 for each in found)


def test_a_model_over_two_devices_leaves_the_third_for_another() -> None:
    profile = language_profile(tensor_parallel=(1, 2), memory_known=False)
    found = layouts(profile, identical_devices(3, kind="gpu"), memory_share=0.9)
    spans = {tuple(sorted(len(one.device_ids) for one in each.replicas)) for each in found}
    assert spans == {(1, 1, 1), (1, 2)}
    only_two = dataclasses.replace(profile, engines=tuple(one for one in profile.engines if one.tensor_parallel == 2))
    found = layouts(only_two, identical_devices(3, kind="gpu"), memory_share=0.9)
    assert {len(each.replicas) for each in found} == {1}  # the third stays idle


def test_endpoints_have_a_device_each_that_is_named_after_its_model() -> None:
    engines = tuple(msgspec.structs.replace(engine_of(model), device_kind="remote") for model in MODELS)
    profile = dataclasses.replace(language_profile(), engines=engines)
    devices = tuple(Device(id=name, kind="remote") for name in ("small-0", "small-1", "large", "middle-0"))
    (placement,) = layouts(profile, Hardware(devices=devices), memory_share=0.9)
    assert [(one.id, one.device_ids) for one in placement.replicas] == [
        ("small-0", ("small-0",)), ("small-1", ("small-1",)), ("middle-0", ("middle-0",)), ("large-0", ("large",)),
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="named after none"):
        layouts(profile, Hardware(devices=(Device(id="gpu", kind="remote"),)), memory_share=0.9)


def test_devices_of_another_kind_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no model of the profile fits"):
        layouts(language_profile(), identical_devices(1, kind="tpu"), memory_share=0.9)
