import math
from pathlib import Path

from gearshift.runtime.actuators.cpu_quota import quota_cores, quota_warning


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
