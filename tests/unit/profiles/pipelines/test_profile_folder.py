from pathlib import Path

import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.pipeline import Node
from gearshift.profiles.pipelines.profile_folder import (
    PIPELINES_FILE,
    Profiles,
    RecordedPipeline,
    holds_profiles,
    read_profiles,
    require_folder_replaceable,
    write_profiles,
)
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve


def profile(operator: str) -> Profile:
    part = np.array([0, 1, 1, 0], dtype=np.int8)
    records = PredictionRecords(models=(operator,), quality=np.ones((1, 4)), certainty=np.ones((1, 4)), part=part)
    curve = RunTimeCurve(model=operator, batch_sizes=(1,), median_s=(0.01,), p95_s=(0.01,))
    return Profile(operator=operator, curves=(curve,), predictions=records)


def profiles(*operators: str) -> Profiles:
    alone = {name: RecordedPipeline(output=name, nodes={name: Node(operator=name)}) for name in operators}
    return Profiles(operators={name: profile(name) for name in operators}, pipelines=alone, seed=3)


def test_profiles_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = write_profiles(profiles("a", "b"), tmp_path / "p")
    read = read_profiles(tmp_path / "p")
    assert holds_profiles(tmp_path / "p")
    assert (read.pipelines, read.seed, read.tuples) == (written.pipelines, 3, {})
    assert [one.sha256 for one in read.operators.values()] == [one.sha256 for one in written.operators.values()]
    assert read.items_by_node("a") == {}


def test_older_profiles_are_replaced(tmp_path: Path) -> None:
    write_profiles(profiles("a", "b"), tmp_path / "p")
    write_profiles(profiles("c"), tmp_path / "p")
    assert list(read_profiles(tmp_path / "p").operators) == ["c"]


@pytest.mark.parametrize("other", ["notes.txt", "profile.json"])
def test_a_folder_with_anything_else_is_not_replaced(tmp_path: Path, other: str) -> None:
    (tmp_path / other).write_text("")
    with pytest.raises(InvalidInput, match=f"the folder holds '{other}', which is no part of a profile of pipelines"):
        write_profiles(profiles("a"), tmp_path)
    with pytest.raises(InvalidInput, match="is a file, needs a folder"):
        require_folder_replaceable(tmp_path / other)


def test_a_missing_or_newer_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"pipelines\.json: there is no such file; make the profile anew"):
        read_profiles(tmp_path)
    write_profiles(profiles("a"), tmp_path / "p")
    path = tmp_path / "p" / PIPELINES_FILE
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2, "later": 1'))
    with pytest.raises(InvalidInput, match="schema_version is 2, this version of gearshift reads 1"):
        read_profiles(tmp_path / "p")
