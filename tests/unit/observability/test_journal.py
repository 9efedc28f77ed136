import contextlib
import json
import logging
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.observability.journal import JournalFile


def test_a_full_journal_makes_room_and_keeps_the_one_before(tmp_path):
    journal = JournalFile(tmp_path / "a" / "journal.jsonl", rotate_at_bytes=200)
    for i in range(20):
        journal.write("shift", number=i)
    journal.close()
    journal.close()
    paths = [tmp_path / "a" / "journal.jsonl.1", tmp_path / "a" / "journal.jsonl"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["journal.jsonl", "journal.jsonl.1"]
    assert all(path.stat().st_size <= 200 for path in paths)
    kept = [json.loads(line)["number"] for path in paths for line in path.read_text().splitlines()]
    assert kept == list(range(20 - len(kept), 20))


def test_what_others_have_a_part_in_does_nothing_to_a_terminal(tmp_path):
    journal = JournalFile(tmp_path / "journal.jsonl")
    journal.write("poisonous", reason="a\nb\x1b[2J\u202e\u009b")
    journal.close()
    (line,) = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert line.isprintable()
    assert json.loads(line)["reason"] == "a\nb\x1b[2J\u202e\u009b"


def test_a_journal_that_cannot_be_begun_says_so() -> None:
    with pytest.raises(InvalidInput, match=r"/dev/full: cannot be written \(No space left on device\)"):
        JournalFile(Path("/dev/full")).write("ready")


def test_a_pipe_is_written_as_it_is_and_never_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    journal = JournalFile(path, rotate_at_bytes=1)
    with pytest.raises(InvalidInput, match="cannot be written"):
        journal.write("begun before anybody reads")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        journal.write("first")
        assert [json.loads(line)["event"] for line in reader.read().splitlines()] == ["first"]
        with caplog.at_level(logging.ERROR):
            for _ in range(100):
                journal.write("more than a pipe holds", text="x" * 3000)
        assert len(caplog.records) == 1
        assert all(json.loads(line) for line in reader.read().splitlines())
    journal.close()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_full_journal_makes_room_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/journal.jsonl")
    journal = JournalFile(tmp_path / "link", rotate_at_bytes=100)
    for _ in range(2):
        journal.write("shift", text="x" * 60)
    journal.close()
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"journal.jsonl", "journal.jsonl.1"}


def test_events_that_find_no_room_are_lost_and_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalFile(path)
    journal.write("ready")
    journal.close()
    path.rename(tmp_path / "before.jsonl")
    os.symlink("/dev/full", path)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            journal.write("shift")
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the journal cannot be written, and its events are lost until it can"
    ]
    journal.close()
    path.unlink()
    journal.write("stop")
    journal.close()
    assert json.loads(path.read_text())["event"] == "stop"


@contextmanager
def room_for(file_bytes: int) -> Iterator[None]:
    """No file may grow beyond `file_bytes`, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room_bytes", [1, 20, 60])
def test_what_goes_through_of_an_event_on_a_full_disk_does_not_stay(tmp_path: Path, room_bytes: int) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JournalFile(path)
    journal.write("ready")
    with room_for(path.stat().st_size + room_bytes):
        for number in range(2):
            journal.write("shift", number=number, reason="x" * 100)
    journal.write("stop")
    journal.close()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["ready", "stop"]


def test_a_line_whose_writer_was_killed_within_it_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event":"ready"}\n{"event":"shi')
    journal = JournalFile(path)
    journal.write("stop")
    journal.close()
    first, torn, last = path.read_text().splitlines()
    assert [json.loads(line)["event"] for line in (first, last)] == ["ready", "stop"]
    assert torn == '{"event":"shi'


PRINTS_BETWEEN = """
import sys
from pathlib import Path
from gearshift.observability.journal import JournalFile

journal = JournalFile(Path(sys.argv[1]))
for number in range(3):
    journal.write("shift", number=number)
    print("printed", number, flush=True)
journal.close()
"""


def lines_of_a_process(stdout: int, place: str = "/dev/stdout") -> None:
    subprocess.run([sys.executable, "-c", PRINTS_BETWEEN, place], stdout=stdout, timeout=60, check=True)


def told_between(lines: list[str]) -> list[object]:
    return [line if line.startswith("printed") else json.loads(line)["number"] for line in lines]


@pytest.mark.parametrize("place", ["/dev/stdout", "/proc/self/fd/1"])
def test_a_journal_in_the_file_that_standard_output_is_leaves_what_others_print_there(
    tmp_path: Path, place: str
) -> None:
    path = tmp_path / "out"
    with path.open("wb") as out:
        lines_of_a_process(out.fileno(), place)
    assert told_between(path.read_text().splitlines()) == [0, "printed 0", 1, "printed 1", 2, "printed 2"]


def test_a_journal_goes_to_the_socket_that_standard_output_is() -> None:
    here, there = socket.socketpair()
    with here, there:
        lines_of_a_process(there.fileno())
        there.close()
        with here.makefile() as read:
            assert told_between(read.read().splitlines()) == [0, "printed 0", 1, "printed 1", 2, "printed 2"]


def test_a_socket_is_never_waited_for_and_a_line_that_went_through_in_part_is_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, there = socket.socketpair()
    with here, there:
        journal = JournalFile(Path(f"/dev/fd/{there.fileno()}"))
        with caplog.at_level(logging.ERROR):
            for number in range(20):
                journal.write("more than a socket holds", number=number, text="x" * 100_000)
        assert len(caplog.records) == 1
        here.setblocking(False)
        read = b""
        for number in (20, 21):
            with contextlib.suppress(BlockingIOError):
                while data := here.recv(1 << 20):
                    read += data
            journal.write("read again", number=number)
        journal.close()
        there.close()
        read += here.recv(1 << 20)
        numbers = [json.loads(line)["number"] for line in read.splitlines()]
        assert numbers == [*range(len(numbers) - 2), 20, 21]
