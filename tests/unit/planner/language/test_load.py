from dataclasses import replace

import pytest

from gearshift.hardware import identical_devices
from gearshift.planner.language.layouts import engine_rates, layouts
from gearshift.profiles.engines.engine_profile import Sharing
from tests.language_profiles import language_profile


@pytest.mark.parametrize(("factor", "counted"), [(1.4, 1.0), (0.8, 0.8), (0.2, 0.5)])
def test_two_engines_of_a_device_count_with_half_of_their_work_at_least_and_all_at_most(
    factor: float, counted: float
) -> None:
    pairs = [("small", "large"), ("large", "small")]
    sharing = tuple(Sharing(model=one, beside=other, device_kind="gpu", factor=factor) for one, other in pairs)
    profile = replace(language_profile(), sharing=sharing)
    placements = layouts(profile, identical_devices(1, kind="gpu", memory_bytes=30_000_000), memory_share=0.9)
    both = next(one for one in placements if {each.model for each in one.replicas} == {"small", "large"})
    kinds = dict.fromkeys(both.replicas[0].device_ids, "gpu")
    assert engine_rates(profile, both, kinds).beside.tolist() == [counted, counted]
