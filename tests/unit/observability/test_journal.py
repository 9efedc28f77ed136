import json
import logging
import os
from pathlib import Path

import pytest

from gearshift.errors import InvalidInput
from gearshift.observability.journal import Journal


def test_a_full_journal_makes_room_and_keeps_the_one_before(tmp_path):
    journal = Journal(tmp_path / "a" / "journal.jsonl", rotate_at_bytes=200)
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
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("poisonous", reason="a\nb\x1b[2J\u202e\u009b")
    journal.close()
    (line,) = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert line.isprintable()
    assert json.loads(line)["reason"] == "a\nb\x1b[2J\u202e\u009b"


def test_a_journal_that_cannot_be_begun_says_so() -> None:
    with pytest.raises(InvalidInput, match=r"/dev/full: cannot be written \(No space left on device\)"):
        Journal(Path("/dev/full")).write("ready")


def test_events_that_find_no_room_are_lost_and_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
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
