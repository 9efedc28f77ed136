"""Bounds of a server: on memory, by default derived from the memory that there is, and on one request."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from gearshift.serving.door.settings import ServerSettings
from gearshift.v2.tensors import Limits

LEAST_BYTES, MOST_BYTES = 1 << 20, 256 << 20
PARSING, WAITING = 6, 2
"""Worst memory of a body as a multiple of its held bytes: while parsed and answered, and while
waiting."""
MACHINE, GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
V2, V1 = ("memory.max", ""), ("memory.limit_in_bytes", "memory")
"""The file of a group's limit, and the folder of all groups."""


def free_bytes(machine: Path = MACHINE, group: Path = GROUP) -> int | None:
    """Return the free memory of the machine or of the visible control group (v2); None if unknown.

    Pages that the kernel can drop at once count as free.
    """
    left = _machine_bytes(machine, "MemAvailable")
    try:
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))  # or "max"
        rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        left.append(max(0, most - used + int(rows["inactive_file"])))
    except (OSError, ValueError, KeyError):
        pass
    return min(left, default=None)


def limit_bytes(machine: Path = MACHINE, group: Path = GROUP, own: Path = OWN_GROUPS) -> int | None:
    """Return the least of machine memory and group limits (v1, v2); None if unknown."""
    return min([*_group_limits(group, own), *_machine_bytes(machine, "MemTotal")], default=None)


def _machine_bytes(machine: Path, name: str) -> list[int]:
    """Return the number in the row `name`; empty if there is none."""
    try:
        rows = dict(line.split(":", 1) for line in machine.read_text().splitlines())
        return [int(rows[name].split()[0]) * 1024]
    except (OSError, ValueError, KeyError, IndexError):
        return []


def _group_limits(group: Path, own: Path) -> Iterator[int]:
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    places = {(V2, "/"), (V1, "/")}
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers or "memory" in controllers.split(","):
            places.add((V1 if controllers else V2, path))
    for (name, folder), path in places:
        inner = PurePosixPath(path)
        for each in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # not visible, or "max"
                yield int((group / folder / str(each).lstrip("/") / name).read_text())


def most_waiting_bytes(settings: ServerSettings) -> int:
    """Return the bytes of unanswered requests beyond which requests are refused.

    By default the memory has room to parse one body of this size while as many bytes wait.
    """
    if settings.most_waiting_bytes is not None:
        return settings.most_waiting_bytes
    limit = limit_bytes()
    if limit is None:
        return MOST_BYTES
    return min(max(LEAST_BYTES, limit // (PARSING + WAITING)), MOST_BYTES)


def with_memory_bounds(settings: ServerSettings) -> ServerSettings:
    """Return settings with bounds for this machine; one body is at most as large as all."""
    most = most_waiting_bytes(settings)
    largest = min(settings.largest_body_bytes, most)
    return msgspec.structs.replace(settings, most_waiting_bytes=most, largest_body_bytes=largest)


def limits_of(settings: ServerSettings) -> Limits:
    return Limits(
        most_rows=settings.most_rows,
        most_tensors=settings.most_tensors,
        most_elements=settings.most_elements,
        most_text_bytes=settings.largest_body_bytes * 3 // 4,
    )
