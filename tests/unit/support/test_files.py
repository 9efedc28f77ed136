import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.support import files
from gearshift.support.files import (
    exchange,
    is_plain,
    memory_file,
    own_descriptor,
    read_bytes,
    read_text,
    replace_folder,
    require_writable,
    write_atomically,
    written_atomically,
)


def written_and_closed(descriptor: int, content: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as file:
        file.write(content)


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


@pytest.mark.parametrize("place", ["/", "/..", "", "folder", "folder/", "link"])
def test_a_folder_is_not_written_as_a_file(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    path = place if place.startswith("/") else f"{tmp_path}/{place}"
    with pytest.raises(InvalidInput, match=r"cannot be written \(Is a directory\)"):
        write_atomically(path, b"1")
    with pytest.raises(InvalidInput, match="is a folder"):
        require_writable(path)


def test_a_link_leads_to_what_is_written_and_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/next")
    (tmp_path / "there/next").symlink_to("file")  # which is not there yet
    for content in (b"first, longer", b"second"):
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "there/file").read_bytes() == content
    assert os.readlink(tmp_path / "link") == "there/next"
    assert os.readlink(tmp_path / "there/next") == "file"


def test_links_in_a_ring_are_told_and_stay(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InvalidInput, match=r"cannot be written .*levels of symbolic links"):
        write_atomically(tmp_path / "a", b"1")
    assert (tmp_path / "a").is_symlink()


def test_all_names_of_a_file_have_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before, and longer")
    os.link(tmp_path / "file", tmp_path / "other")
    write_atomically(tmp_path / "file", b"after")
    assert (tmp_path / "other").read_bytes() == b"after"
    assert (tmp_path / "file").samefile(tmp_path / "other")


def test_a_failed_write_leaves_a_file_of_several_names_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    os.link(tmp_path / "file", tmp_path / "other")
    with suppress(ZeroDivisionError), written_atomically(tmp_path / "file") as file:
        file.write(b"after")
        raise ZeroDivisionError
    assert (tmp_path / "other").read_bytes() == b"before"


def test_a_named_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    require_writable(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_atomically(tmp_path / "pipe", b"1")
    reader.join()
    assert read == [b"1"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_device_is_written_and_stays_a_device() -> None:
    write_atomically("/dev/null", b"1")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(InvalidInput, match=r"/dev/full: cannot be written \(No space left"):
        write_atomically("/dev/full", b"1")


@pytest.mark.parametrize("names", ["/dev/fd/{}", "/proc/self/fd/{}", "/proc/{pid}/fd/{}", "{link}"])
def test_a_descriptor_of_this_process_is_written_where_it_stands(tmp_path: Path, names: str) -> None:
    """As of a shell's redirection or process substitution: what was written before it stays."""
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(b"before ")
        (tmp_path / "link").symlink_to(f"/dev/fd/{file.fileno()}")
        path = names.format(file.fileno(), pid=os.getpid(), link=tmp_path / "link")
        assert own_descriptor(path) == file.fileno()
        require_writable(path)
        write_atomically(path, b"json ")
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"before json after"


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_file_without_a_name_is_there_in_sandboxes_too(in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def left_out(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if not in_memory:
        monkeypatch.setattr(os, "memfd_create", left_out, raising=False)
    with os.fdopen(memory_file("a"), "w+b", buffering=0) as file:
        file.write(b"1")
        file.seek(0)
        assert file.read() == b"1"


def test_only_regular_files_are_put_aside_for_others(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"1")
    assert is_plain(tmp_path / "file")
    assert is_plain(tmp_path / "new")
    assert not any(map(is_plain, (tmp_path / "pipe", "/dev/null", "/dev/stdout")))


def test_content_is_on_the_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            done.append(name)
            call(*arguments)

        return run

    monkeypatch.setattr(os, "fsync", noted("sync", os.fsync))
    monkeypatch.setattr(os, "replace", noted("rename", os.replace))
    write_atomically(tmp_path / "file", b"1")
    assert done == ["sync", "rename", "sync"]  # the last one is of the folder


def test_a_file_is_written_itself_where_nothing_can_be_moved_to_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a file that alone is mounted into a container."""

    def mounted(*_: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    (tmp_path / "file").write_bytes(b"before, and longer")
    monkeypatch.setattr(os, "replace", mounted)
    write_atomically(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"after"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_atomically(tmp_path / "new", b"1")


def test_a_name_may_be_as_long_as_names_may_be(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("n" * 255), b"1")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"1"


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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_text_as_shells_of_windows_write_it_is_read(tmp_path: Path, encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    (tmp_path / "file").write_bytes(mark + "hé".encode(encoding))
    assert read_text(tmp_path / "file") == "hé"


@pytest.mark.parametrize("data", [b"a\nb\xff", b"\xff\xfea"])
def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    line = 1 + data.count(b"\n")
    with pytest.raises(InvalidInput, match=f"file, line {line}: not UTF-8 text"):
        read_text(tmp_path / "file")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_holds_the_new_files_and_nothing_else(tmp_path: Path) -> None:
    for new in ({"a": b"1", "b": b"2"}, {"b": b"3"}):
        replace_folder(str(tmp_path / "on/the/way"), new)
        assert content(tmp_path / "on/the/way") == new
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
    monkeypatch.setattr(files, "exchange", lambda a, b: False)
    for content_then in ({"a": b"1"}, {"b": b"2"}):
        replace_folder(tmp_path / "folder", content_then)
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
    monkeypatch.setattr(files, "exchange", mounted)
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


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path, says in (
        (tmp_path / "pipe", "is a named pipe, needs a file"),
        (tmp_path / "link", "is a device, needs a file"),
        (tmp_path, "is a folder, needs a file"),
        ("/dev/null", "is a device, needs a file"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=says):
            read_bytes(path)


@pytest.mark.parametrize("names", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_the_pipe_of_a_process_substitution_is_read_up_to_a_bound(names: str) -> None:
    for most, says in ((3 << 20, None), ((3 << 20) - 1, "the file is larger than 2 MiB")):
        read_end, write_end = os.pipe()
        writer = threading.Thread(target=written_and_closed, args=(write_end, b"1" * (3 << 20)))
        writer.start()
        try:
            if says is None:
                assert read_bytes(names.format(read_end), most_bytes=most) == b"1" * (3 << 20)
            else:
                with pytest.raises(InvalidInput, match=says):
                    read_bytes(names.format(read_end), most_bytes=most)
        finally:
            os.close(read_end)
            writer.join()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidInput, match="the file is larger than 4096 MiB; check that it is the right one"):
        read_bytes(tmp_path / "sparse")
