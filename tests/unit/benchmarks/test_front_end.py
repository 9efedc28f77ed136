from dataclasses import fields

from front_end import with_front_end

from tests.worlds import synthetic_profile


def test_a_profile_gets_the_time_of_this_machines_front_end_and_keeps_all_else() -> None:
    profile = synthetic_profile(models=2, samples=10)
    measured = with_front_end(profile, seconds=0.2)
    assert profile.front_end_s == 0.0
    assert 0 < measured.front_end_s < 1
    others = [field.name for field in fields(profile) if field.name != "front_end_s"]
    assert all(getattr(measured, name) is getattr(profile, name) for name in others)
