from pathlib import Path

import msgspec
import pytest

from gearshift.errors import InvalidInput
from gearshift.traces.logs.journal import read_journal

READY = {"at": 1000.0, "event": "ready", "replicas": 1}


def arrivals(at: float, *requests: int, past_s: float = 0.1, pipeline: str = "task") -> dict[str, object]:
    return {"at": at, "event": "arrivals", "pipeline": pipeline, "requests": list(requests), "past_s": past_s}


def journal(path: Path, *events: dict[str, object]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


def test_requests_are_placed_by_the_second_and_gaps_are_empty(tmp_path: Path) -> None:
    path = journal(tmp_path / "j", READY, arrivals(1012.1, 0, 3, 4), arrivals(1016.1, 5, past_s=0.1))
    assert read_journal(path).counts.tolist() == [3, 4, 0, 0, 0, 5]


def test_a_second_that_had_begun_at_the_end_counts(tmp_path: Path) -> None:
    path = journal(tmp_path / "j", arrivals(1012.1, 1, 2), arrivals(1012.4, 7, past_s=-0.6))
    assert read_journal(path).counts.tolist() == [1, 2, 7]


def test_the_older_part_of_a_journal_comes_first(tmp_path: Path) -> None:
    journal(tmp_path / "j.1", arrivals(1002.1, 1, 1))
    assert read_journal(journal(tmp_path / "j", arrivals(1004.1, 2, 2))).counts.tolist() == [1, 1, 2, 2]


def test_one_of_several_pipelines_is_chosen(tmp_path: Path) -> None:
    path = journal(tmp_path / "j", arrivals(1002.1, 1, 1), arrivals(1002.1, 5, 6, pipeline="other"))
    assert read_journal(path, pipeline="other").counts.tolist() == [5, 6]
    with pytest.raises(InvalidInput, match="it has the requests of other, task; choose one with --where pipeline="):
        read_journal(path)
    with pytest.raises(InvalidInput, match="no requests of 'third'; name one of other, task"):
        read_journal(path, pipeline="third")


def test_torn_and_impossible_lines_are_skipped(tmp_path: Path) -> None:
    path = journal(tmp_path / "j", arrivals(1002.1, 1), arrivals(1003.1, -4), arrivals(1e20, 4))
    path.write_bytes(path.read_bytes() + b'{"event":"arrivals","at":1')
    read = read_journal(path)
    assert (read.counts.tolist(), read.skipped) == ([1], 3)


def test_a_journal_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there are no arrivals in it; give the file of `gearshift serve --journal`"):
        read_journal(journal(tmp_path / "j", READY))
    with pytest.raises(InvalidInput, match="no such file"):
        read_journal(tmp_path / "none")


def test_a_journal_over_ten_million_seconds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="longer than 10 million seconds"):
        read_journal(journal(tmp_path / "j", arrivals(2.1, 1), arrivals(2e10, 1)))
