import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.runtime.actuators import cgroup
from gearshift.runtime.actuators.cgroup import (
    bounded,
    cgroup_version,
    cores_of_group,
    make_group,
    quota_cores,
    quota_warning,
    remove_group,
)


def test_a_process_is_bounded_meanwhile_and_goes_on_unbounded() -> None:
    try:
        remove_group(make_group("gearshift-try"))
    except InvalidInput as error:
        pytest.skip(str(error))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:

        def groups() -> list[Path]:
            return [g for parent in cgroup.own_groups() for g in parent.glob(f"gearshift-*-{child.pid}")]

        with bounded(child.pid, 0.5):
            (group,) = groups()
            assert (group / "cgroup.procs").read_text().split() == [str(child.pid)]
            assert cores_of_group(group, cgroup_version(group)) == 0.5
        assert groups() == []
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()


def test_a_group_goes_also_where_a_process_in_it_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        group = make_group(f"gearshift-ending-{os.getpid()}")
    except InvalidInput as error:
        pytest.skip(str(error))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        cgroup.move_into(group, child.pid)
        moves = cgroup.move_into

        def moves_too_late(into: Path, pid: int) -> None:
            child.kill()
            child.wait()
            moves(into, pid)

        monkeypatch.setattr(cgroup, "move_into", moves_too_late)
        remove_group(group)
    left = group.exists()
    if left:
        group.rmdir()
    assert not left


def test_empty_groups_of_ours_whose_process_is_gone_are_removed_when_another_is_made() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    left = [f"gearshift-{ended.pid}-1", f"gearshift-doctor-{ended.pid}"]
    kept = [f"gearshift-{ended.pid}-2", f"gearshift-{os.getpid()}-1", f"gearshift-of-others-{ended.pid}"]
    made: list[Path] = []
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            parent = make_group(f"test-sweep-{os.getpid()}")
            made += [parent, *(parent / name for name in left + kept)]
            for group in made[1:]:
                group.mkdir()
            cgroup.move_into(parent / kept[0], child.pid)
            cgroup.sweep(parent)
            assert [(parent / name).exists() for name in left + kept] == [False, False, True, True, True]
        except InvalidInput as error:
            pytest.skip(str(error))
        finally:
            for group in reversed(made):
                remove_group(group)
            assert child.stdin is not None
            child.stdin.close()


def test_groups_left_behind_go_when_one_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[Path] = []
    monkeypatch.setattr(cgroup, "own_groups", lambda: [tmp_path])
    monkeypatch.setattr(cgroup, "sweep", swept.append)
    with pytest.raises(InvalidInput, match="neither"):
        make_group("gearshift-try")
    assert swept == [tmp_path]


def test_where_there_is_no_group_to_make_one_in_it_is_said_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "own_groups", list[Path])
    with pytest.raises(InvalidInput, match="in no control group with processor time; serve as a user"):
        make_group("gearshift-try")
    monkeypatch.setattr(cgroup, "own_groups", lambda: [tmp_path / "gone"])
    with pytest.raises(InvalidInput, match="no group can be made below"):
        make_group("gearshift-try")


def group(folder: Path, quota: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "cpu.max").write_text(f"{quota} 100000\n")
    return folder


def test_the_least_quota_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    above = group(tmp_path / "pod", "150000")
    assert quota_cores([group(above / "container", "max")]) == 1.5
    assert quota_cores([group(above / "container", "50000")]) == 0.5


def test_a_group_of_version_1_counts(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cpu.cfs_period_us").write_text("100000")
    assert quota_cores([tmp_path]) == 2.0


def test_without_a_quota_there_is_no_bound(tmp_path: Path) -> None:
    assert quota_cores([group(tmp_path / "free", "max"), tmp_path / "gone"]) == math.inf


def test_more_cores_than_the_quota_are_told() -> None:
    told = quota_warning(3, "the plan", quota=1.5)
    assert told.startswith(
        "the plan takes 3 processors with the router's, and a control group holds this process to 1.5"
    )
    assert quota_warning(2, "the plan", quota=2.0) == ""
    assert quota_warning(64, "the plan", quota=math.inf) == ""
