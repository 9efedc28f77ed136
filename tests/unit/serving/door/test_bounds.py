from pathlib import Path

import pytest

from gearshift.serving.door import bounds
from gearshift.serving.door.bounds import (
    LEAST_BYTES,
    MOST_BYTES,
    free_bytes,
    limit_bytes,
    most_waiting_bytes,
    with_memory_bounds,
)
from gearshift.serving.door.settings import ServerSettings

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/\n", {}, 9 * 1024),
        ("0::/a/b\n", {"a/memory.max": "4000", "a/b/memory.max": "max"}, 4000),
        ("0::/a/b\n", {"memory.max": "5000", "a/memory.max": "6000"}, 5000),
        ("0::/not/seen/from/here\n", {"memory.max": "5000"}, 5000),
        ("4:memory:/p\n0::/\n", {"memory/p/memory.limit_in_bytes": "3000"}, 3000),
        ("4:cpu,memory:/p/q\n", {"memory/p/memory.limit_in_bytes": "3000"}, 3000),
        ("4:memory:/../x\n", {"memory/memory.limit_in_bytes": "2000"}, 2000),
        ("4:cpu:/p\n", {"cpu/p/memory.limit_in_bytes": "3000", "memory.max": "nonsense"}, 9 * 1024),
        ("nonsense", {}, 9 * 1024),
    ],
)
def test_the_least_of_machine_and_control_groups_is_what_there_is(
    tmp_path: Path, own: str, files: dict[str, str], limit: int
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable: 4 kB\n")
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert limit_bytes(tmp_path / "meminfo", tmp_path / "groups", tmp_path / "own") == limit


def test_where_nothing_tells_there_is_no_limit(tmp_path: Path) -> None:
    assert limit_bytes(tmp_path / "meminfo", tmp_path / "groups", tmp_path / "own") is None


@pytest.mark.parametrize(
    ("limit", "most"),
    [(None, MOST_BYTES), (64 * GIB, MOST_BYTES), (450 * MIB, 450 * MIB // 8), (8 * MIB, LEAST_BYTES)],
)
def test_bytes_that_may_wait_leave_room_for_what_parsing_makes_of_them(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, most: int
) -> None:
    monkeypatch.setattr(bounds, "limit_bytes", lambda: limit)
    assert most_waiting_bytes(ServerSettings()) == most
    assert most_waiting_bytes(ServerSettings(most_waiting_bytes=5)) == 5


def test_no_body_is_larger_than_all_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "limit_bytes", lambda: 80 * MIB)
    made = with_memory_bounds(ServerSettings())
    assert (made.most_waiting_bytes, made.largest_body_bytes) == (10 * MIB, 10 * MIB)
    made = with_memory_bounds(ServerSettings(largest_body_bytes=1000, most_waiting_bytes=2000))
    assert (made.most_waiting_bytes, made.largest_body_bytes) == (2000, 1000)
    assert with_memory_bounds(made) == made


STAT = "anon 5\ninactive_file 300\nactive_file 7\n"


@pytest.mark.parametrize(
    ("machine", "group", "left"),
    [
        ("MemTotal: 9 kB\nMemAvailable:  4 kB\n", {}, 4096),
        ("MemAvailable: 4 kB\n", {"max": "max", "current": "5", "stat": STAT}, 4096),
        ("MemAvailable: 4 kB\n", {"max": "1000", "current": "900", "stat": STAT}, 400),
        ("MemAvailable: 4 kB\n", {"max": "1000", "current": "2000", "stat": STAT}, 0),
        ("", {"max": "1000", "current": "900", "stat": STAT}, 400),
        ("nonsense", {"max": "1000", "current": "900", "stat": "nonsense"}, None),
        (None, {}, None),
    ],
)
def test_what_is_left_is_the_least_that_machine_and_group_tell(
    tmp_path: Path, machine: str | None, group: dict[str, str], left: int | None
) -> None:
    if machine is not None:
        (tmp_path / "meminfo").write_text(machine)
    for name, text in group.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_bytes(tmp_path / "meminfo", tmp_path) == left
