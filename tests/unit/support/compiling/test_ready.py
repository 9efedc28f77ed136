import os
import shutil
from pathlib import Path

import pytest

from gearshift.support.compiling import ready
from gearshift.support.compiling.ready import is_ready, note_ready


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_kernel_is_ready_until_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gearshift"
    shutil.copytree(ready._PACKAGE / "policies", package / "policies")
    monkeypatch.setattr(ready, "_PACKAGE", package)
    assert not is_ready("gears")
    note_ready("gears")
    assert is_ready("gears")
    assert not is_ready("refinement")
    os.utime(package / "policies" / "batching.py", (1, 1))
    assert not is_ready("gears")


def test_a_new_mark_takes_the_place_of_the_old(kept: Path) -> None:
    (kept / "gearshift" / "ready").mkdir(parents=True)
    (kept / "gearshift" / "ready" / "gears-0").touch()
    note_ready("gears")
    assert len(list((kept / "gearshift" / "ready").iterdir())) == 1


def test_nothing_is_noted_where_no_folder_can_be_made(kept: Path) -> None:
    kept.write_text("")
    note_ready("gears")
    assert not is_ready("gears")


def test_without_a_home_nothing_is_noted_and_nothing_is_to_be_compiled_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_cache_dir", nowhere)
    note_ready("gears")
    assert is_ready("gears")
