import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.files import read_bytes, read_text, replace_folder, require_writable, write_atomically


@settings(deadline=None)
@given(st.binary(min_size=1).filter(bytes.strip))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    write_atomically(path, data)
    assert read_bytes(path) == data


def test_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"1")
    write_atomically(tmp_path / "file", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a/b/file", b"1")
    assert (tmp_path / "a/b/file").read_bytes() == b"1"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_who_may_read_a_written_file_is_for_the_umask_to_say_unless_it_is_private(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"1")
        write_atomically(tmp_path / "private", b"1", private=True)
        replace_folder(tmp_path / "folder", {"file": b"1"})
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder/file", "private")]
    assert modes == [mode, mode, 0o600]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InvalidInput, match=r"taken: cannot be written .*; choose another place"):
        write_atomically(tmp_path / "taken", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_place_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_atomically(tmp_path / "file" / "below", b"1")


@pytest.mark.parametrize(("place", "told"), [("", "is a folder"), ("file/below", "Not a directory")])
def test_where_nothing_can_be_written_is_known_before(tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(InvalidInput, match=f"{told}.*; choose another place"):
        require_writable(tmp_path / place)


@pytest.mark.parametrize("place", ["file", "new", "a/b/new"])
def test_what_can_be_written_is_not_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"1")
    require_writable(tmp_path / place)


def test_a_missing_file_names_path_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="gone: no such file; make one"):
        read_bytes(tmp_path / "gone", remedy="make one")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a folder, needs a file"):
        read_bytes(tmp_path)


@pytest.mark.parametrize("data", [b"", b" \n\t"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(InvalidInput, match="file: the file is empty"):
        read_bytes(tmp_path / "file")


def test_text_loses_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfh\xc3\xa9")
    assert read_text(tmp_path / "file") == "hé"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="file: not UTF-8 text"):
        read_text(tmp_path / "file")
