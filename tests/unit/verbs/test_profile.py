from pathlib import Path

import pytest

import gearshift
from gearshift.errors import InvalidInput
from gearshift.verbs.init.language import PROJECT


def test_a_project_of_language_models_is_refused_what_engines_do_not_have(tmp_path: Path) -> None:
    (tmp_path / "gearshift.toml").write_text(PROJECT)
    with pytest.raises(InvalidInput, match="cores is given, which plans of language models do not have; leave"):
        gearshift.profile(tmp_path, cores=(1, 2))


def test_records_of_language_models_are_refused_what_rows_have(tmp_path: Path) -> None:
    (tmp_path / "small.jsonl").touch()
    with pytest.raises(InvalidInput, match="raw_run_times is given, which plans of language models do not have"):
        gearshift.profile_from_records(tmp_path, raw_run_times=True)


def test_records_of_rows_have_no_certainty_to_choose(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="certainty is given, which plans of one operator do not have; write"):
        gearshift.profile_from_records(tmp_path, certainty="margin")
