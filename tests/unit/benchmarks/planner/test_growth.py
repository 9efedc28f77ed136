import pytest

from benchmarks.planner.growth import KINDS, mixed_devices, several_kinds, slope
from gearshift.hardware import GIB
from tests.unit.planner.little import PROFILE


def test_the_slope_of_a_power_is_its_exponent() -> None:
    counts = [16, 64, 256]
    assert slope(counts, [0.3 * n**1.25 for n in counts]) == pytest.approx(1.25)


def test_devices_of_several_kinds_all_have_run_times() -> None:
    profile, hardware = several_kinds(PROFILE), mixed_devices(6)
    for device in hardware.devices:
        slower, held = KINDS[device.kind]
        assert device.memory_bytes == held * GIB
        curve = profile.curve("m0", device_kind=device.kind)
        assert curve.median_s[0] == slower * PROFILE.curves[0].median_s[0]
