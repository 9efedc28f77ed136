from pathlib import Path

import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.verbs.init.language import PROJECT


def test_a_project_of_language_models_is_told_its_own_function(tmp_path: Path) -> None:
    (tmp_path / "gearshift.toml").write_text(PROJECT)
    with pytest.raises(InvalidInput, match="is of language models; call `profile_language`"):
        gearshift.profile(tmp_path)
    assert callable(gearshift.profile_language)


def test_records_of_language_models_are_told_their_own_function(tmp_path: Path) -> None:
    (tmp_path / "small.jsonl").touch()
    with pytest.raises(InvalidInput, match="call `language_profile_from_records`"):
        gearshift.profile_from_records(tmp_path)
    assert callable(gearshift.language_profile_from_records)
