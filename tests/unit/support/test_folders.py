import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.support import folders
from gearshift.support.folders import exchange, replace_folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_holds_the_new_files_and_nothing_else(tmp_path: Path) -> None:
    for files in ({"a": b"1", "b": b"2"}, {"b": b"3"}):
        replace_folder(str(tmp_path / "on/the/way"), files)
        assert content(tmp_path / "on/the/way") == files
    assert [path.name for path in (tmp_path / "on/the").iterdir()] == ["way"]


def test_who_looks_meanwhile_always_finds_all_files_of_one_time(tmp_path: Path) -> None:
    """Through a descriptor of the folder, so that both files are of the one that was found."""
    times = ({"a": b"1", "b": b"1"}, {"a": b"2", "b": b"2"})
    replace_folder(tmp_path / "folder", times[0])
    ended, found = threading.Event(), list[bytes]()

    def look() -> None:
        while not ended.is_set():
            with os.scandir(tmp_path / "folder") as entries:  # raises where there is none
                found.append(b"".join(sorted(entry.name.encode() for entry in entries)))

    looking = threading.Thread(target=look)
    looking.start()
    turn = 0
    while turn < 50 or not found:  # a thread may begin late
        replace_folder(tmp_path / "folder", times[turn % 2])
        turn += 1
    ended.set()
    looking.join()
    assert set(found) <= {b"ab", b""}  # it may have been emptied and deleted after it was found


def test_a_system_that_exchanges_nothing_replaces_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "exchange", lambda a, b: False)
    for files in ({"a": b"1"}, {"b": b"2"}):
        replace_folder(tmp_path / "folder", files)
    assert content(tmp_path / "folder") == {"b": b"2"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_folders_change_places(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"")
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert set(content(tmp_path / "a")) == {"b"}
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "gone")


def test_the_current_folder_stays_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    replace_folder(".", {"new": b"2"})
    assert os.listdir() == ["new"]
    assert Path.cwd() == tmp_path


def test_files_are_replaced_one_by_one_where_the_folder_itself_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it is mounted."""

    def mounted(*_: Any) -> bool:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/old").write_bytes(b"1")
    monkeypatch.setattr(folders, "exchange", mounted)
    replace_folder(tmp_path / "folder", {"new": b"2"})
    assert content(tmp_path / "folder") == {"new": b"2"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_to_a_folder_and_the_mode_of_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("there")
    replace_folder(tmp_path / "link", {"a": b"1"})
    assert os.readlink(tmp_path / "link") == "there"
    assert (tmp_path / "there").stat().st_mode & 0o777 == 0o700
    assert content(tmp_path / "there") == {"a": b"1"}


def test_where_a_file_is_on_the_way_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    for place in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(InvalidInput, match="cannot be written"):
            replace_folder(place, {"a": b"1"})
    assert (tmp_path / "file").read_bytes() == b"1"
