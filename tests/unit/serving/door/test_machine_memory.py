from pathlib import Path

import pytest

from gearshift.serving.door.machine_memory import free_bytes

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
