from dataclasses import fields

import pytest

from benchmarks.shared.as_served_here import as_served_here
from tests.worlds import synthetic_profile


@pytest.mark.long
def test_a_profile_gets_what_this_machine_adds_and_keeps_all_else() -> None:
    profile = synthetic_profile(models=2, samples=10)
    here = as_served_here(profile, seconds=0.3)
    assert profile.front_end_s == 0.0
    assert 0 < here.front_end_s < 1
    assert 0 < here.router_s < 0.1
    per_batch_s, per_request_s = here.curves[0].overhead_per_batch_s, here.curves[0].overhead_per_request_s
    assert 0 < per_batch_s + per_request_s < 0.1
    assert [(c.overhead_per_batch_s, c.overhead_per_request_s) for c in here.curves] == [
        (per_batch_s, per_request_s)
    ] * 2
    assert [(c.model, c.median_s) for c in here.curves] == [(c.model, c.median_s) for c in profile.curves]
    others = [field.name for field in fields(profile) if field.name not in ("front_end_s", "router_s", "curves")]
    assert all(getattr(here, name) is getattr(profile, name) for name in others)
