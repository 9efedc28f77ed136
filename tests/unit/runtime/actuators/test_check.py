import os
from pathlib import Path

import pytest

from gearshift.runtime.actuators import cgroup, check
from gearshift.runtime.actuators.cgroup import own_groups


def test_every_actuator_is_tried_and_everything_is_left_as_it_was() -> None:
    before = os.sched_getaffinity(0)
    found = check.check_actuators()
    assert found.keys() == {"threads", "affinity", "cgroup", "kubernetes"}
    assert found["affinity"].works
    for one in found.values():
        assert one.works or one.why
        assert one.took_s is None or 0 < one.took_s < 1
    assert os.sched_getaffinity(0) == before
    assert not [group for parent in own_groups() for group in parent.glob("gearshift-doctor-*")]


def test_where_no_group_can_be_made_the_doctor_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "group"
    bare.mkdir()
    monkeypatch.setattr(cgroup, "own_groups", lambda: [bare])
    found = check.check_actuators()["cgroup"]
    assert not found.works
    assert "neither cpu.max nor cpu.cfs_quota_us" in found.why
    assert not list(bare.iterdir())
